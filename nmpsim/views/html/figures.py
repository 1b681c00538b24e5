"""Figures as Vega-Lite specifications: plain data, drawn by the reader's browser.

Of a report they take numbers and names; a name is data of a figure, never part of its language.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from nmpsim.report.data import RunReport
from nmpsim.views.text import shorten_apart
from nmpsim.visible import visible_line

WIDTH = 860
"""Pixels of a figure where nobody asks for another width."""
MARGIN = 340
"""Pixels of this that a stacked figure has for labels and a legend; page.js knows it, too."""
MAX_MARKS = 50_000
"""A browser draws no more while somebody waits; ten thousand are usual for a large network."""
NAME_CHARACTERS = 30
"""Of a layer's name on an axis, or in a list."""
MAX_CORES = 1024
"""More than any device has; a report may say anything."""
ZOOM_HINT = "Drag to move, Ctrl and the wheel to zoom, double click to see all again."
_MAX_OBJECTS = 50
"""Of more data, a figure holds a table of text, which is shorter."""
_MAX_LINES = 1000
"""Marks that a browser keeps as lines; more it draws as dots."""


@attrs.frozen
class Figure:
    """A picture with its words."""

    title: str
    text: str
    """What it shows; also for those who cannot see it."""
    spec: Mapping[str, Any]
    narrow: bool = False
    """Next to others of its kind, where there is room."""

    @property
    def is_large(self) -> bool:
        """True if it has too many marks to be a drawing of lines."""
        return self.marks > _MAX_LINES

    @property
    def marks(self) -> int:
        """How many things it draws."""
        values = self.spec["data"]["values"]
        return values.count("\n") - 1 if isinstance(values, str) else len(values)


def figure_spec(values: Sequence[Mapping[str, Any]], height: int, **parts: Any) -> dict[str, Any]:
    """What all figures have in common."""
    return {
        "width": WIDTH,
        "height": height,
        "background": "white",
        "padding": {"left": 5, "top": 5, "right": 30, "bottom": 5},  # other fonts are wider
        "data": _data(values),
        "config": {"font": "sans-serif", "axis": {"labelFontSize": 11, "titleFontSize": 12}},
        **parts,
    }


def stacked_spec(
    values: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Figures of the same data below each other; each has its height."""
    spec = figure_spec(values, 0, vconcat=[{"width": WIDTH - MARGIN, **part} for part in parts])
    return {name: part for name, part in spec.items() if name not in ("width", "height")}


def _data(given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = [{name: _shown(value) for name, value in one.items()} for one in given]
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


def _shown(value: Any) -> Any:
    return visible_line(value) if isinstance(value, str) else value


def layer_labels(report: RunReport) -> list[str]:
    """Position and name of each layer, short enough for an axis; names show where they part."""
    names = short_names([layer.display_name for layer in report.layers])
    return [f"{layer.index} {name}" for layer, name in zip(report.layers, names, strict=True)]


def short_names(names: Sequence[str]) -> list[str]:
    """Names that fit on an axis and in a list, and show where they part."""
    return shorten_apart([visible_line(name) for name in names], NAME_CHARACTERS)


def names_axis(field: str) -> dict[str, Any]:
    """An encoding by layers, in their order and with all of their labels."""
    return axis(field, "nominal", None, sort=None, axis={"labelLimit": 8 * NAME_CHARACTERS})


def cores_of(report: RunReport) -> int:
    """Cores of the device, 1 if the report does not tell."""
    count = report.device.get("cores_count")
    return count if isinstance(count, int) and 0 < count <= MAX_CORES else 1


def axis(field: str, kind: str, title: str | None, **more: Any) -> dict[str, Any]:
    """An encoding by a field."""
    return {"field": field, "type": kind, "title": title, **more}


def zoom(*encodings: str) -> dict[str, Any]:
    """A parameter that lets a reader move and zoom along these axes."""
    wheel = "wheel![event.ctrlKey]"
    return {
        "name": "zoom",
        "select": {"type": "interval", "encodings": list(encodings), "zoom": wheel},
        "bind": "scales",
    }


def colours(of: Mapping[str, str]) -> dict[str, Any]:
    """A scale from names to colours."""
    return {"domain": list(of), "range": list(of.values())}


def tooltips(values: Sequence[Mapping[str, Any]], **titles: str) -> list[dict[str, Any]]:
    """What a pointer shows: field and its title; numbers are rounded and have commas."""
    example = values[0] if values else {}
    return [
        {"field": field, "title": title} | _rounded(example.get(field))
        for field, title in titles.items()
    ]


def _rounded(value: Any) -> dict[str, str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return {}
    return {"type": "quantitative", "format": "," if isinstance(value, int) else ",.4~r"}
