"""Convolutions, channels last: 2-D and 3-D with groups, dilation and activation; transposed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nmpsim.kernels.hostops.accumulators import LayerRescale, add_product
from nmpsim.kernels.hostops.activations import clip_result
from nmpsim.kernels.hostops.functions import clip, leaky_relu, relu, sigmoid, tanh
from nmpsim.kernels.hostops.rounding import quantize_value, rescale, round_half_away, to_float32
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostTensor,
    IntArray,
    UnsupportedHostOp,
)
from nmpsim.kernels.hostops.windows import SlidingWindow, require_nhwc

_FORMULAS: Mapping[str, Callable[..., AnyArray]] = {
    "NONE": lambda y: y,
    "RELU": relu,
    "CLIP": clip,
    "LEAKY_RELU": leaky_relu,
    "SIGMOID": sigmoid,
    "TANH": tanh,
}


def _activation(attributes: Attributes) -> tuple[str, list[float]]:
    arguments = [float(argument) for argument in attributes.get("FusedActivationArgs", ())]
    return str(attributes.get("FusedActivation", "NONE")), arguments


def apply_fused_activation(y: AnyArray, attributes: Attributes) -> AnyArray:
    """Apply a convolution's fused activation, given by ``attributes``, to floating-point values.

    Raises
    ------
    UnsupportedHostOp
        If the activation is unknown.
    """
    kind, arguments = _activation(attributes)
    if kind not in _FORMULAS:
        raise UnsupportedHostOp("convolution", f"unknown fused activation {kind}")
    return _FORMULAS[kind](y, *arguments)


def _activate_integers(y: IntArray, dest: HostTensor, attributes: Attributes) -> IntArray:
    """Apply the fused activation on the output's grid, before saturation.

    Only libjit fuses activations; the float form of the leaky ReLU is an assumption.
    """
    kind, arguments = _activation(attributes)
    if kind == "NONE":
        return y
    if kind == "RELU":
        return clip_result(y, dest.offset, None, dest)
    if kind == "CLIP":
        low, high = (quantize_value(argument, dest, np.int32) for argument in arguments)
        return clip_result(y, low, high, dest)
    if kind != "LEAKY_RELU":
        reason = f"fused activation {kind} has no quantized form on the host"
        raise UnsupportedHostOp("convolution", reason)
    alpha, below = np.float32(arguments[0]), y - np.int64(dest.offset)
    if dest.uses_integers:
        lower = rescale(np.minimum(below, 0), alpha, dest.offset)
    else:
        lower = round_half_away(to_float32(below) * alpha) + np.int64(dest.offset)
    return np.where(below < 0, lower, y)


def convolution(
    dest: HostTensor, src: HostTensor, weights: HostTensor, bias: HostTensor, attributes: Attributes
) -> AnyArray:
    """Compute a 2-D convolution of NHWC images with OHWI filters, a bias and a fused activation.

    Float32 sums in the order ky, kx, channel. Int8 is libjit's arithmetic unless the Interpreter's
    is asked for, Int16 the Interpreter's; padding is real zero.
    """
    require_nhwc("convolution", attributes)
    if src.is_float32:
        sums = _sum_products(src.values, weights.values, dest, attributes)
        return apply_fused_activation(sums + bias.values, attributes)
    scales = LayerRescale.from_tensors(dest, src, weights, bias)
    return _quantized(src, weights.subtract_offset(), bias.subtract_offset(), scales, attributes)


def channelwise_convolution(
    dest: HostTensor,
    src: HostTensor,
    weights: HostTensor,
    bias: HostTensor,
    *parameters: HostTensor,
    attributes: Attributes,
) -> AnyArray:
    """Compute a 2-D convolution with a scale and offset for each output channel.

    Operands: Dest, Src, Filter, Bias, FilterScales, FilterOffsets, BiasScales, BiasOffsets, the
    last four float32 / int32 [OC].
    """
    require_nhwc("convolution", attributes)
    scales, offsets, bias_scales, bias_offsets = (tensor.values for tensor in parameters)
    centered = weights.values.astype(np.int64) - offsets.astype(np.int64)[:, None, None, None]
    centered_bias = bias.values.astype(np.int64) - bias_offsets.astype(np.int64)
    product = src.scale32 * scales.astype(np.float32)
    factors = LayerRescale(product, bias_scales.astype(np.float32), dest)
    return _quantized(src, centered, centered_bias, factors, attributes)


def _quantized(
    src: HostTensor, weights: IntArray, bias: IntArray, scales: LayerRescale, attributes: Attributes
) -> AnyArray:
    """Return the result of exact sums; they are formed in float64."""
    dest = scales.dest
    sums = _sum_products(src.subtract_offset().astype(np.float64), weights, dest, attributes)
    exact = scales.rescale_sums(sums.astype(np.int64), bias, offset_after_rounding=False)
    return _activate_integers(exact, dest, attributes)


def _sum_products(
    x: AnyArray, weights: AnyArray, dest: HostTensor, attributes: Attributes
) -> AnyArray:
    """Return the sums over taps and input channels in the dtype of ``x`` and the shape of Dest.

    For each tap, one batched product ``[Group, pixels, C/Group] @ [Group, C/Group, OC/Group]``.
    """
    window, groups = SlidingWindow.from_attributes(attributes), int(attributes["Group"])
    channels = dest.shape[-1]
    pixels = dest.values.size // channels
    taps = weights.astype(x.dtype).reshape(groups, channels // groups, *weights.shape[1:])
    sums = np.zeros((groups, pixels, channels // groups), x.dtype)
    for tap, view in window.iterate_views(window.pad(x, 0), dest.shape[1:-1]):
        grouped = view.reshape(pixels, groups, -1).transpose(1, 0, 2)
        cut: Any = (slice(None), slice(None), *tap)
        factors = taps[cut].transpose(0, 2, 1)
        if x.dtype == np.float64:
            sums += np.matmul(grouped, factors)
        else:
            add_product(sums, grouped, factors)
    return sums.transpose(1, 0, 2).reshape(dest.shape)


def convolution_3d(
    dest: HostTensor, src: HostTensor, weights: HostTensor, bias: HostTensor, attributes: Attributes
) -> AnyArray:
    """Compute a 3-D convolution of NTHWC inputs with OTHWI filters and a bias.

    Float sums run over taps, then channels. Quantized ones are exact; then
    ``rha(fl(fl((sum + B) * fl(mm/Sy)) + Oy))`` with ``B = rha(fl(b - Ob) * fl(Sb/mm))``.
    """
    if src.is_float:
        return _sum_products(src.values, weights.values, dest, attributes) + bias.values
    sums = _sum_products(src.subtract_offset(), weights.subtract_offset(), dest, attributes)
    scales = LayerRescale.from_tensors(dest, src, weights, bias)
    return scales.rescale_sums_as_floats(sums, bias.subtract_offset(), offset_after_rounding=False)


def transposed_convolution(
    dest: HostTensor, src: HostTensor, weights: HostTensor, bias: HostTensor, attributes: Attributes
) -> AnyArray:
    """Compute a transposed 2-D float convolution of NHWC images with OHWI filters and a bias.

    Each input pixel adds its share to a window of Dest, which begins as Bias. The Interpreter goes
    channel by channel and pixel by pixel; for one place of Dest that is taps from the last to the
    first, which can be done for all pixels at once with the same bits.
    """
    groups = int(attributes["Group"])
    (step_y, step_x), (apart_y, apart_x) = attributes["Strides"], attributes["Dilation"]
    top, left, _, _ = attributes["Pads"]
    outputs, kernel_y, kernel_x, channels = weights.shape
    _, height, width, _ = dest.shape
    sums: AnyArray = np.empty(dest.shape, src.dtype)
    sums[...] = bias.values
    for channel in range(channels):
        first = channel // (channels // groups) * outputs
        part = sums[..., first : first + outputs]
        taps = itertools.product(reversed(range(kernel_y)), reversed(range(kernel_x)))
        for ky, kx in taps:
            rows, from_rows = _overlap(src.shape[1], height, step_y, ky * apart_y - top)
            columns, from_columns = _overlap(src.shape[2], width, step_x, kx * apart_x - left)
            pixels: AnyArray = src.values[:, from_rows, from_columns, channel, None]
            part[:, rows, columns] += weights.values[:, ky, kx, channel] * pixels
    return sums


def _overlap(inputs: int, outputs: int, step: int, start: int) -> tuple[slice, slice]:
    """Return the outputs ``start + i * step`` within 0..outputs for i in 0..inputs, and these i."""
    first = max(0, -(start // step))
    last = min(inputs, -((start - outputs) // step))
    if last <= first:
        return slice(0), slice(0)
    return slice(start + first * step, start + (last - 1) * step + 1, step), slice(first, last)
