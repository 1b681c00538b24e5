"""Figures of one run, some over the time of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from nmpsim.config import DeviceConfig, make_device_config
from nmpsim.report.analyses import UNITS, Histogram, Timeline
from nmpsim.report.data import LayerReport, RunReport
from nmpsim.report.energy import RunEnergy
from nmpsim.timing.bounds import count_macs_per_cycle
from nmpsim.views.analyses_text import PARTS
from nmpsim.views.html.figures import (
    ZOOM_HINT,
    Figure,
    get_core_count,
    make_figure,
    make_layer_labels,
)
from nmpsim.views.measures import (
    CORE_CAUSES,
    ENERGY_COMPONENTS,
    PATH_CAUSES,
    CycleCauseStyle,
    describe_shares,
)
from nmpsim.views.run_text import describe_estimate, get_estimate_values
from nmpsim.views.text import format_bytes, format_energy, format_percent

# Figures over the time of a run: cores, DRAM and scratchpads.


def make_timeline_figure(report: RunReport, timeline: Timeline) -> Figure:
    """Return a figure of the activity of each core's units over time."""
    labels = make_layer_labels(report)
    values = [
        {
            "core": span.core,
            "unit": span.unit,
            "layer": "" if span.layer is None else labels[span.layer],
            "begin": span.begin,
            "end": span.end,
            "busy": round(span.busy / max(span.end - span.begin, 1), 1),
        }
        for span in timeline.spans
    ]
    values.sort(key=lambda one: (one["unit"], one["busy"]))  # equal styles are joined
    joined = f"Pauses of up to {timeline.resolution} cycles are drawn as paler work. "
    pauses = joined if timeline.resolution else ""
    layers = [one for one in zip(report.layers, _ends(report), strict=True) if one[0].device_cycles]
    return make_figure(
        "timeline",
        "Cores over time",
        f"Activity of each unit of each core; stripes are layers. {pauses}{ZOOM_HINT}",
        values,
        cores=[*range(max(get_core_count(report), 1 + max(span.core for span in timeline.spans)))],
        units_order=list(UNITS),
        times=[
            {
                "layer": labels[layer.index],
                "begin": end - layer.device_cycles,
                "end": end,
                "shade": n % 2,  # every second layer is shaded
            }
            for n, (layer, end) in enumerate(layers)
        ],
    )


def make_memory_figure(report: RunReport) -> Figure:
    """Return a figure of the layers during which each tensor occupies read-write DRAM."""
    ends = _ends(report)
    labels = make_layer_labels(report)
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
            "size": format_bytes(block.nbytes),
            "layers": _between(labels, block.first, block.last),
            "cycles": f"{ends[block.first - 1] if 0 < block.first <= len(ends) else 0:,} to"
            f" {ends[block.last] if block.last < len(ends) else report.device_cycles:,}",
        }
        for block in blocks
    ]
    text = "Contents of read-write DRAM, from the first use to the last."
    return make_figure("memory", "Memory over time", text, values, base=f"{base:#x}")


def make_scratchpad_figure(report: RunReport) -> Figure:
    """Return a figure of the scratchpad contents during each layer."""
    size = make_device_config(report.device).scratchpad_bytes
    cores, labels = get_core_count(report), make_layer_labels(report)
    values = [
        {
            "layer": labels[block.layer],
            "kind": block.kind,
            "first": block.layer,
            "until": block.layer + 1,
            "low": block.begin / 1024,
            "high": block.end / 1024,
            "size": format_bytes(block.end - block.begin),
            "cores": block.cores,
            "share": round(block.cores / cores, 3),
        }
        for block in report.scratchpads
    ]
    text = (
        f"Contents of the scratchpads of {format_bytes(size)} by layer: loaded data, results and"
        " sums. Paler areas are used by fewer cores; free space allows larger tiles."
    )
    return make_figure("scratchpads", "Scratchpads over time", text, values, size=size)


def _ends(report: RunReport) -> list[int]:
    """Return the device's cycle at the end of each layer."""
    return list(accumulate(layer.device_cycles for layer in report.layers))


def _between(labels: Sequence[str], first: int, last: int) -> str:
    ends = [labels[index] for index in dict.fromkeys((first, last)) if index < len(labels)]
    return " to ".join(ends)


_PART_COLORS = {
    "inherited": "#b0b7bf",
    "bias": "#cc79a7",
    "weights": "#0072b2",
    "saturation": "#d55e00",
    "rescale": "#009e73",
}


def make_error_figures(report: RunReport) -> Iterator[Figure]:
    """Yield a figure of layer errors for each source; yield nothing without a shadow evaluation."""
    layers = report.shadow.layers if report.shadow is not None else ()
    labels = make_layer_labels(report)
    values = [
        {
            "layer": labels[layer.index],
            "part": PARTS[part],
            "order": order,
            "mean": round(size.mean_error_ulp, 4),
            "worst": round(size.max_error_ulp or 0, 2),
        }
        for layer in layers
        if layer.split is not None
        for order, part in enumerate(PARTS)
        if (size := getattr(layer.split, part)) is not None and size.mean_error_ulp
    ]
    if not values:
        return
    text = (
        "Mean size of each part of a layer's error against exact evaluation. Parts of opposite"
        " signs cancel, so a bar may be longer than the error."
    )
    if report.shadow is not None and report.shadow.float_weights is None:
        text += " Without --float-weights only rounding and saturation are measured."
    yield make_figure(
        "bars",
        "Errors by layer and source",
        text,
        values,
        height=240,
        field="mean",
        axis_title="mean error, units of the last place",
        part="part",
        colors={words: _PART_COLORS[part] for part, words in PARTS.items()},
        titles={field: field for field in ("layer", "part", "mean", "worst")},
    )


