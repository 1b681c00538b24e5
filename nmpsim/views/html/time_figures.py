"""Figures over the time of a run: cores, DRAM and scratchpads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from nmpsim.config import from_settings
from nmpsim.report.analyses import UNITS, Timeline
from nmpsim.report.data import RunReport
from nmpsim.views.html.figures import (
    ZOOM_HINT,
    Figure,
    encode_names,
    encode_numbers,
    encode_tooltips,
    get_core_count,
    make_color_scale,
    make_figure_spec,
    make_layer_labels,
    make_zoom,
)
from nmpsim.views.text import format_bytes

_UNIT_COLORS = {"load": "#e69f00", "store": "#cc79a7", "mac": "#0072b2", "vector": "#56b4e9"}
_KIND_COLORS = {"input": "#009e73", "output": "#d55e00", "activation": "#56b4e9"}
_HELD_COLORS = {"loaded": "#e69f00", "computed": "#0072b2", "both": "#009e73"}
_CHARACTER = 7
"""Width of a letter in pixels."""
_NAMES_ROW = "layer"
"""Row above core 0, with names of layers."""


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
    cores = range(max(get_core_count(report), 1 + max(span.core for span in timeline.spans)))
    times = _layer_times(report, labels)
    behind = {"data": {"values": times}, "layer": [_bands(times), _names()]}
    spec = make_figure_spec(
        values, max(80, 20 * len(cores) + 20), layer=[behind, _bars(values, cores)]
    )
    joined = f"Pauses of up to {timeline.resolution} cycles are drawn as paler work. "
    pauses = joined if timeline.resolution else ""
    text = f"Activity of each unit of each core; stripes are layers. {pauses}{ZOOM_HINT}"
    return Figure("Cores over time", text, spec)


def _bars(values: list[dict[str, Any]], cores: range) -> dict[str, Any]:
    return {
        "params": [make_zoom("x")],
        "mark": {"type": "bar", "clip": True},
        "encoding": {
            "x": encode_numbers("begin", "cycle", scale={"nice": False}),
            "x2": {"field": "end"},
            "y": encode_names("core", "core", scale={"domain": [_NAMES_ROW, *cores]})
            | {"type": "ordinal"},
            "yOffset": {"field": "unit", "sort": list(UNITS)},
            "color": encode_names("unit", "unit", scale=make_color_scale(_UNIT_COLORS)),
            "opacity": encode_numbers("busy", "share of busy time")
            | {"scale": {"domain": [0, 1], "range": [0.15, 1]}, "legend": None},
            "tooltip": encode_tooltips(
                values,
                "core",
                "unit",
                "layer",
                begin="from",
                end="to",
                busy="share of busy time",
            ),
        },
    }


def _layer_times(report: RunReport, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return the times of layers, every second one shaded."""
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
            "x": encode_numbers("begin", "cycle"),
            "x2": {"field": "end"},
            "fill": shaded | {"scale": {"domain": [0, 1], "range": ["#eef1f4", "#ffffff"]}},
            "tooltip": encode_tooltips(times, "layer", begin="from", end="to"),
        },
    }


def _names() -> dict[str, Any]:
    """Return the names of layers above their time, or only numbers where names do not fit."""
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


def make_memory_figure(report: RunReport) -> Figure:
    """Return a figure that shows during which layers each tensor occupies read-write DRAM."""
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
    tips = encode_tooltips(
        values, name="tensor", kind="kind", size="size", layers="layers", cycles="cycles"
    )
    spec = _block_spec(values, encode_numbers("low", f"KiB from {base:#x}"), _KIND_COLORS, tips)
    text = "Contents of read-write DRAM, from the first use to the last."
    return Figure("Memory over time", text, spec)


def make_scratchpad_figure(report: RunReport) -> Figure:
    """Return a figure of the contents of scratchpads over layers."""
    size = from_settings(report.device).scratchpad_bytes
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
    height = encode_numbers("low", "KiB of a scratchpad") | {
        "scale": {"domain": [0, size / 1024], "nice": False}
    }
    opacity = encode_numbers("share", "share of the cores") | {
        "scale": {"domain": [0, 1], "range": [0.3, 1]},
        "legend": None,
    }
    tips = encode_tooltips(values, "layer", "kind", "size", "cores")
    spec = _block_spec(values, height, _HELD_COLORS, tips, opacity=opacity)
    text = (
        f"Contents of the scratchpads of {format_bytes(size)} by layer: loaded data, results and"
        " sums. Paler areas are used by fewer cores; free space allows larger tiles."
    )
    return Figure("Scratchpads over time", text, spec)


def _block_spec(
    values: Sequence[Mapping[str, Any]],
    height: dict[str, Any],
    colors: Mapping[str, str],
    tooltip: list[dict[str, Any]],
    **more: Any,
) -> dict[str, Any]:
    """Return blocks of memory: layers to the right, addresses upwards, colors by contents."""
    layers = encode_numbers("first", "layer, in the order of the run") | {
        "scale": {"nice": False},
        "axis": {"tickMinStep": 1, "format": "d"},
    }
    return make_figure_spec(
        values,
        320,
        mark={"type": "rect", "stroke": "white", "strokeWidth": 0.6},
        encoding={
            "x": layers,
            "x2": {"field": "until"},
            "y": height,
            "y2": {"field": "high"},
            "color": encode_names("kind", "holds", scale=make_color_scale(colors)),
            **more,
            "tooltip": tooltip,
        },
    )


def _ends(report: RunReport) -> list[int]:
    """Return the device's cycle at the end of each layer."""
    return list(accumulate(layer.device_cycles for layer in report.layers))


def _between(labels: Sequence[str], first: int, last: int) -> str:
    ends = [labels[index] for index in dict.fromkeys((first, last)) if index < len(labels)]
    return " to ".join(ends)
