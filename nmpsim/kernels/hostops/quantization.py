"""Between real and quantized values: quantize, dequantize, rescalequantized (LIR_FORMAT 3.3)."""

from __future__ import annotations

import numpy as np

from nmpsim.kernels.hostops.numerics import ARITHMETIC
from nmpsim.kernels.hostops.rounding import (
    multiply_fixed_point,
    quantize_blocks,
    requantize,
    rescale,
    rescale_wide,
)
from nmpsim.kernels.hostops.tensors import Attributes, HostResult, HostTensor, saturate, store


def quantize(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Quantize float32 Src to Dest, saturated; NaN becomes real zero."""
    return quantize_blocks(src.values, dest, ARITHMETIC[dest.numerics].place_on_grid)


def dequantize(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Compute ``fl(S * (q - O))`` of an integer Src."""
    return store(src.reals(), dest)


def rescale_quantized(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Rescale by integers (libjit), ``quantize(dequantize(q))`` or TFLite's fixed point.

    libjit rescales to Int8 and Int16 alone: an Int32 result is always the Interpreter's, which
    clips a rescaled Int16 to Int8's range by mistake; here the range is Int16's.
    """
    if dest.numerics == "q31":
        factor = src.scale / dest.scale
        return saturate(multiply_fixed_point(src.centered(), factor) + np.int64(dest.offset), dest)
    if dest.dtype.itemsize <= 2 and dest.numerics != "glow-float":
        is_int16 = src.dtype == dest.dtype == np.int16  # in which the device never saturates
        scale = rescale_wide if is_int16 else rescale
        return saturate(scale(src.centered(), src.scale32 / dest.scale32, dest.offset), dest)
    return saturate(requantize(src, dest), dest)
