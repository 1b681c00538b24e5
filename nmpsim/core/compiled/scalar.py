"""RV32IM and Zicsr of one core, and its synchronisation.

``fetch`` reads an instruction and ``step`` does it; each says how it ended, and neither begins what
other cores could see unless ``may_be_seen`` is set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.csr import ILLEGAL_ACCESS, csr_access
from nmpsim.core.compiled.ending import (
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
    STOPPED,
    STORE_FAULT,
    STORE_MISALIGNED,
    WENT_ON,
    WORD,
    WOULD_BE_SEEN,
    ZERO,
    next_instruction,
    retire,
    set_register,
    signed,
    trap,
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
from nmpsim.isa.csrs import MIE, MPIE, MPP
from nmpsim.isa.table import SEMAPHORES, Kind, Unit
from nmpsim.kernels.jit import jit

LAST_UNIT = int(max(Unit))
UNKNOWN: Any = np.int64(-(1 << 63))
"""In place of a result: this instruction is none of those that a function knows."""


@jit
def number_of(word: Any) -> Any:
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
def divide(a: Any, b: Any, rest: Any) -> Any:
    """Signed quotient towards zero, or its remainder, as RISC-V defines them."""
    if b == 0:
        return a if rest else np.int64(-1)
    quotient = abs(a) // abs(b)
    if (a < 0) != (b < 0):
        quotient = -quotient
    return a - quotient * b if rest else quotient


@jit
@decides_instructions(Kind.IMMEDIATE, Kind.REGISTER, Kind.MULTIPLY, Kind.DIVIDE)
def arithmetic(number: Any, a: Any, b: Any) -> Any:
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
def branch_taken(number: Any, a: Any, b: Any) -> Any:
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
def jump(m: Any, costs: Any, core: Any, target: Any, rd: Any) -> Any:
    """Go to ``target`` and leave the return address in ``rd``."""
    if target & 3:
        return trap(m, core, FETCH_MISALIGNED, target)
    set_register(m, core, rd, m.cores[core].pc + 4)
    m.cores[core].pc = target
    return retire(m, core, costs.control_taken_branch_cycles)


@jit
def load_word(m: Any, costs: Any, core: Any, number: Any, word: Any, may_be_seen: Any) -> Any:
    """A scalar load."""
    nbytes = ACCESS_BYTES[number]
    address = (m.cores[core].registers[(word >> 15) & 31] + signed(word >> 20, 12)) & WORD
    if address % nbytes:
        return trap(m, core, LOAD_MISALIGNED, address)
    region, offset = locate(m, address, nbytes)
    if region == NOWHERE:
        return trap(m, core, LOAD_FAULT, address)
    if is_shared(region) and not may_be_seen:
        return WOULD_BE_SEEN
    value = read(memory_of(m, core, region), offset, nbytes)
    if SIGN_EXTENDS[number]:
        value = signed(value, 8 * nbytes)
    set_register(m, core, (word >> 7) & 31, value)
    return next_instruction(m, core, access_cycles(costs, region))


@jit
def store_word(m: Any, costs: Any, core: Any, number: Any, word: Any, may_be_seen: Any) -> Any:
    """A scalar store."""
    nbytes = ACCESS_BYTES[number]
    immediate = signed((word >> 25) << 5 | (word >> 7) & 31, 12)
    address = (m.cores[core].registers[(word >> 15) & 31] + immediate) & WORD
    if address % nbytes:
        return trap(m, core, STORE_MISALIGNED, address)
    region, offset = locate(m, address, nbytes)
    if region in (NOWHERE, IMAGE):
        return trap(m, core, STORE_FAULT, address)
    if is_shared(region) and not may_be_seen:
        return WOULD_BE_SEEN
    value = np.int64(m.cores[core].registers[(word >> 20) & 31])
    write(memory_of(m, core, region), offset, nbytes, value)
    return next_instruction(m, core, access_cycles(costs, region))


@jit
def access_cycles(costs: Any, region: Any) -> Any:
    """What a scalar access costs beyond one cycle."""
    if region in (IMAGE, RAM):
        return costs.control_dram_access_cycles
    return costs.control_scratchpad_access_cycles


@jit
@decides_instructions(Kind.SYNC)
def synchronise(m: Any, costs: Any, core: Any, number: Any, word: Any, may_be_seen: Any) -> Any:
    """``nmp.wait``, ``nmp.barrier``, ``nmp.post``, ``nmp.pend``, ``nmp.halt``."""
    a, b = (word >> 15) & 31, (word >> 20) & 31
    if number == OP.nmp_wait:
        if a > LAST_UNIT:
            return trap(m, core, ILLEGAL_INSTRUCTION, word)
        if await_job(m, costs, core, a, m.cores[core].issued[a] - b - 1) < 0:
            return STOPPED
        return next_instruction(m, core, ZERO)
    if not may_be_seen:
        return WOULD_BE_SEEN
    which = np.int64(m.cores[core].registers[a]) & WORD
    count = np.int64(m.cores[core].registers[b]) & WORD
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
def go_far(m: Any, costs: Any, core: Any, number: Any, word: Any) -> Any:
    """``lui``, ``auipc``, ``jal``, ``jalr``: what has addresses of 32 bits to do with."""
    pc, rd = m.cores[core].pc, (word >> 7) & 31
    if number == OP.lui:
        set_register(m, core, rd, word & 0xFFFF_F000)
        return next_instruction(m, core, ZERO)
    if number == OP.auipc:
        set_register(m, core, rd, pc + (word & 0xFFFF_F000))
        return next_instruction(m, core, ZERO)
    if number == OP.jal:
        offset = (word >> 21 & 1023) << 1 | (word >> 20 & 1) << 11 | (word >> 12 & 255) << 12
        target = (pc + signed(offset | (word >> 31) << 20, 21)) & WORD
        return jump(m, costs, core, target, rd)
    if number == OP.jalr:
        base = np.int64(m.cores[core].registers[(word >> 15) & 31])
        return jump(m, costs, core, (base + signed(word >> 20, 12)) & (WORD - 1), rd)
    return trap(m, core, ILLEGAL_INSTRUCTION, word)


@jit
@decides_instructions(Kind.FENCE, Kind.SYSTEM)
def system(m: Any, core: Any, number: Any, word: Any) -> Any:
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
def swap_csr(m: Any, core: Any, number: Any, word: Any) -> Any:
    """``csrr*``."""
    old = csr_access(m, core, number, word)
    if old == ILLEGAL_ACCESS:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    set_register(m, core, (word >> 7) & 31, old)
    return next_instruction(m, core, ZERO)


@jit
def calculate(m: Any, core: Any, number: Any, word: Any, b: Any, extra: Any) -> Any:
    """An integer operation on rs1 and ``b``, which takes so many cycles more than one."""
    a = np.int64(m.cores[core].registers[(word >> 15) & 31])
    result = arithmetic(number, a, b)
    if result == UNKNOWN:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    set_register(m, core, (word >> 7) & 31, result)
    return next_instruction(m, core, extra)


@jit
def branch(m: Any, costs: Any, core: Any, number: Any, word: Any, b: Any) -> Any:
    """A branch on rs1 and ``b``."""
    a = np.int64(m.cores[core].registers[(word >> 15) & 31])
    taken = branch_taken(number, a, b)
    if taken == UNKNOWN:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    if taken == 0:
        return next_instruction(m, core, ZERO)
    offset = (word >> 7 & 1) << 11 | (word >> 8 & 15) << 1 | (word >> 25 & 63) << 5
    target = (m.cores[core].pc + signed(offset | (word >> 31) << 12, 13)) & WORD
    return jump(m, costs, core, target, ZERO)


@jit
def fetch(m: Any, core: Any, may_be_seen: Any) -> Any:
    """FETCHED with row and word of the next instruction, or how the attempt ended."""
    pc = m.cores[core].pc
    region, offset = locate(m, pc, 4)
    if region == NOWHERE:
        return trap(m, core, FETCH_FAULT, pc), ILLEGAL, ZERO
    if is_shared(region) and not may_be_seen:
        return WOULD_BE_SEEN, ILLEGAL, ZERO
    word = read(memory_of(m, core, region), offset, 4)
    number = number_of(word)
    if number == ILLEGAL:
        return trap(m, core, ILLEGAL_INSTRUCTION, word), ILLEGAL, word
    return FETCHED, number, word


@jit
@decides_kinds
def step(m: Any, costs: Any, core: Any, number: Any, word: Any, may_be_seen: Any) -> Any:
    """One instruction of a core, any but a tensor instruction."""
    kind = KIND_OF[number]
    b = np.int64(m.cores[core].registers[(word >> 20) & 31])
    if kind == KIND.SYNC:
        return synchronise(m, costs, core, number, word, may_be_seen)
    if kind == KIND.IMMEDIATE or kind == KIND.REGISTER:
        b = signed(word >> 20, 12) if kind == KIND.IMMEDIATE else b
        return calculate(m, core, number, word, b, ZERO)
    if kind == KIND.MULTIPLY or kind == KIND.DIVIDE:
        is_product = kind == KIND.MULTIPLY
        extra = costs.control_multiply_cycles if is_product else costs.control_divide_cycles
        return calculate(m, core, number, word, b, extra)
    if kind == KIND.BRANCH:
        return branch(m, costs, core, number, word, b)
    if kind == KIND.LOAD:
        return load_word(m, costs, core, number, word, may_be_seen)
    if kind == KIND.STORE:
        return store_word(m, costs, core, number, word, may_be_seen)
    if kind == KIND.UPPER or kind == KIND.JUMP:
        return go_far(m, costs, core, number, word)
    if kind == KIND.FENCE or kind == KIND.SYSTEM:
        return system(m, core, number, word)
    if kind == KIND.CSR:
        return swap_csr(m, core, number, word)
    return trap(m, core, ILLEGAL_INSTRUCTION, word)
