"""Instructions, buffers and constants of a program in the making, under names of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.lir.nodes import (
    AttributeValue,
    Instruction,
    Module,
    Operand,
    Span,
    TensorType,
    WeightVar,
)
from nmpsim.lir.opcodes import OPCODES


class Writer:
    """A module in the making; instructions get their numbers, and buffers their ends, at last."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._names = set(taken)
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self._weights: list[WeightVar] = []
        self._instructions: list[Instruction] = []

    def name(self, wanted: str) -> str:
        """``wanted``, or with ``__N`` where that is taken, as Glow does it."""
        name, stem, count = wanted, wanted.rpartition("__"), 0
        base = stem[0] if stem[2].isdigit() and stem[0] else wanted
        while name in self._names:
            count += 1
            name = f"{base}__{count}"
        self._names.add(name)
        return name

    def constant(self, wanted: str, values: npt.NDArray[Any], type_: TensorType, span: Span) -> str:
        """A new constant; its name."""
        name = self.name(wanted)
        frozen = np.ascontiguousarray(values, type_.dtype)
        self._constants[name] = frozen
        self._weights.append(WeightVar(name, type_, True, span))
        return name

    def buffer(self, wanted: str, type_: TensorType, span: Span) -> str:
        """A new buffer; its name."""
        name = self.name(wanted)
        self._instructions.append(_defining(name, "allocactivation", (), {"Ty": type_}, span))
        return name

    def view(
        self, wanted: str, source: str, offsets: tuple[int, ...], type_: TensorType, span: Span
    ) -> str:
        """A view of a tensor; its name."""
        name = self.name(wanted)
        attributes: dict[str, AttributeValue] = {"Ty": type_, "Offsets": offsets}
        operands = (Operand("@in", source, span),)
        self._instructions.append(_defining(name, "tensorview", operands, attributes, span))
        return name

    def emit(
        self,
        wanted: str,
        opcode: str,
        operands: Iterable[str],
        attributes: Mapping[str, AttributeValue],
        span: Span,
    ) -> str:
        """An instruction with operands in print order; its name."""
        name = self.name(wanted)
        written = tuple(
            Operand(role.kind, operand, span)
            for role, operand in zip(OPCODES[opcode].operands, operands, strict=True)
        )
        self._instructions.append(_defining(name, opcode, written, attributes, span))
        return name

    def module(self, source: Module) -> Module:
        """The module, with the mutable weights and the file of ``source``."""
        mutable = (w for w in source.weights if not w.constant)
        instructions = self._with_ends()
        return attrs.evolve(
            source,
            weights=(*self._weights, *mutable),
            instructions=tuple(attrs.evolve(i, number=n) for n, i in enumerate(instructions)),
            constants=self._constants,
        )

    def _with_ends(self) -> list[Instruction]:
        """With a ``deallocactivation`` after the last use of each buffer, directly or by a view."""
        ending: dict[int, list[str]] = {}
        for name, index in self._last_uses().items():
            ending.setdefault(index, []).append(name)
        result = []
        for index, instruction in enumerate(self._instructions):
            result.append(instruction)
            for name in ending.get(index, ()):
                end = self.name(f"dealloc_{name}")
                operand = (Operand("@out", name, instruction.span),)
                result.append(_defining(end, "deallocactivation", operand, {}, instruction.span))
        return result

    def _last_uses(self) -> dict[str, int]:
        storage: dict[str, str] = {}
        last: dict[str, int] = {}
        for index, instruction in enumerate(self._instructions):
            if instruction.opcode == "allocactivation":
                storage[instruction.name] = instruction.name
            used = [storage[o.name] for o in instruction.operands if o.name in storage]
            if instruction.opcode == "tensorview" and used:
                storage[instruction.name] = used[0]
            last.update(dict.fromkeys(used, index))
        return last


def _defining(
    name: str,
    opcode: str,
    operands: tuple[Operand, ...],
    attributes: Mapping[str, AttributeValue],
    span: Span,
) -> Instruction:
    return Instruction(0, name, opcode, operands, attributes, span)
