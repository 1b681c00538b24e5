"""The roofline of a run: how fast its layers multiply, and what keeps them from being faster."""

from __future__ import annotations

from typing import Any

from nmpsim.config import DeviceConfig
from nmpsim.report.data import RunReport
from nmpsim.timing.bounds import macs_per_cycle
from nmpsim.views.html.figures import (
    ZOOM_HINT,
    Figure,
    axis,
    colours,
    figure_spec,
    layer_labels,
    tooltips,
    zoom,
)

_BOUND_COLOURS = {"compute": "#0072b2", "memory": "#d55e00", "none": "#7f7f7f"}
_ROOM = 1.6
"""Between what is drawn and the edges, as a factor."""


def roofline(report: RunReport, device: DeviceConfig) -> Figure:
    """A point for each layer with MACs, below the roof; both slopes of the roof are in view."""
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
    x = _axis("reach", "MACs for each byte of DRAM traffic", points, peak / bandwidth)
    y = _axis("speed", "MACs in a cycle", points, peak)
    text = (
        f"Each layer below the roof: what {bandwidth} bytes a cycle feed on the left,"
        f" {peak:,} MACs a cycle on the right. Larger points took longer. {ZOOM_HINT}"
    )
    layers = [_roof(x, y, peak, bandwidth), _dots(points, x, y)]
    return Figure("Roofline", text, figure_spec(points, 380, layer=layers))


def _axis(field: str, title: str, points: list[dict[str, Any]], corner: float) -> dict[str, Any]:
    """A logarithmic axis that holds every point and the corner of the roof."""
    values = [corner, *(point[field] for point in points)]
    domain = [min(values) / _ROOM, max(values) * _ROOM]
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
            "color": axis("bound", "nominal", "bound by", scale=colours(_BOUND_COLOURS)),
            "shape": axis("bound", "nominal", "bound by", scale={"domain": list(_BOUND_COLOURS)}),
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
