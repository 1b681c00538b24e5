"""Roofline figure of a run."""

from __future__ import annotations

from typing import Any

from nmpsim.config import DeviceConfig
from nmpsim.report.data import RunReport
from nmpsim.timing.bounds import macs_per_cycle
from nmpsim.views.html.figures import (
    ZOOM_HINT,
    Figure,
    axis,
    color_scale,
    figure_spec,
    layer_labels,
    tooltips,
    zoom,
)

_BOUND_COLORS = {"compute": "#0072b2", "memory": "#d55e00", "none": "#7f7f7f"}
_MARGIN = 1.6
"""Margin of the axes as a factor."""


def roofline(report: RunReport, device: DeviceConfig) -> Figure:
    """Return a figure with a point per layer with MACs, and the roof."""
    points = [
        {
            "layer": label,
            "reach": layer.macs / (layer.bytes_read + layer.bytes_written or 1),
            "speed": layer.macs / layer.cycles,
            "bound": layer.bound.kind,
            "cycles": layer.cycles,
        }
        for layer, label in zip(report.layers, layer_labels(report), strict=True)
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
    return Figure("Roofline", text, figure_spec(points, 380, layer=layers))


def _axis(field: str, title: str, points: list[dict[str, Any]], corner: float) -> dict[str, Any]:
    """Return a logarithmic axis that contains every point and the corner of the roof."""
    values = [corner, *(point[field] for point in points)]
    domain = [min(values) / _MARGIN, max(values) * _MARGIN]
    scale = {"type": "log", "nice": False, "domain": domain}
    return axis(field, "quantitative", title, scale=scale)


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
        "params": [zoom("x", "y")],
        "mark": {"type": "point", "filled": True, "opacity": 0.7, "clip": True},
        "encoding": {
            "x": x,
            "y": y,
            "color": axis("bound", "nominal", "limited by", scale=color_scale(_BOUND_COLORS)),
            "shape": axis("bound", "nominal", "limited by", scale={"domain": list(_BOUND_COLORS)}),
            "size": axis("cycles", "quantitative", "cycles", scale={"range": [30, 400]})
            | {"legend": None},
            "tooltip": tooltips(
                points,
                layer="layer",
                speed="MACs/cycle",
                reach="MACs/byte",
                cycles="cycles",
                bound="bound",
            ),
        },
    }
