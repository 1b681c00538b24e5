"""What transfers touch in read-write DRAM whose copies may not be done yet, by core.

Boxes of bytes, as far as they can be told apart: a range, and where all is a multiple of a stride
apart, which part of each stride. A core keeps a few for reading and a few for writing; boxes that
lie side by side become one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.copies import extent
from nmpsim.isa.words import LOAD
from nmpsim.kernels.jit import jit

READS, WRITES = np.int64(0), np.int64(1)
KINDS = 2
BOXES = 4
"""Boxes that are kept for each core and kind; more of them become one larger box."""
BEGIN, END, STRIDE, FROM, TO = range(5)
"""Entries of a box: the range; the stride, or 0, and from where to where in it."""
BOX_WORDS = 5


@jit
def put_box(d: Any, box: Any) -> None:
    """The box that a load or store (their first words are the same) touches in DRAM."""
    start, run = d[LOAD.dram], d[LOAD.run_bytes]
    step_x, step_y = d[LOAD.dram_stride_x], d[LOAD.dram_stride_y]
    box[BEGIN], box[END] = start, start + extent(d)
    stride = step_y if d[LOAD.count_x] == 1 else step_x
    regular = d[LOAD.count_x] == 1 or d[LOAD.count_y] == 1 or (step_x > 0 and step_y % step_x == 0)
    box[STRIDE], box[FROM], box[TO] = 0, 0, 0
    if regular and stride > 0 and start % stride + run <= stride:
        box[STRIDE], box[FROM], box[TO] = stride, start % stride, start % stride + run


@jit
def share_a_byte(a: Any, b: Any) -> Any:
    """False if two boxes surely have nothing in common."""
    if a[BEGIN] >= b[END] or b[BEGIN] >= a[END]:
        return False
    apart = a[TO] <= b[FROM] or b[TO] <= a[FROM]
    return not (a[STRIDE] > 0 and a[STRIDE] == b[STRIDE] and apart)


@jit
def any_shares(kept: Any, box: Any) -> Any:
    """True if one of a core's boxes of a kind may share a byte with another one."""
    for i in range(BOXES):
        if kept[i, END] == 0:
            return False  # behind it there are none
        if share_a_byte(kept[i], box):
            return True
    return False


@jit
def meets_others(boxes: Any, core: Any, box: Any, kind: Any) -> Any:
    """True if another core may touch what a transfer touches, and one of them writes."""
    for other in range(boxes.shape[0]):
        if other == core:
            continue
        if any_shares(boxes[other, WRITES], box):
            return True
        if kind == WRITES and any_shares(boxes[other, READS], box):
            return True
    return False


@jit
def is_alike(a: Any, b: Any) -> Any:
    """True if two boxes have the same part of the same stride."""
    return a[STRIDE] == b[STRIDE] and a[FROM] == b[FROM] and a[TO] == b[TO]


@jit
def keep_box(kept: Any, box: Any) -> None:
    """Add a box to those of a core and kind."""
    for i in range(BOXES):
        touches = kept[i, BEGIN] <= box[END] and box[BEGIN] <= kept[i, END]
        if kept[i, END] == 0 or (touches and is_alike(kept[i], box)):
            widen(kept[i], box)
            return
    widen(kept[BOXES - 1], box)


@jit
def widen(kept: Any, box: Any) -> None:
    """Make a box hold another one, too."""
    if kept[END] == 0:
        for i in range(BOX_WORDS):
            kept[i] = box[i]
        return
    if not is_alike(kept, box):
        kept[STRIDE], kept[FROM], kept[TO] = 0, 0, 0
    kept[BEGIN] = min(kept[BEGIN], box[BEGIN])
    kept[END] = max(kept[END], box[END])
