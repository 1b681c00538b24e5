"""The table of all instructions. Read this first.

The scalar part is RV32IM and Zicsr, as defined by the RISC-V Instruction Set Manual (volumes I and
II). The ``nmp.*`` instructions use the *custom-0* opcode; each tensor instruction names a register
with the address of a descriptor (:mod:`nmpsim.isa.descriptors`, read it next). Encoder, decoder,
assembler, disassembler, both engines and ``docs/isa.md`` are derived from it.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from nmpsim.isa.csrs import CsrAddress
from nmpsim.isa.descriptors import DESCRIPTOR_ALIGNMENT, DESCRIPTORS
from nmpsim.isa.fields import (
    SCOPES,
    BitField,
    BitRange,
    InstructionKind,
    StateScope,
    make_simple_field,
)
from nmpsim.isa.records import Descriptor, Word
from nmpsim.isa.shared_words import CHANNEL_RECORD, LAYER, SCALE_RECORD
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
    "InstructionKind",
    "LAYER",
    "REGISTERS",
    "SCALE_RECORD",
    "SCRATCHPAD_BASE",
    "SEMAPHORES",
    "StateScope",
    "Unit",
    "Word",
    "list_mnemonics",
]

# --- address map (every core sees the same) -------------------------------------------------

CONTROL_BASE = 0x1000_0000
CONTROL_BYTES = 0x1000
"""Size of the control and mailbox block: 1024 words shared by all cores."""
SCRATCHPAD_BASE = 0x2000_0000
DRAM_BASE = 0x8000_0000

# --- fields of an instruction word ----------------------------------------------------------

RD = make_simple_field("rd", 7, 5)
RS1 = make_simple_field("rs1", 15, 5)
RS2 = make_simple_field("rs2", 20, 5)
IMM_I = make_simple_field("imm", 20, 12, signed=True)
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
SHAMT = make_simple_field("shamt", 20, 5)
CSR_ADDRESS = make_simple_field("csr", 20, 12)
ZIMM = make_simple_field("zimm", 15, 5)
UNIT = make_simple_field("unit", 15, 5)
OUTSTANDING = make_simple_field("outstanding", 20, 5)

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
        if (SCOPES[self.kind] is StateScope.MEMORY) != (self.access_bytes in (1, 2, 4)):
            raise ValueError(f"{self.mnemonic}: loads and stores move 1, 2 or 4 bytes, others none")

    @property
    def scope(self) -> StateScope:
        """Kind of state that the instruction can access."""
        return SCOPES[self.kind]

    @property
    def mask(self) -> int:
        """Mask of the bits that identify the instruction."""
        return 0xFFFF_FFFF & ~sum(f.mask for f in self.format.fields) & ~self.ignored


def _r(
    mnemonic: str,
    funct7: int,
    funct3: int,
    summary: str,
    kind: InstructionKind = InstructionKind.REGISTER,
) -> DeviceInstruction:
    return DeviceInstruction(
        mnemonic, kind, InstructionFormat.R, funct7 << 25 | funct3 << 12 | 0x33, summary
    )


def _m(mnemonic: str, kind: InstructionKind, funct3: int, summary: str) -> DeviceInstruction:
    return _r(mnemonic, 1, funct3, summary, kind)


def _i(mnemonic: str, funct3: int, summary: str) -> DeviceInstruction:
    return DeviceInstruction(
        mnemonic, InstructionKind.IMMEDIATE, InstructionFormat.I, funct3 << 12 | 0x13, summary
    )


def _shift(mnemonic: str, funct7: int, funct3: int, summary: str) -> DeviceInstruction:
    match = funct7 << 25 | funct3 << 12 | 0x13
    return DeviceInstruction(
        mnemonic, InstructionKind.IMMEDIATE, InstructionFormat.SHIFT, match, summary
    )


def _load(
    mnemonic: str, funct3: int, nbytes: int, is_signed: bool, summary: str
) -> DeviceInstruction:
    match = funct3 << 12 | 0x03
    return DeviceInstruction(
        mnemonic,
        InstructionKind.LOAD,
        InstructionFormat.LOAD,
        match,
        summary,
        access_bytes=nbytes,
        is_signed=is_signed,
    )


def _store(mnemonic: str, funct3: int, nbytes: int, summary: str) -> DeviceInstruction:
    match = funct3 << 12 | 0x23
    return DeviceInstruction(
        mnemonic, InstructionKind.STORE, InstructionFormat.S, match, summary, access_bytes=nbytes
    )


def _branch(mnemonic: str, funct3: int, summary: str) -> DeviceInstruction:
    return DeviceInstruction(
        mnemonic, InstructionKind.BRANCH, InstructionFormat.B, funct3 << 12 | 0x63, summary
    )


def _csr(mnemonic: str, funct3: int, summary: str) -> DeviceInstruction:
    form = InstructionFormat.CSR_IMM if funct3 & 4 else InstructionFormat.CSR
    return DeviceInstruction(mnemonic, InstructionKind.CSR, form, funct3 << 12 | 0x73, summary)


def _fence(mnemonic: str, match: int, summary: str) -> DeviceInstruction:
    return DeviceInstruction(
        mnemonic, InstructionKind.FENCE, InstructionFormat.NONE, match, summary, ignored=0xFFFF_8F80
    )


def _system(mnemonic: str, match: int, summary: str) -> DeviceInstruction:
    return DeviceInstruction(
        mnemonic, InstructionKind.SYSTEM, InstructionFormat.NONE, match, summary
    )


CUSTOM_0 = 0x0B


def _tensor(
    mnemonic: str, unit: Unit, index: int, descriptor: str, summary: str
) -> DeviceInstruction:
    match = unit << 25 | index << 12 | CUSTOM_0
    return DeviceInstruction(
        mnemonic,
        InstructionKind.TENSOR,
        InstructionFormat.DESCRIPTOR,
        match,
        summary,
        unit,
        descriptor,
    )


def _sync(mnemonic: str, form: InstructionFormat, index: int, summary: str) -> DeviceInstruction:
    return DeviceInstruction(
        mnemonic, InstructionKind.SYNC, form, 4 << 25 | index << 12 | CUSTOM_0, summary
    )


INSTRUCTIONS: tuple[DeviceInstruction, ...] = (
    DeviceInstruction("lui", InstructionKind.UPPER, InstructionFormat.U, 0x37, "rd = imm"),
    DeviceInstruction("auipc", InstructionKind.UPPER, InstructionFormat.U, 0x17, "rd = pc + imm"),
    DeviceInstruction(
        "jal", InstructionKind.JUMP, InstructionFormat.J, 0x6F, "rd = pc + 4; pc += offset"
    ),
    DeviceInstruction(
        "jalr", InstructionKind.JUMP, InstructionFormat.LOAD, 0x67,
        "rd = pc + 4; pc = (rs1 + imm) & ~1",
    ),
    _branch("beq", 0, "if rs1 == rs2: pc += offset"),
    _branch("bne", 1, "if rs1 != rs2: pc += offset"),
    _branch("blt", 4, "if rs1 < rs2 (signed): pc += offset"),
    _branch("bge", 5, "if rs1 >= rs2 (signed): pc += offset"),
    _branch("bltu", 6, "if rs1 < rs2 (unsigned): pc += offset"),
    _branch("bgeu", 7, "if rs1 >= rs2 (unsigned): pc += offset"),
    _load("lb", 0, 1, True, "rd = signed byte at rs1 + imm"),
    _load("lh", 1, 2, True, "rd = signed halfword at rs1 + imm"),
    _load("lw", 2, 4, True, "rd = word at rs1 + imm"),
    _load("lbu", 4, 1, False, "rd = unsigned byte at rs1 + imm"),
    _load("lhu", 5, 2, False, "rd = unsigned halfword at rs1 + imm"),
    _store("sb", 0, 1, "byte at rs1 + imm = rs2"),
    _store("sh", 1, 2, "halfword at rs1 + imm = rs2"),
    _store("sw", 2, 4, "word at rs1 + imm = rs2"),
    _i("addi", 0, "rd = rs1 + imm"),
    _i("slti", 2, "rd = rs1 < imm (signed)"),
    _i("sltiu", 3, "rd = rs1 < imm (unsigned)"),
    _i("xori", 4, "rd = rs1 ^ imm"),
    _i("ori", 6, "rd = rs1 | imm"),
    _i("andi", 7, "rd = rs1 & imm"),
    _shift("slli", 0, 1, "rd = rs1 << shamt"),
    _shift("srli", 0, 5, "rd = rs1 >> shamt (logical)"),
    _shift("srai", 0x20, 5, "rd = rs1 >> shamt (arithmetic)"),
    _r("add", 0, 0, "rd = rs1 + rs2"),
    _r("sub", 0x20, 0, "rd = rs1 - rs2"),
    _r("sll", 0, 1, "rd = rs1 << (rs2 & 31)"),
    _r("slt", 0, 2, "rd = rs1 < rs2 (signed)"),
    _r("sltu", 0, 3, "rd = rs1 < rs2 (unsigned)"),
    _r("xor", 0, 4, "rd = rs1 ^ rs2"),
    _r("srl", 0, 5, "rd = rs1 >> (rs2 & 31) (logical)"),
    _r("sra", 0x20, 5, "rd = rs1 >> (rs2 & 31) (arithmetic)"),
    _r("or", 0, 6, "rd = rs1 | rs2"),
    _r("and", 0, 7, "rd = rs1 & rs2"),
    _m("mul", InstructionKind.MULTIPLY, 0, "rd = low word of rs1 * rs2"),
    _m("mulh", InstructionKind.MULTIPLY, 1, "rd = high word of rs1 * rs2 (signed, signed)"),
    _m("mulhsu", InstructionKind.MULTIPLY, 2, "rd = high word of rs1 * rs2 (signed, unsigned)"),
    _m("mulhu", InstructionKind.MULTIPLY, 3, "rd = high word of rs1 * rs2 (unsigned, unsigned)"),
    _m("div", InstructionKind.DIVIDE, 4, "rd = rs1 / rs2 (signed, towards zero; by zero: -1)"),
    _m("divu", InstructionKind.DIVIDE, 5, "rd = rs1 / rs2 (unsigned; by zero: all ones)"),
    _m("rem", InstructionKind.DIVIDE, 6, "rd = remainder of div (by zero: rs1)"),
    _m("remu", InstructionKind.DIVIDE, 7, "rd = remainder of divu (by zero: rs1)"),
    _fence("fence", 0x000F, "nothing: memory is already in order"),
    _fence("fence.i", 0x100F, "nothing: code is read from memory each time"),
    _system("ecall", 0x0000_0073, "trap: environment call"),
    _system("ebreak", 0x0010_0073, "trap: breakpoint"),
    _system("mret", 0x3020_0073, "pc = mepc; restore mstatus.MIE"),
    _system("wfi", 0x1050_0073, "nothing: the device has no interrupts"),
    _csr("csrrw", 1, "rd = csr; csr = rs1"),
    _csr("csrrs", 2, "rd = csr; csr |= rs1"),
    _csr("csrrc", 3, "rd = csr; csr &= ~rs1"),
    _csr("csrrwi", 5, "rd = csr; csr = zimm"),
    _csr("csrrsi", 6, "rd = csr; csr |= zimm"),
    _csr("csrrci", 7, "rd = csr; csr &= ~zimm"),
    _tensor("nmp.load", Unit.LOAD, 0, "load", "copy a box from DRAM to the scratchpad, padding it"),
    _tensor("nmp.store", Unit.STORE, 0, "store", "copy a box from the scratchpad into DRAM"),
    _tensor("nmp.conv", Unit.MAC, 0, "conv", "2-D convolution, grouped or fully connected"),
    _tensor("nmp.dwconv", Unit.MAC, 1, "dwconv", "depthwise 2-D convolution"),
    _tensor("nmp.gemm", Unit.MAC, 2, "gemm", "product of two matrices that are both activations"),
    _tensor("nmp.maxpool", Unit.VECTOR, 0, "maxpool", "maximum over windows"),
    _tensor("nmp.avgpool", Unit.VECTOR, 1, "avgpool", "average over windows"),
    _tensor("nmp.eltwise", Unit.VECTOR, 2, "eltwise", "add, sub, max, min or mul of two tensors"),
    _tensor("nmp.rescale", Unit.VECTOR, 3, "rescale", "clamp, then change scale and offset"),
    _tensor("nmp.lut", Unit.VECTOR, 4, "lut", "look every element up in a table of 256 bytes"),
    _tensor("nmp.fill", Unit.VECTOR, 5, "fill", "write one value to consecutive elements"),
    _tensor("nmp.transpose", Unit.VECTOR, 6, "transpose", "strided copy within the scratchpad"),
    _sync(
        "nmp.wait", InstructionFormat.WAIT, 0,
        "until at most this many of the unit's are unfinished",
    ),
    _sync("nmp.barrier", InstructionFormat.SYNC, 1, "until rs2 cores are at barrier number rs1"),
    _sync("nmp.post", InstructionFormat.SYNC, 2, "semaphore rs1 += rs2"),
    _sync(
        "nmp.pend", InstructionFormat.SYNC, 3,
        "until semaphore rs1 >= rs2, then semaphore rs1 -= rs2",
    ),
    _sync(
        "nmp.halt", InstructionFormat.NONE, 4, "this core is done until the host starts it again"
    ),
)  # fmt: skip


def list_mnemonics(*kinds: InstructionKind) -> tuple[str, ...]:
    """Return the mnemonics of all instructions of some kinds."""
    return tuple(i.mnemonic for i in INSTRUCTIONS if i.kind in kinds)


SEMAPHORES = 64
"""Number of semaphores, shared by all cores."""
