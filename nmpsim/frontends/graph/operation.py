"""The step that is being lowered: its operands, and the instructions of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN, VIEW, Layout, Lowering, turned
from nmpsim.frontends.graph.nodes import Array, Node, Quantized, Shape
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.lir.nodes import TensorType

REAL = "float32"
Made = Value | str
"""The result of a step. Or a text, if the step has stored its results itself: why it has no layers,
empty if it has some."""


class Operation:
    """A node, as an operator function sees it.

    An operator function reads operands, emits instructions, and returns the value of the last one.
    Each instruction writes a new buffer; if the result is an output of the program, the last buffer
    becomes that output.
    """

    def __init__(self, graph: Lowering, node: Node) -> None:
        self.graph = graph
        self.node = node
        self.kind = node.kind
        self.names = node.reads if node.integers else node.inputs
        self.sources: tuple[Quantized, ...] = ()
        """The operands' quantization, if this is an integer operation; else empty."""
        self.result: Quantized | str = REAL
        self.limits: tuple[float, float | None] | None = None
        self.bias = ""
        if node.integers:
            self.sources, self.result = node.integers.sources, node.integers.result
            self.limits, self.bias = node.integers.limits, node.integers.bias
        self.name = next(iter(node.makes), "")
        self._layout: Layout = PLAIN
        self._own: set[str] = set()

    @property
    def layout(self) -> Layout:
        """Layout of the result: that of the operand that was read last, unless it is set."""
        return self._layout

    @layout.setter
    def layout(self, layout: Layout) -> None:
        self._layout = PLAIN if self.graph.graph.channels_last else layout

    # --- attributes and constants ------------------------------------------------------------

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The node's attributes."""
        return self.node.attributes

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, default))

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        return float(self.attributes.get(name, default))

    def axis(self, default: int, shape: Shape) -> int:
        """The attribute ``axis``, counted from the first dimension of a shape."""
        axis = self.integer("axis", default)
        if not -len(shape) <= axis < len(shape):
            raise UnsupportedError(f"dimension {axis} of {list(shape)}")
        return axis % len(shape)

    def values(self, place: int) -> Array:
        """The values of a constant input."""
        return self.graph.constant(self.node.input(place))

    def integers(self, place: int, limit: int = 64) -> list[int]:
        """The values of a constant input that holds a few integers, flattened."""
        return self.graph.integers(self.node.input(place), limit)

    # --- operands ----------------------------------------------------------------------------

    def shape(self, place: int = 0) -> Shape:
        """An operand's dimensions, as the file has them."""
        return self.graph.shape(self.names[place])

    def image(self, place: int = 0) -> Shape:
        """An image's dimensions as [N, C, ...], whatever order the file has."""
        return self.graph.nchw(self.shape(place))

    def read(self, place: int = 0, layout: Layout | None = None) -> Value:
        """An operand; its elements must be integers in an integer operation, float32 in a node."""
        wanted = self.sources[place] if self.sources else None
        value = self.read_any(place, layout, wanted)
        if not self.sources:
            check_elems([value], ("float",), self.names[place])
        return value

    def read_any(
        self, place: int = 0, layout: Layout | None = None, wanted: Quantized | None = None
    ) -> Value:
        """An operand of any element type, in its own layout or a given one."""
        name = self.names[place]
        self.layout = self.graph.layout(name) if layout is None else layout
        return self.graph.value(name, self.layout, wanted)

    def alike(self) -> list[Value]:
        """All operands, broadcast to one shape, in one layout."""
        shapes = [self.graph.shape(name) for name in self.names]
        try:
            shape = tuple(np.broadcast_shapes(*shapes))
        except ValueError:
            raise UnsupportedError(" and ".join(map(str, shapes))) from None
        self.layout = self.graph.layout(*self.names)
        return [self.broadcast(place, shape) for place in range(len(self.names))]

    def broadcast(self, place: int, shape: Shape) -> Value:
        """An operand broadcast to a shape (in the file's order), in the layout of the result."""
        wanted = self.sources[place] if self.sources else None
        return self.graph.broadcast(self.names[place], self.layout, shape, wanted)

    # --- what it makes -----------------------------------------------------------------------

    def emit(
        self,
        opcode: str,
        *operands: Value,
        shape: Shape | None = None,
        kind: Quantized | str | TensorType | None = None,
        name: str = "",
        **words: Any,
    ) -> Value:
        """Emit an instruction; return its result.

        The result has the kind and the shape of the first operand, unless others are given.
        """
        like = operands[0].type if kind is None else kind
        made = self.room(like, operands[0].shape if shape is None else shape, name)
        self.graph.add(opcode, name or self.name, (made, *operands), **words)
        return made

    def make(
        self, opcode: str, *operands: Value, shape: Shape | None = None, **words: Any
    ) -> Value:
        """Emit an instruction whose result has the kind of the step's result."""
        return self.emit(opcode, *operands, shape=shape, kind=self.result, **words)

    def room(self, kind: Quantized | str | TensorType, shape: Shape, name: str = "") -> Value:
        """A new buffer."""
        if isinstance(kind, TensorType):
            self.graph.check_size(shape)
            type = attrs.evolve(kind, shape=shape)
        else:
            type = self.graph.type_of(kind, shape)
        value = self.graph.builder.buffer(f"{name or self.name}_res", type)
        self._own.add(value.name)
        return value

    def join(self, kind: Quantized | str | TensorType, parts: Sequence[Value], axis: int) -> Value:
        """Concatenate parts along a dimension, counted as they are held."""
        own = parts[0].shape
        size = sum(part.shape[axis] for part in parts)
        whole = self.room(kind, (*own[:axis], size, *own[axis + 1 :]))
        self.graph.builder.add("touch", f"{self.name}_touch", (whole,))
        begin = 0
        for part in parts:
            offsets = tuple(begin * (d == axis) for d in range(len(own)))
            self.insert(whole, part, offsets)
            begin += part.shape[axis]
        return whole

    def insert(self, whole: Value, part: Value, offsets: Shape) -> None:
        """Copy a part into a buffer."""
        self.graph.add("inserttensor", self.name, (whole, part), Offsets=offsets, Count=1, Axis=0)

    def clipped(self, value: Value) -> Value:
        """The value after the step's ReLU or clip, if it has one."""
        if self.limits is None:
            return value
        low, high = self.limits
        if high is None:
            return self.make("relu", value)
        return self.make("clip", value, Min=low, Max=high)

    def view(self, value: Value, shape: Shape) -> Value:
        """The same elements with another shape."""
        return self.graph.view(value, shape)

    def real(self, what: str, values: Array) -> Value:
        """A new float32 constant."""
        return self.graph.real_constant(f"{self.name}_{what}", values)

    def full(self, like: Value, number: float) -> Value:
        """A new constant of a tensor's shape, filled with a number."""
        return self.real("number", np.full(like.shape, number, np.float32))

    def transposed(self, value: Value, order: Shape) -> Value:
        """Transpose a value."""
        shape = tuple(value.shape[axis] for axis in order)
        return self.emit("transpose", value, shape=shape, Shuffle=order)

    def swapped(self, value: Value, axis: int) -> Value:
        """Exchange a dimension and the last one."""
        order = list(range(len(value.shape)))
        order[axis], order[-1] = order[-1], order[axis]
        return value if axis == len(order) - 1 else self.transposed(value, tuple(order))

    def give(self, name: str, value: Value) -> None:
        """Store a value as a tensor of the graph, in the layout of the result."""
        self.graph.give(name, value, self.layout, value.storage in self._own)

    def viewed(self, shape: Shape) -> str:
        """Store the first operand with another shape as the result, without moving its elements."""
        is_same = self.shape() == shape
        value = self.read_any(0, None if is_same else PLAIN)
        return self.same(value if is_same else self.view(value, shape))

    def same(self, value: Value) -> str:
        """Store an existing value as the result; only an output of the program is copied."""
        self.graph.give(self.name, value, self.layout, is_own=False)
        return "" if self.graph.is_output(self.name) else VIEW

    def held(self, dims: Sequence[int]) -> Shape:
        """Reorder one number per dimension of the file to the layout of the result."""
        return turned(tuple(dims)) if self.layout == LAST else tuple(dims)

    def place(self, axis: int, rank: int) -> int:
        """Position of a dimension of the file in the layout of the result."""
        return self.held(range(rank)).index(axis % rank)


