"""Which transfers of one epoch may conflict in read-write DRAM: regions that each core accesses.

A region is a range of addresses; for a transfer with one regular stride also the part of each
stride that it accesses. A core has a few regions for reading and a few for writing; regions that
adjoin are merged. So a conflict may be reported that is none, but none is missed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.copies import extent
from nmpsim.isa.words import LOAD
from nmpsim.kernels.jit import jit

READS, WRITES = np.int64(0), np.int64(1)
KINDS = 2
REGIONS = 4
"""Regions for each core and kind; further ones are merged into the last one."""
BEGIN, END, STRIDE, FROM, TO = range(5)
"""Entries of a region: its range; its stride, or 0, and the range within each stride."""
REGION_WORDS = 5


@jit
def put_region(d: Any, region: Any) -> None:
    """The region that a load or store (their first words are the same) accesses in DRAM."""
    start, run = d[LOAD.dram], d[LOAD.run_bytes]
    step_x, step_y = d[LOAD.dram_stride_x], d[LOAD.dram_stride_y]
    region[BEGIN], region[END] = start, start + extent(d)
    stride = step_y if d[LOAD.count_x] == 1 else step_x
    regular = d[LOAD.count_x] == 1 or d[LOAD.count_y] == 1 or (step_x > 0 and step_y % step_x == 0)
    region[STRIDE], region[FROM], region[TO] = 0, 0, 0
    if regular and stride > 0 and start % stride + run <= stride:
        region[STRIDE], region[FROM], region[TO] = stride, start % stride, start % stride + run


@jit
def share_a_byte(a: Any, b: Any) -> Any:
    """False if two regions certainly have no byte in common."""
    if a[BEGIN] >= b[END] or b[BEGIN] >= a[END]:
        return False
    disjoint = a[TO] <= b[FROM] or b[TO] <= a[FROM]
    return not (a[STRIDE] > 0 and a[STRIDE] == b[STRIDE] and disjoint)


@jit
def any_share_a_byte(kept: Any, region: Any) -> Any:
    """True if one of a core's regions of a kind may share a byte with another region."""
    for i in range(REGIONS):
        if kept[i, END] == 0:
            return False  # the first unused one
        if share_a_byte(kept[i], region):
            return True
    return False


@jit
def conflicts_with_others(regions: Any, core: Any, region: Any, kind: Any) -> Any:
    """True if another core may access the same bytes, and one of the two writes."""
    for other in range(regions.shape[0]):
        if other == core:
            continue
        if any_share_a_byte(regions[other, WRITES], region):
            return True
        if kind == WRITES and any_share_a_byte(regions[other, READS], region):
            return True
    return False


@jit
def have_same_stride(a: Any, b: Any) -> Any:
    """True if two regions have the same part of the same stride."""
    return a[STRIDE] == b[STRIDE] and a[FROM] == b[FROM] and a[TO] == b[TO]


@jit
def keep_region(kept: Any, region: Any) -> None:
    """Add a region to those of a core and kind."""
    for i in range(REGIONS):
        touches = kept[i, BEGIN] <= region[END] and region[BEGIN] <= kept[i, END]
        if kept[i, END] == 0 or (touches and have_same_stride(kept[i], region)):
            extend(kept[i], region)
            return
    extend(kept[REGIONS - 1], region)


@jit
def extend(kept: Any, region: Any) -> None:
    """Extend a region to contain another one."""
    if kept[END] == 0:
        for i in range(REGION_WORDS):
            kept[i] = region[i]
        return
    if not have_same_stride(kept, region):
        kept[STRIDE], kept[FROM], kept[TO] = 0, 0, 0
    kept[BEGIN] = min(kept[BEGIN], region[BEGIN])
    kept[END] = max(kept[END], region[END])
