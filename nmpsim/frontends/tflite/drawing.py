"""The graph of a TFLite model under construction, and what every operator's drawing asks of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.graph.instruction import INSTRUCTION
from nmpsim.frontends.graph.steps import (
    LIMITS,
    MOVED,
    Array,
    Declared,
    Graph,
    Input,
    IntegerOperation,
    Node,
    Quantized,
    Step,
)
from nmpsim.frontends.tflite.model import Graph as Model
from nmpsim.frontends.tflite.model import Operator, Tensor
from nmpsim.frontends.unsupported import UnsupportedError

Limits = tuple[float, float | None]
OPSET = 21
"""Of ONNX, whose operators the graph has."""
REFUSED = "nmpsim.Refused"
"""Kind of the node that stands for an operator that could not be drawn."""
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


class Drawing:
    """A model's operators, drawn one after the other."""

    operator: Operator
    """The one at hand."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.steps: list[Step] = []
        self._constants: dict[str, Array] = {}
        self._declared: dict[str, Declared] = {}
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        for tensor in (*model.inputs, *model.outputs, *model.tensors):
            if tensor.index not in self._names and tensor.values is None:
                self._names[tensor.index] = self._fresh(tensor.name)

    def graph(self) -> Graph:
        """All that was drawn."""
        inputs = {self.name(one): one for one in self.model.inputs}
        kinds = {name: one.kind for name, one in self._declared.items()}
        return Graph(
            tuple(step if isinstance(step, Node) else step.node for step in self.steps),
            self._constants,
            tuple(Input(name, one.dtype, one.shape) for name, one in inputs.items()),
            tuple(self.name(tensor) for tensor in self.model.outputs),
            OPSET,
            parameters={name: k for name, k in kinds.items() if isinstance(k, Quantized)},
            declared=self._declared,
            channels_last=True,
        )

    # --- tensors -----------------------------------------------------------------------------

    def name(self, tensor: Tensor | None) -> str:
        """A tensor's name in the graph, where its kind and shape are declared."""
        if tensor is None:
            raise UnsupportedError("an input is left out")
        if tensor.index not in self._names:
            self._names[tensor.index] = self._fresh(tensor.name)
        name = self._names[tensor.index]
        if name not in self._declared:
            self._declared[name] = Declared(self._kind(tensor, name), tensor.shape)
            if tensor.values is not None:
                self._constants[name] = tensor.values
        return name

    def parameters(self, tensor: Tensor) -> Quantized:
        """What the integers of a quantized tensor stand for."""
        kind = self._declared[self.name(tensor)].kind
        if isinstance(kind, str):
            raise UnsupportedError(kind_of(tensor))
        return kind

    def temporary(self, like: Tensor, what: str, shape: tuple[int, ...] | None = None) -> str:
        """A tensor between two steps, of another one's kind."""
        kind = self._declared[self.name(like)].kind
        return self._declare(f"{like.name}_{what}", kind, like.shape if shape is None else shape)

    def constant(self, name: str, values: Array, kind: Quantized | str) -> str:
        """A constant that the file does not have in this form."""
        name = self._declare(name, kind, values.shape)
        self._constants[name] = values
        return name

    def _declare(self, name: str, kind: Quantized | str, shape: tuple[int, ...]) -> str:
        name = self._fresh(name)
        own = attrs.evolve(kind, name=name) if isinstance(kind, Quantized) else kind
        self._declared[name] = Declared(own, shape)
        return name

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

    # --- steps -------------------------------------------------------------------------------

    def add(
        self, op: str, inputs: Sequence[str], result: str | None = None, **attributes: Any
    ) -> str:
        """One of ONNX's operators; the name of what it makes."""
        result = self.name(self.result) if result is None else result
        operator = self.operator
        node = Node(operator.index, op, tuple(inputs), (result,), attributes, operator.node)
        self.steps.append(node)
        return result

    def instruction(
        self, opcode: str, inputs: Sequence[str], result: str | None = None, **words: Any
    ) -> str:
        """An instruction of LIR; words in small letters are what such a node knows besides."""
        own = {key: words.pop(key) for key in list(words) if key.islower()}
        own = {"name": self.name(self.result), **own}
        return self.add(INSTRUCTION, inputs, result, opcode=opcode, words=words, **own)

    def computed(
        self,
        kind: str,
        sources: Sequence[str],
        result: str | None = None,
        bias: str = "",
        limits: Limits | None = None,
        **attributes: Any,
    ) -> None:
        """An operation on integers that ONNX has, too."""
        made = self.add(kind, sources, result, **attributes)
        node = self.steps.pop()
        assert isinstance(node, Node)
        quantized = tuple(map(self._quantized, sources))
        self.steps.append(
            IntegerOperation(node, kind, quantized, self._quantized(made), bias, limits)
        )

    def look_up(self, source: str, results: Array, result: str | None = None) -> str:
        """A function of each integer, lowest first as they are held, by all of its results."""
        result = self.name(self.result) if result is None else result
        kind = self._quantized(result)
        dtype = "int8" if results.size == 256 else "int16"
        held = attrs.evolve(
            kind, dtype=dtype, zero_points=kind.zero_points - MOVED.get(kind.dtype, 0)
        )
        table = np.clip(results, *LIMITS[dtype]).astype(dtype)
        mapping = self.constant(f"{self.result.name}_table", table, held)
        return self.instruction("intlookuptable", [source, mapping], result)

    def _quantized(self, name: str) -> Quantized:
        kind = self._declared[name].kind
        assert isinstance(kind, Quantized)
        return kind

    def refuse(self) -> None:
        """Stand for what the operator makes, so that its readers are judged on their own."""
        del self.steps[self._begin :]
        for tensor in self.operator.outputs:
            try:
                self.add(REFUSED, [], self.name(tensor))
            except UnsupportedError:
                return

    def begin(self, operator: Operator) -> None:
        """Draw an operator from here on."""
        self.operator = operator
        self._begin = len(self.steps)

    def _kind(self, tensor: Tensor, name: str) -> Quantized | str:
        if tensor.dtype not in (*_NEEDS_SCALE, *_PLAIN):
            raise UnsupportedError(f"{tensor.name} is {tensor.dtype}")
        if not tensor.is_quantized:
            if tensor.dtype in _NEEDS_SCALE:
                raise UnsupportedError(kind_of(tensor))
            return tensor.dtype
        if tensor.scales.size > 1:
            raise UnsupportedError(f"{tensor.name} has a scale for each channel")
        return Quantized(name, tensor.dtype, tensor.scales, tensor.zero_points)

    def _fresh(self, name: str) -> str:
        found, count = name, 0
        while found in self._taken:
            count += 1
            found = f"{name}__{count}"
        self._taken.add(found)
        return found


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
