"""Tracking of written bytes.

Written bytes stay written. In addition to a flag for each byte there is a list of ranges that are
written throughout, which soon answers most queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_state import (
    FOUND_START,
    MAX_RANGES,
    RAM_BASE,
    RAM_END,
    SCRATCHPAD_BYTES,
    ContractState,
    report_violation,
)
from nmpsim.isa.contract import NUMBER_OF_CASE
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.kernels.array_types import Bytes, Int, Int64s
from nmpsim.memory.footprint import END, FIRST_AXIS, RUN, START, WHAT, WORD

SCRATCHPAD_UNWRITTEN = np.int64(NUMBER_OF_CASE["scratchpad_unwritten"])
DRAM_UNWRITTEN = np.int64(NUMBER_OF_CASE["dram_unwritten"])
ONE = np.uint8(1)
NOTHING = np.int64(-1)


def is_range_written(written_ranges: Int64s, start: Int, end: Int) -> Any:
    """Return whether a range of offsets is in the list; frequent ranges move to the front."""
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
    """Add a range to the list; it merges with an adjoining one or replaces the shortest."""
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
    """Return the offset of the first unwritten byte of a range, or -1."""
    for at in range(start, end):
        if written[at] == 0:
            return np.int64(at)
    return NOTHING


def mark_written(written: Bytes, start: Int, end: Int) -> None:
    """Mark a range of bytes as written."""
    for at in range(start, end):
        written[at] = ONE


def visit_bytes(
    written: Bytes, written_ranges: Int64s, touches: Int64s, row: Int, base: Int, writes: bool
) -> Any:
    """Mark the bytes of an access, or return the address of the first unwritten one; else -1."""
    start, end = touches[row, START] - base, touches[row, END] - base
    if is_range_written(written_ranges, start, end):
        return NOTHING
    run = touches[row, RUN]
    n0, s0 = touches[row, FIRST_AXIS], touches[row, FIRST_AXIS + 1]
    n1, s1 = touches[row, FIRST_AXIS + 2], touches[row, FIRST_AXIS + 3]
    n2, s2 = touches[row, FIRST_AXIS + 4], touches[row, FIRST_AXIS + 5]
    n3, s3 = touches[row, FIRST_AXIS + 6], touches[row, FIRST_AXIS + 7]
    for i in range(n0):
        for j in range(n1):
            for k in range(n2):
                for m in range(n3):
                    at = start + i * s0 + j * s1 + k * s2 + m * s3
                    if writes:
                        mark_written(written, at, at + run)
                    else:
                        missing = find_unwritten(written, at, at + run)
                        if missing >= 0:
                            return missing + base
    if n0 == 1 or find_unwritten(written, start, end) < 0:
        add_written_range(written_ranges, start, end)
    return NOTHING


def is_ram(c: ContractState, touches: Int64s, row: Int) -> Any:
    """Return whether an access is to writable DRAM."""
    return c.numbers[RAM_BASE] <= touches[row, START] and touches[row, END] <= c.numbers[RAM_END]


def is_scratchpad(c: ContractState, touches: Int64s, row: Int) -> Any:
    """Return whether an access is to a scratchpad."""
    end = SCRATCHPAD_BASE + c.numbers[SCRATCHPAD_BYTES]
    return touches[row, START] >= SCRATCHPAD_BASE and touches[row, END] <= end


def is_writable(c: ContractState, address: Int) -> Any:
    """Return whether an address is in a scratchpad or in writable DRAM."""
    in_scratchpad = 0 <= address - SCRATCHPAD_BASE < c.numbers[SCRATCHPAD_BYTES]
    return in_scratchpad or c.numbers[RAM_BASE] <= address < c.numbers[RAM_END]


def visit_access(c: ContractState, core: Int, touches: Int64s, row: Int, writes: bool) -> Any:
    """Mark a write; for a read, return the address of the first unwritten byte; else -1."""
    if is_scratchpad(c, touches, row):
        return visit_bytes(
            c.scratchpad[core], c.written_ranges[core], touches, row, SCRATCHPAD_BASE, writes
        )
    if is_ram(c, touches, row):
        last = c.written_ranges.shape[0] - 1
        return visit_bytes(c.ram, c.written_ranges[last], touches, row, c.numbers[RAM_BASE], writes)
    return NOTHING


def check_read(c: ContractState, core: Int, touches: Int64s, row: Int) -> None:
    """Report a violation if an access reads unwritten bytes."""
    missing = visit_access(c, core, touches, row, False)
    if missing < 0:
        return
    if touches[row, WHAT] == WORD and has_written_byte(c, core, touches, row):
        return
    in_ram = is_ram(c, touches, row)
    report_violation(c, DRAM_UNWRITTEN if in_ram else SCRATCHPAD_UNWRITTEN, touches, row)
    c.found[FOUND_START] = missing


def has_written_byte(c: ContractState, core: Int, touches: Int64s, row: Int) -> Any:
    """Return whether any byte is written: programs copy records with gaps by words."""
    in_ram = is_ram(c, touches, row)
    written = c.ram if in_ram else c.scratchpad[core]
    base = c.numbers[RAM_BASE] if in_ram else np.int64(SCRATCHPAD_BASE)
    for address in range(touches[row, START], touches[row, END]):
        if written[address - base] != 0:
            return True
    return False
