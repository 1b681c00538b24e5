"""The table of all instructions, ``instructions.toml``. Read this first.

The scalar part is RV32IM and Zicsr, as defined by the RISC-V Instruction Set Manual (volumes I and
II). The ``nmp.*`` instructions use the *custom-0* opcode; each tensor instruction names a register
with the address of a descriptor (:mod:`nmpsim.isa.descriptors`, read it next). Encoder, decoder,
assembler, disassembler, both engines and ``docs/isa.md`` are derived from it.
"""

from __future__ import annotations

import tomllib
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

from nmpsim.isa.csrs import CsrAddress
from nmpsim.isa.descriptors import (
    CHANNEL_RECORD,
    DESCRIPTOR_ALIGNMENT,
    DESCRIPTORS,
    KERNEL_RECORDS,
    SCALE_RECORD,
    Descriptor,
    Word,
)
from nmpsim.isa.fields import (
    BitField,
    BitRange,
    InstructionKind,
    make_contiguous_field,
)
from nmpsim.records import frozen

__all__ = [
    "CHANNEL_RECORD",
    "CONTROL_BASE",
    "CONTROL_BYTES",
    "TrapCause",
    "CsrAddress",
    "DESCRIPTORS",
    "DESCRIPTOR_ALIGNMENT",
    "DRAM_BASE",
    "Descriptor",
    "InstructionFormat",
    "INSTRUCTIONS",
    "DeviceInstruction",
    "HOST_BASE",
    "HOST_BYTES",
    "HostRegister",
    "InstructionKind",
    "KERNEL_RECORDS",
    "REGISTERS",
    "SCALE_RECORD",
    "SCRATCHPAD_BASE",
    "SEMAPHORES",
    "Unit",
    "Word",
    "list_mnemonics",
]

# --- address map (every core sees the same) -------------------------------------------------

CONTROL_BASE = 0x1000_0000
CONTROL_BYTES = 0x1000
"""Size of the control and mailbox block: 1024 words shared by all cores."""
HOST_BASE = 0x1000_1000
"""Address of the first register of the host."""
SCRATCHPAD_BASE = 0x2000_0000
DRAM_BASE = 0x8000_0000


class HostRegister(IntEnum):
    """Address of a register of the host, which only stores can access."""

    CONSOLE = HOST_BASE
    """The low byte of a stored value is a character of the core's console."""
    EXIT = HOST_BASE + 4
    """The stored value is the exit status of the program, and all cores halt."""


HOST_BYTES = 4 * len(HostRegister)
"""Size of all registers of the host."""

# --- fields of an instruction word ----------------------------------------------------------

RD = make_contiguous_field("rd", 7, 5)
RS1 = make_contiguous_field("rs1", 15, 5)
RS2 = make_contiguous_field("rs2", 20, 5)
IMM_I = make_contiguous_field("imm", 20, 12, signed=True)
IMM_S = BitField("imm", (BitRange(7, 0, 5), BitRange(25, 5, 7)), signed=True)
IMM_B = BitField(
    "offset",
    (BitRange(8, 1, 4), BitRange(25, 5, 6), BitRange(7, 11, 1), BitRange(31, 12, 1)),
    signed=True,
)
IMM_U = BitField("imm", (BitRange(12, 12, 20),))
IMM_J = BitField(
    "offset",
    (BitRange(21, 1, 10), BitRange(20, 11, 1), BitRange(12, 12, 8), BitRange(31, 20, 1)),
    signed=True,
)
SHAMT = make_contiguous_field("shamt", 20, 5)
CSR_ADDRESS = make_contiguous_field("csr", 20, 12)
ZIMM = make_contiguous_field("zimm", 15, 5)
UNIT = make_contiguous_field("unit", 15, 5)
OUTSTANDING = make_contiguous_field("outstanding", 20, 5)

REGISTERS = (
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2",
    "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5",
    "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7",
    "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
)  # fmt: skip
"""ABI names of x0 to x31."""


class Unit(IntEnum):
    """A unit of a core, with an in-order queue of instructions."""

    LOAD = 0
    STORE = 1
    MAC = 2
    VECTOR = 3


