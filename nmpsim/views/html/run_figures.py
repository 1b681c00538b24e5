"""Figures of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nmpsim.config import from_settings
from nmpsim.report.analyses import Histogram
from nmpsim.report.data import RunReport
from nmpsim.views.html.figures import (
    Figure,
    axis,
    color_scale,
    cores_of,
    figure_spec,
    layer_labels,
    names_axis,
    tooltips,
)
from nmpsim.views.html.headline import PARTS
from nmpsim.views.html.roofline import roofline
from nmpsim.views.html.saturation_map import saturation_map
from nmpsim.views.html.time_figures import gantt, memory, scratchpads
from nmpsim.views.measures import CORE_CAUSES, PATH_CAUSES, Cause, largest
from nmpsim.views.text import percent

_PART_COLORS = {
    "inherited": "#b0b7bf",
    "bias": "#cc79a7",
    "weights": "#0072b2",
    "saturation": "#d55e00",
    "rescale": "#009e73",
}


def error_figures(report: RunReport) -> Iterator[Figure]:
    """Yield the figure of each layer's error by source, if the report has a shadow."""
    layers = report.shadow.layers if report.shadow is not None else ()
    labels = layer_labels(report)
    values = [
        {
            "layer": labels[layer.index],
            "part": PARTS[part],
            "order": order,
            "mean": round(size.mean_units, 4),
            "worst": round(size.worst_units or 0, 2),
        }
        for layer in layers
        if layer.split is not None
        for order, part in enumerate(PARTS)
        if (size := getattr(layer.split, part)) is not None and size.mean_units
    ]
    if not values:
        return
    part_colors = {words: _PART_COLORS[part] for part, words in PARTS.items()}
    spec = figure_spec(
        values,
        240,
        mark={"type": "bar"},
        encoding={
            "x": names_axis("layer"),
            "y": axis("mean", "quantitative", "mean error, units of the last place"),
            "color": axis("part", "nominal", "part", scale=color_scale(part_colors)),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": tooltips(values, layer="layer", part="part", mean="mean", worst="worst"),
        },
    )
    text = (
        "Mean size of each part of a layer's error against exact evaluation. Parts of opposite"
        " signs cancel, so a bar may be longer than the error."
    )
    if report.shadow is not None and report.shadow.float_weights is None:
        text += " Without --float-weights only rounding and saturation are measured."
    yield Figure("Errors by layer and source", text, spec)


def run_figures(report: RunReport) -> Iterator[Figure]:
    """Yield every figure for which the report has data."""
    if any(sum(layer.core_cycles.values()) for layer in report.layers):
        yield _causes(report)
    if any(report.critical_path.values()):
        yield _path(report)
    if any(layer.macs and layer.cycles for layer in report.layers):
        yield roofline(report, from_settings(report.device))
    if any(layer.saturated for layer in report.layers):
        yield saturation_map(report)
    if report.timeline is not None and report.timeline.spans:
        yield gantt(report, report.timeline)
    if any(block.kind != "program" for block in report.memory):
        yield memory(report)
    if report.scratchpads:
        yield scratchpads(report)
    for one in report.histograms:
        yield _histogram(report, one)


def _causes(report: RunReport) -> Figure:
    cores = cores_of(report)
    values = [
        {
            "layer": label,
            "cause": cause.title,
            "meaning": cause.meaning,
            "order": order,
            "cycles": round(count / cores, 1),
            "share": f"{percent(count, sum(layer.core_cycles.values()))}%",
        }
        for layer, label in zip(report.layers, layer_labels(report), strict=True)
        for order, (name, cause) in enumerate(CORE_CAUSES.items())
        if (count := layer.core_cycles.get(name, 0))
    ]
    spec = _bars(values, "cycles, mean of all cores", CORE_CAUSES)
    text = "Cycles of each layer, divided by what its cores did."
    return Figure("Cycles by layer and cause", text, spec)


def _bars(values: list[dict[str, Any]], what: str, causes: Mapping[str, Cause]) -> dict[str, Any]:
    """Return stacked bars of causes, one per layer; ``what`` is the title of the height."""
    colors = {one.title: one.color for one in causes.values()}
    return figure_spec(
        values,
        320,
        mark={"type": "bar"},
        encoding={
            "x": names_axis("layer"),
            "y": axis("cycles", "quantitative", what),
            "color": axis(
                "cause",
                "nominal",
                "cause",
                scale=color_scale(colors),
            ),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": tooltips(
                values,
                layer="layer",
                cause="cause",
                meaning="meaning",
                cycles="cycles",
                share="share of the layer",
            ),
        },
    )


def _path(report: RunReport) -> Figure:
    values = [
        {
            "layer": label,
            "cause": cause.title,
            "meaning": cause.meaning,
            "order": order,
            "cycles": count,
            "share": f"{percent(count, layer.cycles)}%",
        }
        for layer, label in zip(report.layers, layer_labels(report), strict=True)
        for order, (name, cause) in enumerate(PATH_CAUSES.items())
        if (count := layer.critical_path.get(name, 0))
    ]
    spec = _bars(values, "cycles", PATH_CAUSES)
    total = sum(report.critical_path.values())
    shares = [
        f"{percent(n, total)}% {PATH_CAUSES[name].meaning}"
        for name, n in largest(report.critical_path)
    ]
    text = f"Causes on the critical path of each layer. Of the run: {'; '.join(shares)}."
    return Figure("Critical path by layer", text, spec)


def _histogram(report: RunReport, one: Histogram) -> Figure:
    layer = report.layers[one.index]
    values = [
        {
            "low": one.low + one.width * place,
            "high": one.low + one.width * (place + 1),
            "count": count,
        }
        for place, count in enumerate(one.counts)
        if count
    ]
    ends = [one.low, one.low + one.width * len(one.counts)]
    spec = figure_spec(
        values,
        180,
        mark={"type": "bar", "binSpacing": 0, "color": "#0072b2", "minBandSize": 1},
        encoding={
            "x": axis("low", "quantitative", "stored value", bin="binned")
            | {"scale": {"domain": ends, "nice": False}},
            "x2": {"field": "high"},
            "y": axis("count", "quantitative", "values", scale={"type": "symlog"}),
            "tooltip": tooltips(values, low="from", high="below", count="values"),
        },
    )
    lost = f"; {one.not_finite:,} infinite or NaN" if one.not_finite else ""
    type = layer.elem if layer.scale is None else f"{layer.elem}, scale {layer.scale:.6g}"
    text = f"{sum(one.counts):,} values of {type}{lost}; counts on a logarithmic axis."
    return Figure(f"Values of {layer_labels(report)[one.index]}", text, spec, narrow=True)
