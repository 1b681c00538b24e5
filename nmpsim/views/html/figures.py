"""Figures as Vega-Lite specifications, rendered by the browser.

Names from a report are data of a figure, never expressions.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from nmpsim.escape import escape_line
from nmpsim.report.analyses import MAX_CORES
from nmpsim.report.data import RunReport
from nmpsim.views.templates import load_template
from nmpsim.views.text import shorten_distinct

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
    """Figure with title, description and Vega-Lite specification."""

    title: str
    text: str
    """Description, also for screen readers."""
    spec: Mapping[str, Any]
    is_narrow: bool = False
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


def make_figure(
    template: str,
    title: str,
    text: str,
    values: Sequence[Mapping[str, Any]],
    *,
    is_narrow: bool = False,
    **parameters: Any,
) -> Figure:
    """Make a figure from records with the macro ``template`` of ``figures.json.jinja``.

    Parameters
    ----------
    template
        Name of the macro.
    title, text
        Title and description of the figure.
    values
        The records, which have the same fields.
    is_narrow
        Whether several such figures are placed side by side.
    **parameters
        Further parameters of the macro.
    """
    macros = load_template("html/figures.json.jinja").module
    spec = json.loads(getattr(macros, template)(values[0] if values else {}, **parameters))
    return Figure(title, text, spec | {"data": _data(values)}, is_narrow)


def _data(given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = [
        {key: escape_line(one) if isinstance(one, str) else one for key, one in record.items()}
        for record in given
    ]
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


def make_layer_labels(report: RunReport) -> list[str]:
    """Return a distinct label of each layer for an axis: its index and short name."""
    names = shorten_names([layer.display_name for layer in report.layers])
    return [f"{layer.index} {name}" for layer, name in zip(report.layers, names, strict=True)]


def shorten_names(names: Sequence[str]) -> list[str]:
    """Shorten names to 30 characters so that different names stay distinct."""
    return shorten_distinct([escape_line(name) for name in names], NAME_CHARACTERS)


def get_core_count(report: RunReport) -> int:
    """Return the number of cores of a run's device, or 1 if unknown."""
    count = report.device.get("cores_count")
    return count if isinstance(count, int) and 0 < count <= MAX_CORES else 1
