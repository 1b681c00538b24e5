"""Control and status registers; both engines follow this table."""

from __future__ import annotations

import tomllib
from enum import Enum, IntEnum
from pathlib import Path

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
    MCORES = 0xFC0
    MVENDORID = 0xF11
    MARCHID = 0xF12
    MIMPID = 0xF13
    MHARTID = 0xF14


class CoreCounter(Enum):
    """A 64-bit counter of a core: elapsed cycles or retired instructions."""

    CYCLES = "cycles since the run began"
    INSTRUCTIONS = "instructions that the core has retired"


MIE, MPIE, MPP = 1 << 3, 1 << 7, 3 << 11
"""Bits of ``mstatus``; the previous mode is always machine mode."""


@frozen
class CsrDefinition:
    """Definition of a control and status register: reset value, writable bits and counter."""

    summary: str
    reset: int
    writable: int
    """Bits that a write changes."""
    counter: CoreCounter | None
    """Counter that the register shows; None for other registers."""
    offset: CsrAddress | None
    """Register with the offset of the counter; None if the counter cannot be written."""
    is_high: bool
    """Whether the register is the upper half of the counter."""


def _make_definition(
    *,
    summary: str,
    reset: int = 0,
    writable: int = 0,
    counter: str | None = None,
    offset: str | None = None,
    is_high: bool = False,
) -> CsrDefinition:
    """Return the definition of a row of ``csrs.toml``."""
    return CsrDefinition(
        summary,
        reset,
        writable,
        None if counter is None else CoreCounter[counter.upper()],
        None if offset is None else CsrAddress[offset.upper()],
        is_high,
    )


CSR_ROWS: dict[CsrAddress, CsrDefinition] = make_exhaustive_table(
    f"{__name__}.CSR_ROWS",
    {
        CsrAddress[name.upper()]: _make_definition(**row)
        for name, row in tomllib.loads(
            Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
        ).items()
    },
    CsrAddress,
)


def is_read_only(address: int) -> bool:
    """Return whether a CSR is read-only, according to bits 10 and 11 of its address."""
    return address >> 10 == 3
