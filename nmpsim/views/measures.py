"""Columns of tables: title, value, format and meaning of a fact, once for text and for HTML.

A view chooses from these, or adds its own, and :mod:`nmpsim.views.columns` or
:mod:`nmpsim.views.html.tables` makes a table of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from nmpsim.records import frozen
from nmpsim.report.fields import value_at
from nmpsim.views.text import elem_text, percent, shape_text
from nmpsim.visible import visible_line


@frozen
class Cell:
    """A text, and the number or text that its column is sorted by."""

    text: str
    value: float | str
    mark: str = ""
    """Class of the style sheet, or style of the terminal; never the only bearer of a meaning."""
    hint: str = ""
    """Tooltip; empty if it would say no more."""


@frozen
class Measure:
    """A fact of a row, as a column: its title, value, format and meaning."""

    title: str
    value: str | Callable[[Any], Any] = ""
    """Attribute (``a.b`` of another) or key of the row, or a function of it; empty: as the title.

    None is shown as ``-``, a :class:`Cell` as it is.
    """
    format: str | Callable[[Any], str] = ""
    """How the value is written: a format specification, or a function of the value."""
    meaning: str = ""
    least: int | None = None
    """Narrowest width at which a text still says something; None if it must not be shortened."""
    is_optional: bool = False
    """Whether it is left out where another column would have to be shortened."""
    number: ClassVar[bool] = False

    def cell(self, row: Any) -> Cell:
        """Return the value of the measure for a record, with its text and style."""
        of = self.value or self.title.replace(" ", "_")
        value = of(row) if callable(of) else value_at(row, of)
        if isinstance(value, Cell):
            return value
        if value is None:
            return Cell("-", -1 if self.number else "")
        text = visible_line(self._text(value))
        if not self.number:
            return Cell(text, text)
        is_finite = not isinstance(value, float) or math.isfinite(value)
        return Cell(text, value if is_finite else math.copysign(1e308, value))

    def _text(self, value: Any) -> str:
        if callable(self.format):
            return self.format(value)
        usual = {int: ",", float: ".4g"}.get(type(value), "")
        return format(value, self.format or usual)


class Number(Measure):
    """A number, to the right of its column."""

    number = True


def share(part: float, whole: float) -> Cell:
    """Return a share in percent, - of nothing."""
    return Cell(percent(part, whole), part / whole if whole > 0 else -1)


def layer_name(layer: Any) -> Cell:
    """Return the display name of a layer, with its full name as the tooltip."""
    shown = visible_line(layer.display_name)
    return Cell(shown, shown, hint=visible_line(layer.name))


def output_text(tensor: Any) -> str:
    """Return the element type and the shape of a tensor."""
    return f"{elem_text(tensor.elem)} {shape_text(tensor.shape)}"


def placement(place: str) -> Cell:
    """Return where layers run, the host so that it stands out; - of none."""
    return Cell(place or "-", place, "magenta" if "host" in place else "")


INDEX = Number("#", "index", str, "position in the run")
NAME = Measure("layer", layer_name, "", "its display name; the tooltip has its full name", 6)
OPERATION = Measure("operation", "", "", "what it computes", 8)
CYCLES = Number(
    "cycles", "", "", "from the end of the layer before to the barrier that ends this one"
)
OUTPUT = Measure("output", output_text, "", "element type and shape", 9, is_optional=True)
