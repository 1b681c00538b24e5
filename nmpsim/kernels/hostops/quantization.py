"""Between real and quantized values: quantize, dequantize, rescalequantized (LIR_FORMAT 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.rounding import quantize_reals, requantized
from nmpsim.kernels.hostops.tensors import (
    Attributes,
    HostResult,
    HostTensor,
    IntArray,
    clipped,
    whole,
)
from nmpsim.kernels.scale import apply_integer_scale, integer_scale


def quantize(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest (integer), Src (float32): ``clip(rne(fl(fl(x/S)+O)))``, int64 before the clip.

    This is the Interpreter's way; libjit's int32 cast differs only where it is undefined. NaN
    becomes real zero, infinities and huge values saturate.
    """
    dest, src = operands
    return clipped(quantize_reals(src.values, dest), dest)


def dequantize(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest (float32), Src (integer): ``fl(S * (q - O))``."""
    dest, src = operands
    return whole(src.reals(), dest)


def rescale(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src of one width: Int8 by integer scale (libjit), others ``quantize(dequantize(q))``.

    The Interpreter clips a rescaled Int16 to Int8's range by mistake; here the range is Int16's.
    """
    dest, src = operands
    if dest.dtype == np.int8:
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
