"""The check of the contract: instructions in the order of their effects, one after the other.

Plans of programs that do not depend on data, and traces of those that do, are checked alike; what
an instruction touches is in :mod:`nmpsim.memory.footprint`, what it is ordered behind in
:mod:`~nmpsim.core.compiled.contract_order`, what is written in
:mod:`~nmpsim.core.compiled.contract_memory`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_memory import visit
from nmpsim.core.compiled.contract_order import (
    HALTED,
    RUNNING,
    arrive,
    do_scalar,
    is_ordered,
    knows_done,
    learn,
    pend,
    post,
)
from nmpsim.core.compiled.contract_state import (
    DOERS,
    MAX_OPEN,
    MAX_WORK,
    SCALAR,
    UNITS,
    WORK_PER_EVENT,
    Job,
    Limit,
    Open,
    make_contract,
)
from nmpsim.core.compiled.dram_conflicts import (
    BEGIN as BOX_BEGIN,
)
from nmpsim.core.compiled.dram_conflicts import (
    END as BOX_END,
)
from nmpsim.core.compiled.dram_conflicts import (
    FROM,
    READS,
    STRIDE,
    TO,
    WRITES,
    conflicts_with_others,
    keep_region,
)
from nmpsim.core.decode import (
    ACCESS_BYTES,
    FOOTPRINT_KIND,
    INSTRUCTION_UNIT,
    IS_WRITE,
    OP,
    WORD_COUNT,
)
from nmpsim.core.shown import EVENT_WORDS, Event, Found, HostEvent
from nmpsim.isa.contract import NUMBER_OF_CASE
from nmpsim.isa.table import CONTROL_BASE, CONTROL_BYTES, SCRATCHPAD_BASE
from nmpsim.kernels.jit import jit, jit_entry
from nmpsim.kernels.struct_pointer import struct_pointer
from nmpsim.memory.footprint import (
    CODE,
    COUNT,
    DESCRIPTOR,
    END,
    FIRST_AXIS,
    RUN,
    START,
    TENSOR,
    TOUCH_WORDS,
    WHAT,
    WORD,
    begin_touches,
    footprint,
    rows_meet,
    runs_of,
    touch,
)
from nmpsim.memory.footprint import WRITES as WRITE_COUNT

NUMBER, CORE, PC, CYCLE = int(Event.NUMBER), int(Event.CORE), int(Event.PC), int(Event.CYCLE)
FIRST, SECOND = int(Event.FIRST), int(Event.SECOND)
DESCRIPTOR_AT, ITEM = int(Event.DESCRIPTOR), int(Event.ITEM)
SCRATCHPAD_BYTES, RAM_BASE = int(Limit.SCRATCHPAD_BYTES), int(Limit.RAM_BASE)
RAM_END, DEPTH, OPEN = int(Limit.RAM_END), int(Limit.DEPTH), int(Limit.OPEN)
WORK, IS_UNSURE = int(Limit.WORK), int(Limit.IS_UNSURE)
OPEN_CORE, OPEN_DOER, OPEN_JOB, OPEN_WRITES, OPEN_NUMBER, OPEN_PC, OPEN_LAYER = map(int, Open)
TOUCH = len(Open)
JOB_NUMBER, JOB_PC, JOB_LAYER = map(int, Job)
FOUND_CASE, FOUND_NUMBER, FOUND_CORE = int(Found.CASE), int(Found.NUMBER), int(Found.CORE)
FOUND_PC, FOUND_CYCLE, FOUND_LAYER = int(Found.PC), int(Found.CYCLE), int(Found.LAYER)
FOUND_WHAT, FOUND_WRITES = int(Found.WHAT), int(Found.WRITES)
FOUND_START, FOUND_END = int(Found.START), int(Found.END)
OTHER_NUMBER, OTHER_CORE, OTHER_PC = (
    int(Found.OTHER_NUMBER),
    int(Found.OTHER_CORE),
    int(Found.OTHER_PC),
)
OTHER_LAYER, OTHER_WHAT = int(Found.OTHER_LAYER), int(Found.OTHER_WHAT)
OTHER_WRITES = int(Found.OTHER_WRITES)
SCRATCHPAD_UNWRITTEN, DRAM_UNWRITTEN, HOST_READS_UNWRITTEN, UNIT_ORDER, CORE_ORDER, HOST_ORDER = (
    np.int64(NUMBER_OF_CASE[key])
    for key in (
        "scratchpad_unwritten",
        "dram_unwritten",
        "host_reads_unwritten",
        "unit_order",
        "core_order",
        "host_order",
    )
)
FETCH_ORDER, BARRIER_COUNTS = (
    np.int64(NUMBER_OF_CASE[key]) for key in ("fetch_order", "barrier_counts")
)
HOST_STARTS, HOST_WRITES = int(HostEvent.STARTS), int(HostEvent.WRITES)
NONE = np.int64(-1)


@jit
def is_found(c: Any) -> Any:
    """Has there been a violation?"""
    return c.found[FOUND_CASE] >= 0


@jit
def report(c: Any, case: Any, touches: Any, row: Any, writes: Any) -> None:
    """A violation of the instruction that the check stands at; the first one counts."""
    if c.found[FOUND_CASE] >= 0:
        return
    c.found[FOUND_CASE] = case
    c.found[FOUND_WHAT] = touches[row, WHAT]
    c.found[FOUND_WRITES] = writes
    c.found[FOUND_START] = touches[row, START]
    c.found[FOUND_END] = touches[row, END]


@jit
def report_pair(
    c: Any,
    case: Any,
    touches: Any,
    row: Any,
    writes: Any,
    others: Any,
    other_row: Any,
    other_writes: Any,
    core: Any,
    number: Any,
    pc: Any,
    layer: Any,
) -> None:
    """As ``report``, with the earlier instruction."""
    if c.found[FOUND_CASE] >= 0:
        return
    what = touches[row, WHAT]
    report(c, FETCH_ORDER if what in (DESCRIPTOR, CODE) else case, touches, row, writes)
    c.found[FOUND_START] = max(touches[row, START], others[other_row, START])
    c.found[FOUND_END] = min(touches[row, END], others[other_row, END])
    c.found[OTHER_NUMBER] = number
    c.found[OTHER_CORE] = core
    c.found[OTHER_PC] = pc
    c.found[OTHER_LAYER] = layer
    c.found[OTHER_WHAT] = others[other_row, WHAT]
    c.found[OTHER_WRITES] = other_writes


@jit
def meet(c: Any, a: Any, row: Any, b: Any, other: Any) -> Any:
    """Do two touches share a byte? Counts the work, and gives up after very much of it."""
    if a[row, START] >= b[other, END] or b[other, START] >= a[row, END]:
        return False
    if c.numbers[WORK] > MAX_WORK:
        c.numbers[IS_UNSURE] = 1
        return False
    c.numbers[WORK] += min(runs_of(a, row), runs_of(b, other))
    return rows_meet(a, row, b, other)


# --- memory ---------------------------------------------------------------------------------------


@jit
def is_ram(c: Any, touches: Any, row: Any) -> Any:
    """Does a touch lie in the writable DRAM?"""
    return c.numbers[RAM_BASE] <= touches[row, START] and touches[row, END] <= c.numbers[RAM_END]


@jit
def is_scratchpad(c: Any, touches: Any, row: Any) -> Any:
    """Does a touch lie in a scratchpad?"""
    end = SCRATCHPAD_BASE + c.numbers[SCRATCHPAD_BYTES]
    return touches[row, START] >= SCRATCHPAD_BASE and touches[row, END] <= end


@jit
def is_writable(c: Any, address: Any) -> Any:
    """Does an address lie in a scratchpad or in the writable DRAM?"""
    in_scratchpad = 0 <= address - SCRATCHPAD_BASE < c.numbers[SCRATCHPAD_BYTES]
    return in_scratchpad or c.numbers[RAM_BASE] <= address < c.numbers[RAM_END]


@jit
def visit_row(c: Any, core: Any, touches: Any, row: Any, writes: Any) -> Any:
    """Mark what is written; address of the first byte that is read and was not, or -1."""
    if is_scratchpad(c, touches, row):
        return visit(c.scratchpad[core], c.known[core], touches, row, SCRATCHPAD_BASE, writes)
    if is_ram(c, touches, row):
        last = c.known.shape[0] - 1
        return visit(c.ram, c.known[last], touches, row, c.numbers[RAM_BASE], writes)
    return NONE


@jit
def read_row(c: Any, core: Any, touches: Any, row: Any) -> None:
    """All that is read must have been written."""
    missing = visit_row(c, core, touches, row, False)
    if missing < 0:
        return
    if touches[row, WHAT] == WORD and some_written(c, core, touches, row):
        return
    in_ram = is_ram(c, touches, row)
    report(c, DRAM_UNWRITTEN if in_ram else SCRATCHPAD_UNWRITTEN, touches, row, 0)
    c.found[FOUND_START] = missing


@jit
def some_written(c: Any, core: Any, touches: Any, row: Any) -> Any:
    """Records with gaps are copied by words."""
    in_ram = is_ram(c, touches, row)
    base = c.numbers[RAM_BASE] if in_ram else np.int64(SCRATCHPAD_BASE)
    for address in range(touches[row, START], touches[row, END]):
        if in_ram and c.ram[address - base] != 0:
            return True
        if not in_ram and c.scratchpad[core, address - base] != 0:
            return True
    return False


# --- order ----------------------------------------------------------------------------------------


@jit
def check_units(c: Any, core: Any, unit: Any, touches: Any) -> None:
    """Compare with what the core's other units may still be doing; ``unit`` -1 is the core."""
    depth = c.numbers[DEPTH]
    for other in range(UNITS):
        if other == unit:
            continue
        for job in range(c.knows[core, core, other], c.issued[core, other]):
            slot = job % depth
            check_pair(c, core, touches, c.touches[core, other, slot], other, slot)


