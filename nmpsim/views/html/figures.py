"""Figures as Vega-Lite specifications, rendered by the browser.

Names from a report are data of a figure, never expressions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from nmpsim.escape import escape_line
from nmpsim.report.analyses import MAX_CORES
from nmpsim.report.data import RunReport
from nmpsim.views.text import shorten_distinct

WIDTH = 860
"""Default width in pixels."""
MARGIN = 340
"""Width of labels and legend of a stacked figure in pixels, also in page.js."""
MAX_MARKS = 50_000
"""Most marks that are drawn; a large network has ten thousand."""
NAME_CHARACTERS = 30
"""Longest name of a layer on an axis or in a list."""
ZOOM_HINT = "Drag to move, Ctrl and wheel to zoom, double click to reset."
_MAX_OBJECTS = 50
"""Most data records as objects; more are stored as CSV, which is shorter."""
_MAX_LINES = 1000
"""Most marks that a browser renders as SVG instead of a canvas."""


@attrs.frozen
class Figure:
    """A figure: title, description and Vega-Lite specification."""

    title: str
    text: str
    """Description, also for screen readers."""
    spec: Mapping[str, Any]
    narrow: bool = False
    """Whether several are placed side by side."""

    @property
    def is_large(self) -> bool:
        """Whether the figure has too many marks for SVG."""
        return self.mark_count > _MAX_LINES

    @property
    def mark_count(self) -> int:
        """Number of marks, such as bars or points."""
        values = self.spec["data"]["values"]
        return values.count("\n") - 1 if isinstance(values, str) else len(values)


def make_figure_spec(
    values: Sequence[Mapping[str, Any]], height: int, **parts: Any
) -> dict[str, Any]:
    """Return a Vega-Lite specification of ``values`` with the common style of all figures."""
    return {
        "width": WIDTH,
        "height": height,
        "background": "white",
        "padding": {"left": 5, "top": 5, "right": 30, "bottom": 5},  # other fonts are wider
        "data": _data(values),
        "config": {"font": "sans-serif", "axis": {"labelFontSize": 11, "titleFontSize": 12}},
        **parts,
    }


def make_stacked_spec(
    values: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a Vega-Lite specification of vertically stacked charts of the same data."""
    spec = make_figure_spec(
        values, 0, vconcat=[{"width": WIDTH - MARGIN, **part} for part in parts]
    )
    return {name: part for name, part in spec.items() if name not in ("width", "height")}


def _data(given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = [{name: _escape_value(value) for name, value in one.items()} for one in given]
    if len(values) <= _MAX_OBJECTS:
        return {"values": values}
    lines = io.StringIO()
    writer = csv.DictWriter(lines, list(values[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(values)
    kinds = {
        name: "string" if isinstance(value, str) else "number" for name, value in values[0].items()
    }
    return {"values": lines.getvalue(), "format": {"type": "csv", "parse": kinds}}


def _escape_value(value: Any) -> Any:
    return escape_line(value) if isinstance(value, str) else value


def make_layer_labels(report: RunReport) -> list[str]:
    """Return a distinct label of each layer for an axis: its index and short name."""
    names = shorten_names([layer.display_name for layer in report.layers])
    return [f"{layer.index} {name}" for layer, name in zip(report.layers, names, strict=True)]


def shorten_names(names: Sequence[str]) -> list[str]:
    """Return names shortened to 30 characters so that they stay distinct."""
    return shorten_distinct([escape_line(name) for name in names], NAME_CHARACTERS)


def encode_layers(field: str) -> dict[str, Any]:
    """Return the Vega-Lite encoding of a field of layer names, in their order."""
    return encode_names(field, None, sort=None, axis={"labelLimit": 8 * NAME_CHARACTERS})


def get_core_count(report: RunReport) -> int:
    """Return the number of cores of a run's device, 1 if unknown."""
    count = report.device.get("cores_count")
    return count if isinstance(count, int) and 0 < count <= MAX_CORES else 1


def encode_numbers(field: str, title: str, **more: Any) -> dict[str, Any]:
    """Return the Vega-Lite encoding of a quantitative field."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def encode_names(field: str, title: str | None, **more: Any) -> dict[str, Any]:
    """Return the Vega-Lite encoding of a nominal field."""
    return {"field": field, "type": "nominal", "title": title, **more}


def make_zoom(*encodings: str) -> dict[str, Any]:
    """Return the Vega-Lite parameter for panning and zooming along axes."""
    wheel = "wheel![event.ctrlKey]"
    return {
        "name": "zoom",
        "select": {"type": "interval", "encodings": list(encodings), "zoom": wheel},
        "bind": "scales",
    }


def make_color_scale(colors: Mapping[str, str]) -> dict[str, Any]:
    """Return the Vega-Lite scale from names to colors."""
    return {"domain": list(colors), "range": list(colors.values())}


def encode_tooltips(
    values: Sequence[Mapping[str, Any]], *fields: str, **titles: str
) -> list[dict[str, Any]]:
    """Return the Vega-Lite tooltip of fields, with rounded numbers.

    Fields are given by their names, then by name and title if these differ.
    """
    example = values[0] if values else {}
    return [
        {"field": field, "title": title} | _rounded(example.get(field))
        for field, title in {**dict(zip(fields, fields, strict=True)), **titles}.items()
    ]


def _rounded(value: Any) -> dict[str, str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return {}
    return {"type": "quantitative", "format": "," if isinstance(value, int) else ",.4~r"}
