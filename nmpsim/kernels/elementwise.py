"""Operations on one or two tensors, element by element, on one core's scratchpad.

A run is a row of a tile. Unless stated otherwise, its result replaces ``left``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ZERO, Scratchpad, read_run, write_run
from nmpsim.kernels.operands import (
    BinaryScales,
    BinaryShape,
    Clip,
    OutputPosition,
    RescaleParameters,
    RunOffsets,
)
from nmpsim.kernels.pointers import get_address
from nmpsim.kernels.profiles import (
    compute_binary,
    fill_rescale_parameters,
    fill_sum_parameters,
    rescale_values,
)
from nmpsim.kernels.result_blocks import RESCALE as RESCALE_OPERATION
from nmpsim.kernels.result_blocks import (
    VALUE_NUMBERS,
    VALUE_PARAMETERS,
    BlockArguments,
    compute_values,
    may_exceed_limits,
)
from nmpsim.kernels.result_table import add_counts, clear_counts
from nmpsim.kernels.saturate import (
    INT32_MAX,
    INT32_MIN,
    ONCE,
    SaturationCounters,
    clip_run,
    limit_run,
)
from nmpsim.kernels.saturation_stages import RESCALE
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import COUNT_ROWS

RUN_BYTES: Any = np.int64(1 << 13)
"""Bytes of whole pixels computed at a time, so that they stay in the host's inner cache."""


class VectorBuffers(NamedTuple):
    """Buffers of vector code for a tile, and counters of its layer."""

    spm: Scratchpad
    element: Int
    parameters: Int64s
    """int64 [VALUE_PARAMETERS] (see ``result_blocks.py``)"""
    counts: Int32s
    """int32 [blocks of channels, COUNT_ROWS, LANES] (see ``result_table.py``)"""
    counters: SaturationCounters


