"""State of the contract check, in flat arrays: written bytes, kept accesses, the first violation.

Written bytes stay written. In addition to a flag for each byte there is a list of ranges that are
written throughout, which soon answers most queries.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.dram_conflicts import KINDS, RANGE_WORDS, RANGES
from nmpsim.core.contract_events import ViolationField
from nmpsim.core.state import MAX_QUEUED
from nmpsim.isa.contract import NUMBER_OF_CASE
from nmpsim.isa.table import CONTROL_BYTES, SCRATCHPAD_BASE, SEMAPHORES, Unit
from nmpsim.kernels.array_types import Bytes, Int, Int64s
from nmpsim.memory.footprint import (
    CODE,
    DESCRIPTOR,
    END,
    MAX_TOUCHES,
    RUN,
    START,
    TOUCH_WORDS,
    WHAT,
    WORD,
    count_runs,
    get_run_start,
)
from nmpsim.memory.footprint import WRITES as WRITE_COUNT

UNITS = len(Unit)
SCALAR = UNITS
"""Index after the units: the core itself, whose accesses are done at once."""
AGENTS = UNITS + 1
MAX_RANGES = 16
"""Number of fully written ranges that are kept for a memory."""
MAX_OPEN = 1 << 18
"""Number of kept DRAM accesses that not every core is ordered after."""
INDEX_SIZE = 1 << 16
"""Entries of ``ContractState.access_index``."""
MAX_POSTS = 64
"""Number of kept posts of a semaphore, and of its served pends."""
MAX_COMPARISONS = 1 << 28
COMPARISONS_PER_EVENT = 1 << 11
"""Maximum number of compared runs and accesses: in all, and in addition for each event."""


class StateWord(IntEnum):
    """Indices of ``ContractState.numbers``: memory bounds, queue depth and status of the check."""

    SCRATCHPAD_BYTES = 0
    RAM_BASE = 1
    RAM_END = 2
    DEPTH = 3
    """Depth of the units' queues."""
    OPEN = 4
    """Number of kept DRAM accesses."""
    COMPARISONS = 5
    """Comparisons so far, beyond what each event may use."""
    IS_INCOMPLETE = 6
    """1 if not everything could be checked."""
    HAS_NEW_RIVAL = 7
    """1 if a post could have served an earlier pend and is not a known rival."""


(
    SCRATCHPAD_BYTES,
    RAM_BASE,
    RAM_END,
    DEPTH,
    OPEN,
    COMPARISONS,
    IS_INCOMPLETE,
    HAS_NEW_RIVAL,
) = map(int, StateWord)


class ServedPend(IntEnum):
    """Columns of ``ContractState.served``: core, job number and taken count of each served pend."""

    CORE = 0
    JOB = 1
    """Job number of the pend."""
    TAKEN = 2
    """Amount that the core has taken from this semaphore, including this time."""


class AccessOrigin(IntEnum):
    """Entries of a footprint's row 0 that identify the instruction that made the accesses."""

    NUMBER = 3
    CORE = 4
    PC = 5
    LAYER = 6
    UNIT = 7
    JOB = 8
    BEFORE = 9
    """Next row of the index slot of a kept access, plus 1; 0 if there is none."""


BY_NUMBER, BY_CORE, _BY_PC, _BY_LAYER, BY_UNIT, BY_JOB, BEFORE = map(int, AccessOrigin)


