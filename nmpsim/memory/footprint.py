"""The bytes that a tensor instruction reads and writes.

``compute_footprint(kind, words, touches)`` writes a row for each operand to ``touches``, results
first. A row is a run of bytes, repeated along up to four axes, as given by the layouts of the table
(:mod:`nmpsim.isa.descriptors`). The compiled engine compiles these functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.descriptors import DESCRIPTORS, Word
from nmpsim.isa.layouts import AccessDirection, OperandLayout, RepeatAxis
from nmpsim.isa.words import KINDS, PART_FIRST, PART_LAST, PART_MIDDLE, PART_ONLY
from nmpsim.memory.limits import PART_WORD, get_element_code, get_item_bytes
from nmpsim.memory.weight_tail import BLOCK_BYTES, LANES

_NAMES = dict.fromkeys(word.name for d in DESCRIPTORS.values() for word in d.operands)
OPERANDS = (*_NAMES, "word", "descriptor", "code", "tensor")
"""Names of accessed data; a touch has the index. The last four are those of scalar loads and
stores, of every instruction, and of the host."""
INPUT, DRAM = OPERANDS.index("input"), OPERANDS.index("dram")
WORD, DESCRIPTOR, CODE, TENSOR = (
    OPERANDS.index(name) for name in ("word", "descriptor", "code", "tensor")
)

AXES = 4
START, END, WHAT, RUN, FIRST_AXIS = range(5)
"""Entries of a touch: address of the first byte and end, index of OPERANDS, bytes of a run; then
(count, step) of each axis, outermost first, with axes of count 1 last."""
TOUCH_WORDS = FIRST_AXIS + 2 * AXES
WRITES, COUNT, IS_PLAIN, IS_WHOLE = range(4)
"""Entries of row 0 of ``touches``: number of rows that are writes, number of rows; 1 to keep all
axes (missing ones have a count of 0) instead of merging adjacent runs; 1 to include all operands
that must be in memory, even empty ones and the result of a later part of a sum."""
MAX_TOUCHES = 8
"""Largest number of rows of an instruction, including row 0."""

# --- the table's layouts as numbers ---------------------------------------------------------

_MAX_FACTORS = 4
(
    OF_NAME,
    OF_DIRECTION,
    OF_ADDRESS,
    OF_SIZE,
    IS_OPTIONAL,
    IS_BLOCKED,
    IN_ANY_ORDER,
    OF_AXES,
    FIRST_FACTOR,
) = range(9)
"""Columns of a layout: index of OPERANDS, direction, index of the address, size of an item of a
run, flags, number of axes, then the indices of the words whose product is a run's length."""
OF_FIRST_AXIS = FIRST_FACTOR + _MAX_FACTORS
STEP, IS_WINDOWS, FIRST_COUNT, AXIS_COLUMNS = 0, 1, 2, 6
"""Columns of an axis: index of the step, whether it covers windows; then the indices of its counts,
or of number, stride, taps and dilation of windows. An index of -1 ends the list."""
READS, SUMS = int(AccessDirection.READS), int(AccessDirection.SUMS)


def _axis(names: list[str], axis: RepeatAxis) -> list[int]:
    words = axis.windows or axis.counts
    indices = [names.index(word) for word in words]
    missing = AXIS_COLUMNS - FIRST_COUNT - len(indices)
    return [names.index(axis.step), int(axis.windows is not None), *indices, *[-1] * missing]


def _columns(names: list[str], operand: Word, layout: OperandLayout) -> list[int]:
    factors = [names.index(word) for word in layout.run]
    axes = [column for axis in layout.axes for column in _axis(names, axis)]
    return [
        OPERANDS.index(operand.name),
        int(operand.direction or READS),
        names.index(operand.name),
        int(layout.size),
        int(operand.is_optional),
        int(layout.is_blocked),
        int(layout.in_any_order),
        len(layout.axes),
        *factors,
        *[-1] * (_MAX_FACTORS - len(factors)),
        *axes,
        *[-1] * (AXIS_COLUMNS * (AXES - len(layout.axes))),
    ]