@jit
def check_pair(c: Any, core: Any, touches: Any, others: Any, unit: Any, slot: Any) -> None:
    """Compare the touches of two instructions of a core of which one writes."""
    count, writes = touches[0, COUNT], touches[0, WRITE_COUNT]
    for row in range(1, count + 1):
        last = others[0, COUNT] if row <= writes else others[0, WRITE_COUNT]
        for other in range(1, last + 1):
            if touches[row, START] >= others[other, END]:
                continue
            if others[other, START] >= touches[row, END]:
                continue
            if meet(c, touches, row, others, other):
                job = c.jobs[core, unit, slot]
                report_pair(
                    c,
                    UNIT_ORDER,
                    touches,
                    row,
                    row <= writes,
                    others,
                    other,
                    other <= others[0, WRITE_COUNT],
                    core,
                    job[JOB_NUMBER],
                    job[JOB_PC],
                    job[JOB_LAYER],
                )


@jit
def put_row_box(c: Any, touches: Any, row: Any) -> None:
    """The box of a touch in DRAM, roughly; see :mod:`~nmpsim.core.compiled.dram_conflicts`."""
    start, run, box = touches[row, START], touches[row, RUN], c.box
    box[BOX_BEGIN], box[BOX_END] = start, touches[row, END]
    box[STRIDE], box[FROM], box[TO] = 0, 0, 0
    n0, s0 = touches[row, FIRST_AXIS], touches[row, FIRST_AXIS + 1]
    n1, s1 = touches[row, FIRST_AXIS + 2], touches[row, FIRST_AXIS + 3]
    stride = s0 if n1 == 1 else s1
    if n0 == 1 or stride == 0 or (n1 > 1 and s0 % stride != 0):
        return
    if start % stride + run <= stride:
        box[STRIDE], box[FROM], box[TO] = stride, start % stride, start % stride + run


