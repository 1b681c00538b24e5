"""Detection of transfers of one epoch that may conflict in read-write DRAM.

An entry is a range of addresses, and for a transfer with one regular stride also the part of each
stride that it accesses. A core has a few ranges for reading and a few for writing; adjoining ranges
are merged. So a reported conflict may be none, but no conflict is missed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.array_types import Int, Int64s

READS, WRITES = np.int64(0), np.int64(1)
KINDS = 2
RANGES = 4
"""Entries for each core and kind; further ranges are merged into the last entry."""
RANGE_BEGIN, RANGE_END, STRIDE, FROM, TO = range(5)
"""Words of an entry: its range; its stride, or 0; the part of each stride."""
RANGE_WORDS = 5


def set_range(accessed: Int64s, start: Int, end: Int, stride: Int, run: Int) -> None:
    """Set ``accessed`` to a DRAM range: ``run`` bytes in every ``stride``, or all bytes if 0."""
    first = start % stride if stride > 0 else np.int64(0)
    is_regular = stride > 0 and first + run <= stride
    accessed[RANGE_BEGIN], accessed[RANGE_END] = start, end
    accessed[STRIDE], accessed[FROM], accessed[TO] = 0, 0, 0
    if is_regular:
        accessed[STRIDE], accessed[FROM], accessed[TO] = stride, first, first + run


def may_overlap(a: Int64s, b: Int64s) -> Any:
    """Return whether two ranges may have a byte in common."""
    if a[RANGE_BEGIN] >= b[RANGE_END] or b[RANGE_BEGIN] >= a[RANGE_END]:
        return False
    disjoint = a[TO] <= b[FROM] or b[TO] <= a[FROM]
    return not (a[STRIDE] > 0 and a[STRIDE] == b[STRIDE] and disjoint)


def may_overlap_any(ranges: Int64s, accessed: Int64s) -> Any:
    """Return whether a range may have a byte in common with any range of a list."""
    for i in range(RANGES):
        if ranges[i, RANGE_END] == 0:
            return False  # the first unused one
        if may_overlap(ranges[i], accessed):
            return True
    return False


def conflicts_with_others(ranges: Int64s, core: Int, accessed: Int64s, kind: Int) -> Any:
    """Return whether an access may conflict with an access of another core."""
    for other in range(ranges.shape[0]):
        if other == core:
            continue
        if may_overlap_any(ranges[other, WRITES], accessed):
            return True
        if kind == WRITES and may_overlap_any(ranges[other, READS], accessed):
            return True
    return False


def has_same_stride(a: Int64s, b: Int64s) -> Any:
    """Return whether two ranges have one stride and access the same bytes of each stride."""
    return a[STRIDE] == b[STRIDE] and a[FROM] == b[FROM] and a[TO] == b[TO]


def add_range(ranges: Int64s, accessed: Int64s) -> None:
    """Merge a range into a fixed-size list of ranges; extend the last one if the list is full."""
    for i in range(RANGES):
        touches = (
            ranges[i, RANGE_BEGIN] <= accessed[RANGE_END]
            and accessed[RANGE_BEGIN] <= ranges[i, RANGE_END]
        )
        if ranges[i, RANGE_END] == 0 or (touches and has_same_stride(ranges[i], accessed)):
            extend_range(ranges[i], accessed)
            return
    extend_range(ranges[RANGES - 1], accessed)


def extend_range(known: Int64s, accessed: Int64s) -> None:
    """Extend the range ``known`` in place so that it contains the range ``accessed``."""
    if known[RANGE_END] == 0:
        for i in range(RANGE_WORDS):
            known[i] = accessed[i]
        return
    if not has_same_stride(known, accessed):
        known[STRIDE], known[FROM], known[TO] = 0, 0, 0
    known[RANGE_BEGIN] = min(known[RANGE_BEGIN], accessed[RANGE_BEGIN])
    known[RANGE_END] = max(known[RANGE_END], accessed[RANGE_END])
