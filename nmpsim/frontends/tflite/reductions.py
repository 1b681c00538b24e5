"""Operators that reduce dimensions: means, sums, extremes and their places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import Quantized
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.tflite.drawing import Drawing, check_alike, dimension

Draw = Callable[[Drawing], None]
Shape = tuple[int, ...]


def mean(drawing: Drawing) -> None:
    """An average over the rows of a window that covers the dimensions."""
    source, rows = _as_rows(drawing)
    views, window = _window(rows)
    drawing.instruction("avgpool", [source], views=views, **window, CountIncludePads=1)


def reduce_max(drawing: Drawing) -> None:
    """The largest of the rows of such a window."""
    check_alike(*drawing.quantized(1), drawing.result)
    source, rows = _as_rows(drawing)
    views, window = _window(rows)
    drawing.instruction("maxpool", [source], views=views, **window)


def sum_(drawing: Drawing) -> None:
    """A convolution with ones.

    Source: ``QuantizedMeanOrSum`` (internal/reference/reduce.h). LiteRT 2.3's kernels take Int8 as
    uint8, and sums of Int16 from a place that nothing writes.
    """
    (source,), result = drawing.quantized(1), drawing.result
    if source.dtype != "uint8":
        raise UnsupportedError(f"a sum of {source.dtype}, which TFLite's kernels get wrong")
    name, (outer, rows, _, channels) = _as_rows(drawing)
    image = drawing.temporary(source, "rows", (outer, rows, 1, channels))
    drawing.add("Reshape", [name], image, shape=(outer, rows, 1, channels))
    one, zero = np.ones(1, np.float32), np.zeros(1, np.int64)
    ones = np.ones((channels, 1, rows, 1), np.int8)
    weights = drawing.constant(f"{result.name}_ones", ones, Quantized("", "int8", one, zero))
    made = drawing.temporary(result, "sums", (outer, 1, 1, channels))
    drawing.computed("Conv", (image, weights), made, group=channels)
    drawing.add("Reshape", [made], shape=result.shape, allowzero=1)


def extreme(opcode: str) -> Draw:
    """The place of the largest or smallest value along a dimension; on the host."""

    def draw(drawing: Drawing) -> None:
        (source,) = drawing.quantized(1)
        axis = dimension(drawing.integers(1), len(source.shape))
        drawing.instruction(opcode, [drawing.name(source)], Axis=axis, KeepDims=0)

    return draw


def _as_rows(drawing: Drawing) -> tuple[str, Shape]:
    """The input, and its shape as [outer, rows, 1, inner]: what is reduced are the rows."""
    (source,) = drawing.quantized(1)
    name, shape, rank = drawing.name(source), source.shape, len(source.shape)
    given = drawing.integers(1)
    reduced = sorted({axis % rank for axis in given if -rank <= axis < rank})
    if not reduced:
        raise UnsupportedError(f"axes {given}")
    first, last = reduced[0], reduced[-1] + 1
    if reduced != list(range(first, last)):
        order = (*(axis for axis in range(rank) if axis not in reduced), *reduced)
        shape = tuple(shape[axis] for axis in order)
        turned = drawing.temporary(source, "turned", shape)
        name = drawing.instruction("transpose", [name], turned, Shuffle=order)
        first, last = rank - len(reduced), rank
    outer, rows, inner = (
        math.prod(part) for part in (shape[:first], shape[first:last], shape[last:])
    )
    return name, (outer, rows, 1, inner)


def _window(shape: Shape) -> tuple[tuple[Shape, Shape], dict[str, Any]]:
    """Views of result and input, and the window over all rows."""
    views = ((shape[0], 1, *shape[2:]), shape)
    return views, {"Kernels": (shape[1], 1), "Strides": (1, 1), "Pads": (0, 0, 0, 0)}
