"""Interface of the functions that lower operators: operands, instructions and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any

import attrs
import numpy as np

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.lowering import (
    CHANNELS_LAST,
    PLAIN,
    VIEW_ONLY,
    Layout,
    TensorStore,
    move_channels_last,
    move_channels_second,
)
from nmpsim.frontends.graph.nodes import (
    INTEGER_RANGES,
    UNSIGNED_OFFSETS,
    Array,
    Kind,
    Limits,
    Node,
    QuantizedTensor,
    Shape,
)
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.module_builder import BuilderTensor
from nmpsim.lir.nodes import TensorType

Integers = Sequence[int]
_MAX_INTEGERS = 1 << 10
FLOAT = "float32"
LoweringResult = BuilderTensor | str
"""Result of an operator function; or, if it has defined its results itself, a text: why the node
has no layers, empty if it has some."""
OperatorFunction = Callable[..., LoweringResult]
"""Takes an :class:`GraphLowering` and, as keyword arguments, the attributes in its signature."""


@cache
def _get_parameters(function: Callable[..., Any]) -> tuple[tuple[str, Parameter], ...]:
    """Return names and parameters of a function; without a cache, that is 7 % of an import."""
    bound = getattr(function, "keywords", {})  # by the table of operators
    return tuple(one for one in signature(function).parameters.items() if one[0] not in bound)


def bind_attributes(function: Callable[..., Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Bind a node's attributes to a function's parameters; return them as keyword arguments.

    Attributes that are not in the signature are ignored. Where the default is a number or a truth
    value, the attribute is converted to its type.
    """
    bound: dict[str, Any] = {}
    if isinstance(function, np.ufunc):  # which has no signature, and no attributes
        return bound
    given = {name.lower(): value for name, value in attributes.items()}
    for name, parameter in _get_parameters(function):
        if name in given:
            value, default = given[name], parameter.default
            bound[name] = type(default)(value) if isinstance(default, int | float) else value
    return bound


def call_operator(function: OperatorFunction, op: GraphLowering) -> LoweringResult:
    """Call an operator function with the current node's constant inputs and attributes.

    Positional parameters are constant inputs at the same position of the node, or attributes in
    older versions of an operator. Their annotation says how to read a constant: as Integers, as an
    Array or as one number, a float.
    """
    bound = bind_attributes(function, op.node.attributes)
    for index, (name, parameter) in enumerate(_get_parameters(function)):
        read = _READERS.get(str(parameter.annotation).partition(" ")[0])
        if read and parameter.kind is parameter.POSITIONAL_OR_KEYWORD and op.node.get_input(index):
            bound[name] = read(op, index)
    return function(op, **bound)


def normalize_axis(axis: int, shape: Shape) -> int:
    """Return an axis as a non-negative number; raise UnsupportedError if out of range."""
    require(
        -len(shape) <= axis < len(shape),
        f"axis {axis} for shape {list(shape)}",
        f"an axis from {-len(shape)} to {len(shape) - 1}",
    )
    return axis % len(shape)


