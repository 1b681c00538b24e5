"""Operations of two tensors, element by element, on one core's scratchpad.

A run is a row of a tile; where nothing else is said its result goes into ``left``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.array_types import Int
from nmpsim.kernels.elementwise_blocks import CLIPS, NUMBERS, ROWS, SUM
from nmpsim.kernels.elementwise_int8 import (
    RUN_BYTES,
    is_regular,
    put_run,
    put_sum_numbers,
)
from nmpsim.kernels.elementwise_int16 import is_sum_of_words, put_sums
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ORIGIN, Scratchpad, copy_run, read_run, write_run
from nmpsim.kernels.operands import Pair, PairScales, Place
from nmpsim.kernels.pair_profiles import pair_results
from nmpsim.kernels.saturate import ONCE, SaturationCounters, clip_run, saturate_run
from nmpsim.kernels.saturation_stages import RESCALE
from nmpsim.kernels.scale_runs import add_integer


@jit
def sides_of(t: Pair, row: Int) -> Any:
    """First bytes of left, right and result of a row."""
    return t.lhs + row * t.lhs_stride, t.rhs + row * t.rhs_stride, t.output + row * t.out_stride


@jit_allocating
def sum_bytes(
    spm: Scratchpad, t: Pair, q: PairScales, place: Place, counters: SaturationCounters
) -> Any:
    """The whole tile, if it is such that 16 bits hold every number on the way; else False."""
    channels = counters.layers[place.layer].channels
    numbers = np.empty(NUMBERS, np.int16)
    if not put_sum_numbers(t, q, numbers):
        return False
    rows, count = t.rows, t.columns
    steps = t.lhs_stride, t.rhs_stride, t.out_stride, place.stride_y
    if min(steps) == count and max(steps) == count:
        rows, count = ONCE, rows * count
    for row in range(rows):
        index = place.origin + row * place.stride_y
        if not is_regular(sides_of(t, row), index, count, channels):
            return False
    table = np.empty((CLIPS, ROWS, min(count, channels)), np.int16)
    room = np.empty(2 * max(RUN_BYTES, channels), np.int8)
    for row in range(rows):
        sides, index = sides_of(t, row), place.origin + row * place.stride_y
        put_run(spm, SUM, sides, count, numbers, table, room, q.clip, index, place.layer, counters)
    return True


@jit_allocating
def sum_words(
    spm: Scratchpad, t: Pair, q: PairScales, place: Place, counters: SaturationCounters
) -> Any:
    """The whole tile, if it is such that 32 bits hold every number on the way; else False."""
    if not is_sum_of_words(t, q):
        return False
    count = t.columns
    values = np.empty(count, np.int32)
    for row in range(t.rows):
        lhs, rhs, output = sides_of(t, row)
        left, right = lhs >> 1, rhs >> 1
        put_sums(spm.i16[left : left + count], spm.i16[right : right + count], q, values)
        index = place.origin + row * place.stride_y
        clip_run(values, count, q.clip, index, place.layer, counters)
        copy_run(values, ORIGIN, spm.i16, output >> 1, count)
    return True


@jit_allocating
def eltwise(
    spm: Scratchpad, t: Pair, q: PairScales, place: Place, counters: SaturationCounters
) -> None:
    """Binary operation of one tile."""
    count = t.columns
    counters.layers[place.layer].elements += t.rows * count
    if sum_bytes(spm, t, q, place, counters) or sum_words(spm, t, q, place, counters):
        return
    left = np.zeros(count, np.int64)
    right = np.zeros(count, np.int64)
    reals = np.zeros(count, np.float32)
    other = np.zeros(count, np.float32)
    for row in range(t.rows):
        index = place.origin + row * place.stride_y
        lhs, rhs, output = sides_of(t, row)
        read_run(spm, t.element, lhs, left, count)
        read_run(spm, t.rhs_size, rhs, right, count)
        add_integer(left, count, -q.lhs_offset)
        add_integer(right, count, -q.rhs_offset)
        saturate_run(right, count, RESCALE, index, place.layer, counters)
        pair_results(left, right, reals, other, count, t, q, index, place.layer, counters)
        clip_run(left, count, q.clip, index, place.layer, counters)
        write_run(left, count, spm, t.element, output)
