"""Validation of a descriptor and of the scratchpad addresses of its operands.

``find_invalid_word`` returns -1 for a valid descriptor, else the index of the first bad word. Most
checks are derived from the table: the values of a word (:mod:`~nmpsim.memory.limits`) and the
addresses of operands (:mod:`~nmpsim.memory.footprint`). A result must not overlap what the
instruction reads, except exactly where the table allows it, so that the order of reads and writes
does not matter.
Relations between words are checked by :mod:`~nmpsim.memory.amounts` and
:mod:`~nmpsim.memory.scales`.

The compiled engine compiles these functions. Engines check the DRAM side of transfers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.isa.words import KINDS
from nmpsim.memory import footprint
from nmpsim.memory.amounts import check_amounts
from nmpsim.memory.bounds import OK, is_outside_scratchpad, ranges_overlap
from nmpsim.memory.footprint import (
    AXES,
    COUNT,
    END,
    FIRST_AXIS,
    IS_PLAIN,
    IS_WHOLE,
    OPERANDS,
    RUN,
    START,
    TOUCH_WORDS,
    WHAT,
    WRITES,
)
from nmpsim.memory.limits import find_invalid_clip, find_invalid_size, find_misaligned_word
from nmpsim.memory.scales import find_invalid_scale, has_invalid_scale_table

__all__ = ["KINDS", "OK", "has_invalid_scale_table", "find_invalid_word"]


def _of_operands(flag: str) -> Any:
    """Return [descriptors, OPERANDS] a flag of each operand."""
    table = np.zeros((len(DESCRIPTORS), len(OPERANDS)), np.bool_)
    for name, kind in KINDS.items():
        for word in DESCRIPTORS[name].operands:
            table[kind, OPERANDS.index(word.name)] = getattr(word, flag)
    return table


_IN_PLACE, _MAY_OVERLAP = _of_operands("in_place"), _of_operands("may_overlap_itself")
_DRAM = OPERANDS.index("dram")
_ADDRESSES = np.full((len(DESCRIPTORS), len(OPERANDS)), -1, np.int64)
for _name, _kind in KINDS.items():
    for _index, _word in enumerate(DESCRIPTORS[_name]):
        if _word.direction is not None:
            _ADDRESSES[_kind, OPERANDS.index(_word.name)] = _index
"""[descriptors, OPERANDS] Index of the operand's address."""


def overlaps_itself(touches: Any, row: int) -> bool:
    """Return whether an operand's contiguous byte ranges overlap each other."""
    extent = touches[row, RUN]
    for axis in range(AXES - 1, -1, -1):
        count, step = touches[row, FIRST_AXIS + 2 * axis], touches[row, FIRST_AXIS + 2 * axis + 1]
        if count > 1:
            if step < extent:
                return True
            extent += (count - 1) * step
    return False


def have_same_bytes(touches: Any, row: int, other: int) -> bool:
    """Return whether two operands consist of the same bytes in the same order."""
    for column in range(TOUCH_WORDS):
        if column != WHAT and touches[row, column] != touches[other, column]:
            return False
    return True


def overlaps_other_operand(kind: int, touches: Any, row: int) -> bool:
    """Return whether a result overlaps another operand where the instruction set forbids this.

    Of two results the later one, the partial sums, is reported.
    """
    start, extent = touches[row, START], touches[row, END] - touches[row, START]
    for other in range(1, touches[0, COUNT] + 1):
        if row <= other <= touches[0, WRITES] or touches[other, WHAT] == _DRAM:
            continue
        size = touches[other, END] - touches[other, START]
        if not ranges_overlap(start, extent, touches[other, START], size):
            continue
        if not (_IN_PLACE[kind, touches[other, WHAT]] and have_same_bytes(touches, row, other)):
            return True
    return False


def find_invalid_operand(kind: int, words: Any, spm_bytes: int, touches: Any) -> int:
    """Return the index of the first operand with invalid bounds or overlaps; -1 if all are valid.

    ``touches`` is a workspace for a footprint.
    """
    touches[0, IS_PLAIN] = 1
    touches[0, IS_WHOLE] = 1
    footprint.compute_footprint(kind, words, touches)
    bad = OK
    for row in range(1, touches[0, COUNT] + 1):
        what = touches[row, WHAT]
        if what == _DRAM:
            continue
        is_wrong = is_outside_scratchpad(
            touches[row, START], touches[row, END] - touches[row, START], spm_bytes
        )
        if row <= touches[0, WRITES] and not is_wrong:
            is_wrong = (
                overlaps_itself(touches, row) and not _MAY_OVERLAP[kind, what]
            ) or overlaps_other_operand(kind, touches, row)
        if is_wrong and (bad == OK or _ADDRESSES[kind, what] < bad):
            bad = int(_ADDRESSES[kind, what])
    return bad


def find_invalid_word(kind: int, words: Any, spm_bytes: int, touches: Any) -> int:
    """Return the index of the first invalid word of a descriptor, or -1 if all are valid.

    ``touches`` is a workspace of int64 [MAX_TOUCHES, TOUCH_WORDS].
    """
    bad = find_invalid_size(kind, words)
    if bad == OK:
        bad = find_misaligned_word(kind, words)
    if bad == OK:
        bad = check_amounts(kind, words, spm_bytes)
    if bad == OK:
        bad = find_invalid_operand(kind, words, spm_bytes, touches)
    if bad == OK:
        bad = find_invalid_scale(kind, words)
    return find_invalid_clip(kind, words) if bad == OK else bad
