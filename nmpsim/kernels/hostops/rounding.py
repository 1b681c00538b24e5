"""Float to integer, the ways Glow rounds and rescales, and values on a tensor's grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.tensors import AnyArray, FloatArray, HostTensor, IntArray
from nmpsim.kernels.scale import apply_integer_scale, integer_scale

_HUGE = 2.0**62
LONGEST_SHIFT = 31
"""Of the device's rescale unit."""


def to_int64(integral: npt.NDArray[np.floating[Any]]) -> IntArray:
    """Integral floats as int64; beyond +-2**62 (infinities too) held there, NaN becomes 0."""
    # 2**62 is a power of two: float32 holds it, too
    held: npt.NDArray[np.floating[Any]] = np.clip(integral, -_HUGE, _HUGE)
    missing = np.isnan(held)
    if missing.any():
        held = np.where(missing, 0.0, held)
    return held.astype(np.int64)


def round_half_even(x: FloatArray) -> IntArray:
    """``nearbyint``: halves go to the even neighbour."""
    return to_int64(np.rint(x))


def round_half_away(x: FloatArray) -> IntArray:
    """``std::round``: halves go away from zero. Exact, because x + 0.5 is exact in float64."""
    wide = np.asarray(x, dtype=np.float32).astype(np.float64)
    return to_int64(np.trunc(wide + np.copysign(0.5, wide)))


def fused_multiply_add(x: AnyArray, factor: np.float32, addend: np.float32 | int) -> FloatArray:
    """``x * factor + addend`` of float32 values, rounded once.

    The product is exact in float64. What the sum then loses is made to show in its last bit (it is
    rounded to odd), so that the second rounding, to float32, is that of the exact value.
    """
    product = np.asarray(x, dtype=np.float64) * np.float64(factor)
    wide = np.float64(addend)
    total = product + wide
    back = total - product
    lost = (product - (total - back)) + (wide - back)
    even = np.ascontiguousarray(total).view(np.int64) & 1 == 0
    towards = np.where(lost > 0, np.inf, -np.inf)
    odd = np.where((lost != 0) & even, np.nextafter(total, towards), total)
    return odd.astype(np.float32)


def float32_of(x: AnyArray) -> FloatArray:
    """Integers as float32, rounded once (half to even beyond 24 bits)."""
    return np.asarray(x).astype(np.float32)


def fixed_point(x: IntArray, factor: float) -> IntArray:
    """``x * factor`` by a 31-bit multiplier, as TFLite's ``MultiplyByQuantizedMultiplier``.

    ``x`` is 32 bits wide. Rounded twice: in the product (halves up), then in the shift (halves
    away from zero); what a factor above 1 shifts beyond 32 bits saturates.
    """
    return multiplied(x, *multiplier(factor))


def multiplier(factor: float) -> tuple[int, int]:
    """A factor as 31 bits and a power of two: TFLite's ``QuantizeMultiplier``."""
    fraction, exponent = math.frexp(factor)
    mul = math.floor(fraction * 2.0**31 + 0.5)
    if mul == 1 << 31:
        mul, exponent = mul // 2, exponent + 1
    return (0, 0) if exponent < -31 else (mul, exponent)


def mean_multiplier(factor: float, taps: int) -> tuple[int, int]:
    """A factor divided by a count: the multiplier is, after a shift that keeps its bits.

    Source: ``QuantizedMeanOrSum`` (tensorflow/lite/kernels/internal/reference/reduce.h).
    """
    mul, exponent = multiplier(factor)
    shift = min(taps.bit_length() - 1, 32, 31 + exponent)
    return (mul << shift) // taps, exponent - shift


def multiplied(x: IntArray, mul: int, exponent: int) -> IntArray:
    """``x * mul / 2**31 * 2**exponent``, as ``fixed_point`` does it."""
    shifted = np.clip(x << np.int64(min(max(exponent, 0), 31)), -(1 << 31), (1 << 31) - 1)
    high = (shifted * mul + (1 << 30)) >> 31
    right = min(max(-exponent, 0), 62)
    half = (1 << right) >> 1
    result: IntArray = np.sign(high) * ((np.abs(high) + half) >> right)
    return result


def quantize_reals(x: AnyArray, grid: HostTensor) -> IntArray:
    """``rne(fl(fl(x / S) + O))`` in float32, not yet clipped (Glow's ``quantization::quantize``).

    NaN, on which the reference is undefined, is taken as real zero.
    """
    reals = np.asarray(x, dtype=np.float32)
    placed = np.where(np.isnan(reals), np.float32(0), reals)
    placed /= grid.scale32
    placed += np.float32(grid.offset)
    return round_half_even(placed)


def quantize_value(value: float, grid: HostTensor, dtype: npt.DTypeLike | None = None) -> int:
    """One real on the grid of ``grid``, saturated to its integer range or to that of ``dtype``."""
    limits = np.iinfo(grid.dtype if dtype is None else np.dtype(dtype))
    exact = int(quantize_reals(np.float32(value).reshape(1), grid)[0])
    return min(max(exact, int(limits.min)), int(limits.max))


def requantized(source: HostTensor, grid: HostTensor) -> IntArray:
    """``quantize(dequantize(q))`` onto another grid, not clipped (Interpreter's rescale)."""
    return quantize_reals(source.reals(), grid)


def rescaled(x: IntArray, factor: np.float32, offset: int = 0) -> IntArray:
    """``x`` times a float32 factor the libjit way, plus ``offset``; not clipped.

    An integer scale is positive, so a factor below zero (a negative alpha) turns the sign of
    ``x``, and a factor of zero leaves the offset.
    """
    if factor == 0:
        return np.full_like(x, offset)
    if factor < 0:
        return rescaled(-x, -factor, offset)
    return apply_integer_scale(x, integer_scale(float(factor)), offset)


def rescaled_wide(x: IntArray, factor: np.float32, offset: int = 0) -> IntArray:
    """The same for a positive factor with 62 bits inside, as the device's unit does it for Int16.

    It has shifts of up to 31 bits: what is more is shifted before the product, or leaves nothing.
    """
    scale = integer_scale(float(factor))
    excess = max(scale.post - LONGEST_SHIFT, 0)
    pre, post = scale.pre + excess, scale.post - excess
    if pre > LONGEST_SHIFT:
        return np.full_like(x, offset)
    limit = (1 << 61) // scale.mul
    product = np.clip(x >> np.int64(pre), -limit, limit) * np.int64(scale.mul)
    result: IntArray = ((product + ((1 << post) >> 1)) >> np.int64(post)) + np.int64(offset)
    return result