@jit
def check_cores(c: Any, core: Any, touches: Any, row: Any, writes: Any) -> None:
    """Compare an access to DRAM with those of other cores that it is not ordered behind."""
    start, end = touches[row, START], touches[row, END]
    near = start < c.hull[WRITES, 1] and c.hull[WRITES, 0] < end
    if writes:
        near |= start < c.hull[READS, 1] and c.hull[READS, 0] < end
    put_row_box(c, touches, row)
    if not near or not conflicts_with_others(c.boxes, core, c.box, WRITES if writes else READS):
        return
    if c.numbers[WORK] > MAX_WORK:
        c.numbers[IS_UNSURE] = 1
        return
    c.numbers[WORK] += c.numbers[OPEN]
    for i in range(c.numbers[OPEN]):
        one = c.opened[i]
        if one[OPEN_CORE] == core or not (writes or one[OPEN_WRITES]):
            continue
        if one[TOUCH + START] >= end or start >= one[TOUCH + END]:
            continue
        if is_ordered(c, core, one[OPEN_CORE], one[OPEN_DOER], one[OPEN_JOB]):
            continue
        others = c.opened[i : i + 1, TOUCH:]
        if meet(c, touches, row, others, 0):
            report_pair(
                c,
                CORE_ORDER,
                touches,
                row,
                writes,
                others,
                0,
                one[OPEN_WRITES],
                one[OPEN_CORE],
                one[OPEN_NUMBER],
                one[OPEN_PC],
                one[OPEN_LAYER],
            )
            return


