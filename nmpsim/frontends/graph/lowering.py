"""The tensors of a graph while LIR is made of it: their layouts, shapes and constants.

ONNX and PyTorch have channels second, the device and TFLite have them last. A tensor is held in one
layout or in both: ``PLAIN``, as the file has it, and ``LAST``, its channels at the end; these are
one where the file has channels last. An operation takes the one it needs, so values are turned
where a layout changes, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np

from nmpsim.diagnostics import Place
from nmpsim.frontends.builder import Builder, Value
from nmpsim.frontends.builder import quantized as quantized_type
from nmpsim.frontends.graph.nodes import (
    LIMITS,
    MOVED,
    Array,
    Graph,
    Node,
    Quantized,
    Shape,
    constant,
    plain_integers,
)
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.lir.limits import size_problem
from nmpsim.lir.nodes import TensorType

Layout = Literal["plain", "last"]
PLAIN: Layout = "plain"
LAST: Layout = "last"
VIEW = "a view of its input, nothing moves"
MAX_BROADCAST = 1 << 26
"""Elements of all constants that are stored as large as what they are combined with."""
_ELEMS = {
    "float32": "float",
    "float16": "float16",
    "float64": "float64",
    "int32": "index32",
    "int64": "index64",
    "bool": "bool",
}


def turned(shape: Shape) -> Shape:
    """A shape with its second dimension at the end."""
    return (shape[0], *shape[2:], shape[1]) if len(shape) > 2 else shape


class Lowering:
    """The state of lowering one graph."""

    def __init__(self, graph: Graph, steps: Sequence[Node], builder: Builder, place: Place) -> None:
        self.graph = graph
        self.builder = builder
        self.place = place
        self.opset = graph.opset
        self.constants: dict[str, Array] = dict(graph.constants)
        self.folded_elements = 0
        """Of arrays that nodes without unknown inputs have made."""
        self._held: dict[str, dict[Layout, Value]] = {}
        self._shapes: dict[str, Shape] = {}
        self._made: dict[tuple[object, ...], Value] = {}
        self._broadcast = 0
        self._outputs = {name: builder.unique(name) for name in dict.fromkeys(graph.outputs)}
        self.real: set[str] = set()
        """Labels of steps that could have been on integers, in another form of theirs."""
        self.numerics: dict[str, str] = {}
        """Layers with another profile than the model's."""
        self._rank_with_layouts = 1 << 30 if graph.channels_last else 3
        self.readers: dict[str, list[Node]] = {}
        self.padding: dict[str, tuple[int, int, int, int]] = {}
        """Tensor -> top, left, bottom, right that the convolutions reading it pad themselves."""
        for step in steps:
            for name in step.reads:
                self.readers.setdefault(name, []).append(step)
        self._parameters = graph.parameters

    # --- tensors -----------------------------------------------------------------------------

    def is_constant(self, name: str) -> bool:
        """Whether a tensor's values are known."""
        return name in self.constants

    def constant(self, name: str) -> Array:
        """A constant's values as the file has them."""
        return constant(self.constants, name)

    def integers(self, name: str, limit: int = 64) -> list[int]:
        """A constant that holds a few whole numbers, in a row."""
        values = self.constant(name)
        if values.dtype.kind not in "iu" or values.size > limit:
            raise UnsupportedError(f"{name} holds {values.size} {values.dtype}")
        return [int(value) for value in values.reshape(-1)]

    def shape(self, name: str) -> Shape:
        """A tensor's dimensions, as the file has them."""
        if name in self.constants:
            return self.constant(name).shape
        if name not in self._shapes:
            raise UnsupportedError(f"{name or 'an input'} is read before anything makes it")
        return self._shapes[name]

    def is_made(self, name: str) -> bool:
        """Whether a tensor is there."""
        return name in self._held or name in self.constants

    def is_output(self, name: str) -> bool:
        """Whether a tensor is one of the model's outputs."""
        return name in self._outputs

    def parameters(self, name: str) -> Quantized | None:
        """What the integers of a tensor stand for; None of real numbers and indices."""
        return self._parameters.get(name)

    def layout(self, *names: str) -> Layout:
        """The one in which tensors meet without being turned, if there is one."""
        known = [self._held[name] for name in names if name in self._held]
        return LAST if any(LAST in held and PLAIN not in held for held in known) else PLAIN

    def nchw(self, dims: Sequence[int]) -> Shape:
        """Reorder one number per dimension of the file to [N, C, ...]."""
        return (dims[0], dims[-1], *dims[1:-1]) if self.graph.channels_last else tuple(dims)

    def declared(self, name: str) -> tuple[Quantized | str, Shape]:
        """Kind and shape of a tensor, as the file gives them."""
        found = self.graph.declared[name]
        return found.kind, found.shape

    def assume(self, name: str) -> bool:
        """Declare a buffer for a tensor whose node failed, if the file gives its kind and shape."""
        if name not in self.graph.declared:
            return False
        if not self.is_made(name):
            kind, shape = self.declared(name)
            room = self.builder.buffer(f"{name}_res", self.type_of(kind, shape))
            self.give(name, room, PLAIN, is_own=True)
        return True

    def value(self, name: str, layout: Layout = PLAIN, wanted: Quantized | None = None) -> Value:
        """A tensor that a node reads; ``wanted`` says what its integers stand for there."""
        if not name:
            raise UnsupportedError("an input is left out")
        shape = self.shape(name)
        layout = self._layout(layout, shape)
        if name in self.constants:
            return self._constant(name, layout, wanted)
        held = self._held[name]
        if layout not in held:
            held[layout] = self._turned(name, shape, layout)
        value = held[layout]
        if wanted is None or value.type.quant is None:
            return value
        type = self.type_of(wanted, value.shape)
        return value if type == value.type else self._taken_as(value, type)

    def type_of(self, kind: Quantized | str, shape: Shape) -> TensorType:
        """How a tensor is held; an unsigned one as signed, less half the range."""
        self.check_size(shape)
        if isinstance(kind, str):
            if kind not in _ELEMS:
                raise UnsupportedError(f"{kind} without a scale")
            return TensorType(_ELEMS[kind], shape)
        dtype = kind.dtype or "uint8"
        elem = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}[np.dtype(dtype).itemsize]
        return quantized_type(elem, shape, kind.scale, kind.zero_point - MOVED.get(dtype, 0))

    def check_size(self, shape: Shape) -> None:
        """Refuse a shape that no tensor can have."""
        if (problem := size_problem(shape)) or min(shape, default=1) < 1:
            raise UnsupportedError(problem[0] if problem else f"a shape {list(shape)}")

    def held_values(self, values: Array) -> Array:
        """A constant's integers as they are held."""
        moved = MOVED.get(str(values.dtype))
        if moved is None:
            return values
        held: Array = (values ^ values.dtype.type(moved)).view(f"int{8 * values.itemsize}")
        held.flags.writeable = False  # and so kept as it is
        return held

    def bind_input(self, name: str, dtype: str, shape: Shape) -> str:
        """An input of the program; its name there."""
        kind: Quantized | str = self._parameters.get(name, dtype)
        if isinstance(kind, Quantized):
            if kind.dtype and kind.dtype != dtype:
                raise UnsupportedError(f"{dtype}, its zero point {kind.dtype}")
            kind = attrs.evolve(kind, dtype=dtype)
        value = self.builder.variable(name, self.type_of(kind, shape))
        self._shapes[name] = shape
        self._held[name] = {PLAIN: value}
        return value.name

    def output_names(self) -> Mapping[str, str]:
        """The model's outputs -> their names in the program."""
        return self._outputs

    # --- results -----------------------------------------------------------------------------

    def give(self, name: str, value: Value, layout: Layout, is_own: bool) -> None:
        """Store a value as a tensor of the graph.

        For an output of the program the value's buffer becomes the output if the node has made it
        (``is_own``); else the value is copied.
        """
        self._check_new(name)
        layout = self._layout(layout, value.shape)
        rank = len(value.shape)
        order = (0, rank - 1, *range(1, rank - 1)) if layout == LAST else range(rank)
        shape = tuple(value.shape[axis] for axis in order)
        declared = self.graph.declared.get(name)
        if is_own and declared is not None and declared.shape != shape:
            raise UnsupportedError(f"a result {list(shape)}, declared as {list(declared.shape)}")
        if name in self._outputs and layout == PLAIN:
            own = self.builder.reserved(self._outputs[name], value.type)
            if is_own:
                self.builder.become(value, own)
            else:
                self.builder.add("copy", name, (own, value))
            value = own
        self._shapes[name] = shape
        self._held[name] = {layout: value}

    def fold(self, name: str, values: Array) -> None:
        """A tensor's values are known now."""
        self._check_new(name)
        self.constants[name] = values

    def settle(self, names: Sequence[str]) -> None:
        """Turn results that are outputs of the model to the layout of the file."""
        for name in names:
            if name in self._outputs and name in self._held:
                self.value(name, PLAIN)

    def finish(self, name: str) -> None:
        """See that an output is written; one that is a constant is copied."""
        if name in self.constants and name not in self._held:
            value = self.value(name)
            own = self.builder.reserved(self._outputs[name], value.type)
            self.builder.add("copy", name, (own, value))
            self._held[name] = {PLAIN: own}
        held = self._held.get(name, {}).get(PLAIN)
        if held is None or held.name != self._outputs[name]:
            raise UnsupportedError("an input, or what nothing makes")

    def is_unsigned(self, name: str) -> bool:
        """Whether an output is uint8 or uint16 in the file."""
        if name in self.constants:
            return str(self.constants[name].dtype) in MOVED
        parameters = self._parameters.get(name)
        is_quantized = self._held[name][PLAIN].type.quant is not None
        return is_quantized and parameters is not None and parameters.dtype in MOVED

    def view(self, value: Value, shape: Shape) -> Value:
        """All of a tensor with another shape."""
        if math.prod(shape) != math.prod(value.shape):
            raise UnsupportedError(f"shape {list(value.shape)} cannot be {list(shape)}")
        return self.builder.view(value, attrs.evolve(value.type, shape=shape))

    def add(self, opcode: str, name: str, operands: Sequence[Value], **given: Any) -> str:
        """An instruction, named after what the node makes. Its name."""
        return self.builder.add(opcode, self.graph.layers.get(name, name), operands, **given)

    def vectors(self, name: str, scales: Array, zeros: Array) -> tuple[Value, Value]:
        """Scales and zero points of channels as constants."""
        real = TensorType("float", scales.shape)
        return (
            self.builder.constant(f"{name}_scales", scales, real),
            self.builder.constant(f"{name}_zero_points", zeros, TensorType("index32", zeros.shape)),
        )

    def real_constant(self, name: str, values: Array) -> Value:
        """A constant of float32."""
        return self.builder.constant(name, values, TensorType("float", values.shape))

    def broadcast(self, name: str, layout: Layout, shape: Shape, wanted: Quantized | None) -> Value:
        """An input as large as the result, whose shape is the file's."""
        own = self.shape(name)
        lead = (1,) * (len(shape) - len(own))
        full = (*lead, *own)
        layout = self._layout(layout, shape)
        goal = turned(shape) if layout == LAST else shape
        if own == shape:
            return self.value(name, layout, wanted)
        if name in self.constants:
            self._broadcast += math.prod(shape)
            if self._broadcast > MAX_BROADCAST:
                raise UnsupportedError(
                    f"the constant {name} {list(own)} broadcast to {list(shape)}"
                )
            values = np.broadcast_to(self.constant(name).reshape(full), shape)
            if layout == LAST:
                values = np.moveaxis(values, 1, -1)
            key = f"{name}_broadcast"
            if wanted is None:
                return self.builder.constant(key, values, self.type_of(str(values.dtype), goal))
            return self.builder.constant(key, self.held_values(values), self.type_of(wanted, goal))
        if layout == LAST and len(own) > 2 and not lead:
            value, full = self.value(name, LAST, wanted), turned(full)
        elif layout == LAST:
            if sum(dim > 1 for dim in full) > 1:
                raise UnsupportedError(f"{name} {list(own)} broadcast to {list(shape)}")
            full = turned(full)
            value = self.view(self.value(name, PLAIN, wanted), full)
        else:
            value = self.view(self.value(name, PLAIN, wanted), full)
        for axis in reversed(range(len(goal))):
            if full[axis] != goal[axis]:
                full = (*full[:axis], goal[axis], *full[axis + 1 :])
                wide = self.builder.buffer(
                    f"{name}_broadcast", attrs.evolve(value.type, shape=full)
                )
                self.builder.add("touch", f"{name}_touch", (wide,))
                self.add(
                    "inserttensor",
                    f"{name}_broadcast",
                    (wide, value),
                    Offsets=(0,) * len(full),
                    Count=goal[axis],
                    Axis=axis,
                )
                value = wide
        return value

    # --- inside ------------------------------------------------------------------------------

    def _layout(self, layout: Layout, shape: Shape) -> Layout:
        return layout if len(shape) >= self._rank_with_layouts else PLAIN

    def _check_new(self, name: str) -> None:
        if self.is_made(name):
            raise UnsupportedError(f"{name} is made twice")

    def _constant(self, name: str, layout: Layout, wanted: Quantized | None) -> Value:
        values = self.constant(name)
        wanted = wanted or self._parameters.get(name)
        is_quantized = str(values.dtype) in LIMITS and wanted is not None
        if values.dtype in (np.int8, np.uint8, np.int16, np.uint16) and wanted is None:
            wanted, is_quantized = plain_integers(name, str(values.dtype)), True
        kind: Quantized | str = str(values.dtype)
        if is_quantized and wanted is not None:
            kind = attrs.evolve(wanted, dtype=str(values.dtype))
        shape = turned(values.shape) if layout == LAST else values.shape
        type = self.type_of(kind, shape)
        key = (name, layout, type)
        if key not in self._made:
            held = self.held_values(values)
            if layout == LAST:
                held = np.moveaxis(held, 1, -1)
            self._made[key] = self.builder.constant(name, held, type)
        return self._made[key]

    def _turned(self, name: str, shape: Shape, layout: Layout) -> Value:
        """A tensor that is held in the other layout."""
        source = next(iter(self._held[name].values()))
        goal = turned(shape) if layout == LAST else shape
        order = list(range(len(shape)))
        shuffle = (0, *order[2:], 1) if layout == LAST else (0, order[-1], *order[1:-1])
        type = attrs.evolve(source.type, shape=goal)
        moves = shape[1] > 1 and math.prod(shape[2:]) > 1
        is_output = layout == PLAIN and name in self._outputs
        if not moves and not is_output:
            return self.view(source, goal)
        if is_output:
            target = self.builder.reserved(self._outputs[name], type)
        else:
            target = self.builder.buffer(f"{name}_{layout}_res", type)
        self.builder.add("transpose", f"{name}_{layout}", (target, source), Shuffle=shuffle)
        return target

    def _taken_as(self, value: Value, type: TensorType) -> Value:
        """The same integers on another scale: each is looked up as itself."""
        if type.elem != value.type.elem or type.elem != "i8":
            raise UnsupportedError(f"{value.name} is read on another scale than it was made on")
        target = self.builder.buffer(f"{value.name}_taken", type)
        table = np.arange(-128, 128).astype(np.int8)
        kind = attrs.evolve(type, shape=(256,))
        mapping = self.builder.constant(f"{value.name}_taken_table", table, kind)
        self.add("intlookuptable", f"{value.name}_taken", (target, value, mapping))
        return target
