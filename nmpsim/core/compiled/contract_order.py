"""Ordering of accesses by vector clocks, and conflicts of unordered accesses to the same bytes.

Each core has a clock: how many jobs of every unit of every core it knows to be done. It advances by
waiting, and by barriers, semaphores and words of the control block (Mattern, *Virtual Time and
Global States of Distributed Systems*, 1989). An access is ordered after another one if its core
knows that the other one's job is done, or if both are for one unit of one core.

The posts from which a pend learns are known late: a post that comes after the pend in simulated
time, without knowing of it, could have come first. Such a rival reduces what the pend may learn;
the check then begins again with the rivals known from the start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_state import (
    BEFORE,
    BY_CORE,
    BY_JOB,
    BY_NUMBER,
    BY_UNIT,
    COMPARISONS,
    DEPTH,
    HAS_NEW_RIVAL,
    INDEX_SIZE,
    IS_INCOMPLETE,
    MAX_COMPARISONS,
    MAX_OPEN,
    MAX_POSTS,
    NUMBER,
    OPEN,
    ORIGIN_WORDS,
    SCALAR,
    UNITS,
    ContractState,
    ServedPend,
    is_in_ram,
    report_conflict,
)
from nmpsim.core.compiled.dram_conflicts import (
    READS,
    WRITES,
    add_range,
    conflicts_with_others,
    set_range,
)
from nmpsim.isa.contract import NUMBER_OF_CASE
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.memory.footprint import (
    COUNT,
    END,
    FIRST_AXIS,
    RUN,
    START,
    TOUCH_WORDS,
    count_runs,
    rows_overlap,
)
from nmpsim.memory.footprint import WRITES as WRITE_COUNT

RUNNING, AT_BARRIER, PENDING, HALTED = range(4)
LAST_SERVED = MAX_POSTS - 1
SERVED_CORE, SERVED_JOB, SERVED_TAKEN = map(int, ServedPend)


def merge_clock(clocks: Int64s, other: Int64s) -> None:
    """Set vector clock ``clocks`` to the elementwise maximum of itself and ``other``."""
    np.fmax(
        clocks, other, clocks
    )  # np.maximum must be told `out` by name, which Numba does not know


def record_completions(c: ContractState, core: Int, other: Int, agent: Int, done: Int) -> None:
    """Record in a core's clock that core ``other`` has completed ``done`` jobs of a unit."""
    c.clocks[core, other, agent] = max(c.clocks[core, other, agent], done)


def arrive_at_barrier(c: ContractState, core: Int, number: Int, count: Int) -> Any:
    """Record a core's arrival at a barrier; return 1 if complete, 0 if not, -1 if counts differ."""
    c.waits[core, 0], c.waits[core, 1], c.waits[core, 2] = AT_BARRIER, number, count
    arrived, differ = 0, False
    for other in range(c.waits.shape[0]):
        if c.waits[other, 0] == AT_BARRIER and c.waits[other, 1] == number:
            arrived += 1
            differ |= c.waits[other, 2] != count
    if differ:
        return -1
    if arrived < count:
        return 0
    for other in range(c.waits.shape[0]):
        if other != core and c.waits[other, 0] == AT_BARRIER and c.waits[other, 1] == number:
            merge_clock(c.clocks[core], c.clocks[other])
    for other in range(c.waits.shape[0]):
        if c.waits[other, 0] == AT_BARRIER and c.waits[other, 1] == number:
            c.waits[other, 0] = RUNNING
            if other != core:
                merge_clock(c.clocks[other], c.clocks[core])
    return 1


def post(c: ContractState, core: Int, semaphore: Int, count: Int) -> None:
    """Add ``count`` to a semaphore and release waiting cores, lower core numbers first."""
    record_competing_pends(c, core, semaphore, count)
    slot = c.post_count[semaphore] % MAX_POSTS
    c.post_count[semaphore] += 1
    c.posted[semaphore, core] += count
    c.posts[semaphore, slot, 0] = core
    c.posts[semaphore, slot, 1] = c.posted[semaphore, core]
    c.post_clocks[semaphore, slot, :, :] = 0
    merge_clock(c.post_clocks[semaphore, slot], c.clocks[core])
    c.semaphores[semaphore] += count
    for other in range(c.waits.shape[0]):
        is_pending = c.waits[other, 0] == PENDING and c.waits[other, 1] == semaphore
        if is_pending and c.semaphores[semaphore] >= c.waits[other, 2]:
            c.waits[other, 0] = RUNNING
            complete_pend(c, other, semaphore, c.waits[other, 2])


