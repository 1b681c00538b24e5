"""Texts of numbers, shapes, names and outputs for all views."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from os.path import commonprefix
from typing import Annotated

import numpy as np

from nmpsim.arrays import Shape
from nmpsim.diagnostics import format_count as format_count  # one of the formats of templates
from nmpsim.records import frozen
from nmpsim.report.data import OutputReport

ELLIPSIS = "..."
_LEAST_WIDTH = 12
"""Width below which the first difference of texts is not shown instead of their ends."""
_ELEMS = {
    "i8": "Int8",
    "ui8": "UInt8",
    "i16": "Int16",
    "ui16": "UInt16",
    "i32": "Int32",
    "float": "float",
}


def shorten_middle(text: str, width: int) -> str:
    """Shorten a text to ``width`` characters with an ellipsis in the middle."""
    if len(text) <= width:
        return text
    if width <= len(ELLIPSIS) + 1:
        return text[:width]
    kept = width - len(ELLIPSIS)
    head = (kept + 1) // 2
    return text[:head] + ELLIPSIS + text[len(text) - (kept - head) :]


def shorten_distinct(texts: Sequence[str], width: int) -> list[str]:
    """Shorten texts to ``width`` characters so that different texts stay distinguishable.

    Texts with equal ends show their first difference. Some may still look equal if they differ at
    several places that are further apart than ``width``.
    """
    shown = [shorten_middle(text, width) for text in texts]
    if width < _LEAST_WIDTH:
        return shown
    by_text: dict[str, set[str]] = {}
    for text, short in zip(texts, shown, strict=True):
        by_text.setdefault(short, set()).add(text)
    distinct: dict[str, str] = {}
    for found in by_text.values():
        if len(found) > 1:
            distinct |= _shorten_equal(sorted(found), width)
    return [distinct.get(text, short) for text, short in zip(texts, shown, strict=True)]


def _shorten_equal(texts: Sequence[str], width: int) -> dict[str, str]:
    """Return a window at the first difference of each text."""
    available = width - 2 * len(ELLIPSIS)
    start = max(len(commonprefix(texts)) - available // 2, 0)  # noqa: RUF071 - by characters
    by_text: dict[str, list[str]] = {}
    for text in texts:
        rest = text[start:]
        window = rest if len(rest) <= available + len(ELLIPSIS) else rest[:available] + ELLIPSIS
        by_text.setdefault(ELLIPSIS + window, []).append(text)
    shown: dict[str, str] = {}
    for short, found in by_text.items():
        shown |= {found[0]: short} if len(found) == 1 else _shorten_equal(found, width)
    return shown


def format_shape(shape: Sequence[int]) -> str:
    """Format a shape as ``1x3x32x32``, or ``scalar``."""
    return "x".join(str(dim) for dim in shape) or "scalar"


def format_elem(elem: str) -> str:
    """Format an element type of LIR: ``Int8`` for ``i8``."""
    return _ELEMS.get(elem, elem)


def format_percent(part: float, total: float) -> str:
    """Format ``part`` in percent of ``total``: ``12.3``, ``<0.1``, or ``-`` if ``total`` is 0."""
    if total <= 0:
        return "-"
    share = 100.0 * part / total
    return "<0.1" if 0 < share < 0.05 else f"{share:.1f}"


def format_bytes(nbytes: int) -> str:
    """Format a size as ``1,234 bytes``, with KiB or MiB added from 10 KiB."""
    exact = f"{nbytes:,} bytes"
    if nbytes >= 1 << 20:
        return f"{exact} ({nbytes / (1 << 20):.1f} MiB)"
    if nbytes >= 10 << 10:
        return f"{exact} ({nbytes / (1 << 10):.1f} KiB)"
    return exact


_PREFIXES = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12}


def format_quantity(value: float, unit: str) -> str:
    """Format a quantity with three digits and an SI prefix of ``unit``: ``1.23 mW``."""
    if value <= 0:
        return f"0 {unit}"
    prefix, size = next(
        (pair for pair in _PREFIXES.items() if value >= 0.9995 * pair[1]), ("p", _PREFIXES["p"])
    )
    number = value / size
    return f"{f'{number:.3g}' if number < 999.5 else f'{number:,.0f}'} {prefix}{unit}"


def format_duration(seconds: float) -> str:
    """Format a time in seconds with a suitable unit: ``1.23 ms``."""
    return format_quantity(seconds, "s")


def format_energy(picojoules: float) -> str:
    """Format an energy in picojoules with a suitable unit: ``1.23 uJ``."""
    return format_quantity(picojoules * 1e-12, "J")


def format_area(square_micrometres: float) -> str:
    """Format an area in square micrometres as square millimetres: ``12.34 mm2``."""
    return f"{square_micrometres * 1e-6:,.2f} mm2"


def format_rate(rate: float) -> str:
    """Format a rate per second: ``1,234`` or ``3.25``."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:,.2f}"