def _layouts() -> Any:
    """Return [descriptors, operands, columns]; a name of -1 ends the list."""
    most = max(len(d.operands) for d in DESCRIPTORS.values())
    table = np.full((len(DESCRIPTORS), most + 1, OF_FIRST_AXIS + AXIS_COLUMNS * AXES), -1, np.int64)
    for name, kind in KINDS.items():
        names = [word.name for word in DESCRIPTORS[name]]
        for at, operand in enumerate(DESCRIPTORS[name].operands):
            assert operand.layout is not None
            table[kind, at] = _columns(names, operand, operand.layout)
    return table


LAYOUTS = _layouts()
OPERAND_COUNTS = np.array([len(d.operands) for d in DESCRIPTORS.values()], np.int64)


def clear_footprint(touches: Any) -> None:
    """Clear a footprint: remove the rows of all accessed operands."""
    touches[0, WRITES] = 0
    touches[0, COUNT] = 0


def add_run(touches: Any, writes: bool, what: int, start: int, run: int) -> int:
    """Add a row of ``run`` bytes at ``start`` to a footprint; return its index, or 0 if omitted."""
    if run <= 0 and touches[0, IS_WHOLE] == 0:
        return 0
    row = touches[0, COUNT] + 1
    touches[0, COUNT] = row
    if writes:
        touches[0, WRITES] = row
    touches[row, START] = start
    touches[row, END] = start + run
    touches[row, WHAT] = what
    touches[row, RUN] = run
    for axis in range(AXES):
        touches[row, FIRST_AXIS + 2 * axis] = 1 - touches[0, IS_PLAIN]
        touches[row, FIRST_AXIS + 2 * axis + 1] = 0
    return int(row)


def repeat_row(touches: Any, row: int, count: int, step: int) -> None:
    """Repeat the bytes of a footprint's row along an additional, outermost axis.

    An empty row stays empty. A count of 0 empties the row, which must be the last one.
    """
    if row == 0 or row > touches[0, COUNT] or touches[row, RUN] <= 0:
        return
    if count <= 0 and touches[0, IS_WHOLE]:
        touches[row, END] = touches[row, START]
        touches[row, RUN] = 0
        return
    if count <= 0:
        touches[0, COUNT] = row - 1
        touches[0, WRITES] = min(touches[0, WRITES], row - 1)
        return
    touches[row, END] += (count - 1) * step
    if touches[0, IS_PLAIN] == 0:
        if count == 1 or step == 0:
            return
        if touches[row, FIRST_AXIS] == 1 and step <= touches[row, RUN]:
            touches[row, RUN] += (count - 1) * step
            return
        if step == touches[row, FIRST_AXIS] * touches[row, FIRST_AXIS + 1]:
            touches[row, FIRST_AXIS] *= count
            return
    for axis in range(AXES - 1, 0, -1):
        touches[row, FIRST_AXIS + 2 * axis] = touches[row, FIRST_AXIS + 2 * axis - 2]
        touches[row, FIRST_AXIS + 2 * axis + 1] = touches[row, FIRST_AXIS + 2 * axis - 1]
    touches[row, FIRST_AXIS] = count
    touches[row, FIRST_AXIS + 1] = step


def repeat_window(
    touches: Any, row: int, step: int, out: int, stride: int, kernel: int, dilation: int
) -> None:
    """Repeat the bytes of a footprint's row along the input positions that windows cover.

    Parameters
    ----------
    touches, row
        The array and the row.
    step
        Bytes from input row to input row, or from column to column.
    out, stride
        Number of windows and their distance.
    kernel, dilation
        Number of taps and their distance.
    """
    if stride == dilation:
        repeat_row(touches, row, out + kernel - 1, dilation * step)
    elif dilation == 1 and stride <= kernel:
        repeat_row(touches, row, (out - 1) * stride + kernel, step)
    else:
        if kernel > 1:
            repeat_row(touches, row, kernel, dilation * step)
        repeat_row(touches, row, out, stride * step)


