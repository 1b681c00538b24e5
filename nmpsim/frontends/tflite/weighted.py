"""Operators with weights: convolutions and fully connected layers."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.builder import Value, quantized
from nmpsim.frontends.tflite.lowering import BOUNDS, Lowering, Result, activation_of, kind_of
from nmpsim.frontends.tflite.model import Operator, Tensor
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import AttributeValue, TensorType

Array = npt.NDArray[Any]
SAME, VALID = 0, 1
_INT32 = 2
"""Among the schema's types of tensors."""


@attrs.frozen
class _Operands:
    """What a weighted operator reads."""

    source: Tensor
    weights: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, operator: Operator, source: int = 0, bias: int = 2) -> _Operands:
        """Those at these places of its inputs; weights are always the second."""
        inputs = (*operator.inputs, None, None, None)
        read, weights = inputs[source], inputs[1]
        if read is None or weights is None:
            raise UnsupportedError(f"{len(operator.inputs)} inputs")
        for tensor in (read, weights):
            if not tensor.is_quantized:
                raise UnsupportedError(kind_of(tensor))
        if (read.dtype, weights.dtype) not in _KINDS:
            raise UnsupportedError(f"{read.dtype} inputs with {weights.dtype} weights")
        return cls(read, weights, inputs[bias])


_KINDS = (("int8", "int8"), ("int8", "int4"), ("uint8", "uint8"), ("int16", "int8"))


