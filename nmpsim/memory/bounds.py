"""What every check of a descriptor is made of.

Sizes are bounded before they are multiplied, so nothing here can overflow 64 bits.
"""

from __future__ import annotations

from typing import Any

from nmpsim.isa.profiles import FIXED_POINT, FLOAT64, INTEGER, profiles_with_form
from nmpsim.isa.records import MAX_COUNT
from nmpsim.isa.table import SCRATCHPAD_BASE

OK = -1
_WITH_SHIFTS = profiles_with_form(INTEGER, FIXED_POINT, FLOAT64)
"""Profiles whose scales have an integer factor and two shifts."""
MOST = MAX_COUNT
"""No count or stride within a scratchpad can be larger."""
INFINITY_BITS = 0x7F80_0000
"""Those of float32; all positive finite numbers are below."""


def outside(address: int, extent: int, spm_bytes: int) -> bool:
    """True if ``extent`` bytes from ``address`` are not all in the scratchpad."""
    start = address - SCRATCHPAD_BASE
    return bool(extent < 0 or start < 0 or start + extent > spm_bytes)


def span(count_y: int, stride_y: int, count_x: int, stride_x: int, run: int) -> int:
    """Bytes from the first to behind the last of ``count_y`` x ``count_x`` runs; 0 if none."""
    if count_y <= 0 or count_x <= 0 or run <= 0:
        return 0
    return int((count_y - 1) * stride_y + (count_x - 1) * stride_x + run)


def meets(a: int, a_extent: int, b: int, b_extent: int) -> bool:
    """True if two ranges share a byte; one without bytes, as a pool's of no rows, shares none."""
    return bool(max(a, b) < min(a + a_extent, b + b_extent))


def beyond_element(value: int, element: int) -> bool:
    """True if a value is none of Int8 (``element`` 0) or Int16 (1)."""
    high = (128 << 8 * element) - 1
    return bool(value < -high - 1 or value > high)


def bad_scale(words: Any, pre: int, profile: int) -> bool:
    """True if a shift of the scale at index ``pre`` is impossible, or its float32 factor is."""
    if profile in _WITH_SHIFTS:
        return not (0 <= words[pre] <= 31 and 0 <= words[pre + 2] <= 31)
    return not 0 <= words[pre + 1] < INFINITY_BITS


def bad_result_scale(words: Any, index: int) -> bool:
    """True if a float32 is not positive and finite."""
    return not 0 < words[index] < INFINITY_BITS


def too_many(a: int, b: int, c: int, most: int) -> bool:
    """True if ``a * b * c`` is more than ``most``; each factor is at most ``MOST``.

    A result that a zero stride writes again and again would otherwise never end.
    """
    return bool(a * b > most or a * b * c > most)


FUNCTIONS = (
    outside,
    span,
    meets,
    beyond_element,
    bad_scale,
    bad_result_scale,
    too_many,
)
"""What the compiled engine compiles, callees first."""
