"""Tables that answer first questions: where the time goes and why, where values saturate."""

from __future__ import annotations

from nmpsim.report.data import LayerReport, RunReport, Saturation
from nmpsim.views.html.tables import (
    CORES,
    CYCLES,
    DISTANCE,
    INDEX,
    LINE,
    NAME,
    OPERATION,
    TIME_SHARE,
    Cell,
    Column,
    Heading,
    Table,
    count,
    is_notable,
    percent_cell,
    recorded_columns,
    table_of,
    text,
)
from nmpsim.views.run_text import CAUSE_WORDS, path_text
from nmpsim.views.text import percent

MAX_SLOW = 12
"""Layers whose reasons are listed: those that took the most cycles."""
MAX_CAUSES = 3
"""Reasons of a layer."""
_LEAST_SHARE = 0.05
"""Of the cores' cycles, for a reason to be listed."""


def slow_table(report: RunReport) -> Table:
    """The layers that took longest: what bounds them, and where the cores' cycles went."""
    columns = (INDEX, NAME, OPERATION, CORES, CYCLES, TIME_SHARE, _BOUND, _FORMULA, DISTANCE)
    slow = sorted(report.layers, key=lambda layer: -layer.cycles)[:MAX_SLOW]
    told = [layer for layer in slow if layer.cycles]
    return table_of(report, (*columns, *recorded_columns(report), _PATH, _CAUSES), told)


def saturation_table(report: RunReport) -> Table:
    """What saturated: a row for each layer, stage and side."""
    headings = (
        *(column.heading for column in _WHERE),
        Heading("stage", "input (quantization), bias, accumulator, rescale or result", False),
        Heading("side", "below the lowest value or above the highest", number=False),
        Heading("saturated", "how many values"),
        Heading("% saturated", "of the layer's results"),
        Heading("worst", "largest overshoot, in units of the last place"),
        Heading("first at", "coordinates in the layer's output", number=False),
        Heading("channels", "how many channels are concerned"),
        Heading("most in", "the channel with most of them, and how many", number=False),
    )
    found = ((layer, one) for layer in report.layers for one in layer.saturation if not one.wanted)
    return Table(headings, tuple(_saturation_row(report, layer, one) for layer, one in found))


def causes_of(layer: LayerReport, most: int = MAX_CAUSES) -> str:
    """Where the cores' cycles went, in words; empty if nowhere."""
    total = max(sum(layer.core_cycles.values()), 1)
    largest = sorted(layer.core_cycles.items(), key=lambda item: -item[1])[:most]
    told = [
        f"{percent(cycles, total)}% {CAUSE_WORDS.get(cause, cause)}"
        for cause, cycles in largest
        if cycles >= _LEAST_SHARE * total
    ]
    return "; ".join(told)


def _saturation_row(report: RunReport, layer: LayerReport, one: Saturation) -> tuple[Cell, ...]:
    channels = sorted(one.channels, key=lambda item: -item[1])
    most = f"{channels[0][0]}: {channels[0][1]:,}" if channels else "-"
    return (
        *(column.cell(report, layer) for column in _WHERE),
        text(one.stage),
        text(one.side),
        count(one.count, "alarm" if is_notable(layer) else ""),
        percent_cell(one.count, layer.elements),
        count(one.worst),
        text(", ".join(map(str, one.first)) or "-"),
        count(len(channels)),
        text(most),
    )


def _formula(layer: LayerReport) -> str:
    return f"{layer.bound.kind}: {layer.bound.formula}" if layer.bound.formula else "-"


_WHERE = (INDEX, NAME, LINE)
_BOUND = Column(
    Heading("bound", "cycles that no schedule of its instructions can beat"),
    lambda _, layer: count(layer.bound.cycles),
)
_FORMULA = Column(
    Heading("limited by", "how the bound is computed", number=False),
    lambda _, layer: text(_formula(layer)),
)
_PATH = Column(
    Heading("critical path", "what the layer waited for: shares of its cycles", number=False),
    lambda _, layer: text(path_text(layer)),
)
_CAUSES = Column(
    Heading("how the cores spent their time", "shares of all cores' cycles", number=False),
    lambda _, layer: text(causes_of(layer)),
)
