"""Programs of one instruction, written as text, compiled, and run on the host."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.compiler.driver import compile_module
from nmpsim.config import default_device
from nmpsim.lir.nodes import (
    Instruction,
    Module,
    Operand,
    Quantization,
    SourcePosition,
    TensorType,
    WeightVar,
)
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.parser import parse
from nmpsim.lir.printer import format_module
from nmpsim.lir.scales import resolve_exact_scales
from nmpsim.lir.verify import verify

Array = npt.NDArray[Any]
HERE = SourcePosition(1, 1)
DEVICE = attrs.evolve(default_device(), cores_count=1)


def quantized_type(elem: str, shape: tuple[int, ...], scale: float, offset: int) -> TensorType:
    info = np.iinfo(TensorType(elem, ()).dtype)
    low, high = (scale * (int(q) - offset) for q in (info.min, info.max))
    return TensorType(elem, shape, Quantization(scale, offset, low, high))


def plain_type(array: Array) -> TensorType:
    """Return the type of values that are not quantized."""
    names = {"float32": "float", "int32": "index32", "int64": "index64"}
    return TensorType(names.get(array.dtype.name, array.dtype.name), array.shape)


@attrs.frozen(eq=False)
class OneInstruction:
    """Program of one instruction with its inputs; the types of operands are in print order."""

    opcode: str
    types: tuple[TensorType, ...]
    values: dict[str, Array]
    """Role of each operand that is read -> what it holds, as it is stored."""
    attributes: dict[str, Any] = attrs.field(factory=dict)

    @property
    def results(self) -> list[str]:
        """Return the roles of the operands that are written."""
        roles = OPCODES[self.opcode].operands
        return [role.name for role in roles if role.kind != "@in" and not role.is_scratch]

    def text(self) -> str:
        """Return the program as Glow would print it."""
        weights, instructions = [], []

        def emit(name: str, opcode: str, operands: Any, attributes: Any) -> None:
            written = tuple(Operand(kind, at, HERE) for kind, at in operands)
            number = len(instructions)
            instructions.append(Instruction(number, name, opcode, written, attributes, HERE))

        operands = []
        for role, type_ in zip(OPCODES[self.opcode].operands, self.types, strict=True):
            operands.append((role.kind, role.name))
            if role.is_scratch:
                emit(role.name, "allocactivation", (), {"Ty": type_})
                continue
            weights.append(WeightVar(role.name, type_, False, HERE))
            if role.kind == "@inout":
                weights.append(WeightVar(f"{role.name}_before", type_, False, HERE))
                copied = (("@out", role.name), ("@in", f"{role.name}_before"))
                emit("begin", "copy", copied, {})
        emit("it", self.opcode, operands, self.attributes)
        return format_module(Module("one", tuple(weights), tuple(instructions)))

    def module(self) -> Module:
        """Return the program read from its text."""
        module, _ = resolve_exact_scales(parse(self.text()), None)
        verify(module)
        return module

    def inputs(self) -> dict[str, Array]:
        kinds = {role.name: role.kind for role in OPCODES[self.opcode].operands}
        return {f"{n}_before" if kinds[n] == "@inout" else n: v for n, v in self.values.items()}

    def bundle(self, numerics: str = "glow-int") -> Bundle:
        return parse_bundle(compile_module(self.module(), DEVICE, numerics=numerics))

    def run(self, numerics: str = "glow-int") -> dict[str, Array]:
        """Run the program on a device and return each result by its role."""
        report = nmpsim.Device(DEVICE, engine="reference").run(self.bundle(numerics), self.inputs())
        return {role: report.outputs[role] for role in self.results}
