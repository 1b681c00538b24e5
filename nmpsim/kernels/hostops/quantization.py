"""Between real and quantized values: quantize, dequantize, rescalequantized (LIR_FORMAT 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.numerics import ARITHMETIC
from nmpsim.kernels.hostops.rounding import (
    fixed_point,
    quantized,
    requantized,
    rescaled,
    rescaled_wide,
)
from nmpsim.kernels.hostops.tensors import Attributes, HostResult, HostTensor, clipped, whole


def quantize(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest (integer), Src (float32), as integers before the clip; NaN becomes real zero."""
    dest, src = operands
    return quantized(src.values, dest, ARITHMETIC[dest.numerics].place)


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
        is_int16 = src.dtype == dest.dtype == np.int16  # in which the device never saturates
        scale = rescaled_wide if is_int16 else rescaled
        return clipped(scale(src.centered(), src.scale32 / dest.scale32, dest.offset), dest)
    return clipped(requantized(src, dest), dest)
