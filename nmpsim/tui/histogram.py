"""How often each value occurs in a tensor, as bars, with the range that its type can hold."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from rich.text import Text

from nmpsim.debugger.operands import Values
from nmpsim.tui.look import ORANGE, Glyphs
from nmpsim.tui.planes import Planes
from nmpsim.views.text import real_text

BINS = 32
BAR_COLUMNS = 40


def histogram(shown: Planes, glyphs: Glyphs) -> tuple[Text, ...]:
    """The range that is used within the one that can be, then a bar a bin."""
    values = shown.values[np.isfinite(shown.values)]
    if values.size == 0:
        return (Text("no numbers"),)
    counts, edges = np.histogram(values.astype(np.float64), bin_edges(values))
    lines = [_used(shown, values, glyphs)] if shown.limits and not shown.is_difference else []
    for index, count in enumerate(counts.tolist()):
        first, last = edges[index], edges[index + 1]
        mark = _end_mark(shown, math.ceil(first), math.ceil(last) - 1, glyphs)
        label = _bin_label(shown, first, last)
        bar = glyphs.bar * -(-count * BAR_COLUMNS // int(counts.max()))
        lines.append(Text(f"{label:>20} ").append(mark, style=ORANGE).append(f"{bar} {count:,}"))
    return tuple(lines)


def bin_edges(values: Values) -> npt.NDArray[np.float64]:
    """Edges of at most BINS bins; of integers each bin holds equally many."""
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind in "iu":
        width = max(1, math.ceil((high - low + 1) / BINS))
        return np.arange(low, high + width + 1, width) - 0.5
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def _end_mark(shown: Planes, first: int, last: int, glyphs: Glyphs) -> str:
    if shown.limits is None or shown.is_difference:
        return " "
    if first <= shown.limits[0]:
        return glyphs.under
    return glyphs.over if last >= shown.limits[1] else " "


def _used(shown: Planes, values: Values, glyphs: Glyphs) -> Text:
    low, high = shown.limits or (0, 1)
    columns = np.linspace(low, high, BAR_COLUMNS + 1)
    inside = (columns[1:] >= int(values.min())) & (columns[:-1] <= int(values.max()))
    strip = "".join(glyphs.bar if used else glyphs.pending for used in inside)
    share = (int(values.max()) - int(values.min()) + 1) / (high - low + 1)
    return (
        Text(f"range {low} ")
        .append(f"{glyphs.under}{strip}{glyphs.over}")
        .append(f" {high}  {share:.0%} used")
    )


def _bin_label(shown: Planes, first: float, last: float) -> str:
    if shown.limits is None:
        return real_text(first)
    low, high = math.ceil(first), math.ceil(last) - 1
    return str(low) if low == high else f"{low} to {high}"
