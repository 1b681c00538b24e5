"""Instructions that were done, from the rows of a trace: who, when, and which memory it touched."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Literal

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.state import NEVER, Machine
from nmpsim.core.stops import Row
from nmpsim.debugger.byte_runs import ByteRuns, Space
from nmpsim.debugger.execution import Pause
from nmpsim.isa.table import (
    CONTROL_BASE,
    DESCRIPTORS,
    DRAM_BASE,
    IMM_I,
    IMM_S,
    INSTRUCTIONS,
    SCRATCHPAD_BASE,
    Instruction,
    Kind,
    Unit,
)
from nmpsim.isa.words import KINDS
from nmpsim.memory.address_map import bytes_at
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
    footprint,
)

TouchKind = Literal["read", "write"]
WORD_BYTES = 4


@attrs.frozen
class Touch:
    """A piece of memory that an instruction reads or writes."""

    kind: TouchKind
    what: str
    """The operand: input, weights, output, ..."""
    box: ByteRuns


@attrs.frozen
class Done:
    """An instruction that a core has done."""

    position: int
    """State just after it."""
    core: int
    pc: int
    instruction: Instruction
    begin: int
    """Cycle at which the core came to it."""
    end: int
    """Cycle at which the core went on."""
    rs1: int
    rs2: int
    job: int
    """Number in its unit's queue, -1 if it is for no unit."""
    finished: int | None
    """Cycle at which its unit is done with it; None if that was not known yet."""
    word: int
    words: Mapping[str, int]
    """Words of its descriptor by name, empty if it has none."""
    touches: tuple[Touch, ...]
    fetched: tuple[Touch, ...] = ()
    """What the core itself read for it: its descriptor, and its word if that is in memory that can
    change."""

    @property
    def layer(self) -> int | None:
        """Number of the layer that a tensor instruction works for."""
        return self.words.get("layer")

    @property
    def unit(self) -> Unit | None:
        """The unit that it is for."""
        return self.instruction.unit


def instructions(pause: Pause, machine: Machine, since: int = 0) -> Iterator[Done]:
    """Every instruction that was done in a pause after position ``since``."""
    new = pause.trace[:, Row.TURN] >= since
    for row, held in zip(pause.trace[new], pause.words[new], strict=True):
        yield done_of(row, held, machine)


def done_of(row: npt.NDArray[np.int64], held: npt.NDArray[np.int64], machine: Machine) -> Done:
    """One row of a trace, and of what the descriptor held."""
    instruction = INSTRUCTIONS[int(row[Row.NUMBER])]
    core, rs1, finished = int(row[Row.CORE]), int(row[Row.RS1]), int(row[Row.FINISHED])
    words: dict[str, int] = {}
    if instruction.descriptor is not None:
        names = [word.name for word in DESCRIPTORS[instruction.descriptor]]
        words = dict(zip(names, held.tolist(), strict=False))
    pc = int(row[Row.PC])
    return Done(
        position=int(row[Row.TURN]) + 1,
        core=core,
        pc=pc,
        instruction=instruction,
        begin=int(row[Row.BEGIN]),
        end=int(row[Row.END]),
        rs1=rs1,
        rs2=int(row[Row.RS2]),
        job=int(row[Row.JOB]),
        finished=None if finished >= NEVER else finished,
        word=int(row[Row.WORD]),
        words=words,
        touches=touches_of(instruction, words, int(row[Row.WORD]), rs1),
        fetched=tuple(_fetched(instruction, pc, rs1, machine)),
    )


def _fetched(instruction: Instruction, pc: int, rs1: int, machine: Machine) -> Iterator[Touch]:
    if not 0 <= pc - int(machine.shared[0].image_base) < machine.image.size:
        yield Touch("read", "code", ByteRuns(_space_of(pc), pc, WORD_BYTES))
    if instruction.descriptor is not None:
        nbytes = DESCRIPTORS[instruction.descriptor].nbytes
        yield Touch("read", "descriptor", ByteRuns(_space_of(rs1), rs1, nbytes))


def _space_of(address: int) -> Space:
    if address >= DRAM_BASE:
        return "dram"
    return "scratchpad" if address >= SCRATCHPAD_BASE else "control"


def read_descriptor(machine: Machine, core: int, name: str, address: int) -> dict[str, int]:
    """Words of a descriptor by their names, signed where they are; zeros beyond memory."""
    record = DESCRIPTORS[name]
    data = bytes_at(machine, core, address, record.nbytes) or bytes(record.nbytes)
    values = struct.unpack(f"<{len(record.words)}i", data)
    return {
        word.name: value if word.signed else value & 0xFFFF_FFFF
        for word, value in zip(record, values, strict=True)
    }


def touches_of(
    instruction: Instruction, words: Mapping[str, int], word: int, rs1: int
) -> tuple[Touch, ...]:
    """Which memory an instruction reads and writes."""
    name = instruction.descriptor
    if name is not None:
        return _operands(name, words)
    nbytes, is_store = instruction.access_bytes, instruction.kind is Kind.STORE
    if nbytes == 0:
        return ()
    immediate = IMM_S.decode(word) if is_store else IMM_I.decode(word)
    address = (rs1 + immediate) & 0xFFFF_FFFF
    if address < CONTROL_BASE:
        return ()
    kind: TouchKind = "write" if is_store else "read"
    return (Touch(kind, "word", ByteRuns(_space_of(address), address, nbytes)),)


def _operands(name: str, words: Mapping[str, int]) -> tuple[Touch, ...]:
    """What a tensor instruction reads, then what it writes, with each axis as it was asked for."""
    rows = np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)
    rows[0, IS_PLAIN] = 1
    values = np.array(list(words.values()), np.int64)
    with np.errstate(all="ignore"):  # of a descriptor that is impossible
        footprint(KINDS[name], values, rows)
    writes, count = int(rows[0, WRITES]), int(rows[0, COUNT])
    return (
        *(_touch("read", row) for row in rows[writes + 1 : count + 1].tolist()),
        *(_touch("write", row) for row in rows[1 : writes + 1].tolist()),
    )


def _touch(kind: TouchKind, row: list[int]) -> Touch:
    start, what, run = row[START], OPERANDS[row[WHAT]], row[RUN]
    axes = zip(row[FIRST_AXIS::2], row[FIRST_AXIS + 1 :: 2], strict=True)
    space: Space = "dram" if what == "dram" else "scratchpad"
    return Touch(kind, what, ByteRuns(space, start, run, tuple(a for a in axes if a[0] > 0)))
