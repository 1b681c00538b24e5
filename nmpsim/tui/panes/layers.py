"""Layers pane: cycles, share, saturation, comparison with the reference; order and filters."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any, ClassVar

import attrs
from rich.text import Text
from textual.binding import BindingType

from nmpsim.analysis.difference import OutputDifference, rank_sqnr
from nmpsim.debugger import LayerState
from nmpsim.debugger.breakpoints import LayerCondition
from nmpsim.debugger.reference import ReferenceOutputs
from nmpsim.diagnostics import fail
from nmpsim.escape import escape_line
from nmpsim.report.savings import describe_limiter, sum_path_by_limiter
from nmpsim.tui.key_bindings import load_bindings
from nmpsim.tui.line_pane import LinePane, shorten_names
from nmpsim.tui.theme import GREEN, ORANGE, SKY, VERMILION
from nmpsim.tui.view import ScreenState
from nmpsim.views.measures import DEBUGGER_COLUMNS
from nmpsim.views.text import format_percent, format_short_count, shorten_middle

# Order and filters of the list of layers, by the columns of the debugger's table.

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_COMPARATOR = re.compile(r"\s*(<=|>=|!=|==|=|<|>)\s*")


@attrs.frozen
class LayerRow:
    """Row of the list of layers: state, share of cycles, and difference from the reference."""

    state: LayerState
    share: float
    """Percentage of the cycles so far."""
    difference: OutputDifference | None
    """Difference from the reference; None if unknown."""


SMALLEST_FIRST = ("layer", "sqnr")
"""Columns that are sorted in ascending order; other numbers are sorted in descending order."""


def sort_rows(rows: Sequence[LayerRow], column: str, *, is_reversed: bool) -> list[LayerRow]:
    """Return rows sorted by a column; texts, ``layer`` and ``sqnr`` ascend, the others descend."""
    measure = DEBUGGER_COLUMNS[column]
    descends = measure.is_number and column not in SMALLEST_FIRST
    return sorted(
        rows, key=lambda row: measure.make_cell(row).value, reverse=descends != is_reversed
    )


def make_filter(text: str) -> Callable[[LayerRow], bool]:
    """Return a function that tests if a row matches a filter such as ``conv* sat>0``.

    A word is a part or a pattern of a name or operation, negated by a preceding ``!``; or a column,
    a comparison and a value.

    Raises
    ------
    UserError
        DEBUG001 for an invalid word.
    """
    tests = [_test(word) for word in _COMPARATOR.sub(r"\1", text).split()]
    return lambda row: all(test(row) for test in tests)


def _test(word: str) -> Callable[[LayerRow], bool]:
    parts = _COMPARATOR.split(word, maxsplit=1)
    if len(parts) == 3:
        return _comparison(*parts)
    if word.startswith("!"):
        return lambda row: not _is_named(row, word[1:])
    return lambda row: _is_named(row, word)


def _is_named(row: LayerRow, word: str) -> bool:
    state = row.state
    texts = (state.name, state.display_name, state.op, state.operation)
    return any(_fits(text, word) for text in texts)


def _fits(text: str, word: str) -> bool:
    """Return whether a word is a pattern or a part of a text, ignoring case."""
    word = word.casefold() if any(one in word for one in "*?[") else f"*{word.casefold()}*"
    return fnmatchcase(text.casefold(), word)


def _comparison(name: str, comparator: str, wanted: str) -> Callable[[LayerRow], bool]:
    fitting = [one for one in DEBUGGER_COLUMNS if name and one.startswith(name.casefold())]
    if not fitting:
        raise fail(
            "DEBUG001", "unknown column in a filter", found=name or "no name",
            expected=", ".join(DEBUGGER_COLUMNS),
            hint="Write a filter such as `conv* sat>0 cycles>=1000 op=maxpool`.",
        )  # fmt: skip
    measure, compare = DEBUGGER_COLUMNS[fitting[0]], _COMPARE[comparator]
    try:
        limit = float(wanted.replace(",", "").removesuffix("%"))
    except ValueError:
        if comparator in ("=", "==", "!="):
            return lambda row: _fits(measure.make_cell(row).text, wanted) == (comparator != "!=")
        raise fail(
            "DEBUG001", f"the filter compares column {fitting[0]}, which has numbers, with text",
            found=wanted or "no value", expected="a number",
        ) from None  # fmt: skip

    def holds(row: LayerRow) -> bool:
        value = measure.make_cell(row).value
        return not isinstance(value, str) and compare(value, limit)

    return holds


BAR_COLUMNS = 8
COMPARED_COLUMNS = 14
MARK_COLUMNS, NUMBER_COLUMNS = 2, 5
NAME_COLUMNS = 12
"""Minimum width of names; narrow panes leave out the critical path, then operations."""
LONGEST_OPERATION = 15
TITLES = {
    "": NUMBER_COLUMNS,
    "layer": 0,
    "operation": 0,
    "cycles": 0,
    "share": 0,
    "critical path": 18,
    "saturated": 0,
}
"""Title of a column -> minimum width; the critical path is known when layers are done."""
LEFT_OUT = ("operation", "critical path")
"""Columns that may be left out; the first one stays longer."""
SORTED_BY = ("layer", "cycles", "saturated", "critical path", "operation")


class LayersPane(LinePane):
    """Pane with the list of layers; selecting a layer shows it in the other panes.

    Not a DataTable: its cursor inverts whole rows, and bars with them.
    """

    title = "Layers"
    BINDINGS: ClassVar[list[BindingType]] = load_bindings("layers")
    _rows: tuple[LayerRow, ...] = ()
    """Rows that match the filter, sorted."""
    _total = 0
    _longest: Mapping[str, int] = {}
    """Title of a column -> characters of its longest cell."""
    _names: tuple[str, ...] = ()
    """Names of all layers."""
    _known: tuple[ReferenceOutputs | None, bool] = (None, False)
    """The reference, and whether it has real values of quantized layers."""
    _sorted_by = SORTED_BY[0]
    _is_reversed = False
    _filter = _verdict = ""

    def update_from_view(self, view: ScreenState) -> None:
        """Update rows and title from a view, and move the cursor to the selected layer."""
        self._total = sum(state.cycles for state in view.layers)
        reference = view.shell.reference
        if reference is not self._known[0]:
            self._known = reference, reference is not None and reference.is_float()
        path = view.report.critical_path
        longest = describe_limiter(sum_path_by_limiter(path), sum(path.values()))
        self.border_title = f"{self.title}, critical path: {longest}" if longest else self.title
        self._arrange()
        self.follow_subject(view.layer, self._line_of(view.layer))

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """Names of the columns by which the list can be sorted."""
        if self._known[0] is None:
            return SORTED_BY
        return (*SORTED_BY[:3], "sqnr" if self._known[1] else "ulp", *SORTED_BY[3:])

    def sort_by(self, column: str, *, is_reversed: bool = False) -> None:
        """Sort the list by a column; the cursor stays at the same layer."""
        self._sorted_by, self._is_reversed = column, is_reversed
        self._refresh_rows()

    def action_sort(self, step: int) -> None:
        """Sort by the next or previous column."""
        self.sort_by(
            self.sort_columns[
                (self.sort_columns.index(self._sorted_by) + step) % len(self.sort_columns)
            ]
        )

    def action_reverse(self) -> None:
        """Reverse the order of the layers."""
        self.sort_by(self._sorted_by, is_reversed=not self._is_reversed)

    def filter_by(self, text: str) -> None:
        """Show the layers that match all words of a filter, or all layers if the filter is empty.

        Raises
        ------
        UserError
            DEBUG001 for an invalid word.
        """
        make_filter(text)
        self._filter = text
        self._refresh_rows()

    def _refresh_rows(self) -> None:
        if self.view is not None:
            under = self._rows[self.cursor : self.cursor + 1]
            at = under[0].state.index if under else self.view.layer
            self._arrange()
            self.schedule_cursor_moves(self._line_of(at))
            self.update_lines()

    def _arrange(self) -> None:
        """Filter and sort the rows, and describe this in the border."""
        view = self.current_view
        rows = [self._row(state) for state in view.layers]
        left = list(filter(make_filter(self._filter), rows))
        self._rows = tuple(sort_rows(left, self._sorted_by, is_reversed=self._is_reversed))
        self._names = tuple(escape_line(state.display_name) for state in view.layers)
        self._verdict = self._summarize(rows)
        cells = [self._cells(row) for row in rows]
        self._longest = {
            title: max(least, *(len(one[title]) for one in ({title: title}, *cells)))
            for title, least in TITLES.items()
        }
        parts = [view.report.host.text] if view.report.host.layers else []
        if self._sorted_by != SORTED_BY[0] or self._is_reversed:
            parts.insert(0, f"by {self._sorted_by}{', reversed' if self._is_reversed else ''}")
        if self._filter:
            parts.insert(0, f"{len(left)} of {len(rows)}: {escape_line(self._filter)}")
        self.border_subtitle = "; ".join(parts)

    def _row(self, state: LayerState) -> LayerRow:
        compared = self.current_view.comparisons.get(state.index)
        share = 100 * state.cycles / self._total if self._total else 0.0
        return LayerRow(state, share, None if compared is None else compared.accumulated)

    def _line_of(self, layer: int) -> int:
        """Return the line of a layer; the first one if it is filtered out."""
        return next((i for i, row in enumerate(self._rows) if row.state.index == layer), 0)

    def count_lines(self) -> int:
        """Return the number of layers that match the filter."""
        return len(self._rows)

    def get_highlight_width(self, index: int, width: int) -> int | None:
        """Return the number of columns before the bar, or None if a reference replaces the bar."""
        return None if self._known[0] else max(width - BAR_COLUMNS, 1)

    def make_heading(self, width: int) -> list[Text]:
        """Return the heading: a summary of the layers, and the column titles."""
        last = "reference" if self._known[0] is not None else ""
        widths = self._widths(width)
        titles = Text(
            f"{' ' * MARK_COLUMNS}{_join_cells({one: one for one in widths}, widths)} {last}"
        )
        titles.highlight_words([last if self._sorted_by in ("ulp", "sqnr") else self._sorted_by],
                               "underline")  # fmt: skip
        return [Text(self._verdict, no_wrap=True), titles] if self._verdict else [titles]

    def _summarize(self, rows: Sequence[LayerRow]) -> str:
        """Describe the slowest layer, and the layer furthest from the reference."""
        parts = []
        if self._total:
            most = sort_rows(rows, "cycles", is_reversed=False)[0]
            path = most.state.critical_path
            why = f", path: {path}" if path else ""
            parts.append(f"most time {_format_name(most)} {format_percent(most.share, 100)}%{why}")
        differing = [row for row in rows if row.difference is not None and not row.difference.equal]
        if differing:
            column = "sqnr" if self._known[1] else "ulp"
            worst = sort_rows(differing, column, is_reversed=False)[0]
            parts.append(f"furthest {_format_name(worst)} {self._distance(worst)}")
        return "; ".join(parts)

    def make_line(self, index: int, width: int) -> Text:
        """Return the line of a layer."""
        view, row = self.current_view, self._rows[index]
        state = row.state
        is_current, known = view.location.layer == state.index, state.state != "pending"
        mark = self._mark(state, is_current)
        text = Text(self._side(state.index)).append(
            mark, style=GREEN if state.state == "done" else ""
        )
        widths, cells = self._widths(width), self._cells(row)
        cells["layer"] = shorten_names(self._names, widths["layer"])[state.index]
        text.append(_join_cells(cells, widths), "bold" if is_current else "" if known else "dim")
        if state.saturated:
            text.stylize(ORANGE, len(text) - widths["saturated"])
        return text.append(" ").append_text(self._last_cell(row))

    def get_target(self, index: int) -> Mapping[str, Any]:
        """Return the layer on a line as the view field ``layer``."""
        return {"layer": self._rows[index].state.index}

    def get_breakpoint_condition(self, index: int) -> LayerCondition | None:
        """Return the condition for a breakpoint at the start of the layer on a line."""
        return LayerCondition(self._rows[index].state.index) if index < len(self._rows) else None

    def _side(self, layer: int) -> str:
        """Return ``<`` if the selected layer reads this one, ``>`` if this one reads it."""
        chosen, facts = self.current_view.layer, self.current_view.facts
        if layer in facts.sources.get(chosen, ()):
            return "<"
        return ">" if layer in facts.readers.get(chosen, ()) else " "

    def _last_cell(self, row: LayerRow) -> Text:
        """Return the comparison with the reference, or a bar of the share."""
        if self._known[0] is None:
            return Text(self._bar(row.share), style=SKY)
        if row.difference is None:
            return Text("")
        if row.difference.equal:
            return Text(f"{self.glyphs.equal} equal", style=GREEN)
        return Text(f"{self.glyphs.differs} {self._distance(row)}", VERMILION)

    def _distance(self, row: LayerRow) -> str:
        """Return the SQNR of real values, otherwise how many elements differ by how much."""
        if row.difference is None:
            return ""
        if self._known[1] and math.isfinite(rank_sqnr(row.difference)):
            return f"{row.difference.sqnr_db:.1f} dB"
        differing, worst = map(
            format_short_count, (row.difference.differing, row.difference.worst_ulp)
        )
        return f"{differing} by {worst}"

    def _mark(self, state: LayerState, is_current: bool) -> str:
        if is_current:
            return self.glyphs.next
        return self.glyphs.done if state.state == "done" else self.glyphs.pending

    def _cells(self, row: LayerRow) -> dict[str, str]:
        """Return the texts of a line by column title."""
        state = row.state
        is_chosen, known = self.current_view.layer == state.index, state.state != "pending"
        cells = {one: DEBUGGER_COLUMNS[one].make_cell(row).text for one in TITLES if one}
        return cells | {
            "": f"{f'[{state.index}]' if is_chosen else f'{state.index} ':>{NUMBER_COLUMNS}}",
            "operation": shorten_middle(cells["operation"], LONGEST_OPERATION),
            "share": cells["share"] if known else "",
            "saturated": self.glyphs.over + cells["saturated"] if state.saturated else "",
        }

    def _widths(self, width: int) -> dict[str, int]:
        """Return the widths of the columns that fit; names get the remaining space."""
        last = BAR_COLUMNS if self._known[0] is None else COMPARED_COLUMNS
        widths = {one: n for one, n in self._longest.items() if one not in LEFT_OUT}
        widths["layer"] = 0
        available = width - MARK_COLUMNS - last - sum(n + 1 for n in widths.values())
        for one in LEFT_OUT:
            if available - self._longest[one] - 1 >= NAME_COLUMNS:
                widths[one] = self._longest[one]
                available -= widths[one] + 1
        widths["layer"] = max(available, NAME_COLUMNS)
        return {one: widths[one] for one in self._longest if one in widths}

    def select_heading(self, column: int) -> None:
        """Sort by the clicked column; a second click reverses the order."""
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


def _format_name(row: LayerRow) -> str:
    return f"[{row.state.index}] {shorten_middle(escape_line(row.state.display_name), 30)}"


def _join_cells(cells: Mapping[str, str], widths: Mapping[str, int]) -> str:
    """Return cells side by side, numbers on the right."""
    numbers = [one for one in widths if not one or DEBUGGER_COLUMNS[one].is_number]
    return " ".join(
        f"{cells[one]:{'>' if one in numbers else '<'}{n}}" for one, n in widths.items()
    )
