"""Convolution on the MAC array, on one core's scratchpad, group by group.

Sums start at the bias plus the zero term; then ``(w - weight_offset) * x`` is added in the order
ky, kx, channel. Nothing is checked if the sizes prove that the accumulator holds every partial sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import INT8, INT16
from nmpsim.kernels.accumulate import (
    find_max_partial_sum,
    may_overflow,
    read_partial_sums,
    saturate_sum,
)
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.conv_batches import (
    PixelBatch,
    choose_window,
    convolve_batches,
    get_output_index,
    has_uniform_results,
    is_contiguous,
    write_pixel,
)
from nmpsim.kernels.conv_workspace import (
    ConvWorkspace,
    divide_workspace,
    update_tables,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.microkernel import (
    initialize_packed_weights,
    initialize_workspace,
    products,
    products_workspace_size,
)
from nmpsim.kernels.microkernel_int16 import (
    GRANULE,
    MIDDLE_STEPS,
    CarrySearch,
    bound_energy,
    compute_products_int16,
    find_carry_steps,
)
from nmpsim.kernels.movement import ZERO, ScratchpadViews, gather_window, get_padded_row_length
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import ConvShape, InputWindow, MacTile
from nmpsim.kernels.packed_weights import get_packed_weights_size
from nmpsim.kernels.requantize import get_sum_formula, has_vector_code
from nmpsim.kernels.saturate import ONCE
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import IS_VALID, LEVELS, MAX_PIXELS, MAX_START

# Convolution of one group of a tile whose sums cannot leave their accumulator.
#
# 32 bits hold the sums of Int8 elements, 48 bits those of Int16.


class Int8Buffers(NamedTuple):
    """Buffers of the function that sums Int8 products: excess, workspace and packed weights."""

    excess: Int32s
    workspace: Int64s
    packed: Int64s


@jit
def has_nonzero_padding(spm: ScratchpadViews, w: ConvShape, weights: Int, blocks: Int) -> Any:
    """Return whether any weight that pads a kernel row to a multiple of four is not zero."""
    length = w.kernel_w * w.in_channels
    tail, fours = length % 4, (length + 3) // 4
    if tail == 0:
        return False
    found = np.int8(0)
    for row in range(blocks * w.kernel_h):
        last = weights + ((row + 1) * fours - 1) * 4 * LANES
        values = spm.i8[last : last + 4 * LANES]
        for lane in range(LANES):
            for i in range(tail, 4):
                found |= values[4 * lane + i]
    return found != 0


@jit
def must_gather(spm: ScratchpadViews, w: ConvShape, weights: Int, blocks: Int) -> Any:
    """Return whether windows must be copied because vector code cannot read them in place.

    Inputs are read in fours. What is read after a run must have weights of zero.
    """
    if is_contiguous(w, INT8):
        return has_nonzero_padding(spm, w, weights, blocks)
    return w.in_channels % 4 != 0


@jit
def sum_products_int8(
    b: PixelBatch, inputs: Int8s, base: Int, offsets: Int64s, pixels: Int
) -> None:
    """Write the sums of products of weights and Int8 windows to ``b.sums``."""
    read, buffers = (inputs, base, offsets, b.window, b.elements, b.weights), b.buffers
    products(*read, pixels, b.sums, buffers.excess, buffers.workspace, buffers.packed)


@jit_allocating
def convolve_group_int8(t: MacTile, group: Int, workspace: ConvWorkspace) -> None:
    """Convolve one channel group of an Int8 tile whose sums cannot overflow the accumulator."""
    w, spm, count = t.shape, t.spm, workspace.run.size
    first = group * count
    lane = first % LANES
    depth = w.kernel_h * get_padded_row_length(w, INT8)
    weights = t.at.weights + (first - lane) * depth
    blocks = workspace.sums.shape[1] // LANES
    is_gathered = must_gather(spm, w, weights, blocks)
    words, size = products_workspace_size(blocks, depth), get_packed_weights_size(blocks, depth)
    scratch = packed = workspace.run
    if words:
        scratch = np.empty(words, np.int64)
        initialize_workspace(scratch)
        if t.parts.begins and t.parts.ends and t.at.partial >= 0:
            packed = spm.i64[t.at.partial >> 3 : (t.at.partial >> 3) + size]
        else:
            packed = np.empty(size, np.int64)
            initialize_packed_weights(packed)
    batch = PixelBatch(
        spm.i8,
        choose_window(w, INT8, is_gathered),
        weights,
        t.at.input + group * w.in_channels,
        first,
        lane,
        get_sum_formula(t.q),
        is_gathered,
        bool(has_vector_code(t.q)),
        has_uniform_results(w, INT8, lane, count),
        np.zeros((MAX_PIXELS, depth), np.int8) if is_gathered else workspace.results,
        workspace.sums,
        workspace.windows,
        workspace.results,
        Int8Buffers(workspace.excess, scratch, packed),
    )
    convolve_batches(t, struct_pointer(batch), workspace, sum_products_int8)


PIXELS = 24
"""Most pixels of a batch, so that their sums stay in the host's inner caches."""
FEW_PIXELS = 8
"""With fewer pixels, examining all weights would take longer than a carry at each step."""


