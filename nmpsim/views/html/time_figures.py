"""Figures over the time of a run: cores, DRAM and scratchpads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from nmpsim.config import make_device_config
from nmpsim.report.analyses import UNITS, Timeline
from nmpsim.report.data import RunReport
from nmpsim.views.html.figures import (
    ZOOM_HINT,
    Figure,
    get_core_count,
    make_figure,
    make_layer_labels,
)
from nmpsim.views.text import format_bytes


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
    return make_figure(
        "timeline",
        "Cores over time",
        f"Activity of each unit of each core; stripes are layers. {pauses}{ZOOM_HINT}",
        values,
        cores=list(
            range(max(get_core_count(report), 1 + max(span.core for span in timeline.spans)))
        ),
        units_order=list(UNITS),
        times=_layer_times(report, labels),
    )


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