def pend(c: ContractState, core: Int, semaphore: Int, count: Int) -> None:
    """Subtract ``count`` from a semaphore, or set the core to waiting if the value is too low."""
    if c.semaphores[semaphore] >= count:
        complete_pend(c, core, semaphore, count)
    else:
        c.waits[core, 0], c.waits[core, 1], c.waits[core, 2] = PENDING, semaphore, count


def complete_pend(c: ContractState, core: Int, semaphore: Int, count: Int) -> None:
    """Complete a pend: subtract its count and merge the clocks of the posts that must precede it.

    Of a core the earliest posts count; needed is what all other cores together cannot have posted.
    """
    c.semaphores[semaphore] -= count
    c.taken[semaphore, core] += count
    number = c.served_count[semaphore]
    if number == LAST_SERVED:
        c.numbers[IS_INCOMPLETE] = 1
    else:
        c.served_count[semaphore] = number + 1
    for other in range(c.waits.shape[0]):
        c.served_posted[semaphore, number, other] = c.posted[semaphore, other]
    served = c.served[semaphore, number]
    served[SERVED_CORE], served[SERVED_TAKEN] = core, c.taken[semaphore, core]
    for other in range(c.waits.shape[0]):
        needed = count_needed_posts(c, semaphore, number, other, c.known_rivals)
        if needed <= 0:
            continue
        begin = max(c.post_count[semaphore] - MAX_POSTS, 0)
        if begin > 0:
            c.numbers[IS_INCOMPLETE] = 1
        for i in range(begin, c.post_count[semaphore]):
            slot = i % MAX_POSTS
            if c.posts[semaphore, slot, 0] == other and c.posts[semaphore, slot, 1] >= needed:
                merge_clock(c.clocks[core], c.post_clocks[semaphore, slot])
                break
    served[SERVED_JOB] = count_scalar_access(c, core)


def count_needed_posts(c: Any, semaphore: Any, number: Any, other: Any, rivals: Any) -> Any:
    """Return how much core ``other`` must post before pend ``number``; 0 or less if nothing."""
    needed = c.served[semaphore, number, SERVED_TAKEN]
    for one in range(c.waits.shape[0]):
        if one != other:
            needed -= c.served_posted[semaphore, number, one] + rivals[semaphore, number, one]
    return needed


def record_competing_pends(c: Any, core: Any, semaphore: Any, count: Any) -> None:
    """Record earlier pends that a post could have served; set a flag if the check must restart."""
    for number in range(c.served_count[semaphore]):
        served, rivals = c.served[semaphore, number], c.rivals[semaphore, number]
        taker = served[SERVED_CORE]
        if taker == core or is_ordered(c, core, taker, SCALAR, served[SERVED_JOB]):
            continue
        rivals[core] += count
        if rivals[core] <= c.known_rivals[semaphore, number, core]:
            continue
        for other in range(c.waits.shape[0]):
            needed = count_needed_posts(c, semaphore, number, other, c.known_rivals)
            if other != core and needed > 0:
                c.numbers[HAS_NEW_RIVAL] = 1


def is_ordered(c: ContractState, core: Int, other: Int, agent: Int, job: Int) -> Any:
    """Return whether a job of core ``other`` is ordered before the next instruction of ``core``."""
    return job < c.clocks[core, other, agent]


def count_scalar_access(c: ContractState, core: Int) -> Any:
    """Count a scalar access as a completed job of its core; return the job number."""
    job = c.issued[core, SCALAR]
    c.issued[core, SCALAR] = job + 1
    record_completions(c, core, core, SCALAR, job + 1)
    return job


# --- conflicts ------------------------------------------------------------------------------------

UNIT_ORDER = np.int64(NUMBER_OF_CASE["unit_order"])
CORE_ORDER = np.int64(NUMBER_OF_CASE["core_order"])
FAR = np.int64(1) << np.int64(62)


def record_origin(c: ContractState, touches: Int64s, unit: Int, job: Int) -> None:
    """Record the current instruction, its unit and its job number as a footprint's origin."""
    for i in range(ORIGIN_WORDS):
        touches[0, BY_NUMBER + i] = c.found[NUMBER + i]
    touches[0, BY_UNIT], touches[0, BY_JOB] = unit, job


