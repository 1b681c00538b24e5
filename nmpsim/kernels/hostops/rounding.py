"""Rounding and rescaling of floats and integers, and values on a tensor's grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.overshoots import clamp
from nmpsim.kernels.hostops.tensors import (
    NONE_CLIPPED,
    AnyArray,
    FloatArray,
    HostResult,
    HostTensor,
    IntArray,
    SaturatedValues,
    get_integer_limits,
)
from nmpsim.kernels.scale import apply_integer_scales, make_integer_scale

_HUGE = 2.0**62
_PART = 1 << 15
"""Values quantized at a time."""
LONGEST_SHIFT = 31
"""Largest shift of the device's rescale unit, in bits."""


def to_int64(integral: npt.NDArray[np.floating[Any]]) -> IntArray:
    """Convert whole floats to int64, clamped to +-2**62, with NaN converted to 0."""
    # 2**62 is a power of two: float32 holds it, too
    held: npt.NDArray[np.floating[Any]] = np.minimum(np.maximum(integral, -_HUGE), _HUGE)
    missing = np.isnan(held)
    if missing.any():
        held = np.where(missing, 0.0, held)
    return held.astype(np.int64)


def round_half_even(x: FloatArray) -> IntArray:
    """Round floats to int64, with halves to even as C's ``nearbyint`` does."""
    return to_int64(np.rint(x))


def round_half_away(x: FloatArray) -> IntArray:
    """Round floats to int64, with halves away from zero as C's ``round`` does."""
    return to_int64(round_half_away_float(x))


def round_half_away_float(x: AnyArray) -> FloatArray:
    """Round to whole float32 numbers, with halves away from zero.

    Exact: the fraction is, and so is twice the fraction.
    """
    reals = np.asarray(x, dtype=np.float32)
    whole = np.trunc(reals)
    behind = reals - whole
    behind += behind
    rounded: FloatArray = whole + np.trunc(behind)
    # infinity less infinity is no number
    return rounded if _has_no_nan(rounded) else np.where(np.isfinite(reals), rounded, reals)


def _has_no_nan(x: AnyArray) -> bool:
    least = np.minimum.reduce(x, None, initial=np.inf)
    return bool(least == least)


def fused_multiply_add(
    x: AnyArray, factor: np.float32 | AnyArray, addend: np.float32 | int
) -> FloatArray:
    """Compute ``x * factor + addend`` in float32 with a single rounding.

    The product is exact in float64. What the sum then loses is made to show in its last bit (it is
    rounded to odd), so that the second rounding, to float32, is that of the exact value.
    """
    product = np.asarray(x, dtype=np.float64) * np.asarray(factor, dtype=np.float64)
    wide = np.float64(addend)
    total = product + wide
    back = total - product
    lost = (product - (total - back)) + (wide - back)
    even = np.asarray(total, order="C").view(np.int64) & 1 == 0
    towards = np.where(lost > 0, np.inf, -np.inf)
    odd = np.where((lost != 0) & even, np.nextafter(total, towards), total)
    return odd.astype(np.float32)


def to_float32(x: AnyArray) -> FloatArray:
    """Convert integers to float32, rounding to nearest with halves to even."""
    return np.asarray(x).astype(np.float32)


def multiply_fixed_point(x: IntArray, factor: float) -> IntArray:
    """Compute ``x * factor`` in 32-bit fixed point, as TFLite does.

    ``x`` is 32 bits wide. Rounded twice: in the product (halves up), then in the shift (halves
    away from zero); what a factor above 1 shifts beyond 32 bits saturates.
    """
    return multiply_quantized(x, *quantize_multiplier(factor))


def quantize_multiplier(factor: float) -> tuple[int, int]:
    """Convert a factor to a 31-bit multiplier and an exponent of two, as TFLite does."""
    fraction, exponent = math.frexp(factor)
    mul = math.floor(fraction * 2.0**31 + 0.5)
    if mul == 1 << 31:
        mul, exponent = mul // 2, exponent + 1
    return (0, 0) if exponent < -31 else (mul, exponent)


def quantize_mean_multiplier(factor: float, taps: int) -> tuple[int, int]:
    """Convert ``factor / taps`` to a multiplier and an exponent of two, as TFLite's mean does.

    Source: ``QuantizedMeanOrSum`` (tensorflow/lite/kernels/internal/reference/reduce.h).
    """
    mul, exponent = quantize_multiplier(factor)
    shift = min(taps.bit_length() - 1, 32, 31 + exponent)
    return (mul << shift) // taps, exponent - shift


def multiply_quantized(x: IntArray, mul: int, exponent: int) -> IntArray:
    """Compute ``x * mul / 2**31 * 2**exponent`` with TFLite's two roundings."""
    wide = x << np.int64(min(max(exponent, 0), 31))
    shifted = clamp(wide, -(1 << 31), (1 << 31) - 1, "rescale")
    high = (shifted * mul + (1 << 30)) >> 31
    return shift_away(high, min(max(-exponent, 0), 62))


def shift_away(x: IntArray, shift: IntArray | int) -> IntArray:
    """Return ``x / 2**shift``, rounded to nearest with halves away from zero."""
    half = (np.int64(1) << shift) >> 1
    result: IntArray = np.sign(x) * ((np.abs(x) + half) >> shift)
    return result