@jit
def open_access(
    c: Any, core: Any, doer: Any, job: Any, touches: Any, row: Any, writes: Any
) -> None:
    """Keep an access to DRAM for those that come later; ``check_cores`` has put its box."""
    kind = WRITES if writes else READS
    keep_region(c.boxes[core, kind], c.box)
    if c.hull[kind, 1] == 0:
        c.hull[kind, 0], c.hull[kind, 1] = touches[row, START], touches[row, END]
    c.hull[kind, 0] = min(c.hull[kind, 0], touches[row, START])
    c.hull[kind, 1] = max(c.hull[kind, 1], touches[row, END])
    if doer == SCALAR and is_again(c, core, touches, row, writes, job):
        return
    if c.numbers[OPEN] == MAX_OPEN:
        forget_ordered(c)
        if c.numbers[OPEN] > MAX_OPEN // 2:  # the check must end, however long cores do not meet
            c.numbers[IS_UNSURE] = 1
            c.numbers[OPEN] = 0
    one = c.opened[c.numbers[OPEN]]
    c.numbers[OPEN] += 1
    one[OPEN_CORE], one[OPEN_DOER], one[OPEN_JOB] = core, doer, job
    one[OPEN_WRITES] = 1 if writes else 0
    one[OPEN_NUMBER], one[OPEN_PC] = c.found[FOUND_NUMBER], c.found[FOUND_PC]
    one[OPEN_LAYER] = c.found[FOUND_LAYER]
    for i in range(TOUCH_WORDS):
        one[TOUCH + i] = touches[row, i]


@jit
def is_again(c: Any, core: Any, touches: Any, row: Any, writes: Any, job: Any) -> Any:
    """A loop that reads or writes a word again and again counts with its last time."""
    for i in range(c.numbers[OPEN]):
        one = c.opened[i]
        if (
            one[OPEN_CORE] == core
            and one[OPEN_DOER] == SCALAR
            and one[TOUCH + START] == touches[row, START]
            and one[TOUCH + END] == touches[row, END]
            and one[OPEN_WRITES] == writes
        ):
            one[OPEN_JOB] = job
            return True
    return False


