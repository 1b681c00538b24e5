"""The graph under construction as LIR, and what every operator's lowering asks of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.diagnostics import Diagnostic, Place
from nmpsim.frontends.builder import Builder, Value, quantized
from nmpsim.frontends.tflite.model import Graph, Operator, Tensor
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType

Array = npt.NDArray[Any]
_MAX_INTEGERS = 64
"""Of axes, paddings, places: two for each of a tensor's dimensions would do."""
_FLOAT_HINT = (
    "convert the model with full integer quantization; or to ONNX (tf2onnx), for nmpsim quantize"
)
_NEEDS_SCALE = ("int8", "uint8", "int16")
_ELEMS = {
    "float32": "float",
    "int8": "i8",
    "uint8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "bool": "bool",
}
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""By their number in the schema."""
BOUNDS = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}


@attrs.frozen
class Result:
    """What a lowering has made of an operator: layers, or why there are none."""

    why: str = ""


class Lowering:
    """One graph on its way to a module."""

    def __init__(self, graph: Graph, builder: Builder, place: Place) -> None:
        self.graph = graph
        self.builder = builder
        self.place = place
        self._values: dict[int, Value] = {}
        self._constants: dict[int, Value] = {}
        self.padding: dict[int, tuple[int, int, int, int]] = {}
        """Tensor -> top, left, bottom, right that the convolutions reading it pad themselves."""
        self.bound: dict[int, Value] = {}
        """Inputs and outputs of the model."""
        self.outputs = {tensor.index for tensor in graph.outputs}
        self.readers: dict[int, list[Operator]] = {}
        for operator in graph.operators:
            for tensor in operator.inputs:
                if tensor is not None:
                    self.readers.setdefault(tensor.index, []).append(operator)

    def type_of(self, tensor: Tensor, shape: tuple[int, ...] | None = None) -> TensorType:
        """How a tensor is held; uint8 as Int8, with 128 less in values and zero point."""
        if tensor.dtype not in _ELEMS:
            raise UnsupportedError(f"{tensor.name} is {tensor.dtype}")
        elem, shape = _ELEMS[tensor.dtype], tensor.shape if shape is None else shape
        if not tensor.is_quantized:
            if tensor.dtype in _NEEDS_SCALE:
                raise UnsupportedError(kind_of(tensor))
            elem = {"i32": "index32", "i64": "index64"}.get(elem, elem)
            return TensorType(elem, shape)
        if tensor.scales.size > 1:
            raise UnsupportedError(f"{tensor.name} has a scale for each channel")
        return quantized(elem, shape, self.scale(tensor), self.zero_point(tensor))

    def scale(self, tensor: Tensor) -> float:
        """The one scale of a tensor."""
        if tensor.scales.size != 1 or not tensor.is_quantized:
            raise UnsupportedError(f"{tensor.name} is {tensor.dtype} without one scale")
        return float(tensor.scales[0])

    def zero_point(self, tensor: Tensor) -> int:
        """As it is held."""
        if tensor.zero_points.size != 1:
            raise UnsupportedError(f"{tensor.name} has {tensor.zero_points.size} zero points")
        return int(tensor.zero_points[0]) - (UNSIGNED if tensor.dtype == "uint8" else 0)

    def held(self, tensor: Tensor) -> Array:
        """A constant's values as they are held."""
        values = self.constant_of(tensor)
        if tensor.dtype == "uint8" and tensor.is_quantized:
            values = (values ^ np.uint8(UNSIGNED)).view(np.int8)
            values.flags.writeable = False  # and so kept as it is
        return values

    def constant_of(self, tensor: Tensor | None) -> Array:
        """A constant's values as the file has them."""
        if tensor is None or tensor.values is None:
            raise UnsupportedError(f"{tensor.name if tensor else 'an input'} is not a constant")
        return tensor.values

    def integers(self, operator: Operator, place: int) -> list[int]:
        """A constant input that holds a few whole numbers, in a row."""
        tensor = operator.inputs[place] if place < len(operator.inputs) else None
        values = self.constant_of(tensor)
        if values.dtype.kind not in "iu" or values.size > _MAX_INTEGERS:
            raise UnsupportedError(f"input {place} holds {values.size} {values.dtype}")
        return [int(value) for value in values.reshape(-1)]

    def check_moved(self, source: Tensor, result: Tensor) -> None:
        """Refuse a result of another scale, zero point or type than the values that are moved."""
        pairs = ((source.scales, result.scales), (source.zero_points, result.zero_points))
        same = all(a.shape == b.shape and (a == b).all() for a, b in pairs)
        if source.dtype != result.dtype or not same:
            raise UnsupportedError("input and result of different types, scales or zero points")

    def is_constant(self, tensor: Tensor) -> bool:
        """Whether a tensor's values are in the file."""
        return tensor.values is not None

    def value(self, tensor: Tensor | None) -> Value:
        """A tensor that an operator reads."""
        if tensor is None:
            raise UnsupportedError("an input is left out")
        if tensor.index in self._values:
            return self._values[tensor.index]
        if tensor.values is None:
            raise UnsupportedError(f"{tensor.name} is read before anything makes it")
        if tensor.index not in self._constants:
            type = self.type_of(tensor)
            self._constants[tensor.index] = self.builder.constant(
                tensor.name, self.held(tensor), type
            )
        return self._constants[tensor.index]

    def set(self, tensor: Tensor, value: Value) -> None:
        """What a tensor became."""
        self._values[tensor.index] = value

    def target(self, tensor: Tensor, shape: tuple[int, ...] | None = None) -> Value:
        """Where an operator writes a tensor; an output's is the program's own."""
        if tensor.index in self._values:  # an output of the model
            whole = self._values[tensor.index]
            return whole if shape in (None, whole.shape) else self.view(whole, shape)
        whole = self.builder.buffer(f"{tensor.name}_res", self.type_of(tensor))
        self._values[tensor.index] = whole
        return whole if shape in (None, whole.shape) else self.view(whole, shape)

    def temporary(self, tensor: Tensor, what: str, shape: tuple[int, ...] | None = None) -> Value:
        """Room for what lies between an operator's instructions, of a tensor's kind."""
        return self.builder.buffer(f"{tensor.name}_{what}", self.type_of(tensor, shape))

    def view(self, value: Value, shape: tuple[int, ...]) -> Value:
        """All of a tensor with another shape."""
        if math.prod(shape) != math.prod(value.shape):
            raise UnsupportedError(f"shape {list(value.shape)} cannot be {list(shape)}")
        return self.builder.view(value, attrs.evolve(value.type, shape=shape))

    def part(self, value: Value, index: tuple[int, ...]) -> Value:
        """The last two dimensions of a tensor, at an index of those before."""
        type = attrs.evolve(value.type, shape=value.shape[-2:])
        return self.builder.view(value, type, (*index, 0, 0))

    def add(self, opcode: str, operator: Operator, operands: Sequence[Value], **given: Any) -> None:
        """An instruction, named after what the operator makes."""
        self.builder.add(opcode, operator.outputs[0].name, operands, **given)

    def touch(self, operator: Operator, value: Value) -> None:
        """Say that what is written piece by piece is all written."""
        self.builder.add("touch", f"{operator.outputs[0].name}_touch", (value,))

    def broadcast(self, operator: Operator, tensor: Tensor, shape: tuple[int, ...]) -> Value:
        """An input as large as the result: a constant in the file's place, else copied there."""
        if tensor.shape == shape:
            return self.value(tensor)
        lead = (1,) * (len(shape) - len(tensor.shape))
        if self.is_constant(tensor):
            try:
                values = np.broadcast_to(self.held(tensor), shape)
            except ValueError:
                raise UnsupportedError(
                    f"{tensor.name} does not broadcast to {list(shape)}"
                ) from None
            return self.builder.constant(
                f"{tensor.name}_broadcast", values, self.type_of(tensor, shape)
            )
        value, own = self.value(tensor), (*lead, *tensor.shape)
        if len(own) != len(shape) or any(a not in (1, b) for a, b in zip(own, shape, strict=True)):
            raise UnsupportedError(f"{tensor.name} does not broadcast to {list(shape)}")
        value = self.view(value, own)
        for axis in reversed(range(len(shape))):
            if own[axis] != shape[axis]:
                own = (*own[:axis], shape[axis], *own[axis + 1 :])
                wide = self.temporary(tensor, "broadcast", own)
                self.touch(operator, wide)
                self.add(
                    "inserttensor",
                    operator,
                    (wide, value),
                    Offsets=(0,) * len(own),
                    Count=shape[axis],
                    Axis=axis,
                )
                value = wide
        return value

    def look_up_wide(
        self, operator: Operator, source: Value, target: Value, results: Array
    ) -> None:
        """Int16 by a table of 65,536, for -32768 and up; the host looks them up."""
        table = np.clip(results, -32768, 32767).astype(np.int16)
        name = f"{operator.outputs[0].name}_table"
        kind = TensorType("i16", (65536,), target.type.quant)
        mapping = self.builder.constant(name, table, kind)
        self.add("intlookuptable", operator, (target, source, mapping))

    def looked_up_wide(
        self, operator: Operator, source: Value, type: TensorType, results: Array, what: str
    ) -> Value:
        """The same into a place of its own, of a type but for its shape."""
        name = f"{operator.outputs[0].name}_{what}"
        target = self.builder.buffer(name, attrs.evolve(type, shape=source.shape))
        self.look_up_wide(operator, source, target, results)
        return target

    def gathered(
        self, operator: Operator, source: Value, axis: int, places: Array, target: Value | None
    ) -> Value:
        """Slices of a tensor along a dimension, at constant places; on the host."""
        shape = (*source.shape[:axis], *places.shape, *source.shape[axis + 1 :])
        base = operator.outputs[0].name
        if target is None:
            target = self.builder.buffer(f"{base}_part", attrs.evolve(source.type, shape=shape))
        kind = TensorType("index32", places.shape)
        indices = self.builder.constant(f"{base}_places", places.astype(np.int32), kind)
        self.add("gather", operator, (target, source, indices), BatchDims=axis)
        return target

    def activate(self, operator: Operator, made: Value, target: Value) -> None:
        """The operator's fused activation as an instruction, where it has one."""
        name = activation_of(operator)
        if name == "NONE":
            return
        if name == "RELU":
            self.add("relu", operator, (target, made))
            return
        low, high = BOUNDS[name]
        self.add("clip", operator, (target, made), Min=low, Max=high)

    def before_activation(self, operator: Operator) -> tuple[Value, Value]:
        """Where the operator writes, and where its activation does: one place if it has none."""
        result = operator.outputs[0]
        target = self.target(result)
        if activation_of(operator) == "NONE":
            return target, target
        return self.temporary(result, "sum"), target

    def unsupported(self, operator: Operator, why: UnsupportedError) -> Diagnostic:
        """The finding that an operator cannot be imported."""
        return Diagnostic(
            "MODEL002",
            f"operator {operator.node} cannot be compiled",
            place=self.place,
            found=str(why),
            hint=_FLOAT_HINT if str(why).endswith(" float32") else None,
        )


