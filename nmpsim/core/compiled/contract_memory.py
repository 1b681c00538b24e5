"""Which bytes have been written so far.

A byte that was written stays written. So in addition to the bytes there is a list of ranges that
are known to be written throughout; soon it answers most questions of a program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_found import FOUND_START, report
from nmpsim.core.compiled.contract_state import KNOWN, Contract, Limit
from nmpsim.isa.contract import NUMBER_OF_CASE
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.kernels.array_types import Bytes, Int, Int64s
from nmpsim.memory.footprint import END, FIRST_AXIS, RUN, START, WHAT, WORD

SCRATCHPAD_BYTES = int(Limit.SCRATCHPAD_BYTES)
RAM_BASE, RAM_END = int(Limit.RAM_BASE), int(Limit.RAM_END)
SCRATCHPAD_UNWRITTEN = np.int64(NUMBER_OF_CASE["scratchpad_unwritten"])
DRAM_UNWRITTEN = np.int64(NUMBER_OF_CASE["dram_unwritten"])
ONE = np.uint8(1)
NOTHING = np.int64(-1)


def is_known(known: Int64s, start: Int, end: Int) -> Any:
    """True if a range of offsets is known to be written; what is asked often comes to the front."""
    for i in range(KNOWN):
        begin, after = known[i, 0], known[i, 1]
        if begin <= start and end <= after:
            if i > 0:
                known[i, 0], known[i, 1] = known[i - 1, 0], known[i - 1, 1]
                known[i - 1, 0], known[i - 1, 1] = begin, after
            return True
    return False


def add_known(known: Int64s, start: Int, end: Int) -> None:
    """Know a range; one that it touches grows, otherwise the shortest gives way."""
    shortest = 0
    for i in range(KNOWN):
        if known[i, 1] > known[i, 0] and start <= known[i, 1] and known[i, 0] <= end:
            start, end = min(start, known[i, 0]), max(end, known[i, 1])
            known[i, 0], known[i, 1] = 0, 0
        if known[i, 1] - known[i, 0] < known[shortest, 1] - known[shortest, 0]:
            shortest = i
    if end - start > known[shortest, 1] - known[shortest, 0]:
        known[shortest, 0], known[shortest, 1] = start, end


def first_unwritten(written: Bytes, start: Int, end: Int) -> Any:
    """Offset of the first byte of a range that was not written, or -1."""
    for at in range(start, end):
        if written[at] == 0:
            return np.int64(at)
    return NOTHING


def mark(written: Bytes, start: Int, end: Int) -> None:
    """These are written now."""
    for at in range(start, end):
        written[at] = ONE


def visit(written: Bytes, known: Int64s, touches: Int64s, row: Int, base: Int, writes: bool) -> Any:
    """Mark a row's bytes, or look for the first one that was not written; its address or -1."""
    start, end = touches[row, START] - base, touches[row, END] - base
    if is_known(known, start, end):
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
                        mark(written, at, at + run)
                    else:
                        missing = first_unwritten(written, at, at + run)
                        if missing >= 0:
                            return missing + base
    if n0 == 1 or first_unwritten(written, start, end) < 0:
        add_known(known, start, end)
    return NOTHING


def is_ram(c: Contract, touches: Int64s, row: Int) -> Any:
    """Does a touch lie in the writable DRAM?"""
    return c.numbers[RAM_BASE] <= touches[row, START] and touches[row, END] <= c.numbers[RAM_END]


def is_scratchpad(c: Contract, touches: Int64s, row: Int) -> Any:
    """Does a touch lie in a scratchpad?"""
    end = SCRATCHPAD_BASE + c.numbers[SCRATCHPAD_BYTES]
    return touches[row, START] >= SCRATCHPAD_BASE and touches[row, END] <= end


def is_writable(c: Contract, address: Int) -> Any:
    """Does an address lie in a scratchpad or in the writable DRAM?"""
    in_scratchpad = 0 <= address - SCRATCHPAD_BASE < c.numbers[SCRATCHPAD_BYTES]
    return in_scratchpad or c.numbers[RAM_BASE] <= address < c.numbers[RAM_END]


def visit_row(c: Contract, core: Int, touches: Int64s, row: Int, writes: bool) -> Any:
    """Mark what is written; address of the first byte that is read and was not, or -1."""
    if is_scratchpad(c, touches, row):
        return visit(c.scratchpad[core], c.known[core], touches, row, SCRATCHPAD_BASE, writes)
    if is_ram(c, touches, row):
        last = c.known.shape[0] - 1
        return visit(c.ram, c.known[last], touches, row, c.numbers[RAM_BASE], writes)
    return NOTHING


def read_row(c: Contract, core: Int, touches: Int64s, row: Int) -> None:
    """All that is read must have been written."""
    missing = visit_row(c, core, touches, row, False)
    if missing < 0:
        return
    if touches[row, WHAT] == WORD and some_written(c, core, touches, row):
        return
    in_ram = is_ram(c, touches, row)
    report(c, DRAM_UNWRITTEN if in_ram else SCRATCHPAD_UNWRITTEN, touches, row)
    c.found[FOUND_START] = missing


def some_written(c: Contract, core: Int, touches: Int64s, row: Int) -> Any:
    """Records with gaps are copied by words."""
    in_ram = is_ram(c, touches, row)
    written = c.ram if in_ram else c.scratchpad[core]
    base = c.numbers[RAM_BASE] if in_ram else np.int64(SCRATCHPAD_BASE)
    for address in range(touches[row, START], touches[row, END]):
        if written[address - base] != 0:
            return True
    return False
