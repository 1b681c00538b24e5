"""Detection of two unordered accesses to the same bytes, one of which writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_memory import is_ram
from nmpsim.core.compiled.contract_order import HALTED, is_ordered
from nmpsim.core.compiled.contract_state import (
    BEFORE,
    BY_CORE,
    BY_JOB,
    BY_LAYER,
    BY_NUMBER,
    BY_PC,
    BY_UNIT,
    COMPARISONS,
    CORE,
    DEPTH,
    INDEX_SIZE,
    IS_INCOMPLETE,
    LAYER,
    MAX_COMPARISONS,
    MAX_OPEN,
    NUMBER,
    OPEN,
    PC,
    SCALAR,
    UNITS,
    ContractState,
    report_conflict,
)
from nmpsim.core.compiled.dram_conflicts import (
    FROM,
    RANGE_BEGIN,
    RANGE_END,
    READS,
    STRIDE,
    TO,
    WRITES,
    conflicts_with_others,
    keep_range,
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

UNIT_ORDER = np.int64(NUMBER_OF_CASE["unit_order"])
CORE_ORDER = np.int64(NUMBER_OF_CASE["core_order"])
FAR = np.int64(1) << np.int64(62)


def record_origin(c: ContractState, touches: Int64s, unit: Int, job: Int) -> None:
    """Record which instruction has made these accesses."""
    touches[0, BY_NUMBER], touches[0, BY_CORE] = c.found[NUMBER], c.found[CORE]
    touches[0, BY_PC], touches[0, BY_LAYER] = c.found[PC], c.found[LAYER]
    touches[0, BY_UNIT], touches[0, BY_JOB] = unit, job


def accesses_overlap(c: ContractState, a: Int64s, row: int, b: Int64s, other: int) -> Any:
    """Return whether two accesses overlap; gives up beyond MAX_COMPARISONS."""
    if a[row, START] >= b[other, END] or b[other, START] >= a[row, END]:
        return False
    if c.numbers[COMPARISONS] > MAX_COMPARISONS:
        c.numbers[IS_INCOMPLETE] = 1
        return False
    c.numbers[COMPARISONS] += min(count_runs(a, row), count_runs(b, other))
    return rows_overlap(a, row, b, other)


def check_pair(c: ContractState, case: Int, touches: Int64s, others: Int64s) -> None:
    """Compare the accesses of two instructions of which one writes."""
    for row in range(1, touches[0, COUNT] + 1):
        writes = row <= touches[0, WRITE_COUNT]
        last = others[0, COUNT] if writes else others[0, WRITE_COUNT]
        for other in range(1, last + 1):
            if accesses_overlap(c, touches, row, others, other):
                report_conflict(c, case, touches, row, others, other)


# --- units of a core ------------------------------------------------------------------------------


def check_unit(c: ContractState, case: Int, core: Int, unit: Int, touches: Int64s) -> None:
    """Compare with the jobs of a unit that its core does not know to be done."""
    for job in range(c.clocks[core, core, unit], c.issued[core, unit]):
        check_pair(c, case, touches, c.touches[core, unit, job % c.numbers[DEPTH]])


def check_units(c: ContractState, core: Int, unit: Int, touches: Int64s) -> None:
    """Compare with unfinished jobs of the core's other units; ``unit`` -1 is the core itself."""
    for other in range(UNITS):
        if other != unit:
            check_unit(c, UNIT_ORDER, core, other, touches)


# --- cores ----------------------------------------------------------------------------------------


def compute_range(c: ContractState, touches: Int64s, row: Int) -> None:
    """Compute the DRAM range of an access; see :mod:`~nmpsim.core.compiled.dram_conflicts`."""
    start, run, accessed = touches[row, START], touches[row, RUN], c.accessed
    accessed[RANGE_BEGIN], accessed[RANGE_END] = start, touches[row, END]
    accessed[STRIDE], accessed[FROM], accessed[TO] = 0, 0, 0
    n0, s0 = touches[row, FIRST_AXIS], touches[row, FIRST_AXIS + 1]
    n1, s1 = touches[row, FIRST_AXIS + 2], touches[row, FIRST_AXIS + 3]
    stride = s0 if n1 == 1 else s1
    if n0 == 1 or stride == 0 or (n1 > 1 and s0 % stride != 0):
        return
    if start % stride + run <= stride:
        accessed[STRIDE], accessed[FROM], accessed[TO] = (
            stride,
            start % stride,
            start % stride + run,
        )


