"""Tensors of a graph that is lowered to LIR: values, layouts, shapes and constants.

ONNX and PyTorch have channels second; the device and TFLite have them last. A tensor is stored in
one layout or in both: ``PLAIN``, the order of the file, and ``CHANNELS_LAST``; these are the same
if the file has channels last. An operator reads the layout that it needs, so values are transposed
only where the layout changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import attrs
import numpy as np

from nmpsim.diagnostics import Place, list_alternatives
from nmpsim.frontends.graph.nodes import (
    INTEGER_RANGES,
    UNSIGNED_OFFSETS,
    Array,
    Graph,
    Kind,
    Node,
    QuantizedTensor,
    Shape,
    get_constant_values,
    make_unit_quantization,
)
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.module_builder import BuilderTensor, ModuleBuilder
from nmpsim.lir.instruction_check import find_instruction_problem
from nmpsim.lir.nodes import TensorType, find_size_problem, make_quantized_type
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.printer import format_type

Layout = Literal["plain", "last"]
PLAIN: Layout = "plain"
CHANNELS_LAST: Layout = "last"
VIEW_ONLY = "a view of its input, nothing moves"
"""Why an operator has no layers, if it only changes a shape or a name."""
MAX_BROADCAST_ELEMENTS = 1 << 26
"""Limit for all constants together that are stored broadcast."""
_ELEMS = {
    "float32": "float",
    "float16": "float16",
    "float64": "float64",
    "int32": "index32",
    "int64": "index64",
    "bool": "bool",
}


def move_channels_last(dims: Sequence[int]) -> Shape:
    """Reorder one number per dimension from [N, C, ...] to [N, ..., C]."""
    return (dims[0], *dims[2:], dims[1]) if len(dims) > 2 else tuple(dims)


def move_channels_second(dims: Sequence[int]) -> Shape:
    """Reorder one number per dimension from [N, ..., C] to [N, C, ...]."""
    return (dims[0], dims[-1], *dims[1:-1])


class TensorStore:
    """Store of a graph's tensors during lowering: constants, and values with their layouts."""

    def __init__(
        self, graph: Graph, steps: Sequence[Node], builder: ModuleBuilder, place: Place
    ) -> None:
        self.graph = graph
        self.builder = builder
        self.place = place
        self.opset = graph.opset
        self.constants: dict[str, Array] = dict(graph.constants)
        self.folded_elements = 0
        """Number of elements that constant folding has computed."""
        outputs = dict.fromkeys(graph.outputs)
        self.output_names = {name: builder.make_unique(name) for name in outputs}
        """Model output -> its name in the program."""
        self.float_labels: set[str] = set()
        """Labels of steps lowered to floats because they have no integer form."""
        self.layer_numerics: dict[str, str] = {}
        """Layer name -> numerics profile, for layers that differ from the model's."""
        self.padding: dict[str, tuple[int, int, int, int]] = {}
        """Tensor -> top, left, bottom, right to be added by the convolutions that read it."""
        self.readers: dict[str, list[Node]] = {}
        for step in steps:
            for name in step.operands:
                self.readers.setdefault(name, []).append(step)
        self._stored: dict[str, dict[Layout, BuilderTensor]] = {}
        self._shapes: dict[str, Shape] = {}
        self._constant_values: dict[tuple[object, ...], BuilderTensor] = {}
        self._broadcast_elements = 0
        self._min_layout_rank = 1 << 30 if graph.channels_last else 3

    # --- tensors -----------------------------------------------------------------------------

    def is_constant(self, name: str) -> bool:
        """Return whether the values of a tensor are known at compile time."""
        return name in self.constants

    def get_constant(self, name: str) -> Array:
        """Return the values of a constant in the model file's dimension order."""
        return get_constant_values(self.constants, name)

    def get_shape(self, name: str) -> Shape:
        """Return the shape of a tensor in the dimension order of the file."""
        if name in self.constants:
            return self.get_constant(name).shape
        require(
            name in self._shapes,
            f"{name or 'an omitted input'} is read, but no earlier node computes it",
            "an input of the model, a constant, or the result of an earlier node",
        )
        return self._shapes[name]

    def is_defined(self, name: str) -> bool:
        """Return whether a tensor has been computed or is a constant."""
        return name in self._stored or name in self.constants

    def is_output(self, name: str) -> bool:
        """Return whether a tensor is an output of the model."""
        return name in self.output_names

    def get_quantization(self, name: str) -> QuantizedTensor | None:
        """Return the quantization of a tensor, or None if it is not quantized."""
        return self.graph.quantization.get(name)

    def get_layer_name(self, name: str) -> str:
        """Return the name of a tensor's layers, by default the tensor's name."""
        return self.graph.layers.get(name, name)

    def choose_layout(self, *names: str) -> Layout:
        """Choose channels last if a named tensor is stored only in this layout, else plain."""
        known = [self._stored[name] for name in names if name in self._stored]
        is_last = any(CHANNELS_LAST in stored and PLAIN not in stored for stored in known)
        return CHANNELS_LAST if is_last else PLAIN

    def to_nchw(self, dims: Sequence[int]) -> Shape:
        """Reorder one number per dimension from the file's order to [N, C, ...]."""
        return move_channels_second(dims) if self.graph.channels_last else tuple(dims)

    def define_placeholder(self, name: str) -> bool:
        """Define a placeholder for a failed node's result; return False if its type is unknown.

        Returns False if the tensor has no declared type, or one that LIR does not have.
        """
        declaration = self.graph.declarations.get(name)
        if declaration is None:
            return False
        if not self.is_defined(name):
            try:
                type = self.make_tensor_type(declaration.kind, declaration.shape)
            except UnsupportedError:
                return False
            self.define_tensor(name, self.builder.allocate(f"{name}_res", type), PLAIN, is_own=True)
        return True

    def read_value(
        self, name: str, layout: Layout = PLAIN, quantization: QuantizedTensor | None = None
    ) -> BuilderTensor:
        """Read a tensor's value in ``layout``; emit a transposition if required.

        Parameters
        ----------
        name : str
            Name of the tensor.
        layout : Layout
            Layout of the returned value.
        quantization : QuantizedTensor, optional
            Scale and zero point with which to reinterpret the integers of a quantized tensor.
        """
        require(name, "an omitted input", "all inputs that the operator requires")
        shape = self.get_shape(name)
        layout = self._effective_layout(layout, shape)
        if name in self.constants:
            return self._constant_value(name, layout, quantization)
        stored = self._stored[name]
        if layout not in stored:
            stored[layout] = self._transposed(name, shape, layout)
        value = stored[layout]
        if quantization is None or value.type.quant is None:
            return value
        type = self.make_tensor_type(quantization, value.shape)
        return value if type == value.type else self._reinterpreted(value, type)

    def make_tensor_type(self, kind: Kind, shape: Shape) -> TensorType:
        """Return the LIR type of a tensor, with a signed type for unsigned integers."""
        self.check_size(shape)
        if isinstance(kind, str):
            expected = f"a scale, or the type {list_alternatives(_ELEMS)}"
            require(kind in _ELEMS, f"a tensor of {kind} without a scale", expected)
            return TensorType(_ELEMS[kind], shape)
        dtype = kind.dtype or "uint8"
        require(
            dtype in INTEGER_RANGES,
            f"{kind.name} of type {dtype} with a scale",
            f"a tensor of type {list_alternatives(INTEGER_RANGES)}",
        )
        elem = f"i{8 * np.dtype(dtype).itemsize}"
        zero_point = kind.zero_point - UNSIGNED_OFFSETS.get(dtype, 0)
        return make_quantized_type(elem, shape, kind.scale, zero_point)

    def check_size(self, shape: Shape) -> None:
        """Raise UnsupportedError if a shape has a zero dimension or is too large."""
        if problem := find_size_problem(shape):
            raise UnsupportedError(f"a tensor with {problem[0]}", problem[1])
        require(
            min(shape, default=1) > 0, f"a tensor of shape {list(shape)}", "dimensions of 1 or more"
        )

    def to_signed(self, values: Array) -> Array:
        """Return an array with unsigned integers shifted to the signed type of the same width."""
        offset = UNSIGNED_OFFSETS.get(str(values.dtype))
        if offset is None:
            return values
        stored: Array = (values ^ values.dtype.type(offset)).view(f"int{8 * values.itemsize}")
        stored.flags.writeable = False  # so that the module keeps it without a copy
        return stored

    def add_input(self, name: str, dtype: str, shape: Shape) -> str:
        """Add an input to the program; return its unique name in the program."""
        kind: Kind = dtype
        if quantization := self.get_quantization(name):
            require(
                quantization.dtype in ("", dtype),
                f"a zero point of type {quantization.dtype} for an input of type {dtype}",
                f"a zero point of type {dtype}",
            )
            kind = attrs.evolve(quantization, dtype=dtype)
        value = self.builder.add_input(name, self.make_tensor_type(kind, shape))
        self._shapes[name] = shape
        self._stored[name] = {PLAIN: value}
        return value.name

    def assign_states(self) -> dict[int, tuple[str, ...]]:
        """Copy the next values of state tensors to them; return the layers by operator number.

        A next value that is itself in a state tensor is copied to a buffer first.
        """
        states = {one.input: self.read_value(one.input) for one in self.graph.states}
        values, layers = {}, {}
        first = len(self.builder.layers)
        for one in self.graph.states:
            state, value = states[one.input], self.read_value(one.value)
            found = f"{one.value} of type {format_type(value.type)}"
            expected = f"type {format_type(state.type)}, as {one.input}"
            require(value.type == state.type, found, expected)
            if value.storage in (other.name for other in states.values()):
                buffer = self.builder.allocate(f"{one.value}_res", value.type)
                self.builder.add_instruction("copy", one.value, (buffer, value))
                value = buffer
            values[one.input] = value
            initial = self.to_signed(one.initial)
            self.builder.add_initial_value(state, initial)
        for one in self.graph.states:
            operands = states[one.input], values[one.input]
            self.builder.add_instruction("copy", one.input, operands)
            layers[one.index] = tuple(self.builder.layers[first:])
            first = len(self.builder.layers)
        return layers

    # --- results -----------------------------------------------------------------------------

    def define_tensor(self, name: str, value: BuilderTensor, layout: Layout, is_own: bool) -> None:
        """Define a graph tensor as ``value``, which becomes an output if the tensor is an output.

        If the tensor is an output of the program and the node has allocated the buffer itself
        (``is_own``), the buffer becomes the output; otherwise the value is copied.
        """
        self._check_undefined(name)
        layout = self._effective_layout(layout, value.shape)
        shape = move_channels_second(value.shape) if layout == CHANNELS_LAST else value.shape
        declared = self.graph.declarations.get(name)
        if is_own and declared is not None and declared.shape != shape:
            raise UnsupportedError(
                f"a result of shape {list(shape)}",
                f"shape {list(declared.shape)}, as the file declares",
            )
        if name in self.output_names and layout == PLAIN:
            output = self.builder.add_output(self.output_names[name], value.type)
            if is_own:
                self.builder.replace_buffer(value, output)
            else:
                self.builder.add_instruction("copy", name, (output, value))
            value = output
        self._shapes[name] = shape
        self._stored[name] = {layout: value}

    def define_constant(self, name: str, values: Array) -> None:
        """Define a graph tensor as a constant with ``values``."""
        self._check_undefined(name)
        self.constants[name] = values

    def transpose_outputs(self, names: Sequence[str]) -> None:
        """Transpose the named tensors that are model outputs to the file's layout."""
        for name in names:
            if name in self.output_names and name in self._stored:
                self.read_value(name, PLAIN)

    def complete_output(self, name: str) -> None:
        """Copy a constant to its output; raise UnsupportedError for an output without a value."""
        if name in self.constants and name not in self._stored:
            value = self.read_value(name)
            output = self.builder.add_output(self.output_names[name], value.type)
            self.builder.add_instruction("copy", name, (output, value))
            self._stored[name] = {PLAIN: output}
        stored, expected = self._stored.get(name, {}).get(PLAIN), "the result of an operator"
        if stored is None:
            raise UnsupportedError("no operator that computes it", expected)
        require(stored.name == self.output_names[name], "an input of the model", expected)

    def is_unsigned(self, name: str) -> bool:
        """Return whether a model output is uint8 or uint16 in the file."""
        if name in self.constants:
            return str(self.constants[name].dtype) in UNSIGNED_OFFSETS
        quantization = self.get_quantization(name)
        is_quantized = self._stored[name][PLAIN].type.quant is not None
        return is_quantized and quantization is not None and quantization.dtype in UNSIGNED_OFFSETS

    def make_view(self, value: BuilderTensor, shape: Shape) -> BuilderTensor:
        """Return a view of ``value`` with a new shape; raise UnsupportedError if sizes differ."""
        require(
            math.prod(shape) == math.prod(value.shape),
            f"{math.prod(value.shape)} elements of shape {list(value.shape)} for a result of"
            f" shape {list(shape)}",
            f"{math.prod(shape)} elements",
        )
        self.check_size(shape)
        return self.builder.add_view(value, attrs.evolve(value.type, shape=shape))

    def add_instruction(
        self, opcode: str, name: str, operands: Sequence[BuilderTensor], **attributes: Any
    ) -> str:
        """Add an instruction after checking its operand types; return its unique name.

        Raises UnsupportedError if operands or attributes do not fit the opcode.
        """
        roles = OPCODES[opcode].operands
        kinds = [(role.kind, one.type) for role, one in zip(roles, operands, strict=True)]
        problem = find_instruction_problem(opcode, kinds, attributes)
        if problem is not None:
            found = f"{opcode}: {problem.message} ({problem.found})"
            raise UnsupportedError(found, problem.expected)
        layer = self.builder.add_instruction(opcode, name, operands, **attributes)
        self.builder.checked.add(layer)
        return layer

    def add_channel_constants(
        self, name: str, scales: Array, zeros: Array
    ) -> tuple[BuilderTensor, BuilderTensor]:
        """Add the scales and zero points of channels as two constants; return both."""
        zero_type = TensorType("index32", zeros.shape)
        return (
            self.add_float_constant(f"{name}_scales", scales),
            self.builder.add_constant(f"{name}_zero_points", zeros, zero_type),
        )

    def add_float_constant(self, name: str, values: Array) -> BuilderTensor:
        """Add a float32 constant and return it."""
        return self.builder.add_constant(name, values, TensorType("float", values.shape))

    def broadcast(
        self, name: str, layout: Layout, shape: Shape, quantization: QuantizedTensor | None
    ) -> BuilderTensor:
        """Broadcast a tensor to ``shape``, which is in the dimension order of the model file."""
        own = self.get_shape(name)
        layout = self._effective_layout(layout, shape)
        if own == shape:
            return self.read_value(name, layout, quantization)
        full = (*(1,) * (len(shape) - len(own)), *own)
        goal = move_channels_last(shape) if layout == CHANNELS_LAST else shape
        found = f"{name} of shape {list(own)} broadcast to {list(shape)}"
        if name in self.constants:
            self._broadcast_elements += math.prod(shape)
            require(
                self._broadcast_elements <= MAX_BROADCAST_ELEMENTS,
                f"the constant {found}, {self._broadcast_elements} elements with those before it",
                f"at most {MAX_BROADCAST_ELEMENTS} elements of broadcast constants",
            )
            values = np.broadcast_to(self.get_constant(name).reshape(full), shape)
            if layout == CHANNELS_LAST:
                values = np.moveaxis(values, 1, -1)
            type = self.make_tensor_type(quantization or str(values.dtype), goal)
            values = values if quantization is None else self.to_signed(values)
            return self.builder.add_constant(f"{name}_broadcast", values, type)
        if layout == CHANNELS_LAST and len(own) == len(shape):
            value, full = (
                self.read_value(name, CHANNELS_LAST, quantization),
                move_channels_last(full),
            )
        else:
            if layout == CHANNELS_LAST:
                is_vector = sum(dim > 1 for dim in full) <= 1
                require(is_vector, found, f"{name} with at most one dimension larger than 1")
                full = move_channels_last(full)
            value = self.make_view(self.read_value(name, PLAIN, quantization), full)
        return self._expanded(f"{name}_broadcast", f"{name}_touch", value, goal)

    # --- private -----------------------------------------------------------------------------

    def _expanded(self, name: str, touch: str, value: BuilderTensor, goal: Shape) -> BuilderTensor:
        for axis in reversed(range(len(goal))):
            if value.shape[axis] != goal[axis]:
                shape = (*value.shape[:axis], goal[axis], *value.shape[axis + 1 :])
                wide = self.builder.allocate(name, attrs.evolve(value.type, shape=shape))
                self.builder.add_instruction("touch", touch, (wide,))
                words = {"Offsets": (0,) * len(shape), "Count": goal[axis], "Axis": axis}
                self.add_instruction("inserttensor", name, (wide, value), **words)
                value = wide
        return value

    def _effective_layout(self, layout: Layout, shape: Shape) -> Layout:
        return layout if len(shape) >= self._min_layout_rank else PLAIN

    def _check_undefined(self, name: str) -> None:
        require(
            not self.is_defined(name),
            f"a second definition of {name}",
            f"one node that computes {name}",
        )

    def _constant_value(
        self, name: str, layout: Layout, quantization: QuantizedTensor | None
    ) -> BuilderTensor:
        values = self.get_constant(name)
        dtype = str(values.dtype)
        quantization = quantization or self.get_quantization(name)
        if quantization is None and dtype != "int32":
            quantization = make_unit_quantization(name, dtype)
        is_quantized = quantization is not None and dtype in INTEGER_RANGES
        kind = attrs.evolve(quantization, dtype=dtype) if quantization and is_quantized else dtype
        is_last = layout == CHANNELS_LAST
        type = self.make_tensor_type(
            kind, move_channels_last(values.shape) if is_last else values.shape
        )
        key = (name, layout, type)
        if key not in self._constant_values:
            stored = self.to_signed(values)
            stored = np.moveaxis(stored, 1, -1) if is_last else stored
            self._constant_values[key] = self.builder.add_constant(name, stored, type)
        return self._constant_values[key]

    def _transposed(self, name: str, shape: Shape, layout: Layout) -> BuilderTensor:
        source = next(iter(self._stored[name].values()))
        is_last = layout == CHANNELS_LAST
        order = (move_channels_last if is_last else move_channels_second)(range(len(shape)))
        goal = move_channels_last(shape) if is_last else shape
        type = attrs.evolve(source.type, shape=goal)
        is_output = not is_last and name in self.output_names
        if not is_output and (shape[1] == 1 or math.prod(shape[2:]) == 1):
            return self.make_view(source, goal)
        if is_output:
            target = self.builder.add_output(self.output_names[name], type)
        else:
            target = self.builder.allocate(f"{name}_{layout}_res", type)
        step = f"{name}_{layout}"
        self.builder.add_instruction("transpose", step, (target, source), Shuffle=order)
        return target

    def _reinterpreted(self, value: BuilderTensor, type: TensorType) -> BuilderTensor:
        """Return the same integers with another scale, by an identity look-up table."""
        require(
            type.elem == value.type.elem == "i8",
            f"{value.name} of type {format_type(value.type)} read as {format_type(type)}",
            "two types with int8 elements",
        )
        name = f"{value.name}_taken"
        target = self.builder.allocate(name, type)
        table = np.arange(-128, 128).astype(np.int8)
        table_type = attrs.evolve(type, shape=(256,))
        mapping = self.builder.add_constant(f"{name}_table", table, table_type)
        self.add_instruction("intlookuptable", name, (target, value, mapping))
        return target
