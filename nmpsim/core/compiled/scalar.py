"""Scalar instructions beyond RV32IM: Zicsr, synchronization, traps and halt.

``execute_scalar`` executes one and returns how it ended. It does not begin an instruction that
other cores can observe unless ``has_turn`` is set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.expressions import make_switch
from nmpsim.core.compiled.fetch import (
    decode_csr,
    decode_outstanding,
    decode_rd,
    decode_rs1,
    decode_rs2,
    decode_unit,
)
from nmpsim.core.compiled.synchronization import arrive_at_barrier, halt, halt_all, pend, post
from nmpsim.core.compiled.traps import (
    BREAKPOINT,
    ENVIRONMENT_CALL,
    ILLEGAL_INSTRUCTION,
    MEPC,
    MSTATUS,
    NEEDS_TURN,
    STOPPED,
    WENT_ON,
    WORD,
    ZERO,
    retire,
    retire_and_advance,
    set_register,
    trap,
)
from nmpsim.core.compiled.units import await_job
from nmpsim.core.compiled.watch import compute_access_address
from nmpsim.core.host_registers import store_to_host
from nmpsim.core.instruction_tables import (
    KIND,
    KIND_OF,
    OP,
    OTHER_SCALAR,
    handles_instructions,
    handles_kinds,
)
from nmpsim.core.state import CSR_COLUMN, CSRS, Machine
from nmpsim.isa.csrs import CSR_ROWS, MIE, MPIE, MPP, CoreCounter, is_read_only
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import SEMAPHORES, InstructionKind, Unit
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit
from nmpsim.timing import Costs

ILLEGAL_ACCESS: Any = np.int64(-1)
"""Result of an illegal CSR access."""
COLUMN_OF_CSR = np.full(4096, -1, np.int64)
for _csr, _column in CSR_COLUMN.items():
    COLUMN_OF_CSR[_csr] = _column
_ROWS = [CSR_ROWS[csr] for csr in CSRS]
NO_COUNTER, CYCLES, INSTRUCTIONS = range(3)
_COUNTERS = make_exhaustive_table(
    f"{__name__}._COUNTERS",
    {None: NO_COUNTER, CoreCounter.CYCLES: CYCLES, CoreCounter.INSTRUCTIONS: INSTRUCTIONS},
    (None, *CoreCounter),
)
COUNTER = np.array([_COUNTERS[row.counter] for row in _ROWS], np.int64)
OFFSET = np.array([-1 if row.offset is None else CSR_COLUMN[row.offset] for row in _ROWS], np.int64)
IS_HIGH = np.array([row.is_high for row in _ROWS])
WRITABLE = np.array([row.writable for row in _ROWS], np.int64)
READ_ONLY = np.array([is_read_only(csr) for csr in CSRS])


@jit
def read_hardware_counter(m: Machine, core: Int, column: Int) -> Any:
    """Read a core's 64-bit cycle or instruction counter, without its software offset."""
    return m.cores[core].clock if COUNTER[column] == CYCLES else m.cores[core].retired


@jit
def read_csr(m: Machine, core: Int, column: Int) -> Any:
    """Read the value of a CSR; a counter is its hardware value plus a software offset."""
    if COUNTER[column] == NO_COUNTER:
        return m.cores[core].csr[column]
    whole = read_hardware_counter(m, core, column)
    if OFFSET[column] >= 0:
        whole += m.cores[core].csr[OFFSET[column]]
    return (whole >> 32 if IS_HIGH[column] else whole) & WORD


@jit
def write_counter(m: Machine, core: Int, column: Int, value: Int) -> None:
    """Set one half of a 64-bit counter so that the next instruction reads it as ``value``."""
    now, offset = read_hardware_counter(m, core, column), OFFSET[column]
    whole = now + m.cores[core].csr[offset]
    if IS_HIGH[column]:
        whole = (whole & WORD) | (value << 32)
    else:
        whole = (whole & ~np.int64(WORD)) | value
    m.cores[core].csr[offset] = whole - (now + 1)


@jit
def write_csr(m: Machine, core: Int, column: Int, value: Int) -> None:
    """Write a CSR; read-only bits keep their value."""
    if COUNTER[column] != NO_COUNTER:
        write_counter(m, core, column, value)
        return
    kept = m.cores[core].csr[column] & ~WRITABLE[column]
    m.cores[core].csr[column] = kept | (value & WRITABLE[column])


update_csr = make_switch(
    f"{__name__}.update_csr",
    {"csrrw csrrwi": "b", "csrrs csrrsi": "a | b", "csrrc csrrci": "a & ~b"},
    InstructionKind.CSR,
)
"""``update_csr(number, a, b)``: the new value of a CSR from its old value and the operand."""