def quantize_reals(x: AnyArray, grid: HostTensor) -> IntArray:
    """Quantize real numbers with a tensor's scale and offset, without saturation.

    NaN, on which the reference is undefined, is taken as real zero.
    """
    return to_int64(quantize_to_floats(replace_nan(np.asarray(x, dtype=np.float32)), grid)[0])


def replace_nan(x: FloatArray) -> FloatArray:
    """Return ``x`` with NaN replaced by zero."""
    return np.where(np.isnan(x), np.float32(0), x)


GridValues: TypeAlias = tuple[FloatArray, int]
"""Whole numbers as floats, and an integer to add to them."""


def quantize_to_floats(x: FloatArray, grid: HostTensor) -> GridValues:
    """Quantize reals without saturation; return integral floats and an integer to add to them."""
    placed = x / grid.scale32
    placed += np.float32(grid.offset)
    return np.rint(placed), 0


def quantize_blocks(
    x: FloatArray, dest: HostTensor, place: Callable[[FloatArray, HostTensor], GridValues]
) -> HostResult:
    """Quantize real numbers to the type of ``dest`` in blocks, with saturation; NaN becomes real 0.

    Blocks are small enough for the processor's caches.
    """
    narrow, reals = np.empty(dest.shape, dest.dtype), x.reshape(-1)
    stored, found = narrow.reshape(-1), []
    for begin in range(0, reals.size, _PART):
        part = slice(begin, begin + _PART)
        whole, more = place(reals[part], dest)
        least = np.minimum.reduce(whole)
        if least != least:
            whole, more = place(replace_nan(reals[part]), dest)
            least = np.minimum.reduce(whole)
        changed = _store(whole, least, more, stored[part])
        if changed.indices.size:
            found.append((changed.indices + begin, changed.exact))
    if not found:
        return HostResult({0: narrow}, {0: NONE_CLIPPED})
    places, exact = (np.concatenate(column) for column in zip(*found, strict=True))
    return HostResult({0: narrow}, {0: SaturatedValues(places, exact)})


def _store(whole: FloatArray, least: Any, more: int, stored: AnyArray) -> SaturatedValues:
    """Store whole numbers, the smallest of which is ``least``, plus ``more``, saturated."""
    low, high = get_integer_limits(stored.dtype)
    if stored.dtype.itemsize > 2:
        exact = to_int64(whole) + np.int64(more)
        stored[...] = np.clip(exact, low, high)
        return SaturatedValues.find_outside(exact, low, high)
    # within the range all of it is exact in float32, too
    changed, bottom, top = NONE_CLIPPED, low - more, high - more
    if least < bottom or np.maximum.reduce(whole) > top:
        places = np.flatnonzero((whole < bottom) | (whole > top))
        changed = SaturatedValues(places, to_int64(whole[places]) + np.int64(more))
        whole = np.minimum(np.maximum(whole, bottom), top)
    stored[...] = whole + np.float32(more) if more else whole
    return changed


def quantize_value(value: float, grid: HostTensor, dtype: npt.DTypeLike | None = None) -> int:
    """Quantize one real number, saturated to the range of the tensor or of ``dtype``."""
    limits = np.iinfo(grid.dtype if dtype is None else np.dtype(dtype))
    exact = int(quantize_reals(np.float32(value).reshape(1), grid)[0])
    return min(max(exact, int(limits.min)), int(limits.max))


def requantize(source: HostTensor, grid: HostTensor) -> IntArray:
    """Convert a quantized tensor to the scale and offset of ``grid``, without saturation."""
    return quantize_reals(source.dequantize(), grid)


def rescale(x: IntArray, factor: np.float32, offset: int = 0) -> IntArray:
    """Compute ``x * factor + offset`` in libjit's integer arithmetic, without saturation.

    An integer scale is positive, so a factor below zero (a negative alpha) turns the sign of
    ``x``, and a factor of zero leaves the offset.
    """
    if factor == 0:
        return np.full_like(x, offset)
    if factor < 0:
        return rescale(-x, -factor, offset)
    scale = make_integer_scale(float(factor))
    saturate = partial(clamp, stage="rescale")
    return apply_integer_scales(x, scale.pre, scale.post, scale.mul, offset, saturate)


def rescale_wide(x: IntArray, factor: np.float32, offset: int = 0) -> IntArray:
    """Compute ``x * factor + offset`` in libjit's arithmetic with 62-bit products.

    It has shifts of up to 31 bits: what is more is shifted before the product, or leaves nothing.
    """
    scale = make_integer_scale(float(factor))
    excess = max(scale.post - LONGEST_SHIFT, 0)
    pre, post = scale.pre + excess, scale.post - excess
    if pre > LONGEST_SHIFT:
        return np.full_like(x, offset)
    most = (1 << 61) // scale.mul
    product = clamp(x >> np.int64(pre), -most, most, "rescale") * np.int64(scale.mul)
    result: IntArray = ((product + ((1 << post) >> 1)) >> np.int64(post)) + np.int64(offset)
    return result


#
