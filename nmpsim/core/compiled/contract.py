"""The check of the contract: instructions in the order of their effects, one after the other.

Recordings of programs that do not depend on data, and traces of those that do, are checked alike:
by these functions as they are, or compiled (``contract_entry.py``).
What an instruction accesses is in :mod:`nmpsim.memory.footprint`, what it is ordered after in
:mod:`~nmpsim.core.compiled.contract_order`, which of two accesses nothing orders in
:mod:`~nmpsim.core.compiled.contract_access`, what is written in
:mod:`~nmpsim.core.compiled.contract_memory`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_access import (
    check_ram,
    check_unit,
    check_units,
    forget_ordered,
    sign,
)
from nmpsim.core.compiled.contract_found import (
    CORE,
    CYCLE,
    FOUND_START,
    LAYER,
    NUMBER,
    PC,
    is_found,
    report,
)
from nmpsim.core.compiled.contract_memory import (
    is_ram,
    is_scratchpad,
    is_writable,
    read_row,
    visit_row,
)
from nmpsim.core.compiled.contract_order import (
    HALTED,
    RUNNING,
    arrive,
    do_scalar,
    knows_done,
    learn,
    pend,
    post,
)
from nmpsim.core.compiled.contract_state import (
    SCALAR,
    UNITS,
    WORK_PER_EVENT,
    Contract,
    Limit,
)
from nmpsim.core.contract_events import ContractEvent, HostEvent
from nmpsim.core.instruction_tables import (
    ACCESS_BYTES,
    FOOTPRINT_KIND,
    INSTRUCTION_UNIT,
    IS_WRITE,
    OP,
    WORD_COUNT,
)
from nmpsim.isa.contract import NUMBER_OF_CASE
from nmpsim.isa.table import CONTROL_BASE, CONTROL_BYTES
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.memory.footprint import (
    CODE,
    COUNT,
    DESCRIPTOR,
    TENSOR,
    WORD,
    begin_touches,
    footprint,
    touch,
)
from nmpsim.memory.footprint import WRITES as WRITE_COUNT

(
    EVENT_NUMBER,
    EVENT_CORE,
    EVENT_PC,
    EVENT_CYCLE,
    FIRST,
    SECOND,
    DESCRIPTOR_AT,
    ITEM,
) = map(int, ContractEvent)
DEPTH, WORK = int(Limit.DEPTH), int(Limit.WORK)
IS_TOO_STRICT = int(Limit.IS_TOO_STRICT)
HOST_READS_UNWRITTEN, HOST_ORDER, BARRIER_COUNTS = (
    np.int64(NUMBER_OF_CASE[key])
    for key in ("host_reads_unwritten", "host_order", "barrier_counts")
)
HOST_STARTS, HOST_WRITES = int(HostEvent.STARTS), int(HostEvent.WRITES)
LOADS_AND_STORES = 2
"""Units that touch DRAM; the first ones."""
NONE = np.int64(-1)


def tensor(c: Contract, core: Int, number: Int, d: Int64s) -> None:
    """A tensor instruction."""
    unit, depth = INSTRUCTION_UNIT[number], c.numbers[DEPTH]
    job = c.issued[core, unit]
    c.issued[core, unit] = job + 1
    knows_done(c, core, core, unit, job + 1 - depth)  # the queue had room
    touches = c.touches[core, unit, job % depth]
    footprint(FOOTPRINT_KIND[number], d, touches)
    sign(c, touches, unit, job)
    check_units(c, core, unit, touches)
    writes = touches[0, WRITE_COUNT]
    for row in range(writes + 1, touches[0, COUNT] + 1):
        read_row(c, core, touches, row)
    if unit < LOADS_AND_STORES:
        check_ram(c, core, touches)
    for row in range(1, writes + 1):
        visit_row(c, core, touches, row, True)


def own_access(c: Contract, core: Int, what: int, start: int, nbytes: int, writes: bool) -> None:
    """A core reads or writes something itself, as a scalar access or a fetch does."""
    if not is_writable(c, start):
        return
    touches = c.row
    begin_touches(touches)
    touch(touches, writes, what, start, nbytes)
    in_ram = is_ram(c, touches, 1)
    if not in_ram and not is_scratchpad(c, touches, 1):
        return
    check_units(c, core, NONE, touches)
    if writes:
        visit_row(c, core, touches, 1, True)
    else:
        read_row(c, core, touches, 1)
    if in_ram:
        sign(c, touches, SCALAR, do_scalar(c, core))
        check_ram(c, core, touches)


def scalar(c: Contract, core: Int, number: Int, address: int) -> None:
    """A scalar load or store."""
    if CONTROL_BASE <= address < CONTROL_BASE + CONTROL_BYTES:
        word = (address - CONTROL_BASE) // 4
        if IS_WRITE[number]:
            learn(c.words[word], c.knows[core])
        else:
            learn(c.knows[core], c.words[word])
        return
    own_access(c, core, WORD, address, ACCESS_BYTES[number], IS_WRITE[number])


def synchronise(c: Contract, core: Int, number: Int, first: int, second: Int) -> None:
    """A wait, or cores that meet."""
    if number == OP.nmp_wait:
        if first < UNITS:
            knows_done(c, core, core, first, c.issued[core, first] - second)
    elif number == OP.nmp_barrier:
        ended = arrive(c, core, first, second)
        if ended < 0:
            begin_touches(c.row)
            touch(c.row, False, WORD, first, 1)
            report(c, BARRIER_COUNTS, c.row, 1)
        elif ended > 0:
            forget_ordered(c)
    elif number == OP.nmp_post:
        post(c, core, first, second)
    elif number == OP.nmp_pend:
        pend(c, core, first, second)
    elif number == OP.nmp_halt:
        c.waits[core, 0] = HALTED


def begin_segment(c: Contract) -> None:
    """The host starts all cores: what they knew at their end all of them know."""
    for core in range(1, c.waits.shape[0]):
        learn(c.knows[0], c.knows[core])
    for core in range(c.waits.shape[0]):
        c.waits[core, 0] = RUNNING
        if core > 0:
            learn(c.knows[core], c.knows[0])
    forget_ordered(c)


def host_access(c: Contract, start: int, nbytes: int, writes: bool) -> None:
    """The host reads or writes a tensor while all cores have halted."""
    touches = c.row
    begin_touches(touches)
    touch(touches, writes, TENSOR, start, nbytes)
    if nbytes == 0 or not is_ram(c, touches, 1):
        return
    for core in range(c.waits.shape[0]):
        for unit in range(LOADS_AND_STORES):
            check_unit(c, HOST_ORDER, core, unit, touches)
    missing = visit_row(c, 0, touches, 1, writes)
    if missing >= 0 and not is_found(c):
        report(c, HOST_READS_UNWRITTEN, touches, 1)
        c.found[FOUND_START] = missing


def host_event(c: Contract, number: Int, first: int, second: int) -> None:
    """What the host does."""
    for entry in (NUMBER, CORE, PC, LAYER, CYCLE):
        c.found[entry] = NONE
    if number == HOST_STARTS:
        begin_segment(c)
    else:
        host_access(c, first, second, number == HOST_WRITES)


def core_event(c: Contract, event: Int64s, words: Int64s, first_word: Int) -> None:
    """An instruction of a core."""
    number, core, pc = event[EVENT_NUMBER], event[EVENT_CORE], event[EVENT_PC]
    is_tensor = FOOTPRINT_KIND[number] >= 0
    c.found[NUMBER], c.found[CORE], c.found[PC] = number, core, pc
    c.found[CYCLE] = event[EVENT_CYCLE]
    c.found[LAYER] = words[event[ITEM], first_word] if is_tensor else NONE
    own_access(c, core, CODE, pc, 4, False)
    if is_tensor:
        own_access(c, core, DESCRIPTOR, event[DESCRIPTOR_AT], 4 * WORD_COUNT[number], False)
        tensor(c, core, number, words[event[ITEM], first_word:])
    elif ACCESS_BYTES[number] > 0:
        scalar(c, core, number, event[FIRST])
    else:
        synchronise(c, core, number, event[FIRST], event[SECOND])


def check(c: Contract, events: Int64s, words: Int64s, first_word: Int) -> Any:
    """Check what cores and host do, int64 [n, Event]; True if it keeps to the contract.

    ``words`` has a row for each descriptor, whose words begin at column ``first_word``. It stops at
    the first violation, which is in ``found`` then, and where the order shows as too strict.
    """
    for i in range(events.shape[0]):
        event = events[i]
        c.numbers[WORK] = max(c.numbers[WORK] - WORK_PER_EVENT, 0)
        if event[EVENT_NUMBER] < 0:
            host_event(c, event[EVENT_NUMBER], event[FIRST], event[SECOND])
        else:
            core_event(c, event, words, first_word)
        if is_found(c) or c.numbers[IS_TOO_STRICT]:
            return False
    return True
