"""Copies of bytes, and of elements to and from int64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s, Int64s, Integers
from nmpsim.kernels.jit import jit, jit_inlined
from nmpsim.kernels.operands import ConvShape, CopyShape

ZERO: Any = np.int64(0)
"""The integer 0."""
ONE: Any = np.int64(1)


class ScratchpadViews(NamedTuple):
    """Views of a core's scratchpad as int8, int16, int32 and int64 arrays."""

    i8: Int8s
    i16: Int16s
    i32: Int32s
    i64: Int64s


@jit
def copy_elements(source: Integers, start: Int, target: Integers, to: Int, count: Int) -> None:
    """Copy ``count`` consecutive elements from ``source`` to ``target``.

    A loop, because an assignment of slices would include code that reports wrong shapes. It is over
    slices, because LLVM vectorizes only indices that begin at zero.
    """
    taken = source[start : start + count]
    given = target[to : to + count]
    for i in range(count):
        given[i] = taken[i]


@jit
def read_elements(spm: ScratchpadViews, size: Int, start: Int, values: Int64s) -> None:
    """Read adjacent elements of ``1 << size`` bytes into ``values``, starting at byte ``start``."""
    if size == 0:
        copy_elements(spm.i8, start, values, ZERO, values.size)
    elif size == 1:
        copy_elements(spm.i16, start >> 1, values, ZERO, values.size)
    elif size == 2:
        copy_elements(spm.i32, start >> 2, values, ZERO, values.size)
    else:
        copy_elements(spm.i64, start >> 3, values, ZERO, values.size)


@jit
def write_elements(values: Int64s, spm: ScratchpadViews, size: Int, to: Int) -> None:
    """Write ``values`` as adjacent elements of ``1 << size`` bytes, starting at byte ``to``."""
    if size == 0:
        copy_elements(values, ZERO, spm.i8, to, values.size)
    elif size == 1:
        copy_elements(values, ZERO, spm.i16, to >> 1, values.size)
    elif size == 2:
        copy_elements(values, ZERO, spm.i32, to >> 2, values.size)
    else:
        copy_elements(values, ZERO, spm.i64, to >> 3, values.size)


@jit
def copy_strided(source: Integers, start: Int, target: Integers, to: Int, box: CopyShape) -> None:
    """Copy a strided box from element ``start`` of ``source`` to element ``to`` of ``target``."""
    runs, run = box.count_x, box.run
    if box.from_stride_x == run and box.to_stride_x == run:
        runs, run = ONE, runs * run
    for y in range(box.count_y):
        for x in range(runs):
            a = start + y * box.from_stride_y + x * box.from_stride_x
            b = to + y * box.to_stride_y + x * box.to_stride_x
            copy_elements(source, a, target, b, run)


@jit
def fill_rows(
    target: Integers,
    to: Int,
    rows: Int,
    row_stride: Int,
    runs: Int,
    run_stride: Int,
    run: Int,
    value: Int,
) -> None:
    """Fill ``rows`` x ``runs`` segments of ``run`` consecutive elements with a value."""
    if run_stride == run:
        runs, run = ONE, runs * run
    for y in range(rows):
        for x in range(runs):
            a = to + y * row_stride + x * run_stride
            target[a : a + run] = value


@jit
def copy_strided_elements(
    spm: Int8s, element: Int, source: Int, step: Int, target: Int, to_step: Int, count: Int
) -> None:
    """Copy ``count`` elements from and to equally spaced byte addresses."""
    if element == 1:
        for i in range(count):
            spm[target + i * to_step] = spm[source + i * step]
        return
    for i in range(count):
        for byte in range(element):
            spm[target + i * to_step + byte] = spm[source + i * step + byte]


@jit
def can_swap_loops(element: Int, sizes: Int64s, to_strides: Int64s) -> Any:
    """Return whether the two inner loops of a permutation may be swapped: no results overlap.

    That is if none of their results overlap. Instructions never write onto their inputs.
    """
    return to_strides[3] >= element and to_strides[2] >= sizes[3] * to_strides[3]


@jit
def permute(
    spm: Int8s,
    source: Int,
    target: Int,
    element: Int,
    sizes: Int64s,
    from_strides: Int64s,
    to_strides: Int64s,
) -> None:
    """Permute an array of up to four dimensions by copying elements between strides."""
    outer, inner = 2, 3
    if sizes[3] < sizes[2] and can_swap_loops(element, sizes, to_strides):
        outer, inner = 3, 2  # a long row takes less time than many short ones
    step, to_step, count = from_strides[inner], to_strides[inner], sizes[inner]
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            for k in range(sizes[outer]):
                a = source + i * from_strides[0] + j * from_strides[1] + k * from_strides[outer]
                b = target + i * to_strides[0] + j * to_strides[1] + k * to_strides[outer]
                copy_strided_elements(spm, element, a, step, b, to_step, count)


@jit
def get_padded_row_length(w: ConvShape, element: Int) -> Any:
    """Return the number of inputs in a window row, padded to whole steps of weights."""
    side = 4 >> element
    return (w.kernel_w * w.in_channels + side - 1) // side * side


@jit_inlined
def gather_window(
    spm: ScratchpadViews, element: Int, w: ConvShape, corner: Int, patch: Int16s
) -> None:
    """Copy the inputs of the window at byte ``corner`` to ``patch``, with rows padded to steps."""
    row, length, columns = get_padded_row_length(w, element), w.in_channels, w.kernel_w
    if w.dilation_w == 1 and w.in_pixel_stride == w.in_channels << element:
        length *= columns
        columns = 1
    for ky in range(w.kernel_h):
        for kx in range(columns):
            source = corner + ky * w.dilation_h * w.in_row_stride
            source += kx * w.dilation_w * w.in_pixel_stride
            target = ky * row + kx * length
            if element == INT16:
                copy_elements(spm.i16, source >> 1, patch, target, length)
            else:
                copy_elements(spm.i8, source, patch, target, length)
