"""Executed instructions and their memory accesses, read from the trace of a run."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import attrs
import numpy as np

from nmpsim.bundle.metadata import ProgramStep
from nmpsim.core.state import Machine
from nmpsim.core.stop_conditions import TraceColumn
from nmpsim.debugger.byte_runs import ByteRuns, Space, get_tensor_region
from nmpsim.debugger.execution import Pause, ReversibleExecution
from nmpsim.isa.table import (
    CONTROL_BASE,
    DESCRIPTORS,
    DRAM_BASE,
    IMM_I,
    IMM_S,
    INSTRUCTIONS,
    SCRATCHPAD_BASE,
    DeviceInstruction,
    InstructionKind,
    Unit,
)
from nmpsim.isa.words import KINDS
from nmpsim.memory.address_map import read_bytes
from nmpsim.memory.footprint import (
    COUNT,
    FIRST_AXIS,
    IS_PLAIN,
    MAX_TOUCHES,
    OPERANDS,
    RUN,
    START,
    TOUCH_WORDS,
    WHAT,
    WRITES,
    compute_footprint,
)

AccessKind = Literal["read", "write"]
WORD_BYTES = 4
_NAMES: Mapping[str | None, list[str]] = {
    name: [word.name for word in record] for name, record in DESCRIPTORS.items()
}


@attrs.frozen
class MemoryAccess:
    """Access of an instruction or a host operation to a memory region: read or write."""

    kind: AccessKind
    operand: str
    """Name of the operand, such as ``input`` or ``weights``, or of a tensor."""
    region: ByteRuns


@attrs.frozen
class ExecutedInstruction:
    """Executed instruction: a row of a trace and the words of its descriptor."""

    number: int
    """Row of the instruction table."""
    turn: int
    """Position just before it."""
    core: int
    pc: int
    word: int
    rs1: int
    rs2: int
    begin: int
    """Cycle at which the core reached it."""
    end: int
    """Cycle at which the core continued."""
    job: int
    """Number in the queue of its unit; -1 if it has no unit."""
    finished: int
    """Cycle at which its unit finished it; NEVER if that was not known yet."""
    words: Mapping[str, int]
    """Words of its descriptor by name; empty if it has none."""
    is_code_writable: bool
    """Whether the instruction was fetched from writable memory."""

    @cached_property
    def accesses(self) -> tuple[MemoryAccess, ...]:
        """Memory accesses of the instruction: reads, then writes."""
        return list_accesses(self.instruction, self.words, self.word, self.rs1)

    @cached_property
    def fetches(self) -> tuple[MemoryAccess, ...]:
        """Reads by the core itself: an instruction in writable memory, and the descriptor."""
        found = [_make_access("read", "code", self.pc, WORD_BYTES)] * self.is_code_writable
        if self.instruction.descriptor is not None:
            nbytes = DESCRIPTORS[self.instruction.descriptor].nbytes
            found.append(_make_access("read", "descriptor", self.rs1, nbytes))
        return tuple(found)

    @property
    def next_position(self) -> int:
        """Position of the run directly after the instruction."""
        return self.turn + 1

    @property
    def instruction(self) -> DeviceInstruction:
        """Static properties of the instruction: its row of the instruction table."""
        return INSTRUCTIONS[self.number]

    @property
    def layer(self) -> int | None:
        """Index of the layer of a tensor instruction, or None for other instructions."""
        return self.words.get("layer")

    @property
    def unit(self) -> Unit | None:
        """Unit that executes the instruction, or None if the core itself executes it."""
        return self.instruction.unit

    @property
    def is_computation(self) -> bool:
        """Whether the MAC array or the vector unit executes the instruction."""
        return self.unit in (Unit.MAC, Unit.VECTOR)

    @property
    def description(self) -> str:
        """Description with the core, mnemonic and address of the instruction."""
        return f"core {self.core} {self.instruction.mnemonic} at {self.pc:#x}"

    @property
    def code_command(self) -> str:
        """Debugger command that shows the instruction in its context."""
        return format_code_command(self.core, self.pc)


def format_code_command(core: int, pc: int) -> str:
    """Format the debugger command that shows the code around an instruction."""
    return f"code {pc:#x} core {core}"


def iterate_instructions(pause: Pause, machine: Machine) -> Iterator[ExecutedInstruction]:
    """Yield the instructions executed before a pause."""
    image = range(base := int(machine.shared[0].image_base), base + machine.image.size)
    for row, held in zip(pause.trace.tolist(), pause.words.tolist(), strict=True):
        names = _NAMES.get(INSTRUCTIONS[row[TraceColumn.NUMBER]].descriptor, ())
        words = dict(zip(names, held, strict=False))
        fields: list[Any] = [*row, words, row[TraceColumn.PC] not in image]
        yield ExecutedInstruction(*fields)


def _make_access(kind: AccessKind, operand: str, start: int, nbytes: int) -> MemoryAccess:
    """Return an access to consecutive bytes."""
    space: Space = "control" if start < SCRATCHPAD_BASE else "scratchpad"
    return MemoryAccess(
        kind, operand, ByteRuns("dram" if start >= DRAM_BASE else space, start, nbytes)
    )


def find_host_step(execution: ReversibleExecution, pause: Pause) -> ProgramStep | None:
    """Return the host operation executed since the previous pause, or None if there was none."""
    steps = execution.bundle.metadata.steps
    done = [s for s in steps if s.kind == "host" and set(s.layers) & set(pause.layers)]
    return done[0] if done else None


def list_host_accesses(step: ProgramStep) -> tuple[MemoryAccess, ...]:
    """Return the memory accesses of a host operation, in the order of its operands."""
    kinds: Sequence[AccessKind] = ("read", "write")
    return tuple(
        MemoryAccess(kind, operand.tensor.name, get_tensor_region(operand.tensor))
        for operand in step.operands
        for kind, role in zip(kinds, ("in", "out"), strict=True)
        if operand.role in (role, "inout")
    )


def read_descriptor(machine: Machine, core: int, name: str, address: int) -> dict[str, int]:
    """Read the words of a descriptor by name; return zeros for an invalid address."""
    record = DESCRIPTORS[name]
    data = read_bytes(machine, core, address, record.nbytes) or bytes(record.nbytes)
    values = struct.unpack(f"<{len(record.words)}i", data)
    return {
        word.name: value if word.signed else value & 0xFFFF_FFFF
        for word, value in zip(record, values, strict=True)
    }


def list_accesses(
    instruction: DeviceInstruction, descriptor: Mapping[str, int], word: int, rs1: int
) -> tuple[MemoryAccess, ...]:
    """Return the memory accesses of an instruction: reads, then writes."""
    if instruction.descriptor is not None:
        return _list_operands(instruction.descriptor, descriptor)
    nbytes, is_store = instruction.access_bytes, instruction.kind is InstructionKind.STORE
    immediate = IMM_S.decode(word) if is_store else IMM_I.decode(word)
    address = (rs1 + immediate) & 0xFFFF_FFFF
    if nbytes == 0 or address < CONTROL_BASE:
        return ()
    return (_make_access("write" if is_store else "read", "word", address, nbytes),)


def _list_operands(name: str, words: Mapping[str, int]) -> tuple[MemoryAccess, ...]:
    """Return the reads, then the writes of a tensor instruction."""
    rows = np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)
    rows[0, IS_PLAIN] = 1
    with np.errstate(all="ignore"):  # of a descriptor that is impossible
        compute_footprint(KINDS[name], np.array(tuple(words.values()), np.int64), rows)
    count, writes = int(rows[0, COUNT]), int(rows[0, WRITES])
    return tuple(
        _make_operand(rows[index].tolist(), "write" if index <= writes else "read")
        for index in (*range(writes + 1, count + 1), *range(1, writes + 1))
    )


def _make_operand(row: list[int], kind: AccessKind) -> MemoryAccess:
    axes = zip(row[FIRST_AXIS::2], row[FIRST_AXIS + 1 :: 2], strict=True)
    operand = OPERANDS[row[WHAT]]
    repeats = tuple(axis for axis in axes if axis[0] > 0)
    space: Space = "dram" if operand == "dram" else "scratchpad"
    return MemoryAccess(kind, operand, ByteRuns(space, row[START], row[RUN], repeats))
