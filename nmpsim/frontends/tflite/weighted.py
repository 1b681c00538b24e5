"""Operators with weights: convolutions and fully connected layers."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.graph.nodes import Array, QuantizedTensor
from nmpsim.frontends.graph.pooling import EXPLICIT
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.tflite.graph_builder import TFLiteGraphBuilder, kind_of, values_of
from nmpsim.frontends.tflite.model import Operator, Tensor

SAME, VALID = 0, 1
_AT_ONCE = 1 << 15
"""Weights that are widened to 64 bits at once."""
_INT32 = 2
"""Among the schema's types of tensors."""
_KINDS = (("int8", "int8"), ("int8", "int4"), ("uint8", "uint8"), ("int16", "int8"))


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

    def check_images(self) -> None:
        """Refuse what is no image with a filter of four dimensions."""
        if len(self.source.shape) != 4 or len(self.weights.shape) != 4:
            raise self.unfit()

    def unfit(self) -> UnsupportedError:
        """The error that the filter does not fit the input."""
        shapes = f"{list(self.weights.shape)} for an input {list(self.source.shape)}"
        return UnsupportedError(f"filter {shapes}")


def conv_2d(builder: TFLiteGraphBuilder) -> None:
    """Filter OHWI, one input channel for each group of filters."""
    operands = _Operands.of(builder.operator)
    operands.check_images()
    channels, depth = operands.source.shape[3], operands.weights.shape[3]
    if depth == 0 or channels % depth:
        raise operands.unfit()
    filters = np.moveaxis(values_of(operands.weights), -1, 1)
    _window(builder, operands, filters, channels // depth, 0)


def depthwise_conv_2d(builder: TFLiteGraphBuilder) -> None:
    """Filter [1, kh, kw, channels * multiplier]: a group for each channel."""
    operands = _Operands.of(builder.operator)
    operands.check_images()
    channels = operands.source.shape[3]
    if operands.weights.shape[3] % channels:
        raise operands.unfit()
    filters = values_of(operands.weights).transpose(3, 0, 1, 2)
    _window(builder, operands, filters, channels, 3)


def _window(
    builder: TFLiteGraphBuilder, operands: _Operands, filters: Array, groups: int, axis: int
) -> None:
    """``filters`` are OIHW; ``axis`` is that of the output channels in the file's weights."""
    options, kernel = builder.operator.options, (filters.shape[2], filters.shape[3])
    strides = (options["StrideH"], options["StrideW"])
    dilations = (options["DilationHFactor"], options["DilationWFactor"])
    pads = paddings(builder.operator, operands.source.shape, kernel, strides, dilations)
    is_valid = options["Padding"] == VALID  # what was padded before it can be its own padding
    _weighted(
        builder,
        "Conv",
        operands,
        filters,
        axis,
        strides=strides,
        dilations=dilations,
        group=groups,
        **({"auto_pad": "VALID"} if is_valid else {"auto_pad": EXPLICIT, "pads": pads}),
    )


def transpose_conv(builder: TFLiteGraphBuilder) -> None:
    """A convolution of the input with zeros between its pixels, by the filter turned around."""
    operator, result = builder.operator, builder.result
    operands = _Operands.of(operator, source=2, bias=3)
    strides = (operator.options["StrideH"], operator.options["StrideW"])
    operands.check_images()
    if len(result.shape) != 4:
        raise operands.unfit()
    kernel = (operands.weights.shape[1], operands.weights.shape[2])
    # The padding is that of the convolution from the result back to the input.
    top, left, *_ = paddings(operator, result.shape, kernel, strides)
    more = [
        result.shape[1 + d] + before - (operands.source.shape[1 + d] - 1) * strides[d] - kernel[d]
        for d, before in enumerate((top, left))
    ]
    pads = (top, left, *(max(-one, 0) for one in more))
    added = tuple(max(one, 0) for one in more)
    filters = values_of(operands.weights).transpose(3, 0, 1, 2)
    _weighted(
        builder,
        "ConvTranspose",
        operands,
        filters,
        0,
        strides=strides,
        pads=pads,
        output_padding=added,
    )


def fully_connected(builder: TFLiteGraphBuilder) -> None:
    """Weights [out, in]; the input is taken as rows of ``in``."""
    operands = _Operands.of(builder.operator)
    source, weights, result = operands.source, operands.weights, builder.result
    if builder.operator.options["WeightsFormat"] != 0 or len(weights.shape) != 2:
        raise UnsupportedError(f"weights {list(weights.shape)} in another order")
    ins = weights.shape[1]
    elements = math.prod(source.shape)
    if ins == 0 or elements % ins:
        raise UnsupportedError(f"weights {list(weights.shape)} for an input {list(source.shape)}")
    _weighted(
        builder,
        "Gemm",
        operands,
        values_of(weights),
        0,
        transB=1,
        rows=(elements // ins, ins),
        shape=result.shape,
    )


def _weighted(
    builder: TFLiteGraphBuilder,
    kind: str,
    operands: _Operands,
    values: Array,
    axis: int,
    **attributes: Any,
) -> None:
    """``values`` are the weights as ONNX has them; ``axis`` is as of ``_window``."""
    source, weights, bias = operands.source, operands.weights, operands.bias
    outs = weights.shape[axis]
    if weights.scales.size > 1 and weights.axis != axis:
        raise UnsupportedError(f"scales along dimension {weights.axis} of the weights")
    is_connected = builder.operator.name == "FULLY_CONNECTED"
    is_plain = is_connected and weights.scales.size == 1
    if weights.dtype == "uint8" and weights.scales.size > 1:
        raise UnsupportedError("uint8 weights with a scale for each channel")
    if weights.dtype != "uint8" and weights.zero_points.any() and not is_plain:
        raise UnsupportedError(f"{weights.dtype} weights with zero points")  # TFLite ignores them
    added = values_of(bias) if bias else np.zeros(outs, np.int32)
    if added.shape != (outs,) or added.dtype not in (np.int32, np.int64):
        raise UnsupportedError(f"a bias {list(added.shape)} of {added.dtype}")
    _check_sums(builder, operands, added, _sizes(values_of(weights), weights.zero_points, axis))
    dtype = weights.dtype.replace("int4", "int8")
    held = QuantizedTensor("", dtype, weights.scales, weights.zero_points)
    sources = (builder.name(source), builder.add_constant(weights.name, values, held))
    bias_name = builder.add_constant(bias.name, added, str(added.dtype)) if bias else ""
    builder.add_integer_operation(
        kind, sources, bias=bias_name, limits=builder.limits, **attributes
    )


def _sizes(values: Array, zeros: Array, axis: int) -> npt.NDArray[np.float64]:
    """What the weights of each output channel add up to, each less its zero point, positive."""
    held = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    sizes, step = np.empty(len(held)), max(1, _AT_ONCE // max(held.shape[1], 1))
    offsets = np.broadcast_to(zeros, (len(held),)).astype(np.int64)[:, None]
    for first in range(0, len(held), step):
        some = slice(first, first + step)
        sizes[some] = np.abs(held[some].astype(np.int64) - offsets[some]).sum(axis=1)
    return sizes


def _check_sums(
    builder: TFLiteGraphBuilder,
    operands: _Operands,
    bias: Array,
    sizes: npt.NDArray[np.float64],
) -> None:
    """Refuse sums for which TFLite's arithmetic is not defined, or not known.

    ``sizes`` are what the weights of an output channel add up to, each taken as positive.
    """
    operator = builder.operator
    source, weights = operands.source, operands.weights
    is_wide, is_connected = source.dtype == "int16", operator.name == "FULLY_CONNECTED"
    if is_wide and operands.bias is not None:
        declared = operator.options.get("QuantizedBiasType", 0) == _INT32
        if declared != (bias.dtype == np.int32):  # it would be read as one of the other type
            raise UnsupportedError(f"a bias of {bias.dtype}, where another type is declared")
        if declared and not is_connected:
            raise UnsupportedError("Int16 sums of 32 bits, which TFLite rounds twice")
    largest = sizes * (32768 if is_wide else 255) + np.abs(bias.astype(np.float64))
    factors = builder.parameters(source).scale * weights.scales.astype(np.float64)
    factors = factors / builder.parameters(builder.result).scale
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


def paddings(
    operator: Operator,
    shape: tuple[int, ...],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
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
    return before[0], before[1], behind[0], behind[1]
