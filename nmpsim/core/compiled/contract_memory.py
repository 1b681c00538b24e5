"""Which bytes have been written so far.

A byte that was written stays written. So ranges that are known to be written throughout are kept
beside the bytes, and after its first pieces of work a program is answered from these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_state import KNOWN
from nmpsim.kernels.jit import jit
from nmpsim.memory.footprint import END, FIRST_AXIS, RUN, START

ONE = np.uint8(1)
NOTHING = np.int64(-1)


@jit
def is_known(known: Any, start: Any, end: Any) -> Any:
    """True if a range of offsets is known to be written; what is asked often comes to the front."""
    for i in range(KNOWN):
        begin, behind = known[i, 0], known[i, 1]
        if begin <= start and end <= behind:
            if i > 0:
                known[i, 0], known[i, 1] = known[i - 1, 0], known[i - 1, 1]
                known[i - 1, 0], known[i - 1, 1] = begin, behind
            return True
    return False


@jit
def add_known(known: Any, start: Any, end: Any) -> None:
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


@jit
def first_unwritten(written: Any, start: Any, end: Any) -> Any:
    """Offset of the first byte of a range that was not written, or -1."""
    for at in range(start, end):
        if written[at] == 0:
            return np.int64(at)
    return NOTHING


@jit
def mark(written: Any, start: Any, end: Any) -> None:
    """These are written now."""
    for at in range(start, end):
        written[at] = ONE


@jit
def visit(written: Any, known: Any, touches: Any, row: Any, base: Any, writes: Any) -> Any:
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
