"""Nodes that make one number of many, or of a row: means, sums, extremes, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN, Lowering, Result
from nmpsim.frontends.graph.movement import axes_of, identity
from nmpsim.frontends.graph.pointwise import along
from nmpsim.frontends.graph.real import REAL, real
from nmpsim.frontends.graph.steps import Node, Quantized
from nmpsim.frontends.unsupported import UnsupportedError

Lower = Callable[[Lowering, Node], Result]


def reduction(opcode: str) -> Lower:
    """Of real numbers along dimensions, which are moved to the end."""

    def lower(graph: Lowering, node: Node) -> Result:
        name = node.inputs[0]
        shape = graph.shape(name)
        axes = axes_of(graph, node, len(shape))
        if not axes and node.attributes.get("noop_with_empty_axes"):
            return identity(graph, node)
        gone = sorted(set(axes or range(len(shape))))
        real(graph, name, graph.layout(name))
        return reduce(graph, opcode, node, gone)

    return lower


def reduce(
    graph: Lowering,
    opcode: str,
    node: Node,
    gone: list[int],
    ends: tuple[Quantized, Quantized] | None = None,
) -> Result:
    """Along the dimensions ``gone``, of real numbers, or of integers: ``ends`` are both tensors."""
    name, result = node.inputs[0], node.outputs[0]
    wanted: Quantized | None = None
    made: Quantized | str = REAL
    if ends is not None:
        wanted, made = ends
        name, result = wanted.name, made.name
    shape, stays = graph.shape(name), bool(node.attributes.get("keepdims", 1))
    left = tuple(1 if a in gone else d for a, d in enumerate(shape) if stays or a not in gone)
    if opcode == "avgpool" and len(shape) == 4 and gone == [2, 3]:
        # Of each channel, where channels come last: the device has that.
        whole = graph.target(result, left, made, LAST if stays else PLAIN)
        target = graph.view(whole, (shape[0], 1, 1, shape[1]))
        _average(graph, result, target, graph.value(name, LAST, wanted), shape[2:])
        return Result()
    kept = [axis for axis in range(len(shape)) if axis not in gone]
    value = graph.value(name, PLAIN, wanted)
    order = (*kept, *gone)
    if [axis for axis in order if shape[axis] > 1] != [a for a in sorted(order) if shape[a] > 1]:
        type = attrs.evolve(value.type, shape=tuple(shape[axis] for axis in order))
        turned = graph.temporary(f"{result}_turned", type)
        graph.add("transpose", result, (turned, value), Shuffle=order)
        value = turned
    rows = (math.prod(shape[axis] for axis in kept), math.prod(shape[axis] for axis in gone))
    target = graph.target(result, left, made)
    _reduce(graph, opcode, result, graph.view(target, rows[:1]), graph.view(value, rows))
    return Result()


def _reduce(graph: Lowering, opcode: str, name: str, target: Value, rows: Value) -> None:
    """Rows [outer, inner] to [outer]."""
    if opcode == "batchedreduceadd":
        graph.add(opcode, name, (target, rows), Axis=1)
    elif opcode != "avgpool":
        graph.add(opcode, name, (target, rows), Axes=(1,))
    else:
        outer, inner = rows.shape
        sides = (graph.view(target, (outer, 1, 1, 1)), graph.view(rows, (outer, inner, 1, 1)))
        _average(graph, name, *sides, (inner, 1))


def _average(
    graph: Lowering, name: str, target: Value, source: Value, window: Sequence[int]
) -> None:
    """Over the whole of an image."""
    graph.add(
        "avgpool",
        name,
        (target, source),
        Kernels=tuple(window),
        Strides=(1, 1),
        Pads=(0, 0, 0, 0),
        CountIncludePads=1,
    )


def extreme(opcode: str) -> Lower:
    """Where the largest or smallest value along a dimension lies, the first of equals."""

    def lower(graph: Lowering, node: Node) -> Result:
        name, result = node.inputs[0], node.outputs[0]
        shape, axis = graph.shape(name), int(node.attributes.get("axis", 0))
        if node.attributes.get("select_last_index") or not -len(shape) <= axis < len(shape):
            raise UnsupportedError(f"dimension {axis} of {list(shape)}, or the last of equals")
        axis %= len(shape)
        stays = bool(node.attributes.get("keepdims", 1))
        made = (*shape[:axis], *(1,) * stays, *shape[axis + 1 :])
        value = graph.value(name)
        target = graph.target(result, made, "int64")
        graph.add(opcode, result, (target, value), Axis=axis, KeepDims=int(stays))
        return Result()

    return lower


def softmax(opcode: str) -> Lower:
    """Along one dimension; before opset 13 along all from one on."""

    def lower(graph: Lowering, node: Node) -> Result:
        name, result = node.inputs[0], node.outputs[0]
        shape = graph.shape(name)
        axis = int(node.attributes.get("axis", -1 if graph.opset >= 13 else 1))
        if not shape or not -len(shape) <= axis < len(shape):
            raise UnsupportedError(f"dimension {axis} of {list(shape)}")
        sides = (graph.target(result, shape, REAL), real(graph, name, PLAIN))
        along(graph, opcode, result, sides, axis % len(shape), whole=graph.opset < 13)
        return Result()

    return lower
