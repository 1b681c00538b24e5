"""What every check of a descriptor is made of.

Sizes are bounded before they are multiplied, so nothing here can overflow 64 bits.
"""

from __future__ import annotations

from typing import Any

from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import GLOW_INT, NMP, Q31

OK = -1
MOST = 1 << 26
"""No count or stride within a scratchpad can be larger."""
MAX_DRAM_STRIDE = 1 << 31
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


def folds(count_y: int, stride_y: int, count_x: int, stride_x: int, run: int) -> bool:
    """True if runs of a result would lie on one another."""
    if count_x > 1 and stride_x < run:
        return True
    return bool(count_y > 1 and stride_y < (count_x - 1) * stride_x + run)


def first_beyond(words: Any, first: int, last: int, low: int, high: int) -> int:
    """Index of the first word from ``first`` to ``last`` that is not within ``low`` to ``high``."""
    for index in range(first, last + 1):
        if words[index] < low or words[index] > high:
            return index
    return OK


def beyond_element(words: Any, first: int, last: int, element: int) -> int:
    """As ``first_beyond``, with the range of Int8 (``element`` 0) or Int16 (1)."""
    high = (128 << 8 * element) - 1
    return first_beyond(words, first, last, -high - 1, high)


def first_odd(words: Any, first: int, last: int, element: int) -> int:
    """Index of the first address or stride that splits an element, if it has two bytes."""
    for index in range(first, last + 1):
        if words[index] & element:
            return index
    return OK


def bad_profile(words: Any, index: int, known: int) -> bool:
    """True if the bit of a profile is not in ``known``."""
    return bool(words[index] > 31 or not (known >> words[index]) & 1)


def bad_scale(words: Any, pre: int, profile: int) -> bool:
    """True if a shift of the scale at index ``pre`` is impossible, or its float32 factor is."""
    if profile in (GLOW_INT, NMP, Q31):
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


def check_clip(words: Any, clip_low: int, element: int) -> int:
    """Check ``clip_low``, ``clip_high`` and ``clip_wanted``."""
    bad = beyond_element(words, clip_low, clip_low + 1, element)
    if bad == OK and words[clip_low + 1] < words[clip_low]:
        return int(clip_low + 1)
    return int(clip_low + 2) if bad == OK and words[clip_low + 2] > 3 else bad


FUNCTIONS = (
    outside,
    span,
    meets,
    folds,
    first_beyond,
    beyond_element,
    first_odd,
    bad_profile,
    bad_scale,
    bad_result_scale,
    too_many,
    check_clip,
)
"""What the compiled engine compiles, callees first."""
