"""Product of two matrices of activations on the MAC array."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import largest, may_overflow, read_sums, saturate_sums
from nmpsim.kernels.channels import INTEGERS, REALS, put_channels
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ORIGIN, read_run, write_run
from nmpsim.kernels.requantize import requantize


class Product(NamedTuple):
    """Geometry of a matrix product; strides in bytes."""

    rows: Any
    inner: Any
    columns: Any
    lhs_stride: Any
    rhs_stride: Any
    out_stride: Any
    lhs_offset: Any
    rhs_offset: Any


@jit
def add_row(values: Any, start: Any, offset: Any, factor: Any, sums: Any) -> None:
    """Add ``factor * (value - offset)`` of a row from element ``start`` on to the sums."""
    run = values[start : start + sums.size]
    for c in range(sums.size):
        sums[c] += factor * (np.int64(run[c]) - offset)


@jit_allocating
def gemm(spm: Any, g: Any, at: Any, parts: Any, q: Any, place: Any, sink: Any) -> None:
    """``at.input`` times ``at.weights``; sums in the order of the inner dimension."""
    element, columns = q.element, g.columns
    integers = np.zeros((INTEGERS, columns), np.int64)
    reals = np.zeros((REALS, columns), np.float64)
    put_channels(spm, at, q, ORIGIN, integers, reals)
    sums = np.zeros(columns, np.int64)
    factors = np.zeros(g.inner, np.int64)
    for row in range(g.rows):
        index = place.origin + row * place.stride_y
        partial = at.partial + ((row * columns) << (2 + element))
        if parts.begins:
            sums[:] = 0
        else:
            read_sums(spm, element, partial, sums)
        checked = may_overflow(largest(sums), 2 * g.inner, element)
        read_run(spm, element, at.input + row * g.lhs_stride, factors, g.inner)
        for k in range(g.inner):
            factor = factors[k] - g.lhs_offset
            source = at.weights + k * g.rhs_stride
            if element == INT16:
                add_row(spm.i16, source >> 1, g.rhs_offset, factor, sums)
            else:
                add_row(spm.i8, source, g.rhs_offset, factor, sums)
            if checked:
                saturate_sums(sums, element, index, place.layer, sink)
        if parts.ends:
            requantize(sums, integers, reals, q, index, place.layer, sink)
            write_run(sums, columns, spm, element, at.output + row * g.out_stride)
        else:
            write_run(sums, columns, spm, 2 + element, partial)
    if parts.ends:
        sink.layers[place.layer].elements += g.rows * columns
