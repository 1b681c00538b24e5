"""Two accesses to the same bytes, one of them a write, that nothing orders."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_found import CORE, LAYER, NUMBER, PC, report_pair
from nmpsim.core.compiled.contract_memory import is_ram
from nmpsim.core.compiled.contract_order import HALTED, is_ordered
from nmpsim.core.compiled.contract_state import (
    MAX_OPEN,
    MAX_WORK,
    PLACES,
    SCALAR,
    UNITS,
    AccessOrigin,
    Contract,
    Limit,
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
    rows_overlap,
    runs_of,
)
from nmpsim.memory.footprint import WRITES as WRITE_COUNT

DEPTH, OPEN = int(Limit.DEPTH), int(Limit.OPEN)
WORK, IS_UNSURE = int(Limit.WORK), int(Limit.IS_UNSURE)
BY_NUMBER, BY_CORE, BY_PC, BY_LAYER, BY_UNIT, BY_JOB, BEFORE = map(int, AccessOrigin)
UNIT_ORDER = np.int64(NUMBER_OF_CASE["unit_order"])
CORE_ORDER = np.int64(NUMBER_OF_CASE["core_order"])
FAR = np.int64(1) << np.int64(62)


def sign(c: Contract, touches: Int64s, unit: Int, job: Int) -> None:
    """Note that the instruction that is checked has made these touches."""
    touches[0, BY_NUMBER], touches[0, BY_CORE] = c.found[NUMBER], c.found[CORE]
    touches[0, BY_PC], touches[0, BY_LAYER] = c.found[PC], c.found[LAYER]
    touches[0, BY_UNIT], touches[0, BY_JOB] = unit, job


def meet(c: Contract, a: Int64s, row: int, b: Int64s, other: int) -> Any:
    """Do two touches share a byte? Counts the work, and gives up after very much of it."""
    if a[row, START] >= b[other, END] or b[other, START] >= a[row, END]:
        return False
    if c.numbers[WORK] > MAX_WORK:
        c.numbers[IS_UNSURE] = 1
        return False
    c.numbers[WORK] += min(runs_of(a, row), runs_of(b, other))
    return rows_overlap(a, row, b, other)


def check_pair(c: Contract, case: Int, touches: Int64s, others: Int64s) -> None:
    """Compare the touches of two instructions of which one writes."""
    for row in range(1, touches[0, COUNT] + 1):
        writes = row <= touches[0, WRITE_COUNT]
        last = others[0, COUNT] if writes else others[0, WRITE_COUNT]
        for other in range(1, last + 1):
            if meet(c, touches, row, others, other):
                report_pair(c, case, touches, row, others, other)


# --- units of a core ------------------------------------------------------------------------------


def check_unit(c: Contract, case: Int, core: Int, unit: Int, touches: Int64s) -> None:
    """Compare with what a unit may still be doing as far as its core knows."""
    for job in range(c.knows[core, core, unit], c.issued[core, unit]):
        check_pair(c, case, touches, c.touches[core, unit, job % c.numbers[DEPTH]])


def check_units(c: Contract, core: Int, unit: Int, touches: Int64s) -> None:
    """Compare with what the core's other units may still be doing; ``unit`` -1 is the core."""
    for other in range(UNITS):
        if other != unit:
            check_unit(c, UNIT_ORDER, core, other, touches)


# --- cores ----------------------------------------------------------------------------------------


def put_row_range(c: Contract, touches: Int64s, row: Int) -> None:
    """The range of a touch in DRAM, roughly; see :mod:`~nmpsim.core.compiled.dram_conflicts`."""
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


def check_ram(c: Contract, core: Int, touches: Int64s) -> None:
    """Compare what is touched in DRAM with other cores' accesses, and keep it for later ones."""
    for row in range(1, touches[0, COUNT] + 1):
        if is_ram(c, touches, row):
            check_cores(c, core, touches, row)
            open_access(c, core, touches, row)


def check_cores(c: Contract, core: Int, touches: Int64s, row: Int) -> None:
    """Compare an access to DRAM with those of other cores that it is not ordered after."""
    start, end = touches[row, START], touches[row, END]
    writes = row <= touches[0, WRITE_COUNT]
    near = start < c.hull[WRITES, 1] and c.hull[WRITES, 0] < end
    if writes:
        near |= start < c.hull[READS, 1] and c.hull[READS, 0] < end
    put_row_range(c, touches, row)
    if not near or not conflicts_with_others(
        c.ranges, core, c.accessed, WRITES if writes else READS
    ):
        return
    if c.numbers[WORK] > MAX_WORK:
        c.numbers[IS_UNSURE] = 1
        return
    c.numbers[WORK] += c.numbers[OPEN]
    for i in range(c.numbers[OPEN]):
        one = c.opened[i]
        if one[0, BY_CORE] == core or not (writes or one[0, WRITE_COUNT]):
            continue
        if one[1, START] >= end or start >= one[1, END]:
            continue
        if not is_ordered(c, core, one[0, BY_CORE], one[0, BY_UNIT], one[0, BY_JOB]):
            check_pair(c, CORE_ORDER, touches, one)