def get_run_bytes(kind: int, words: Any, layout: Any) -> int:
    """Return the length in bytes of one contiguous run of an operand."""
    size = get_item_bytes(kind, words, layout[OF_SIZE])
    if layout[IS_BLOCKED]:
        channels, rows, columns, inputs = (
            words[layout[FIRST_FACTOR]],
            words[layout[FIRST_FACTOR + 1]],
            words[layout[FIRST_FACTOR + 2]],
            words[layout[FIRST_FACTOR + 3]],
        )
        block = BLOCK_BYTES >> get_element_code(kind, words)
        blocks = (columns * inputs + block - 1) // block
        return int(((channels + LANES - 1) // LANES) * rows * LANES * BLOCK_BYTES * blocks)
    for factor in range(FIRST_FACTOR, OF_FIRST_AXIS):
        if layout[factor] < 0:
            break
        size *= words[layout[factor]]
    return size


def repeat_along_axis(words: Any, touches: Any, row: int, layout: Any, axis: int) -> None:
    """Repeat a footprint's row along one axis of the operand's layout."""
    at = OF_FIRST_AXIS + AXIS_COLUMNS * axis
    step, first = words[layout[at + STEP]], at + FIRST_COUNT
    if layout[at + IS_WINDOWS]:
        repeat_window(
            touches,
            row,
            step,
            words[layout[first]],
            words[layout[first + 1]],
            words[layout[first + 2]],
            words[layout[first + 3]],
        )
        return
    count = words[layout[first]]
    for more in range(first + 1, at + AXIS_COLUMNS):
        if layout[more] >= 0:
            count += words[layout[more]]
    repeat_row(touches, row, count, step)


def repeat_along_all_axes(words: Any, touches: Any, row: int, layout: Any) -> None:
    """Repeat a footprint's row along all axes, smallest step first, so that adjacent runs merge."""
    used = 0
    for _ in range(layout[OF_AXES]):
        best, smallest = -1, 0
        for axis in range(layout[OF_AXES] - 1, -1, -1):
            step = words[layout[OF_FIRST_AXIS + AXIS_COLUMNS * axis + STEP]]
            if used >> axis & 1 == 0 and (best < 0 or step <= smallest):
                best, smallest = axis, step
        used |= 1 << best
        repeat_along_axis(words, touches, row, layout, best)


def add_operand(kind: int, words: Any, touches: Any, layout: Any, writes: bool) -> None:
    """Add the bytes of an operand to a footprint, unless the operand is optional and absent."""
    address = words[layout[OF_ADDRESS]]
    if layout[IS_OPTIONAL] and address == 0:
        return
    row = add_run(touches, writes, layout[OF_NAME], address, get_run_bytes(kind, words, layout))
    if layout[IN_ANY_ORDER] and touches[0, IS_PLAIN] == 0:
        repeat_along_all_axes(words, touches, row, layout)
        return
    for axis in range(layout[OF_AXES]):
        repeat_along_axis(words, touches, row, layout, axis)


def is_written(direction: int, part: int, whole: int) -> bool:
    """Return whether an operand is written by the instruction for part ``part`` of a sum."""
    if direction == READS:
        return False
    if whole:
        return bool(direction != SUMS or part != PART_ONLY)
    return bool((direction == SUMS) == (part in (PART_FIRST, PART_MIDDLE)))


def is_read(direction: int, part: int, whole: int) -> bool:
    """Return whether an operand is read by the instruction for part ``part`` of a sum."""
    if direction == SUMS:
        return bool(not whole and part in (PART_MIDDLE, PART_LAST))
    return bool(direction == READS)


def compute_footprint(kind: int, words: Any, touches: Any) -> None:
    """Compute the bytes that an instruction accesses and store them in ``touches``."""
    clear_footprint(touches)
    whole, part = touches[0, IS_WHOLE], PART_ONLY
    if PART_WORD[kind] >= 0:
        part = words[PART_WORD[kind]]
    for at in range(OPERAND_COUNTS[kind]):
        layout = LAYOUTS[kind, at]
        if is_written(layout[OF_DIRECTION], part, whole):
            add_operand(kind, words, touches, layout, True)
    for at in range(OPERAND_COUNTS[kind]):
        layout = LAYOUTS[kind, at]
        if is_read(layout[OF_DIRECTION], part, whole):
            add_operand(kind, words, touches, layout, False)


def count_operand_bytes(kind: int, words: Any, layout: Any) -> int:
    """Return the number of bytes of an operand, with each byte counted once for each window."""
    nbytes = get_run_bytes(kind, words, layout)
    for axis in range(layout[OF_AXES]):
        at = OF_FIRST_AXIS + AXIS_COLUMNS * axis
        first = at + FIRST_COUNT
        if layout[at + IS_WINDOWS]:
            nbytes *= words[layout[first]] * words[layout[first + 2]]
            continue
        count = words[layout[first]]
        for more in range(first + 1, at + AXIS_COLUMNS):
            if layout[more] >= 0:
                count += words[layout[more]]
        nbytes *= count
    return int(nbytes)


def count_scratchpad_bytes(kind: int, words: Any) -> int:
    """Return the number of scratchpad bytes that an instruction reads and writes.

    An input byte counts once for each window that contains it, any other byte once for each access.
    """
    total, part = 0, PART_ONLY
    if PART_WORD[kind] >= 0:
        part = words[PART_WORD[kind]]
    for at in range(OPERAND_COUNTS[kind]):
        layout = LAYOUTS[kind, at]
        if layout[OF_NAME] == DRAM or (layout[IS_OPTIONAL] and words[layout[OF_ADDRESS]] == 0):
            continue
        if is_written(layout[OF_DIRECTION], part, 0):
            total += count_operand_bytes(kind, words, layout)
        if is_read(layout[OF_DIRECTION], part, 0):
            total += count_operand_bytes(kind, words, layout)
    return total


def count_runs(touches: Any, row: Any) -> int:
    """Return the number of runs (contiguous byte ranges) in a row of a footprint."""
    count = 1
    for axis in range(AXES):
        count *= touches[row, FIRST_AXIS + 2 * axis]
    return count


def find_first_index_after(start: int, base: int, inner: int, step: int) -> int:
    """Return the first index along an axis whose item ends after ``start``."""
    if step == 0 or base + inner > start:
        return 0
    return int((start - base - inner) // step + 1)


def find_end_index_before(end: int, base: int, count: int, step: int) -> int:
    """Return one more than the last index along an axis whose item begins before ``end``."""
    if step == 0 or count == 1:
        return 1
    return int(min(count, (end - 1 - base) // step + 1))


def overlaps_range(touches: Any, row: int, start: int, end: int) -> bool:
    """Return whether a footprint's row contains a byte from ``start`` to ``end - 1``."""
    if touches[row, START] >= end or start >= touches[row, END]:
        return False
    n0, s0 = touches[row, FIRST_AXIS], touches[row, FIRST_AXIS + 1]
    n1, s1 = touches[row, FIRST_AXIS + 2], touches[row, FIRST_AXIS + 3]
    n2, s2 = touches[row, FIRST_AXIS + 4], touches[row, FIRST_AXIS + 5]
    n3, s3 = touches[row, FIRST_AXIS + 6], touches[row, FIRST_AXIS + 7]
    run = touches[row, RUN]
    inner2 = run + (n3 - 1) * s3
    inner1 = inner2 + (n2 - 1) * s2
    inner0 = inner1 + (n1 - 1) * s1
    a = touches[row, START]
    for i in range(
        find_first_index_after(start, a, inner0, s0), find_end_index_before(end, a, n0, s0)
    ):
        b = a + i * s0
        for j in range(
            find_first_index_after(start, b, inner1, s1), find_end_index_before(end, b, n1, s1)
        ):
            c = b + j * s1
            for k in range(
                find_first_index_after(start, c, inner2, s2), find_end_index_before(end, c, n2, s2)
            ):
                d = c + k * s2
                if find_first_index_after(start, d, run, s3) < find_end_index_before(
                    end, d, n3, s3
                ):
                    return True
    return False


def get_run_start(touches: Any, row: Any, index: int) -> int:
    """Return the start address of run number ``index`` in a row of a footprint."""
    address = touches[row, START]
    for axis in range(AXES - 1, -1, -1):
        count, step = touches[row, FIRST_AXIS + 2 * axis], touches[row, FIRST_AXIS + 2 * axis + 1]
        if count > 1:
            address += index % count * step
            index //= count
    return int(address)


def rows_overlap(a: Any, row: int, b: Any, other: int) -> bool:
    """Return whether two rows of footprints have a byte in common."""
    if a[row, START] >= b[other, END] or b[other, START] >= a[row, END]:
        return False
    if count_runs(b, other) < count_runs(a, row):
        return runs_overlap(b, other, a, row)
    return runs_overlap(a, row, b, other)


def runs_overlap(a: Any, row: int, b: Any, other: int) -> bool:
    """Return whether any run in a row of one footprint overlaps a row of another footprint."""
    for index in range(count_runs(a, row)):
        start = get_run_start(a, row, index)
        if overlaps_range(b, other, start, start + a[row, RUN]):
            return True
    return False
