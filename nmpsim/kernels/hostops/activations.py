"""Functions of one quantized tensor, element by element: relu, clip, leakyrelu, cpumaxsplat.

Int8 follows libjit unless it is to follow the Interpreter, as Int16 does, which lowers these to
max, min and multiplication.
"""

from __future__ import annotations

import numpy as np

from nmpsim.kernels.hostops.overshoots import clamp
from nmpsim.kernels.hostops.rounding import (
    quantize_reals,
    quantize_value,
    requantize,
    rescale,
    to_float32,
)
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostTensor,
    IntArray,
    get_integer_limits,
)


def relu(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Compute ``max(x, 0)`` of quantized values and requantize to the scale of Dest."""
    if src.uses_integers:
        positive = clamp(src.subtract_offset(), 0, None, "activation")
        return rescale(positive, src.scale32 / dest.scale32, dest.offset)
    clamp(
        src.subtract_offset(), 0, None, "activation"
    )  # recorded where the device clips: on the input
    return np.maximum(requantize(src, dest), quantize_value(0.0, dest))


def clip(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Clip quantized values to Min and Max and requantize to the scale of Dest."""
    low, high = float(attributes["Min"]), float(attributes["Max"])
    if src.uses_integers:
        bounds = quantize_value(low, src) - src.offset, quantize_value(high, src) - src.offset
        held = clamp(src.subtract_offset(), *bounds, "activation")
        return rescale(held, src.scale32 / dest.scale32, dest.offset)
    bounds = quantize_value(low, dest, np.int32), quantize_value(high, dest, np.int32)
    return clip_result(requantize(src, dest), *bounds, dest)


def clip_result(values: IntArray, low: int | None, high: int | None, dest: HostTensor) -> IntArray:
    """Clip results to quantized bounds, ignoring bounds outside the integer type.

    A bound outside the type limits nothing: the values saturate to the type.
    """
    lowest, highest = get_integer_limits(dest.dtype)
    floor = None if low is None or low < lowest else min(low, highest)
    ceiling = None if high is None or high > highest else max(high, lowest)
    return clamp(values, floor, ceiling, "activation")


def leaky_relu(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Compute the leaky ReLU of quantized values: ``Alpha * x`` below zero, else ``x``.

    In float it is assumed (the Interpreter lowers it to several operations): real values, those
    below zero on a scale of ``fl(Sx * alpha)``, then quantize.
    """
    alpha = np.float32(attributes["Alpha"])
    if src.uses_integers:
        return _leaky_by_integers(src, dest, alpha)
    x = src.subtract_offset()
    scales = np.where(x >= 0, src.scale32, src.scale32 * alpha)
    return quantize_reals(scales * to_float32(x), dest)


def _leaky_by_integers(src: HostTensor, dest: HostTensor, alpha: np.float32) -> IntArray:
    x = src.subtract_offset()
    upper = rescale(np.maximum(x, 0), src.scale32 / dest.scale32, dest.offset)
    lower = rescale(np.minimum(x, 0), src.scale32 * alpha / dest.scale32, dest.offset)
    return np.where(x >= 0, upper, lower)


def max_splat(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Compute ``max(x, SplatValue)`` of quantized values in the scale of Src."""
    floor = quantize_value(float(attributes["SplatValue"]), src)
    return clamp(src.values.astype(np.int64), floor, None, "activation")
