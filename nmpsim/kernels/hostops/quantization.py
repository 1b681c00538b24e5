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
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
)


def quantize(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Quantize float32 values with the scale and offset of Dest; NaN becomes real zero."""
    return quantize_blocks(src.values, dest, ARITHMETIC[dest.numerics].quantize_to_floats)


def dequantize(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Return quantized values as real values ``fl(S * (q - O))``."""
    return src.dequantize()


def rescale_quantized(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Convert quantized values to a different scale, offset or integer type.

    libjit rescales to Int8 and Int16 alone: an Int32 result is always the Interpreter's, which
    clips a rescaled Int16 to Int8's range by mistake; here the range is Int16's.
    """
    if dest.numerics == "q31":
        factor = src.scale / dest.scale
        return multiply_fixed_point(src.subtract_offset(), factor) + np.int64(dest.offset)
    if dest.dtype.itemsize <= 2 and dest.numerics != "glow-float":
        is_int16 = src.dtype == dest.dtype == np.int16  # in which the device never saturates
        scale = rescale_wide if is_int16 else rescale
        return scale(src.subtract_offset(), src.scale32 / dest.scale32, dest.offset)
    return requantize(src, dest)
