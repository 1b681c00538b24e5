"""RV32IM and Zicsr of one core.

``step`` does one instruction and says how it ended; it does not begin one that other cores could
see unless ``may_be_seen`` is set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.accounts import CONTROL, spend, works_on
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
from nmpsim.core.compiled.tensor import check, check_tables, execute
from nmpsim.core.compiled.units import await_job
from nmpsim.core.decode import (
    BUCKETS,
    ILLEGAL,
    INSTRUCTION_UNIT,
    MASKS,
    MATCHES,
    OP,
    WORD_COUNT,
    WORD_SIGNED,
)
from nmpsim.core.state import CSR_COLUMN, CSRS, Count
from nmpsim.isa.table import SEMAPHORES, Cause, Csr, Unit
from nmpsim.kernels.jit import jit

WENT_ON, WOULD_BE_SEEN, STOPPED, TRAPPED = range(4)
"""How a step ended: done; not begun; the core waits or halts; a trap nobody handles."""

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
MCYCLE = CSR_COLUMN[Csr.MCYCLE]
MINSTRET = CSR_COLUMN[Csr.MINSTRET]
COLUMN_OF_CSR = np.full(4096, -1, np.int64)
for _csr, _column in CSR_COLUMN.items():
    COLUMN_OF_CSR[_csr] = _column
CSR_ADDRESS = np.array([int(c) for c in CSRS], np.int64)
WORD = 0xFFFF_FFFF
ZERO = np.int64(0)
MIE_BIT, MPIE_BIT, MPP_BITS = 1 << 3, 1 << 7, 3 << 11
TENSOR_INSTRUCTIONS = int(Count.TENSOR_INSTRUCTIONS)
LAST_UNIT = int(max(Unit))


@jit
def signed(value: Any, bits: Any) -> Any:
    """Two's complement of the low ``bits`` bits."""
    shift = np.int64(64 - bits)
    return (np.int64(value) << shift) >> shift


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
def trap(m: Any, core: Any, cause: Any, value: Any) -> Any:
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
    enabled = csr[MSTATUS] & MIE_BIT
    csr[MSTATUS] = MPP_BITS | (MPIE_BIT if enabled else 0)
    m.cores[core].pc = csr[MTVEC] & ~np.int64(3)
    spend(m, core, CONTROL, ZERO + 1)
    return WENT_ON


@jit
def read_csr(m: Any, core: Any, column: Any) -> Any:
    """Value of a CSR; the counters are the clock plus what a program set them off by."""
    address = CSR_ADDRESS[column]
    if address == 0xB00:
        return (m.cores[core].clock + m.cores[core].csr[MCYCLE]) & WORD
    if address == 0xB80:
        return ((m.cores[core].clock + m.cores[core].csr[MCYCLE]) >> 32) & WORD
    if address == 0xB02:
        return (m.cores[core].retired + m.cores[core].csr[MINSTRET]) & WORD
    if address == 0xB82:
        return ((m.cores[core].retired + m.cores[core].csr[MINSTRET]) >> 32) & WORD
    return m.cores[core].csr[column]


@jit
def set_counter(m: Any, core: Any, column: Any, now: Any, high: Any, value: Any) -> None:
    """Make one half of a 64-bit counter read as ``value`` from the next instruction on."""
    whole = now + m.cores[core].csr[column]
    if high:
        whole = (whole & WORD) | (value << 32)
    else:
        whole = (whole & ~np.int64(WORD)) | value
    m.cores[core].csr[column] = whole - (now + 1)


@jit
def write_csr(m: Any, core: Any, column: Any, value: Any) -> None:
    """Set a CSR; bits that cannot change stay as they are."""
    address = CSR_ADDRESS[column]
    if address == 0xB00 or address == 0xB80:
        set_counter(m, core, MCYCLE, m.cores[core].clock, address == 0xB80, value)
    elif address == 0xB02 or address == 0xB82:
        set_counter(m, core, MINSTRET, m.cores[core].retired, address == 0xB82, value)
    elif address == 0x300:
        m.cores[core].csr[column] = MPP_BITS | (value & (MIE_BIT | MPIE_BIT))
    elif address == 0x305 or address == 0x341:
        m.cores[core].csr[column] = value & ~np.int64(3)
    elif address != 0x301 and address != 0x344:
        m.cores[core].csr[column] = value