def format_short_count(count: int) -> str:
    """Format a count in at most four characters: 999, 1.2k, 57k, 3.4M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= unit:
            share = count / unit
            text = f"{share:.1f}" if share < 9.95 else f"{min(share, 999):.0f}"
            return f"{text}{name}"
    return str(count)


def format_real(value: float) -> str:
    """Format a real number with six significant digits."""
    return f"{value:.6g}"


def format_decibels(value: float, unit: str = "") -> str:
    """Format decibels with one decimal and the suffix ``unit``, or ``exact`` if infinite."""
    return "exact" if value == math.inf else f"{value:.1f}{unit}"


# Short texts of the outputs of a run: range of values, best classes of a classifier.

TOP = 5
"""Number of best classes."""
CLASSES = range(2, 100_001)
"""Sizes of a last dimension that is taken for classes."""


def describe_output(output: OutputReport) -> Iterator[str]:
    """Yield one or two lines with an output's type, shape, range and best classes."""
    values = output.values
    head = f"{output.name}: {format_elem(output.elem)} {format_shape(values.shape)}"
    if values.size == 0:
        yield f"{head}, empty"
        return
    if output.scale is not None:
        head += f", scale {output.scale!r}, offset {output.offset}"
    yield f"{head}, {format_range(output)}"
    if top := find_top_classes(output):
        yield f"  top {len(top)}: {', '.join(map(str, top))}"


def is_score_shape(shape: Shape) -> bool:
    """Return whether the last dimension is 2 to 100,000 and all other dimensions are 1."""
    return bool(shape) and shape[-1] in CLASSES and all(dim == 1 for dim in shape[:-1])


@frozen
class ClassScore:
    """Class of a classifier and its score."""

    index: Annotated[int, "of the class, from 0"]
    value: Annotated[float, "its score as a real number"]

    def __str__(self) -> str:
        return f"{self.index} ({self.value:.4g})"


def find_top_classes(output: OutputReport) -> tuple[ClassScore, ...]:
    """Return the ``TOP`` best classes, best first; () if the output has no classes."""
    if not is_score_shape(output.values.shape):
        return ()
    real = output.dequantize().astype(np.float64).reshape(-1)
    order = np.argsort(-real, kind="stable")[:TOP]
    return tuple(ClassScore(int(index), float(real[index])) for index in order)


def format_range(output: OutputReport) -> str:
    """Format the range of an output's real values: ``min 0, max 1``."""
    if output.values.size == 0:
        return "empty"
    real = output.dequantize().astype(np.float64)
    not_numbers = int(np.isnan(real).sum())
    if not_numbers == real.size:
        return "all values are NaN"
    text = f"min {format_real(float(np.nanmin(real)))}, max {format_real(float(np.nanmax(real)))}"
    return f"{text}, {not_numbers:,} NaN" if not_numbers else text
