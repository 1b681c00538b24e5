"""The one instruction that trapped, with its descriptor and registers, as a program."""

from __future__ import annotations

from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.assembly import assemble
from nmpsim.config import DeviceConfig
from nmpsim.core.state import Machine
from nmpsim.core.trapped import word_at
from nmpsim.isa.assembly import disassemble_word
from nmpsim.isa.codec import decode
from nmpsim.isa.table import DESCRIPTORS, SCRATCHPAD_BASE
from nmpsim.report.data import TrapReport

SCRATCHPAD = "scratchpad"
"""Name of the input that holds what lay in the scratchpad."""


@attrs.frozen(eq=False)
class InstructionPart:
    """A program in assembly that does one instruction."""

    text: str
    bundle: bytes
    inputs: dict[str, npt.NDArray[Any]]


def trapped_instruction(
    machine: Machine, trap: TrapReport, config: DeviceConfig
) -> InstructionPart | None:
    """What a core could not do, on one core; None if no word of its program says what that was.

    The machine is as the trap left it.
    """
    if trap.core is None or trap.pc is None:
        return None
    word = word_at(machine, trap.core, trap.pc)
    decoded = None if word is None else decode(word)
    if word is None:
        return None
    lines = [f"# {disassemble_word(word, trap.pc)} of core {trap.core} at {trap.pc:#x}"]
    registers = [int(r) & 0xFFFF_FFFF for r in machine.cores[trap.core].registers]
    setup: list[str] = []
    inputs: dict[str, npt.NDArray[Any]] = {}
    if decoded is not None and decoded.instruction.descriptor is not None:
        base = registers[decoded.operands["rs1"]]
        words = _descriptor(machine, trap.core, base, decoded.instruction.descriptor)
        if words is not None:
            size = int(machine.shared[0].scratchpad_bytes)
            lines += _scratchpad_lines(size)
            lines += ["descriptor:", *(f"    .word {value:#010x}" for value in words)]
            setup = ["    la t0, fetch", "    nmp.load t0", "    nmp.wait load, 0"]
            setup.append(f"    la x{decoded.operands['rs1']}, descriptor")
            inputs = {SCRATCHPAD: machine.scratchpad_i8[trap.core][:size].copy()}
    if not setup:
        used = {} if decoded is None else decoded.operands
        numbers = {used[name] for name in ("rs1", "rs2") if used.get(name)}
        setup = [f"    li x{number}, {registers[number]:#x}" for number in sorted(numbers)]
    code = ["_start:", *setup, f"    .word {word:#010x}", "    nmp.halt"]
    text = "\n".join([*lines, *code]) + "\n"
    one_core = attrs.evolve(config, cores_count=1)
    program = assemble(text, "repro.s", one_core.settings())
    return InstructionPart(text, program.bundle(), inputs)


def _scratchpad_lines(size: int) -> list[str]:
    return [
        f".input {SCRATCHPAD}, i8[S:1.0 O:0]<{size}>",
        f"fetch: .descriptor load, dram={SCRATCHPAD}, spm={SCRATCHPAD_BASE:#x}, \\",
        f"    run_bytes={size}, count_x=1, count_y=1",
    ]


def _descriptor(machine: Machine, core: int, base: int, name: str) -> list[int] | None:
    words = [
        word_at(machine, core, base + 4 * index) for index in range(len(DESCRIPTORS[name].words))
    ]
    known = [word for word in words if word is not None]
    return known if len(known) == len(words) and base % 4 == 0 else None
