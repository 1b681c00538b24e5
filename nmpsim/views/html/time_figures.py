"""Figures over the time of a run: what cores did when, and what memories held."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from nmpsim.config import from_settings
from nmpsim.report.data import RunReport
from nmpsim.report.details import UNITS, Timeline
from nmpsim.views.html.figures import (
    ZOOM_HINT,
    Figure,
    axis,
    colours,
    cores_of,
    figure_spec,
    layer_labels,
    tooltips,
    zoom,
)
from nmpsim.views.text import bytes_text

_UNIT_COLOURS = {"load": "#e69f00", "store": "#cc79a7", "mac": "#0072b2", "vector": "#56b4e9"}
_KIND_COLOURS = {"input": "#009e73", "output": "#d55e00", "activation": "#56b4e9"}
_HELD_COLOURS = {"loaded": "#e69f00", "computed": "#0072b2", "both": "#009e73"}
_CHARACTER = 7
"""Pixels of a letter."""
_NAMES_ROW = "layer"
"""Of the cores over time: the row above core 0."""


def gantt(report: RunReport, timeline: Timeline) -> Figure:
    """What the units did when, the layers in the background."""
    labels = layer_labels(report)
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
    values.sort(key=lambda one: (one["unit"], one["busy"]))  # what looks alike is drawn at once
    cores = range(max(cores_of(report), 1 + max(span.core for span in timeline.spans)))
    times = _layer_times(report, labels)
    behind = {"data": {"values": times}, "layer": [_bands(times), _names()]}
    spec = figure_spec(values, max(80, 20 * len(cores) + 20), layer=[behind, _bars(values, cores)])
    joined = f"Pauses of up to {timeline.resolution} cycles are drawn as paler work. "
    pauses = joined if timeline.resolution else ""
    text = f"What each unit of each core did when; stripes are layers. {pauses}{ZOOM_HINT}"
    return Figure("Cores over time", text, spec)


def _bars(values: list[dict[str, Any]], cores: range) -> dict[str, Any]:
    return {
        "params": [zoom("x")],
        "mark": {"type": "bar", "clip": True},
        "encoding": {
            "x": axis("begin", "quantitative", "cycle", scale={"nice": False}),
            "x2": {"field": "end"},
            "y": axis("core", "ordinal", "core", scale={"domain": [_NAMES_ROW, *cores]}),
            "yOffset": {"field": "unit", "sort": list(UNITS)},
            "color": axis("unit", "nominal", "unit", scale=colours(_UNIT_COLOURS)),
            "opacity": axis("busy", "quantitative", "share at work")
            | {"scale": {"domain": [0, 1], "range": [0.15, 1]}, "legend": None},
            "tooltip": tooltips(
                values,
                core="core",
                unit="unit",
                layer="layer",
                begin="from",
                end="to",
                busy="at work",
            ),
        },
    }


def _layer_times(report: RunReport, labels: Sequence[str]) -> list[dict[str, Any]]:
    """When each layer ran; every second one is shaded."""
    layers = [one for one in zip(report.layers, _ends(report), strict=True) if one[0].device_cycles]
    return [
        {
            "layer": labels[layer.index],
            "begin": end - layer.device_cycles,
            "end": end,
            "shade": n % 2,
        }
        for n, (layer, end) in enumerate(layers)
    ]


def _bands(times: list[dict[str, Any]]) -> dict[str, Any]:
    shaded = {"field": "shade", "type": "nominal", "legend": None}
    return {
        "mark": {"type": "rect", "clip": True},
        "encoding": {
            "x": axis("begin", "quantitative", "cycle"),
            "x2": {"field": "end"},
            "fill": shaded | {"scale": {"domain": [0, 1], "range": ["#eef1f4", "#ffffff"]}},
            "tooltip": tooltips(times, layer="layer", begin="from", end="to"),
        },
    }


def _names() -> dict[str, Any]:
    """Names of layers above their time, or only their numbers, where these have room."""
    room = f"(scale('x', datum.end) - scale('x', datum.begin)) / {_CHARACTER}"
    names = ("datum.layer", "split(datum.layer, ' ')[0]")
    shown = " : ".join(f"length({name}) < {room} ? {name}" for name in names)
    return {
        "mark": {
            "type": "text",
            "fontSize": 11,
            "color": "#57606a",
            "x": {"expr": "(scale('x', datum.begin) + scale('x', datum.end)) / 2"},
            "text": {"expr": f"{shown} : ''"},
        },
        "encoding": {"y": {"datum": _NAMES_ROW}},
    }


def memory(report: RunReport) -> Figure:
    """What lies in the read-write DRAM from which layer to which."""
    ends = _ends(report)
    labels = layer_labels(report)
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
            f" {ends[block.last] if block.last < len(ends) else report.device_cycles:,}",
        }
        for block in blocks
    ]
    spec = figure_spec(
        values,
        320,
        mark={"type": "rect", "stroke": "white", "strokeWidth": 0.6},
        encoding={
            "x": _layer_axis("first"),
            "x2": {"field": "until"},
            "y": axis("low", "quantitative", f"KiB from {base:#x}"),
            "y2": {"field": "high"},
            "color": axis("kind", "nominal", "holds", scale=colours(_KIND_COLOURS)),
            "tooltip": tooltips(
                values, name="tensor", kind="kind", size="size", layers="layers", cycles="cycles"
            ),
        },
    )
    text = "What lies where in the read-write DRAM, from its first use to its last."
    return Figure("Memory over time", text, spec)


def scratchpads(report: RunReport) -> Figure:
    """Where in the scratchpads each layer put what, and in how many cores."""
    size = from_settings(report.device).scratchpad_bytes
    cores, labels = cores_of(report), layer_labels(report)
    values = [
        {
            "layer": labels[block.layer],
            "kind": block.kind,
            "first": block.layer,
            "until": block.layer + 1,
            "low": block.begin / 1024,
            "high": block.end / 1024,
            "size": bytes_text(block.end - block.begin),
            "cores": block.cores,
            "share": round(block.cores / cores, 3),
        }
        for block in report.scratchpads
    ]
    spec = figure_spec(
        values,
        320,
        mark={"type": "rect", "stroke": "white", "strokeWidth": 0.6},
        encoding={
            "x": _layer_axis("first"),
            "x2": {"field": "until"},
            "y": axis("low", "quantitative", "KiB of a scratchpad")
            | {"scale": {"domain": [0, size / 1024], "nice": False}},
            "y2": {"field": "high"},
            "color": axis("kind", "nominal", "holds", scale=colours(_HELD_COLOURS)),
            "opacity": axis("share", "quantitative", "share of the cores")
            | {"scale": {"domain": [0, 1], "range": [0.3, 1]}, "legend": None},
            "tooltip": tooltips(values, layer="layer", kind="kind", size="size", cores="cores"),
        },
    )
    text = (
        f"What each layer put into the scratchpads of {bytes_text(size)}: what loads brought,"
        " and results and sums. Paler where fewer cores did; free above, there is room for larger"
        " tiles."
    )
    return Figure("Scratchpads over time", text, spec)


def _layer_axis(field: str) -> dict[str, Any]:
    return axis(field, "quantitative", "layer, in the order in which they ran") | {
        "scale": {"nice": False},
        "axis": {"tickMinStep": 1, "format": "d"},
    }


def _ends(report: RunReport) -> list[int]:
    """The device's cycle at which each layer ended."""
    return list(accumulate(layer.device_cycles for layer in report.layers))


def _between(labels: Sequence[str], first: int, last: int) -> str:
    ends = [labels[index] for index in dict.fromkeys((first, last)) if index < len(labels)]
    return " to ".join(ends)
