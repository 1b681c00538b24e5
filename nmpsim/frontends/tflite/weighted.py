"""Translation of TFLite's convolutions and fully connected layers."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.graph.nodes import Array, QuantizedTensor, Shape
from nmpsim.frontends.graph.pooling import EXPLICIT
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.tflite.graph_builder import (
    TFLiteGraphBuilder,
    Translation,
    check_quantized,
    get_constant_values,
)
from nmpsim.frontends.tflite.model import TFLiteOperator, TFLiteTensor

SAME, VALID = 0, 1
_CHUNK_ELEMENTS = 1 << 15
"""Number of weights that are widened to 64 bits at once."""
_INT32 = 2
"""Number of the type in the schema."""
_TYPES = (("int8", "int8"), ("int8", "int4"), ("uint8", "uint8"), ("int16", "int8"))
"""Types of input and weights."""


@attrs.frozen
class _Operands:
    source: TFLiteTensor
    weights: TFLiteTensor
    bias: TFLiteTensor | None

    @classmethod
    def read(cls, operator: TFLiteOperator, source: int = 0, bias: int = 2) -> _Operands:
        """Return the inputs at these positions; weights are always the second one."""
        inputs = (*operator.inputs, None, None, None)
        read, weights = inputs[source], inputs[1]
        if read is None or weights is None:
            raise UnsupportedError(f"{len(operator.inputs)} inputs")
        check_quantized(read)
        check_quantized(weights)
        require(
            (read.dtype, weights.dtype) in _TYPES,
            f"{read.dtype} inputs with {weights.dtype} weights",
        )
        return cls(read, weights, inputs[bias])

    def check_fit(self, condition: bool) -> None:
        """Raise UnsupportedError unless a filter fits the image."""
        shapes = f"{list(self.weights.shape)} for an input of shape {list(self.source.shape)}"
        require(condition, f"filter {shapes}")

    def check_images(self) -> None:
        """Raise UnsupportedError unless input and weights have four dimensions."""
        self.check_fit(len(self.source.shape) == len(self.weights.shape) == 4)


def _conv_2d(builder: TFLiteGraphBuilder) -> None:
    operands = _Operands.read(builder.operator)
    operands.check_images()
    channels, depth = operands.source.shape[3], operands.weights.shape[3]
    operands.check_fit(depth > 0 and channels % depth == 0)
    filters = np.moveaxis(get_constant_values(operands.weights), -1, 1)
    _add_convolution(builder, operands, filters, channels // depth, 0)


def _depthwise_conv_2d(builder: TFLiteGraphBuilder) -> None:
    operands = _Operands.read(builder.operator)
    operands.check_images()
    channels = operands.source.shape[3]
    operands.check_fit(operands.weights.shape[3] % channels == 0)
    filters = get_constant_values(operands.weights).transpose(3, 0, 1, 2)
    _add_convolution(builder, operands, filters, channels, 3)


def _add_convolution(
    builder: TFLiteGraphBuilder, operands: _Operands, filters: Array, groups: int, axis: int
) -> None:
    """Add a convolution with filters OIHW; ``axis`` is that of their outputs in the file."""
    options, kernel = builder.options, (filters.shape[2], filters.shape[3])
    strides = (options["StrideH"], options["StrideW"])
    dilations = (options["DilationHFactor"], options["DilationWFactor"])
    pads = compute_window_pads(builder.operator, operands.source.shape, kernel, strides, dilations)
    is_valid = options["Padding"] == VALID  # a node before it may become its padding
    _add_weighted(
        builder,
        "Conv",
        operands,
        filters,
        axis,
        strides=strides,
        dilations=dilations,
        group=groups,
        auto_pad="VALID" if is_valid else EXPLICIT,
        pads=None if is_valid else pads,
    )


def _transpose_conv(builder: TFLiteGraphBuilder) -> None:
    operator, result = builder.operator, builder.result
    operands = _Operands.read(operator, source=2, bias=3)
    strides = (operator.options["StrideH"], operator.options["StrideW"])
    operands.check_images()
    operands.check_fit(len(result.shape) == 4)
    kernel = (operands.weights.shape[1], operands.weights.shape[2])
    # The padding is that of the convolution from the result back to the input.
    top, left, *_ = compute_window_pads(operator, result.shape, kernel, strides)
    extra = [
        result.shape[1 + d] + before - (operands.source.shape[1 + d] - 1) * strides[d] - kernel[d]
        for d, before in enumerate((top, left))
    ]
    filters = get_constant_values(operands.weights).transpose(3, 0, 1, 2)
    _add_weighted(
        builder,
        "ConvTranspose",
        operands,
        filters,
        0,
        strides=strides,
        pads=(top, left, *(max(-one, 0) for one in extra)),
        output_padding=tuple(max(one, 0) for one in extra),
    )


def _fully_connected(builder: TFLiteGraphBuilder) -> None:
    operands = _Operands.read(builder.operator)
    source, weights = operands.source, operands.weights
    require(
        builder.options["WeightsFormat"] == 0 and len(weights.shape) == 2,
        f"weights of shape {list(weights.shape)} in a shuffled format",
    )
    ins, elements = weights.shape[1], math.prod(source.shape)
    require(
        ins > 0 and elements % ins == 0,
        f"weights of shape {list(weights.shape)} for an input of shape {list(source.shape)}",
    )
    _add_weighted(
        builder,
        "Gemm",
        operands,
        get_constant_values(weights),
        0,
        transB=1,
        rows=(elements // ins, ins),
        shape=builder.result.shape,
    )


def _add_weighted(
    builder: TFLiteGraphBuilder,
    kind: str,
    operands: _Operands,
    values: Array,
    axis: int,
    **attributes: Any,
) -> None:
    """Add a weighted operator.

    Parameters
    ----------
    builder : TFLiteGraphBuilder
        The graph under construction.
    kind : str
        ONNX name of the operator.
    operands : _Operands
        Inputs of the TFLite operator.
    values : ndarray
        Weights in ONNX's order.
    axis : int
        Axis of the outputs in the file's weights.
    **attributes
        Attributes of the ONNX operator.
    """
    source, weights, bias = operands.source, operands.weights, operands.bias
    outs, has_one_scale = weights.shape[axis], weights.scales.size == 1
    require(
        has_one_scale or weights.axis == axis,
        f"scales along dimension {weights.axis} of the weights",
    )
    is_plain = builder.operator.name == "FULLY_CONNECTED" and has_one_scale
    require(
        weights.dtype != "uint8" or has_one_scale, "uint8 weights with a scale for each channel"
    )
    # TFLite ignores zero points of other types.
    require(
        weights.dtype == "uint8" or is_plain or not weights.zero_points.any(),
        f"{weights.dtype} weights with zero points",
    )
    added = get_constant_values(bias) if bias else np.zeros(outs, np.int32)
    require(
        added.shape == (outs,) and added.dtype in (np.int32, np.int64),
        f"a bias of shape {list(added.shape)} of {added.dtype}",
    )
    sizes = _absolute_sums(get_constant_values(weights), weights.zero_points, axis)
    _check_sums(builder, operands, added, sizes)
    dtype = weights.dtype.replace("int4", "int8")
    quantized = QuantizedTensor("", dtype, weights.scales, weights.zero_points)
    names = (builder.get_name(source), builder.add_constant(weights.name, values, quantized))
    bias_name = builder.add_constant(bias.name, added, str(added.dtype)) if bias else ""
    limits = builder.limits
    builder.add_integer_operation(kind, names, bias=bias_name, limits=limits, **attributes)


def _absolute_sums(values: Array, zeros: Array, axis: int) -> npt.NDArray[np.float64]:
    """Return the sum of the absolute weights, minus their zero point, for each output channel."""
    rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    sums, step = np.empty(len(rows)), max(1, _CHUNK_ELEMENTS // max(rows.shape[1], 1))
    offsets = np.broadcast_to(zeros, (len(rows),)).astype(np.int64)[:, None]
    for first in range(0, len(rows), step):
        some = slice(first, first + step)
        sums[some] = np.abs(rows[some].astype(np.int64) - offsets[some]).sum(axis=1)
    return sums


def _check_sums(
    builder: TFLiteGraphBuilder, operands: _Operands, bias: Array, sizes: npt.NDArray[np.float64]
) -> None:
    """Raise UnsupportedError for sums for which TFLite's arithmetic is undefined or unknown.

    ``sizes`` are the absolute sums of the weights of each output channel.
    """
    source, weights = operands.source, operands.weights
    is_wide, is_connected = source.dtype == "int16", builder.operator.name == "FULLY_CONNECTED"
    if is_wide and operands.bias is not None:
        declared = builder.options.get("QuantizedBiasType", 0) == _INT32
        is_declared = declared == (bias.dtype == np.int32)  # else it would be read as another type
        require(is_declared, f"a bias of {bias.dtype}, where another type is declared")
        require(is_connected or not declared, "Int16 sums of 32 bits, which TFLite rounds twice")
    largest = sizes * (32768 if is_wide else 255) + np.abs(bias.astype(np.float64))
    factors = builder.get_tensor_quantization(source).scale * weights.scales.astype(np.float64)
    factors = factors / builder.get_tensor_quantization(builder.result).scale
    if is_wide or is_connected:
        check_rescaled_sums(largest, factors)
    else:
        shifts = np.frexp(factors)[1]  # a factor of 1 or more shifts the sum up before
        is_narrow = (largest * np.exp2(shifts) < 1 << 31) | (shifts <= 0)
        require(is_narrow.all(), "sums that may exceed 32 bits when shifted left")


def check_rescaled_sums(largest: npt.NDArray[np.float64], factors: Array) -> None:
    """Raise UnsupportedError if a rescaled sum may exceed 32 bits, where TFLite overflows.

    This concerns Int16 and fully connected layers, whose sums are wider until then.
    """
    require(
        (largest * factors < 1 << 31).all(), "sums that may exceed 32 bits on the result's scale"
    )


def compute_window_pads(
    operator: TFLiteOperator,
    shape: Shape,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
) -> tuple[int, int, int, int]:
    """Return top, left, bottom and right padding of a window by TFLite's rules.

    Source: ``ComputePaddingWithOffset`` (tensorflow/lite/kernels/padding.h).
    """
    require(
        min(*strides, *dilation, *kernel) > 0,
        f"strides {strides}, dilation {dilation}, window {kernel}",
    )
    before, after = [], []
    for size, window, stride, step in zip(shape[1:3], kernel, strides, dilation, strict=True):
        extent = (window - 1) * step + 1
        out = -(-size // stride) if operator.options["Padding"] == SAME else 0
        total = max((out - 1) * stride + extent - size, 0)
        before.append(total // 2)
        after.append(total - total // 2)
    return before[0], before[1], after[0], after[1]


OPERATORS: dict[str, Translation] = {
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise_conv_2d,
    "FULLY_CONNECTED": _fully_connected,
    "TRANSPOSE_CONV": _transpose_conv,
}
