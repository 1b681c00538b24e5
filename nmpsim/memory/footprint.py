"""Which bytes a tensor instruction reads and writes, to the byte.

``footprint(kind, words, touches)`` puts a row into ``touches`` for each operand, those that are
written first: a run of bytes, repeated along up to four axes. The words must have passed the
checks of :mod:`nmpsim.memory.checks`. Plain functions, which the compiled engine compiles.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from nmpsim.isa.table import DESCRIPTORS
from nmpsim.isa.total import check_total
from nmpsim.isa.words import (
    CHANNEL_BYTES,
    CONV,
    DWCONV,
    ELTWISE,
    FILL,
    GEMM,
    LOAD,
    LUT,
    MAX_WORDS,
    MAXPOOL,
    PART_FIRST,
    PART_LAST,
    PART_MIDDLE,
    RESCALE,
    RHS_INT32,
    SCALE_BYTES,
    STORE,
    TRANSPOSE,
)

OPERANDS = (
    "dram",
    "spm",
    "input",
    "weights",
    "channels",
    "scales",
    "partial",
    "output",
    "lhs",
    "rhs",
    "table",
    "word",
    "descriptor",
    "code",
    "tensor",
)
"""What is touched; a touch has its position. The last four are of scalar loads and stores, of
every instruction, and of the host."""
(
    DRAM,
    SPM,
    INPUT,
    WEIGHTS,
    CHANNELS,
    SCALES,
    PARTIAL,
    OUTPUT,
    LHS,
    RHS,
    TABLE,
    WORD,
    DESCRIPTOR,
    CODE,
    TENSOR,
) = range(len(OPERANDS))

KINDS = {name: kind for kind, name in enumerate(DESCRIPTORS)}
"""Descriptor -> what ``footprint`` calls it."""
_LOAD, _STORE, _CONV, _DWCONV, _GEMM = (
    KINDS[name] for name in ("load", "store", "conv", "dwconv", "gemm")
)
_MAXPOOL, _AVGPOOL, _ELTWISE = (KINDS[name] for name in ("maxpool", "avgpool", "eltwise"))
_RESCALE, _LUT, _FILL, _TRANSPOSE = (
    KINDS[name] for name in ("rescale", "lut", "fill", "transpose")
)

AXES = 4
START, END, WHAT, RUN, FIRST_AXIS = range(5)
"""Entries of a touch: addresses of the first byte and behind the last one, an index of OPERANDS,
bytes of a run; then (count, step) of each axis, outermost first, those of count 1 last."""
TOUCH_WORDS = FIRST_AXIS + 2 * AXES
WRITES, COUNT, IS_PLAIN = range(3)
"""Entries of row 0 of ``touches``: how many rows behind it are writes, and how many there are; 1
if axes are to stay as they are (those that are not there have a count of 0), or else runs that
touch become one.
"""
MAX_TOUCHES = 8
"""Rows that an instruction can need, row 0 included."""
_OUT_W, _IN_ROW, _IN_PIXEL, _OUT_ROW, _OUT_PIXEL = (
    index - CONV.out_h
    for index in (
        CONV.out_w,
        CONV.in_row_stride,
        CONV.in_pixel_stride,
        CONV.out_row_stride,
        CONV.out_pixel_stride,
    )
)
"""Distances from ``out_h``, which convolutions and pools share."""
_KERNEL_W, _STRIDE_H, _STRIDE_W, _DILATION_H, _DILATION_W, _OUT_H = (
    index - CONV.kernel_h
    for index in (
        CONV.kernel_w,
        CONV.stride_h,
        CONV.stride_w,
        CONV.dilation_h,
        CONV.dilation_w,
        CONV.out_h,
    )
)
"""Distances from ``kernel_h``, which both convolutions share."""


def begin_touches(touches: Any) -> None:
    """No operand yet."""
    touches[0, WRITES] = 0
    touches[0, COUNT] = 0


def touch(touches: Any, writes: bool, what: int, start: int, run: int) -> int:
    """Add ``run`` bytes; those written must come first. The row, for ``repeat``; 0 if empty."""
    if run <= 0:
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


def repeat(touches: Any, row: int, count: int, step: int) -> None:
    """Repeat what a row has so far, as an axis outside of those that it has.

    A row without bytes stays without, and a count of 0 empties the
    row, which must be the last one.
    """
    if row == 0 or row > touches[0, COUNT]:
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
    """Repeat along the rows (or columns, ``step`` bytes apart) that windows reach.

    ``out`` windows, ``stride`` apart, have ``kernel`` taps, ``dilation`` apart.
    """
    if stride == dilation:
        repeat(touches, row, out + kernel - 1, dilation * step)
    elif dilation == 1 and stride <= kernel:
        repeat(touches, row, (out - 1) * stride + kernel, step)
    else:
        if kernel > 1:
            repeat(touches, row, kernel, dilation * step)
        repeat(touches, row, out, stride * step)


def transfer(d: Any, touches: Any, is_load: bool) -> None:
    """Both sides of a transfer; a load and a store begin with the same words."""
    run, count_x, count_y = d[LOAD.run_bytes], d[LOAD.count_x], d[LOAD.count_y]
    wide, high = count_x, count_y
    if is_load:
        wide += d[LOAD.pad_x_before] + d[LOAD.pad_x_after]
        high += d[LOAD.pad_y_before] + d[LOAD.pad_y_after]
    for side in range(2):
        if (side == 0) == is_load:
            row = touch(touches, side == 0, SPM, d[LOAD.spm], run)
            repeat(touches, row, wide, d[LOAD.spm_stride_x])
            repeat(touches, row, high, d[LOAD.spm_stride_y])
        else:
            row = touch(touches, side == 0, DRAM, d[STORE.dram], run)
            repeat(touches, row, count_x, d[STORE.dram_stride_x])
            repeat(touches, row, count_y, d[STORE.dram_stride_y])


def image_result(d: Any, touches: Any, output: int, out_h: int, pixel: int) -> None:
    """``output`` and ``out_h`` are the indices of these words; the others follow ``out_h``."""
    row = touch(touches, True, OUTPUT, d[output], pixel)
    repeat(touches, row, d[out_h + _OUT_W], d[out_h + _OUT_PIXEL])
    repeat(touches, row, d[out_h], d[out_h + _OUT_ROW])


def windows(d: Any, touches: Any, kernel_h: int, pixel: int) -> None:
    """A convolution's input; ``kernel_h`` is the index of that word."""
    row = touch(touches, False, INPUT, d[CONV.input], pixel)
    out_h = kernel_h + _OUT_H
    repeat_window(
        touches,
        row,
        d[out_h + _IN_PIXEL],
        d[out_h + _OUT_W],
        d[kernel_h + _STRIDE_W],
        d[kernel_h + _KERNEL_W],
        d[kernel_h + _DILATION_W],
    )
    repeat_window(
        touches,
        row,
        d[out_h + _IN_ROW],
        d[out_h],
        d[kernel_h + _STRIDE_H],
        d[kernel_h],
        d[kernel_h + _DILATION_H],
    )


