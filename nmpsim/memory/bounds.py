"""Elementary checks of address ranges, sizes and scales.

Sizes are bounded before they are multiplied, so that nothing can overflow 64 bits.
"""

from __future__ import annotations

from typing import Any

from nmpsim.isa.descriptors import MAX_COUNT
from nmpsim.isa.profiles import FIXED_POINT, FLOAT64, INTEGER, list_profiles_with_form
from nmpsim.isa.table import SCRATCHPAD_BASE

OK = -1
"""Result of a check that finds no invalid word."""
_WITH_SHIFTS = list_profiles_with_form(INTEGER, FIXED_POINT, FLOAT64)
"""Profiles whose scales are an integer factor and two shifts."""
MOST = MAX_COUNT
"""Largest count or stride within a scratchpad."""
INFINITY_BITS = 0x7F80_0000
"""Bits of the float32 infinity; the bits of positive finite numbers are smaller."""


def is_outside_scratchpad(address: int, extent: int, spm_bytes: int) -> bool:
    """Return whether any of ``extent`` bytes at an address are outside the scratchpad."""
    start = address - SCRATCHPAD_BASE
    return bool(extent < 0 or start < 0 or start + extent > spm_bytes)


def count_spanned_bytes(count_y: int, stride_y: int, count_x: int, stride_x: int, run: int) -> int:
    """Count the bytes from the first to the last byte of strided runs; 0 if there are no runs.

    Parameters
    ----------
    count_y, stride_y
        Number of rows, and bytes from row to row.
    count_x, stride_x
        Number of runs in a row, and bytes from run to run.
    run
        Bytes of a run.
    """
    if count_y <= 0 or count_x <= 0 or run <= 0:
        return 0
    return int((count_y - 1) * stride_y + (count_x - 1) * stride_x + run)


def ranges_overlap(a: int, a_extent: int, b: int, b_extent: int) -> bool:
    """Return whether two ranges, each a start address and a number of bytes, share a byte."""
    return bool(max(a, b) < min(a + a_extent, b + b_extent))


def exceeds_element_range(value: int, element: int) -> bool:
    """Return whether a value is outside the range of Int8 (``element`` 0) or Int16 (1)."""
    high = (128 << 8 * element) - 1
    return bool(value < -high - 1 or value > high)


def is_invalid_scale(words: Any, pre: int, profile: int) -> bool:
    """Return whether the scale at index ``pre`` of ``words`` is invalid in a profile."""
    if profile in _WITH_SHIFTS:
        return not (0 <= words[pre] <= 31 and 0 <= words[pre + 2] <= 31)
    return not 0 <= words[pre + 1] < INFINITY_BITS


def is_invalid_result_scale(words: Any, index: int) -> bool:
    """Return whether the word at ``index`` is not a positive finite float32."""
    return not 0 < words[index] < INFINITY_BITS


def exceeds_product(a: int, b: int, c: int, most: int) -> bool:
    """Return whether the product ``a * b * c`` exceeds ``most``, computed without overflow.

    This bounds results that a stride of zero would write again and again.
    """
    return bool(a * b > most or a * b * c > most)