class TrapCause(IntEnum):
    """Cause of a trap, the value of ``mcause``; RISC-V reserves 24 and up for custom use."""

    FETCH_MISALIGNED = 0
    FETCH_FAULT = 1
    ILLEGAL_INSTRUCTION = 2
    BREAKPOINT = 3
    LOAD_MISALIGNED = 4
    LOAD_FAULT = 5
    STORE_MISALIGNED = 6
    STORE_FAULT = 7
    ENVIRONMENT_CALL = 11
    DESCRIPTOR_FAULT = 24
    """The descriptor's address is misaligned or outside memory."""
    OPERAND_FAULT = 25
    """A descriptor has an impossible value or refers to memory that does not exist."""


class InstructionFormat(Enum):
    """Format of an instruction: the bit fields of its operands, in assembly order."""

    R = (RD, RS1, RS2)
    I = (RD, RS1, IMM_I)  # noqa: E741 - the RISC-V manual's name
    LOAD = (RD, IMM_I, RS1)
    SHIFT = (RD, RS1, SHAMT)
    S = (RS2, IMM_S, RS1)
    B = (RS1, RS2, IMM_B)
    U = (RD, IMM_U)
    J = (RD, IMM_J)
    CSR = (RD, CSR_ADDRESS, RS1)
    CSR_IMM = (RD, CSR_ADDRESS, ZIMM)
    NONE = ()
    DESCRIPTOR = (RS1,)
    SYNC = (RS1, RS2)
    WAIT = (UNIT, OUTSTANDING)

    def __init__(self, *fields: BitField) -> None:
        # The value of NONE is not a tuple in early releases of Python 3.11.
        self.fields = fields


@frozen
class DeviceInstruction:
    """An instruction of the device; ``word & mask == match`` identifies it."""

    mnemonic: str
    kind: InstructionKind
    format: InstructionFormat
    match: int
    summary: str
    unit: Unit | None = None
    descriptor: str | None = None
    """Name of the descriptor of a tensor instruction."""
    access_bytes: int = 0
    """Bytes that a load or store moves."""
    is_signed: bool = False
    """Whether a load extends the sign."""
    ignored: int = 0
    """Bits that hardware ignores."""

    def __attrs_post_init__(self) -> None:
        is_tensor = self.kind is InstructionKind.TENSOR
        if is_tensor != (self.unit is not None) or is_tensor != (self.descriptor in DESCRIPTORS):
            raise ValueError(f"{self.mnemonic}: unit and descriptor belong to tensor instructions")
        is_access = self.kind in (InstructionKind.LOAD, InstructionKind.STORE)
        if is_access != (self.access_bytes in (1, 2, 4)):
            raise ValueError(f"{self.mnemonic}: loads and stores move 1, 2 or 4 bytes, others none")

    @property
    def mask(self) -> int:
        """Mask of the bits that identify the instruction."""
        return 0xFFFF_FFFF & ~sum(f.mask for f in self.format.fields) & ~self.ignored


def _make_instruction(
    mnemonic: str,
    kind: InstructionKind,
    *,
    summary: str,
    format: str,
    opcode: int,
    funct3: int = 0,
    funct7: int = 0,
    funct12: int = 0,
    unit: str | None = None,
    **fields: Any,
) -> DeviceInstruction:
    """Return the instruction of a row of ``instructions.toml``."""
    own = None if unit is None else Unit[unit.upper()]
    return DeviceInstruction(
        mnemonic,
        kind,
        InstructionFormat[format],
        opcode | funct3 << 12 | funct12 << 20 | (own or funct7) << 25,
        summary,
        own,
        None if unit is None else mnemonic.removeprefix("nmp."),
        **fields,
    )


INSTRUCTIONS = tuple(
    _make_instruction(mnemonic, InstructionKind[kind.upper()], **group.get("defaults", {}) | row)
    for kind, group in tomllib.loads(
        Path(__file__).with_name("instructions.toml").read_text(encoding="utf-8")
    ).items()
    for mnemonic, row in group.items()
    if mnemonic != "defaults"
)


def list_mnemonics(*kinds: InstructionKind) -> tuple[str, ...]:
    """Return the mnemonics of all instructions whose kind is one of ``kinds``."""
    return tuple(i.mnemonic for i in INSTRUCTIONS if i.kind in kinds)


SEMAPHORES = 64
"""Number of semaphores, shared by all cores."""
