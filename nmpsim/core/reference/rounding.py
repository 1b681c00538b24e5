"""Rounding and fixed-point products on arrays: integers are int64, real numbers float32.

NumPy rounds every float32 operation on its own, as each profile wants it. Infinities and what is
no number are results like any other: a huge factor is no error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.operands import Float32s
from nmpsim.core.reference.words import INT32_MAX
from nmpsim.core.state import Int64s

quietly = np.errstate(all="ignore")
"""Decorator of functions that calculate with float32."""


def real(integers: Int64s) -> Float32s:
    """The nearest float32 of each integer, halves to even."""
    return np.asarray(integers).astype(np.float32)


def held(values: Int64s, bits: int) -> Int64s:
    """``values`` within +-2^bits."""
    result: Int64s = np.clip(values, -(1 << bits), 1 << bits)
    return result


def whole(values: Any) -> Int64s:
    """Whole float64 numbers as integers, held at +-2^62; 0 for what is no number."""
    within = np.clip(np.nan_to_num(values, nan=0.0), -(2.0**62), 2.0**62)
    result: Int64s = within.astype(np.int64)
    return result


@quietly
def fused_multiply_add(integers: Int64s, factor: Any, addend: Any) -> Float32s:
    """``f32(x * factor + addend)``, rounded once: float64 holds the product of 24 and 16 bits.

    The sum is rounded to odd there, so that rounding it again is the only rounding seen.
    """
    product = integers.astype(np.float64) * np.float64(factor)
    wide = np.asarray(addend).astype(np.float64)
    total = product + wide
    back = total - product
    lost = (product - (total - back)) + (wide - back)
    is_even = total.view(np.int64) & 1 == 0
    towards = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
    result: Float32s = np.where((lost != 0) & is_even, towards, total).astype(np.float32)
    return result


@quietly
def round_away(values: Float32s) -> Int64s:
    """Nearest integer, halves away from zero (C's ``roundf``); float64 holds value and half."""
    wide = values.astype(np.float64)
    return whole(np.trunc(wide + np.copysign(0.5, wide)))


@quietly
def round_even(values: Float32s) -> Int64s:
    """Nearest integer, halves to even (C's ``nearbyintf``)."""
    return whole(np.rint(values.astype(np.float64)))


def shift_away(values: Int64s, shift: Any) -> Int64s:
    """``values / 2^shift``, halves away from zero: gemmlowp's RoundingDivideByPOT."""
    half = np.left_shift(np.int64(1), shift) >> 1
    result: Int64s = np.sign(values) * ((np.abs(values) + half) >> shift)
    return result


def doubling_high(values: Int64s, mul: Any) -> Int64s:
    """``values * mul / 2^31`` of 32-bit numbers, halves up: gemmlowp's doubling high product.

    gemmlowp adds 2^30, or 1 - 2^30 to a negative product, and drops the fraction;
    -2^31 times itself does not fit and becomes 2^31 - 1.
    """
    product = values * mul
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    result: Int64s = np.minimum(np.sign(nudged) * (np.abs(nudged) >> 31), INT32_MAX)
    return result
