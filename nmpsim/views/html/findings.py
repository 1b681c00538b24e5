"""Tables that answer first questions: where the time goes and why, where values are cut."""

from __future__ import annotations

from nmpsim.report.data import LayerReport, RunReport, Saturation
from nmpsim.views.html.tables import (
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
    percent_cell,
    recorded_columns,
    table_of,
    text,
)
from nmpsim.views.run_text import CAUSE_WORDS
from nmpsim.views.text import percent

MAX_SLOW = 12
"""Layers of which the reasons are told: those that took the most cycles."""
_MOST_CAUSES = 3
"""Reasons of a layer."""
_LEAST_SHARE = 0.05
"""Of the cores' cycles, for a reason to be told."""


def slow_table(report: RunReport) -> Table:
    """The layers that took longest: what bounds them, and where the cores' cycles went."""
    columns = (INDEX, NAME, OPERATION, CYCLES, TIME_SHARE, _BOUND, _FORMULA, DISTANCE)
    slow = sorted(report.layers, key=lambda layer: -layer.cycles)[:MAX_SLOW]
    told = [layer for layer in slow if layer.cycles]
    return table_of(report, (*columns, *recorded_columns(report), _CAUSES), told)


def saturation_table(report: RunReport) -> Table:
    """What was cut against the network's wish: a row for each layer, stage and side."""
    headings = (
        *(column.heading for column in _WHERE),
        Heading("stage", "input (quantization), bias, accumulator, rescale or result", False),
        Heading("side", "below the lowest value or above the highest", number=False),
        Heading("cut", "how many values"),
        Heading("% cut", "of the layer's results"),
        Heading("worst", "largest overshoot, in units of the last place of what was cut"),
        Heading("first at", "coordinates in the layer's output", number=False),
        Heading("channels", "how many channels are concerned"),
        Heading("most in", "the channel with most of them, and how many", number=False),
    )
    cuts = ((layer, cut) for layer in report.layers for cut in layer.saturation if not cut.wanted)
    return Table(headings, tuple(_cut_row(report, layer, cut) for layer, cut in cuts))


def _causes(layer: LayerReport) -> str:
    total = max(sum(layer.core_cycles.values()), 1)
    largest = sorted(layer.core_cycles.items(), key=lambda item: -item[1])[:_MOST_CAUSES]
    told = [
        f"{percent(cycles, total)}% {CAUSE_WORDS.get(cause, cause)}"
        for cause, cycles in largest
        if cycles >= _LEAST_SHARE * total
    ]
    return "; ".join(told)


def _cut_row(report: RunReport, layer: LayerReport, cut: Saturation) -> tuple[Cell, ...]:
    channels = sorted(cut.channels, key=lambda item: -item[1])
    most = f"{channels[0][0]}: {channels[0][1]:,}" if channels else "-"
    return (
        *(column.cell(report, layer) for column in _WHERE),
        text(cut.stage),
        text(cut.side),
        count(cut.count, "cut"),
        percent_cell(cut.count, layer.elements),
        count(cut.worst),
        text(", ".join(map(str, cut.first)) or "-"),
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
    Heading("namely", "how the bound is computed", number=False),
    lambda _, layer: text(_formula(layer)),
)
_CAUSES = Column(
    Heading("where the cores' time went", "shares of all cores' cycles", number=False),
    lambda _, layer: text(_causes(layer)),
)
