"""Operations of one or two tensors, element by element, on one core's scratchpad.

A run is a row of a tile; where nothing else is said its result goes into ``left``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import GLOW_FLOAT
from nmpsim.isa.words import INT16, OP_ADD
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s
from nmpsim.kernels.elementwise_blocks import CLIPS, NUMBERS, ROWS, SUM
from nmpsim.kernels.elementwise_int8 import (
    RUN_BYTES,
    is_regular,
    put_rescale_numbers,
    put_run,
    put_sum_numbers,
    rescale_of,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ORIGIN, Scratchpad, copy_run, read_run, write_run
from nmpsim.kernels.operands import Clip, IntegerScale, Pair, PairScales, Place, Sides, Unary
from nmpsim.kernels.pair_profiles import pair_results
from nmpsim.kernels.profiles import is_real, rescale_results
from nmpsim.kernels.rounding import float_of_bits, nearest_word
from nmpsim.kernels.saturate import ONCE, SaturationCounters, clip_run, saturate_run
from nmpsim.kernels.saturation_stages import RESCALE
from nmpsim.kernels.scaling import add_to_run

_MAX: Any = np.float64(1 << 29)
"""Two sides, and what float32 rounds, stay below 2^30 with it."""
_LARGEST: Any = np.float64(1 << 15)
"""Magnitude of an Int16."""


@jit
def largest_side(scale: IntegerScale, offset: Int) -> Any:
    """At least the largest magnitude of a side, without its zero point and on its scale."""
    magnitude = _LARGEST + np.abs(offset)
    return magnitude + magnitude * abs(np.float64(float_of_bits(scale.mul)))


@jit
def is_sum_of_words(t: Pair, q: PairScales) -> Any:
    """True if :func:`put_sums` may compute an operation."""
    is_int16 = t.element == INT16 and t.rhs_size == INT16
    if not is_int16 or t.operation != OP_ADD or q.profile != GLOW_FLOAT:
        return False
    left = largest_side(q.lhs_scale, q.lhs_offset)
    right = largest_side(q.rhs_scale, q.rhs_offset)
    factor = abs(np.float64(float_of_bits(q.out_scale.mul)))
    # No comparison with what is no number is true.
    return left + right < _MAX and (left + right) * factor + np.abs(q.out_offset) < _MAX


@jit
def put_sums(left: Int16s, right: Int16s, q: PairScales, values: Int32s) -> None:
    """Results of a run before the clip, as int32."""
    lhs, rhs = float_of_bits(q.lhs_scale.mul), float_of_bits(q.rhs_scale.mul)
    factor, addend = float_of_bits(q.out_scale.mul), np.float32(q.out_offset)
    for i in range(values.size):
        one = nearest_word(np.float32(np.int32(left[i] - q.lhs_offset)) * lhs)
        other = nearest_word(np.float32(np.int32(right[i] - q.rhs_offset)) * rhs)
        values[i] = nearest_word(np.float32(np.int32(one + other)) * factor + addend)


@jit
def sides_of(t: Pair, row: Int) -> Any:
    """First bytes of left, right and result of a row."""
    return t.lhs + row * t.lhs_stride, t.rhs + row * t.rhs_stride, t.output + row * t.out_stride


@jit_allocating
def sum_bytes(
    spm: Scratchpad, t: Pair, q: PairScales, place: Place, counters: SaturationCounters
) -> Any:
    """The whole tile, if it is such that 16 bits hold every number on the way; else False."""
    channels = counters.layers[counters.layer].channels
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
        put_run(spm, SUM, sides, count, numbers, table, room, q.clip, index, counters)
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
        clip_run(values, count, q.clip, index, counters)
        copy_run(values, ORIGIN, spm.i16, output >> 1, count)
    return True


@jit_allocating
def eltwise(
    spm: Scratchpad, t: Pair, q: PairScales, place: Place, counters: SaturationCounters
) -> None:
    """Binary operation of one tile."""
    count = t.columns
    counters.layers[counters.layer].elements += t.rows * count
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
        add_to_run(left, count, -q.lhs_offset)
        add_to_run(right, count, -q.rhs_offset)
        saturate_run(right, count, RESCALE, index, counters)
        pair_results(left, right, reals, other, count, t, q, index, counters)
        clip_run(left, count, q.clip, index, counters)
        write_run(left, count, spm, t.element, output)


BOTH_SIDES: Any = np.int64(3)
"""Of a clip that the network asks for."""


@jit_allocating
def rescale_bytes(
    spm: Scratchpad, sides: Sides, count: Int, u: Unary, place: Place, counters: SaturationCounters
) -> Any:
    """The whole tile, if it is such that 16 bits hold every number on the way; else False."""
    channels = counters.layers[counters.layer].channels
    numbers = np.empty(NUMBERS, np.int16)
    if not is_regular(sides, place.origin, count, channels) or not put_rescale_numbers(u, numbers):
        return False
    table = np.empty((CLIPS, ROWS, min(count, channels)), np.int16)
    room = np.empty(2 * max(RUN_BYTES, channels), np.int8)
    operation, index = rescale_of(u), place.origin
    put_run(spm, operation, sides, count, numbers, table, room, u.clip, index, counters)
    return True


@jit_allocating
def rescale_tile(
    spm: Scratchpad,
    source: Int,
    target: Int,
    count: Int,
    u: Unary,
    place: Place,
    counters: SaturationCounters,
) -> None:
    """Clamp (an activation, not saturation), change scale, clip."""
    counters.layers[counters.layer].elements += count
    if rescale_bytes(spm, (source, source, target), count, u, place, counters):
        return
    values = np.zeros(count, np.int64)
    read_run(spm, u.element, source, values, count)
    clamp = Clip(u.in_low, u.in_high, BOTH_SIDES)
    clip_run(values, count, clamp, place.origin, counters)
    add_to_run(values, count, -u.in_offset)
    room = np.zeros(count if u.leaky or is_real(u.profile) else 0, np.int64)
    rescale_results(values, count, u, room.view(np.float32), room, place.origin, counters)
    clip_run(values, count, u.clip, place.origin, counters)
    write_run(values, count, spm, u.element, target)


@jit
def look_up(spm: Int8s, source: Int, target: Int, table: Int, count: Int) -> None:
    """Each element through a table of 256 bytes."""
    for i in range(count):
        spm[target + i] = spm[table + np.int64(spm[source + i]) + 128]
