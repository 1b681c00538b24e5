"""Layers at a glance: cycles, share, what saturated, how it compares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from nmpsim.debugger import LayerState
from nmpsim.debugger.breakpoints import LayerCondition
from nmpsim.debugger.reference import Reference
from nmpsim.tui.layer_columns import LayerRow, in_order, layer_filter
from nmpsim.tui.lines import LinePane
from nmpsim.tui.look import GREEN, ORANGE, SKY, VERMILION
from nmpsim.tui.view import View
from nmpsim.views.text import percent, short_count, shorten_apart, shorten_middle
from nmpsim.visible import visible_line

BAR_COLUMNS = 8
COMPARED_COLUMNS = 14
MARK_COLUMNS, NUMBER_COLUMNS = 2, 5
NAME_COLUMNS = 12
"""That names have at least: narrow panes leave out what limits layers, then operations."""
LONGEST_OPERATION = 15
TITLES = {
    "": NUMBER_COLUMNS,
    "layer": 0,
    "operation": 0,
    "cycles": 0,
    "share": 0,
    "limited by": 28,
    "saturated": 0,
}
"""Of the columns, and how wide each is at least: what limits layers shows as they are done."""
LEFT_ALIGNED = ("layer", "operation", "limited by")
LEFT_OUT = ("operation", "limited by")
"""Columns that there may be no room for, the one that stays longer first."""
SORTED_BY = ("layer", "cycles", "saturated", "limited by", "operation")


class LayersPane(LinePane):
    """One line a layer; choosing one shows it in the other panes.

    Not a DataTable: its cursor inverts whole rows, and bars with them.
    """

    title = "Layers"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket", "sort(1)", "Sort by the next column", show=False),
        Binding("left_square_bracket", "sort(-1)", "Sort by the column before", show=False),
        Binding("r", "reverse", "Sort the other way around", show=False),
        Binding("f", "app.prompt('filter ')", "Filter layers: conv* sat>0", show=False),
    ]
    _rows: tuple[LayerRow, ...] = ()
    """Those that the filter leaves, in the order that they are sorted in."""
    _total = 0
    _longest: Mapping[str, int] = {}
    """Characters of the longest cell of each column."""
    _names: tuple[int, Mapping[int, str]] = (0, {})
    """Columns that names have, and the names of layers that fit."""
    _known: tuple[Reference | None, bool] = (None, False)
    """A reference, and has it real values of quantized layers?"""
    _sorted_by = SORTED_BY[0]
    _is_reversed = False
    _filter = _verdict = ""

    def prepare(self, view: View) -> None:
        """Follow the layer that is looked at."""
        self._total = sum(state.cycles for state in view.layers)
        reference = view.shell.reference
        if reference is not self._known[0]:
            self._known = reference, reference is not None and reference.is_float()
        limited_by = view.report.limited_by
        self.border_title = f"{self.title}, {limited_by}" if limited_by else self.title
        self._arrange()
        self.follow(view.layer, self._line_of(view.layer))

    @property
    def orders(self) -> tuple[str, ...]:
        """Columns to sort by."""
        if self._known[0] is None:
            return SORTED_BY
        return (*SORTED_BY[:3], "sqnr" if self._known[1] else "ulp", *SORTED_BY[3:])

    def sort_by(self, column: str, *, is_reversed: bool = False) -> None:
        """Sort; the cursor stays with its layer."""
        self._sorted_by, self._is_reversed = column, is_reversed
        self._show_again()

    def action_sort(self, step: int) -> None:
        """By another column."""
        self.sort_by(self.orders[(self.orders.index(self._sorted_by) + step) % len(self.orders)])

    def action_reverse(self) -> None:
        """The other way around."""
        self.sort_by(self._sorted_by, is_reversed=not self._is_reversed)

    def filter_by(self, text: str) -> None:
        """Show layers of which all words hold; all layers without any.

        Raises:
            UserError: DEBUG001 if a word is not understood.
        """
        layer_filter(text)
        self._filter = text
        self._show_again()

    def _show_again(self) -> None:
        if self.view is not None:
            under = self._rows[self.cursor : self.cursor + 1]
            at = under[0].state.index if under else self.view.layer
            self._arrange()
            self.come_to(self._line_of(at))
            self.renew()

    def _arrange(self) -> None:
        """Filter and sort, and say so in the border."""
        view = self.shown
        rows = [self._row(state) for state in view.layers]
        left = list(filter(layer_filter(self._filter), rows))
        self._rows = tuple(in_order(left, self._sorted_by, is_reversed=self._is_reversed))
        self._names, self._verdict = (0, {}), self._verdict_on(rows)
        cells = [self._cells(row) for row in rows]
        self._longest = {
            title: max(least, *(len(one[title]) for one in ({title: title}, *cells)))
            for title, least in TITLES.items()
        }
        told = [view.report.host.text] if view.report.host.layers else []
        if self._sorted_by != SORTED_BY[0] or self._is_reversed:
            told.insert(0, f"by {self._sorted_by}{', reversed' if self._is_reversed else ''}")
        if self._filter:
            told.insert(0, f"{len(left)} of {len(rows)}: {visible_line(self._filter)}")
        self.border_subtitle = "; ".join(told)

    def _row(self, state: LayerState) -> LayerRow:
        compared = self.shown.comparisons.get(state.index)
        share = 100 * state.cycles / self._total if self._total else 0.0
        return LayerRow(state, share, None if compared is None else compared.found.accumulated)

    def _line_of(self, layer: int) -> int:
        """The line of a layer; the first one if it is filtered out."""
        return next((i for i, row in enumerate(self._rows) if row.state.index == layer), 0)

    def count(self) -> int:
        """Layers."""
        return len(self._rows)

    def label_columns(self, index: int, width: int) -> int | None:
        """All but the bar."""
        return None if self._known[0] else max(width - BAR_COLUMNS, 1)

    def heading(self, width: int) -> list[Text]:
        """What matters most so far, and names of the columns."""
        last = "reference" if self._known[0] is not None else ""
        widths = self._widths(width)
        titles = Text(f"{' ' * MARK_COLUMNS}{_joined({one: one for one in widths}, widths)} {last}")
        titles.highlight_words([last if self._sorted_by in ("ulp", "sqnr") else self._sorted_by],
                               "underline")  # fmt: skip
        return [Text(self._verdict, no_wrap=True), titles] if self._verdict else [titles]

    def _verdict_on(self, rows: Sequence[LayerRow]) -> str:
        """The layer that took most time, and why; the layer furthest from the reference."""
        told = []
        if self._total:
            most = in_order(rows, "cycles", is_reversed=False)[0]
            why = f": {most.state.limited_by}" if most.state.limited_by else ""
            told.append(f"most time {_named(most)} {percent(most.share, 100)}%{why}")
        differing = [row for row in rows if row.found is not None and not row.found.equal]
        if differing:
            column = "sqnr" if self._known[1] else "ulp"
            worst = in_order(differing, column, is_reversed=False)[0]
            told.append(f"furthest {_named(worst)} {self._distance(worst)}")
        return "; ".join(told)

    def line(self, index: int, width: int) -> Text:
        """A layer."""
        view, row = self.shown, self._rows[index]
        state = row.state
        is_current, known = view.location.layer == state.index, state.state != "pending"
        mark = self._mark(state, is_current)
        text = Text(self._side(state.index)).append(
            mark, style=GREEN if state.state == "done" else ""
        )
        widths, cells = self._widths(width), self._cells(row)
        cells["layer"] = self._fitting_name(state.index, widths["layer"])
        text.append(_joined(cells, widths), "bold" if is_current else "" if known else "dim")
        if state.saturated:
            text.stylize(ORANGE, len(text) - widths["saturated"])
        return text.append(" ").append_text(self._last(row))

    def looks_at(self, index: int) -> Mapping[str, Any]:
        """The layer."""
        return {"layer": self._rows[index].state.index}

    def breakpoint_at(self, index: int) -> LayerCondition | None:
        """Where the layer begins."""
        return LayerCondition(self._rows[index].state.index) if index < len(self._rows) else None

    def _fitting_name(self, layer: int, columns: int) -> str:
        """Long names that are alike show where they part."""
        if self._names[0] != columns:
            states = self.shown.layers
            short = shorten_apart([visible_line(state.display_name) for state in states], columns)
            self._names = columns, {s.index: n for s, n in zip(states, short, strict=True)}
        return self._names[1][layer]

    def _side(self, layer: int) -> str:
        """Does the selected layer read this one, or this one the selected one?"""
        chosen, facts = self.shown.layer, self.shown.facts
        if layer in facts.sources.get(chosen, ()):
            return "<"
        return ">" if layer in facts.readers.get(chosen, ()) else " "

    def _last(self, row: LayerRow) -> Text:
        """How a layer compares with the reference; without one, a bar of its share."""
        if self._known[0] is None:
            return Text(self._bar(row.share), style=SKY)
        if row.found is None:
            return Text("")
        if row.found.equal:
            return Text(f"{self.glyphs.equal} equal", style=GREEN)
        return Text(f"{self.glyphs.differs} {self._distance(row)}", VERMILION)

    def _distance(self, row: LayerRow) -> str:
        """Of real values as a ratio, else how many differ and by how many units at most."""
        if row.found is None:
            return ""
        if self._known[1] and math.isfinite(row.found.sqnr_db):
            return f"{row.found.sqnr_db:.1f} dB"
        return f"{short_count(row.found.differing)} by {short_count(row.found.worst_ulp)}"

    def _cycles(self, state: LayerState) -> str:
        if state.placement == "host" and not state.cycles:
            return "host"
        return f"{state.cycles:,}" if state.state != "pending" else ""

    def _mark(self, state: LayerState, is_current: bool) -> str:
        if is_current:
            return self.glyphs.next
        return self.glyphs.done if state.state == "done" else self.glyphs.pending

    def _cells(self, row: LayerRow) -> dict[str, str]:
        """What a line says, by the title of the column."""
        state = row.state
        is_chosen, known = self.shown.layer == state.index, state.state != "pending"
        return {
            "": f"{f'[{state.index}]' if is_chosen else f'{state.index} ':>{NUMBER_COLUMNS}}",
            "layer": visible_line(state.display_name),
            "operation": shorten_middle(visible_line(state.operation), LONGEST_OPERATION),
            "cycles": self._cycles(state),
            "share": f"{percent(row.share, 100)}%" if known else "",
            "limited by": state.limited_by,
            "saturated": f"{self.glyphs.over}{state.saturated:,}" if state.saturated else "",
        }

    def _widths(self, width: int) -> dict[str, int]:
        """Columns that there is room for, as wide as their cells; names have the rest."""
        last = BAR_COLUMNS if self._known[0] is None else COMPARED_COLUMNS
        widths = {one: n for one, n in self._longest.items() if one not in LEFT_OUT}
        widths["layer"] = 0
        room = width - MARK_COLUMNS - last - sum(n + 1 for n in widths.values())
        for one in LEFT_OUT:
            if room - self._longest[one] - 1 >= NAME_COLUMNS:
                widths[one] = self._longest[one]
                room -= widths[one] + 1
        widths["layer"] = max(room, NAME_COLUMNS)
        return {one: widths[one] for one in self._longest if one in widths}

    def choose_heading(self, column: int) -> None:
        """Sort by the column whose title was clicked; a second click reverses the order."""
        edges = accumulate(
            (n + 1 for n in self._widths(self.columns).values()), initial=MARK_COLUMNS
        )
        titles = ("", *self._widths(self.columns), "reference" if self._known[0] else "share")
        title = titles[sum(edge <= column for edge in edges)]
        meant = {"": "layer", "share": "cycles", "reference": "sqnr" if self._known[1] else "ulp"}
        by = meant.get(title, title)
        self.sort_by(by, is_reversed=by == self._sorted_by and not self._is_reversed)

    def _bar(self, share: float) -> str:
        return (self.glyphs.bar * round(share / 100 * BAR_COLUMNS))[:BAR_COLUMNS]


def _named(row: LayerRow) -> str:
    return f"[{row.state.index}] {shorten_middle(visible_line(row.state.display_name), 30)}"


def _joined(cells: Mapping[str, str], widths: Mapping[str, int]) -> str:
    """Cells side by side."""
    return " ".join(
        f"{cells[one]:{'<' if one in LEFT_ALIGNED else '>'}{n}}" for one, n in widths.items()
    )
