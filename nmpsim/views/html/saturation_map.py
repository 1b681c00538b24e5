"""Figure of saturation by layer and channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nmpsim.report.data import LayerReport, RunReport
from nmpsim.views.html.figures import (
    Figure,
    axis,
    layer_labels,
    names_axis,
    stacked_spec,
    tooltips,
)

CHANNEL_CELLS = 64
"""Most cells of a layer; more channels share cells."""
_COLORS = ["#f5f0eb", "#fdbb84", "#ef6548", "#7f0000"]
"""Colors from no to much saturation."""
_ROW_HEIGHT = 16
_LABEL_WIDTH = 200
"""Width of labels in pixels, which aligns the axes."""


def saturation_map(report: RunReport) -> Figure:
    """Return the figure; layers with the same number of channels share an axis."""
    values = [
        cell
        for layer, label in zip(report.layers, layer_labels(report), strict=True)
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
    return Figure("Saturation by layer and channel", text, stacked_spec(values, parts))


def _part(values: list[dict[str, Any]], channels: int, rows: int) -> dict[str, Any]:
    """Return the chart of the layers with a number of channels."""
    layer = names_axis("layer")
    layer["axis"] |= {"minExtent": _LABEL_WIDTH}
    return {
        "transform": [{"filter": f"datum.of === {channels}"}],
        "height": _ROW_HEIGHT * rows,
        "mark": {"type": "rect"},
        "encoding": {
            "x": axis("first", "quantitative", f"channel, of {channels:,}")
            | {"scale": {"domain": [0, channels], "nice": False}, "axis": {"tickMinStep": 1}},
            "x2": {"field": "until"},
            "y": layer,
            "color": axis("share", "quantitative", "% saturated")
            | {"scale": {"type": "symlog", "constant": 0.01, "range": _COLORS}},
            "tooltip": tooltips(
                values,
                layer="layer",
                channels="channels",
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