@jit_allocating
def allocate_buffers(spm: Scratchpad, element: Int, counters: SaturationCounters) -> Any:
    """Allocate buffers for a tile of an element type; parameters are zero."""
    channels = counters.layers[counters.layer].channels
    parameters = np.zeros((VALUE_PARAMETERS, 1), np.int64)
    counts = np.empty((channels // LANES, COUNT_ROWS, LANES), np.int32)
    clear_counts(counts)
    return VectorBuffers(spm, element, parameters, counts, counters)


@jit
def are_same_or_disjoint(start: Int, other: Int, size: Int) -> Any:
    """Return whether two runs of ``size`` bytes have all bytes or no byte in common."""
    return start == other or np.abs(start - other) >= size


@jit
def can_use_blocks(
    sides: RunOffsets, index: Int, count: Int, element: Int, counters: SaturationCounters
) -> Any:
    """Return whether vector code can compute a run: whole blocks, no overwritten operands.

    ``sides`` are the first bytes of left, right and result.
    """
    (lhs, rhs, out), size = sides, count << element
    channels = counters.layers[counters.layer].channels
    is_whole = (channels | index | count) % LANES == 0
    return (
        is_whole and are_same_or_disjoint(out, lhs, size) and are_same_or_disjoint(out, rhs, size)
    )


@jit
def are_elements(values: Any, element: Int) -> Any:
    """Return whether all numbers of a tuple are values of an element type."""
    most = ONCE << ((8 << element) - 1)
    return -most <= min(values) and max(values) < most


@jit
def compute_run(
    r: VectorBuffers, case: Int, sides: RunOffsets, count: Int, clip: Clip, index: Int
) -> None:
    """Compute a run of results, and count those that are limited.

    Whole pixels are computed at once, and what is left at either end.

    Parameters
    ----------
    r, case
        Buffers with parameters, and number of a case in ``VALUE_CASES``.
    sides
        First bytes of left, right and result.
    count, index
        Number of values, and the first one's position in the layer's output.
    clip
        Clip of the results.
    """
    (lhs, rhs, out), counters, element = sides, r.counters, r.element
    channels, done, limited = counters.layers[counters.layer].channels, ZERO, ZERO
    base, step, parameters = get_address(r.spm.i8), channels << element, get_address(r.parameters)
    while done < count:
        pixel, at = (index + done) // channels, base + (done << element)
        channel = (index + done) % channels
        width, pixels = min(channels - channel, count - done), ONCE
        if width == channels:
            pixels = max(min(count - done, RUN_BYTES >> element) // channels, ONCE)
        counts = r.counts[channel // LANES : (channel + width) // LANES]
        read = at + lhs, at + rhs, step, pixels, pixel - index // channels, parameters
        written = get_address(counts), clip.low, clip.high, at + out, step
        limited |= compute_values(case, BlockArguments(*read, *written), element, counts.shape[0])
        done += pixels * width
    if limited:
        first = OutputPosition(index // channels * channels, channels, ZERO)
        add_counts(r.counts, ZERO, channels, clip, first, ONCE, counters)
    clear_counts(r.counts)


@jit
def subtract_offset(values: Int64s, offset: Int) -> None:
    """Subtract a zero point from each value in place."""
    for i in range(values.size):
        values[i] -= offset


@jit
def get_row_offsets(t: BinaryShape, row: Int) -> Any:
    """Return the byte offsets of a row of left, right and result."""
    return t.lhs + row * t.lhs_stride, t.rhs + row * t.rhs_stride, t.output + row * t.out_stride


@jit_allocating
def compute_sum_vectors(
    spm: Scratchpad,
    t: BinaryShape,
    q: BinaryScales,
    place: OutputPosition,
    counters: SaturationCounters,
) -> Any:
    """Add or subtract tiles with vector code; return False if only 64-bit code is exact."""
    element, rows, count = t.element, t.rows, t.columns
    steps = t.lhs_stride, t.rhs_stride, t.out_stride, place.stride_y << element
    if min(steps) == count << element and max(steps) == count << element:
        rows, count = ONCE, rows * count
    case = VALUE_NUMBERS[t.operation, q.profile, element]
    numbers = q.lhs_offset, q.rhs_offset, q.clip.low, q.clip.high
    if case == 0 or t.rhs_size != element or not are_elements(numbers, element):
        return False
    for row in range(rows):
        index = place.origin + row * place.stride_y
        if not can_use_blocks(get_row_offsets(t, row), index, count, element, counters):
            return False
    r = allocate_buffers(spm, element, counters)
    r.parameters[0], r.parameters[1] = -q.lhs_offset, -q.rhs_offset
    fill_sum_parameters(t, q, r.parameters, 0)
    if may_exceed_limits(case, r.parameters, element):
        return False
    for row in range(rows):
        index = place.origin + row * place.stride_y
        compute_run(r, case, get_row_offsets(t, row), count, q.clip, index)
    return True


@jit_allocating
def compute_eltwise(
    spm: Scratchpad,
    t: BinaryShape,
    q: BinaryScales,
    place: OutputPosition,
    counters: SaturationCounters,
) -> None:
    """Compute a binary operation of one tile."""
    count = t.columns
    counters.layers[counters.layer].elements += t.rows * count
    if compute_sum_vectors(spm, t, q, place, counters):
        return
    left = np.zeros(count, np.int64)
    right = np.zeros(count, np.int64)
    low, high = np.int64(INT32_MIN), np.int64(INT32_MAX)
    for row in range(t.rows):
        index = place.origin + row * place.stride_y
        lhs, rhs, output = get_row_offsets(t, row)
        read_run(spm, t.element, lhs, left)
        read_run(spm, t.rhs_size, rhs, right)
        subtract_offset(left, q.lhs_offset)
        subtract_offset(right, q.rhs_offset)
        limit_run(right, low, high, RESCALE, RESCALE, index, counters)
        compute_binary(left, right, t, q, index, counters)
        clip_run(left, q.clip, index, counters)
        write_run(left, spm, t.element, output)


CLIPPED_BOTH: Any = np.int64(3)
"""``Clip.wanted`` of a clip that the network asks for on both sides."""


@jit_allocating
def compute_rescale_vectors(
    spm: Scratchpad,
    source: Int,
    target: Int,
    count: Int,
    u: RescaleParameters,
    place: OutputPosition,
    counters: SaturationCounters,
) -> Any:
    """Rescale a tile with vector code; return False if only 64-bit code is exact."""
    sides, element, index = (source, source, target), u.element, place.origin
    case = VALUE_NUMBERS[RESCALE_OPERATION, u.profile, element]
    numbers = u.in_low, u.in_high, u.in_offset, u.clip.low, u.clip.high
    if case == 0 or u.leaky or not are_elements(numbers, element):
        return False
    if not can_use_blocks(sides, index, count, element, counters):
        return False
    r = allocate_buffers(spm, element, counters)
    r.parameters[0] = -u.in_offset
    fill_rescale_parameters(u, r.parameters, 0)
    if may_exceed_limits(case, r.parameters, element):
        return False
    most = ONCE << ((8 << element) - 1)
    if u.in_low > -most or u.in_high < most - 1:
        r.parameters[0] = 0
        compute_run(r, ZERO, sides, count, Clip(u.in_low, u.in_high, CLIPPED_BOTH), index)
        r.parameters[0] = -u.in_offset
        sides = target, target, target
    compute_run(r, case, sides, count, u.clip, index)
    return True


@jit_allocating
def rescale_tile(
    spm: Scratchpad,
    source: Int,
    target: Int,
    count: Int,
    u: RescaleParameters,
    place: OutputPosition,
    counters: SaturationCounters,
) -> None:
    """Apply an activation's clip to a tile, change its scale, and clip the result."""
    counters.layers[counters.layer].elements += count
    if compute_rescale_vectors(spm, source, target, count, u, place, counters):
        return
    values = np.zeros(count, np.int64)
    read_run(spm, u.element, source, values)
    clamp = Clip(u.in_low, u.in_high, CLIPPED_BOTH)
    clip_run(values, clamp, place.origin, counters)
    subtract_offset(values, u.in_offset)
    rescale_values(values, u, place.origin, counters)
    clip_run(values, u.clip, place.origin, counters)
    write_run(values, spm, u.element, target)


@jit
def look_up(spm: Int8s, source: Int, target: Int, table: Int, count: Int) -> None:
    """Map each element through a lookup table of 256 bytes."""
    for i in range(count):
        spm[target + i] = spm[table + np.int64(spm[source + i]) + 128]
