"""Between real and quantized values: quantize, dequantize, rescalequantized (LIR_FORMAT 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.numerics import TORCH
from nmpsim.kernels.hostops.rounding import (
    fixed_point,
    fused_multiply_add,
    quantize_reals,
    requantized,
    round_half_away,
    round_half_even,
)
from nmpsim.kernels.hostops.tensors import (
    Attributes,
    FloatArray,
    HostResult,
    HostTensor,
    IntArray,
    clipped,
    whole,
)
from nmpsim.kernels.scale import apply_integer_scale, integer_scale

LONGEST_SHIFT = 31
"""Of the device's rescale unit."""
UNSIGNED = 128
"""An Int8 tensor is PyTorch's unsigned one less this."""


def quantize(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest (integer), Src (float32), int64 before the clip; NaN becomes real zero.

    Glow: ``rne(fl(fl(x/S) + O))``, as the Interpreter does it (libjit's int32 cast differs only
    where it is undefined). TFLite: ``rha(fl(x/S)) + O``. ONNX Runtime: ``rne(fl(x/S)) + O``.
    PyTorch: ``rne(fma(x, fl(1/S), O))``, where O is that of an unsigned 8-bit tensor.
    """
    dest, src = operands
    if dest.numerics not in ("q31", "float", *TORCH):
        return clipped(quantize_reals(src.values, dest), dest)
    x: FloatArray = np.where(np.isnan(src.values), np.float32(0), src.values)
    if dest.numerics == "q31":
        exact = round_half_away(x / dest.scale32) + np.int64(dest.offset)
    elif dest.numerics == "float":
        exact = round_half_even(x / dest.scale32) + np.int64(dest.offset)
    else:
        moved = UNSIGNED if dest.dtype == np.int8 else 0
        placed = fused_multiply_add(x, np.float32(1) / dest.scale32, dest.offset + moved)
        exact = round_half_even(placed) - np.int64(moved)
    return clipped(exact, dest)


def dequantize(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest (float32), Src (integer): ``fl(S * (q - O))``."""
    dest, src = operands
    return whole(src.reals(), dest)


def rescale(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src: by integer scale (libjit), ``quantize(dequantize(q))``, or TFLite's fixed point.

    libjit rescales to Int8 and Int16 alone: an Int32 result is always the Interpreter's, which
    clips a rescaled Int16 to Int8's range by mistake; here the range is Int16's.
    """
    dest, src = operands
    if dest.numerics == "q31":
        factor = src.scale / dest.scale
        return clipped(fixed_point(src.centered(), factor) + np.int64(dest.offset), dest)
    if dest.dtype.itemsize <= 2 and dest.numerics != "glow-float":
        return clipped(rescaled(src.centered(), src.scale32 / dest.scale32, dest.offset), dest)
    return clipped(requantized(src, dest), dest)


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
