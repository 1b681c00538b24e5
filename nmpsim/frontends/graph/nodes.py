"""Graph of tensors and operators as plain data, and a builder of its nodes.

Operators are named as in ONNX. The readers of all formats build this graph; one lowering turns it
into LIR.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.imported_model import NotConstantError, UnsupportedError, require

OPSET = 21
"""Version of ONNX's operators in graphs of other formats."""
Array = npt.NDArray[Any]
Constants = Mapping[str, Array]
Shape = tuple[int, ...]
Limits = tuple[float, float | None]
"""Bounds of a ReLU or clip, as real numbers; None: no upper bound."""
ONNX_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
}
"""Element type number in ``onnx.proto`` -> NumPy name."""
INTEGER_RANGES = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("int8", "uint8", "int16", "uint16", "int32")
}
"""Type of quantized tensors -> smallest and largest integer."""
UNSIGNED_OFFSETS = {"uint8": 128, "uint16": 32768}
"""Unsigned type -> what is subtracted to store it as signed."""


@attrs.frozen(eq=False)
class QuantizedTensor:
    """Quantized tensor: name, element type, scales and zero points."""

    name: str
    dtype: str
    """NumPy name; empty if neither the zero point nor the values have a type."""
    scales: npt.NDArray[np.float32]
    """[1], or one for each index of a dimension."""
    zero_points: npt.NDArray[np.int64]
    """As many as scales."""
    axis: int = 0
    """Dimension that several scales belong to, if the file gives it with the tensor."""

    @property
    def scale(self) -> float:
        """Scale of the tensor; raises UnsupportedError if it has several scales."""
        self._require_one_scale()
        return float(self.scales[0])

    @property
    def zero_point(self) -> int:
        """Zero point of the tensor; raises UnsupportedError if it has several scales."""
        self._require_one_scale()
        return int(self.zero_points[0])

    def has_equal_parameters(self, other: QuantizedTensor) -> bool:
        """Return whether another tensor has the same element type, scales and zero points."""
        return (
            self.dtype == other.dtype
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(self.zero_points, other.zero_points)
        )

    def _require_one_scale(self) -> None:
        require(self.scales.size == 1, f"{self.name} has {self.scales.size} scales", "one scale")


Kind = QuantizedTensor | str
"""Quantization of a tensor, or the NumPy name of its element type."""


@attrs.frozen(eq=False)
class IntegerOperation:
    """Operation on quantized tensors: ONNX operator, tensors, bias and fused clip."""

    kind: str
    """ONNX name of the operator on floats, such as Conv."""
    sources: tuple[QuantizedTensor, ...]
    result: QuantizedTensor
    bias: str = ""
    """Name of a constant."""
    bias_dtype: str = "int32"
    """Element type of the bias: int32, on the scale of the sum, or float32."""
    limits: Limits | None = None
    """Bounds of the ReLU or clip after it."""
    float_nodes: tuple[Node, ...] = ()
    """For an operation that ONNX Runtime computes in float32: its nodes, from DequantizeLinear to
    QuantizeLinear."""


@attrs.frozen(eq=False)
class Node:
    """Node of a graph: an operator with the names of its inputs and outputs, and its attributes."""

    index: int
    op: str
    """Operator name, with its domain unless that is ONNX's own: com.microsoft.QLinearAdd."""
    inputs: tuple[str, ...]
    """Tensor names; empty for an optional input that is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """Numbers, strings, tuples of them, and arrays."""
    title: str = ""
    """Label in messages, for a node that no ONNX file has."""
    integers: IntegerOperation | None = None
    """How it is computed on integers; None if it is computed on floats or on any element type."""

    @property
    def kind(self) -> str:
        """ONNX name of the operator; a quantized variant has the name of the float operator."""
        return self.integers.kind if self.integers else self.op

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the tensors that the node reads; omits parameters of integer operations."""
        if self.integers:
            return tuple(source.name for source in self.integers.sources)
        return tuple(name for name in self.inputs if name)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the tensors that the node computes."""
        if self.integers:
            return (self.integers.result.name,)
        return tuple(name for name in self.outputs if name)

    @property
    def label(self) -> str:
        """Text for messages: number, operator and first output of the node."""
        return self.title or f"{self.index} {self.op} {self.outputs[0]}"

    def get_input(self, index: int) -> str:
        """Return the name of an input, or an empty string if the input is omitted."""
        return self.inputs[index] if index < len(self.inputs) else ""


@attrs.frozen(eq=False)
class GraphInput:
    """Input of a model: its name, element type and shape."""

    name: str
    dtype: str
    shape: Shape | None
    """With 1 for each open dimension; None if even the rank is open."""


@attrs.frozen(eq=False)
class GraphState:
    """State of a model: an input that has the value of another tensor in the next run."""

    input: str
    value: str
    """Name of the tensor with the next value."""
    initial: Array
    """Value before the first run."""
    index: int
    """Number of the operator that assigns it."""


@attrs.frozen(eq=False)
class TensorDeclaration:
    """Declaration of a tensor in a model file: element type or quantization, and shape."""

    kind: Kind
    shape: Shape


@attrs.frozen(eq=False)
class Graph:
    """Graph of a model: operators, constants, inputs and outputs."""

    nodes: tuple[Node, ...]
    constants: Constants
    inputs: tuple[GraphInput, ...]
    outputs: tuple[str, ...]
    opset: int
    """Version of ONNX's own operators."""
    open_inputs: tuple[str, ...] = ()
    """Inputs with open dimensions after the first one, compiled as 1: name and example shape, in
    the form of ``--input-shape``."""
    warnings: tuple[str, ...] = ()
    quantization: Mapping[str, QuantizedTensor] = MappingProxyType({})
    """Tensor name -> its scales and zero points."""
    declarations: Mapping[str, TensorDeclaration] = MappingProxyType({})
    """Tensor name -> its declaration, for files that declare all tensors."""
    layers: Mapping[str, str] = MappingProxyType({})
    """Tensor name -> name of the layers that compute it, if different."""
    states: tuple[GraphState, ...] = ()
    channels_last: bool = False
    """Whether images have their channels last instead of second."""