def make_run_figures(report: RunReport) -> Iterator[Figure]:
    """Yield all figures of a run for which the report contains data."""
    if any(sum(layer.core_cycles.values()) for layer in report.layers):
        yield _make_cause_figure(
            report,
            "Cycles by layer and cause",
            "Cycles of each layer, divided by what its cores did.",
            [layer.core_cycles for layer in report.layers],
            CORE_CAUSES,
            "cycles, mean of all cores",
            get_core_count(report),
        )
    if any(report.critical_path.values()):
        yield _path_figure(report)
    if report.energy is not None:
        yield _energy_figure(report, report.energy)
    if any(layer.macs and layer.cycles for layer in report.layers):
        yield make_roofline_figure(report, make_device_config(report.device))
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


def _path_figure(report: RunReport) -> Figure:
    path = report.critical_path
    shares = describe_shares(path, sum(path.values()), PATH_CAUSES)
    text = f"Causes on the critical path of each layer. Of the run: {'; '.join(shares)}."
    found = [layer.critical_path for layer in report.layers]
    return _make_cause_figure(report, "Critical path by layer", text, found, PATH_CAUSES, "cycles")


def _energy_figure(report: RunReport, energy: RunEnergy) -> Figure:
    components = get_estimate_values(energy.components)
    shares = describe_shares(components, energy.total.value, ENERGY_COMPONENTS)
    total = describe_estimate(energy.total, format_energy)
    text = f"Energy of each layer by component. The run takes {total}: {'; '.join(shares)}."
    found = [
        {name: value / 1000 for name, value in get_estimate_values(layer.energy).items()}
        for layer in report.layers
    ]
    title, unit = "Energy by layer and component", "nanojoules"
    return _make_cause_figure(report, title, text, found, ENERGY_COMPONENTS, unit, unit=unit)


def _make_cause_figure(
    report: RunReport,
    title: str,
    text: str,
    amounts: Sequence[Mapping[str, float]],
    causes: Mapping[str, CycleCauseStyle],
    axis_title: str,
    cores: int | None = None,
    unit: str = "cycles",
) -> Figure:
    """Return stacked bars of causes, one per layer, of heights divided by ``cores`` if given."""
    values = [
        {
            "layer": label,
            "cause": cause.title,
            "meaning": cause.meaning,
            "order": order,
            unit: count if cores is None else round(count / cores, 1),
            "share": f"{format_percent(count, sum(found.values()))}%",
        }
        for found, label in zip(amounts, make_layer_labels(report), strict=True)
        for order, (name, cause) in enumerate(causes.items())
        if (count := found.get(name, 0))
    ]
    fields = ("layer", "cause", "meaning", unit)
    return make_figure(
        "bars",
        title,
        text,
        values,
        height=320,
        field=unit,
        axis_title=axis_title,
        part="cause",
        colors={one.title: one.color for one in causes.values()},
        titles={**dict(zip(fields, fields, strict=True)), "share": "share of the layer"},
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
    lost = f"; {one.not_finite:,} infinite or NaN" if one.not_finite else ""
    type = layer.elem if layer.scale is None else f"{layer.elem}, scale {layer.scale:.6g}"
    return make_figure(
        "histogram",
        f"Values of {make_layer_labels(report)[one.index]}",
        f"{sum(one.counts):,} values of {type}{lost}; counts on a logarithmic axis.",
        values,
        is_narrow=True,
        domain=[one.low, one.low + one.width * len(one.counts)],
    )


_MARGIN = 1.6
"""Margin of the axes as a factor."""


def make_roofline_figure(report: RunReport, device: DeviceConfig) -> Figure:
    """Return a roofline figure with a point per layer that has MACs."""
    points: list[dict[str, Any]] = [
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
    peak, bandwidth = count_macs_per_cycle(device, int(wide)), device.dram_bytes_per_cycle
    corner = {"reach": peak / bandwidth, "speed": peak}
    domains = {}
    for axis, at_corner in corner.items():
        values = [at_corner, *(point[axis] for point in points)]
        domains[axis] = [min(values) / _MARGIN, max(values) * _MARGIN]
    low, high = domains["reach"]
    return make_figure(
        "roofline",
        "Roofline",
        f"Layers below the roof: {bandwidth} bytes per cycle on the left, {peak:,} MACs per cycle"
        f" on the right. Larger points are slower layers. {ZOOM_HINT}",
        points,
        domains=domains,
        roof=[
            {"reach": at, "speed": min(peak, at * bandwidth)} for at in (low, corner["reach"], high)
        ],
    )


CHANNEL_CELLS = 64
"""Most cells of a layer; more channels share cells."""


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
    return make_figure(
        "saturation",
        "Saturation by layer and channel",
        "Saturated values by channel; layers without saturation are omitted. Layers with the same"
        " number of channels share an axis.",
        values,
        rows=[(channels, len(layers)) for channels, layers in sorted(rows.items())],
    )


def _cells(layer: LayerReport, label: str) -> Iterator[dict[str, Any]]:
    """Yield a cell for all channels, then at most CHANNEL_CELLS cells with saturated values."""
    channels = max(layer.shape[-1] if layer.shape else 1, 1)
    width = -(-channels // CHANNEL_CELLS)
    counts: dict[int, int] = {}
    for one in layer.saturation:
        for channel, count in () if one.is_requested else one.channels:
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