@jit
def forget_ordered(c: Any) -> None:
    """Drop the accesses that every core that runs is ordered behind."""
    cores = c.waits.shape[0]
    c.least[:, :] = np.int64(1) << np.int64(62)
    for core in range(cores):
        if c.waits[core, 0] == HALTED:
            continue
        for other in range(cores):
            for doer in range(DOERS):
                c.least[other, doer] = min(c.least[other, doer], c.knows[core, other, doer])
    kept = 0
    for i in range(c.numbers[OPEN]):
        one = c.opened[i]
        if one[OPEN_JOB] < c.least[one[OPEN_CORE], one[OPEN_DOER]]:
            continue
        for word in range(c.opened.shape[1]):
            c.opened[kept, word] = one[word]
        kept += 1
    c.numbers[OPEN] = kept
    c.boxes[:, :, :, :] = 0
    c.hull[:, :] = 0
    for i in range(kept):
        one = c.opened[i]
        kind = WRITES if one[OPEN_WRITES] else READS
        put_row_box(c, c.opened[i : i + 1, TOUCH:], 0)
        keep_region(c.boxes[one[OPEN_CORE], kind], c.box)
        if c.hull[kind, 1] == 0:
            c.hull[kind, 0] = one[TOUCH + START]
        c.hull[kind, 0] = min(c.hull[kind, 0], one[TOUCH + START])
        c.hull[kind, 1] = max(c.hull[kind, 1], one[TOUCH + END])


# --- instructions ---------------------------------------------------------------------------------


@jit
def tensor(c: Any, core: Any, number: Any, pc: Any, d: Any) -> None:
    """A tensor instruction."""
    unit = INSTRUCTION_UNIT[number]
    job = c.issued[core, unit]
    c.issued[core, unit] = job + 1
    depth = c.numbers[DEPTH]
    knows_done(c, core, core, unit, job + 1 - depth)  # the queue had room
    touches = c.touches[core, unit, job % depth]
    kept = c.jobs[core, unit, job % depth]
    kept[JOB_NUMBER], kept[JOB_PC], kept[JOB_LAYER] = number, pc, d[0]
    footprint(FOOTPRINT_KIND[number], d, touches)
    check_units(c, core, unit, touches)
    count, writes = touches[0, COUNT], touches[0, WRITE_COUNT]
    for row in range(writes + 1, count + 1):
        read_row(c, core, touches, row)
    for row in range(1, count + 1):
        if unit < 2 and is_ram(c, touches, row):
            check_cores(c, core, touches, row, row <= writes)
            open_access(c, core, unit, job, touches, row, row <= writes)
        if row <= writes:
            visit_row(c, core, touches, row, True)


@jit
def own_access(c: Any, core: Any, what: Any, start: Any, nbytes: Any, writes: Any) -> None:
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
        check_cores(c, core, touches, 1, writes)
        open_access(c, core, SCALAR, do_scalar(c, core), touches, 1, writes)


@jit
def scalar(c: Any, core: Any, number: Any, address: Any) -> None:
    """A scalar load or store."""
    if CONTROL_BASE <= address < CONTROL_BASE + CONTROL_BYTES:
        word = (address - CONTROL_BASE) // 4
        if IS_WRITE[number]:
            learn(c.words[word], c.knows[core])
        else:
            learn(c.knows[core], c.words[word])
        return
    own_access(c, core, WORD, address, ACCESS_BYTES[number], IS_WRITE[number])


@jit
def synchronise(c: Any, core: Any, number: Any, first: Any, second: Any) -> None:
    """A wait, or cores that meet."""
    if number == OP.nmp_wait:
        if first < UNITS:
            knows_done(c, core, core, first, c.issued[core, first] - second)
    elif number == OP.nmp_barrier:
        ended = arrive(c, core, first, second)
        if ended < 0:
            begin_touches(c.row)
            touch(c.row, False, WORD, first, 1)
            report(c, BARRIER_COUNTS, c.row, 1, 0)
        elif ended > 0:
            forget_ordered(c)
    elif number == OP.nmp_post:
        post(c, core, first, second)
    elif number == OP.nmp_pend:
        pend(c, core, first, second)
    elif number == OP.nmp_halt:
        c.waits[core, 0] = HALTED


