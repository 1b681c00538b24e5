"""Nodes that compare, decide and choose, and tensors that are repeated to a shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import Layout, Lowering, Result
from nmpsim.frontends.graph.movement import kind_of
from nmpsim.frontends.graph.steps import Node, Shape
from nmpsim.frontends.unsupported import UnsupportedError

Lower = Callable[[Lowering, Node], Result]
_BOOL = "bool"
_NUMBERS = ("float", "index32", "index64")
"""Kinds of elements that are compared as they are."""


def alike(graph: Lowering, names: Sequence[str]) -> tuple[Shape, Layout, list[Value]]:
    """Tensors broadcast to one shape, that of the file; their layout; they have one layout."""
    try:
        shape = tuple(np.broadcast_shapes(*(graph.shape(name) for name in names)))
    except ValueError:
        raise UnsupportedError(" and ".join(str(graph.shape(n)) for n in names)) from None
    layout = graph.layout(*names)
    return shape, layout, [graph.broadcast(name, layout, shape, None) for name in names]


def check(sides: Sequence[Value], elems: Sequence[str]) -> None:
    """Raise UnsupportedError unless all are of one kind, one of these."""
    for side in sides:
        if side.type.elem not in elems or side.type.elem != sides[0].type.elem:
            raise UnsupportedError(f"{side.name} is {side.type.elem}")


def comparison(opcode: str, *, is_turned: bool = False) -> Lower:
    """Of two tensors, either broadcast; ``is_turned`` compares the second with the first."""

    def lower(graph: Lowering, node: Node) -> Result:
        shape, layout, sides = alike(graph, node.inputs)
        check(sides, _NUMBERS)
        target = graph.target(node.outputs[0], shape, _BOOL, layout)
        graph.add(opcode, node.outputs[0], (target, *(sides[::-1] if is_turned else sides)))
        return Result()

    return lower


def logical(opcode: str) -> Lower:
    """Of one tensor of truth, or of two, either broadcast."""

    def lower(graph: Lowering, node: Node) -> Result:
        shape, layout, sides = alike(graph, node.inputs)
        check(sides, (_BOOL,))
        target = graph.target(node.outputs[0], shape, _BOOL, layout)
        graph.add(opcode, node.outputs[0], (target, *sides))
        return Result()

    return lower


def is_nan(graph: Lowering, node: Node) -> Result:
    """Which values are no numbers."""
    shape, layout, sides = alike(graph, node.inputs)
    check(sides, ("float",))
    target = graph.target(node.outputs[0], shape, _BOOL, layout)
    graph.add("elementisnan", node.outputs[0], (target, *sides))
    return Result()


def where(graph: Lowering, node: Node) -> Result:
    """The second input where the first holds, else the third; any of them broadcast."""
    shape, layout, (condition, *sides) = alike(graph, node.inputs)
    check([condition], (_BOOL,))
    check(sides, _NUMBERS)
    kind = kind_of(graph, node.inputs[1], sides[0])
    target = graph.target(node.outputs[0], shape, kind, layout)
    graph.add("elementselect", node.outputs[0], (target, condition, *sides))
    return Result()


def expand(graph: Lowering, node: Node) -> Result:
    """Repeated along dimensions of 1, or along new ones."""
    name, result = node.inputs[0], node.outputs[0]
    own, given = graph.shape(name), graph.integers(node.input(1))
    try:
        shape = tuple(int(dim) for dim in np.broadcast_shapes(own, tuple(given)))
    except ValueError:
        raise UnsupportedError(f"{list(own)} expanded to {given}") from None
    if math.prod(shape) < 1:
        raise UnsupportedError(f"a shape {list(shape)}")
    layout = graph.layout(name)
    if len(shape) != len(own):
        layout = "plain"
    value = graph.broadcast(name, layout, shape, None)
    target = graph.target(result, shape, kind_of(graph, name, value), layout)
    graph.add("copy", result, (target, value))
    return Result()
