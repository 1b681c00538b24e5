"""The layers of a run as a table: what, where, how long, how well used, how much saturated."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from nmpsim.report.data import LayerReport, RunReport
from nmpsim.views.columns import print_table
from nmpsim.views.measures import CYCLES, INDEX, NAME, OPERATION, OUTPUT, Cell, Number, share


def print_layers(report: RunReport, console: Console) -> None:
    """One row a layer; a narrow terminal has no column of outputs, then names are shortened."""
    print_table(
        console,
        report.layers,
        INDEX,
        NAME,
        OPERATION,
        Number("cores", lambda one: Cell(cores_text(one), 0, _host(one))),
        OUTPUT,
        CYCLES,
        Number("time%", lambda one: share(one.cycles, report.cycles)),
        Number("DRAM%", lambda one: share(one.use.dram_busy, one.placement == "device")),
        Number("MAC util%", lambda one: share(one.utilization, one.macs > 0)),
        Number("saturated", _saturated),
    )


def cores_text(layer: LayerReport) -> str:
    """How many cores have work, or ``host``."""
    return "host" if layer.placement == "host" else f"{layer.cores}"


def _host(layer: Any) -> str:
    return "magenta" if layer.placement == "host" else ""


def _saturated(layer: LayerReport) -> Cell:
    if not layer.saturated:
        return Cell("-", 0)
    return Cell(f"{layer.saturated:,}", layer.saturated, "bold yellow")
