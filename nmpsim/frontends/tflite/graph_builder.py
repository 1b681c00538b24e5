"""Construction of a graph from a TFLite model, and checks that several operators share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.graph.graph_builder import GraphBuilder
from nmpsim.frontends.graph.nodes import Array, Graph, Kind, Limits, QuantizedTensor, Shape
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.tflite.model import TFLiteModel, TFLiteOperator, TFLiteTensor

_MAX_INTEGERS = 64
"""Limit for axes, paddings and indices; two for each dimension would be enough."""
_QUANTIZED_TYPES = ("int8", "uint8", "int16")
_PLAIN_TYPES = ("float32", "int32", "int64", "bool")
"""Types without a scale."""
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""Fused activations by their number in the schema."""
_LIMITS: dict[str, Limits | None] = {
    "NONE": None,
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}


class TFLiteGraphBuilder(GraphBuilder):
    """Builder of the graph of a TFLite model."""

    operator: TFLiteOperator
    """The current operator."""

    def __init__(self, model: TFLiteModel) -> None:
        super().__init__()
        self.model = model
        self._names: dict[int, str] = {}
        for tensor in (*model.inputs, *model.outputs, *model.tensors):
            if tensor.index not in self._names and tensor.values is None:
                self._names[tensor.index] = self.unique_name(tensor.name)

    def build(self) -> Graph:
        """Return the graph of the model."""
        inputs = {self.get_name(one): (one.dtype, one.shape) for one in self.model.inputs}
        graph = self.build_graph(inputs, [self.get_name(one) for one in self.model.outputs])
        return attrs.evolve(graph, channels_last=True)

    # --- tensors -----------------------------------------------------------------------------

    def get_name(self, tensor: TFLiteTensor | None) -> str:
        """Return the graph name of a tensor; declare the tensor at its first use."""
        if tensor is None:
            raise UnsupportedError("an input is left out")
        if tensor.index not in self._names:
            self._names[tensor.index] = self.unique_name(tensor.name)
        name = self._names[tensor.index]
        if not self.is_declared(name):
            self.declare(name, self._kind(tensor, name), tensor.shape)
            if tensor.values is not None:
                self.constants[name] = tensor.values
        return name

    def get_tensor_quantization(self, tensor: TFLiteTensor) -> QuantizedTensor:
        """Return the quantization of a tensor; raise UnsupportedError if it has none."""
        return self.get_quantization(self.get_name(tensor))

    def add_temporary(self, like: TFLiteTensor, suffix: str, shape: Shape | None = None) -> str:
        """Declare an intermediate tensor of the same kind as another one, and return its name."""
        name = self.unique_name(f"{like.name}_{suffix}")
        self.name_layer(name, self.get_name(self.result))
        return self.declare(
            name, self.get_kind(self.get_name(like)), like.shape if shape is None else shape
        )

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of the current operator."""
        return self.operator.options

    @property
    def result(self) -> TFLiteTensor:
        """First result of the current operator."""
        return self.operator.outputs[0]

    @property
    def source(self) -> TFLiteTensor:
        """First input of the current operator; raise UnsupportedError if it is left out."""
        return self.get_inputs(1)[0]

    @property
    def quantized_source(self) -> TFLiteTensor:
        """First input of the current operator; raise UnsupportedError if it is not quantized."""
        return self.get_quantized_inputs(1)[0]

    def get_inputs(self, count: int) -> tuple[TFLiteTensor, ...]:
        """Return the first ``count`` inputs; raise UnsupportedError if one is left out."""
        tensors = tuple(t for t in self.operator.inputs[:count] if t is not None)
        require(len(tensors) >= count, f"{len(self.operator.inputs)} inputs")
        return tensors

    def get_quantized_inputs(self, count: int) -> tuple[TFLiteTensor, ...]:
        """Return the first ``count`` inputs; raise UnsupportedError if one is not quantized."""
        tensors = self.get_inputs(count)
        for tensor in tensors:
            check_quantized(tensor)
        return tensors

    def get_integers(self, index: int) -> list[int]:
        """Return a constant input of at most 64 integers as a flat list."""
        inputs = self.operator.inputs
        values = get_constant_values(inputs[index] if index < len(inputs) else None)
        require(
            values.dtype.kind in "iu" and values.size <= _MAX_INTEGERS,
            f"input {index} holds {values.size} {values.dtype}",
        )
        return [int(value) for value in values.reshape(-1)]

    @property
    def limits(self) -> Limits | None:
        """Bounds of the fused activation, or None if there is no activation."""
        number = self.options.get("FusedActivationFunction", 0)
        name = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else str(number)
        require(name in _LIMITS, f"a fused {name}")
        return _LIMITS[name]

    def outputs(self) -> Iterator[str]:
        """Yield the names of the current operator's results."""
        return map(self.get_name, self.operator.outputs)

    def _kind(self, tensor: TFLiteTensor, name: str) -> Kind:
        require(
            tensor.dtype in (*_QUANTIZED_TYPES, *_PLAIN_TYPES), f"{tensor.name} is {tensor.dtype}"
        )
        if not tensor.is_quantized:
            require(tensor.dtype in _PLAIN_TYPES, _unquantized_text(tensor))
            return tensor.dtype
        require(tensor.scales.size == 1, f"{tensor.name} has a scale for each channel")
        return QuantizedTensor(name, tensor.dtype, tensor.scales, tensor.zero_points)


Translation = Callable[[TFLiteGraphBuilder], None]
"""Adds the nodes of the current operator."""


def get_constant_values(tensor: TFLiteTensor | None) -> Array:
    """Return the values of a tensor; raise UnsupportedError if it is not constant."""
    if tensor is None or tensor.values is None:
        raise UnsupportedError(f"{tensor.name if tensor else 'an input'} is not a constant")
    return tensor.values


def check_quantized(tensor: TFLiteTensor) -> None:
    """Raise UnsupportedError if a tensor is not quantized."""
    require(tensor.is_quantized, _unquantized_text(tensor))


def _unquantized_text(tensor: TFLiteTensor) -> str:
    missing = " without a scale" if tensor.dtype in _QUANTIZED_TYPES else ""
    return f"{tensor.name} is {tensor.dtype}{missing}"


def normalize_single_axis(given: Sequence[int], rank: int) -> int:
    """Return the only axis of a list as a number >= 0; raise UnsupportedError if it is invalid."""
    require(len(given) == 1 and -rank <= given[0] < rank, f"dimension {list(given)} of {rank}")
    return given[0] % rank


def has_equal_scales(*tensors: TFLiteTensor) -> bool:
    """Return whether tensors have equal scales and equal zero points as stored.

    uint8 is stored as Int8, 128 less.
    """
    kinds = {
        (t.scales.tobytes(), int(t.zero_points.sum()) - UNSIGNED * (t.dtype == "uint8"))
        for t in tensors
        if t.is_quantized
    }
    return len(kinds) <= 1 and len({t.is_quantized for t in tensors}) <= 1


def check_equal_scales(*tensors: TFLiteTensor) -> None:
    """Raise UnsupportedError if scales or zero points of tensors differ."""
    message = "inputs and result of different scales or zero points"
    require(has_equal_scales(*tensors), message)


def check_equal_kinds(source: TFLiteTensor, result: TFLiteTensor) -> None:
    """Raise UnsupportedError if element type, scales or zero points of two tensors differ."""
    require(
        source.dtype == result.dtype
        and np.array_equal(source.scales, result.scales)
        and np.array_equal(source.zero_points, result.zero_points),
        "input and result of different types, scales or zero points",
    )
