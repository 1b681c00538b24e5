"""RV32IM and Zicsr of one core, and its synchronisation.

``fetch`` reads an instruction and ``step`` does it; each says how it ended, and neither begins what
other cores could see unless ``has_turn`` is set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.fields import (
    b_offset,
    csr_of,
    i_immediate,
    j_offset,
    outstanding_of,
    rd_of,
    rs1_of,
    rs2_of,
    s_immediate,
    u_immediate,
    unit_of,
)
from nmpsim.core.compiled.memory import (
    IMAGE,
    NOWHERE,
    RAM,
    is_shared,
    locate,
    memory_of,
    read,
    write,
)
from nmpsim.core.compiled.sync import arrive, halt, pend, post
from nmpsim.core.compiled.traps import (
    BREAKPOINT,
    ENVIRONMENT_CALL,
    FETCH_FAULT,
    FETCH_MISALIGNED,
    FETCHED,
    ILLEGAL_INSTRUCTION,
    LOAD_FAULT,
    LOAD_MISALIGNED,
    MEPC,
    MSTATUS,
    NEEDS_TURN,
    STOPPED,
    STORE_FAULT,
    STORE_MISALIGNED,
    WENT_ON,
    WORD,
    ZERO,
    next_instruction,
    retire,
    set_register,
    signed,
    trap,
)
from nmpsim.core.compiled.units import await_job
from nmpsim.core.decode import (
    ACCESS_BYTES,
    BUCKETS,
    ILLEGAL,
    KIND,
    KIND_OF,
    MASKS,
    MATCHES,
    OP,
    SIGN_EXTENDS,
    decides_instructions,
    decides_kinds,
)
from nmpsim.core.state import CSR_COLUMN, CSRS, Machine
from nmpsim.isa.csrs import CSR_ROWS, MIE, MPIE, MPP, Counter, is_read_only
from nmpsim.isa.table import SEMAPHORES, Kind, Unit
from nmpsim.isa.total import total
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit
from nmpsim.timing import Costs

ILLEGAL_ACCESS: Any = np.int64(-1)
"""In place of the old value of a CSR."""
COLUMN_OF_CSR = np.full(4096, -1, np.int64)
for _csr, _column in CSR_COLUMN.items():
    COLUMN_OF_CSR[_csr] = _column
_ROWS = [CSR_ROWS[csr] for csr in CSRS]
NO_COUNTER, CYCLES, INSTRUCTIONS = range(3)
_COUNTERS = total(
    f"{__name__}._COUNTERS",
    {None: NO_COUNTER, Counter.CYCLES: CYCLES, Counter.INSTRUCTIONS: INSTRUCTIONS},
    (None, *Counter),
)
COUNTER = np.array([_COUNTERS[row.counter] for row in _ROWS], np.int64)
OFFSET = np.array([-1 if row.offset is None else CSR_COLUMN[row.offset] for row in _ROWS], np.int64)
IS_HIGH = np.array([row.is_high for row in _ROWS])
WRITABLE = np.array([row.writable for row in _ROWS], np.int64)
READ_ONLY = np.array([is_read_only(csr) for csr in CSRS])


@jit
def counted(m: Machine, core: Int, column: Int) -> Any:
    """What a counter has counted of its own accord."""
    return m.cores[core].clock if COUNTER[column] == CYCLES else m.cores[core].retired


@jit
def read_csr(m: Machine, core: Int, column: Int) -> Any:
    """Value of a CSR; the counters are the clock plus what a program set them off by."""
    if COUNTER[column] == NO_COUNTER:
        return m.cores[core].csr[column]
    whole = counted(m, core, column)
    if OFFSET[column] >= 0:
        whole += m.cores[core].csr[OFFSET[column]]
    return (whole >> 32 if IS_HIGH[column] else whole) & WORD


@jit
def set_counter(m: Machine, core: Int, column: Int, value: Int) -> None:
    """Make one half of a 64-bit counter read as ``value`` from the next instruction on."""
    now, offset = counted(m, core, column), OFFSET[column]
    whole = now + m.cores[core].csr[offset]
    if IS_HIGH[column]:
        whole = (whole & WORD) | (value << 32)
    else:
        whole = (whole & ~np.int64(WORD)) | value
    m.cores[core].csr[offset] = whole - (now + 1)


@jit
def write_csr(m: Machine, core: Int, column: Int, value: Int) -> None:
    """Set a CSR; bits that cannot change stay as they are."""
    if COUNTER[column] != NO_COUNTER:
        set_counter(m, core, column, value)
        return
    kept = m.cores[core].csr[column] & ~WRITABLE[column]
    m.cores[core].csr[column] = kept | (value & WRITABLE[column])


@jit
@decides_instructions(Kind.CSR)
def csr_access(m: Machine, core: Int, number: Int, word: Int) -> Any:
    """``csrr*``: the old value, or ILLEGAL_ACCESS."""
    column = COLUMN_OF_CSR[csr_of(word)]
    if column < 0:
        return ILLEGAL_ACCESS
    field = rs1_of(word)  # or zimm: it lies in the same bits
    register = np.int64(m.cores[core].registers[field]) & WORD
    writes = field != 0
    old = read_csr(m, core, column)
    if number == OP.csrrw:
        writes, new = True, register
    elif number == OP.csrrs:
        new = old | register
    elif number == OP.csrrc:
        new = old & ~register
    elif number == OP.csrrwi:
        writes, new = True, field
    elif number == OP.csrrsi:
        new = old | field
    elif number == OP.csrrci:
        new = old & ~field
    else:
        return ILLEGAL_ACCESS
    if writes and READ_ONLY[column]:
        return ILLEGAL_ACCESS
    if writes:
        write_csr(m, core, column, new)
    return old


LAST_UNIT = int(max(Unit))
UNKNOWN: Any = np.int64(-(1 << 63))
"""In place of a result: this instruction is none of those that a function knows."""


@jit
def number_of(word: Int) -> Any:
    """Row of the instruction table that a word matches."""
    if word & 3 != 3:
        return ILLEGAL
    bucket = ((word >> 2) & 31) << 3 | (word >> 12) & 7
    for candidate in BUCKETS[bucket]:
        if candidate < 0:
            break
        if word & MASKS[candidate] == MATCHES[candidate]:
            return candidate
    return ILLEGAL


@jit
def divide(a: Int, b: Int, rest: bool) -> Any:
    """Signed quotient towards zero, or its remainder, as RISC-V defines them."""
    if b == 0:
        return a if rest else np.int64(-1)
    quotient = np.abs(a) // np.abs(b)
    if (a < 0) != (b < 0):
        quotient = -quotient
    return a - quotient * b if rest else quotient


@jit
@decides_instructions(Kind.IMMEDIATE, Kind.REGISTER, Kind.MULTIPLY, Kind.DIVIDE)
def arithmetic(number: Int, a: Int, b: Int) -> Any:
    """Result of an integer operation, or UNKNOWN; int64 in, int64 out."""
    ua, ub = a & WORD, b & WORD
    if number == OP.add or number == OP.addi:
        return a + b
    if number == OP.sub:
        return a - b
    if number == OP.sll or number == OP.slli:
        return a << (b & 31)
    if number == OP.slt or number == OP.slti:
        return np.int64(a < b)
    if number == OP.sltu or number == OP.sltiu:
        return np.int64(ua < ub)
    if number == OP.xor or number == OP.xori:
        return a ^ b
    if number == OP.srl or number == OP.srli:
        return ua >> (b & 31)
    if number == OP.sra or number == OP.srai:
        return a >> (b & 31)
    if number == OP.or_ or number == OP.ori:
        return a | b
    if number == OP.and_ or number == OP.andi:
        return a & b
    if number == OP.mul:
        return signed(a * b, 32)
    if number == OP.mulh:
        return (a * b) >> 32
    if number == OP.mulhsu:
        return (a * ub) >> 32
    if number == OP.mulhu:
        high = (np.uint64(ua) * np.uint64(ub)) >> np.uint64(32)
        return np.int64(high)
    if number == OP.div:
        return divide(a, b, False)
    if number == OP.rem:
        return divide(a, b, True)
    if number == OP.divu:
        return np.int64(WORD) if ub == 0 else ua // ub
    if number == OP.remu:
        return ua if ub == 0 else ua % ub
    return UNKNOWN


@jit
@decides_instructions(Kind.BRANCH)
def branch_taken(number: Int, a: Int, b: Int) -> Any:
    """1 if a branch goes, 0 if it does not, or UNKNOWN."""
    if number == OP.beq:
        return np.int64(a == b)
    if number == OP.bne:
        return np.int64(a != b)
    if number == OP.blt:
        return np.int64(a < b)
    if number == OP.bge:
        return np.int64(a >= b)
    if number == OP.bltu:
        return np.int64((a & WORD) < (b & WORD))
    if number == OP.bgeu:
        return np.int64((a & WORD) >= (b & WORD))
    return UNKNOWN


@jit
def jump(m: Machine, costs: Costs, core: Int, target: Int, rd: Int) -> Any:
    """Go to ``target`` and leave the return address in ``rd``."""
    if target & 3:
        return trap(m, core, FETCH_MISALIGNED, target)
    set_register(m, core, rd, m.cores[core].pc + 4)
    m.cores[core].pc = target
    return retire(m, core, costs.control_taken_branch_cycles)


@jit
def load_word(m: Machine, costs: Costs, core: Int, number: Int, word: Int, has_turn: bool) -> Any:
    """A scalar load."""
    nbytes = ACCESS_BYTES[number]
    address = (m.cores[core].registers[rs1_of(word)] + i_immediate(word)) & WORD
    if address % nbytes:
        return trap(m, core, LOAD_MISALIGNED, address)
    region, offset = locate(m, address, nbytes)
    if region == NOWHERE:
        return trap(m, core, LOAD_FAULT, address)
    if is_shared(region) and not has_turn:
        return NEEDS_TURN
    value = read(memory_of(m, core, region), offset, nbytes)
    if SIGN_EXTENDS[number]:
        value = signed(value, 8 * nbytes)
    set_register(m, core, rd_of(word), value)
    return next_instruction(m, core, access_cycles(costs, region))


@jit
def store_word(m: Machine, costs: Costs, core: Int, number: Int, word: Int, has_turn: bool) -> Any:
    """A scalar store."""
    nbytes = ACCESS_BYTES[number]
    address = (m.cores[core].registers[rs1_of(word)] + s_immediate(word)) & WORD
    if address % nbytes:
        return trap(m, core, STORE_MISALIGNED, address)
    region, offset = locate(m, address, nbytes)
    if region in (NOWHERE, IMAGE):
        return trap(m, core, STORE_FAULT, address)
    if is_shared(region) and not has_turn:
        return NEEDS_TURN
    value = np.int64(m.cores[core].registers[rs2_of(word)])
    write(memory_of(m, core, region), offset, nbytes, value)
    return next_instruction(m, core, access_cycles(costs, region))


@jit
def access_cycles(costs: Costs, region: Int) -> Any:
    """What a scalar access costs beyond one cycle."""
    if region in (IMAGE, RAM):
        return costs.control_dram_access_cycles
    return costs.control_scratchpad_access_cycles


@jit
@decides_instructions(Kind.SYNC)
def synchronise(m: Machine, costs: Costs, core: Int, number: Int, word: Int, has_turn: bool) -> Any:
    """``nmp.wait``, ``nmp.barrier``, ``nmp.post``, ``nmp.pend``, ``nmp.halt``."""
    if number == OP.nmp_wait:
        unit, outstanding = unit_of(word), outstanding_of(word)
        if unit > LAST_UNIT:
            return trap(m, core, ILLEGAL_INSTRUCTION, word)
        if await_job(m, costs, core, unit, m.cores[core].issued[unit] - outstanding - 1) < 0:
            return STOPPED
        return next_instruction(m, core, ZERO)
    if not has_turn:
        return NEEDS_TURN
    which = np.int64(m.cores[core].registers[rs1_of(word)]) & WORD
    count = np.int64(m.cores[core].registers[rs2_of(word)]) & WORD
    if number == OP.nmp_halt:
        next_instruction(m, core, ZERO)
        halt(m, core)
        return STOPPED
    if number == OP.nmp_barrier:
        next_instruction(m, core, ZERO)
        arrive(m, costs, core, which, count)
        return STOPPED
    if number == OP.nmp_post and which < SEMAPHORES:
        next_instruction(m, core, ZERO)
        post(m, costs, core, which, count)
        return WENT_ON
    if number == OP.nmp_pend and which < SEMAPHORES:
        next_instruction(m, core, ZERO)
        return WENT_ON if pend(m, core, which, count) else STOPPED
    return trap(m, core, ILLEGAL_INSTRUCTION, word)


@jit
@decides_instructions(Kind.UPPER, Kind.JUMP)
def go_far(m: Machine, costs: Costs, core: Int, number: Int, word: Int) -> Any:
    """``lui``, ``auipc``, ``jal``, ``jalr``: what has addresses of 32 bits to do with."""
    pc, rd = m.cores[core].pc, rd_of(word)
    if number == OP.lui:
        set_register(m, core, rd, u_immediate(word))
        return next_instruction(m, core, ZERO)
    if number == OP.auipc:
        set_register(m, core, rd, pc + u_immediate(word))
        return next_instruction(m, core, ZERO)
    if number == OP.jal:
        return jump(m, costs, core, (pc + j_offset(word)) & WORD, rd)
    if number == OP.jalr:
        base = np.int64(m.cores[core].registers[rs1_of(word)])
        return jump(m, costs, core, (base + i_immediate(word)) & (WORD - 1), rd)
    return trap(m, core, ILLEGAL_INSTRUCTION, word)


@jit
@decides_instructions(Kind.FENCE, Kind.SYSTEM)
def system(m: Machine, core: Int, number: Int, word: Int) -> Any:
    """``ecall``, ``ebreak``, ``mret``, and what does nothing."""
    if number == OP.ecall:
        return trap(m, core, ENVIRONMENT_CALL, ZERO)
    if number == OP.ebreak:
        return trap(m, core, BREAKPOINT, m.cores[core].pc)
    if number == OP.mret:
        csr = m.cores[core].csr
        enabled = csr[MSTATUS] & MPIE
        csr[MSTATUS] = MPP | MPIE | (MIE if enabled else 0)
        m.cores[core].pc = csr[MEPC]
        return retire(m, core, ZERO)
    if number == OP.fence or number == OP.fence_i or number == OP.wfi:
        return next_instruction(m, core, ZERO)
    return trap(m, core, ILLEGAL_INSTRUCTION, word)


@jit
def swap_csr(m: Machine, core: Int, number: Int, word: Int) -> Any:
    """``csrr*``."""
    old = csr_access(m, core, number, word)
    if old == ILLEGAL_ACCESS:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    set_register(m, core, rd_of(word), old)
    return next_instruction(m, core, ZERO)


@jit
def calculate(m: Machine, core: Int, number: Int, word: Int, b: Int, extra: Int) -> Any:
    """An integer operation on rs1 and ``b``, which takes one cycle and ``extra``."""
    a = np.int64(m.cores[core].registers[rs1_of(word)])
    result = arithmetic(number, a, b)
    if result == UNKNOWN:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    set_register(m, core, rd_of(word), result)
    return next_instruction(m, core, extra)


@jit
def branch(m: Machine, costs: Costs, core: Int, number: Int, word: Int, b: Int) -> Any:
    """A branch on rs1 and ``b``."""
    a = np.int64(m.cores[core].registers[rs1_of(word)])
    taken = branch_taken(number, a, b)
    if taken == UNKNOWN:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    if taken == 0:
        return next_instruction(m, core, ZERO)
    return jump(m, costs, core, (m.cores[core].pc + b_offset(word)) & WORD, ZERO)


@jit
def fetch(m: Machine, core: Int, has_turn: bool) -> Any:
    """FETCHED with row and word of the next instruction, or how the attempt ended."""
    pc = m.cores[core].pc
    region, offset = locate(m, pc, 4)
    if region == NOWHERE:
        return trap(m, core, FETCH_FAULT, pc), ILLEGAL, ZERO
    if is_shared(region) and not has_turn:
        return NEEDS_TURN, ILLEGAL, ZERO
    word = read(memory_of(m, core, region), offset, 4)
    number = number_of(word)
    if number == ILLEGAL:
        return trap(m, core, ILLEGAL_INSTRUCTION, word), ILLEGAL, word
    return FETCHED, number, word


@jit
@decides_kinds
def step(m: Machine, costs: Costs, core: Int, number: Int, word: Int, has_turn: bool) -> Any:
    """One instruction of a core, any but a tensor instruction."""
    kind = KIND_OF[number]
    b = np.int64(m.cores[core].registers[rs2_of(word)])
    if kind == KIND.SYNC:
        return synchronise(m, costs, core, number, word, has_turn)
    if kind == KIND.IMMEDIATE or kind == KIND.REGISTER:
        b = i_immediate(word) if kind == KIND.IMMEDIATE else b
        return calculate(m, core, number, word, b, ZERO)
    if kind == KIND.MULTIPLY or kind == KIND.DIVIDE:
        is_product = kind == KIND.MULTIPLY
        extra = costs.control_multiply_cycles if is_product else costs.control_divide_cycles
        return calculate(m, core, number, word, b, extra)
    if kind == KIND.BRANCH:
        return branch(m, costs, core, number, word, b)
    if kind == KIND.LOAD:
        return load_word(m, costs, core, number, word, has_turn)
    if kind == KIND.STORE:
        return store_word(m, costs, core, number, word, has_turn)
    if kind == KIND.UPPER or kind == KIND.JUMP:
        return go_far(m, costs, core, number, word)
    if kind == KIND.FENCE or kind == KIND.SYSTEM:
        return system(m, core, number, word)
    if kind == KIND.CSR:
        return swap_csr(m, core, number, word)
    return trap(m, core, ILLEGAL_INSTRUCTION, word)
