"""Rounding and fixed-point products that the rescale unit is made of, on single numbers.

Widths are explicit: integers are int64, real numbers float32, each operation rounded on its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit
from nmpsim.kernels.vector_code import BELOW_HALF

HELD: Any = np.int64(1 << 62)
"""Results beyond it are held there: every later clip is narrower."""
_INT32_LOW, _INT32_HIGH = np.int64(-(1 << 31)), np.int64((1 << 31) - 1)


@jit
def float_of_bits(word: Int) -> Any:
    """The float32 whose bits a descriptor's word holds."""
    return np.int32(word).view(np.float32)


@jit
def _to_integer(value: np.float64) -> Any:
    """A whole float64 as int64, held at +-2^62; 0 for what is no number."""
    if value != value:
        return np.int64(0)
    return np.int64(min(max(value, -4611686018427387904.0), 4611686018427387904.0))


@jit
def round_away(value: np.float32) -> Any:
    """Nearest integer of a float32, halves away from zero (C's ``roundf``).

    The half is added in float64, which holds the sum of a float32 and 0.5 wherever it matters.
    """
    wide = np.float64(value)
    if wide < 0.0:
        return -_to_integer(np.floor(0.5 - wide))
    return _to_integer(np.floor(wide + 0.5))


@jit
def nearest_word(value: np.float32) -> Any:
    """``round_away`` as int32 of a number below 2^30.

    Float32 rounds the sum with less than a half to the next integer from the half on, not before.
    """
    return np.int32(value + (BELOW_HALF if value >= 0 else -BELOW_HALF))


@jit
def round_even(value: np.float32) -> Any:
    """Nearest integer of a float32, halves to even (C's ``nearbyintf``)."""
    return _to_integer(np.rint(np.float64(value)))


@jit
def held(value: Int, limit: Int) -> Any:
    """``value`` within -limit ... limit."""
    return min(max(value, -limit), limit)


@jit
def doubling_high(x: Int, mul: Int) -> Any:
    """gemmlowp's SaturatingRoundingDoublingHighMul of two 32-bit numbers, halves up."""
    if x == _INT32_LOW and mul == _INT32_LOW:
        return _INT32_HIGH
    # C's division truncates towards zero, so gemmlowp adds another nudge to negative products; a
    # shift rounds down, and one nudge gives the same for all.
    return (x * mul + (np.int64(1) << 30)) >> np.int64(31)


@jit
def rounding_shift(x: Int, shift: Int) -> Any:
    """gemmlowp's RoundingDivideByPOT: ``x / 2^shift``, halves away from zero."""
    mask = (np.int64(1) << shift) - np.int64(1)
    threshold = mask >> np.int64(1)
    if x < 0:
        threshold += np.int64(1)
    result = x >> shift
    if (x & mask) > threshold:
        result += np.int64(1)
    return result
