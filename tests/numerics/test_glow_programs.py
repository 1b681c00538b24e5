"""Operations of libjit that only recorded programs show, found in the LIR by their opcode."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from oracles import page
from tally import Tally
from vectors import Array

from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.parser import parse_file

Typed = tuple[Array, np.float32, int]
"""Values, scale and zero point."""


class Program:
    """Program of the CPU backend with the recorded contents of its tensors."""

    def __init__(self, path: Path) -> None:
        flavour = path.name.split(".")[0]
        self.module: Module = parse_file(path)
        self._values = np.load(path.with_name(f"{flavour}.npz"))
        self._types: dict[str, Any] = json.loads(
            path.with_name(f"{flavour}.tensors.json").read_text()
        )

    def typed(self, key: str) -> Typed:
        kind = self._types[key]
        return self._values[key], np.float32(kind.get("scale", 1)), kind.get("offset", 0)

    def read(self, name: str, before: int) -> Typed:
        """Return a constant, or the last value of a tensor before an instruction."""
        if f"const/{name}" in self._types:
            return self.typed(f"const/{name}")
        written = [k for k in self._types if k.startswith("act/") and k.endswith(f":{name}")]
        return self.typed(max(k for k in written if int(k[4:8]) < before))

    def uses(self, opcode: str) -> Iterator[tuple[Instruction, Typed, list[Typed]]]:
        """Yield each instruction of an opcode with its result and its inputs."""
        for instruction in self.module.instructions:
            if instruction.opcode == opcode:
                out, *others = (operand.name for operand in instruction.operands)
                result = self.typed(f"act/{instruction.number:04d}:{instruction.name}:{out}")
                yield instruction, result, [self.read(n, instruction.number) for n in others]


def programs(shared: Path) -> Iterator[Program]:
    """Yield the Int8 programs of the small networks."""
    for top in ("lir", "lir_real"):
        for path in sorted((shared / top).glob("*/i8_*/cpu*.lir.txt")):
            if "before_opt" not in path.name and "resnet50" not in str(path):
                yield Program(path)


def test_quantized_softmax_equals_glow(shared: Path) -> None:
    tally = Tally()
    for program in programs(shared):
        for _, (expected, scale, zero), [(x, x_scale, _)] in program.uses("softmax"):
            if x.dtype == np.int8:
                y = page.clip(page.softmax_i8(x, x_scale, scale, zero))
                tally.assert_equal("programs, softmax of Int8", y, expected)
    tally.assert_matches_page()


def test_leaky_relu_equals_glow(shared: Path) -> None:
    tally = Tally()
    for program in programs(shared):
        for instruction, (expected, *to), [x] in program.uses("leakyrelu"):
            y = page.glow_int_leaky(*x, *to, instruction.attributes["Alpha"])
            tally.assert_equal("programs, LeakyReLU", page.clip(y), expected)
    tally.assert_matches_page()


def test_batched_add_equals_glow(shared: Path) -> None:
    tally = Tally()
    for program in programs(shared):
        for _, (expected, *to), sides in program.uses("batchedadd"):
            (left, l_scale, l_zero), (right, r_scale, r_zero) = sides
            operands = (left.astype(np.int64) - l_zero, right.astype(np.int64) - r_zero)
            y = page.glow_int_pair(np.add, *operands, l_scale, r_scale, *to)
            tally.assert_equal("programs, BatchedAdd", page.clip(y), expected)
    tally.assert_matches_page()