def kind_of(tensor: Tensor) -> str:
    """Say which type an unquantized tensor has, and what it lacks."""
    lacks = " without a scale" if tensor.dtype in _NEEDS_SCALE else ""
    return f"{tensor.name} is {tensor.dtype}{lacks}"


def activation_of(operator: Operator) -> str:
    """Name of the fused activation."""
    number = operator.options.get("FusedActivationFunction", 0)
    name = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else str(number)
    if name not in ("NONE", "RELU", *BOUNDS):
        raise UnsupportedError(f"a fused {name}")
    return name


def dimension(given: Sequence[int], rank: int) -> int:
    """The one dimension that is given, counted from the end if it is negative."""
    if len(given) != 1 or not -rank <= given[0] < rank:
        raise UnsupportedError(f"dimension {list(given)} of {rank}")
    return given[0] % rank


def some_inputs(operator: Operator, count: int) -> tuple[Tensor, ...]:
    """The first inputs, none of which may be left out."""
    tensors = tuple(t for t in operator.inputs[:count] if t is not None)
    if len(tensors) < count:
        raise UnsupportedError(f"{len(operator.inputs)} inputs")
    return tensors


def quantized_inputs(operator: Operator, count: int) -> tuple[Tensor, ...]:
    """The first inputs, which have to be quantized."""
    tensors = some_inputs(operator, count)
    for tensor in tensors:
        if not tensor.is_quantized:
            raise UnsupportedError(kind_of(tensor))
    return tensors


def same_parameters(first: Value, *others: Value) -> bool:
    """Whether tensors have one scale and zero point."""
    quants = [(v.type.quant.scale, v.type.quant.offset) for v in (first, *others) if v.type.quant]
    return len(quants) in (0, 1 + len(others)) and len(set(quants)) <= 1
