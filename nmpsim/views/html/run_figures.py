"""The figures of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from nmpsim.config import DeviceConfig, from_settings
from nmpsim.report.data import CAUSES, LayerReport, RunReport
from nmpsim.report.details import UNITS, Histogram
from nmpsim.timing.bounds import macs_per_cycle
from nmpsim.views.html.figures import Figure, axis, figure_spec, layer_label, tooltips
from nmpsim.views.text import bytes_text

CHANNEL_CELLS = 64
"""Cells of a layer in the map of saturation; of more channels, several share one."""
MOST_CORES = 1024
"""More than any device has; a report may say anything."""
_CAUSE_COLOURS = {
    "mac": "#0072b2",
    "vector": "#56b4e9",
    "load": "#e69f00",
    "store": "#f0c97a",
    "contention": "#d55e00",
    "imbalance": "#cc79a7",
    "barrier": "#8c5a78",
    "semaphore": "#7f7f7f",
    "idle": "#d9d9d9",
    "control": "#009e73",
}
"""Told apart also by those who see few colours; tooltips have the words."""
_UNIT_COLOURS = {"load": "#e69f00", "store": "#cc79a7", "mac": "#0072b2", "vector": "#56b4e9"}
_KIND_COLOURS = {"input": "#009e73", "output": "#d55e00", "activation": "#56b4e9"}
_ZOOM: dict[str, Any] = {
    "name": "zoom",
    "select": {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.ctrlKey]"},
    "bind": "scales",
}
_ZOOM_HINT = "Drag to move, Ctrl and the wheel to zoom, double click to see all again."
_LOG = {"type": "log", "nice": False}


def run_figures(report: RunReport) -> Iterator[Figure]:
    """Every figure for which the report has data."""
    if any(sum(layer.core_cycles.values()) for layer in report.layers):
        yield _causes(report)
    if any(layer.macs and layer.cycles for layer in report.layers):
        yield _roofline(report, from_settings(report.device))
    if any(layer.saturated for layer in report.layers):
        yield _saturation(report)
    if report.timeline is not None and report.timeline.spans:
        yield _gantt(report)
    if any(block.kind != "program" for block in report.memory):
        yield _memory(report)
    for one in report.histograms:
        yield _histogram(report, one)


def _causes(report: RunReport) -> Figure:
    cores = _cores(report)
    values = [
        {
            "layer": layer_label(layer),
            "cause": cause,
            "order": order,
            "cycles": round(count / cores, 1),
            "share": f"{100 * count / max(sum(layer.core_cycles.values()), 1):.1f}%",
        }
        for layer in report.layers
        for order, cause in enumerate(CAUSES)
        if (count := layer.core_cycles.get(cause, 0))
    ]
    spec = figure_spec(
        values,
        320,
        mark={"type": "bar"},
        encoding={
            "x": axis("layer", "nominal", None, sort=None, axis={"labelLimit": 120}),
            "y": axis("cycles", "quantitative", "cycles, mean of all cores"),
            "color": axis("cause", "nominal", "cause", scale=_colours(_CAUSE_COLOURS)),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": tooltips(layer="layer", cause="cause", cycles="cycles", share="of layer"),
        },
    )
    return Figure("Cycles by layer and cause", "How long each layer took, and why.", spec)


def _roofline(report: RunReport, device: DeviceConfig) -> Figure:
    points: list[dict[str, Any]] = [
        {
            "layer": layer_label(layer),
            "reach": layer.macs / (layer.bytes_read + layer.bytes_written or 1),
            "speed": layer.macs / layer.cycles,
            "bound": layer.bound.kind,
            "cycles": layer.cycles,
        }
        for layer in report.layers
        if layer.macs and layer.cycles
    ]
    low = min(point["reach"] for point in points) / 2
    high = max(point["reach"] for point in points) * 2
    wide = all(layer.elem == "i16" for layer in report.layers if layer.macs)
    peak, bandwidth = macs_per_cycle(device, int(wide)), device.dram_bytes_per_cycle
    ridge = min(max(peak / bandwidth, low), high)
    roof = [{"reach": x, "speed": min(peak, x * bandwidth)} for x in (low, ridge, high)]
    x = axis("reach", "quantitative", "MACs for each byte of DRAM traffic", scale=_LOG)
    slowest = min(point["speed"] for point in points) / 2
    reached = {**_LOG, "domain": [slowest, max(point["speed"] for point in [*points, *roof])]}
    y = axis("speed", "quantitative", "MACs in a cycle", scale=reached)
    dot = {
        "params": [{**_ZOOM, "select": {**_ZOOM["select"], "encodings": ["x", "y"]}}],
        "mark": {"type": "point", "filled": True, "size": 50, "opacity": 0.8},
        "encoding": {
            "x": x,
            "y": y,
            "color": axis("bound", "nominal", "bound by"),
            "shape": axis("bound", "nominal", "bound by"),
            "tooltip": tooltips(
                layer="layer", speed="MACs/cycle", reach="MACs/byte", cycles="cycles", bound="bound"
            ),
        },
    }
    line = {
        "data": {"values": roof},
        "mark": {"type": "line", "color": "#555555", "clip": True},
        "encoding": {"x": x, "y": y},
    }
    text = (
        f"Each layer below the roof: {bandwidth} bytes a cycle on the left,"
        f" {peak:,} MACs a cycle on the right. {_ZOOM_HINT}"
    )
    return Figure("Roofline", text, figure_spec(points, 380, layer=[line, dot]))


def _saturation(report: RunReport) -> Figure:
    values = [cell for layer in report.layers if layer.saturated for cell in _cells(layer)]
    rows = len({value["layer"] for value in values})
    spec = figure_spec(
        values,
        max(60, 16 * rows),
        mark={"type": "rect"},
        encoding={
            "x": axis("place", "quantitative", "channel, as a share of the layer's channels")
            | {"scale": {"domain": [0, 1], "nice": False}, "axis": {"format": "%"}},
            "x2": {"field": "until"},
            "y": axis("layer", "nominal", None, sort=None, axis={"labelLimit": 220}),
            "color": axis("share", "quantitative", "% cut")
            | {"scale": {"type": "symlog", "constant": 0.01, "scheme": "orangered"}},
            "tooltip": tooltips(
                layer="layer", channels="channels", count="values cut", share="% of their values"
            ),
        },
    )
    text = "Where values were cut against the network's wish; layers without are left out."
    return Figure("Saturation by layer and channel", text, spec)


def _cells(layer: LayerReport) -> Iterator[dict[str, Any]]:
    """The channels of a layer as at most CHANNEL_CELLS cells, those with something cut."""
    channels = max(layer.shape[-1] if layer.shape else 1, 1)
    width = -(-channels // CHANNEL_CELLS)
    counts: dict[int, int] = {}
    for cut in layer.saturation:
        for channel, count in () if cut.wanted else cut.channels:
            counts[channel // width] = counts.get(channel // width, 0) + count
    for cell, count in sorted(counts.items()):
        first, last = cell * width, min((cell + 1) * width, channels)
        values = layer.elements / channels * max(last - first, 1)
        yield {
            "layer": layer_label(layer),
            "place": first / channels,
            "until": last / channels,
            "channels": str(first) if width == 1 else f"{first} to {last - 1}",
            "count": count,
            "share": round(100 * count / values, 4) if values else 100,
        }


def _gantt(report: RunReport) -> Figure:
    timeline = report.timeline
    if timeline is None:
        raise ValueError("no time line")
    labels = [layer_label(layer) for layer in report.layers]
    values = [
        {
            "core": span.core,
            "unit": span.unit,
            "layer": "" if span.layer is None else labels[span.layer],
            "begin": span.begin,
            "end": span.end,
            "busy": round(span.busy / max(span.end - span.begin, 1), 3),
        }
        for span in timeline.spans
    ]
    cores = range(max(_cores(report), 1 + max(span.core for span in timeline.spans)))
    spec = figure_spec(
        values,
        max(80, 20 * len(cores)),
        params=[_ZOOM],
        mark={"type": "bar", "clip": True},
        encoding={
            "x": axis("begin", "quantitative", "cycle", scale={"nice": False}),
            "x2": {"field": "end"},
            "y": axis("core", "ordinal", "core", scale={"domain": list(cores)}),
            "yOffset": {"field": "unit", "sort": list(UNITS)},
            "color": axis("unit", "nominal", "unit", scale=_colours(_UNIT_COLOURS)),
            "opacity": axis("busy", "quantitative", "share at work")
            | {"scale": {"domain": [0, 1], "range": [0.15, 1]}, "legend": None},
            "tooltip": tooltips(
                core="core", unit="unit", layer="layer", begin="from", end="to", busy="at work"
            ),
        },
    )
    joined = f"Pauses of up to {timeline.resolution} cycles are drawn as paler work. "
    pauses = joined if timeline.resolution else ""
    text = f"What each unit of each core did when. {pauses}{_ZOOM_HINT}"
    return Figure("Cores over time", text, spec)


def _memory(report: RunReport) -> Figure:
    ends = list(accumulate(layer.cycles for layer in report.layers))
    labels = [layer_label(layer) for layer in report.layers]
    blocks = [block for block in report.memory if block.kind != "program"]
    base = min(block.address for block in blocks)
    values = [
        {
            "name": block.name,
            "kind": block.kind,
            "first": block.first,
            "until": block.last + 1,
            "low": (block.address - base) / 1024,
            "high": (block.address - base + block.nbytes) / 1024,
            "size": bytes_text(block.nbytes),
            "layers": _between(labels, block.first, block.last),
            "cycles": f"{ends[block.first - 1] if 0 < block.first <= len(ends) else 0:,} to"
            f" {ends[block.last] if block.last < len(ends) else report.cycles:,}",
        }
        for block in blocks
    ]
    spec = figure_spec(
        values,
        320,
        mark={"type": "rect", "stroke": "white", "strokeWidth": 0.6},
        encoding={
            "x": axis("first", "quantitative", "layer, in the order in which they ran")
            | {"scale": {"nice": False}, "axis": {"tickMinStep": 1, "format": "d"}},
            "x2": {"field": "until"},
            "y": axis("low", "quantitative", f"KiB from {base:#x}"),
            "y2": {"field": "high"},
            "color": axis("kind", "nominal", "holds", scale=_colours(_KIND_COLOURS)),
            "tooltip": tooltips(
                name="tensor", kind="kind", size="size", layers="layers", cycles="cycles"
            ),
        },
    )
    text = "What lies where in the read-write DRAM, from its first use to its last."
    return Figure("Memory over time", text, spec)


def _between(labels: Sequence[str], first: int, last: int) -> str:
    ends = [labels[index] for index in dict.fromkeys((first, last)) if index < len(labels)]
    return " to ".join(ends)


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
            "tooltip": tooltips(low="from", high="below", count="values"),
        },
    )
    lost = f"; {one.not_finite:,} infinite or NaN" if one.not_finite else ""
    type = layer.elem if layer.scale is None else f"{layer.elem}, scale {layer.scale:.6g}"
    text = f"{sum(one.counts):,} values of {type}{lost}; counts on a logarithmic axis."
    return Figure(f"Values of {layer_label(layer)}", text, spec, narrow=True)


def _cores(report: RunReport) -> int:
    count = report.device.get("cores_count")
    return count if isinstance(count, int) and 0 < count <= MOST_CORES else 1


def _colours(colours: Mapping[str, str]) -> dict[str, Any]:
    return {"domain": list(colours), "range": list(colours.values())}
