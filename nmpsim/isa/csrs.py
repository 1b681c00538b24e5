"""Control and status registers; both engines follow this table."""

from __future__ import annotations

from enum import Enum, IntEnum

from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.records import frozen


class CsrAddress(IntEnum):
    """Addresses of the control and status registers."""

    MSTATUS = 0x300
    MISA = 0x301
    MIE = 0x304
    MTVEC = 0x305
    MSCRATCH = 0x340
    MEPC = 0x341
    MCAUSE = 0x342
    MTVAL = 0x343
    MIP = 0x344
    MCYCLE = 0xB00
    MINSTRET = 0xB02
    MCYCLEH = 0xB80
    MINSTRETH = 0xB82
    CYCLE = 0xC00
    TIME = 0xC01
    INSTRET = 0xC02
    CYCLEH = 0xC80
    TIMEH = 0xC81
    INSTRETH = 0xC82
    MVENDORID = 0xF11
    MARCHID = 0xF12
    MIMPID = 0xF13
    MHARTID = 0xF14


class CoreCounter(Enum):
    """A 64-bit counter of a core."""

    CYCLES = "cycles since the run began"
    INSTRUCTIONS = "instructions that the core has retired"


MIE, MPIE, MPP = 1 << 3, 1 << 7, 3 << 11
"""Bits of ``mstatus``; the previous mode is always machine mode."""
_ALL = 0xFFFF_FFFF
_CYCLES, _INSTRUCTIONS = CoreCounter.CYCLES.value, CoreCounter.INSTRUCTIONS.value
_UPPER = "its upper half"


@frozen
class CsrDefinition:
    """A control and status register."""

    summary: str
    reset: int = 0
    writable: int = 0
    """Bits that a write changes."""
    counter: CoreCounter | None = None
    """Counter that the register shows; None for other registers."""
    offset: CsrAddress | None = None
    """Register with the offset of the counter; None if the counter cannot be written."""
    is_high: bool = False
    """Whether the register is the upper half of the counter."""


CSR_ROWS: dict[CsrAddress, CsrDefinition] = make_exhaustive_table(
    f"{__name__}.CSR_ROWS",
    {
        CsrAddress.MSTATUS: CsrDefinition("MIE and MPIE; MPP is machine mode", MPP, MIE | MPIE),
        CsrAddress.MISA: CsrDefinition("RV32, I and M", 0x4000_1100),
        CsrAddress.MIE: CsrDefinition("stored without effect; there are no interrupts", 0, _ALL),
        CsrAddress.MTVEC: CsrDefinition(
            "address of the trap handler; 0: a trap ends the run", 0, _ALL & ~3
        ),
        CsrAddress.MSCRATCH: CsrDefinition("for the trap handler", 0, _ALL),
        CsrAddress.MEPC: CsrDefinition("address of the instruction that trapped", 0, _ALL & ~3),
        CsrAddress.MCAUSE: CsrDefinition("cause of the trap", 0, _ALL),
        CsrAddress.MTVAL: CsrDefinition("address or word that the trap is about", 0, _ALL),
        CsrAddress.MIP: CsrDefinition("0: nothing is ever pending"),
        CsrAddress.MCYCLE: CsrDefinition(
            f"{_CYCLES}; can be set", 0, _ALL, CoreCounter.CYCLES, CsrAddress.MCYCLE
        ),
        CsrAddress.MINSTRET: CsrDefinition(
            f"{_INSTRUCTIONS}; can be set", 0, _ALL, CoreCounter.INSTRUCTIONS, CsrAddress.MINSTRET
        ),
        CsrAddress.MCYCLEH: CsrDefinition(
            _UPPER, 0, _ALL, CoreCounter.CYCLES, CsrAddress.MCYCLE, is_high=True
        ),
        CsrAddress.MINSTRETH: CsrDefinition(
            _UPPER, 0, _ALL, CoreCounter.INSTRUCTIONS, CsrAddress.MINSTRET, is_high=True
        ),
        CsrAddress.CYCLE: CsrDefinition("mcycle", 0, 0, CoreCounter.CYCLES, CsrAddress.MCYCLE),
        CsrAddress.TIME: CsrDefinition(
            f"{_CYCLES}, whatever mcycle was set to", 0, 0, CoreCounter.CYCLES
        ),
        CsrAddress.INSTRET: CsrDefinition(
            "minstret", 0, 0, CoreCounter.INSTRUCTIONS, CsrAddress.MINSTRET
        ),
        CsrAddress.CYCLEH: CsrDefinition(
            "mcycleh", 0, 0, CoreCounter.CYCLES, CsrAddress.MCYCLE, is_high=True
        ),
        CsrAddress.TIMEH: CsrDefinition(_UPPER, 0, 0, CoreCounter.CYCLES, is_high=True),
        CsrAddress.INSTRETH: CsrDefinition(
            "minstreth", 0, 0, CoreCounter.INSTRUCTIONS, CsrAddress.MINSTRET, is_high=True
        ),
        CsrAddress.MVENDORID: CsrDefinition("0"),
        CsrAddress.MARCHID: CsrDefinition("0"),
        CsrAddress.MIMPID: CsrDefinition("0"),
        CsrAddress.MHARTID: CsrDefinition("number of the core"),
    },
    CsrAddress,
)


def is_read_only(address: int) -> bool:
    """Return whether a CSR is read-only, which its address determines."""
    return address >> 10 == 3
