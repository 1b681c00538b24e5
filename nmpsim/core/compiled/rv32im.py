"""RV32IM instructions of a core, as many in a row as it may execute before other events.

Words of the image are decoded once, because nothing can write there; words fetched from elsewhere
are decoded each time. Registers are in the machine all along; pc, cycles and the count of
instructions are written back at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.access_cache import is_cached
from nmpsim.core.code_regions import begin_instruction, count_execution
from nmpsim.core.compiled.cycle_accounting import (
    CONTROL,
    ON_CONTROL,
    attribute_cycles,
    spend_cycles,
)
from nmpsim.core.compiled.event_queue import find_earliest, find_last_turn
from nmpsim.core.compiled.expressions import UNKNOWN, make_switch
from nmpsim.core.compiled.fetch import (
    decode_b_offset,
    decode_i_immediate,
    decode_j_offset,
    decode_rd,
    decode_rs1,
    decode_rs2,
    decode_s_immediate,
    decode_u_immediate,
    match_instruction,
)
from nmpsim.core.compiled.memory import (
    IMAGE,
    NOWHERE,
    RAM,
    get_memory,
    is_shared,
    locate,
    read,
    write,
)
from nmpsim.core.compiled.traps import (
    AT_HOST,
    FETCH_MISALIGNED,
    LOAD_FAULT,
    LOAD_MISALIGNED,
    NEEDS_TURN,
    STORE_FAULT,
    STORE_MISALIGNED,
    WENT_ON,
    WORD,
    ZERO,
    to_signed,
    trap,
)
from nmpsim.core.host_registers import is_host_register
from nmpsim.core.instruction_tables import (
    ACCESS_BYTES,
    IS_ACCESS,
    IS_RV32IM,
    IS_WRITE,
    KIND,
    KIND_OF,
    OP,
    RV32IM,
    SIGN_EXTENDS,
    handles_kinds,
)
from nmpsim.core.state import Machine
from nmpsim.core.stop_conditions import StopConditions
from nmpsim.isa.table import InstructionKind
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.timing import Costs

TAG, NUMBER, RD, RS1, RS2, ADDEND, OFFSET, CYCLES = range(8)
"""Words of a decoded instruction. TAG is pc + 1; ADDEND is added to the second operand; OFFSET is
a target address or an address offset; CYCLES are those that do not depend on data."""
DECODED_WORDS = 8
DECODED = 1 << 11
"""Size of the cache of decoded instructions, indexed by pc."""


@jit
def divide(a: Int, b: Int, wants_remainder: bool) -> Any:
    """Return the quotient of a RISC-V division, or its remainder if ``wants_remainder`` is set."""
    if b == 0:
        return a if wants_remainder else np.int64(-1)
    quotient = np.abs(a) // np.abs(b)
    if (a < 0) != (b < 0):
        quotient = -quotient
    return a - quotient * b if wants_remainder else quotient


compute_arithmetic = make_switch(
    f"{__name__}.compute_arithmetic",
    {
        "add addi": "a + b",
        "sub": "a - b",
        "sll slli": "a << (b & 31)",
        "slt slti": "a < b",
        "sltu sltiu": "ua < ub",
        "xor xori": "a ^ b",
        "srl srli": "ua >> (b & 31)",
        "sra srai": "a >> (b & 31)",
        "or ori": "a | b",
        "and andi": "a & b",
        "mul": "to_signed(a * b, 32)",
        "mulh": "(a * b) >> 32",
        "mulhsu": "(a * ub) >> 32",
        "mulhu": "(np.uint64(ua) * np.uint64(ub)) >> np.uint64(32)",
        "div": "divide(a, b, False)",
        "rem": "divide(a, b, True)",
        "divu": "WORD if ub == 0 else ua // ub",
        "remu": "ua if ub == 0 else ua % ub",
    },
    InstructionKind.IMMEDIATE,
    InstructionKind.REGISTER,
    InstructionKind.MULTIPLY,
    InstructionKind.DIVIDE,
    divide=divide,
    to_signed=to_signed,
)
"""``compute_arithmetic(number, a, b)``: the int64 result of an integer instruction."""
_IS_ARITHMETIC = np.isin(
    KIND_OF,
    (
        InstructionKind.IMMEDIATE,
        InstructionKind.REGISTER,
        InstructionKind.MULTIPLY,
        InstructionKind.DIVIDE,
    ),
)
"""[instructions] those that ``compute_arithmetic`` computes."""
is_branch_taken = make_switch(
    f"{__name__}.is_branch_taken",
    {
        "beq": "a == b",
        "bne": "a != b",
        "blt": "a < b",
        "bge": "a >= b",
        "bltu": "ua < ub",
        "bgeu": "ua >= ub",
    },
    InstructionKind.BRANCH,
)
"""``is_branch_taken(number, a, b)``: 1 if a branch is taken, 0 if not."""


compute_upper = make_switch(
    f"{__name__}.compute_upper", {"lui": "b", "auipc": "a + b"}, InstructionKind.UPPER
)
"""``compute_upper(number, pc, immediate)``: the result of ``lui`` or ``auipc``."""
compute_jump_target = make_switch(
    f"{__name__}.compute_jump_target",
    {"jal": "b", "jalr": "(a + b) & (WORD - 1)"},
    InstructionKind.JUMP,
)
"""``compute_jump_target(number, rs1, offset)``: the target address of a jump."""


@jit
@handles_kinds(*RV32IM)
def decode(entry: Int64s, costs: Costs, pc: Int, number: Int, word: Int) -> None:
    """Decode an RV32IM instruction into the array ``entry``, int64 [DECODED_WORDS]."""
    kind = KIND_OF[number]
    entry[TAG], entry[NUMBER] = pc + 1, number
    entry[RD], entry[RS1], entry[RS2] = decode_rd(word), decode_rs1(word), decode_rs2(word)
    entry[ADDEND], entry[OFFSET], entry[CYCLES] = 0, 0, costs.instruction_cycles
    if kind == KIND.REGISTER:
        return
    if kind == KIND.IMMEDIATE:
        entry[RS2], entry[ADDEND] = 0, decode_i_immediate(word)
    elif kind == KIND.UPPER:  # 0 + constant
        entry[NUMBER], entry[RS1], entry[RS2] = OP.add, 0, 0
        entry[ADDEND] = compute_upper(number, pc, decode_u_immediate(word))
    elif kind == KIND.MULTIPLY:
        entry[CYCLES] += costs.control_multiply_cycles
    elif kind == KIND.DIVIDE:
        entry[CYCLES] += costs.control_divide_cycles
    elif kind == KIND.BRANCH:
        entry[OFFSET] = (pc + decode_b_offset(word)) & WORD
    elif kind == KIND.JUMP:
        entry[OFFSET] = (
            (pc + decode_j_offset(word)) & WORD if number == OP.jal else decode_i_immediate(word)
        )
    elif kind == KIND.LOAD:
        entry[OFFSET] = decode_i_immediate(word)
    elif kind == KIND.STORE:
        entry[OFFSET] = decode_s_immediate(word)


@jit
def decode_at(m: Machine, costs: Costs, decoded: Int64s, at: Int, pc: Int, accesses: bool) -> Any:
    """Decode the image's RV32IM instruction at ``pc``; return False if there is none to decode.

    ``accesses`` allows loads and stores.
    """
    region, offset = locate(m, pc, 4)
    if region != IMAGE:
        return False
    word = read(m.image, offset, 4)
    number = match_instruction(word)
    if not IS_RV32IM[number] or (IS_ACCESS[number] and not accesses):
        return False
    decode(decoded[at : at + DECODED_WORDS], costs, pc, number, word)
    return True


@jit
def get_extra_access_cycles(costs: Costs, region: Int) -> Any:
    """Return the extra cycles of a scalar access to a memory region."""
    if region in (IMAGE, RAM):
        return costs.control_dram_access_cycles
    return costs.control_scratchpad_access_cycles


@jit
def find_access_fault(region: Int, address: Int, nbytes: Int, writes: bool) -> Any:
    """Return the trap cause of a scalar load or store, or -1 if the access is valid."""
    if address & (nbytes - 1):
        return STORE_MISALIGNED if writes else LOAD_MISALIGNED
    if region == NOWHERE or (writes and region == IMAGE):
        return STORE_FAULT if writes else LOAD_FAULT
    return ZERO - 1


@jit
def store_core_state(m: Machine, core: Int, pc: Int, clock: Int, steps: Int) -> None:
    """Set a core's pc and clock, and add ``steps`` to its count of retired instructions."""
    m.cores[core].pc = pc
    m.cores[core].retired += steps
    spend_cycles(m, core, CONTROL, clock - m.cores[core].clock)