class ContractState(NamedTuple):
    """State of the contract check: written bytes, stored accesses, clocks and the violation."""

    numbers: Int64s
    """[StateWord]"""
    found: Int64s
    """[ViolationField]"""
    scratchpad: Bytes
    """[cores, bytes] 1 for written bytes."""
    ram: Bytes
    """[bytes] 1 for written bytes of the writable DRAM."""
    written_ranges: Int64s
    """[cores + 1, MAX_RANGES, 2] fully written ranges; the last row is the DRAM's."""
    issued: Int64s
    """[cores, AGENTS] number of jobs so far."""
    clocks: Int64s
    """[cores, cores, AGENTS] number of jobs that each core knows to be done."""
    touches: Int64s
    """[cores, units, MAX_QUEUED, MAX_TOUCHES, TOUCH_WORDS] footprints of the last jobs."""
    open_accesses: Int64s
    """[MAX_OPEN, 2, TOUCH_WORDS] kept DRAM accesses, as footprints with one row."""
    access_index: Int64s
    """[INDEX_SIZE] hash index of scalar accesses: 1 + last row of ``open_accesses``, or 0."""
    ranges: Int64s
    """[cores, KINDS, RANGES, RANGE_WORDS] approximate ranges of the kept accesses."""
    accessed: Int64s
    """[RANGE_WORDS] temporary memory."""
    row: Int64s
    """[MAX_TOUCHES, TOUCH_WORDS] temporary memory."""
    common_clock: Int64s
    """[cores, AGENTS] jobs that every running core knows to be done; temporary."""
    hull: Int64s
    """[KINDS, 2] bounds of the kept accesses of each kind."""
    waits: Int64s
    """[cores, 3] 0 running, 1 at a barrier, 2 pending, 3 halted; number and count."""
    semaphores: Int64s
    """[semaphores] values."""
    posted: Int64s
    """[semaphores, cores] amount that each core has posted."""
    taken: Int64s
    """[semaphores, cores] amount that each core has taken."""
    posts: Int64s
    """[semaphores, MAX_POSTS, 2] core, and its ``posted`` after the post; a ring buffer."""
    post_count: Int64s
    """[semaphores] number of posts."""
    post_clocks: Int64s
    """[semaphores, MAX_POSTS, cores, AGENTS] clock of the core at each post."""
    served: Int64s
    """[semaphores, MAX_POSTS, Served] the first served pends, and the last one."""
    served_count: Int64s
    """[semaphores] number of served pends."""
    served_posted: Int64s
    """[semaphores, MAX_POSTS, cores] ``posted`` when the pend was served."""
    rivals: Int64s
    """[semaphores, MAX_POSTS, cores] amount posted later that could have come first."""
    known_rivals: Int64s
    """[semaphores, MAX_POSTS, cores] the rivals that are known from the start."""
    words: Int64s
    """[control block's words, cores, AGENTS] clocks of those who wrote each word."""


def copy_state(contract: ContractState) -> ContractState:
    """Return a copy of a contract state."""
    open_accesses, used = (
        np.zeros_like(contract.open_accesses),
        int(contract.numbers[StateWord.OPEN]),
    )
    open_accesses[:used] = contract.open_accesses[:used]
    rest = contract._replace(open_accesses=open_accesses[:0])
    return ContractState._make(part.copy() for part in rest)._replace(open_accesses=open_accesses)


def restore_state(contract: ContractState, saved: ContractState) -> None:
    """Restore a contract state from a copy, without allocating arrays."""
    used = int(saved.numbers[StateWord.OPEN])
    contract.open_accesses[:used] = saved.open_accesses[:used]
    for name in ContractState._fields:
        if name != "open_accesses":
            getattr(contract, name)[...] = getattr(saved, name)


