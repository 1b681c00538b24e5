"""Check of the contract: events in the order of their effects, one after the other.

Recordings of programs that do not depend on data, and traces of those that do, are checked by the
same functions, as plain Python or compiled (``contract_entry.py``).
:mod:`nmpsim.memory.footprint` defines the accesses of an instruction,
:mod:`~nmpsim.core.compiled.contract_order` orders and compares them, and
:mod:`~nmpsim.core.compiled.contract_state` tracks written bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_order import (
    HALTED,
    RUNNING,
    arrive_at_barrier,
    check_dram_accesses,
    check_unit,
    check_units,
    count_scalar_access,
    merge_clock,
    pend,
    post,
    record_completions,
    record_origin,
    remove_ordered_accesses,
)
from nmpsim.core.compiled.contract_state import (
    COMPARISONS,
    COMPARISONS_PER_EVENT,
    CORE,
    CYCLE,
    DEPTH,
    FOUND_START,
    HAS_NEW_RIVAL,
    LAYER,
    NUMBER,
    PC,
    SCALAR,
    UNITS,
    ContractState,
    check_read,
    has_violation,
    is_in_ram,
    is_in_scratchpad,
    is_writable,
    report_violation,
    track_access,
)
from nmpsim.core.contract_events import (
    EVENT_CORE,
    EVENT_CYCLE,
    EVENT_DESCRIPTOR,
    EVENT_FIRST,
    EVENT_ITEM,
    EVENT_NUMBER,
    EVENT_PC,
    EVENT_SECOND,
    HostEvent,
)
from nmpsim.core.instruction_tables import (
    ACCESS_BYTES,
    FOOTPRINT_KIND,
    INSTRUCTION_UNIT,
    IS_WRITE,
    OP,
    WORD_COUNT,
    handles_instructions,
)
from nmpsim.isa.contract import NUMBER_OF_CASE
from nmpsim.isa.table import CONTROL_BASE, CONTROL_BYTES, InstructionKind
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.memory.footprint import (
    CODE,
    COUNT,
    DESCRIPTOR,
    TENSOR,
    WORD,
    add_run,
    clear_footprint,
    compute_footprint,
)
from nmpsim.memory.footprint import WRITES as WRITE_COUNT

HOST_READS_UNWRITTEN, HOST_ORDER, BARRIER_COUNTS = (
    np.int64(NUMBER_OF_CASE[key])
    for key in ("host_reads_unwritten", "host_order", "barrier_counts")
)
HOST_STARTS, HOST_WRITES = int(HostEvent.STARTS), int(HostEvent.WRITES)
LOADS_AND_STORES = 2
"""Number of units that access DRAM, which are the first ones."""
NONE = np.int64(-1)


def check_tensor_instruction(c: ContractState, core: Int, number: Int, d: Int64s) -> None:
    """Check a tensor instruction against the contract; record the first violation in ``c``."""
    unit, depth = INSTRUCTION_UNIT[number], c.numbers[DEPTH]
    job = c.issued[core, unit]
    c.issued[core, unit] = job + 1
    record_completions(c, core, core, unit, job + 1 - depth)  # the queue had room
    touches = c.touches[core, unit, job % depth]
    compute_footprint(FOOTPRINT_KIND[number], d, touches)
    record_origin(c, touches, unit, job)
    check_units(c, core, unit, touches)
    writes = touches[0, WRITE_COUNT]
    for row in range(writes + 1, touches[0, COUNT] + 1):
        check_read(c, core, touches, row)
    if unit < LOADS_AND_STORES:
        check_dram_accesses(c, core, touches)
    for row in range(1, writes + 1):
        track_access(c, core, touches, row, True)


def check_core_access(
    c: ContractState, core: Int, what: int, start: int, nbytes: int, writes: bool
) -> None:
    """Check a core's scalar access, or fetch of an instruction or descriptor, for violations."""
    if not is_writable(c, start):
        return
    touches = c.row
    clear_footprint(touches)
    add_run(touches, writes, what, start, nbytes)
    in_ram = is_in_ram(c, touches, 1)
    if not in_ram and not is_in_scratchpad(c, touches, 1):
        return
    check_units(c, core, NONE, touches)
    if writes:
        track_access(c, core, touches, 1, True)
    else:
        check_read(c, core, touches, 1)
    if in_ram:
        record_origin(c, touches, SCALAR, count_scalar_access(c, core))
        check_dram_accesses(c, core, touches)


def check_scalar_access(c: ContractState, core: Int, number: Int, address: int) -> None:
    """Check a scalar load or store against the contract."""
    if CONTROL_BASE <= address < CONTROL_BASE + CONTROL_BYTES:
        word = (address - CONTROL_BASE) // 4
        if IS_WRITE[number]:
            merge_clock(c.words[word], c.clocks[core])
        else:
            merge_clock(c.clocks[core], c.words[word])
        return
    check_core_access(c, core, WORD, address, ACCESS_BYTES[number], IS_WRITE[number])