def read_quantization(
    node: Node, constants: Constants, name: str, index: int = 1, default: str = ""
) -> QuantizedTensor:
    """Read a tensor's quantization from a node's constant scale and zero-point inputs.

    Parameters
    ----------
    node : Node
        The node.
    constants : mapping of str to ndarray
        Known constants.
    name : str
        Name of the tensor.
    index : int
        Position of the scale; the zero point is the next input.
    default : str
        Element type if neither the zero point nor the values have one.

    Raises
    ------
    UnsupportedError
        If they are not constants, do not fit together, or a scale is not positive and finite.
    """
    scale, zero_point = node.get_input(index), node.get_input(index + 1)
    given_scales = get_constant_values(constants, scale, "a scale")
    is_blocked = given_scales.ndim > 1 and given_scales.size > 1
    require(
        not is_blocked,
        f"block-wise scales of shape {list(given_scales.shape)}",
        "one scale, or one per channel",
    )
    scales = given_scales.reshape(-1)
    dtype = str(get_constant_values(constants, name).dtype) if name in constants else ""
    zeros = np.zeros(scales.size, np.int64)
    if zero_point:
        given = get_constant_values(constants, zero_point)
        dtype, zeros = str(given.dtype), given.reshape(-1)
    require(
        not dtype or dtype in INTEGER_RANGES,
        f"{name} of type {dtype}",
        f"{name} of type {list_alternatives(INTEGER_RANGES)}",
    )
    require(
        scales.dtype == np.float32,
        f"scale {scale} of type {scales.dtype}",
        "a scale of type float32",
    )
    require(scales.size, f"scale {scale} without elements", "at least one scale")
    require(
        zeros.size in (1, scales.size),
        f"{zeros.size} zero points for {scales.size} scales",
        f"1 zero point, or {scales.size}",
    )
    require(
        np.isfinite(scales).all() and (scales > 0).all(),
        f"scales of {name} from {scales.min():g} to {scales.max():g}",
        "positive finite scales",
    )
    wide = np.broadcast_to(zeros.astype(np.int64), scales.shape)
    return QuantizedTensor(name, dtype or default, scales.astype(np.float32), wide)


def make_unit_quantization(name: str, dtype: str) -> QuantizedTensor:
    """Return the quantization of a tensor with scale 1 and zero point 0."""
    return QuantizedTensor(name, dtype, np.ones(1, np.float32), np.zeros(1, np.int64))


def get_constant_values(constants: Constants, name: str, description: str = "an input") -> Array:
    """Return a constant's values; raise NotConstantError if the tensor is not a constant.

    Parameters
    ----------
    constants : mapping of str to ndarray
        Known constants; one of an unsupported type is an object array with the type's name.
    name : str
        Name of the tensor, empty if it is left out.
    description : str
        Text for the message if the name is empty.

    Raises
    ------
    NotConstantError
        If the tensor is not a constant.
    UnsupportedError
        If its element type is not supported.
    """
    if name not in constants:
        raise NotConstantError(name, description)
    values = constants[name]
    if values.dtype == object:
        expected = "a constant of an element type that NumPy supports"
        raise UnsupportedError(f"constant {name} of type {values.item()}", expected)
    return values


# Builder of the nodes that replace an operator of a model file.


class NodeBuilder:
    """Builder of a graph's nodes and constants, with several nodes for some operators."""

    def __init__(self, constants: dict[str, Array]) -> None:
        self.nodes: list[Node] = []
        self.constants = constants
        self.layers: dict[str, str] = {}
        """New tensor -> name of the layers that compute it."""
        self._numbers = itertools.count()

    def begin_operator(self, index: int, title: str, result: str) -> None:
        """Begin the nodes of an operator with its number, title and first result."""
        self._index, self._title, self._result = index, title, result

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result; return the name of the result."""
        result = self._make_name()
        self.append_node(op, inputs, result, **attributes)
        return result

    def append_node(self, op: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> None:
        """Add a node with named results."""
        node = Node(self._index, op, tuple(inputs), outputs, attributes, self._title)
        self.nodes.append(node)

    def add_constant(self, values: Any) -> str:
        """Add a constant; return its name."""
        name = self._make_name()
        self.constants[name] = np.asarray(values)
        return name

    def add_number(self, number: float) -> str:
        """Add a float32 constant without dimensions; return its name."""
        return self.add_constant(np.float32(number))

    def add_integers(self, *numbers: int) -> str:
        """Add a constant of int64 with one dimension; return its name."""
        return self.add_constant(np.array(numbers, np.int64))

    def add_clip(self, name: str, low: float, high: float) -> str:
        """Add a Clip to constant bounds; return the name of its result."""
        return self.add("Clip", name, self.add_number(low), self.add_number(high))

    def add_reshape(self, name: str, shape: Sequence[int]) -> str:
        """Add a Reshape to a constant shape; return the name of its result."""
        return self.add("Reshape", name, self.add_integers(*shape))

    def _make_name(self) -> str:
        """Return a new name for a tensor whose layers are named as the operator's result."""
        name = f"{self._result} {next(self._numbers)}"
        self.layers[name] = self._result
        return name
