"""A straight-line LIR program as data, and its two printed forms: Glow's dump and the sidecar.

Only what the digits network needs. Both forms derive from the same :class:`Program`, so the text
and the exact scales cannot disagree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DTYPES = {"i8": np.dtype(np.int8), "i32": np.dtype(np.int32), "float": np.dtype(np.float32)}
SIDECAR_ELEMENTS = {"i8": "i8", "i32": "i32", "float": "f32"}
Entry = dict[str, object]


@dataclass(frozen=True)
class QuantParams:
    """``real = scale * (q - offset)``."""

    scale: np.float32
    offset: int


@dataclass(frozen=True)
class TensorType:
    """``elem`` is i8, i32 or float; ``params`` is None for float."""

    elem: str
    shape: tuple[int, ...]
    params: QuantParams | None = None

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape)) * DTYPES[self.elem].itemsize

    def reshaped(self, *shape: int) -> TensorType:
        return TensorType(self.elem, shape, self.params)

    def __str__(self) -> str:
        return f"{self.elem}{self._quantization()}<{' x '.join(map(str, self.shape))}>"

    def _quantization(self) -> str:
        if self.params is None:
            return ""
        limits = np.iinfo(DTYPES[self.elem])
        scale, offset = self.params.scale, self.params.offset
        low, high = (scale * np.float32(int(q) - offset) for q in (limits.min, limits.max))
        return f"[S:{scale:.9f} O:{offset}][{low:.3f},{high:.3f}]"

    def sidecar_entry(self) -> Entry:
        entry: Entry = {"elem": SIDECAR_ELEMENTS[self.elem], "shape": list(self.shape)}
        if self.params is not None:
            scale = float(self.params.scale)
            entry |= {"scale": scale, "scale_hex": scale.hex(), "offset": self.params.offset}
        return entry


@dataclass(frozen=True)
class Value:
    """A named tensor: a weight, a placeholder, an activation or a view."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class Instruction:
    """``operands`` are (access, value), access being in or out; ``result`` is what it defines."""

    name: str
    opcode: str
    operands: tuple[tuple[str, Value], ...]
    attributes: str = ""
    result: Value | None = None

    @property
    def storage_size(self) -> int | None:
        """Bytes that the instruction takes or gives back; None for all others."""
        if self.opcode == "allocactivation" and self.result is not None:
            return self.result.type.size
        return self.operands[0][1].type.size if self.opcode == "deallocactivation" else None

    @property
    def computed(self) -> Value | None:
        """The value that the instruction writes, if it computes one."""
        written = [value for access, value in self.operands if access == "out"]
        return written[0] if written and self.opcode != "deallocactivation" else None


@dataclass(frozen=True)
class Program:
    """Constants come first, then the input and the output placeholder, as in Glow's dump."""

    constants: tuple[Value, ...]
    data: Value
    output: Value
    code: tuple[Instruction, ...]

    def text(self) -> str:
        weights = [(c, "const") for c in self.constants]
        weights += [(self.data, "mutable"), (self.output, "mutable")]
        total = sum(value.type.size for value, _ in weights)
        lines = ["function main", "declare {"]
        lines += [self._weight_line(value, kind) for value, kind in weights]
        lines += ["", f"  ; size = {total} bytes", "}", "", "code {"]
        lines += [self._code_line(number, instr) for number, instr in enumerate(self.code)]
        return "\n".join([*lines, "}", ""])

    def sidecar(self, constants: dict[str, NDArray[np.generic]]) -> dict[str, Entry]:
        """Return the exact type of each tensor, with the start of the SHA-256 of each constant."""
        entries: dict[str, Entry] = {}
        for constant in self.constants:
            digest = hashlib.sha256(constants[constant.name].tobytes()).hexdigest()[:16]
            entries[f"const/{constant.name}"] = constant.type.sidecar_entry() | {"sha256": digest}
        entries[f"input/{self.data.name}"] = self.data.type.sidecar_entry()
        for number, instr in enumerate(self.code):
            if instr.computed is not None:
                key = f"act/{number:04d}:{instr.name}:{instr.computed.name}"
                entries[key] = instr.computed.type.sidecar_entry()
        entries[f"output/{self.output.name}"] = self.output.type.sidecar_entry()
        return entries

    def _weight_line(self, value: Value, kind: str) -> str:
        size = f" // size: {value.type.size}"
        return f"  %{value.name} = WeightVar {value.type} {kind}{size}{self._users(value)}"

    def _code_line(self, number: int, instr: Instruction) -> str:
        operands = ", ".join(f"@{access} %{value.name}" for access, value in instr.operands)
        attributes = f" {{ {instr.attributes}}}" if instr.attributes else ""
        size = "" if instr.storage_size is None else f" // size: {instr.storage_size}"
        users = "" if instr.result is None else self._users(instr.result)
        line = f"  {number} %{instr.name} = {instr.opcode} {operands}{attributes}"
        return line + size + users

    def _users(self, value: Value) -> str:
        """List what uses the value, the last use first."""
        users = [f"@{access} {number}" for access, number in self._uses(value)]
        return f" // Users: {', '.join(reversed(users))}"

    def _uses(self, value: Value) -> Iterator[tuple[str, int]]:
        for number, instr in enumerate(self.code):
            for access, operand in instr.operands:
                if operand == value:
                    yield access, number


def allocate(value: Value) -> Instruction:
    return Instruction(value.name, "allocactivation", (), f"Ty: {value.type}", value)


def free(value: Value) -> Instruction:
    return Instruction(f"dealloc_{value.name}", "deallocactivation", (("out", value),))


def view(source: Value, result: Value) -> Instruction:
    """Reshape without moving anything."""
    offsets = ", ".join("0" for _ in source.type.shape)
    attributes = f"Ty: {result.type}, Offsets: [{offsets}]"
    return Instruction(result.name, "tensorview", (("in", source),), attributes, result)


def compute(
    name: str, opcode: str, out: Value, *inputs: Value, attributes: str = ""
) -> Instruction:
    operands = (("out", out), *(("in", value) for value in inputs))
    return Instruction(name, opcode, operands, attributes)