@jit
def begin_segment(c: Any) -> None:
    """The host starts all cores: what they knew at their end all of them know."""
    for core in range(1, c.waits.shape[0]):
        learn(c.knows[0], c.knows[core])
    for core in range(c.waits.shape[0]):
        c.waits[core, 0] = RUNNING
        if core > 0:
            learn(c.knows[core], c.knows[0])
    forget_ordered(c)


@jit
def host_access(c: Any, start: Any, nbytes: Any, writes: Any) -> None:
    """The host reads or writes a tensor while all cores have halted."""
    touches, depth = c.row, c.numbers[DEPTH]
    begin_touches(touches)
    touch(touches, writes, TENSOR, start, nbytes)
    if nbytes == 0 or not is_ram(c, touches, 1):
        return
    for core in range(c.waits.shape[0]):
        for unit in range(2):
            for job in range(c.knows[core, core, unit], c.issued[core, unit]):
                slot = job % depth
                check_pair(c, core, touches, c.touches[core, unit, slot], unit, slot)
    if is_found(c):
        c.found[FOUND_CASE] = HOST_ORDER
    missing = visit_row(c, 0, touches, 1, writes)
    if missing >= 0:
        report(c, HOST_READS_UNWRITTEN, touches, 1, 0)
        c.found[FOUND_START] = missing


@jit
def host_event(c: Any, number: Any, first: Any, second: Any) -> None:
    """What the host does."""
    for entry in (FOUND_NUMBER, FOUND_CORE, FOUND_PC, FOUND_LAYER, FOUND_CYCLE):
        c.found[entry] = NONE
    if number == HOST_STARTS:
        begin_segment(c)
    else:
        host_access(c, first, second, number == HOST_WRITES)


@jit
def core_event(c: Any, event: Any, words: Any, first_word: Any) -> None:
    """An instruction of a core."""
    number, core, pc = event[NUMBER], event[CORE], event[PC]
    kind = FOOTPRINT_KIND[number]
    is_tensor = kind >= 0
    c.found[FOUND_NUMBER], c.found[FOUND_CORE] = number, core
    c.found[FOUND_PC], c.found[FOUND_CYCLE] = pc, event[CYCLE]
    c.found[FOUND_LAYER] = words[event[ITEM], first_word] if is_tensor else NONE
    own_access(c, core, CODE, pc, 4, False)
    if is_tensor:
        own_access(c, core, DESCRIPTOR, event[DESCRIPTOR_AT], 4 * WORD_COUNT[number], False)
        tensor(c, core, number, pc, words[event[ITEM], first_word:])
    elif ACCESS_BYTES[number] > 0:
        scalar(c, core, number, event[FIRST])
    else:
        synchronise(c, core, number, event[FIRST], event[SECOND])


@jit_entry
def check_events(given: Any, events: Any, words: Any, first_word: Any) -> Any:
    """Check what cores and host do, int64 [n, Event]; True if it keeps to the contract.

    ``words`` has a row for each descriptor, whose words begin at column ``first_word``. It stops at
    the first violation, which is in ``found`` then.
    """
    c = struct_pointer(given)
    for i in range(events.shape[0]):
        event = events[i]
        c.numbers[WORK] = max(c.numbers[WORK] - WORK_PER_EVENT, 0)
        if event[NUMBER] < 0:
            host_event(c, event[NUMBER], event[FIRST], event[SECOND])
        else:
            core_event(c, event, words, first_word)
        if is_found(c):
            return False
    return True


def compile_check() -> None:
    """Compile the check, or read it from the cache."""
    nothing = np.zeros((0, EVENT_WORDS), np.int64)
    check_events(make_contract(1, 0, 0, 0, 1), nothing, nothing, 0)
