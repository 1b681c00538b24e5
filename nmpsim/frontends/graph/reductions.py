"""Steps that make one number of many, or of a row: means, sums, extremes, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN
from nmpsim.frontends.graph.movement import axes_of
from nmpsim.frontends.graph.operation import Made, Operation
from nmpsim.frontends.imported_model import UnsupportedError

Lower = Callable[[Operation], Made]


def reduction(opcode: str) -> Lower:
    """Along dimensions, which are moved to the end."""

    def lower(op: Operation) -> Made:
        shape = op.shape()
        axes = axes_of(op, len(shape))
        is_noop = not axes and bool(op.attributes.get("noop_with_empty_axes"))
        if op.sources and (op.limits is not None or is_noop):
            raise UnsupportedError("a clip of a mean, or no dimensions")
        if is_noop:
            return op.viewed(shape)
        op.read()
        return _reduced(op, opcode, sorted(set(axes or range(len(shape)))))

    return lower


def _reduced(op: Operation, opcode: str, gone: list[int]) -> Value:
    shape, stays = op.shape(), bool(op.attributes.get("keepdims", 1))
    left = tuple(1 if a in gone else d for a, d in enumerate(shape) if stays or a not in gone)
    if opcode == "avgpool" and len(shape) == 4 and gone == [2, 3]:
        # Of each channel, where channels come last: the device has that.
        made = _average(op, op.read(0, LAST), shape[2:])
        op.layout = LAST if stays else PLAIN
        return op.view(made, op.held(left))
    kept = [axis for axis in range(len(shape)) if axis not in gone]
    value, order = op.read(0, PLAIN), (*kept, *gone)
    if [axis for axis in order if shape[axis] > 1] != [a for a in sorted(order) if shape[a] > 1]:
        value = op.transposed(value, order)
    outer, inner = (math.prod(shape[axis] for axis in axes) for axes in (kept, gone))
    if opcode == "avgpool":
        made = _average(op, op.view(value, (outer, inner, 1, 1)), (inner, 1))
    else:
        along = {"Axis": 1} if opcode == "batchedreduceadd" else {"Axes": (1,)}
        made = op.make(opcode, op.view(value, (outer, inner)), shape=(outer,), **along)
    return op.view(made, left)


def _average(op: Operation, source: Value, window: Sequence[int]) -> Value:
    """Over the whole of an image."""
    words = {"Kernels": tuple(window), "Strides": (1, 1), "Pads": (0, 0, 0, 0)}
    shape = (source.shape[0], 1, 1, source.shape[3])
    return op.make("avgpool", source, shape=shape, **words, CountIncludePads=1)


def extreme(opcode: str) -> Lower:
    """Where the largest or smallest value along a dimension lies, the first of equals."""

    def lower(op: Operation) -> Made:
        shape = op.shape()
        axis = op.axis(0, shape)
        if op.attributes.get("select_last_index"):
            raise UnsupportedError("the last of equals")
        stays = bool(op.attributes.get("keepdims", 1))
        made = (*shape[:axis], *(1,) * stays, *shape[axis + 1 :])
        value = op.read_any(0, PLAIN)
        return op.emit(opcode, value, shape=made, kind="int64", Axis=axis, KeepDims=int(stays))

    return lower


def softmax(opcode: str) -> Lower:
    """Along one dimension; before opset 13 along all from one on."""

    def lower(op: Operation) -> Made:
        if op.limits is not None:
            raise UnsupportedError("a clip of a softmax")
        shape, opset = op.shape(), op.integer("opset", op.graph.opset)
        axis = op.axis(-1 if opset >= 13 else 1, shape)
        value = op.read(0, PLAIN)
        if opset < 13 or math.prod(shape[axis + 1 :]) == 1:
            rows = (math.prod(shape[:axis]), math.prod(shape[axis:]))
            return op.view(op.make(opcode, op.view(value, rows)), shape)
        turned = op.swapped(value, axis)
        rows = (math.prod(turned.shape[:-1]), turned.shape[-1])
        made = op.make(opcode, op.view(turned, rows))
        return op.swapped(op.view(made, turned.shape), axis)

    return lower
