"""Rounding and fixed-point products of single numbers.

Integers are int64, floats float32; each float operation is rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit
from nmpsim.kernels.vector_code import BELOW_HALF

MAX_MAGNITUDE: Any = np.int64(1 << 62)
"""Magnitude to which results are clamped; every later clip is narrower."""
_INT32_LOW, _INT32_HIGH = np.int64(-(1 << 31)), np.int64((1 << 31) - 1)


@jit
def float_from_bits(word: Int) -> Any:
    """Return the float32 whose bits are in a word of a descriptor."""
    return np.int32(word).view(np.float32)


@jit
def _to_integer(value: np.float64) -> Any:
    """Return a whole float64 as int64, clamped to +-2^62; 0 if it is not a number."""
    if value != value:
        return np.int64(0)
    return np.int64(min(max(value, -4611686018427387904.0), 4611686018427387904.0))


@jit
def round_away(value: np.float32) -> Any:
    """Round a float32 to the nearest integer, halves away from zero (C's ``roundf``).

    The half is added in float64, which holds the sum of a float32 and 0.5 wherever it matters.
    """
    wide = np.float64(value)
    if wide < 0.0:
        return -_to_integer(np.floor(0.5 - wide))
    return _to_integer(np.floor(wide + 0.5))


@jit
def round_to_int32(value: np.float32) -> Any:
    """Round a float32 below 2^30 to int32, halves away from zero.

    Adding a little less than a half reaches the next integer from the half on, not before.
    """
    return np.int32(value + (BELOW_HALF if value >= 0 else -BELOW_HALF))


@jit
def round_even(value: np.float32) -> Any:
    """Round a float32 to the nearest integer, halves to even (C's ``nearbyintf``)."""
    return _to_integer(np.rint(np.float64(value)))


@jit
def clamp_magnitude(value: Int, limit: Int) -> Any:
    """Return a value clamped to -limit ... limit."""
    return min(max(value, -limit), limit)


@jit
def doubling_high(x: Int, mul: Int) -> Any:
    """Compute gemmlowp's SaturatingRoundingDoublingHighMul of two 32-bit numbers, halves up."""
    if x == _INT32_LOW and mul == _INT32_LOW:
        return _INT32_HIGH
    # C's division truncates towards zero, so gemmlowp adds another nudge to negative products; a
    # shift rounds down, and one nudge gives the same for all.
    return (x * mul + (np.int64(1) << 30)) >> np.int64(31)


@jit
def rounding_shift(x: Int, shift: Int) -> Any:
    """Compute gemmlowp's RoundingDivideByPOT: ``x / 2^shift``, halves away from zero."""
    mask = (np.int64(1) << shift) - np.int64(1)
    threshold = mask >> np.int64(1)
    if x < 0:
        threshold += np.int64(1)
    result = x >> shift
    if (x & mask) > threshold:
        result += np.int64(1)
    return result
