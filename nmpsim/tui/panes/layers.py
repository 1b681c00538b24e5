"""Layers at a glance: cycles, share, what saturated, how it compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from nmpsim.debugger import LayerState
from nmpsim.debugger.breakpoints import AtLayer
from nmpsim.tui.lines import LinePane
from nmpsim.tui.look import GREEN, ORANGE, SKY, VERMILION
from nmpsim.tui.view import View
from nmpsim.views.text import percent, short_count, shorten_middle
from nmpsim.visible import visible_line

BAR_COLUMNS = 8
SATURATED_COLUMNS = 9
COMPARED_COLUMNS = 14
OTHER_COLUMNS = 38
"""All but names, operations, and the bar or how a layer compares."""
OPERATION_COLUMNS = 12
LIMIT_COLUMNS = 30
"""Narrow panes leave operations out, and those that are not wide what limits a layer."""


class LayersPane(LinePane):
    """One line a layer; choosing one shows it in the other panes."""

    title = "Layers"
    _states: tuple[LayerState, ...] = ()
    _total = 0

    def prepare(self, view: View) -> None:
        """Follow the layer that is looked at."""
        self._states = view.layers
        self._total = sum(state.cycles for state in view.layers)
        limited_by, host = view.report.limited_by, view.report.host
        self.border_title = f"{self.title}, {limited_by}" if limited_by else self.title
        self.border_subtitle = host.text if host.layers else ""
        self.follow(view.layer, view.layer)

    def count(self) -> int:
        """Layers."""
        return len(self._states)

    def heading(self, width: int) -> list[Text]:
        """Names of the columns."""
        last = "reference" if self.view is not None and self.view.shell.reference else ""
        names = ("", "layer", "operation", "cycles", "share", "limited by", "saturated")
        return [Text(f" {self._columns(width, *names)} {last}")]

    def line(self, index: int, width: int) -> Text:
        """A layer."""
        view, state = self.shown, self._states[index]
        is_current, known = view.location.layer == index, state.state != "pending"
        mark = self._mark(state, is_current)
        text = Text().append(mark, style=GREEN if state.state == "done" else "")
        columns = self._columns(
            width,
            f"[{index}]" if view.layer == index else f"{index} ",
            visible_line(state.name),
            visible_line(state.op),
            self._cycles(state),
            f"{percent(state.cycles, self._total)}%" if known else "",
            state.limited_by,
            f"{self.glyphs.over}{state.saturated:,}" if state.saturated else "",
        )
        text.append(columns, style="bold" if is_current else "" if known else "dim")
        if state.saturated:
            text.stylize(ORANGE, len(text) - SATURATED_COLUMNS)
        return text.append(" ").append_text(self._last(index, state.cycles))

    def looks_at(self, index: int) -> Mapping[str, Any]:
        """The layer."""
        return {"layer": index}

    def breakpoint_at(self, index: int) -> AtLayer | None:
        """Where the layer begins."""
        return AtLayer(index) if index < len(self._states) else None

    def _last(self, index: int, cycles: int) -> Text:
        """How a layer compares with the reference; without one, a bar of its share."""
        if self.shown.shell.reference is None:
            return Text(self._bar(cycles), style=SKY)
        compared = self.shown.comparisons.get(index)
        found = compared.found.accumulated if compared is not None else None
        if found is None:
            return Text("")
        if found.equal:
            return Text(f"{self.glyphs.equal} equal", style=GREEN)
        differing, worst = short_count(found.differing), short_count(found.worst_ulp)
        return Text(f"{self.glyphs.differs} {differing} by {worst}", VERMILION)

    def _cycles(self, state: LayerState) -> str:
        if state.placement == "host" and not state.cycles:
            return "host"
        return f"{state.cycles:,}" if state.state != "pending" else ""

    def _mark(self, state: LayerState, is_current: bool) -> str:
        if is_current:
            return self.glyphs.next
        return self.glyphs.done if state.state == "done" else self.glyphs.pending

    def _columns(
        self,
        width: int,
        number: str,
        name: str,
        op: str,
        cycles: str,
        share: str,
        limit: str,
        saturated: str,
    ) -> str:
        last = BAR_COLUMNS if self.shown.shell.reference is None else COMPARED_COLUMNS
        room = max(width - OTHER_COLUMNS - last, 11)
        ops = OPERATION_COLUMNS if room >= 2 * OPERATION_COLUMNS else 0
        limits = LIMIT_COLUMNS if room >= 2 * OPERATION_COLUMNS + LIMIT_COLUMNS else 0
        names = room - ops - limits
        head = f"{number:>5} {shorten_middle(name, names):{names}}"
        if ops:
            head += f" {shorten_middle(op, ops - 1):{ops - 1}}"
        limited = f" {limit:{limits - 1}}" if limits else ""
        return f"{head} {cycles:>11} {share:>6}{limited} {saturated:>{SATURATED_COLUMNS}}"

    def _bar(self, cycles: int) -> str:
        share = cycles / self._total if self._total else 0.0
        return (self.glyphs.bar * round(share * BAR_COLUMNS))[:BAR_COLUMNS]
