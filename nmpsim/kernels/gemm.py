"""Matrix product of activations on the MAC array."""

from __future__ import annotations

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import (
    find_max_magnitude,
    may_overflow,
    read_partial_sums,
    saturate_sums,
)
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int64s
from nmpsim.kernels.channel_tables import fill_channel_table
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ZERO, ScratchpadViews, read_elements, write_elements
from nmpsim.kernels.operands import MacTile, MatmulShape
from nmpsim.kernels.requantize import requantize
from nmpsim.kernels.workspace_size import TABLE_ROWS


@jit
def add_products(
    values: Int8s | Int16s, start: Int, stride: Int, offset: Int, factors: Int64s, sums: Int64s
) -> None:
    """Add ``factors[k] * (row k of values - offset)`` to ``sums`` for every ``k``.

    ``start`` and ``stride`` are in elements. Four rows are added at a time, so that sums are read
    and written less often.
    """
    count = sums.size
    fours = factors.size // 4 * 4
    for k in range(0, fours, 4):
        a = start + k * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        row_a, row_b = values[a : a + count], values[b : b + count]
        row_c, row_d = values[c : c + count], values[d : d + count]
        for i in range(count):
            one = factors[k] * (np.int64(row_a[i]) - offset)
            one += factors[k + 1] * (np.int64(row_b[i]) - offset)
            two = factors[k + 2] * (np.int64(row_c[i]) - offset)
            two += factors[k + 3] * (np.int64(row_d[i]) - offset)
            sums[i] += one + two
    for k in range(fours, factors.size):
        a = start + k * stride
        row = values[a : a + count]
        for i in range(count):
            sums[i] += factors[k] * (np.int64(row[i]) - offset)


@jit
def add_row_products(
    spm: ScratchpadViews, element: Int, start: Int, g: MatmulShape, factors: Int64s, sums: Int64s
) -> None:
    """Add ``factors[k] * (row k of the right matrix - its zero point)`` to ``sums`` for each k."""
    if element == INT16:
        add_products(spm.i16, start >> 1, g.rhs_stride >> 1, g.rhs_offset, factors, sums)
    else:
        add_products(spm.i8, start, g.rhs_stride, g.rhs_offset, factors, sums)


@jit
def multiply_rows(t: MacTile, table: Int64s, factors: Int64s, sums: Int64s) -> None:
    """Multiply each left row by the right matrix; write its results or partial sums.

    ``factors`` [inner] and ``sums`` [columns] are buffers.
    """
    spm, g, at, element, counters = t.spm, t.shape, t.at, t.q.element, t.counters
    fill_channel_table(spm, at, t.q, ZERO, table)
    for row in range(g.rows):
        index = t.place.origin + row * t.place.stride_y
        partial = at.partial + ((row * g.columns) << (2 + element))
        if t.parts.begins:
            sums[:] = 0
        else:
            read_partial_sums(spm, element, partial, sums)
        is_checked = may_overflow(find_max_magnitude(sums), 2 * g.inner, element)
        read_elements(spm, element, at.input + row * g.lhs_stride, factors)
        for k in range(g.inner):
            factors[k] -= g.lhs_offset
        if is_checked:
            for k in range(g.inner):
                start = at.weights + k * g.rhs_stride
                add_row_products(spm, element, start, g, factors[k : k + 1], sums)
                saturate_sums(sums, element, index, counters)
        else:
            add_row_products(spm, element, at.weights, g, factors, sums)
        if t.parts.ends:
            requantize(sums, table, t.q, index, counters)
            write_elements(sums, spm, element, at.output + row * g.out_stride)
        else:
            write_elements(sums, spm, 2 + element, partial)
    if t.parts.ends:
        counters.layers[counters.layer].elements += g.rows * g.columns


@jit_allocating
def multiply_matrices(t: MacTile) -> None:
    """Multiply the matrices at ``at.input`` and ``at.weights``; write results or partial sums."""
    inner, columns = t.shape.inner, t.shape.columns
    table = np.zeros((TABLE_ROWS, columns), np.int64)
    multiply_rows(t, table, np.zeros(inner, np.int64), np.zeros(columns, np.int64))
