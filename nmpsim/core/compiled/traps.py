"""How an instruction ends: it retires, or it traps."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.cycle_accounting import CONTROL, spend
from nmpsim.core.state import CSR_COLUMN, Machine
from nmpsim.isa.csrs import MIE, MPIE, MPP, Csr
from nmpsim.isa.table import Cause
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit

WENT_ON, NEEDS_TURN, STOPPED, TRAPPED, FETCHED, NOT_COMPILED = range(6)
"""How a step ended: done; not begun, as other cores could see it; the core waits or halts; a trap
without a handler; the instruction is fetched; its kernel could not be compiled, or it cannot be
recorded."""

FETCH_MISALIGNED = np.int64(Cause.FETCH_MISALIGNED)
FETCH_FAULT = np.int64(Cause.FETCH_FAULT)
ILLEGAL_INSTRUCTION = np.int64(Cause.ILLEGAL_INSTRUCTION)
BREAKPOINT = np.int64(Cause.BREAKPOINT)
LOAD_MISALIGNED = np.int64(Cause.LOAD_MISALIGNED)
LOAD_FAULT = np.int64(Cause.LOAD_FAULT)
STORE_MISALIGNED = np.int64(Cause.STORE_MISALIGNED)
STORE_FAULT = np.int64(Cause.STORE_FAULT)
ENVIRONMENT_CALL = np.int64(Cause.ENVIRONMENT_CALL)
DESCRIPTOR_FAULT = np.int64(Cause.DESCRIPTOR_FAULT)
OPERAND_FAULT = np.int64(Cause.OPERAND_FAULT)

MSTATUS = CSR_COLUMN[Csr.MSTATUS]
MTVEC = CSR_COLUMN[Csr.MTVEC]
MEPC = CSR_COLUMN[Csr.MEPC]
MCAUSE = CSR_COLUMN[Csr.MCAUSE]
MTVAL = CSR_COLUMN[Csr.MTVAL]
WORD = 0xFFFF_FFFF
ZERO = np.int64(0)


@jit
def signed(value: Int, bits: Int) -> Any:
    """Two's complement of the low ``bits`` bits."""
    shift = np.int64(64 - bits)
    return (np.int64(value) << shift) >> shift


@jit
def trap(m: Machine, core: Int, cause: Int, value: Int) -> Any:
    """Enter the handler at ``mtvec``; without one the run ends here."""
    csr = m.cores[core].csr
    if csr[MTVEC] == 0:
        m.shared[0].trap[0] = core
        m.shared[0].trap[1] = cause
        m.shared[0].trap[2] = value & WORD
        m.shared[0].trap[3] = m.cores[core].pc
        m.shared[0].trap[4] = m.cores[core].clock
        return TRAPPED
    csr[MEPC] = m.cores[core].pc
    csr[MCAUSE] = cause
    csr[MTVAL] = value & WORD
    enabled = csr[MSTATUS] & MIE
    csr[MSTATUS] = MPP | (MPIE if enabled else 0)
    m.cores[core].pc = csr[MTVEC] & ~np.int64(3)
    spend(m, core, CONTROL, ZERO + 1)
    return WENT_ON


@jit
def set_register(m: Machine, core: Int, rd: Int, value: Int) -> None:
    """Write a register; x0 stays 0."""
    if rd != 0:
        m.cores[core].registers[rd] = np.int32(signed(value, 32))


@jit
def retire(m: Machine, core: Int, extra: Int) -> Any:
    """An instruction is done; it took one cycle and ``extra``."""
    m.cores[core].retired += 1
    spend(m, core, CONTROL, 1 + extra)
    return WENT_ON


@jit
def next_instruction(m: Machine, core: Int, extra: Int) -> Any:
    """As ``retire``, and on to the next instruction."""
    m.cores[core].pc += 4
    return retire(m, core, extra)
