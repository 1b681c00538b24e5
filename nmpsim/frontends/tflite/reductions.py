"""Operators that reduce dimensions: means, sums, extremes and their places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import QuantizedTensor
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.tflite.graph_builder import TFLiteGraphBuilder, check_alike, dimension

Draw = Callable[[TFLiteGraphBuilder], None]
Shape = tuple[int, ...]


def mean(builder: TFLiteGraphBuilder) -> None:
    """An average over the rows of a window that covers the dimensions."""
    source, rows = _as_rows(builder)
    views, window = _window(rows)
    builder.add_instruction("avgpool", [source], views=views, **window, CountIncludePads=1)


def reduce_max(builder: TFLiteGraphBuilder) -> None:
    """The largest of the rows of such a window."""
    check_alike(*builder.quantized(1), builder.result)
    source, rows = _as_rows(builder)
    views, window = _window(rows)
    builder.add_instruction("maxpool", [source], views=views, **window)


def sum_(builder: TFLiteGraphBuilder) -> None:
    """A convolution with ones.

    Source: ``QuantizedMeanOrSum`` (internal/reference/reduce.h). LiteRT 2.3's kernels take Int8 as
    uint8, and sums of Int16 from a place that nothing writes.
    """
    (source,), result = builder.quantized(1), builder.result
    if source.dtype != "uint8":
        raise UnsupportedError(f"a sum of {source.dtype}, which TFLite's kernels get wrong")
    name, (outer, rows, _, channels) = _as_rows(builder)
    image = builder.temporary(source, "rows", (outer, rows, 1, channels))
    builder.add("Reshape", [name], image, shape=(outer, rows, 1, channels))
    one, zero = np.ones(1, np.float32), np.zeros(1, np.int64)
    ones = np.ones((channels, 1, rows, 1), np.int8)
    weights = builder.add_constant(
        f"{result.name}_ones", ones, QuantizedTensor("", "int8", one, zero)
    )
    made = builder.temporary(result, "sums", (outer, 1, 1, channels))
    builder.add_integer_operation("Conv", (image, weights), made, group=channels)
    builder.add("Reshape", [made], shape=result.shape, allowzero=1)


def extreme(opcode: str) -> Draw:
    """The place of the largest or smallest value along a dimension; on the host."""

    def draw(builder: TFLiteGraphBuilder) -> None:
        (source,) = builder.quantized(1)
        axis = dimension(builder.integers(1), len(source.shape))
        builder.add_instruction(opcode, [builder.name(source)], Axis=axis, KeepDims=0)

    return draw


def _as_rows(builder: TFLiteGraphBuilder) -> tuple[str, Shape]:
    """The input, and its shape as [outer, rows, 1, inner]: what is reduced are the rows."""
    (source,) = builder.quantized(1)
    name, shape, rank = builder.name(source), source.shape, len(source.shape)
    given = builder.integers(1)
    reduced = sorted({axis % rank for axis in given if -rank <= axis < rank})
    if not reduced:
        raise UnsupportedError(f"axes {given}")
    first, last = reduced[0], reduced[-1] + 1
    if reduced != list(range(first, last)):
        order = (*(axis for axis in range(rank) if axis not in reduced), *reduced)
        shape = tuple(shape[axis] for axis in order)
        turned = builder.temporary(source, "turned", shape)
        name = builder.add_instruction("transpose", [name], turned, Shuffle=order)
        first, last = rank - len(reduced), rank
    outer, rows, inner = (
        math.prod(part) for part in (shape[:first], shape[first:last], shape[last:])
    )
    return name, (outer, rows, 1, inner)


def _window(shape: Shape) -> tuple[tuple[Shape, Shape], dict[str, Any]]:
    """Views of result and input, and the window over all rows."""
    views = ((shape[0], 1, *shape[2:]), shape)
    return views, {"Kernels": (shape[1], 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0)}
