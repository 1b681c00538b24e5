"""The graph of a TFLite model under construction, and what every operator's builder asks of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.graph.graph_builder import GraphBuilder
from nmpsim.frontends.graph.nodes import Array, Graph, QuantizedTensor, Shape
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.tflite.model import Graph as Model
from nmpsim.frontends.tflite.model import Operator, Tensor

Limits = tuple[float, float | None]
_MAX_INTEGERS = 64
"""Of axes, paddings, places: two for each of a tensor's dimensions would do."""
_NEEDS_SCALE = ("int8", "uint8", "int16")
_PLAIN = ("float32", "int32", "int64", "bool")
"""Types that need no scale."""
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""By their number in the schema."""
_LIMITS: dict[str, Limits | None] = {
    "NONE": None,
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}


class TFLiteGraphBuilder(GraphBuilder):
    """That of TFLite."""

    operator: Operator
    """The one at hand."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self._names: dict[int, str] = {}
        for tensor in (*model.inputs, *model.outputs, *model.tensors):
            if tensor.index not in self._names and tensor.values is None:
                self._names[tensor.index] = self.unique_name(tensor.name)

    def whole(self) -> Graph:
        """The graph of the model."""
        inputs = {self.name(one): (one.dtype, one.shape) for one in self.model.inputs}
        graph = self.build_graph(inputs, [self.name(one) for one in self.model.outputs])
        return attrs.evolve(graph, channels_last=True)

    # --- tensors -----------------------------------------------------------------------------

    def name(self, tensor: Tensor | None) -> str:
        """A tensor's name in the graph, where its kind and shape are declared."""
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

    def parameters(self, tensor: Tensor) -> QuantizedTensor:
        """What the integers of a quantized tensor stand for."""
        return self.quantization(self.name(tensor))

    def temporary(self, like: Tensor, what: str, shape: Shape | None = None) -> str:
        """A tensor between two steps, of another one's kind."""
        name, shape = (
            self.unique_name(f"{like.name}_{what}"),
            like.shape if shape is None else shape,
        )
        self.name_layer(name, self.name(self.result))
        return self.declare(name, self.kind(self.name(like)), shape)

    @property
    def result(self) -> Tensor:
        """The first tensor that the operator makes."""
        return self.operator.outputs[0]

    def inputs(self, count: int) -> tuple[Tensor, ...]:
        """The operator's first inputs, none of which may be left out."""
        tensors = tuple(t for t in self.operator.inputs[:count] if t is not None)
        if len(tensors) < count:
            raise UnsupportedError(f"{len(self.operator.inputs)} inputs")
        return tensors

    def quantized(self, count: int) -> tuple[Tensor, ...]:
        """The first inputs, which have to be quantized."""
        tensors = self.inputs(count)
        for tensor in tensors:
            if not tensor.is_quantized:
                raise UnsupportedError(kind_of(tensor))
        return tensors

    def integers(self, place: int) -> list[int]:
        """A constant input that holds a few whole numbers, in a row."""
        inputs = self.operator.inputs
        values = values_of(inputs[place] if place < len(inputs) else None)
        if values.dtype.kind not in "iu" or values.size > _MAX_INTEGERS:
            raise UnsupportedError(f"input {place} holds {values.size} {values.dtype}")
        return [int(value) for value in values.reshape(-1)]

    @property
    def limits(self) -> Limits | None:
        """Of the operator's fused activation; None if it has none."""
        number = self.operator.options.get("FusedActivationFunction", 0)
        name = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else str(number)
        if name not in _LIMITS:
            raise UnsupportedError(f"a fused {name}")
        return _LIMITS[name]

    def outputs(self) -> Iterator[str]:
        """Their names."""
        return map(self.name, self.operator.outputs)

    def _kind(self, tensor: Tensor, name: str) -> QuantizedTensor | str:
        if tensor.dtype not in (*_NEEDS_SCALE, *_PLAIN):
            raise UnsupportedError(f"{tensor.name} is {tensor.dtype}")
        if not tensor.is_quantized:
            if tensor.dtype in _NEEDS_SCALE:
                raise UnsupportedError(kind_of(tensor))
            return tensor.dtype
        if tensor.scales.size > 1:
            raise UnsupportedError(f"{tensor.name} has a scale for each channel")
        return QuantizedTensor(name, tensor.dtype, tensor.scales, tensor.zero_points)


def values_of(tensor: Tensor | None) -> Array:
    """A constant's values as the file has them."""
    if tensor is None or tensor.values is None:
        raise UnsupportedError(f"{tensor.name if tensor else 'an input'} is not a constant")
    return tensor.values


def kind_of(tensor: Tensor) -> str:
    """Say which type an unquantized tensor has, and what it lacks."""
    lacks = " without a scale" if tensor.dtype in _NEEDS_SCALE else ""
    return f"{tensor.name} is {tensor.dtype}{lacks}"


def dimension(given: Sequence[int], rank: int) -> int:
    """The one dimension that is given, counted from the end if it is negative."""
    if len(given) != 1 or not -rank <= given[0] < rank:
        raise UnsupportedError(f"dimension {list(given)} of {rank}")
    return given[0] % rank


def check_alike(*tensors: Tensor) -> None:
    """Refuse tensors of several scales or zero points; uint8 is held as Int8, 128 less."""
    kinds = {
        (t.scales.tobytes(), int(t.zero_points.sum()) - UNSIGNED * (t.dtype == "uint8"))
        for t in tensors
        if t.is_quantized
    }
    if len(kinds) > 1 or len({t.is_quantized for t in tensors}) > 1:
        raise UnsupportedError("inputs and result of different scales or zero points")


def check_moved(source: Tensor, result: Tensor) -> None:
    """Refuse a result of another scale, zero point or type than the values that are moved."""
    pairs = ((source.scales, result.scales), (source.zero_points, result.zero_points))
    same = all(np.array_equal(a, b) for a, b in pairs)
    if source.dtype != result.dtype or not same:
        raise UnsupportedError("input and result of different types, scales or zero points")