def accesses_overlap(c: ContractState, a: Int64s, row: int, b: Int64s, other: int) -> Any:
    """Return whether two accesses share a byte, or False if the comparison limit is exceeded."""
    if a[row, START] >= b[other, END] or b[other, START] >= a[row, END]:
        return False
    if c.numbers[COMPARISONS] > MAX_COMPARISONS:
        c.numbers[IS_INCOMPLETE] = 1
        return False
    c.numbers[COMPARISONS] += min(count_runs(a, row), count_runs(b, other))
    return rows_overlap(a, row, b, other)


def check_footprints(c: ContractState, case: Int, touches: Int64s, others: Int64s) -> None:
    """Report a conflict if accesses in two footprints overlap and one of the accesses writes."""
    for row in range(1, touches[0, COUNT] + 1):
        writes = row <= touches[0, WRITE_COUNT]
        last = others[0, COUNT] if writes else others[0, WRITE_COUNT]
        for other in range(1, last + 1):
            if accesses_overlap(c, touches, row, others, other):
                report_conflict(c, case, touches, row, others, other)


# --- units of a core ------------------------------------------------------------------------------


def check_unit(c: ContractState, case: Int, core: Int, unit: Int, touches: Int64s) -> None:
    """Report a violation if accesses conflict with possibly unfinished jobs of a unit."""
    for job in range(c.clocks[core, core, unit], c.issued[core, unit]):
        check_footprints(c, case, touches, c.touches[core, unit, job % c.numbers[DEPTH]])


def check_units(c: ContractState, core: Int, unit: Int, touches: Int64s) -> None:
    """Report a violation if accesses conflict with unfinished jobs of the core's other units."""
    for other in range(UNITS):
        if other != unit:
            check_unit(c, UNIT_ORDER, core, other, touches)


# --- cores ----------------------------------------------------------------------------------------


def compute_range(c: ContractState, touches: Int64s, row: Int) -> None:
    """Compute the DRAM range of an access, and store the range in ``c.accessed``."""
    n0, s0 = touches[row, FIRST_AXIS], touches[row, FIRST_AXIS + 1]
    n1, s1 = touches[row, FIRST_AXIS + 2], touches[row, FIRST_AXIS + 3]
    stride = s0 if n1 == 1 else s1
    if n0 == 1 or (n1 > 1 and stride > 0 and s0 % stride != 0):
        stride = np.int64(0)
    set_range(c.accessed, touches[row, START], touches[row, END], stride, touches[row, RUN])


def check_dram_accesses(c: ContractState, core: Int, touches: Int64s) -> None:
    """Check DRAM accesses for conflicts with other cores, and store them for later checks."""
    for row in range(1, touches[0, COUNT] + 1):
        if is_in_ram(c, touches, row):
            check_other_cores(c, core, touches, row)
            store_access(c, core, touches, row)


def check_other_cores(c: ContractState, core: Int, touches: Int64s, row: Int) -> None:
    """Report a violation if a DRAM access conflicts with an unordered access of another core."""
    start, end = touches[row, START], touches[row, END]
    writes = row <= touches[0, WRITE_COUNT]
    near = start < c.hull[WRITES, 1] and c.hull[WRITES, 0] < end
    if writes:
        near |= start < c.hull[READS, 1] and c.hull[READS, 0] < end
    compute_range(c, touches, row)
    if not near or not conflicts_with_others(
        c.ranges, core, c.accessed, WRITES if writes else READS
    ):
        return
    if c.numbers[COMPARISONS] > MAX_COMPARISONS:
        c.numbers[IS_INCOMPLETE] = 1
        return
    c.numbers[COMPARISONS] += c.numbers[OPEN]
    for i in range(c.numbers[OPEN]):
        one = c.open_accesses[i]
        if one[0, BY_CORE] == core or not (writes or one[0, WRITE_COUNT]):
            continue
        if one[1, START] >= end or start >= one[1, END]:
            continue
        if not is_ordered(c, core, one[0, BY_CORE], one[0, BY_UNIT], one[0, BY_JOB]):
            check_footprints(c, CORE_ORDER, touches, one)


def extend_ranges(c: ContractState, core: Int, kind: Int, touches: Int64s, row: Int) -> None:
    """Extend a core's ranges of DRAM reads or writes to include an access."""
    compute_range(c, touches, row)
    add_range(c.ranges[core, kind], c.accessed)
    c.hull[kind, 0] = min(c.hull[kind, 0], touches[row, START])
    c.hull[kind, 1] = max(c.hull[kind, 1], touches[row, END])


