"""The layers of a run as a table: what, where, how long, how well used, how much saturated."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmpsim.report.data import LayerReport, RunReport
from nmpsim.views.columns import Column, fitted_table
from nmpsim.views.text import elem_text, percent, shape_text
from nmpsim.visible import visible_line


def layer_table(report: RunReport, console: Console) -> Table | Text:
    """One row a layer; a narrow terminal has no column of outputs, then names are shortened."""
    layers = report.layers
    host = {row: "magenta" for row, layer in enumerate(layers) if layer.placement == "host"}
    alarm = {row: "bold yellow" for row, layer in enumerate(layers) if layer.saturated}
    columns = [
        Column("#", [str(layer.index) for layer in layers], right=True),
        Column("layer", [visible_line(layer.display_name) for layer in layers], least=6),
        Column("operation", [visible_line(layer.operation) for layer in layers], least=9),
        Column("cores", [cores_text(layer) for layer in layers], right=True, styles=host),
        Column("output", [_output_text(layer) for layer in layers], least=9, is_optional=True),
        Column("cycles", [f"{layer.cycles:,}" for layer in layers], right=True),
        Column("time%", [percent(one.cycles, report.cycles) for one in layers], right=True),
        Column("DRAM%", [_dram(layer) for layer in layers], right=True),
        Column("MAC util%", [_utilization(layer) for layer in layers], right=True),
        Column("saturated", [_saturated(layer) for layer in layers], right=True, styles=alarm),
    ]
    return fitted_table(columns, console)


def _output_text(layer: LayerReport) -> str:
    return f"{elem_text(layer.elem)} {shape_text(layer.shape)}"


def cores_text(layer: LayerReport) -> str:
    """How many cores have work, or ``host``."""
    return "host" if layer.placement == "host" else f"{layer.cores}"


def _dram(layer: LayerReport) -> str:
    return percent(layer.use.dram_busy, 1) if layer.placement == "device" else "-"


def _utilization(layer: LayerReport) -> str:
    return percent(layer.utilization, 1.0) if layer.macs else "-"


def _saturated(layer: LayerReport) -> str:
    return f"{layer.saturated:,}" if layer.saturated else "-"