@handles_instructions(InstructionKind.SYNC)
def check_synchronization(
    c: ContractState, core: Int, number: Int, first: int, second: Int
) -> None:
    """Check a wait, barrier, post, pend or halt against the contract."""
    if number == OP.nmp_wait:
        if first < UNITS:
            record_completions(c, core, core, first, c.issued[core, first] - second)
    elif number == OP.nmp_barrier:
        ended = arrive_at_barrier(c, core, first, second)
        if ended < 0:
            clear_footprint(c.row)
            add_run(c.row, False, WORD, first, 1)
            report_violation(c, BARRIER_COUNTS, c.row, 1)
        elif ended > 0:
            remove_ordered_accesses(c)
    elif number == OP.nmp_post:
        post(c, core, first, second)
    elif number == OP.nmp_pend:
        pend(c, core, first, second)
    elif number == OP.nmp_halt:
        c.waits[core, 0] = HALTED


def begin_segment(c: ContractState) -> None:
    """Begin a device segment: set all cores to running and merge their vector clocks."""
    for core in range(1, c.waits.shape[0]):
        merge_clock(c.clocks[0], c.clocks[core])
    for core in range(c.waits.shape[0]):
        c.waits[core, 0] = RUNNING
        if core > 0:
            merge_clock(c.clocks[core], c.clocks[0])
    remove_ordered_accesses(c)


def check_host_access(c: ContractState, start: int, nbytes: int, writes: bool) -> None:
    """Check a host access to a tensor against the contract, after all cores have halted."""
    touches = c.row
    clear_footprint(touches)
    add_run(touches, writes, TENSOR, start, nbytes)
    if nbytes == 0 or not is_in_ram(c, touches, 1):
        return
    for core in range(c.waits.shape[0]):
        for unit in range(LOADS_AND_STORES):
            check_unit(c, HOST_ORDER, core, unit, touches)
    missing = track_access(c, 0, touches, 1, writes)
    if missing >= 0 and not has_violation(c):
        report_violation(c, HOST_READS_UNWRITTEN, touches, 1)
        c.found[FOUND_START] = missing


def check_host_event(c: ContractState, kind: Int, address: int, nbytes: int) -> None:
    """Check a host event against the contract, or begin a new segment if the event is a start."""
    for entry in (NUMBER, CORE, PC, LAYER, CYCLE):
        c.found[entry] = NONE
    if kind == HOST_STARTS:
        begin_segment(c)
    else:
        check_host_access(c, address, nbytes, kind == HOST_WRITES)


def check_core_event(c: ContractState, event: Int64s, words: Int64s, first_word: Int) -> None:
    """Check one instruction that a core executed, given as an event, against the contract."""
    number, core, pc = event[EVENT_NUMBER], event[EVENT_CORE], event[EVENT_PC]
    is_tensor = FOOTPRINT_KIND[number] >= 0
    c.found[NUMBER], c.found[CORE], c.found[PC] = number, core, pc
    c.found[CYCLE] = event[EVENT_CYCLE]
    c.found[LAYER] = words[event[EVENT_ITEM], first_word] if is_tensor else NONE
    check_core_access(c, core, CODE, pc, 4, False)
    if is_tensor:
        check_core_access(
            c, core, DESCRIPTOR, event[EVENT_DESCRIPTOR], 4 * WORD_COUNT[number], False
        )
        check_tensor_instruction(c, core, number, words[event[EVENT_ITEM], first_word:])
    elif ACCESS_BYTES[number] > 0:
        check_scalar_access(c, core, number, event[EVENT_FIRST])
    else:
        check_synchronization(c, core, number, event[EVENT_FIRST], event[EVENT_SECOND])


def check_events(c: ContractState, events: Int64s, words: Int64s, first_word: Int) -> Any:
    """Check events in order; return False at the first violation or if the check must start again.

    ``words`` has a row for each descriptor, whose words begin at column ``first_word``. The check
    stops at the first violation, which is then in ``found``, and at a new rival of an earlier pend.
    """
    for i in range(events.shape[0]):
        event = events[i]
        c.numbers[COMPARISONS] = max(c.numbers[COMPARISONS] - COMPARISONS_PER_EVENT, 0)
        if event[EVENT_NUMBER] < 0:
            check_host_event(c, event[EVENT_NUMBER], event[EVENT_FIRST], event[EVENT_SECOND])
        else:
            check_core_event(c, event, words, first_word)
        if has_violation(c) or c.numbers[HAS_NEW_RIVAL]:
            return False
    return True