def keep_near(c: Contract, core: Int, kind: Int, touches: Int64s, row: Int) -> None:
    """Keep where an access lies, roughly."""
    put_row_range(c, touches, row)
    keep_range(c.ranges[core, kind], c.accessed)
    c.hull[kind, 0] = min(c.hull[kind, 0], touches[row, START])
    c.hull[kind, 1] = max(c.hull[kind, 1], touches[row, END])


def open_access(c: Contract, core: Int, touches: Int64s, row: Int) -> None:
    """Keep an access to DRAM for those that come later."""
    writes = 1 if row <= touches[0, WRITE_COUNT] else 0
    if touches[0, BY_UNIT] == SCALAR and is_again(c, core, touches, row, writes):
        return
    if c.numbers[OPEN] == MAX_OPEN:
        forget_ordered(c)
        if c.numbers[OPEN] > MAX_OPEN // 2:  # the check must end, however long cores do not meet
            c.numbers[IS_UNSURE] = 1
            unlink_all(c)
            c.numbers[OPEN] = 0
    keep_near(c, core, WRITES if writes else READS, touches, row)
    last = c.numbers[OPEN]
    one = c.opened[last]
    c.numbers[OPEN] += 1
    for i in range(TOUCH_WORDS):
        one[0, i], one[1, i] = touches[0, i], touches[row, i]
    one[0, COUNT], one[0, WRITE_COUNT] = 1, writes
    link(c, last)


def is_again(c: Contract, core: Int, touches: Int64s, row: Int, writes: Int) -> Any:
    """A loop that reads or writes a word again and again counts with its last time."""
    found = c.places[place_of(core, touches[row, START], writes)] - 1
    while found >= 0 and not is_same(c.opened[found], core, touches, row, writes):
        found = c.opened[found, 0, BEFORE] - 1
    if found < 0:
        return False
    c.opened[found, 0, BY_JOB] = touches[0, BY_JOB]
    return True


def place_of(core: Int, start: Int, writes: Int) -> Any:
    """Entry of ``Contract.places``: neighbours, cores and kinds of access are far apart."""
    return ((start * 2 + writes + core * 8191) * 40503 >> 6) % PLACES


def link(c: Contract, row: Int) -> None:
    """An access that is kept can be found."""
    one = c.opened[row]
    if one[0, BY_UNIT] == SCALAR:
        place = place_of(one[0, BY_CORE], one[1, START], one[0, WRITE_COUNT])
        one[0, BEFORE] = c.places[place]
        c.places[place] = row + 1


def unlink_all(c: Contract) -> None:
    """None of those that are kept can be found."""
    for row in range(c.numbers[OPEN]):
        one = c.opened[row]
        if one[0, BY_UNIT] == SCALAR:
            c.places[place_of(one[0, BY_CORE], one[1, START], one[0, WRITE_COUNT])] = 0


def is_same(one: Int64s, core: Int, touches: Int64s, row: Int, writes: Int) -> Any:
    """Was an access that is kept made by a core itself, to the same bytes in the same way?"""
    return (
        one[0, BY_CORE] == core
        and one[0, BY_UNIT] == SCALAR
        and one[1, START] == touches[row, START]
        and one[1, END] == touches[row, END]
        and one[0, WRITE_COUNT] == writes
    )


def known_to_all(c: Contract) -> None:
    """Put into ``least`` what every core that runs knows to be done."""
    c.least[:, :] = FAR
    for core in range(c.waits.shape[0]):
        if c.waits[core, 0] != HALTED:
            np.fmin(c.least, c.knows[core], c.least)


def forget_ordered(c: Contract) -> None:
    """Drop the accesses that every core that runs is ordered after."""
    known_to_all(c)
    unlink_all(c)
    c.ranges[:, :, :, :] = 0
    c.hull[:, 0] = FAR
    c.hull[:, 1] = 0
    kept = 0
    for i in range(c.numbers[OPEN]):
        one, to = c.opened[i], c.opened[kept]
        core = one[0, BY_CORE]
        if one[0, BY_JOB] < c.least[core, one[0, BY_UNIT]]:
            continue
        for word in range(TOUCH_WORDS):
            to[0, word], to[1, word] = one[0, word], one[1, word]
        link(c, kept)
        kept += 1
        keep_near(c, core, WRITES if to[0, WRITE_COUNT] else READS, to, 1)
    c.numbers[OPEN] = kept
