"""Lowering of TFLite's pools and reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nmpsim.frontends.graph.convolution import emit_integer_convolution
from nmpsim.frontends.graph.integer_ops import make_unsigned_attribute
from nmpsim.frontends.graph.nodes import QuantizedTensor
from nmpsim.frontends.graph.operation import GraphLowering, LoweringResult, normalize_axis
from nmpsim.frontends.graph.pooling import emit_pool
from nmpsim.frontends.graph.windows import Window, read_window
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import BuilderTensor


def lower_pool(
    op: GraphLowering, *, opcode: str, kernel_shape: Any, strides: Any, auto_pad: str
) -> LoweringResult:
    """Lower MAX_POOL_2D, or AVERAGE_POOL_2D, which averages without padding."""
    value = op.read_operand()
    window = read_window(
        value.shape[1:-1], kernel_shape=kernel_shape, strides=strides, auto_pad=auto_pad
    )
    words = {"CountIncludePads": 0, **make_unsigned_attribute(op)} if opcode == "avgpool" else {}
    return op.emit_fused_clip(emit_pool(op, opcode, value, window, **words))


def lower_mean(op: GraphLowering) -> LoweringResult:
    """Lower MEAN to an average pool."""
    rows = _read_rows(op)
    mean = emit_pool(op, "avgpool", rows, _row_window(rows), CountIncludePads=1)
    return op.make_view(mean, op.declared_shape)


def lower_maximum(op: GraphLowering) -> LoweringResult:
    """Lower REDUCE_MAX to a max pool."""
    rows = _read_rows(op)
    return op.make_view(emit_pool(op, "maxpool", rows, _row_window(rows)), op.declared_shape)


def lower_sum(op: GraphLowering) -> LoweringResult:
    """Lower SUM to a convolution with weights of 1.

    Source: ``QuantizedMeanOrSum`` (internal/reference/reduce.h). LiteRT 2.3's kernels read Int8 as
    uint8, and sums of Int16 from memory that nothing writes.
    """
    dtype = op.sources[0].dtype
    found = f"a sum of {dtype}, which TFLite's kernels compute wrongly"
    require(dtype == "uint8", found, "a sum of uint8")
    rows = _read_rows(op)
    window, channels = _row_window(rows), rows.shape[3]
    ones = QuantizedTensor(f"{op.name}_ones", "int8", np.ones(1, np.float32), np.zeros(1, np.int64))
    op.sources = (op.sources[0], ones)
    filters = np.ones((channels, *window.kernel, 1), np.int8)
    return op.make_view(
        emit_integer_convolution(op, rows, filters, window, channels), op.declared_shape
    )


def lower_arg_max(op: GraphLowering, *, opcode: str) -> LoweringResult:
    """Lower ARG_MAX or ARG_MIN."""
    value, (axis,) = op.read_operand(), op.get_integers(1)
    axis = normalize_axis(axis, value.shape)
    return op.emit_result(opcode, value, shape=op.declared_shape, Axis=axis, KeepDims=0)


def _read_rows(op: GraphLowering) -> BuilderTensor:
    """Return the input as an image [outer, rows, 1, inner] whose rows are reduced."""
    value, rank, given = op.read_operand(), len(op.get_shape()), op.get_integers(1)
    reduced = sorted({axis % rank for axis in given if -rank <= axis < rank})
    require(reduced, f"axes {given}", f"at least one axis from {-rank} to {rank - 1}")
    first, last = reduced[0], reduced[-1] + 1
    if last - first != len(reduced):
        order = (*(axis for axis in range(rank) if axis not in reduced), *reduced)
        value, first, last = op.emit_transpose(value, order), rank - len(reduced), rank
    parts = value.shape[:first], value.shape[first:last], value.shape[last:]
    outer, rows, inner = map(math.prod, parts)
    return op.make_view(value, (outer, rows, 1, inner))


def _row_window(image: BuilderTensor) -> Window:
    """Return the window over all rows of an image."""
    return Window((image.shape[1], 1))