@jit
def access_csr(m: Machine, core: Int, number: Int, word: Int) -> Any:
    """Read and write the CSR of a ``csrr*`` instruction; return its old value or ILLEGAL_ACCESS."""
    column = COLUMN_OF_CSR[decode_csr(word)]
    if column < 0:
        return ILLEGAL_ACCESS
    field = operand = decode_rs1(word)  # or zimm, which has the same bits
    if number in (OP.csrrw, OP.csrrs, OP.csrrc):
        operand = np.int64(m.cores[core].registers[field]) & WORD
    old = read_csr(m, core, column)
    if field != 0 or number in (OP.csrrw, OP.csrrwi):
        if READ_ONLY[column]:
            return ILLEGAL_ACCESS
        write_csr(m, core, column, update_csr(number, old, operand))
    return old


LAST_UNIT = int(max(Unit))


@jit
@handles_instructions(InstructionKind.SYNC)
def execute_synchronization(
    m: Machine, costs: Costs, core: Int, number: Int, word: Int, has_turn: bool
) -> Any:
    """Execute ``nmp.wait``, ``barrier``, ``post``, ``pend`` or ``halt``; return a status."""
    if number == OP.nmp_wait:
        unit, outstanding = decode_unit(word), decode_outstanding(word)
        if unit > LAST_UNIT:
            return trap(m, core, ILLEGAL_INSTRUCTION, word)
        if await_job(m, costs, core, unit, m.cores[core].issued[unit] - outstanding - 1) < 0:
            return STOPPED
        return retire_and_advance(m, core, costs.instruction_cycles)
    if not has_turn:
        return NEEDS_TURN
    which = np.int64(m.cores[core].registers[decode_rs1(word)]) & WORD
    count = np.int64(m.cores[core].registers[decode_rs2(word)]) & WORD
    if number == OP.nmp_halt:
        retire_and_advance(m, core, costs.instruction_cycles)
        halt(m, core)
        return STOPPED
    if number == OP.nmp_barrier:
        retire_and_advance(m, core, costs.instruction_cycles)
        arrive_at_barrier(m, costs, core, which, count)
        return STOPPED
    if number == OP.nmp_post and which < SEMAPHORES:
        retire_and_advance(m, core, costs.instruction_cycles)
        post(m, costs, core, which, count)
        return WENT_ON
    if number == OP.nmp_pend and which < SEMAPHORES:
        retire_and_advance(m, core, costs.instruction_cycles)
        return WENT_ON if pend(m, core, which, count) else STOPPED
    return trap(m, core, ILLEGAL_INSTRUCTION, word)


@jit
@handles_instructions(InstructionKind.FENCE, InstructionKind.SYSTEM)
def execute_system(m: Machine, costs: Costs, core: Int, number: Int, word: Int) -> Any:
    """Execute ``ecall``, ``ebreak``, ``mret``, a fence or ``wfi``; return the execution status."""
    if number == OP.ecall:
        return trap(m, core, ENVIRONMENT_CALL, ZERO)
    if number == OP.ebreak:
        return trap(m, core, BREAKPOINT, m.cores[core].pc)
    if number == OP.mret:
        csr = m.cores[core].csr
        enabled = csr[MSTATUS] & MPIE
        csr[MSTATUS] = MPP | MPIE | (MIE if enabled else 0)
        m.cores[core].pc = csr[MEPC]
        return retire(m, core, costs.instruction_cycles)
    if number == OP.fence or number == OP.fence_i or number == OP.wfi:
        return retire_and_advance(m, core, costs.instruction_cycles)
    return trap(m, core, ILLEGAL_INSTRUCTION, word)


@jit
def execute_csr(m: Machine, costs: Costs, core: Int, number: Int, word: Int) -> Any:
    """Execute a ``csrr*`` instruction and return the execution status."""
    old = access_csr(m, core, number, word)
    if old == ILLEGAL_ACCESS:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    set_register(m, core, decode_rd(word), old)
    return retire_and_advance(m, core, costs.instruction_cycles)


@jit
def execute_host_store(m: Machine, costs: Costs, core: Int, number: Int, word: Int) -> Any:
    """Execute a store to a register of the host; return the execution status."""
    registers = m.cores[core].registers
    address = compute_access_address(number, word, registers[decode_rs1(word)])
    is_end = store_to_host(m, core, address, np.int64(registers[decode_rs2(word)]))
    cycles = costs.instruction_cycles + costs.control_scratchpad_access_cycles
    ended = retire_and_advance(m, core, cycles)
    if is_end:
        halt_all(m, core)
        return STOPPED
    return ended


@jit
@handles_kinds(*OTHER_SCALAR)
def execute_scalar(
    m: Machine, costs: Costs, core: Int, number: Int, word: Int, has_turn: bool
) -> Any:
    """Execute a synchronization, CSR, fence or system instruction; return the execution status."""
    kind = KIND_OF[number]
    if kind == KIND.SYNC:
        return execute_synchronization(m, costs, core, number, word, has_turn)
    if kind == KIND.CSR:
        return execute_csr(m, costs, core, number, word)
    if kind == KIND.FENCE or kind == KIND.SYSTEM:
        return execute_system(m, costs, core, number, word)
    return trap(m, core, ILLEGAL_INSTRUCTION, word)