def make_contract_state(
    cores: int, scratchpad_bytes: int, ram_base: int, ram_bytes: int, depth: int
) -> ContractState:
    """Return the contract state before a run; ``depth`` is the queue depth of the units."""
    numbers = np.zeros(len(StateWord), np.int64)
    numbers[StateWord.SCRATCHPAD_BYTES] = scratchpad_bytes
    numbers[StateWord.RAM_BASE] = ram_base
    numbers[StateWord.RAM_END] = ram_base + ram_bytes
    numbers[StateWord.DEPTH] = depth

    def zeros(*shape: int) -> Any:
        return np.zeros(shape, np.int64)

    return ContractState(
        numbers,
        np.full(len(ViolationField), -1, np.int64),
        np.zeros((cores, scratchpad_bytes), np.uint8),
        np.zeros(ram_bytes, np.uint8),
        zeros(cores + 1, MAX_RANGES, 2),
        zeros(cores, AGENTS),
        zeros(cores, cores, AGENTS),
        zeros(cores, UNITS, MAX_QUEUED, MAX_TOUCHES, TOUCH_WORDS),
        zeros(MAX_OPEN, 2, TOUCH_WORDS),
        zeros(INDEX_SIZE),
        zeros(cores, KINDS, RANGES, RANGE_WORDS),
        zeros(RANGE_WORDS),
        zeros(MAX_TOUCHES, TOUCH_WORDS),
        zeros(cores, AGENTS),
        zeros(KINDS, 2),
        zeros(cores, 3),
        zeros(SEMAPHORES),
        zeros(SEMAPHORES, cores),
        zeros(SEMAPHORES, cores),
        zeros(SEMAPHORES, MAX_POSTS, 2),
        zeros(SEMAPHORES),
        zeros(SEMAPHORES, MAX_POSTS, cores, AGENTS),
        zeros(SEMAPHORES, MAX_POSTS, len(ServedPend)),
        zeros(SEMAPHORES),
        zeros(SEMAPHORES, MAX_POSTS, cores),
        zeros(SEMAPHORES, MAX_POSTS, cores),
        zeros(SEMAPHORES, MAX_POSTS, cores),
        zeros(CONTROL_BYTES // 4, cores, AGENTS),
    )


# --- the first violation -------------------------------------------------------------------------

(
    CASE,
    NUMBER,
    CORE,
    PC,
    LAYER,
    FOUND_OPERAND,
    FOUND_WRITES,
    FOUND_START,
    FOUND_END,
    OTHER_NUMBER,
    _OTHER_CORE,
    _OTHER_PC,
    _OTHER_LAYER,
    _OTHER_UNIT,
    OTHER_JOB,
    OTHER_OPERAND,
    OTHER_WRITES,
    CYCLE,
) = map(int, ViolationField)
ORIGIN_WORDS = 4
"""Entries of an origin that the current instruction has, too: instruction, core, pc and layer."""
FETCH_ORDER = np.int64(NUMBER_OF_CASE["fetch_order"])


def has_violation(c: ContractState) -> Any:
    """Return whether a violation was found."""
    return c.found[CASE] >= 0


def report_violation(c: ContractState, case: Int, touches: Int64s, row: Int) -> None:
    """Report a violation by the current instruction, unless a violation is already recorded."""
    if has_violation(c):
        return
    c.found[CASE] = case
    c.found[FOUND_OPERAND] = touches[row, WHAT]
    c.found[FOUND_WRITES] = 1 if row <= touches[0, WRITE_COUNT] else 0
    c.found[FOUND_START] = touches[row, START]
    c.found[FOUND_END] = touches[row, END]


def report_conflict(
    c: ContractState, case: Int, touches: Int64s, row: Int, others: Int64s, other: Int
) -> None:
    """Report a conflict with an earlier instruction, unless a violation is already recorded."""
    if has_violation(c):
        return
    what = touches[row, WHAT]
    report_violation(c, FETCH_ORDER if what in (DESCRIPTOR, CODE) else case, touches, row)
    c.found[FOUND_START] = max(touches[row, START], others[other, START])
    c.found[FOUND_END] = min(touches[row, END], others[other, END])
    for i in range(OTHER_JOB + 1 - OTHER_NUMBER):
        c.found[OTHER_NUMBER + i] = others[0, BY_NUMBER + i]
    c.found[OTHER_OPERAND] = others[other, WHAT]
    c.found[OTHER_WRITES] = 1 if other <= others[0, WRITE_COUNT] else 0


# --- written bytes --------------------------------------------------------------------------------

SCRATCHPAD_UNWRITTEN = np.int64(NUMBER_OF_CASE["scratchpad_unwritten"])
DRAM_UNWRITTEN = np.int64(NUMBER_OF_CASE["dram_unwritten"])
ONE = np.uint8(1)
NOTHING = np.int64(-1)


def is_range_written(written_ranges: Int64s, start: Int, end: Int) -> Any:
    """Return whether a written range contains ``start`` to ``end - 1``; move the range up a row."""
    for i in range(MAX_RANGES):
        begin, after = written_ranges[i, 0], written_ranges[i, 1]
        if begin <= start and end <= after:
            if i > 0:
                written_ranges[i, 0], written_ranges[i, 1] = (
                    written_ranges[i - 1, 0],
                    written_ranges[i - 1, 1],
                )
                written_ranges[i - 1, 0], written_ranges[i - 1, 1] = begin, after
            return True
    return False


def add_written_range(written_ranges: Int64s, start: Int, end: Int) -> None:
    """Add a range to the written ranges: merge adjoining ranges, or replace the shortest range."""
    shortest = 0
    for i in range(MAX_RANGES):
        if (
            written_ranges[i, 1] > written_ranges[i, 0]
            and start <= written_ranges[i, 1]
            and written_ranges[i, 0] <= end
        ):
            start, end = min(start, written_ranges[i, 0]), max(end, written_ranges[i, 1])
            written_ranges[i, 0], written_ranges[i, 1] = 0, 0
        if (
            written_ranges[i, 1] - written_ranges[i, 0]
            < written_ranges[shortest, 1] - written_ranges[shortest, 0]
        ):
            shortest = i
    if end - start > written_ranges[shortest, 1] - written_ranges[shortest, 0]:
        written_ranges[shortest, 0], written_ranges[shortest, 1] = start, end


def find_unwritten(written: Bytes, start: Int, end: Int) -> Any:
    """Return the offset of the first unwritten byte in a range, or -1 if all are written."""
    for at in range(start, end):
        if written[at] == 0:
            return np.int64(at)
    return NOTHING


def mark_written(written: Bytes, start: Int, end: Int) -> None:
    """Mark a range of bytes as written."""
    for at in range(start, end):
        written[at] = ONE


def track_bytes(
    written: Bytes, written_ranges: Int64s, touches: Int64s, row: Int, base: Int, writes: bool
) -> Any:
    """Mark a write's bytes; return a read's first unwritten address, or -1 if all are written."""
    start, end = touches[row, START] - base, touches[row, END] - base
    if is_range_written(written_ranges, start, end):
        return NOTHING
    runs = count_runs(touches, row)
    for index in range(runs):
        at = get_run_start(touches, row, index) - base
        if writes:
            mark_written(written, at, at + touches[row, RUN])
        else:
            missing = find_unwritten(written, at, at + touches[row, RUN])
            if missing >= 0:
                return missing + base
    if runs == 1 or find_unwritten(written, start, end) < 0:
        add_written_range(written_ranges, start, end)
    return NOTHING


def is_in_ram(c: ContractState, touches: Int64s, row: Int) -> Any:
    """Return whether an access lies entirely in the writable part of DRAM."""
    return c.numbers[RAM_BASE] <= touches[row, START] and touches[row, END] <= c.numbers[RAM_END]


def is_in_scratchpad(c: ContractState, touches: Int64s, row: Int) -> Any:
    """Return whether an access lies entirely in a scratchpad."""
    end = SCRATCHPAD_BASE + c.numbers[SCRATCHPAD_BYTES]
    return touches[row, START] >= SCRATCHPAD_BASE and touches[row, END] <= end


def is_writable(c: ContractState, address: Int) -> Any:
    """Return whether an address is in a scratchpad or in writable DRAM."""
    in_scratchpad = 0 <= address - SCRATCHPAD_BASE < c.numbers[SCRATCHPAD_BYTES]
    return in_scratchpad or c.numbers[RAM_BASE] <= address < c.numbers[RAM_END]


def track_access(c: ContractState, core: Int, touches: Int64s, row: Int, writes: bool) -> Any:
    """Record a write in ``c``; return a read's first unwritten address, -1 if all are written."""
    if is_in_scratchpad(c, touches, row):
        return track_bytes(
            c.scratchpad[core], c.written_ranges[core], touches, row, SCRATCHPAD_BASE, writes
        )
    if is_in_ram(c, touches, row):
        last = c.written_ranges.shape[0] - 1
        return track_bytes(c.ram, c.written_ranges[last], touches, row, c.numbers[RAM_BASE], writes)
    return NOTHING


def check_read(c: ContractState, core: Int, touches: Int64s, row: Int) -> None:
    """Report a violation if a read includes unwritten bytes, or a scalar load only such bytes."""
    missing = track_access(c, core, touches, row, False)
    if missing < 0:
        return
    if touches[row, WHAT] == WORD and has_written_byte(c, core, touches, row):
        return
    in_ram = is_in_ram(c, touches, row)
    report_violation(c, DRAM_UNWRITTEN if in_ram else SCRATCHPAD_UNWRITTEN, touches, row)
    c.found[FOUND_START] = missing


def has_written_byte(c: ContractState, core: Int, touches: Int64s, row: Int) -> Any:
    """Return whether at least one byte of an access has been written."""
    in_ram = is_in_ram(c, touches, row)
    written = c.ram if in_ram else c.scratchpad[core]
    base = c.numbers[RAM_BASE] if in_ram else np.int64(SCRATCHPAD_BASE)
    for address in range(touches[row, START], touches[row, END]):
        if written[address - base] != 0:
            return True
    return False