class GraphLowering(TensorStore):
    """Lowering of a graph in progress, with the operands and results of the current node.

    An operator function reads operands, emits instructions, and returns the value of the last one.
    Each instruction writes a new buffer; if the result is an output of the program, the last buffer
    becomes that output.
    """

    node: Node
    """The current node."""
    kind: str
    """ONNX name of its operator."""
    names: tuple[str, ...]
    """Names of the operands."""
    sources: tuple[QuantizedTensor, ...]
    """Quantization of the operands of an integer operation; otherwise empty."""
    result: Kind
    """Kind of the result."""
    limits: Limits | None
    """Bounds of the fused ReLU or clip."""
    bias: str
    """Name of the bias of integer weights, empty if there is none."""
    bias_dtype: str
    """Element type of this bias: int32, on the scale of the sum, or float32."""
    name: str
    """Name of the first result."""
    layer: str
    """Name of the layers that compute it."""

    def begin_node(self, node: Node) -> None:
        """Begin the lowering of a node and discard the state of the previous node."""
        self.node, self.kind = node, node.kind
        self.names = node.operands if node.integers else node.inputs
        self.sources, self.result, self.limits = (), FLOAT, None
        self.bias, self.bias_dtype = "", "int32"
        if node.integers:
            self.sources, self.result = node.integers.sources, node.integers.result
            self.limits, self.bias = node.integers.limits, node.integers.bias
            self.bias_dtype = node.integers.bias_dtype
        self.name = next(iter(node.results), "")
        self.layer = self.get_layer_name(self.name)
        self._layout: Layout = PLAIN
        self._own: set[str] = set()

    @property
    def layout(self) -> Layout:
        """Layout of the result; by default the layout of the operand that was read last."""
        return self._layout

    @layout.setter
    def layout(self, layout: Layout) -> None:
        self._layout = PLAIN if self.graph.channels_last else layout

    @property
    def quantized_result(self) -> QuantizedTensor:
        """Quantization of the result; raises UnsupportedError if the result is not quantized."""
        if isinstance(self.result, str):
            raise UnsupportedError(f"result {self.name} of {self.result}", "a quantized result")
        return self.result

    @property
    def declared_shape(self) -> Shape:
        """Shape that the file declares for the result."""
        return self.graph.declarations[self.name].shape

    # --- operands ----------------------------------------------------------------------------

    def get_constant(self, operand: int | str) -> Array:
        """Return the constant values of the input that an index or name selects.

        Raises UnsupportedError if it is not a constant.
        """
        name = self.node.get_input(operand) if isinstance(operand, int) else operand
        return super().get_constant(name)

    def get_integers(self, index: int) -> list[int]:
        """Return the values of a constant integer input as a list of at most 1024 elements."""
        values = self.get_constant(index)
        name = self.node.get_input(index)
        require(
            values.dtype.kind in "iu",
            f"{name} of type {values.dtype}",
            f"{name} of an integer type",
        )
        require(
            values.size <= _MAX_INTEGERS,
            f"{name} with {values.size} elements",
            f"at most {_MAX_INTEGERS} elements",
        )
        return [int(value) for value in values.reshape(-1)]

    def get_number(self, index: int) -> float:
        """Return the single element of a constant input as a float."""
        return float(self.get_constant(index).item())

    def get_shape(self, operand: int | str = 0) -> Shape:
        """Return an operand's shape in the model file's dimension order."""
        return super().get_shape(self.names[operand] if isinstance(operand, int) else operand)

    def get_image_shape(self) -> Shape:
        """Return the shape of the first operand as [N, C, ...]."""
        return self.to_nchw(self.get_shape())

    def read_operand(self, index: int = 0, layout: Layout | None = None) -> BuilderTensor:
        """Read an operand; raise UnsupportedError unless its type is float or quantized."""
        if self.sources:
            return self.read_unchecked_operand(index, layout, self.sources[index])
        value = self.read_unchecked_operand(index, layout)
        check_element_types([value], ("float",), self.names[index])
        return value

    def read_unchecked_operand(
        self,
        index: int = 0,
        layout: Layout | None = None,
        quantization: QuantizedTensor | None = None,
    ) -> BuilderTensor:
        """Read an operand of any element type, by default in its stored layout."""
        name = self.names[index]
        self.layout = self.choose_layout(name) if layout is None else layout
        return self.read_value(name, self.layout, quantization)

    def read_broadcast_operands(self) -> list[BuilderTensor]:
        """Read all operands, broadcast to their common shape and in the same layout."""
        shapes = [self.get_shape(name) for name in self.names]
        shape = tuple(np.broadcast_shapes(*shapes))
        self.layout = self.choose_layout(*self.names)
        return [self.broadcast_operand(index, shape) for index in range(len(self.names))]

    def broadcast_operand(self, index: int, shape: Shape) -> BuilderTensor:
        """Return an operand in the layout of the result, broadcast to a shape."""
        quantization = self.sources[index] if self.sources else None
        return self.broadcast(self.names[index], self.layout, shape, quantization)

    # --- instructions ------------------------------------------------------------------------

    def emit(
        self,
        opcode: str,
        *operands: BuilderTensor,
        shape: Shape | None = None,
        kind: Kind | TensorType | None = None,
        name: str = "",
        **attributes: Any,
    ) -> BuilderTensor:
        """Emit an instruction that writes a new buffer; return the buffer.

        Parameters
        ----------
        opcode : str
            Opcode of LIR.
        *operands : Value
            Operands after the result.
        shape, kind : optional
            Shape and kind of the result; by default those of the first operand.
        name : str
            Name of the tensor that is computed; by default the node's first result.
        **attributes
            Attributes of the instruction.
        """
        like = operands[0].type if kind is None else kind
        result = self.allocate(like, operands[0].shape if shape is None else shape, name)
        layer = self.get_layer_name(name) if name else self.layer
        self.add_instruction(opcode, layer, (result, *operands), **attributes)
        return result

    def emit_result(
        self, opcode: str, *operands: BuilderTensor, shape: Shape | None = None, **attributes: Any
    ) -> BuilderTensor:
        """Emit an instruction of the same result type as the node and return its result."""
        return self.emit(opcode, *operands, shape=shape, kind=self.result, **attributes)

    def allocate(self, kind: Kind | TensorType, shape: Shape, name: str = "") -> BuilderTensor:
        """Allocate a buffer that the node writes; return the buffer."""
        if isinstance(kind, TensorType):
            self.check_size(shape)
            type = attrs.evolve(kind, shape=shape)
        else:
            type = self.make_tensor_type(kind, shape)
        value = self.builder.allocate(f"{name or self.name}_res", type)
        self._own.add(value.name)
        return value

    def emit_touch(self, value: BuilderTensor) -> None:
        """Emit ``touch``, which marks a buffer as written before its parts are written."""
        self.builder.add_instruction("touch", f"{self.name}_touch", (value,))

    def emit_concatenation(
        self, kind: Kind | TensorType, parts: Sequence[BuilderTensor], axis: int
    ) -> BuilderTensor:
        """Emit a concatenation of values along a stored axis; return the result."""
        own = parts[0].shape
        others = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
        is_moved = self.layout == CHANNELS_LAST and len(own) > 2
        order: Callable[[Sequence[int]], Shape] = move_channels_second if is_moved else tuple
        require(
            len(others) == 1,
            f"input shapes {', '.join(str(list(order(part.shape))) for part in parts)}",
            f"shapes that differ only in dimension {order(range(len(own))).index(axis)}",
        )
        size = sum(part.shape[axis] for part in parts)
        whole = self.allocate(kind, (*own[:axis], size, *own[axis + 1 :]))
        self.emit_touch(whole)
        begin = 0
        for part in parts:
            self.emit_insertion(whole, part, tuple(begin * (d == axis) for d in range(len(own))))
            begin += part.shape[axis]
        return whole

    def emit_extraction(
        self, value: BuilderTensor, axis: int, first: int, count: int
    ) -> BuilderTensor:
        """Emit an extraction along an axis; return its result, or ``value`` for the whole axis."""
        own = value.shape
        if count == own[axis]:
            return value
        shape, offsets = (*own[:axis], count, *own[axis + 1 :]), [0] * len(own)
        offsets[axis] = first
        return self.emit("extracttensor", value, shape=shape, Offsets=tuple(offsets))

    def emit_insertion(
        self,
        target: BuilderTensor,
        source: BuilderTensor,
        offsets: Shape,
        count: int = 1,
        axis: int = 0,
    ) -> None:
        """Emit copies of ``source`` into ``target`` from ``offsets``, along an axis."""
        attributes = {"Offsets": offsets, "Count": count, "Axis": axis}
        self.add_instruction("inserttensor", self.layer, (target, source), **attributes)

    def emit_table_lookup(self, value: BuilderTensor, results: Array) -> BuilderTensor:
        """Emit a look-up of each integer in a table of ``results``; return the result.

        ``results`` are integers of the result's type, one for each integer of the type of
        ``value``, the lowest first; they are saturated.
        """
        dtype = "int8" if results.size == 256 else "int16"
        stored = results - UNSIGNED_OFFSETS.get(self.quantized_result.dtype, 0)
        table = np.clip(stored, *INTEGER_RANGES[dtype]).astype(dtype)
        type = self.make_tensor_type(self.result, table.shape)
        constant = self.builder.add_constant(f"{self.name}_table", table, type)
        return self.emit_result("intlookuptable", value, constant)

    def emit_fused_clip(self, value: BuilderTensor) -> BuilderTensor:
        """Emit the fused ReLU or clip and return its result; return ``value`` if there is none."""
        if self.limits is None:
            return value
        self.layer = self.get_layer_name(self.name)
        low, high = self.limits
        if high is None:
            return self.emit_result("relu", value)
        return self.emit_result("clip", value, Min=low, Max=high)

    def add_result_constant(self, suffix: str, values: Array) -> BuilderTensor:
        """Add a float32 constant named ``RESULT_SUFFIX`` and return it."""
        return self.add_float_constant(f"{self.name}_{suffix}", values)

    def add_filled_constant(self, shape: Shape, number: float) -> BuilderTensor:
        """Add a float32 constant whose elements are all equal and return it."""
        return self.add_result_constant("number", np.full(shape, number, np.float32))

    def emit_transpose(self, value: BuilderTensor, order: Shape) -> BuilderTensor:
        """Emit a transposition to the dimension order ``order``; return its result."""
        shape = tuple(value.shape[axis] for axis in order)
        return self.emit("transpose", value, shape=shape, Shuffle=order)

    def swap_with_last(self, value: BuilderTensor, axis: int) -> BuilderTensor:
        """Emit a swap of ``axis`` with the last axis; return its result, or ``value`` if last."""
        order = list(range(len(value.shape)))
        order[axis], order[-1] = order[-1], order[axis]
        return value if axis == len(order) - 1 else self.emit_transpose(value, tuple(order))

    # --- results -----------------------------------------------------------------------------

    def define_result(self, name: str, value: BuilderTensor) -> None:
        """Define the node's result ``name`` as ``value``, in the current layout."""
        self.define_tensor(name, value, self.layout, value.storage in self._own)

    def define_view(self, shape: Shape) -> str:
        """Define the result as a view of the first operand; return why the node has no layer."""
        is_same = self.get_shape() == shape
        value = self.read_unchecked_operand(0, None if is_same else PLAIN)
        return self.define_alias(value if is_same else self.make_view(value, shape))

    def define_alias(self, value: BuilderTensor) -> str:
        """Define the result as ``value``; return why the node has no layer, or '' if it has one."""
        self.define_tensor(self.name, value, self.layout, is_own=False)
        return "" if self.is_output(self.name) else VIEW_ONLY

    def to_layout(self, dims: Sequence[int]) -> Shape:
        """Reorder one number per dimension from the order of the file to the result's layout."""
        return move_channels_last(dims) if self.layout == CHANNELS_LAST else tuple(dims)

    def find_stored_axis(self, axis: int, rank: int) -> int:
        """Return the axis of the result's layout that corresponds to an axis of the file."""
        return self.to_layout(range(rank)).index(axis % rank)


_READERS: Mapping[str, Callable[[GraphLowering, int], Any]] = {
    "Integers": GraphLowering.get_integers,
    "Array": GraphLowering.get_constant,
    "float": GraphLowering.get_number,
}
"""Annotation of a parameter -> how a constant input is read."""


def check_element_types(
    values: Sequence[BuilderTensor], elems: Sequence[str], name: str = ""
) -> None:
    """Raise UnsupportedError unless all values have the same element type, one of ``elems``."""
    for value in values:
        found = f"{name or value.name} of type {value.type.elem}"
        require(value.type.elem in elems, found, list_alternatives(elems))
        expected = f"{values[0].type.elem}, the type of {values[0].name}"
        require(value.type.elem == values[0].type.elem, found, expected)


def as_image(op: GraphLowering, value: BuilderTensor) -> BuilderTensor:
    """Return a view of a sequence [N, L, C] as image [N, 1, L, C], or an image unchanged."""
    if len(value.shape) == 4:
        return value
    return op.make_view(value, (value.shape[0], 1, *value.shape[1:]))