class Int16Buffers(NamedTuple):
    """Buffers for summing Int16 products, with the number of steps between two carries."""

    steps: Int
    """Steps between two carries; 0 if the products of a pair may be too large."""
    halves: Int16s
    """int16 [2, size]: what :func:`split_pairs` makes of the weights if ``steps`` is 0."""
    other_sums: Int64s
    """Sums of the second half, like ``Batch.sums``."""


# --- steps between carries -------------------------------------------------------------------


@jit
def find_range(inputs: Int16s) -> Any:
    """Return (low, high) of the inputs, extended to include 0."""
    low, high = np.int16(0), np.int16(0)
    for i in range(inputs.size):
        low = inputs[i] if inputs[i] < low else low
        high = inputs[i] if inputs[i] > high else high
    return np.int64(low), np.int64(high)


@jit
def find_input_segments(w: ConvShape) -> Any:
    """Return the number of rows, segments per row and inputs per segment that cover all windows."""
    rows = (w.out_h - 1) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1
    columns = (w.out_w - 1) * w.stride_w + (w.kernel_w - 1) * w.dilation_w + 1
    if w.in_pixel_stride == w.in_channels << 1:
        return rows, ONCE, columns * w.in_channels
    return rows, columns, w.in_channels


@jit
def find_input_range(spm: ScratchpadViews, w: ConvShape, corner: Int) -> Any:
    """Return (low, high) of the inputs of all windows, extended to include 0."""
    rows, runs, length = find_input_segments(w)
    low, high = ZERO, ZERO
    for y in range(rows):
        for x in range(runs):
            start = (corner + y * w.in_row_stride + x * w.in_pixel_stride) >> 1
            least, most = find_range(spm.i16[start : start + length])
            low, high = min(low, least), max(high, most)
    return low, high


