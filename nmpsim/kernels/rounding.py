"""Primitives of formulas (``isa/formulas.toml``), for single numbers.

Integers are int64, floats float32 unless stated otherwise; each float operation is rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.words import OP_ADD, OP_MAX, OP_SUB
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit
from nmpsim.kernels.saturate import ONCE, SaturationCounters, clamp_value

MAX_MAGNITUDE: Any = np.int64(1 << 62)
"""Magnitude to which results are clamped; every later clip is narrower."""
_BELOW_HALF: Any = np.nextafter(np.float32(0.5), np.float32(0))
"""The largest float32 below a half."""


@jit
def real(word: Int) -> Any:
    """Reinterpret the low 32 bits of an integer as float32."""
    return np.int32(word).view(np.float32)


@jit
def real64(word: Int) -> Any:
    """Reinterpret a 64-bit integer as float64."""
    return np.int64(word).view(np.float64)


@jit
def get_bits(value: np.float32) -> Any:
    """Reinterpret a float32 as a signed 32-bit integer."""
    return np.int64(np.float32(value).view(np.int32))


@jit
def get_bits64(value: np.float64) -> Any:
    """Reinterpret a float64 as a signed 64-bit integer."""
    return np.float64(value).view(np.int64)


@jit
def exp2(exponent: Int) -> Any:
    """Return ``2**exponent`` as float64, for an exponent from -1022 to 1022."""
    return np.int64((1023 + exponent) << 52).view(np.float64)


@jit
def _to_integer(value: np.float64) -> Any:
    """Return a whole float64 as int64, clamped to +-2^62; 0 if it is not a number."""
    if value != value:
        return np.int64(0)
    return np.int64(min(max(value, -4611686018427387904.0), 4611686018427387904.0))


@jit
def round_away(value: Any) -> Any:
    """Round a float to the nearest integer, with halves away from zero (C's ``round``)."""
    size = abs(np.float64(value))
    whole = np.floor(size)
    if size - whole >= 0.5:
        whole += 1.0
    return _to_integer(whole) if value > 0 else -_to_integer(whole)


@jit
def round_to_int32(value: np.float32) -> Any:
    """Round a float32 below 2^30 to int32, with halves away from zero.

    Adding a little less than a half reaches the next integer from the half on, not before.
    """
    return np.int32(value + (_BELOW_HALF if value >= 0 else -_BELOW_HALF))


@jit
def round_even(value: Any) -> Any:
    """Round a float to the nearest integer, with halves to even (C's ``nearbyintf``)."""
    return _to_integer(np.rint(np.float64(value)))


@jit
def shift_away(x: Int, shift: Int) -> Any:
    """Return ``x / 2^shift`` with halves away from zero (gemmlowp's RoundingDivideByPOT)."""
    mask = (np.int64(1) << shift) - np.int64(1)
    threshold = mask >> np.int64(1)
    if x < 0:
        threshold += np.int64(1)
    result = x >> shift
    if (x & mask) > threshold:
        result += np.int64(1)
    return result


@jit
def divide_away(x: Int, divisor: Int) -> Any:
    """Divide by a positive integer and round halves away from zero, as libjit and TFLite do."""
    if x > 0:
        return (x + divisor // 2) // divisor
    return -((-x + divisor // 2) // divisor)


@jit
def fma(x: Any, factor: Any, addend: Any) -> Any:
    """Return ``x * factor + addend`` of float64 numbers, rounded once to float32.

    ``x`` is an element and ``factor`` a float32, so float64 holds their product. The sum is rounded
    to odd, so that rounding it to float32 is the only visible rounding.
    """
    product = x * factor
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    bits = np.float64(total).view(np.int64)
    if (lost > 0 or lost < 0) and bits & 1 == 0:  # `lost` is NaN for an infinite sum
        bits += 1 if (lost > 0) == (total > 0) else -1
        total = np.int64(bits).view(np.float64)
    return np.float32(total)


@jit
def combine(operation: Int, x: Any, y: Any) -> Any:
    """Return the sum, difference, maximum or minimum of two values, as ``operation`` selects."""
    if operation == OP_ADD:
        return x + y
    if operation == OP_SUB:
        return x - y
    return max(x, y) if operation == OP_MAX else min(x, y)


# --- limits ----------------------------------------------------------------------------------


@jit
def hold(value: Int, most: Int) -> Any:
    """Return a value clamped to ``-most`` ... ``most``; a clamped value is not counted."""
    return min(max(value, -most), most)


@jit
def within(value: Int, _: Int) -> Any:
    """Return the value unchanged; vector code assumes that its magnitude is within the limit."""
    return value


@jit
def limit(
    stage: Int, times: Int, index: Int, counters: SaturationCounters, value: Int, most: Int
) -> Any:
    """Return a value clamped to ``-most`` ... ``most``; count a value outside this range."""
    return clamp_value(value, -most, most, stage, times, index, counters)


@jit
def saturate(
    stage: Int, times: Int, index: Int, counters: SaturationCounters, value: Int, bits: Int
) -> Any:
    """Return a value saturated to a signed ``bits``-bit integer; count a value out of range."""
    half = ONCE << (bits - ONCE)
    return clamp_value(value, -half, half - ONCE, stage, times, index, counters)