def conv_2d(graph: Lowering, operator: Operator) -> Result:
    """Filter OHWI, one input channel for each group of filters."""
    operands = _Operands.of(operator)
    source, weights = operands.source, operands.weights
    depth = weights.shape[3] if len(weights.shape) == 4 else 0
    if len(source.shape) != 4 or depth == 0 or source.shape[3] % depth:
        raise UnsupportedError(f"filter {list(weights.shape)} for an input {list(source.shape)}")
    return _window(graph, operator, operands, graph.held(weights), source.shape[3] // depth, 0)


def depthwise_conv_2d(graph: Lowering, operator: Operator) -> Result:
    """Filter [1, kh, kw, channels * multiplier]: a group for each channel."""
    operands = _Operands.of(operator)
    source, weights = operands.source, operands.weights
    if len(source.shape) != 4 or len(weights.shape) != 4 or weights.shape[3] % source.shape[3]:
        raise UnsupportedError(f"filter {list(weights.shape)} for an input {list(source.shape)}")
    filters = graph.held(weights).transpose(3, 1, 2, 0)
    return _window(graph, operator, operands, filters, source.shape[3], 3)


def transpose_conv(graph: Lowering, operator: Operator) -> Result:
    """A convolution of the input with zeros between its pixels, by the filter turned around."""
    operands = _Operands.of(operator, source=2, bias=3)
    source, weights, result = operands.source, operands.weights, operator.outputs[0]
    strides = (operator.options["StrideH"], operator.options["StrideW"])
    if len(source.shape) != 4 or len(weights.shape) != 4 or len(result.shape) != 4:
        raise UnsupportedError(f"filter {list(weights.shape)} for an input {list(source.shape)}")
    kernel = weights.shape[1:3]
    # The padding is that of the convolution from the result back to the input.
    top, left, *_ = paddings(operator, result.shape, (kernel[0], kernel[1]), strides)
    spread = _spread(graph, operator, source, strides)
    before = [kernel[0] - 1 - top, kernel[1] - 1 - left]
    behind = [
        result.shape[1 + d] - 1 + kernel[d] - spread.shape[1 + d] - before[d] for d in range(2)
    ]
    if min(before) < 0:
        raise UnsupportedError(f"a window {list(kernel)} smaller than its padding")
    rows, columns = (result.shape[1 + d] - min(behind[d], 0) for d in range(2))
    shape = (result.shape[0], rows, columns, result.shape[3])
    target = graph.target(result)
    made = target if shape == result.shape else graph.temporary(result, "whole", shape)
    pads = (before[0], before[1], max(behind[0], 0), max(behind[1], 0))
    filters = graph.held(weights)[:, ::-1, ::-1]
    window = _Window((kernel[0], kernel[1]), (1, 1), (1, 1), pads)
    _convolution(graph, operator, operands, filters, window, (made, spread), 1, 0)
    if made is not target:
        graph.add("extracttensor", operator, (target, made), Offsets=(0, 0, 0, 0))
    return Result()


def _spread(graph: Lowering, operator: Operator, source: Tensor, strides: tuple[int, int]) -> Value:
    """The input with ``stride - 1`` rows and columns of zeros behind each of its own."""
    value = graph.value(source)
    if strides == (1, 1):
        return value
    (images, rows, columns, channels), (down, across) = source.shape, strides
    wide = graph.temporary(source, "spread", (images, rows * down, columns * across, channels))
    graph.add("splat", operator, (wide,), Value=0.0)
    apart = graph.view(wide, (images * rows, down, columns, across, channels))
    pixels = graph.view(value, (images * rows, 1, columns, 1, channels))
    graph.add("inserttensor", operator, (apart, pixels), Offsets=(0,) * 5, Count=1, Axis=0)
    return wide


def fully_connected(graph: Lowering, operator: Operator) -> Result:
    """Weights [out, in]; the input is taken as rows of ``in``."""
    operands = _Operands.of(operator)
    source, weights = operands.source, operands.weights
    if operator.options["WeightsFormat"] != 0 or len(weights.shape) != 2:
        raise UnsupportedError(f"weights {list(weights.shape)} in another order")
    outs, ins = weights.shape
    elements = int(np.prod(source.shape))
    if ins == 0 or elements % ins:
        raise UnsupportedError(f"weights {list(weights.shape)} for an input {list(source.shape)}")
    result = operator.outputs[0]
    rows = graph.view(graph.value(source), (elements // ins, ins))
    flat = (elements // ins, outs)
    target = graph.target(result, flat)
    is_plain = activation_of(operator) == "NONE"
    made = target if is_plain else graph.temporary(result, "sum", flat)
    scales, zeros, bias = _parameters(graph, operator, operands, 0)
    if weights.scales.size == 1:
        kind = quantized("i8", (ins, outs), float(scales[0]), int(zeros[0]))
        values = graph.builder.constant(weights.name, graph.held(weights).T, kind)
        graph.add("fullyconnected", operator, (made, rows, values, bias))
    else:
        kind = quantized("i8", (outs, ins), 1.0, 0)
        values = graph.builder.constant(weights.name, graph.held(weights), kind)
        parameters = _vectors(graph, result.name, scales, zeros)
        graph.add(
            "rowwisequantizedfullyconnected", operator, (made, rows, values, bias, *parameters)
        )
    graph.activate(operator, made, target)
    return Result()


@attrs.frozen
class _Window:
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]


def _window(
    graph: Lowering,
    operator: Operator,
    operands: _Operands,
    filters: Array,
    groups: int,
    axis: int,
) -> Result:
    source, options = operands.source, operator.options
    kernel = (filters.shape[1], filters.shape[2])
    strides = (options["StrideH"], options["StrideW"])
    dilation = (options["DilationHFactor"], options["DilationWFactor"])
    more = graph.padding.get(source.index)
    pads = paddings(operator, source.shape, kernel, strides, dilation, more)
    window = _Window(kernel, strides, dilation, pads)
    sides = (graph.target(operator.outputs[0]), graph.value(source))
    _convolution(graph, operator, operands, filters, window, sides, groups, axis)
    return Result()


def _convolution(
    graph: Lowering,
    operator: Operator,
    operands: _Operands,
    filters: Array,
    window: _Window,
    sides: tuple[Value, Value],
    groups: int,
    axis: int,
) -> None:
    """``filters`` are OHWI; ``axis`` is that of the output channels in the file's weights."""
    name = activation_of(operator)
    scales, zeros, bias = _parameters(graph, operator, operands, axis)
    kind = quantized("i8", filters.shape, 1.0, 0)
    values = graph.builder.constant(operands.weights.name, filters, kind)
    base = operator.outputs[0].name
    fused: dict[str, AttributeValue] = {}
    if name != "NONE":
        fused["FusedActivation"] = "RELU" if name == "RELU" else "CLIP"
    if name in BOUNDS:
        fused["FusedActivationArgs"] = BOUNDS[name]
    graph.add(
        "channelwisequantizedconvolution",
        operator,
        (
            *sides,
            values,
            bias,
            *_vectors(graph, base, scales, zeros),
            *_bias_vectors(graph, base, operands.source, scales),
        ),
        Kernels=window.kernel,
        Strides=window.strides,
        Pads=window.pads,
        Group=groups,
        Dilation=window.dilation,
        **fused,
    )


def paddings(
    operator: Operator,
    shape: tuple[int, ...],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
    more: tuple[int, int, int, int] | None = None,
) -> tuple[int, int, int, int]:
    """Top, left, bottom, right of a window's padding; the odd one comes behind.

    Source: ``ComputePaddingWithOffset`` (tensorflow/lite/kernels/padding.h).
    """
    if min(*strides, *dilation, *kernel) < 1:
        raise UnsupportedError(f"strides {strides}, dilation {dilation}, window {kernel}")
    before, behind = [], []
    for size, window, stride, step in zip(shape[1:3], kernel, strides, dilation, strict=True):
        extent = (window - 1) * step + 1
        out = -(-size // stride) if operator.options["Padding"] == SAME else 0
        total = max((out - 1) * stride + extent - size, 0)
        before.append(total // 2)
        behind.append(total - total // 2)
    top, left, bottom, right = more or (0, 0, 0, 0)
    return before[0] + top, before[1] + left, behind[0] + bottom, behind[1] + right


def _parameters(
    graph: Lowering, operator: Operator, operands: _Operands, axis: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], Value]:
    """Scales and zero points of the weights, one an output channel, and the bias."""
    source, weights, bias = operands.source, operands.weights, operands.bias
    outs = weights.shape[axis]
    if weights.scales.size > 1 and weights.axis != axis:
        raise UnsupportedError(f"scales along dimension {weights.axis} of the weights")
    scales = np.broadcast_to(weights.scales, (outs,)).astype(np.float32)
    moved = UNSIGNED if weights.dtype == "uint8" else 0
    zeros = np.broadcast_to(weights.zero_points - moved, (outs,)).astype(np.int64)
    is_plain = operator.name == "FULLY_CONNECTED" and weights.scales.size == 1
    if weights.dtype == "uint8" and weights.scales.size > 1:
        raise UnsupportedError("uint8 weights with a scale for each channel")
    if weights.dtype != "uint8" and zeros.any() and not is_plain:  # TFLite ignores or refuses them
        raise UnsupportedError(f"{weights.dtype} weights with zero points")
    name = bias.name if bias else f"{operator.outputs[0].name}_bias"
    values = graph.constant_of(bias) if bias else np.zeros(outs, np.int32)
    if values.shape != (outs,) or values.dtype not in (np.int32, np.int64):
        raise UnsupportedError(f"a bias {list(values.shape)} of {values.dtype}")
    elem = "i64" if values.dtype == np.int64 else "i32"
    held = np.moveaxis(graph.held(weights), axis, 0)
    sizes = [np.abs(one.astype(float) - zero).sum() for one, zero in zip(held, zeros, strict=True)]
    _check_sums(graph, operator, operands, values, np.array(sizes))
    # On the scale of the sum, whatever its own says; 0 where there is one for each channel.
    product = np.float32(graph.scale(source)) * scales[0] if weights.scales.size == 1 else 0.0
    kind = quantized(elem, (outs,), float(product), 0)
    return scales, zeros, graph.builder.constant(name, values, kind)


def _check_sums(
    graph: Lowering,
    operator: Operator,
    operands: _Operands,
    bias: Array,
    sizes: npt.NDArray[np.float64],
) -> None:
    """Refuse sums for which TFLite's arithmetic is not defined, or not known.

    ``sizes`` are what the weights of an output channel add up to, each taken as positive.
    """
    source, weights = operands.source, operands.weights
    is_wide, is_connected = source.dtype == "int16", operator.name == "FULLY_CONNECTED"
    if is_wide and operands.bias is not None:
        declared = operator.options.get("QuantizedBiasType", 0) == _INT32
        if declared != (bias.dtype == np.int32):  # it would be read as one of the other type
            raise UnsupportedError(f"a bias of {bias.dtype}, where another type is declared")
        if declared and not is_connected:
            raise UnsupportedError("Int16 sums of 32 bits, which TFLite rounds twice")
    largest = sizes * (32768 if is_wide else 255) + np.abs(bias.astype(np.float64))
    factors = graph.scale(source) * weights.scales.astype(np.float64)
    factors = factors / graph.scale(operator.outputs[0])
    if is_wide or is_connected:
        check_rescaled(largest, factors)
    elif _leave_32_bits(largest, factors):
        raise UnsupportedError("sums that may leave 32 bits when they are shifted up")


def _leave_32_bits(largest: npt.NDArray[np.float64], factors: npt.NDArray[np.float64]) -> bool:
    """Whether sums may do so where a factor of 1 or more shifts them up before it is applied."""
    shifts = np.frexp(factors)[1]
    return bool(((largest * np.exp2(shifts) >= 1 << 31) & (shifts > 0)).any())


def check_rescaled(largest: npt.NDArray[np.float64], factors: Array) -> None:
    """Refuse sums that may leave 32 bits once they are rescaled: there TFLite wraps.

    Those of Int16, and of fully connected layers; each is wider than 32 bits until then.
    """
    if (largest * factors >= 1 << 31).any():
        raise UnsupportedError("sums on the result's scale that may leave 32 bits")


def _vectors(
    graph: Lowering, name: str, scales: npt.NDArray[np.float32], zeros: npt.NDArray[np.int64]
) -> tuple[Value, Value]:
    return (
        graph.builder.constant(f"{name}_scales", scales, TensorType("float", scales.shape)),
        graph.builder.constant(f"{name}_zero_points", zeros, TensorType("index32", zeros.shape)),
    )


def _bias_vectors(
    graph: Lowering, name: str, source: Tensor, scales: npt.NDArray[np.float32]
) -> tuple[Value, Value]:
    """TFLite's bias is on the scale of the sum, whatever its own scale says."""
    products = np.float32(graph.scale(source)) * scales
    return _vectors(graph, f"{name}_bias", products, np.zeros(scales.size, np.int64))
