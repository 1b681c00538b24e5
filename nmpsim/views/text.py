"""Small pieces of text that the views share: numbers, shapes, names; pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from os.path import commonprefix

ELLIPSIS = "..."
_LEAST_APART = 12
"""Columns below which the place where two texts part is no better than their ends."""
_ELEMS = {
    "i8": "Int8",
    "ui8": "UInt8",
    "i16": "Int16",
    "ui16": "UInt16",
    "i32": "Int32",
    "float": "float",
}


def shorten_middle(text: str, width: int) -> str:
    """At most ``width`` characters: names differ at their start and at their end."""
    if len(text) <= width:
        return text
    if width <= len(ELLIPSIS) + 1:
        return text[:width]
    kept = width - len(ELLIPSIS)
    head = (kept + 1) // 2
    return text[:head] + ELLIPSIS + text[len(text) - (kept - head) :]


def shorten_apart(texts: Sequence[str], width: int) -> list[str]:
    """Each text in at most ``width`` characters; texts that would look alike show where they part.

    Long names that TFLite joined of several may begin and end alike. Only where texts part at
    several places, further from each other than ``width``, some may still look alike.
    """
    shown = [shorten_middle(text, width) for text in texts]
    if width < _LEAST_APART:
        return shown
    alike: dict[str, set[str]] = {}
    for text, short in zip(texts, shown, strict=True):
        alike.setdefault(short, set()).add(text)
    apart: dict[str, str] = {}
    for found in alike.values():
        if len(found) > 1:
            apart |= _apart(sorted(found), width)
    return [apart.get(text, short) for text, short in zip(texts, shown, strict=True)]


def _apart(texts: Sequence[str], width: int) -> dict[str, str]:
    """What is shown of different texts: a window at the first place where they part."""
    room = width - 2 * len(ELLIPSIS)
    start = max(len(commonprefix(texts)) - room // 2, 0)  # noqa: RUF071 - by characters
    alike: dict[str, list[str]] = {}
    for text in texts:
        rest = text[start:]
        window = rest if len(rest) <= room + len(ELLIPSIS) else rest[:room] + ELLIPSIS
        alike.setdefault(ELLIPSIS + window, []).append(text)
    shown: dict[str, str] = {}
    for short, found in alike.items():
        shown |= {found[0]: short} if len(found) == 1 else _apart(found, width)
    return shown


def shape_text(shape: Sequence[int]) -> str:
    """``1x3x32x32``, or ``scalar``."""
    return "x".join(str(dim) for dim in shape) or "scalar"


def elem_text(elem: str) -> str:
    """Int8 for i8, as the reports call it."""
    return _ELEMS.get(elem, elem)


def percent(part: float, whole: float) -> str:
    """A share as ``12.3``, ``<0.1`` where it would look like nothing, ``-`` of nothing."""
    if whole <= 0:
        return "-"
    share = 100.0 * part / whole
    return "<0.1" if 0 < share < 0.05 else f"{share:.1f}"


def bytes_text(nbytes: int) -> str:
    """``1,234 bytes`` and, from 10 KiB on, what that is in KiB or MiB."""
    exact = f"{nbytes:,} bytes"
    if nbytes >= 1 << 20:
        return f"{exact} ({nbytes / (1 << 20):.1f} MiB)"
    if nbytes >= 10 << 10:
        return f"{exact} ({nbytes / (1 << 10):.1f} KiB)"
    return exact


def duration(seconds: float) -> str:
    """Seconds with a fitting unit: ``1.23 ms``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:,.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"
    return f"{seconds / 1e-9:.3g} ns" if seconds > 0 else "0 s"


def per_second(rate: float) -> str:
    """How often something happens in a second: ``1,234`` or ``3.25``."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:,.2f}"


def short_count(count: int) -> str:
    """At most four characters: 999, 1.2k, 57k, 3.4M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= unit:
            share = count / unit
            text = f"{share:.1f}" if share < 9.95 else f"{min(share, 999):.0f}"
            return f"{text}{name}"
    return str(count)


def real_text(value: float) -> str:
    """A real number for reading, not for reading back."""
    return f"{value:.6g}"


def decibels(value: float) -> str:
    """A ratio in dB, ``exact`` without an error."""
    return "exact" if value == math.inf else f"{value:.1f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
