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
    """Set a range; ``stride`` is the distance of its runs of ``run`` bytes, or 0 if irregular."""
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


def any_may_overlap(kept: Int64s, accessed: Int64s) -> Any:
    """Return whether any of the ranges in ``kept`` may share a byte with another range."""
    for i in range(RANGES):
        if kept[i, RANGE_END] == 0:
            return False  # the first unused one
        if may_overlap(kept[i], accessed):
            return True
    return False


def conflicts_with_others(ranges: Int64s, core: Int, accessed: Int64s, kind: Int) -> Any:
    """Return whether an access may conflict with an access of another core."""
    for other in range(ranges.shape[0]):
        if other == core:
            continue
        if any_may_overlap(ranges[other, WRITES], accessed):
            return True
        if kind == WRITES and any_may_overlap(ranges[other, READS], accessed):
            return True
    return False


def has_same_stride(a: Int64s, b: Int64s) -> Any:
    """Return whether two ranges have the same stride and the same offsets within it."""
    return a[STRIDE] == b[STRIDE] and a[FROM] == b[FROM] and a[TO] == b[TO]


def keep_range(kept: Int64s, accessed: Int64s) -> None:
    """Add a range to the ranges in ``kept``."""
    for i in range(RANGES):
        touches = (
            kept[i, RANGE_BEGIN] <= accessed[RANGE_END]
            and accessed[RANGE_BEGIN] <= kept[i, RANGE_END]
        )
        if kept[i, RANGE_END] == 0 or (touches and has_same_stride(kept[i], accessed)):
            extend(kept[i], accessed)
            return
    extend(kept[RANGES - 1], accessed)


def extend(kept: Int64s, accessed: Int64s) -> None:
    """Extend a range to contain another one."""
    if kept[RANGE_END] == 0:
        for i in range(RANGE_WORDS):
            kept[i] = accessed[i]
        return
    if not has_same_stride(kept, accessed):
        kept[STRIDE], kept[FROM], kept[TO] = 0, 0, 0
    kept[RANGE_BEGIN] = min(kept[RANGE_BEGIN], accessed[RANGE_BEGIN])
    kept[RANGE_END] = max(kept[RANGE_END], accessed[RANGE_END])
