"""Is a descriptor possible, and does all that it names lie in the scratchpad?

``check`` gives -1 if all is well, else the index of the first word that is wrong. Most of it
derives from the table: what a word may hold (:mod:`~nmpsim.memory.limits`), where operands lie
(:mod:`~nmpsim.memory.footprint`). What an instruction writes may not meet what it reads (but lie
exactly on it, where the table says so), so that "read everything first" and "read as it goes" are
the same. By hand is only what several words have to do with each other:
:mod:`~nmpsim.memory.amounts` and :mod:`~nmpsim.memory.scales`.

Plain functions, which the compiled engine compiles. The DRAM side of a transfer is for the engine,
which knows what is mapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.isa.words import KINDS
from nmpsim.memory import amounts, bounds, footprint, limits, scales
from nmpsim.memory.amounts import check_amounts
from nmpsim.memory.bounds import OK, meets, outside
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
from nmpsim.memory.limits import clip_limits, misaligned, size_limits
from nmpsim.memory.scales import bad_scale_table, check_scales

__all__ = ["FUNCTIONS", "KINDS", "OK", "bad_scale_table", "check"]


def _of_operands(flag: str) -> Any:
    """[descriptors, OPERANDS] a flag of each operand."""
    table = np.zeros((len(DESCRIPTORS), len(OPERANDS)), np.bool_)
    for name, kind in KINDS.items():
        for word in DESCRIPTORS[name].operands:
            table[kind, OPERANDS.index(word.name)] = getattr(word, flag)
    return table


_IN_PLACE, _MAY_FOLD = _of_operands("in_place"), _of_operands("may_fold")
_DRAM = OPERANDS.index("dram")
_ADDRESSES = np.full((len(DESCRIPTORS), len(OPERANDS)), -1, np.int64)
for _name, _kind in KINDS.items():
    for _index, _word in enumerate(DESCRIPTORS[_name]):
        if _word.direction is not None:
            _ADDRESSES[_kind, OPERANDS.index(_word.name)] = _index
"""[descriptors, OPERANDS] index of the operand's address."""


def folds(touches: Any, row: int) -> bool:
    """True if runs of a row would lie on one another; each axis begins behind what it repeats."""
    extent = touches[row, RUN]
    for axis in range(AXES - 1, -1, -1):
        count, step = touches[row, FIRST_AXIS + 2 * axis], touches[row, FIRST_AXIS + 2 * axis + 1]
        if count > 1:
            if step < extent:
                return True
            extent += (count - 1) * step
    return False


def are_same(touches: Any, row: int, other: int) -> bool:
    """True if two rows are the same bytes in the same order."""
    for column in range(TOUCH_WORDS):
        if column != WHAT and touches[row, column] != touches[other, column]:
            return False
    return True


def meets_another(kind: int, touches: Any, row: int) -> bool:
    """True if what is written shares a byte with something else, and may not.

    Of two results the later one, which is the partial sums, is at fault.
    """
    start, extent = touches[row, START], touches[row, END] - touches[row, START]
    for other in range(1, touches[0, COUNT] + 1):
        if row <= other <= touches[0, WRITES] or touches[other, WHAT] == _DRAM:
            continue
        size = touches[other, END] - touches[other, START]
        if not meets(start, extent, touches[other, START], size):
            continue
        if not (_IN_PLACE[kind, touches[other, WHAT]] and are_same(touches, row, other)):
            return True
    return False


def check_places(kind: int, words: Any, spm_bytes: int, touches: Any) -> int:
    """Index of the first address whose operand does not lie in the scratchpad, or meets another.

    ``touches`` is room for a footprint.
    """
    touches[0, IS_PLAIN] = 1
    touches[0, IS_WHOLE] = 1
    footprint.footprint(kind, words, touches)
    bad = OK
    for row in range(1, touches[0, COUNT] + 1):
        what = touches[row, WHAT]
        if what == _DRAM:
            continue
        is_wrong = outside(touches[row, START], touches[row, END] - touches[row, START], spm_bytes)
        if row <= touches[0, WRITES] and not is_wrong:
            is_wrong = (folds(touches, row) and not _MAY_FOLD[kind, what]) or meets_another(
                kind, touches, row
            )
        if is_wrong and (bad == OK or _ADDRESSES[kind, what] < bad):
            bad = int(_ADDRESSES[kind, what])
    return bad


def check(kind: int, words: Any, spm_bytes: int, touches: Any) -> int:
    """Index of the first word that is wrong, or OK: sizes, then addresses, scales and clip.

    ``touches`` is int64 [MAX_TOUCHES, TOUCH_WORDS] to work in.
    """
    bad = size_limits(kind, words)
    if bad == OK:
        bad = misaligned(kind, words)
    if bad == OK:
        bad = check_amounts(kind, words, spm_bytes)
    if bad == OK:
        bad = check_places(kind, words, spm_bytes, touches)
    if bad == OK:
        bad = check_scales(kind, words)
    return clip_limits(kind, words) if bad == OK else bad


FUNCTIONS = (
    *bounds.FUNCTIONS,
    *limits.FUNCTIONS,
    *amounts.FUNCTIONS,
    *scales.FUNCTIONS,
    folds,
    are_same,
    meets_another,
    check_places,
    check,
)
"""What the compiled engine compiles, callees first; it needs those of the footprint, too."""
