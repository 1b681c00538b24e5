"""Tables of the slowest layers with their causes, and of saturated values."""

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
from nmpsim.views.measures import (
    CORE_CAUSES,
    CYCLES,
    INDEX,
    NAME,
    OPERATION,
    Cell,
    Measure,
    Number,
    find_cause,
    largest,
    share,
)
from nmpsim.views.run_text import path_text
from nmpsim.views.text import percent

MAX_SLOW = 12
"""Slowest layers that are listed."""
MAX_CAUSES = 3
"""Causes that are listed for a layer."""
_LEAST_SHARE = 0.05
"""Smallest share of the cores' cycles for a listed cause."""


def slow_table(report: RunReport) -> Table:
    """Return a table of the slowest layers: bounds and causes of core cycles."""
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
            meaning="lower limit of the cycles for any schedule",
        ),
        Measure("limited by", _formula, meaning="formula of the bound"),
        DISTANCE,
        *recorded_measures(report),
        Measure(
            "critical path",
            path_text,
            meaning="causes on the critical path, as shares of the layer's cycles",
        ),
        Measure("core cycles", causes_of, meaning="causes, as shares of all cores' cycles"),
    )


def saturation_table(report: RunReport) -> Table:
    """Return a table of saturated values by layer, stage and side."""
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
            meaning="low: below the smallest value; high: above the largest",
        ),
        Number("saturated", _count, meaning="number of values"),
        Number(
            "% saturated",
            lambda row: share(row[1].count, row[0].elements),
            meaning="share of the layer's results",
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
            meaning="number of channels with saturated values",
        ),
        Measure("most in", _most, meaning="channel with most saturated values, and their number"),
    )


def causes_of(layer: LayerReport, most: int = MAX_CAUSES) -> str:
    """Return the largest causes of core cycles as text; empty without cycles."""
    total = max(sum(layer.core_cycles.values()), 1)
    texts = [
        f"{percent(cycles, total)}% {find_cause(CORE_CAUSES, cause).meaning}"
        for cause, cycles in largest(layer.core_cycles, most)
        if cycles >= _LEAST_SHARE * total
    ]
    return "; ".join(texts)


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
