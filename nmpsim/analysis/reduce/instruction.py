"""One instruction, with its descriptor, registers and scratchpad, as a program in assembly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.assembly import assemble
from nmpsim.config import DeviceConfig
from nmpsim.core.state import Machine
from nmpsim.isa.assembly import disassemble_word
from nmpsim.isa.codec import decode
from nmpsim.isa.table import DESCRIPTORS, SCRATCHPAD_BASE
from nmpsim.memory.address_map import word_at

SCRATCHPAD, RESULT = "scratchpad", "result"
"""Names of the input that holds what lay in the scratchpad, and of the output."""


@attrs.frozen(eq=False)
class InstructionPart:
    """A program that does one instruction."""

    text: str
    bundle: bytes
    inputs: dict[str, npt.NDArray[Any]]


@attrs.frozen
class Element:
    """An element that a tensor instruction computes, and the layer that it is a part of."""

    layer: str
    elem: str
    nbytes: int
    address: int
    """In the scratchpad."""


def instruction_part(
    machine: Machine, core: int, pc: int, config: DeviceConfig, wanted: Element | None = None
) -> InstructionPart | None:
    """What a core is about to do, on one core; None if no word of its program says what that is.

    Args:
        machine: as it is just before the instruction.
        core: the core.
        pc: address of the instruction.
        config: the device.
        wanted: an element of the instruction's result that is the program's output.

    Raises:
        UserError: ASM codes if that is no program.
    """
    word = word_at(machine, core, pc)
    if word is None:
        return None
    decoded = decode(word)
    registers = [int(r) & 0xFFFF_FFFF for r in machine.cores[core].registers]
    words = None
    if decoded is not None and decoded.instruction.descriptor is not None:
        base = registers[decoded.operands["rs1"]]
        words = _descriptor(machine, core, base, decoded.instruction.descriptor)
    inputs: dict[str, npt.NDArray[Any]] = {}
    if decoded is not None and words is not None:
        size = int(machine.shared[0].scratchpad_bytes)
        inputs = {SCRATCHPAD: machine.scratchpad_i8[core][:size].copy()}
        lines = [*_data(size, words, wanted), "_start:", *_fetch(decoded.operands["rs1"])]
    else:
        used = {} if decoded is None else decoded.operands
        numbers = sorted({used[name] for name in ("rs1", "rs2") if used.get(name)})
        lines = ["_start:", *(f"    li x{number}, {registers[number]:#x}" for number in numbers)]
    head = f"# {disassemble_word(word, pc)} of core {core} at {pc:#x}"
    code = [f"    .word {word:#010x}", *([] if wanted is None else _GIVE), "    nmp.halt"]
    text = "\n".join([head, *lines, *code]) + "\n"
    one_core = attrs.evolve(config, cores_count=1)
    return InstructionPart(text, assemble(text, "repro.s", one_core.settings()).bundle(), inputs)


def _data(size: int, words: Sequence[int], wanted: Element | None) -> list[str]:
    """Input, output, descriptors; the instruction's work is for layer 0."""
    lines = [f".input {SCRATCHPAD}, i8[S:1.0 O:0]<{size}>"]
    if wanted is not None:
        lines += [
            f".output {RESULT}, {wanted.elem}[S:1.0 O:0]<1>",
            f".layer 0, {wanted.layer}, instruction, {RESULT}, 0",
            f"give: .descriptor store, dram={RESULT}, spm={wanted.address:#x}, \\",
            f"    run_bytes={wanted.nbytes}, count_x=1, count_y=1",
        ]
    return [
        *lines,
        f"fetch: .descriptor load, dram={SCRATCHPAD}, spm={SCRATCHPAD_BASE:#x}, \\",
        f"    run_bytes={size}, count_x=1, count_y=1",
        "descriptor:",
        *(f"    .word {value:#010x}" for value in (0, *words[1:])),
    ]


def _fetch(register: int) -> list[str]:
    load = ["    la t0, fetch", "    nmp.load t0", "    nmp.wait load, 0"]
    return [*load, f"    la x{register}, descriptor"]


_GIVE = [
    "    nmp.wait mac, 0",
    "    nmp.wait vector, 0",
    "    la t0, give",
    "    nmp.store t0",
    "    nmp.wait store, 0",
    "    li t0, 0                # the barrier that ends the layer, for one core",
    "    li t1, 1",
    "    nmp.barrier t0, t1",
]


def _descriptor(machine: Machine, core: int, base: int, name: str) -> list[int] | None:
    addresses = range(base, base + DESCRIPTORS[name].nbytes, 4)
    words = [word_at(machine, core, address) for address in addresses]
    known = [word for word in words if word is not None]
    return known if len(known) == len(words) and base % 4 == 0 else None
