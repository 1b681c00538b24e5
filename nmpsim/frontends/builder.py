"""Puts a module together: buffers begin before they are written and end after the last use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.lir.nodes import (
    AttributeValue,
    Instruction,
    Module,
    Operand,
    Quantization,
    Span,
    TensorType,
    WeightVar,
)
from nmpsim.lir.opcode import Kind
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.verify import verify

Array = npt.NDArray[Any]
NOWHERE = Span(0, 0)
"""There is no text that it stands in."""


def quantized(elem: str, shape: tuple[int, ...], scale: float, zero_point: int) -> TensorType:
    """The type of a quantized tensor; ``scale`` is a float32."""
    bits = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}[elem]
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    real = Quantization(scale, zero_point, scale * (low - zero_point), scale * (high - zero_point))
    return TensorType(elem, shape, real)


@attrs.frozen
class Value:
    """A tensor of the module under construction."""

    name: str
    type: TensorType
    storage: str
    """The weight or buffer that it lies in."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return self.type.shape


class Builder:
    """Collects weights and instructions; ``module`` ends buffers after their last use."""

    def __init__(self, name: str, file: str | None) -> None:
        self._name = name
        self._file = file
        self._weights: list[WeightVar] = []
        self._constants: dict[str, Array] = {}
        self._lines: list[Instruction] = []
        """Without their numbers."""
        self.names: list[str] = []
        """Of all instructions that compute something, in order."""
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        """Name -> the number from which on it may be free with that number behind it."""
        self.node = ""
        """The operation of the file that instructions are added for, as errors name it."""
        self._storage: dict[str, str] = {}
        """Name of a value -> the buffer that it lies in, of those that have to be ended."""

    def unique(self, name: str) -> str:
        """``name``, or with ``__N`` behind it, as Glow does it, where it is taken."""
        candidate, number = name, self._next.get(name, 0)
        while candidate in self._taken:
            number += 1
            candidate = f"{name}__{number}"
        self._next[name] = number
        self._taken.add(candidate)
        return candidate

    def variable(self, name: str, type: TensorType) -> Value:
        """An input or output of the program."""
        return self._weight(name, type, constant=False)

    def reserved(self, name: str, type: TensorType) -> Value:
        """An output of the program, whose name ``unique`` has given out before."""
        self._weights.append(WeightVar(name, type, False, NOWHERE))
        return Value(name, type, name)

    def order(self, names: Sequence[str]) -> None:
        """Let these inputs and outputs come first, in this order."""
        places = {name: place for place, name in enumerate(names)}
        self._weights.sort(key=lambda weight: places.get(weight.name, len(places)))

    def constant(self, name: str, values: Array, type: TensorType) -> Value:
        """A constant; ``values`` have the type's dtype and shape, and are kept if read-only."""
        value = self._weight(name, type, constant=True)
        held = np.array(values, type.dtype, copy=values.flags.writeable or None)
        held = held.reshape(type.shape)
        held.flags.writeable = False
        self._constants[value.name] = held
        return value

    def buffer(self, name: str, type: TensorType) -> Value:
        """Room for an activation."""
        unique = self.unique(name)
        self._emit(unique, "allocactivation", (), {"Ty": type})
        self._storage[unique] = unique
        return Value(unique, type, unique)

    def view(self, source: Value, type: TensorType, offsets: tuple[int, ...] = ()) -> Value:
        """A tensor with another shape; ``offsets`` is the element that it begins with."""
        if source.type == type:
            return source
        name = self.unique(f"{source.storage}_view")
        attributes: dict[str, AttributeValue] = {
            "Ty": type,
            "Offsets": offsets or (0,) * len(source.shape),
        }
        self._emit(name, "tensorview", (_operand("@in", source.name),), attributes)
        if source.name in self._storage:
            self._storage[name] = self._storage[source.name]
        return Value(name, type, source.storage)

    def add(
        self, opcode: str, name: str, operands: Sequence[Value], **attributes: AttributeValue
    ) -> str:
        """An instruction; ``operands`` are in the order of the table of opcodes. Its name."""
        roles = OPCODES[opcode].operands
        named = tuple(
            _operand(role.kind, value.name) for role, value in zip(roles, operands, strict=True)
        )
        unique = self.unique(name)
        self._emit(unique, opcode, named, attributes)
        return unique

    def become(self, value: Value, output: Value) -> None:
        """Write the value's buffer to an output of the program instead.

        A buffer of the output's type loses its name: use ``output`` from then on.
        """
        buffer, is_whole = value.storage, value.name == value.storage
        at = next(i for i in reversed(range(len(self._lines))) if self._lines[i].name == buffer)
        made = self._lines[at]
        if is_whole:
            del self._lines[at]
            self._lines[at:] = [_renamed(line, buffer, output.name) for line in self._lines[at:]]
        else:
            attributes = {"Ty": made.attributes["Ty"], "Offsets": (0,) * len(output.shape)}
            operands = (_operand("@in", output.name),)
            view = attrs.evolve(made, opcode="tensorview", operands=operands, attributes=attributes)
            self._lines[at] = view
        self._storage = {k: v for k, v in self._storage.items() if v != buffer}

    def module(self) -> Module:
        """The verified module."""
        last = {
            self._storage[operand.name]: index
            for index, line in enumerate(self._lines)
            for operand in line.operands
            if operand.name in self._storage
        }
        ends: dict[int, list[str]] = {}
        for buffer, index in last.items():
            ends.setdefault(index, []).append(buffer)
        instructions: list[Instruction] = []
        for index, line in enumerate(self._lines):
            instructions.append(attrs.evolve(line, number=len(instructions)))
            for buffer in ends.get(index, ()):
                instructions.append(
                    Instruction(
                        len(instructions),
                        self.unique(f"dealloc_{buffer}"),
                        "deallocactivation",
                        (_operand("@out", buffer),),
                        {},
                        NOWHERE,
                    )
                )
        module = Module(
            self._name, tuple(self._weights), tuple(instructions), self._constants, self._file
        )
        verify(module)
        return module

    def _emit(
        self,
        name: str,
        opcode: str,
        operands: tuple[Operand, ...],
        attributes: Mapping[str, AttributeValue],
    ) -> None:
        span = Span(0, 0, self.node)
        self._lines.append(Instruction(0, name, opcode, operands, attributes, span))
        if OPCODES[opcode].kind is not Kind.NO_WORK:
            self.names.append(name)

    def _weight(self, name: str, type: TensorType, constant: bool) -> Value:
        unique = self.unique(name)
        self._weights.append(WeightVar(unique, type, constant, NOWHERE))
        return Value(unique, type, unique)


def _renamed(line: Instruction, old: str, new: str) -> Instruction:
    if all(operand.name != old for operand in line.operands):
        return line
    operands = (attrs.evolve(o, name=new) if o.name == old else o for o in line.operands)
    return attrs.evolve(line, operands=tuple(operands))


def _operand(kind: str, name: str) -> Operand:
    return Operand(kind, name, NOWHERE)