def check_dram_accesses(c: ContractState, core: Int, touches: Int64s) -> None:
    """Compare DRAM accesses with those of other cores, and keep them for later ones."""
    for row in range(1, touches[0, COUNT] + 1):
        if is_ram(c, touches, row):
            check_other_cores(c, core, touches, row)
            keep_access(c, core, touches, row)


def check_other_cores(c: ContractState, core: Int, touches: Int64s, row: Int) -> None:
    """Compare a DRAM access with those of other cores that it is not ordered after."""
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
            check_pair(c, CORE_ORDER, touches, one)


def extend_ranges(c: ContractState, core: Int, kind: Int, touches: Int64s, row: Int) -> None:
    """Extend the DRAM ranges of a core by an access."""
    compute_range(c, touches, row)
    keep_range(c.ranges[core, kind], c.accessed)
    c.hull[kind, 0] = min(c.hull[kind, 0], touches[row, START])
    c.hull[kind, 1] = max(c.hull[kind, 1], touches[row, END])


def keep_access(c: ContractState, core: Int, touches: Int64s, row: Int) -> None:
    """Keep a DRAM access for comparison with later ones."""
    writes = 1 if row <= touches[0, WRITE_COUNT] else 0
    if touches[0, BY_UNIT] == SCALAR and is_repeated(c, core, touches, row, writes):
        return
    if c.numbers[OPEN] == MAX_OPEN:
        drop_ordered(c)
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


def is_repeated(c: ContractState, core: Int, touches: Int64s, row: Int, writes: Int) -> Any:
    """Return whether a scalar access repeats a kept one, whose job number is then updated."""
    found = c.access_index[find_index_slot(core, touches[row, START], writes)] - 1
    while found >= 0 and not is_same_access(c.open_accesses[found], core, touches, row, writes):
        found = c.open_accesses[found, 0, BEFORE] - 1
    if found < 0:
        return False
    c.open_accesses[found, 0, BY_JOB] = touches[0, BY_JOB]
    return True


def find_index_slot(core: Int, start: Int, writes: Int) -> Any:
    """Return the slot of an access in ``ContractState.access_index``."""
    return ((start * 2 + writes + core * 8191) * 40503 >> 6) % INDEX_SIZE


def index_access(c: ContractState, row: Int) -> None:
    """Add a kept scalar access to the index."""
    one = c.open_accesses[row]
    if one[0, BY_UNIT] == SCALAR:
        place = find_index_slot(one[0, BY_CORE], one[1, START], one[0, WRITE_COUNT])
        one[0, BEFORE] = c.access_index[place]
        c.access_index[place] = row + 1


def clear_index(c: ContractState) -> None:
    """Remove all kept accesses from the index."""
    for row in range(c.numbers[OPEN]):
        one = c.open_accesses[row]
        if one[0, BY_UNIT] == SCALAR:
            c.access_index[find_index_slot(one[0, BY_CORE], one[1, START], one[0, WRITE_COUNT])] = 0


def is_same_access(one: Int64s, core: Int, touches: Int64s, row: Int, writes: Int) -> Any:
    """Return whether a kept scalar access is to the same bytes, of the same kind and core."""
    return (
        one[0, BY_CORE] == core
        and one[0, BY_UNIT] == SCALAR
        and one[1, START] == touches[row, START]
        and one[1, END] == touches[row, END]
        and one[0, WRITE_COUNT] == writes
    )


def compute_common_clock(c: ContractState) -> None:
    """Compute into ``common_clock`` the jobs that every running core knows to be done."""
    c.common_clock[:, :] = FAR
    for core in range(c.waits.shape[0]):
        if c.waits[core, 0] != HALTED:
            np.fmin(c.common_clock, c.clocks[core], c.common_clock)


def drop_ordered(c: ContractState) -> None:
    """Drop accesses that every running core is ordered after."""
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
