"""Lowering of TFLite's convolutions and matrix products."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.graph.convolution import (
    emit_integer_convolution,
    emit_transposed_convolution,
    read_padded_window,
)
from nmpsim.frontends.graph.matmul import emit_integer_fully_connected, emit_integer_matmul
from nmpsim.frontends.graph.nodes import Array
from nmpsim.frontends.graph.operation import GraphLowering, LoweringResult
from nmpsim.frontends.graph.windows import read_window
from nmpsim.frontends.imported_model import require

_CHUNK_ELEMENTS = 1 << 15
"""Number of weights that are widened to 64 bits at once."""
_INT32 = 2
"""Number of the type in the schema."""
_TYPES = (("int8", "int8"), ("int8", "int4"), ("uint8", "uint8"), ("int16", "int8"))
"""Types of input and weights."""


def lower_convolution(
    op: GraphLowering, *, strides: Any, dilations: Any, auto_pad: str
) -> LoweringResult:
    """Lower CONV_2D or DEPTHWISE_CONV_2D."""
    channels = op.get_shape()[3]
    if op.kind == "CONV_2D":
        filters = _read_weights(op, 0)
        groups = channels // filters.shape[3]
    else:
        filters, groups = _read_weights(op, 3).transpose(3, 1, 2, 0), channels
    window = read_padded_window(
        op, filters.shape[1:3], strides=strides, dilations=dilations, auto_pad=auto_pad
    )
    return emit_integer_convolution(op, op.read_operand(), filters, window, groups)


def lower_transposed_convolution(
    op: GraphLowering, *, strides: Any, auto_pad: str
) -> LoweringResult:
    """Lower TRANSPOSE_CONV with the padding of the corresponding forward convolution."""
    filters, (_, rows, columns, _) = _read_weights(op, 0), op.declared_shape
    kernel, out = filters.shape[1:3], (rows, columns)
    window = read_window(out, kernel, strides=strides, auto_pad=auto_pad)
    window = attrs.evolve(window, out=out)
    return emit_transposed_convolution(op, op.read_operand(), filters[:, ::-1, ::-1], window, 1)


def lower_fully_connected(op: GraphLowering, *, weights_format: int) -> LoweringResult:
    """Lower FULLY_CONNECTED with constant weights."""
    weights = _read_weights(op, 0)
    require(weights_format == 0, f"weights_format {weights_format}", "weights_format 0 (DEFAULT)")
    ins = weights.shape[1]
    rows = op.make_view(op.read_operand(), (math.prod(op.get_shape()) // ins, ins))
    return op.make_view(emit_integer_fully_connected(op, rows, weights.T), op.declared_shape)


def lower_batch_matmul(
    op: GraphLowering, *, adj_x: bool = False, adj_y: bool = False
) -> LoweringResult:
    """Lower BATCH_MATMUL; transpose the last two dimensions if ``adj_x`` or ``adj_y`` is set."""
    left, right = op.sources
    found = f"operands of {left.dtype} and {right.dtype}"
    require(left.dtype == right.dtype, found, "operands of one type")
    operands = [
        op.swap_with_last(op.read_operand(index), len(op.get_shape(index)) - 2)
        if flag
        else op.read_operand(index)
        for index, flag in enumerate((adj_x, adj_y))
    ]
    if left.dtype == "int16":
        largest = np.full(1, 32768.0**2 * operands[0].shape[-1])
        _check_rescaled_sums(op, largest, right.scales)
    return emit_integer_matmul(op, *operands)


def _read_weights(op: GraphLowering, axis: int) -> Array:
    """Return the constant weights, whose outputs are along ``axis``, and set the bias.

    Raises
    ------
    UnsupportedError
        For types and scales that TFLite does not have, and for sums for which its arithmetic is
        undefined or unknown.
    """
    source, weights = op.sources
    values, has_one_scale = op.get_constant(weights.name), weights.scales.size == 1
    is_connected, is_wide = op.kind == "FULLY_CONNECTED", source.dtype == "int16"
    require(
        (source.dtype, weights.dtype) in _TYPES,
        f"{source.dtype} inputs with {weights.dtype} weights",
        "int8 inputs with int8 or int4 weights, uint8 with uint8, or int16 with int8",
    )
    require(
        has_one_scale or weights.axis == axis,
        f"weight scales along dimension {weights.axis}",
        f"scales along dimension {axis}, the output channels",
    )
    # TFLite ignores zero points of other types.
    has_zero_points = weights.dtype == "uint8" or (is_connected and has_one_scale)
    require(
        has_zero_points or not weights.zero_points.any(),
        f"{weights.dtype} weights with zero points from {weights.zero_points.min()} to"
        f" {weights.zero_points.max()}",
        "zero points of 0",
    )
    require(
        weights.dtype != "uint8" or has_one_scale,
        f"uint8 weights with {weights.scales.size} scales",
        "uint8 weights with one scale",
    )
    sums = _absolute_sums(values, weights.zero_points, axis) * (32768 if is_wide else 255)
    op.sources = (source, attrs.evolve(weights, dtype=weights.dtype.replace("int4", "int8")))
    op.bias = op.node.get_input(3 if op.kind == "TRANSPOSE_CONV" else 2)
    if op.bias:
        bias = op.get_constant(op.bias)
        found = f"a bias of shape {list(bias.shape)}"
        require(bias.shape == sums.shape, found, f"a bias of shape {list(sums.shape)}")
        sums += np.abs(bias.astype(np.float64))
        if is_wide:
            declared = op.node.attributes.get("quantized_bias_type", 0) == _INT32
            is_declared = declared == (bias.dtype == np.int32)  # else it would be read as another
            require(
                is_declared,
                f"a bias of {bias.dtype}",
                f"a bias of {'int32' if declared else 'int64'}, as quantized_bias_type declares",
            )
            require(
                is_connected or not declared,
                "an int32 bias of int16 inputs, whose sums TFLite rounds twice",
                "an int64 bias",
            )
    if is_wide or is_connected:
        _check_rescaled_sums(op, sums, weights.scales)
    else:
        # A sum is shifted up first if its factor is 1 or more.
        shifts = np.frexp(_factors(op, weights.scales))[1]
        is_narrow = (sums * np.exp2(shifts) < 1 << 31) | (shifts <= 0)
        largest = (sums * np.exp2(shifts)).max()
        found = f"sums of up to {largest:,.0f} after the shift to the left"
        require(is_narrow.all(), found, f"sums below {1 << 31:,}")
    return op.to_signed(values)


def _absolute_sums(values: Array, zeros: Array, axis: int) -> npt.NDArray[np.float64]:
    """Return the sum of the absolute weights, minus their zero point, for each output channel."""
    rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    sums, step = np.empty(len(rows)), max(1, _CHUNK_ELEMENTS // max(rows.shape[1], 1))
    offsets = np.broadcast_to(zeros, (len(rows),)).astype(np.int64)[:, None]
    for first in range(0, len(rows), step):
        some = slice(first, first + step)
        sums[some] = np.abs(rows[some].astype(np.int64) - offsets[some]).sum(axis=1)
    return sums


def _factors(op: GraphLowering, scales: Array) -> Array:
    """Return the factors from sums to the result for these scales of the second operand."""
    return op.sources[0].scale * scales.astype(np.float64) / op.quantized_result.scale


def _check_rescaled_sums(op: GraphLowering, largest: Array, scales: Array) -> None:
    """Raise UnsupportedError if a rescaled sum may exceed 32 bits, where TFLite overflows.

    This concerns Int16 and fully connected layers, whose sums are wider until then.
    """
    rescaled = largest * _factors(op, scales)
    found = f"sums that may reach {rescaled.max():,.0f} with the scale of the result"
    require((rescaled < 1 << 31).all(), found, f"sums below {1 << 31:,}")