def check_elems(sides: Sequence[Value], elems: Sequence[str], name: str = "") -> None:
    """Refuse tensors whose element types differ, or are not among ``elems``."""
    for side in sides:
        if side.type.elem not in elems or side.type.elem != sides[0].type.elem:
            raise UnsupportedError(f"{name or side.name} is {side.type.elem}")


def as_image(graph: Lowering, value: Value) -> Value:
    """A sequence [N, L, C] as an image of one row."""
    if len(value.shape) == 4:
        return value
    return graph.view(value, (value.shape[0], 1, *value.shape[1:]))


INSTRUCTION = "nmpsim.Instruction"
"""Kind of a node that stands for one instruction of LIR."""


def instruction(op: Operation) -> Made:
    """One instruction of LIR, whose result is declared in the graph.

    The node's attributes: ``opcode`` and ``words`` (attributes) of the instruction; ``views``, the
    shapes in which it takes its result and its first operands; ``repeated``, broadcast operands to
    the shape of the result; ``limits`` of a ReLU or clip after it; ``numerics``, the layer's
    arithmetic profile if it is not the model's. Layout: channels last with ``image``, the file's
    with ``plain`` or ``views``, else that of the operands.
    """
    given, graph = op.attributes, op.graph
    op.result, shape = graph.declared(op.name)
    op.limits, views = given.get("limits"), given.get("views", ())
    layout = graph.layout(*op.names)
    if given.get("image"):
        layout = LAST
    elif given.get("plain") or views:
        layout = PLAIN
    op.layout = layout
    sides = [
        graph.broadcast(name, layout, shape, graph.parameters(name))
        if given.get("repeated")
        else graph.value(name, layout)
        for name in op.names
    ]
    for place, view in enumerate(views[1:]):
        sides[place] = op.view(sides[place], view)
    held = op.held(shape)
    made = op.make(given["opcode"], *sides, shape=views[0] if views else held, **given["words"])
    if given.get("numerics"):
        graph.numerics[graph.builder.names[-1]] = given["numerics"]
    return op.clipped(op.view(made, held))
