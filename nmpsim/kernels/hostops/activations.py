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
    Attributes,
    HostResult,
    HostTensor,
    IntArray,
    integer_limits,
    saturate,
)


def relu(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Compute ``max(x, 0)``; Int8 and Int16 may change scale and offset on the way."""
    if src.uses_integers:
        positive = clamp(src.centered(), 0, None, "activation")
        return saturate(rescale(positive, src.scale32 / dest.scale32, dest.offset), dest)
    clamp(src.centered(), 0, None, "activation")  # recorded where the device clips: on the input
    return saturate(np.maximum(requantize(src, dest), quantize_value(0.0, dest)), dest)


def clip(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Limit to Min and Max: libjit on the input's grid, the Interpreter on the output's."""
    low, high = float(attributes["Min"]), float(attributes["Max"])
    if src.uses_integers:
        bounds = quantize_value(low, src) - src.offset, quantize_value(high, src) - src.offset
        held = clamp(src.centered(), *bounds, "activation")
        return saturate(rescale(held, src.scale32 / dest.scale32, dest.offset), dest)
    bounds = quantize_value(low, dest, np.int32), quantize_value(high, dest, np.int32)
    return saturate(clip_result(requantize(src, dest), *bounds, dest), dest)


def clip_result(values: IntArray, low: int | None, high: int | None, dest: HostTensor) -> IntArray:
    """Limit values on the result's grid to the bounds that the network asks for.

    A bound outside the type limits nothing: the values saturate to the type.
    """
    lowest, highest = integer_limits(dest.dtype)
    floor = None if low is None or low < lowest else min(low, highest)
    ceiling = None if high is None or high > highest else max(high, lowest)
    return clamp(values, floor, ceiling, "activation")


def leaky_relu(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Compute ``x`` where it is not negative, else ``Alpha * x``.

    In float it is assumed (the Interpreter lowers it to several operations): real values, those
    below zero on a scale of ``fl(Sx * alpha)``, then quantize.
    """
    alpha = np.float32(attributes["Alpha"])
    if src.uses_integers:
        return saturate(_leaky_by_integers(src, dest, alpha), dest)
    x = src.centered()
    scales = np.where(x >= 0, src.scale32, src.scale32 * alpha)
    return saturate(quantize_reals(scales * to_float32(x), dest), dest)


def _leaky_by_integers(src: HostTensor, dest: HostTensor, alpha: np.float32) -> IntArray:
    x = src.centered()
    upper = rescale(np.maximum(x, 0), src.scale32 / dest.scale32, dest.offset)
    lower = rescale(np.minimum(x, 0), src.scale32 * alpha / dest.scale32, dest.offset)
    return np.where(x >= 0, upper, lower)


def max_splat(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Compute ``max(x, quantize(SplatValue))``; Dest and Src have one type."""
    floor = quantize_value(float(attributes["SplatValue"]), src)
    return saturate(clamp(src.values.astype(np.int64), floor, None, "activation"), dest)
