"""One step of the graph at work: what it reads, and what makes its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN, VIEW, Layout, Lowering, turned
from nmpsim.frontends.graph.steps import Array, IntegerOperation, Quantized, Shape, Step
from nmpsim.frontends.imported import UnsupportedError
from nmpsim.lir.nodes import TensorType

REAL = "float32"
Made = Value | str
"""What a step has made; or why it has no layers, if it has given its results a place itself."""


class Operation:
    """A node, or an operation on integers."""

    def __init__(self, graph: Lowering, step: Step) -> None:
        self.graph = graph
        self.node = step.node if isinstance(step, IntegerOperation) else step
        self.kind = self.node.op
        self.names = self.node.inputs
        self.sources: tuple[Quantized, ...] = ()
        """What the integers of the operands stand for, in an operation on integers."""
        self.result: Quantized | str = REAL
        self.limits: tuple[float, float | None] | None = None
        self.bias = ""
        if isinstance(step, IntegerOperation):
            self.kind, self.sources, self.result = step.kind, step.sources, step.result
            self.names = tuple(source.name for source in step.sources)
            self.limits, self.bias = step.limits, step.bias
        self.name = step.makes[0] if step.makes else ""
        self._layout: Layout = PLAIN
        self._own: set[str] = set()

    @property
    def layout(self) -> Layout:
        """Of the result, as of the operand that was read last."""
        return self._layout

    @layout.setter
    def layout(self, layout: Layout) -> None:
        self._layout = PLAIN if self.graph.graph.channels_last else layout

    # --- attributes and constants ------------------------------------------------------------

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Those of the node."""
        return self.node.attributes

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is a whole number."""
        return int(self.attributes.get(name, default))

    def number(self, name: str, default: float) -> float:
        """An attribute that is a real number."""
        return float(self.attributes.get(name, default))

    def axis(self, default: int, shape: Shape) -> int:
        """The attribute of that name, a dimension of a shape."""
        axis = self.integer("axis", default)
        if not -len(shape) <= axis < len(shape):
            raise UnsupportedError(f"dimension {axis} of {list(shape)}")
        return axis % len(shape)

    def values(self, place: int) -> Array:
        """An input's values, which are known."""
        return self.graph.constant(self.node.input(place))

    def integers(self, place: int, limit: int = 64) -> list[int]:
        """The same of an input that holds a few whole numbers, in a row."""
        return self.graph.integers(self.node.input(place), limit)

    # --- operands ----------------------------------------------------------------------------

    def shape(self, place: int = 0) -> Shape:
        """An operand's dimensions, as the file has them."""
        return self.graph.shape(self.names[place])

    def image(self, place: int = 0) -> Shape:
        """The same, channels second."""
        return self.graph.nchw(self.shape(place))

    def read(self, place: int = 0, layout: Layout | None = None) -> Value:
        """An operand: integers in an operation on these, else float32."""
        wanted = self.sources[place] if self.sources else None
        value = self.read_any(place, layout, wanted)
        if not self.sources:
            check_elems([value], ("float",), self.names[place])
        return value

    def read_any(
        self, place: int = 0, layout: Layout | None = None, wanted: Quantized | None = None
    ) -> Value:
        """An operand of whatever kind, in its own layout or a given one."""
        name = self.names[place]
        self.layout = self.graph.layout(name) if layout is None else layout
        return self.graph.value(name, self.layout, wanted)

    def alike(self) -> list[Value]:
        """The operands, broadcast to one shape in one layout."""
        shapes = [self.graph.shape(name) for name in self.names]
        try:
            shape = tuple(np.broadcast_shapes(*shapes))
        except ValueError:
            raise UnsupportedError(" and ".join(map(str, shapes))) from None
        self.layout = self.graph.layout(*self.names)
        return [self.broadcast(place, shape) for place in range(len(self.names))]

    def broadcast(self, place: int, shape: Shape) -> Value:
        """An operand repeated to a shape, as the file has it, in the layout of the result."""
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
        """An instruction; what it makes is of its first operand's kind and shape, if not given."""
        like = operands[0].type if kind is None else kind
        made = self.room(like, operands[0].shape if shape is None else shape, name)
        self.graph.add(opcode, name or self.name, (made, *operands), **words)
        return made

    def make(
        self, opcode: str, *operands: Value, shape: Shape | None = None, **words: Any
    ) -> Value:
        """The same; what it makes is of the result's kind."""
        return self.emit(opcode, *operands, shape=shape, kind=self.result, **words)

    def room(self, kind: Quantized | str | TensorType, shape: Shape, name: str = "") -> Value:
        """Where instructions write a tensor."""
        if isinstance(kind, TensorType):
            self.graph.check_size(shape)
            type = attrs.evolve(kind, shape=shape)
        else:
            type = self.graph.type_of(kind, shape)
        value = self.graph.builder.buffer(f"{name or self.name}_res", type)
        self._own.add(value.name)
        return value

    def join(self, kind: Quantized | str | TensorType, parts: Sequence[Value], axis: int) -> Value:
        """Parts one behind the other along a dimension, as they are held."""
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
        """Put a part into a tensor."""
        self.graph.add("inserttensor", self.name, (whole, part), Offsets=offsets, Count=1, Axis=0)

    def clipped(self, value: Value) -> Value:
        """With what limits the result, as an instruction, if anything does."""
        if self.limits is None:
            return value
        low, high = self.limits
        if high is None:
            return self.make("relu", value)
        return self.make("clip", value, Min=low, Max=high)

    def view(self, value: Value, shape: Shape) -> Value:
        """All of a tensor with another shape."""
        return self.graph.view(value, shape)

    def real(self, what: str, values: Array) -> Value:
        """A constant of float32."""
        return self.graph.real_constant(f"{self.name}_{what}", values)

    def full(self, like: Value, number: float) -> Value:
        """A number as often as a tensor has elements."""
        return self.real("number", np.full(like.shape, number, np.float32))

    def transposed(self, value: Value, order: Shape) -> Value:
        """Dimensions in another order."""
        shape = tuple(value.shape[axis] for axis in order)
        return self.emit("transpose", value, shape=shape, Shuffle=order)

    def swapped(self, value: Value, axis: int) -> Value:
        """A dimension and the last one exchanged."""
        order = list(range(len(value.shape)))
        order[axis], order[-1] = order[-1], order[axis]
        return value if axis == len(order) - 1 else self.transposed(value, tuple(order))

    def give(self, name: str, value: Value) -> None:
        """A tensor is what was made, in the layout of the result."""
        self.graph.give(name, value, self.layout, value.storage in self._own)

    def viewed(self, shape: Shape) -> str:
        """The result is the first operand with another shape; nothing moves, but to an output."""
        is_same = self.shape() == shape
        value = self.read_any(0, None if is_same else PLAIN)
        return self.same(value if is_same else self.view(value, shape))

    def same(self, value: Value) -> str:
        """The result is a tensor that there is; an output is a copy of it."""
        self.graph.give(self.name, value, self.layout, is_own=False)
        return "" if self.graph.is_output(self.name) else VIEW

    def held(self, dims: Sequence[int]) -> Shape:
        """A number for each dimension of the file, in the order in which the result is held."""
        return turned(tuple(dims)) if self.layout == LAST else tuple(dims)

    def place(self, axis: int, rank: int) -> int:
        """Where a dimension of the file is held."""
        return self.held(range(rank)).index(axis % rank)