@jit
def bound_input_energy(spm: ScratchpadViews, w: ConvShape, corner: Int) -> Any:
    """Return a bound for the energy, the sum of 16 adjacent squared inputs, divided by 256."""
    rows, runs, length = find_input_segments(w)
    energy = ZERO
    for y in range(rows):
        for x in range(runs):
            start = (corner + y * w.in_row_stride + x * w.in_pixel_stride) >> 1
            energy = bound_energy(spm.i16, start, length // GRANULE, energy)
    return energy


@jit_allocating
def find_carry_interval(
    spm: ScratchpadViews,
    w: ConvShape,
    window: InputWindow,
    corner: Int,
    weights: Int,
    blocks: Int,
    bounds: Int64s,
    is_cached: bool,
) -> Any:
    """Return the number of steps between two carries of a tile's sums; 0 if no number is safe."""
    low, high = find_input_range(spm, w, corner)
    if not is_cached and w.out_h * w.out_w < FEW_PIXELS and low > -32768:
        return ONCE
    workspace = np.empty(3 * LANES, np.int32)
    run_steps, runs = (window.length + 1) >> 1, window.rows * window.runs * blocks
    read = spm.i16, weights, runs, run_steps, low, high
    search = CarrySearch(*read, is_cached, bounds, workspace)
    steps = find_carry_steps(search, -ONCE)
    if steps < MIDDLE_STEPS and w.in_channels % GRANULE == 0:
        steps = find_carry_steps(search, bound_input_energy(spm, w, corner))
    return steps


# --- convolution -----------------------------------------------------------------------------


@jit_allocating
def split_pairs(weights: Int16s) -> Any:
    """Return the weights as int16 [2, size]: row 0 with odd, row 1 with even positions zeroed."""
    halves = np.zeros((2, weights.size), np.int16)
    for i in range(weights.size):
        halves[i & 1, i] = weights[i]
    return halves


@jit
def sum_products_int16(
    b: PixelBatch, inputs: Int16s, base: Int, offsets: Int64s, pixels: Int
) -> None:
    """Write the sums of products of weights and Int16 windows to ``b.sums``."""
    read, halves, others = (inputs, base, offsets, b.window), b.buffers.halves, b.buffers.other_sums
    if halves.size == 0:
        compute_products_int16(*read, b.buffers.steps, b.elements, b.weights, pixels, b.sums)
        return
    compute_products_int16(*read, ONCE, halves[0], ZERO, pixels, b.sums)
    compute_products_int16(*read, ONCE, halves[1], ZERO, pixels, others)
    for p in range(pixels):
        for c in range(b.sums.shape[1]):
            b.sums[p, c] += others[p, c]


@jit_allocating
def convolve_group_int16(t: MacTile, group: Int, workspace: ConvWorkspace) -> None:
    """Convolve one channel group of an Int16 tile whose sums cannot overflow the accumulator."""
    w, spm = t.shape, t.spm
    count = workspace.run.size
    first = group * count
    lane = first % LANES
    depth = w.kernel_h * get_padded_row_length(w, INT16)
    weights = (t.at.weights >> 1) + (first - lane) * depth
    blocks = (lane + count + LANES - 1) // LANES
    corner = t.at.input + group * w.in_channels * 2
    length = w.in_channels * (w.kernel_w if is_contiguous(w, INT16) else ONCE)
    is_gathered = length & 1 != 0
    window = choose_window(w, INT16, is_gathered)
    is_cached = bool(t.parts.begins and t.parts.ends and t.at.partial >= 0)
    own = np.empty(2 * LEVELS, np.int64)
    own[:] = -1
    bounds = spm.i64[t.at.partial >> 3 : (t.at.partial >> 3) + 2 * LEVELS] if is_cached else own
    steps = find_carry_interval(spm, w, window, corner, weights, blocks, bounds, is_cached)
    split = blocks * LANES * depth if steps == 0 else 0
    is_whole = has_uniform_results(w, INT16, lane, count)
    batch = PixelBatch(
        spm.i16,
        window,
        weights,
        corner,
        first,
        lane,
        get_sum_formula(t.q),
        is_gathered,
        bool(is_whole and has_vector_code(t.q)),
        is_whole,
        np.zeros((PIXELS if is_gathered else 0, depth), np.int16),
        np.empty((PIXELS, blocks * LANES), np.int64),
        np.empty(PIXELS, np.int64),
        np.empty((0, 0), np.int16),
        Int16Buffers(
            steps,
            split_pairs(spm.i16[weights : weights + split]),
            np.empty((PIXELS if split else 0, blocks * LANES), np.int64),
        ),
    )
    convolve_batches(t, struct_pointer(batch), workspace, sum_products_int16)


@jit
def sum_with_saturation(
    t: MacTile, first: Int, patch: Int16s, workspace: ConvWorkspace, index: Int
) -> None:
    """Sum a pixel's products for each channel of a group, saturating after each addition.

    Padding of the patch has x = 0. The initial sums are those of the workspace.
    """
    element, table, run = t.q.element, workspace.table, workspace.run
    side = 4 >> element
    for c in range(run.size):
        block, lane = (first + c) // LANES, (first + c) % LANES
        where = (t.at.weights >> element) + block * patch.size * LANES + lane * side
        total = table[START, c]
        for k in range(patch.size):
            i = where + k // side * LANES * side + k % side
            weight = np.int64(t.spm.i16[i]) if element == INT16 else np.int64(t.spm.i8[i])
            total += (weight - table[OFFSET, c]) * np.int64(patch[k])
            total = saturate_sum(total, element, index + c, t.counters)
        run[c] = total


@jit_allocating
def convolve_with_saturation(t: MacTile, group: Int, workspace: ConvWorkspace) -> None:
    """Convolve one channel group of a tile, saturating sums after each addition."""
    w, q, run = t.shape, t.q, workspace.run
    first, size = group * run.size, 2 + q.element
    patch = np.zeros(w.kernel_h * get_padded_row_length(w, q.element), np.int16)
    corner = t.at.input + ((group * w.in_channels) << q.element)
    for pixel in range(w.out_h * w.out_w):
        y = pixel // w.out_w
        x = pixel - y * w.out_w
        partial = t.at.partial + ((pixel * w.out_channels + first) << size)
        if not t.parts.begins:
            read_partial_sums(t.spm, q.element, partial, workspace.table[START])
        start = corner + y * w.stride_h * w.in_row_stride + x * w.stride_w * w.in_pixel_stride
        gather_window(t.spm, q.element, w, start, patch)
        index = get_output_index(t, pixel, first)
        sum_with_saturation(t, first, patch, workspace, index)
        write_pixel(t, pixel, first, partial, workspace)


@jit_allocating
def convolve_tile(t: MacTile, memory: Int64s) -> None:
    """Convolve a tile group by group and write its results; ``memory`` is the workspace."""
    w, element = t.shape, t.q.element
    pixels, depth = w.out_h * w.out_w, w.kernel_h * get_padded_row_length(w, element)
    count = w.out_channels // w.groups
    most = np.int64(0)
    if not t.parts.begins:
        most = find_max_partial_sum(t.spm, element, t.at.partial, pixels * w.out_channels)
    for group in range(w.groups):
        first = group * count
        lanes = (first % LANES + count + LANES - 1) // LANES * LANES
        workspace = struct_pointer(divide_workspace(memory, count, lanes))
        update_tables(t, first, workspace)
        if t.parts.begins:
            most = workspace.head[MAX_START]
        if may_overflow(most, depth, element):
            workspace.head[IS_VALID] = 0  # running sums replace the initial sums
            convolve_with_saturation(t, group, workspace)
        elif element == INT16:
            convolve_group_int16(t, group, workspace)
        else:
            convolve_group_int8(t, group, workspace)
    if t.parts.ends:
        t.counters.layers[t.counters.layer].elements += pixels * w.out_channels
