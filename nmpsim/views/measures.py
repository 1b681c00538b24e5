"""Measures and causes of cycles: titles, meanings, values and formats, for text and HTML.

A view selects measures as columns; :mod:`nmpsim.views.columns` and :mod:`nmpsim.views.html.tables`
make tables of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from nmpsim.escape import escape_line
from nmpsim.records import frozen
from nmpsim.report.fields import value_at
from nmpsim.views.text import elem_text, percent, shape_text


@frozen
class Cell:
    """Text of a table cell, and the value by which its column is sorted."""

    text: str
    value: float | str
    mark: str = ""
    """Class of the style sheet, or style of the terminal; the text has the same meaning."""
    hint: str = ""
    """Tooltip, possibly empty."""


@frozen
class Measure:
    """A column of a table: title, value, format and meaning."""

    title: str
    value: str | Callable[[Any], Any] = ""
    """Path of attributes or keys of the row, or a function of it; by default the title.

    None is shown as ``-``, a :class:`Cell` as it is.
    """
    format: str | Callable[[Any], str] = ""
    """Format specification, or function of the value."""
    meaning: str = ""
    least: int | None = None
    """Smallest width to which texts may be shortened; None if they must not be."""
    is_optional: bool = False
    """Whether the column is omitted if another would have to be shortened."""
    number: ClassVar[bool] = False

    def cell(self, row: Any) -> Cell:
        """Return the value of the measure for a record, with its text and style."""
        of = self.value or self.title.replace(" ", "_")
        value = of(row) if callable(of) else value_at(row, of)
        if isinstance(value, Cell):
            return value
        if value is None:
            return Cell("-", -1 if self.number else "")
        text = escape_line(self._text(value))
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
    """A right-aligned column of numbers."""

    number = True


def share(part: float, whole: float) -> Cell:
    """Return a share in percent; ``-`` if the whole is 0."""
    return Cell(percent(part, whole), part / whole if whole > 0 else -1)


def layer_name(layer: Any) -> Cell:
    """Return the display name of a layer, with its full name as the tooltip."""
    shown = escape_line(layer.display_name)
    return Cell(shown, shown, hint=escape_line(layer.name))


def output_text(tensor: Any) -> str:
    """Return the element type and the shape of a tensor."""
    return f"{elem_text(tensor.elem)} {shape_text(tensor.shape)}"


def placement(place: str) -> Cell:
    """Return where layers run, with the host highlighted; ``-`` for no layers."""
    return Cell(place or "-", place, "magenta" if "host" in place else "")


@frozen
class Cause:
    """A cause of cycles: its title, meaning and color in figures."""

    title: str
    meaning: str
    color: str


CORE_CAUSES = {
    "mac": Cause("MAC array", "MAC array at work", "#0072b2"),
    "vector": Cause("vector unit", "vector unit at work", "#56b4e9"),
    "load": Cause("load wait", "waiting for loads", "#e69f00"),
    "store": Cause("store wait", "waiting for stores", "#f0c97a"),
    "contention": Cause(
        "DRAM contention", "waiting for loads or stores while the DRAM served others", "#d55e00"
    ),
    "imbalance": Cause(
        "imbalance", "imbalance: waiting at barriers for cores with more work", "#cc79a7"
    ),
    "unused": Cause("unused cores", "unused cores: no work in this layer", "#f2e6ee"),
    "barrier": Cause("barrier overhead", "barrier overhead", "#8c5a78"),
    "semaphore": Cause("semaphore wait", "waiting at semaphores", "#7f7f7f"),
    "idle": Cause("idle", "idle: halted before the others", "#d9d9d9"),
    "control": Cause("control core", "control core at work", "#009e73"),
}
"""Causes of the cycles of cores."""
PATH_CAUSES = {
    "mac": Cause("MAC array", "MAC array", "#0072b2"),
    "vector": Cause("vector unit", "vector unit", "#56b4e9"),
    "dram_service": Cause("DRAM bursts", "DRAM: transferring bursts", "#e69f00"),
    "row_miss": Cause("DRAM rows", "DRAM: opening rows", "#d55e00"),
    "latency": Cause("DRAM latency", "DRAM: latency after the last burst", "#f0c97a"),
    "dma_start": Cause("transfer start", "start of transfers", "#cc79a7"),
    "control": Cause("control core", "control core", "#009e73"),
    "barrier": Cause("barrier overhead", "barrier overhead", "#8c5a78"),
    "semaphore": Cause("semaphore overhead", "semaphore overhead", "#7f7f7f"),
}
"""Causes of the cycles on the critical path. Colors are distinguishable with color blindness."""


def find_cause(causes: Mapping[str, Cause], name: str) -> Cause:
    """Return a cause by its name in the report; one with that title if it is unknown."""
    return causes.get(name) or Cause(name, name, "#b0b7bf")


def largest(shares: Mapping[str, int], count: int | None = None) -> list[tuple[str, int]]:
    """Return the largest positive values with their keys, largest first."""
    positive = [item for item in shares.items() if item[1]]
    return sorted(positive, key=lambda item: -item[1])[:count]


INDEX = Number("#", "index", str, "position in the run")
NAME = Measure("layer", layer_name, "", "display name; the tooltip has the full name", 6)
OPERATION = Measure("operation", "", "", "operation of the layer", 8)
CYCLES = Number(
    "cycles", "", "", "from the end of the previous layer to the barrier that ends this one"
)
OUTPUT = Measure("output", output_text, "", "element type and shape", 9, is_optional=True)