def check_elems(sides: Sequence[Value], elems: Sequence[str], name: str = "") -> None:
    """Refuse tensors that are not all of one kind, one of these."""
    for side in sides:
        if side.type.elem not in elems or side.type.elem != sides[0].type.elem:
            raise UnsupportedError(f"{name or side.name} is {side.type.elem}")


def as_image(graph: Lowering, value: Value) -> Value:
    """A sequence [N, L, C] as an image of one row."""
    if len(value.shape) == 4:
        return value
    return graph.view(value, (value.shape[0], 1, *value.shape[1:]))


INSTRUCTION = "nmpsim.Instruction"
"""Its kind."""


def instruction(op: Operation) -> Made:
    """The instruction, by the node's attributes.

    ``opcode`` and ``words`` are those of LIR. ``views`` are the shapes in which the instruction has
    its result and its first operands. With ``repeated`` operands become as large as the result.
    ``limits`` are those of a clip after it, ``numerics`` is the profile of the layer, if it is not
    the model's. Images have their channels last if the instruction wants it (``image``), or if
    that is how they are and no order is wanted (``views``, ``plain``).
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
    if given.get("repeated"):
        wanted = [graph.parameters(name) for name in op.names]
        sides = [
            graph.broadcast(*one, shape, kind)
            for one, kind in zip(((name, layout) for name in op.names), wanted, strict=True)
        ]
    else:
        sides = [graph.value(name, layout) for name in op.names]
    for place, view in enumerate(views[1:]):
        sides[place] = op.view(sides[place], view)
    held = op.held(shape)
    made = op.make(given["opcode"], *sides, shape=views[0] if views else held, **given["words"])
    if given.get("numerics"):
        graph.numerics[graph.builder.names[-1]] = given["numerics"]
    return op.clipped(op.view(made, held))
