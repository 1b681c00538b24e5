"""Figures of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nmpsim.config import DeviceConfig, from_settings
from nmpsim.report.analyses import Histogram
from nmpsim.report.data import LayerReport, RunReport
from nmpsim.timing.bounds import macs_per_cycle
from nmpsim.views.analyses_text import PARTS
from nmpsim.views.html.figures import (
    ZOOM_HINT,
    Figure,
    encode_layers,
    encode_names,
    encode_numbers,
    encode_tooltips,
    get_core_count,
    make_color_scale,
    make_figure_spec,
    make_layer_labels,
    make_stacked_spec,
    make_zoom,
)
from nmpsim.views.html.time_figures import (
    make_memory_figure,
    make_scratchpad_figure,
    make_timeline_figure,
)
from nmpsim.views.measures import CORE_CAUSES, PATH_CAUSES, Cause, list_largest
from nmpsim.views.text import format_percent

_PART_COLORS = {
    "inherited": "#b0b7bf",
    "bias": "#cc79a7",
    "weights": "#0072b2",
    "saturation": "#d55e00",
    "rescale": "#009e73",
}


def make_error_figures(report: RunReport) -> Iterator[Figure]:
    """Yield a figure of the errors of layers by source, if the report has a shadow."""
    layers = report.shadow.layers if report.shadow is not None else ()
    labels = make_layer_labels(report)
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
    spec = make_figure_spec(
        values,
        240,
        mark={"type": "bar"},
        encoding={
            "x": encode_layers("layer"),
            "y": encode_numbers("mean", "mean error, units of the last place"),
            "color": encode_names("part", "part", scale=make_color_scale(part_colors)),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": encode_tooltips(values, "layer", "part", "mean", "worst"),
        },
    )
    text = (
        "Mean size of each part of a layer's error against exact evaluation. Parts of opposite"
        " signs cancel, so a bar may be longer than the error."
    )
    if report.shadow is not None and report.shadow.float_weights is None:
        text += " Without --float-weights only rounding and saturation are measured."
    yield Figure("Errors by layer and source", text, spec)


def make_run_figures(report: RunReport) -> Iterator[Figure]:
    """Yield the figures for which a report has data."""
    if any(sum(layer.core_cycles.values()) for layer in report.layers):
        yield _cause_figure(report)
    if any(report.critical_path.values()):
        yield _path_figure(report)
    if any(layer.macs and layer.cycles for layer in report.layers):
        yield make_roofline_figure(report, from_settings(report.device))
    if any(layer.saturated for layer in report.layers):
        yield make_saturation_figure(report)
    if report.timeline is not None and report.timeline.spans:
        yield make_timeline_figure(report, report.timeline)
    if any(block.kind != "program" for block in report.memory):
        yield make_memory_figure(report)
    if report.scratchpads:
        yield make_scratchpad_figure(report)
    for one in report.histograms:
        yield _histogram(report, one)


def _cause_figure(report: RunReport) -> Figure:
    text = "Cycles of each layer, divided by what its cores did."
    title, cores = "Cycles by layer and cause", get_core_count(report)
    found = [layer.core_cycles for layer in report.layers]
    spec = _bars(report, found, CORE_CAUSES, "cycles, mean of all cores", cores)
    return Figure(title, text, spec)


def _path_figure(report: RunReport) -> Figure:
    total = sum(report.critical_path.values())
    shares = [
        f"{format_percent(n, total)}% {PATH_CAUSES[name].meaning}"
        for name, n in list_largest(report.critical_path)
    ]
    text = f"Causes on the critical path of each layer. Of the run: {'; '.join(shares)}."
    found = [layer.critical_path for layer in report.layers]
    return Figure("Critical path by layer", text, _bars(report, found, PATH_CAUSES, "cycles"))


def _bars(
    report: RunReport,
    cycles: Sequence[Mapping[str, int]],
    causes: Mapping[str, Cause],
    title: str,
    cores: int | None = None,
) -> dict[str, Any]:
    """Return stacked bars of causes, one per layer, of heights divided by ``cores`` if given."""
    values = [
        {
            "layer": label,
            "cause": cause.title,
            "meaning": cause.meaning,
            "order": order,
            "cycles": count if cores is None else round(count / cores, 1),
            "share": f"{format_percent(count, sum(found.values()))}%",
        }
        for found, label in zip(cycles, make_layer_labels(report), strict=True)
        for order, (name, cause) in enumerate(causes.items())
        if (count := found.get(name, 0))
    ]
    colors = {one.title: one.color for one in causes.values()}
    return make_figure_spec(
        values,
        320,
        mark={"type": "bar"},
        encoding={
            "x": encode_layers("layer"),
            "y": encode_numbers("cycles", title),
            "color": encode_names("cause", "cause", scale=make_color_scale(colors)),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": encode_tooltips(
                values, "layer", "cause", "meaning", "cycles", share="share of the layer"
            ),
        },
    )


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
    spec = make_figure_spec(
        values,
        180,
        mark={"type": "bar", "binSpacing": 0, "color": "#0072b2", "minBandSize": 1},
        encoding={
            "x": encode_numbers("low", "stored value", bin="binned")
            | {"scale": {"domain": ends, "nice": False}},
            "x2": {"field": "high"},
            "y": encode_numbers("count", "values", scale={"type": "symlog"}),
            "tooltip": encode_tooltips(values, low="from", high="below", count="values"),
        },
    )
    lost = f"; {one.not_finite:,} infinite or NaN" if one.not_finite else ""
    type = layer.elem if layer.scale is None else f"{layer.elem}, scale {layer.scale:.6g}"
    text = f"{sum(one.counts):,} values of {type}{lost}; counts on a logarithmic axis."
    return Figure(f"Values of {make_layer_labels(report)[one.index]}", text, spec, narrow=True)


_BOUND_COLORS = {"compute": "#0072b2", "memory": "#d55e00", "none": "#7f7f7f"}
_MARGIN = 1.6
"""Margin of the axes as a factor."""


def make_roofline_figure(report: RunReport, device: DeviceConfig) -> Figure:
    """Return a roofline figure with a point per layer that has MACs."""
    points = [
        {
            "layer": label,
            "reach": layer.macs / (layer.bytes_read + layer.bytes_written or 1),
            "speed": layer.macs / layer.cycles,
            "bound": layer.bound.kind,
            "cycles": layer.cycles,
        }
        for layer, label in zip(report.layers, make_layer_labels(report), strict=True)
        if layer.macs and layer.cycles
    ]
    wide = all(layer.elem == "i16" for layer in report.layers if layer.macs)
    peak, bandwidth = macs_per_cycle(device, int(wide)), device.dram_bytes_per_cycle
    x = _axis("reach", "MACs per byte of DRAM traffic", points, peak / bandwidth)
    y = _axis("speed", "MACs per cycle", points, peak)
    text = (
        f"Layers below the roof: {bandwidth} bytes per cycle on the left, {peak:,} MACs per cycle"
        f" on the right. Larger points are slower layers. {ZOOM_HINT}"
    )
    layers = [_roof(x, y, peak, bandwidth), _dots(points, x, y)]
    return Figure("Roofline", text, make_figure_spec(points, 380, layer=layers))


def _axis(field: str, title: str, points: list[dict[str, Any]], corner: float) -> dict[str, Any]:
    """Return a logarithmic axis that contains every point and the corner of the roof."""
    values = [corner, *(point[field] for point in points)]
    domain = [min(values) / _MARGIN, max(values) * _MARGIN]
    scale = {"type": "log", "nice": False, "domain": domain}
    return encode_numbers(field, title, scale=scale)


def _roof(x: dict[str, Any], y: dict[str, Any], peak: int, bandwidth: int) -> dict[str, Any]:
    low, high = x["scale"]["domain"]
    corners = (low, peak / bandwidth, high)
    return {
        "data": {"values": [{"reach": at, "speed": min(peak, at * bandwidth)} for at in corners]},
        "mark": {"type": "line", "color": "#555555", "clip": True},
        "encoding": {"x": x, "y": y},
    }


def _dots(points: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    return {
        "params": [make_zoom("x", "y")],
        "mark": {"type": "point", "filled": True, "opacity": 0.7, "clip": True},
        "encoding": {
            "x": x,
            "y": y,
            "color": encode_names("bound", "limited by", scale=make_color_scale(_BOUND_COLORS)),
            "shape": encode_names("bound", "limited by", scale={"domain": list(_BOUND_COLORS)}),
            "size": encode_numbers("cycles", "cycles", scale={"range": [30, 400]})
            | {"legend": None},
            "tooltip": encode_tooltips(
                points,
                "layer",
                speed="MACs/cycle",
                reach="MACs/byte",
                cycles="cycles",
                bound="bound",
            ),
        },
    }


CHANNEL_CELLS = 64
"""Most cells of a layer; more channels share cells."""
_COLORS = ["#f5f0eb", "#fdbb84", "#ef6548", "#7f0000"]
"""Colors from no to much saturation."""
_ROW_HEIGHT = 16
_LABEL_WIDTH = 200
"""Width of labels in pixels, which aligns the axes."""


def make_saturation_figure(report: RunReport) -> Figure:
    """Return a heat map of saturated values by layer and channel."""
    values = [
        cell
        for layer, label in zip(report.layers, make_layer_labels(report), strict=True)
        if layer.saturated
        for cell in _cells(layer, label)
    ]
    rows: dict[int, set[str]] = {}
    for value in values:
        rows.setdefault(value["of"], set()).add(value["layer"])
    parts = [_part(values, channels, len(layers)) for channels, layers in sorted(rows.items())]
    text = (
        "Saturated values by channel; layers without saturation are omitted. Layers with the same"
        " number of channels share an axis."
    )
    return Figure("Saturation by layer and channel", text, make_stacked_spec(values, parts))


def _part(values: list[dict[str, Any]], channels: int, rows: int) -> dict[str, Any]:
    """Return the chart of the layers with a number of channels."""
    layer = encode_layers("layer")
    layer["axis"] |= {"minExtent": _LABEL_WIDTH}
    return {
        "transform": [{"filter": f"datum.of === {channels}"}],
        "height": _ROW_HEIGHT * rows,
        "mark": {"type": "rect"},
        "encoding": {
            "x": encode_numbers("first", f"channel, of {channels:,}")
            | {"scale": {"domain": [0, channels], "nice": False}, "axis": {"tickMinStep": 1}},
            "x2": {"field": "until"},
            "y": layer,
            "color": encode_numbers("share", "% saturated")
            | {"scale": {"type": "symlog", "constant": 0.01, "range": _COLORS}},
            "tooltip": encode_tooltips(
                values,
                "layer",
                "channels",
                count="values saturated",
                share="% of their values",
            ),
        },
    }


def _cells(layer: LayerReport, label: str) -> Iterator[dict[str, Any]]:
    """Yield a cell for all channels, then at most CHANNEL_CELLS cells with saturated values."""
    channels = max(layer.shape[-1] if layer.shape else 1, 1)
    width = -(-channels // CHANNEL_CELLS)
    counts: dict[int, int] = {}
    for one in layer.saturation:
        for channel, count in () if one.wanted else one.channels:
            counts[channel // width] = counts.get(channel // width, 0) + count
    every = {"layer": label, "of": channels}
    yield {"first": 0, "until": channels, "channels": "others", "count": 0, "share": 0.0, **every}
    for cell, count in sorted(counts.items()):
        first, last = cell * width, min((cell + 1) * width, channels)
        values = layer.elements / channels * max(last - first, 1)
        yield {
            "first": first,
            "until": last,
            "channels": str(first) if width == 1 else f"{first} to {last - 1}",
            "count": count,
            "share": round(100 * count / values, 4) if values else 100.0,
            **every,
        }