@jit
def csr_access(m: Any, core: Any, number: Any, word: Any) -> Any:
    """``csrr*``: the old value, or -1 if the access is illegal."""
    column = COLUMN_OF_CSR[(word >> 20) & 4095]
    if column < 0:
        return -1
    field = (word >> 15) & 31
    by_register = number == OP.csrrw or number == OP.csrrs or number == OP.csrrc
    operand = np.int64(m.cores[core].registers[field]) & WORD if by_register else field
    swaps = number == OP.csrrw or number == OP.csrrwi
    writes = swaps or field != 0
    if writes and CSR_ADDRESS[column] >= 0xC00:
        return -1
    old = read_csr(m, core, column)
    if writes:
        if swaps:
            new = operand
        elif number == OP.csrrs or number == OP.csrrsi:
            new = old | operand
        else:
            new = old & ~operand
        write_csr(m, core, column, new)
    return old


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
def arithmetic(number: Any, a: Any, b: Any) -> Any:
    """Result of a register-register or register-immediate instruction; int64 in, int64 out."""
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
    return ua if ub == 0 else ua % ub


@jit
def branch_taken(number: Any, a: Any, b: Any) -> Any:
    """Does a branch go?"""
    if number == OP.beq:
        return a == b
    if number == OP.bne:
        return a != b
    if number == OP.blt:
        return a < b
    if number == OP.bge:
        return a >= b
    if number == OP.bltu:
        return (a & WORD) < (b & WORD)
    return (a & WORD) >= (b & WORD)


@jit
def set_register(m: Any, core: Any, rd: Any, value: Any) -> None:
    """Write a register; x0 stays 0."""
    if rd != 0:
        m.cores[core].registers[rd] = np.int32(signed(value, 32))


@jit
def retire(m: Any, core: Any, extra: Any) -> Any:
    """An instruction is done; it took one cycle and ``extra``."""
    m.cores[core].retired += 1
    spend(m, core, CONTROL, 1 + extra)
    return WENT_ON


@jit
def next_instruction(m: Any, core: Any, extra: Any) -> Any:
    """As ``retire``, and on to the next instruction."""
    m.cores[core].pc += 4
    return retire(m, core, extra)


@jit
def jump(m: Any, costs: Any, core: Any, target: Any, rd: Any) -> Any:
    """Go to ``target`` and leave the return address in ``rd``."""
    if target & 3:
        return trap(m, core, FETCH_MISALIGNED, target)
    set_register(m, core, rd, m.cores[core].pc + 4)
    m.cores[core].pc = target
    return retire(m, core, costs.control_taken_branch_cycles)


@jit
def access_bytes(funct3: Any) -> Any:
    """Bytes of a load or store."""
    return np.int64(1) << (funct3 & 3)


@jit
def load_word(m: Any, costs: Any, core: Any, word: Any, may_be_seen: Any) -> Any:
    """``lb``, ``lh``, ``lw``, ``lbu``, ``lhu``."""
    funct3 = (word >> 12) & 7
    nbytes = access_bytes(funct3)
    address = (m.cores[core].registers[(word >> 15) & 31] + signed(word >> 20, 12)) & WORD
    if address % nbytes:
        return trap(m, core, LOAD_MISALIGNED, address)
    region, offset = locate(m, address, nbytes)
    if region == NOWHERE:
        return trap(m, core, LOAD_FAULT, address)
    if is_shared(region) and not may_be_seen:
        return WOULD_BE_SEEN
    value = read(memory_of(m, core, region), offset, nbytes)
    if funct3 < 2:
        value = signed(value, 8 * nbytes)
    set_register(m, core, (word >> 7) & 31, value)
    return next_instruction(m, core, access_cycles(costs, region))


@jit
def store_word(m: Any, costs: Any, core: Any, word: Any, may_be_seen: Any) -> Any:
    """``sb``, ``sh``, ``sw``."""
    nbytes = access_bytes((word >> 12) & 7)
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
def tensor(m: Any, costs: Any, core: Any, number: Any, word: Any, d: Any, may_be_seen: Any) -> Any:
    """A tensor instruction: room in the queue, descriptor, checks, work."""
    unit = INSTRUCTION_UNIT[number]
    address = np.int64(m.cores[core].registers[(word >> 15) & 31]) & WORD
    count = WORD_COUNT[number]
    region, offset = locate(m, address, 4 * count)
    if region == NOWHERE or address % 4:
        return trap(m, core, DESCRIPTOR_FAULT, address)
    is_transfer = unit < 2
    is_seen = is_transfer or is_shared(region)
    if is_seen and not may_be_seen:
        return WOULD_BE_SEEN
    waited = await_job(m, costs, core, unit, m.cores[core].issued[unit] - costs.queues_depth)
    if waited < 0:
        return STOPPED
    if waited > 0 and is_seen:
        return WENT_ON  # later now: the others may come first
    memory = memory_of(m, core, region)
    for i in range(count):
        value = read(memory, offset + 4 * i, 4)
        d[i] = signed(value, 32) if WORD_SIGNED[number, i] else value
    bad = check(number, d, m.shared[0].scratchpad_bytes)
    if bad < 0:
        bad = check_tables(number, d, m.scratchpad_i32[core])
    if bad >= 0:
        return trap(m, core, OPERAND_FAULT, address + 4 * bad)
    layers = m.layers.size - 1
    layer = min(d[0], layers)
    works_on(m, core, layer)
    spend(m, core, CONTROL, costs.control_descriptor_cycles)
    bad = execute(m, costs, core, number, d, layer)
    if bad >= 0:
        return trap(m, core, OPERAND_FAULT, address + 4 * bad)
    m.layers[layer].counts[TENSOR_INSTRUCTIONS] += 1
    return next_instruction(m, core, ZERO)


