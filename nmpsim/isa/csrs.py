"""Control and status registers; both engines follow this table."""

from __future__ import annotations

from enum import Enum, IntEnum

from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.records import frozen


class Csr(IntEnum):
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


class Counter(Enum):
    """A 64-bit counter of a core."""

    CYCLES = "cycles since the run began"
    INSTRUCTIONS = "instructions that the core has retired"


MIE, MPIE, MPP = 1 << 3, 1 << 7, 3 << 11
"""Bits of ``mstatus``; the previous mode is always machine mode."""
_ALL = 0xFFFF_FFFF
_CYCLES, _INSTRUCTIONS = Counter.CYCLES.value, Counter.INSTRUCTIONS.value
_UPPER = "its upper half"


@frozen
class CsrRow:
    """A control and status register."""

    summary: str
    reset: int = 0
    writable: int = 0
    """Bits that a write changes."""
    counter: Counter | None = None
    """Counter that the register shows; None for other registers."""
    offset: Csr | None = None
    """Register with the offset of the counter; None if the counter cannot be written."""
    is_high: bool = False
    """Whether the register is the upper half of the counter."""


CSR_ROWS: dict[Csr, CsrRow] = exhaustive_table(
    f"{__name__}.CSR_ROWS",
    {
        Csr.MSTATUS: CsrRow("MIE and MPIE; MPP is machine mode", MPP, MIE | MPIE),
        Csr.MISA: CsrRow("RV32, I and M", 0x4000_1100),
        Csr.MIE: CsrRow("stored without effect; there are no interrupts", 0, _ALL),
        Csr.MTVEC: CsrRow("address of the trap handler; 0: a trap ends the run", 0, _ALL & ~3),
        Csr.MSCRATCH: CsrRow("for the trap handler", 0, _ALL),
        Csr.MEPC: CsrRow("address of the instruction that trapped", 0, _ALL & ~3),
        Csr.MCAUSE: CsrRow("cause of the trap", 0, _ALL),
        Csr.MTVAL: CsrRow("address or word that the trap is about", 0, _ALL),
        Csr.MIP: CsrRow("0: nothing is ever pending"),
        Csr.MCYCLE: CsrRow(f"{_CYCLES}; can be set", 0, _ALL, Counter.CYCLES, Csr.MCYCLE),
        Csr.MINSTRET: CsrRow(
            f"{_INSTRUCTIONS}; can be set", 0, _ALL, Counter.INSTRUCTIONS, Csr.MINSTRET
        ),
        Csr.MCYCLEH: CsrRow(_UPPER, 0, _ALL, Counter.CYCLES, Csr.MCYCLE, is_high=True),
        Csr.MINSTRETH: CsrRow(_UPPER, 0, _ALL, Counter.INSTRUCTIONS, Csr.MINSTRET, is_high=True),
        Csr.CYCLE: CsrRow("mcycle", 0, 0, Counter.CYCLES, Csr.MCYCLE),
        Csr.TIME: CsrRow(f"{_CYCLES}, whatever mcycle was set to", 0, 0, Counter.CYCLES),
        Csr.INSTRET: CsrRow("minstret", 0, 0, Counter.INSTRUCTIONS, Csr.MINSTRET),
        Csr.CYCLEH: CsrRow("mcycleh", 0, 0, Counter.CYCLES, Csr.MCYCLE, is_high=True),
        Csr.TIMEH: CsrRow(_UPPER, 0, 0, Counter.CYCLES, is_high=True),
        Csr.INSTRETH: CsrRow("minstreth", 0, 0, Counter.INSTRUCTIONS, Csr.MINSTRET, is_high=True),
        Csr.MVENDORID: CsrRow("0"),
        Csr.MARCHID: CsrRow("0"),
        Csr.MIMPID: CsrRow("0"),
        Csr.MHARTID: CsrRow("number of the core"),
    },
    Csr,
)


def is_read_only(address: int) -> bool:
    """Return whether a CSR is read-only, which its address determines."""
    return address >> 10 == 3
