"""Breakpoints where the cursor is."""

from __future__ import annotations

from nmpsim.debugger.breakpoints import AtAddress, AtLayer
from nmpsim.tui.lines import LinePane
from nmpsim.tui.panes.layers import LayersPane
from nmpsim.tui.panes.program import ProgramPane
from nmpsim.tui.panes.source import SourcePane
from nmpsim.tui.view import View


def breakpoint_command(view: View, pane: LinePane) -> str | None:
    """What sets one where a pane's cursor is, or takes it away; None where none can be."""
    condition = _condition(pane)
    if condition is None:
        return None
    there = [one.number for one in view.debugger.breakpoints if one.condition == condition]
    if there:
        return f"delete {' '.join(map(str, there))}"
    if isinstance(condition, AtLayer):
        return f"break layer {condition.index}"
    return f"break address {condition.address:#x}"


def _condition(pane: LinePane) -> AtAddress | AtLayer | None:
    if isinstance(pane, ProgramPane):
        return AtAddress(pane.address(pane.cursor))
    layer = pane.cursor if isinstance(pane, LayersPane) else None
    if isinstance(pane, SourcePane):
        layer = pane.layer_at(pane.cursor)
    return None if layer is None else AtLayer(layer)
