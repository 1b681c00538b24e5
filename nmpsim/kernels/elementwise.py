"""Operations on one or two tensors, element by element, on one core's scratchpad.

A run is a row of a tile. Unless stated otherwise, its result replaces ``left``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import GLOW_FLOAT
from nmpsim.isa.words import INT16, OP_ADD
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.elementwise_int8 import (
    CLIPS,
    PARAMETERS,
    ROWS,
    RUN_BYTES,
    SUM,
    add_or_rescale_values,
    can_use_blocks,
    choose_rescale,
    encode_rescale,
    encode_sum,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import (
    ZERO,
    ScratchpadViews,
    copy_elements,
    read_elements,
    write_elements,
)
from nmpsim.kernels.operands import (
    BinaryScales,
    BinaryShape,
    Clip,
    IntegerScaleRecord,
    OutputPosition,
    RescaleParameters,
    RunOffsets,
)
from nmpsim.kernels.profiles import compute_binary, rescale_values
from nmpsim.kernels.rounding import real, round_to_int32
from nmpsim.kernels.saturate import ONCE, SaturationCounters, clip_elements, saturate_elements
from nmpsim.kernels.saturation_stages import RESCALE

_MAX: Any = np.float64(1 << 29)
"""Limit with which two operands, and numbers that float32 rounds, stay below 2^30."""
_LARGEST: Any = np.float64(1 << 15)
"""Largest magnitude of an Int16."""


@jit
def compute_operand_bound(scale: IntegerScaleRecord, offset: Int) -> Any:
    """Compute an upper bound for the magnitudes of an Int16 operand before and after scaling."""
    magnitude = _LARGEST + np.abs(offset)
    return magnitude + magnitude * abs(np.float64(real(scale.mul)))


@jit
def can_add_int16(t: BinaryShape, q: BinaryScales) -> Any:
    """Return whether :func:`add_int16` can compute a binary operation without overflow."""
    is_int16 = t.element == INT16 and t.rhs_size == INT16
    if not is_int16 or t.operation != OP_ADD or q.profile != GLOW_FLOAT:
        return False
    left = compute_operand_bound(q.lhs_scale, q.lhs_offset)
    right = compute_operand_bound(q.rhs_scale, q.rhs_offset)
    factor = abs(np.float64(real(q.out_scale.mul)))
    # Comparisons with NaN are false.
    return left + right < _MAX and (left + right) * factor + np.abs(q.out_offset) < _MAX


@jit
def add_int16(left: Int16s, right: Int16s, q: BinaryScales, values: Int32s) -> None:
    """Write the sums of two Int16 arrays, before the clip, to ``values`` (profile glow-float)."""
    lhs, rhs = real(q.lhs_scale.mul), real(q.rhs_scale.mul)
    factor, addend = real(q.out_scale.mul), np.float32(q.out_offset)
    for i in range(values.size):
        one = round_to_int32(np.float32(np.int32(left[i] - q.lhs_offset)) * lhs)
        other = round_to_int32(np.float32(np.int32(right[i] - q.rhs_offset)) * rhs)
        values[i] = round_to_int32(np.float32(np.int32(one + other)) * factor + addend)


@jit
def subtract_offset(values: Int64s, offset: Int) -> None:
    """Subtract a zero point from each value in place."""
    for i in range(values.size):
        values[i] -= offset


@jit
def get_row_offsets(t: BinaryShape, row: Int) -> Any:
    """Return the byte offsets of a row of the left operand, right operand and result."""
    return t.lhs + row * t.lhs_stride, t.rhs + row * t.rhs_stride, t.output + row * t.out_stride


@jit_allocating
def add_tile_int8(
    spm: ScratchpadViews,
    t: BinaryShape,
    q: BinaryScales,
    place: OutputPosition,
    counters: SaturationCounters,
) -> Any:
    """Add or subtract Int8 tiles with 16-bit vector code; return False if it is not supported."""
    channels = counters.layers[counters.layer].channels
    numbers = np.empty(PARAMETERS, np.int16)
    if not encode_sum(t, q, numbers):
        return False
    rows, count = t.rows, t.columns
    steps = t.lhs_stride, t.rhs_stride, t.out_stride, place.stride_y
    if min(steps) == count and max(steps) == count:
        rows, count = ONCE, rows * count
    for row in range(rows):
        index = place.origin + row * place.stride_y
        if not can_use_blocks(get_row_offsets(t, row), index, count, channels):
            return False
    table = np.empty((CLIPS, ROWS, min(count, channels)), np.int16)
    buffer = np.empty(2 * max(RUN_BYTES, channels), np.int8)
    for row in range(rows):
        sides, index = get_row_offsets(t, row), place.origin + row * place.stride_y
        add_or_rescale_values(
            spm, SUM, sides, count, numbers, table, buffer, q.clip, index, counters
        )
    return True


@jit_allocating
def add_tile_int16(
    spm: ScratchpadViews,
    t: BinaryShape,
    q: BinaryScales,
    place: OutputPosition,
    counters: SaturationCounters,
) -> Any:
    """Add two Int16 tiles in 32-bit arithmetic; return False if that is not supported."""
    if not can_add_int16(t, q):
        return False
    count = t.columns
    values = np.empty(count, np.int32)
    for row in range(t.rows):
        lhs, rhs, output = get_row_offsets(t, row)
        left, right = lhs >> 1, rhs >> 1
        add_int16(spm.i16[left : left + count], spm.i16[right : right + count], q, values)
        index = place.origin + row * place.stride_y
        clip_elements(values, q.clip, index, counters)
        copy_elements(values, ZERO, spm.i16, output >> 1, count)
    return True


@jit_allocating
def compute_eltwise(
    spm: ScratchpadViews,
    t: BinaryShape,
    q: BinaryScales,
    place: OutputPosition,
    counters: SaturationCounters,
) -> None:
    """Compute an elementwise binary operation on a tile; count saturated and clipped values."""
    count = t.columns
    counters.layers[counters.layer].elements += t.rows * count
    if add_tile_int8(spm, t, q, place, counters) or add_tile_int16(spm, t, q, place, counters):
        return
    left = np.zeros(count, np.int64)
    right = np.zeros(count, np.int64)
    for row in range(t.rows):
        index = place.origin + row * place.stride_y
        lhs, rhs, output = get_row_offsets(t, row)
        read_elements(spm, t.element, lhs, left)
        read_elements(spm, t.rhs_size, rhs, right)
        subtract_offset(left, q.lhs_offset)
        subtract_offset(right, q.rhs_offset)
        saturate_elements(right, RESCALE, index, counters)
        compute_binary(left, right, t, q, index, counters)
        clip_elements(left, q.clip, index, counters)
        write_elements(left, spm, t.element, output)


CLIPPED_BOTH: Any = np.int64(3)
"""``Clip.wanted`` of a clip that the network asks for on both sides."""


@jit_allocating
def rescale_tile_int8(
    spm: ScratchpadViews,
    sides: RunOffsets,
    count: Int,
    u: RescaleParameters,
    place: OutputPosition,
    counters: SaturationCounters,
) -> Any:
    """Rescale an Int8 tile with 16-bit vector code; return False if it is not supported."""
    channels = counters.layers[counters.layer].channels
    numbers = np.empty(PARAMETERS, np.int16)
    if not can_use_blocks(sides, place.origin, count, channels) or not encode_rescale(u, numbers):
        return False
    table = np.empty((CLIPS, ROWS, min(count, channels)), np.int16)
    buffer = np.empty(2 * max(RUN_BYTES, channels), np.int8)
    operation, index = choose_rescale(u), place.origin
    add_or_rescale_values(
        spm, operation, sides, count, numbers, table, buffer, u.clip, index, counters
    )
    return True


@jit_allocating
def rescale_tile(
    spm: ScratchpadViews,
    source: Int,
    target: Int,
    count: Int,
    u: RescaleParameters,
    place: OutputPosition,
    counters: SaturationCounters,
) -> None:
    """Clip the inputs of a tile, rescale them, and clip and write the results."""
    counters.layers[counters.layer].elements += count
    if rescale_tile_int8(spm, (source, source, target), count, u, place, counters):
        return
    values = np.zeros(count, np.int64)
    read_elements(spm, u.element, source, values)
    clamp = Clip(u.in_low, u.in_high, CLIPPED_BOTH)
    clip_elements(values, clamp, place.origin, counters)
    subtract_offset(values, u.in_offset)
    rescale_values(values, u, place.origin, counters)
    clip_elements(values, u.clip, place.origin, counters)
    write_elements(values, spm, u.element, target)


@jit
def look_up(spm: Int8s, source: Int, target: Int, table: Int, count: Int) -> None:
    """Look up ``count`` Int8 elements in a 256-byte table; write the entries to ``target``."""
    for i in range(count):
        spm[target + i] = spm[table + np.int64(spm[source + i]) + 128]