def tables(d: Any, touches: Any, channels: int) -> None:
    """Records of channels, and of scales if there are some."""
    touch(touches, False, CHANNELS, d[CONV.channels], channels * CHANNEL_BYTES)
    if d[CONV.scales] != 0:
        touch(touches, False, SCALES, d[CONV.scales], channels * SCALE_BYTES)


def conv_footprint(d: Any, touches: Any) -> None:
    """A convolution."""
    channels, element, part = d[CONV.out_channels], d[CONV.element], d[CONV.part]
    sums = d[CONV.out_h] * d[CONV.out_w] * channels * (4 << element)
    if part in (PART_FIRST, PART_MIDDLE):
        touch(touches, True, PARTIAL, d[CONV.partial], sums)
    else:
        image_result(d, touches, CONV.output, CONV.out_h, channels << element)
    windows(d, touches, CONV.kernel_h, d[CONV.groups] * d[CONV.in_channels] << element)
    block = 4 >> element
    blocks = (d[CONV.kernel_w] * d[CONV.in_channels] + block - 1) // block
    weights = ((channels + 15) // 16) * d[CONV.kernel_h] * 64 * blocks
    touch(touches, False, WEIGHTS, d[CONV.weights], weights)
    tables(d, touches, channels)
    if part in (PART_MIDDLE, PART_LAST):
        touch(touches, False, PARTIAL, d[CONV.partial], sums)


def dwconv_footprint(d: Any, touches: Any) -> None:
    """A depthwise convolution."""
    channels = d[DWCONV.channels_count]
    pixel = channels << d[DWCONV.element]
    image_result(d, touches, DWCONV.output, DWCONV.out_h, pixel)
    windows(d, touches, DWCONV.kernel_h, pixel)
    taps = d[DWCONV.kernel_h] * d[DWCONV.kernel_w]
    touch(touches, False, WEIGHTS, d[DWCONV.weights], taps * pixel)
    tables(d, touches, channels)


def matrix(
    touches: Any, writes: bool, what: int, start: int, rows: int, stride: int, run: int
) -> None:
    """Rows of ``run`` bytes."""
    row = touch(touches, writes, what, start, run)
    repeat(touches, row, rows, stride)


def gemm_footprint(d: Any, touches: Any) -> None:
    """A matrix product."""
    element, part = d[GEMM.element], d[GEMM.part]
    rows, inner, columns = d[GEMM.rows], d[GEMM.inner], d[GEMM.columns]
    sums = rows * columns * (4 << element)
    if part in (PART_FIRST, PART_MIDDLE):
        touch(touches, True, PARTIAL, d[GEMM.partial], sums)
    else:
        run = columns << element
        matrix(touches, True, OUTPUT, d[GEMM.output], rows, d[GEMM.out_stride], run)
    matrix(touches, False, LHS, d[GEMM.lhs], rows, d[GEMM.lhs_stride], inner << element)
    matrix(touches, False, RHS, d[GEMM.rhs], inner, d[GEMM.rhs_stride], columns << element)
    if part in (PART_MIDDLE, PART_LAST):
        touch(touches, False, PARTIAL, d[GEMM.partial], sums)


def pool_footprint(d: Any, touches: Any) -> None:
    """A pool of either kind: the input is what exists of it."""
    pixel = d[MAXPOOL.channels] << d[MAXPOOL.element]
    image_result(d, touches, MAXPOOL.output, MAXPOOL.out_h, pixel)
    row = touch(touches, False, INPUT, d[MAXPOOL.input], pixel)
    repeat(touches, row, d[MAXPOOL.in_w], d[MAXPOOL.in_pixel_stride])
    repeat(touches, row, d[MAXPOOL.in_h], d[MAXPOOL.in_row_stride])


def eltwise_footprint(d: Any, touches: Any) -> None:
    """An elementwise operation."""
    rows, columns = d[ELTWISE.rows], d[ELTWISE.columns]
    run = columns << d[ELTWISE.element]
    wide = 4 * columns if d[ELTWISE.rhs_kind] == RHS_INT32 else run
    matrix(touches, True, OUTPUT, d[ELTWISE.output], rows, d[ELTWISE.out_stride], run)
    matrix(touches, False, LHS, d[ELTWISE.lhs], rows, d[ELTWISE.lhs_stride], run)
    matrix(touches, False, RHS, d[ELTWISE.rhs], rows, d[ELTWISE.rhs_stride], wide)


def transpose_footprint(d: Any, touches: Any) -> None:
    """A strided copy."""
    size = d[TRANSPOSE.element_bytes]
    for side in range(2):
        what = OUTPUT if side == 0 else INPUT
        first = TRANSPOSE.out_stride_0 if side == 0 else TRANSPOSE.in_stride_0
        start = d[TRANSPOSE.output] if side == 0 else d[TRANSPOSE.input]
        row = touch(touches, side == 0, what, start, size)
        used = 0
        for last in range(AXES - 1, -1, -1):
            best = last
            if touches[0, IS_PLAIN] == 0:
                # The smallest step first, so that runs become as long as can be.
                best = -1
                for axis in range(AXES):
                    if used >> axis & 1 == 0 and (best < 0 or d[first + axis] <= d[first + best]):
                        best = axis
            used |= 1 << best
            repeat(touches, row, d[TRANSPOSE.size_0 + best], d[first + best])


def footprint(kind: int, words: Any, touches: Any) -> bool:
    """Fill ``touches``, int64 [MAX_TOUCHES, TOUCH_WORDS]; False for an unknown kind."""
    begin_touches(touches)
    if kind in (_LOAD, _STORE):
        transfer(words, touches, kind == _LOAD)
    elif kind == _CONV:
        conv_footprint(words, touches)
    elif kind == _DWCONV:
        dwconv_footprint(words, touches)
    elif kind == _GEMM:
        gemm_footprint(words, touches)
    elif kind in (_MAXPOOL, _AVGPOOL):
        pool_footprint(words, touches)
    elif kind == _ELTWISE:
        eltwise_footprint(words, touches)
    elif kind == _RESCALE:
        count = words[RESCALE.count] << words[RESCALE.element]
        touch(touches, True, OUTPUT, words[RESCALE.output], count)
        touch(touches, False, INPUT, words[RESCALE.input], count)
    elif kind == _LUT:
        touch(touches, True, OUTPUT, words[LUT.output], words[LUT.count])
        touch(touches, False, INPUT, words[LUT.input], words[LUT.count])
        touch(touches, False, TABLE, words[LUT.table], 256)
    elif kind == _FILL:
        count = words[FILL.count] << words[FILL.element]
        touch(touches, True, OUTPUT, words[FILL.output], count)
    elif kind == _TRANSPOSE:
        transpose_footprint(words, touches)
    else:
        return False
    return True


def runs_of(touches: Any, row: int) -> int:
    """Runs that a row has."""
    count = 1
    for axis in range(AXES):
        count *= touches[row, FIRST_AXIS + 2 * axis]
    return count


def first_near(start: int, base: int, inner: int, step: int) -> int:
    """First index along an axis whose piece of ``inner`` bytes ends behind ``start``."""
    if step == 0 or base + inner > start:
        return 0
    return int((start - base - inner) // step + 1)


def behind_near(end: int, base: int, count: int, step: int) -> int:
    """Index behind the last one along an axis whose piece begins before ``end``."""
    if step == 0 or count == 1:
        return 1
    return int(min(count, (end - 1 - base) // step + 1))


def meets_range(touches: Any, row: int, start: int, end: int) -> bool:
    """True if a row has a byte of a range; only runs near it are looked at."""
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
    for i in range(first_near(start, a, inner0, s0), behind_near(end, a, n0, s0)):
        b = a + i * s0
        for j in range(first_near(start, b, inner1, s1), behind_near(end, b, n1, s1)):
            c = b + j * s1
            for k in range(first_near(start, c, inner2, s2), behind_near(end, c, n2, s2)):
                d = c + k * s2
                if first_near(start, d, run, s3) < behind_near(end, d, n3, s3):
                    return True
    return False


def rows_meet(a: Any, row: int, b: Any, other: int) -> bool:
    """True if a row of one footprint shares a byte with a row of another one."""
    if a[row, START] >= b[other, END] or b[other, START] >= a[row, END]:
        return False
    if a[row, FIRST_AXIS] == 1:
        return meets_range(b, other, a[row, START], a[row, END])
    if b[other, FIRST_AXIS] == 1:
        return meets_range(a, row, b[other, START], b[other, END])
    if runs_of(b, other) < runs_of(a, row):
        return runs_meet(b, other, a, row)
    return runs_meet(a, row, b, other)


def runs_meet(a: Any, row: int, b: Any, other: int) -> bool:
    """The same, run by run of the first one."""
    start, end, run = b[other, START], b[other, END], a[row, RUN]
    n0, s0 = a[row, FIRST_AXIS], a[row, FIRST_AXIS + 1]
    n1, s1 = a[row, FIRST_AXIS + 2], a[row, FIRST_AXIS + 3]
    n2, s2 = a[row, FIRST_AXIS + 4], a[row, FIRST_AXIS + 5]
    n3, s3 = a[row, FIRST_AXIS + 6], a[row, FIRST_AXIS + 7]
    inner2 = run + (n3 - 1) * s3
    inner1 = inner2 + (n2 - 1) * s2
    inner0 = inner1 + (n1 - 1) * s1
    p = a[row, START]
    for i in range(first_near(start, p, inner0, s0), behind_near(end, p, n0, s0)):
        q = p + i * s0
        for j in range(first_near(start, q, inner1, s1), behind_near(end, q, n1, s1)):
            r = q + j * s1
            for k in range(first_near(start, r, inner2, s2), behind_near(end, r, n2, s2)):
                s = r + k * s2
                for m in range(first_near(start, s, run, s3), behind_near(end, s, n3, s3)):
                    if meets_range(b, other, s + m * s3, s + m * s3 + run):
                        return True
    return False


FUNCTIONS = (
    begin_touches,
    touch,
    repeat,
    repeat_window,
    transfer,
    image_result,
    windows,
    tables,
    conv_footprint,
    dwconv_footprint,
    matrix,
    gemm_footprint,
    pool_footprint,
    eltwise_footprint,
    transpose_footprint,
    footprint,
    runs_of,
    first_near,
    behind_near,
    meets_range,
    runs_meet,
    rows_meet,
)
"""What the compiled engine compiles, callees first."""


def _known_descriptors() -> list[str]:
    """The descriptors that have a footprint."""
    words, touches = [0] * MAX_WORDS, defaultdict[tuple[int, int], int](int)
    return [name for name, kind in KINDS.items() if footprint(kind, words, touches)]


check_total(f"{__name__}.footprint", _known_descriptors(), KINDS)
