"""Rounding and rescaling, values on a tensor's grid, and exact sums as output values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.tensors import (
    NONE_CLIPPED,
    AnyArray,
    FloatArray,
    HostResult,
    HostTensor,
    IntArray,
    SaturatedValues,
    clamp,
    get_integer_limits,
)
from nmpsim.kernels.scale import apply_integer_scales, make_integer_scale, make_integer_scales
from nmpsim.records import frozen

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


# Conversion of exact sums and a bias to output values (LIR_FORMAT 3.3, rows conv and FC).
#
# Sums of integer products are formed in float64 matrix products: exact below 2**53, and even Int16
# operands give products below 2**34. Saturation happens only at the end. Sums of float32 are formed
# term by term, as the Interpreter does it; a library's order would depend on the processor.

_ACCUMULATOR_BITS = {1: 32, 2: 48}
"""Bits of the device's accumulator by bytes of an element; a bias saturates to them."""
_BLOCK_ELEMENTS = 1 << 15
"""Sums computed at a time, so that they stay in the cache."""


@frozen(eq=False)
class LayerRescale:
    """Scales of a layer's products, bias and result, as scalars or arrays over channels."""

    product: FloatArray
    bias: FloatArray
    dest: HostTensor

    @classmethod
    def from_tensors(
        cls, dest: HostTensor, src: HostTensor, weights: HostTensor, bias: HostTensor
    ) -> LayerRescale:
        """Return the scales of a layer whose four tensors have one scale each."""
        return cls(np.asarray(src.scale32 * weights.scale32), np.asarray(bias.scale32), dest)

    @property
    def bias_to_sums(self) -> FloatArray:
        """Bias scale divided by the scale of the sums, in float32."""
        return self.bias / self.product

    @property
    def product_to_output(self) -> FloatArray:
        """Scale of the sums divided by the result's scale, in float32: ``fl(mm / Sy)``."""
        return self.product / self.dest.scale32

    def rescale_sums(self, sums: IntArray, bias: IntArray, offset_after_rounding: bool) -> IntArray:
        """Rescale sums plus bias to the scale of the result, without saturation."""
        if not self.dest.uses_integers:
            return self.rescale_sums_as_floats(sums, bias, offset_after_rounding)
        total = _scale(bias, self.bias_to_sums, "bias") + sums
        scaled = _scale(total, self.product_to_output, "rescale")
        return scaled + np.int64(self.dest.offset)

    def rescale_sums_as_floats(
        self, sums: IntArray, bias: IntArray, offset_after_rounding: bool
    ) -> IntArray:
        """Rescale sums plus bias to results in float32, as Glow's Interpreter does.

        The fully connected layer adds Oy after it rounded, the convolution before.
        """
        scaled_bias = round_half_away(to_float32(bias) * self.bias_to_sums)
        limit = 1 << (_ACCUMULATOR_BITS[self.dest.dtype.itemsize] - 1)
        total = sums + clamp(scaled_bias, -limit, limit - 1, "bias")
        scaled = to_float32(total) * self.product_to_output
        if offset_after_rounding:
            return round_half_away(scaled) + np.int64(self.dest.offset)
        return round_half_away(scaled + np.float32(self.dest.offset))


def _scale(x: IntArray, factors: FloatArray, stage: str) -> IntArray:
    return apply_integer_scales(
        x, *make_integer_scales(factors), saturate=partial(clamp, stage=stage)
    )


def add_product(sums: AnyArray, left: AnyArray, right: AnyArray) -> None:
    """Add the matrix product ``left @ right`` to ``sums``, term by term in the order of K.

    Parameters
    ----------
    sums
        [..., M, N] of the dtype of ``left``; written.
    left, right
        [..., M, K] and [..., K, N].
    """
    for k in range(left.shape[-1]):
        sums += left[..., k, None] * right[..., k, None, :]


def multiply_real(left: AnyArray, right: AnyArray) -> AnyArray:
    """Return the product of floating-point matrices [M, K] and [K, N].

    In float32 each sum runs over K in order and is rounded at each step, which has the bits of
    Glow's Interpreter on every machine. Float64, used for real arithmetic, sums in any order.
    """
    if left.dtype == np.float64:
        product: AnyArray = np.matmul(left, right)
        return product
    rows, columns = left.shape[0], right.shape[1]
    sums = np.zeros((rows, columns), left.dtype)
    step = max(1, _BLOCK_ELEMENTS // columns)
    for first in range(0, rows, step):
        block = sums[first : first + step]
        terms = np.empty_like(block)
        for column, row in zip(left[first : first + step].T.copy(), right, strict=True):
            np.multiply(column[:, None], row, out=terms)
            block += terms
    return sums


def sum_in_order(rows: AnyArray) -> AnyArray:
    """Return the sum of each row as a column [rows, 1], adding from left to right."""
    return np.cumsum(rows, axis=1, dtype=rows.dtype)[:, -1:]


def multiply_exact(left: AnyArray, right: AnyArray) -> IntArray:
    """Return the exact product of two integer matrices with values below 2**17."""
    product: npt.NDArray[np.float64] = np.matmul(left.astype(np.float64), right.astype(np.float64))
    return product.astype(np.int64)