@jit
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
    if which >= SEMAPHORES:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    next_instruction(m, core, ZERO)
    if number == OP.nmp_post:
        post(m, costs, core, which, count)
        return WENT_ON
    return WENT_ON if pend(m, core, which, count) else STOPPED


@jit
def system(m: Any, core: Any, number: Any, word: Any) -> Any:
    """``ecall``, ``ebreak``, ``mret``, CSR accesses, and what does nothing."""
    if number == OP.ecall:
        return trap(m, core, ENVIRONMENT_CALL, ZERO)
    if number == OP.ebreak:
        return trap(m, core, BREAKPOINT, m.cores[core].pc)
    if number == OP.mret:
        csr = m.cores[core].csr
        enabled = csr[MSTATUS] & MPIE_BIT
        csr[MSTATUS] = MPP_BITS | MPIE_BIT | (MIE_BIT if enabled else 0)
        m.cores[core].pc = csr[MEPC]
        return retire(m, core, ZERO)
    if number == OP.fence or number == OP.fence_i or number == OP.wfi:
        return next_instruction(m, core, ZERO)
    old = csr_access(m, core, number, word)
    if old < 0:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    set_register(m, core, (word >> 7) & 31, old)
    return next_instruction(m, core, ZERO)


@jit
def step(m: Any, costs: Any, core: Any, d: Any, may_be_seen: Any) -> Any:
    """One instruction of a core; ``d`` is room for a descriptor."""
    pc = m.cores[core].pc
    region, offset = locate(m, pc, 4)
    if region == NOWHERE:
        return trap(m, core, FETCH_FAULT, pc)
    if is_shared(region) and not may_be_seen:
        return WOULD_BE_SEEN
    word = read(memory_of(m, core, region), offset, 4)
    number = number_of(word)
    rd = (word >> 7) & 31
    a = np.int64(m.cores[core].registers[(word >> 15) & 31])
    b = np.int64(m.cores[core].registers[(word >> 20) & 31])
    immediate = signed(word >> 20, 12)
    if number == ILLEGAL:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    if INSTRUCTION_UNIT[number] >= 0:
        return tensor(m, costs, core, number, word, d, may_be_seen)
    if OP.nmp_wait <= number <= OP.nmp_halt:
        return synchronise(m, costs, core, number, word, may_be_seen)
    if OP.addi <= number <= OP.srai:
        set_register(m, core, rd, arithmetic(number, a, immediate))
        return next_instruction(m, core, ZERO)
    if OP.add <= number <= OP.remu:
        set_register(m, core, rd, arithmetic(number, a, b))
        extra = ZERO
        if number >= OP.div:
            extra = costs.control_divide_cycles
        elif number >= OP.mul:
            extra = costs.control_multiply_cycles
        return next_instruction(m, core, extra)
    if OP.beq <= number <= OP.bgeu:
        if not branch_taken(number, a, b):
            return next_instruction(m, core, ZERO)
        offset = (word >> 7 & 1) << 11 | (word >> 8 & 15) << 1 | (word >> 25 & 63) << 5
        target = (pc + signed(offset | (word >> 31) << 12, 13)) & WORD
        return jump(m, costs, core, target, ZERO)
    if OP.lb <= number <= OP.lhu:
        return load_word(m, costs, core, word, may_be_seen)
    if OP.sb <= number <= OP.sw:
        return store_word(m, costs, core, word, may_be_seen)
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
        return jump(m, costs, core, (a + immediate) & (WORD - 1), rd)
    return system(m, core, number, word)
