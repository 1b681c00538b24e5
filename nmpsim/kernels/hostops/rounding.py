"""Float to integer, the ways Glow rounds and rescales, and values on a tensor's grid."""

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
    Clipped,
    FloatArray,
    HostResult,
    HostTensor,
    IntArray,
    limits_of,
)
from nmpsim.kernels.scale import apply_integer_scales, integer_scale

_HUGE = 2.0**62
_PART = 1 << 15
"""Values that are quantized at once."""
LONGEST_SHIFT = 31
"""Of the device's rescale unit."""


def to_int64(integral: npt.NDArray[np.floating[Any]]) -> IntArray:
    """Integral floats as int64; beyond +-2**62 (infinities too) held there, NaN becomes 0."""
    # 2**62 is a power of two: float32 holds it, too
    held: npt.NDArray[np.floating[Any]] = np.minimum(np.maximum(integral, -_HUGE), _HUGE)
    missing = np.isnan(held)
    if missing.any():
        held = np.where(missing, 0.0, held)
    return held.astype(np.int64)


def round_half_even(x: FloatArray) -> IntArray:
    """``nearbyint``: halves go to the even neighbour."""
    return to_int64(np.rint(x))


def round_half_away(x: FloatArray) -> IntArray:
    """``std::round``: halves go away from zero."""
    return to_int64(halves_away(x))


def halves_away(x: AnyArray) -> FloatArray:
    """The same as real numbers. Exact: what is behind the point is, and so is twice that."""
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
    """``x * factor + addend`` of float32 values, rounded once.

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
    wide = x << np.int64(min(max(exponent, 0), 31))
    shifted = clamp(wide, -(1 << 31), (1 << 31) - 1, "rescale")
    high = (shifted * mul + (1 << 30)) >> 31
    right = min(max(-exponent, 0), 62)
    half = (1 << right) >> 1
    result: IntArray = np.sign(high) * ((np.abs(high) + half) >> right)
    return result


def quantize_reals(x: AnyArray, grid: HostTensor) -> IntArray:
    """``rne(fl(fl(x / S) + O))`` in float32, not yet clipped (Glow's ``quantization::quantize``).

    NaN, on which the reference is undefined, is taken as real zero.
    """
    return to_int64(placed_reals(known(np.asarray(x, dtype=np.float32)), grid)[0])


def known(x: FloatArray) -> FloatArray:
    """NaN is real zero."""
    return np.where(np.isnan(x), np.float32(0), x)


Placed: TypeAlias = tuple[FloatArray, int]
"""Whole numbers as reals, and what has to be added to them as integers."""


def placed_reals(x: FloatArray, grid: HostTensor) -> Placed:
    """As :func:`quantize_reals`; NaN stays."""
    placed = x / grid.scale32
    placed += np.float32(grid.offset)
    return np.rint(placed), 0


def quantized(
    x: FloatArray, dest: HostTensor, place: Callable[[FloatArray, HostTensor], Placed]
) -> HostResult:
    """A result for operand 0: reals on the grid of ``dest``, saturated; NaN is real zero.

    It is made in parts that stay in the processor's caches.
    """
    narrow, reals = np.empty(dest.shape, dest.dtype), x.reshape(-1)
    stored, found = narrow.reshape(-1), []
    for begin in range(0, reals.size, _PART):
        part = slice(begin, begin + _PART)
        whole, more = place(reals[part], dest)
        least = np.minimum.reduce(whole)
        if least != least:
            whole, more = place(known(reals[part]), dest)
            least = np.minimum.reduce(whole)
        changed = _store(whole, least, more, stored[part])
        if changed.places.size:
            found.append((changed.places + begin, changed.exact))
    if not found:
        return HostResult({0: narrow}, {0: NONE_CLIPPED})
    places, exact = (np.concatenate(column) for column in zip(*found, strict=True))
    return HostResult({0: narrow}, {0: Clipped(places, exact)})


def _store(whole: FloatArray, least: Any, more: int, stored: AnyArray) -> Clipped:
    """Put whole numbers, the ``least`` of them known, with ``more`` into ``stored``, saturated."""
    low, high = limits_of(stored.dtype)
    if stored.dtype.itemsize > 2:
        exact = to_int64(whole) + np.int64(more)
        stored[...] = np.clip(exact, low, high)
        return Clipped.of(exact, low, high)
    # within the range all of it is exact in float32, too
    changed, bottom, top = NONE_CLIPPED, low - more, high - more
    if least < bottom or np.maximum.reduce(whole) > top:
        places = np.flatnonzero((whole < bottom) | (whole > top))
        changed = Clipped(places, to_int64(whole[places]) + np.int64(more))
        whole = np.minimum(np.maximum(whole, bottom), top)
    stored[...] = whole + np.float32(more) if more else whole
    return changed


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
    scale = integer_scale(float(factor))
    saturate = partial(clamp, stage="rescale")
    return apply_integer_scales(x, scale.pre, scale.post, scale.mul, offset, saturate)


def rescaled_wide(x: IntArray, factor: np.float32, offset: int = 0) -> IntArray:
    """The same for a positive factor with 62 bits inside, as the device's unit does it for Int16.

    It has shifts of up to 31 bits: what is more is shifted before the product, or leaves nothing.
    """
    scale = integer_scale(float(factor))
    excess = max(scale.post - LONGEST_SHIFT, 0)
    pre, post = scale.pre + excess, scale.post - excess
    if pre > LONGEST_SHIFT:
        return np.full_like(x, offset)
    most = (1 << 61) // scale.mul
    product = clamp(x >> np.int64(pre), -most, most, "rescale") * np.int64(scale.mul)
    result: IntArray = ((product + ((1 << post) >> 1)) >> np.int64(post)) + np.int64(offset)
    return result
