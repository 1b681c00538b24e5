"""Ends of an instruction: retirement and traps."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.cycle_accounting import CONTROL, spend_cycles
from nmpsim.core.state import CSR_COLUMN, Machine
from nmpsim.core.watch import record_end
from nmpsim.isa.csrs import MIE, MPIE, MPP, CsrAddress
from nmpsim.isa.table import TrapCause
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit

WENT_ON, NEEDS_TURN, STOPPED, TRAPPED, FETCHED, NOT_COMPILED, AT_HOST = range(7)
"""Results of a step: executed; not begun, because other cores can observe it; the core waits or
halts; a trap without a handler; fetched; its kernel could not be compiled, or it cannot be
recorded; not begun, because it stores to a register of the host."""

(
    FETCH_MISALIGNED,
    FETCH_FAULT,
    ILLEGAL_INSTRUCTION,
    BREAKPOINT,
    LOAD_MISALIGNED,
    LOAD_FAULT,
    STORE_MISALIGNED,
    STORE_FAULT,
    ENVIRONMENT_CALL,
    DESCRIPTOR_FAULT,
    OPERAND_FAULT,
) = map(np.int64, TrapCause)

MSTATUS, MTVEC, MEPC, MCAUSE, MTVAL = (
    CSR_COLUMN[csr]
    for csr in (
        CsrAddress.MSTATUS,
        CsrAddress.MTVEC,
        CsrAddress.MEPC,
        CsrAddress.MCAUSE,
        CsrAddress.MTVAL,
    )
)
WORD = 0xFFFF_FFFF
ZERO = np.int64(0)


@jit
def to_signed(value: Int, bits: Int) -> Any:
    """Return the low ``bits`` bits of ``value`` as a signed (two's complement) integer."""
    shift = np.int64(64 - bits)
    return (np.int64(value) << shift) >> shift


@jit
def trap(m: Machine, core: Int, cause: Int, value: Int) -> Any:
    """Enter the trap handler and return WENT_ON; without one, record the trap, return TRAPPED."""
    csr = m.cores[core].csr
    if csr[MTVEC] == 0:
        record_end(m, core, m.cores[core].pc, cause, value & WORD)
        return TRAPPED
    csr[MEPC] = m.cores[core].pc
    csr[MCAUSE] = cause
    csr[MTVAL] = value & WORD
    enabled = csr[MSTATUS] & MIE
    csr[MSTATUS] = MPP | (MPIE if enabled else 0)
    m.cores[core].pc = csr[MTVEC] & ~np.int64(3)
    spend_cycles(m, core, CONTROL, ZERO + 1)
    return WENT_ON


@jit
def set_register(m: Machine, core: Int, rd: Int, value: Int) -> None:
    """Set a register to the low 32 bits of ``value``; x0 stays 0."""
    if rd != 0:
        m.cores[core].registers[rd] = np.int32(to_signed(value, 32))


@jit
def retire(m: Machine, core: Int, cycles: Int) -> Any:
    """Retire an instruction that took ``cycles`` cycles; return WENT_ON."""
    m.cores[core].retired += 1
    spend_cycles(m, core, CONTROL, cycles)
    return WENT_ON


@jit
def retire_and_advance(m: Machine, core: Int, cycles: Int) -> Any:
    """Retire an instruction, advance the pc by 4 and return WENT_ON."""
    m.cores[core].pc += 4
    return retire(m, core, cycles)