@jit
def execute_rv32im(
    m: Machine,
    costs: Costs,
    core: Int,
    number: Int,
    word: Int,
    steps_left: Int,
    turn: Int,
    until: Int,
    most_turns: Int,
    steps_per_turn: Int,
    decoded: Int64s,
    clocks: Int64s,
    is_watched: bool,
    stops: StopConditions,
) -> Any:
    """Execute a fetched RV32IM instruction and later instructions; return why execution ended.

    At the cycle ``turn`` the core has its turn, with ``steps_left`` steps left, and may access
    shared memory. Up to the cycle ``until`` at most ``most_turns`` further turns follow, of cores
    in the order of ``clocks`` (see :mod:`~nmpsim.core.compiled.event_queue`), while their next
    instruction can be decoded, too. If the run is traced, an access that is not cached, or an
    instruction outside the image, is executed alone. ``decoded`` is int64 [(DECODED + 1) *
    DECODED_WORDS]; its last entry is for the first instruction.

    Returns
    -------
    tuple
        How it ended, the core with the last turn, the steps left of that turn, all executed steps,
        and the number of turns that followed. ``stops.clocks`` is up to date if that core differs.
    """
    limit, is_logged = costs.limits_cycles, m.code_regions.size > 0
    branch_cycles = costs.instruction_cycles + costs.control_taken_branch_cycles
    ended, cause, value = WENT_ON, ZERO - 1, ZERO
    steps, turns, turn_end, last = ZERO, ZERO, steps_left, ZERO - 1
    began, came = core, ZERO
    at = np.uintp(DECODED * DECODED_WORDS)
    decode(decoded[DECODED * DECODED_WORDS :], costs, m.cores[core].pc, number, word)
    is_alone = is_watched and (IS_ACCESS[number] or locate(m, m.cores[core].pc, 4)[0] != IMAGE)
    is_stepped = is_alone or is_logged  # the loop pauses after each instruction
    looks = is_watched and not is_alone
    accesses = not is_watched or stops.access_cache.shape[1] > 0
    while True:  # of one core after the other
        registers, seen = m.cores[core].registers, stops.access_cache[core]
        pc, clock, begin = m.cores[core].pc, m.cores[core].clock, steps
        retired, current = m.cores[core].retired - steps, pc
        pause = steps + 1 if is_stepped else turn_end
        if is_logged:
            begin_instruction(m, core, pc, clock, retired + steps)
        while True:  # instructions
            row = np.uintp(decoded[at + np.uintp(NUMBER)])
            number = np.int64(row)
            rd = np.uintp(decoded[at + np.uintp(RD)])
            a = np.int64(registers[np.uintp(decoded[at + np.uintp(RS1)])])
            b = np.int64(registers[np.uintp(decoded[at + np.uintp(RS2)])])
            if _IS_ARITHMETIC[row]:
                result = compute_arithmetic(number, a, b + decoded[at + np.uintp(ADDEND)])
                registers[rd] = np.int32(to_signed(result, 32))
                registers[0] = 0
                pc += 4
                clock += decoded[at + np.uintp(CYCLES)]
            elif IS_ACCESS[row]:
                nbytes, writes = ACCESS_BYTES[row], IS_WRITE[row]
                value = (a + decoded[at + np.uintp(OFFSET)]) & WORD
                region, offset = locate(m, value, nbytes)
                cause = find_access_fault(region, value, nbytes, writes)
                if cause >= 0 or (looks and not is_cached(seen, number, value)):
                    break
                if is_shared(region) and clock > turn:
                    if clock > last or turns >= most_turns:
                        ended = NEEDS_TURN
                        break
                    turns, turn, turn_end = turns + 1, clock, steps + steps_per_turn
                    pause = steps + 1 if is_stepped else turn_end
                memory = get_memory(m, core, region)
                if writes:
                    write(memory, offset, nbytes, b)
                else:
                    result = read(memory, offset, nbytes)
                    bits = 8 * nbytes if SIGN_EXTENDS[row] else np.int64(32)
                    registers[rd] = np.int32(to_signed(result, bits))
                    registers[0] = 0
                pc += 4
                clock += costs.instruction_cycles + get_extra_access_cycles(costs, region)
            else:
                taken = is_branch_taken(number, a, b)
                target = decoded[at + np.uintp(OFFSET)]
                if taken == UNKNOWN:
                    target = compute_jump_target(number, a, target)
                if taken == 0:
                    pc += 4
                    clock += costs.instruction_cycles
                elif target & 3:
                    cause, value = FETCH_MISALIGNED, target
                    break
                else:
                    if taken == UNKNOWN:
                        registers[rd] = np.int32(to_signed(pc + 4, 32))
                        registers[0] = 0
                    pc = target
                    clock += branch_cycles
            steps += 1
            if steps >= pause or clock > limit:
                if is_logged:
                    count_execution(m, current)
                if is_alone or steps >= turn_end or clock > limit:
                    break
                begin_instruction(m, core, pc, clock, retired + steps)
                current, pause = pc, steps + 1
            slot = ((pc >> 2) & (DECODED - 1)) * DECODED_WORDS
            at = np.uintp(slot)
            if decoded[at] != pc + 1 and not decode_at(m, costs, decoded, slot, pc, accesses):
                break
        store_core_state(m, core, pc, clock, steps - begin)
        if ended != NEEDS_TURN or clock > until or turns >= most_turns:
            break
        clocks[core] = clock
        first = find_earliest(clocks)
        if first == core:
            ended, last = WENT_ON, find_last_turn(core, clocks, until)
            continue
        to = m.cores[first].pc
        slot = ((to >> 2) & (DECODED - 1)) * DECODED_WORDS
        is_decoded = decoded[np.uintp(slot)] == to + 1
        if is_alone or not (is_decoded or decode_at(m, costs, decoded, slot, to, accesses)):
            break
        attribute_cycles(m, core, ON_CONTROL)
        if steps > came:
            stops.clocks[core] = clock
        came = steps
        core, turn, last, at = first, clocks[first], ZERO - 1, np.uintp(slot)
        ended, turns, turn_end = WENT_ON, turns + 1, steps + steps_per_turn
    if core != began and steps > came:
        stops.clocks[core] = clock
    if cause == STORE_FAULT and is_host_register(value):
        ended = AT_HOST
    elif cause >= 0:
        ended = trap(m, core, cause, value)
        steps += 1 if ended == WENT_ON else 0
    return ended, core, turn_end - steps, steps, turns