def store_access(c: ContractState, core: Int, touches: Int64s, row: Int) -> None:
    """Store a DRAM access for comparison with later accesses."""
    writes = 1 if row <= touches[0, WRITE_COUNT] else 0
    if touches[0, BY_UNIT] == SCALAR and update_repeated_access(c, core, touches, row, writes):
        return
    if c.numbers[OPEN] == MAX_OPEN:
        remove_ordered_accesses(c)
        if c.numbers[OPEN] > MAX_OPEN // 2:  # the check must end, however long cores do not meet
            c.numbers[IS_INCOMPLETE] = 1
            clear_index(c)
            c.numbers[OPEN] = 0
    extend_ranges(c, core, WRITES if writes else READS, touches, row)
    last = c.numbers[OPEN]
    one = c.open_accesses[last]
    c.numbers[OPEN] += 1
    for i in range(TOUCH_WORDS):
        one[0, i], one[1, i] = touches[0, i], touches[row, i]
    one[0, COUNT], one[0, WRITE_COUNT] = 1, writes
    index_access(c, last)


def update_repeated_access(
    c: ContractState, core: Int, touches: Int64s, row: Int, writes: Int
) -> Any:
    """Update the job number of a stored equal scalar access; return False if no access is equal."""
    found = c.access_index[compute_index_slot(core, touches[row, START], writes)] - 1
    while found >= 0 and not is_same_access(c.open_accesses[found], core, touches, row, writes):
        found = c.open_accesses[found, 0, BEFORE] - 1
    if found < 0:
        return False
    c.open_accesses[found, 0, BY_JOB] = touches[0, BY_JOB]
    return True


def compute_index_slot(core: Int, start: Int, writes: Int) -> Any:
    """Compute the slot of a scalar access in ``ContractState.access_index``."""
    return ((start * 2 + writes + core * 8191) * 40503 >> 6) % INDEX_SIZE


def index_access(c: ContractState, row: Int) -> None:
    """Add stored access ``row`` to the index if it is a scalar access."""
    one = c.open_accesses[row]
    if one[0, BY_UNIT] == SCALAR:
        place = compute_index_slot(one[0, BY_CORE], one[1, START], one[0, WRITE_COUNT])
        one[0, BEFORE] = c.access_index[place]
        c.access_index[place] = row + 1


def clear_index(c: ContractState) -> None:
    """Remove all accesses from the index."""
    for row in range(c.numbers[OPEN]):
        one = c.open_accesses[row]
        if one[0, BY_UNIT] == SCALAR:
            c.access_index[
                compute_index_slot(one[0, BY_CORE], one[1, START], one[0, WRITE_COUNT])
            ] = 0


def is_same_access(one: Int64s, core: Int, touches: Int64s, row: Int, writes: Int) -> Any:
    """Return whether a stored scalar access has the same core, kind and bytes as another."""
    return (
        one[0, BY_CORE] == core
        and one[0, BY_UNIT] == SCALAR
        and one[1, START] == touches[row, START]
        and one[1, END] == touches[row, END]
        and one[0, WRITE_COUNT] == writes
    )


def compute_common_clock(c: ContractState) -> None:
    """Set ``c.common_clock`` to the elementwise minimum of the clocks of all unhalted cores."""
    c.common_clock[:, :] = FAR
    for core in range(c.waits.shape[0]):
        if c.waits[core, 0] != HALTED:
            np.fmin(c.common_clock, c.clocks[core], c.common_clock)


def remove_ordered_accesses(c: ContractState) -> None:
    """Remove stored accesses that are ordered before all later accesses."""
    compute_common_clock(c)
    clear_index(c)
    c.ranges[:, :, :, :] = 0
    c.hull[:, 0] = FAR
    c.hull[:, 1] = 0
    kept = 0
    for i in range(c.numbers[OPEN]):
        one, to = c.open_accesses[i], c.open_accesses[kept]
        core = one[0, BY_CORE]
        if one[0, BY_JOB] < c.common_clock[core, one[0, BY_UNIT]]:
            continue
        for word in range(TOUCH_WORDS):
            to[0, word], to[1, word] = one[0, word], one[1, word]
        index_access(c, kept)
        kept += 1
        extend_ranges(c, core, WRITES if to[0, WRITE_COUNT] else READS, to, 1)
    c.numbers[OPEN] = kept
