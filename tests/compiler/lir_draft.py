"""LIR modules written by tests: weights, buffers, views and instructions, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from nmpsim.lir.nodes import (
    ELEM_DTYPES,
    QUANTIZABLE_ELEMS,
    Instruction,
    Module,
    Operand,
    Quantization,
    SourcePosition,
    TensorType,
    WeightVar,
)
from nmpsim.lir.verify import verify

Array = np.ndarray[Any, Any]
NOWHERE = SourcePosition(1, 1)


def tensor_type(
    elem: str, shape: tuple[int, ...], scale: float = 1.0, offset: int = 0
) -> TensorType:
    if elem not in QUANTIZABLE_ELEMS:
        return TensorType(elem, shape)
    scale = float(np.float32(scale))
    limits = np.iinfo(ELEM_DTYPES[elem])
    low, high = (scale * (int(q) - offset) for q in (limits.min, limits.max))
    return TensorType(elem, shape, Quantization(scale, offset, low, high))


def int8(shape: tuple[int, ...], scale: float = 0.5, offset: int = 0) -> TensorType:
    return tensor_type("i8", shape, scale, offset)


@attrs.frozen
class Ref:
    """Reference to a tensor of the draft."""

    name: str
    type: TensorType
    kind: str
    """constant, input, output, buffer or view"""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape


@attrs.define
class Draft:
    """Module under construction."""

    weights: list[WeightVar] = attrs.field(factory=list)
    instructions: list[Instruction] = attrs.field(factory=list)
    constants: dict[str, Array] = attrs.field(factory=dict)
    inputs: dict[str, TensorType] = attrs.field(factory=dict)
    outputs: list[str] = attrs.field(factory=list)
    is_last: bool = False
    """The next result is the program's output."""
    _names: int = 0

    def constant(self, values: Array, elem: str, scale: float = 1.0, offset: int = 0) -> Ref:
        kind = tensor_type(elem, values.shape, scale, offset)
        assert values.dtype == kind.dtype
        ref = self._weight("const", kind, "constant")
        self.constants[ref.name] = values
        return ref

    def input(self, kind: TensorType) -> Ref:
        ref = self._weight("input", kind, "input")
        self.inputs[ref.name] = kind
        return ref

    def output(self, kind: TensorType) -> Ref:
        ref = self._weight("output", kind, "output")
        self.outputs.append(ref.name)
        return ref

    def buffer(self, kind: TensorType) -> Ref:
        return self._define("allocactivation", (), {"Ty": kind}, "buffer")

    def result(self, kind: TensorType) -> Ref:
        """Add a tensor for a result: the program's output if it is last, else a buffer."""
        return self.output(kind) if self.is_last else self.buffer(kind)

    def view(self, source: Ref, kind: TensorType, offsets: tuple[int, ...] | None = None) -> Ref:
        start = (0,) * len(source.shape) if offsets is None else offsets
        operands = (Operand("@in", source.name, NOWHERE),)
        return self._define("tensorview", operands, {"Ty": kind, "Offsets": start}, "view")

    def emit(self, opcode: str, *operands: Ref, **attributes: Any) -> Ref:
        """Add an instruction and return its first operand, the result (inout for an insertion)."""
        first = "@inout" if opcode == "inserttensor" else "@out"
        kinds = (first, *("@in",) * (len(operands) - 1))
        written = tuple(
            Operand(kind, ref.name, NOWHERE) for kind, ref in zip(kinds, operands, strict=True)
        )
        self._add(self._name(opcode), opcode, written, attributes)
        return operands[0]

    def module(self) -> Module:
        """Return the verified module."""
        module = Module("drafted", tuple(self.weights), tuple(self.instructions), self.constants)
        verify(module)
        return module

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}__{self._names}"

    def _weight(self, stem: str, kind: TensorType, ref_kind: str) -> Ref:
        name = self._name(stem)
        self.weights.append(WeightVar(name, kind, ref_kind == "constant", NOWHERE))
        return Ref(name, kind, ref_kind)

    def _define(
        self, opcode: str, operands: tuple[Operand, ...], attributes: Mapping[str, Any], kind: str
    ) -> Ref:
        name = self._name("buffer" if kind == "buffer" else "view")
        self._add(name, opcode, operands, attributes)
        return Ref(name, attributes["Ty"], kind)

    def _add(
        self,
        name: str,
        opcode: str,
        operands: tuple[Operand, ...],
        attributes: Mapping[str, Any],
    ) -> None:
        number = len(self.instructions)
        span = SourcePosition(100 + number, 3)
        self.instructions.append(Instruction(number, name, opcode, operands, attributes, span))


def random_values(rng: np.random.Generator, kind: TensorType, shape: Any = None) -> Array:
    """Draw values from the whole range of an integer type, or now and then only its limits."""
    shape = kind.shape if shape is None else shape
    if kind.dtype.kind == "f":
        return rng.normal(0, 3, shape).astype(kind.dtype)
    if kind.dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(np.bool_)
    limits = np.iinfo(kind.dtype)
    if rng.random() < 0.15:
        return rng.choice([int(limits.min), int(limits.max)], shape).astype(kind.dtype)
    return rng.integers(int(limits.min), int(limits.max), shape, kind.dtype, endpoint=True)
