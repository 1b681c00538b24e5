"""Tables that answer first questions: where the time goes and why, where values saturate."""

from __future__ import annotations

from functools import partial

import attrs

from nmpsim.report.data import LayerReport, RunReport, Saturation
from nmpsim.views.html.tables import (
    CORES,
    DISTANCE,
    LINE,
    Table,
    is_notable,
    recorded_measures,
    table_of,
    time_share,
)
from nmpsim.views.measures import CYCLES, INDEX, NAME, OPERATION, Cell, Measure, Number, share
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
    slow = sorted(report.layers, key=lambda layer: -layer.cycles)[:MAX_SLOW]
    return table_of(
        [layer for layer in slow if layer.cycles],
        INDEX,
        NAME,
        OPERATION,
        CORES,
        CYCLES,
        time_share(report),
        Number(
            "bound",
            "bound.cycles",
            meaning="cycles that no schedule of its instructions can beat",
        ),
        Measure("limited by", _formula, meaning="how the bound is computed"),
        DISTANCE,
        *recorded_measures(report),
        Measure(
            "critical path", path_text, meaning="what the layer waited for: shares of its cycles"
        ),
        Measure("how the cores spent their time", causes_of, meaning="shares of all cores' cycles"),
    )


def saturation_table(report: RunReport) -> Table:
    """What saturated: a row for each layer, stage and side."""
    return table_of(
        ((layer, one) for layer in report.layers for one in layer.saturation if not one.wanted),
        *(attrs.evolve(one, value=partial(_of_layer, one)) for one in (INDEX, NAME, LINE)),
        Measure(
            "stage",
            lambda row: row[1].stage,
            meaning="input (quantization), bias, accumulator, rescale or result",
        ),
        Measure(
            "side",
            lambda row: row[1].side,
            meaning="below the lowest value or above the highest",
        ),
        Number("saturated", _count, meaning="how many values"),
        Number(
            "% saturated",
            lambda row: share(row[1].count, row[0].elements),
            meaning="of the layer's results",
        ),
        Number(
            "worst",
            lambda row: row[1].worst,
            meaning="largest overshoot, in units of the last place",
        ),
        Measure(
            "first at",
            lambda row: ", ".join(map(str, row[1].first)) or None,
            meaning="coordinates in the layer's output",
        ),
        Number(
            "channels",
            lambda row: len(row[1].channels),
            meaning="how many channels are concerned",
        ),
        Measure("most in", _most, meaning="the channel with most of them, and how many"),
    )


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


def _of_layer(measure: Measure, row: tuple[LayerReport, Saturation]) -> Cell:
    return measure.cell(row[0])


def _count(row: tuple[LayerReport, Saturation]) -> Cell:
    layer, one = row
    return Cell(f"{one.count:,}", one.count, "alarm" if is_notable(layer) else "")


def _most(row: tuple[LayerReport, Saturation]) -> str | None:
    most = max(row[1].channels, key=lambda item: item[1], default=None)
    return most and f"{most[0]}: {most[1]:,}"


def _formula(layer: LayerReport) -> str | None:
    return f"{layer.bound.kind}: {layer.bound.formula}" if layer.bound.formula else None
