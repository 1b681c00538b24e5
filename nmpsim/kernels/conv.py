"""Convolution on the MAC array, on one core's scratchpad.

Sums start at the bias plus the zero term; then ``(w - weight_offset) * x`` is added in the order
ky, kx, channel. Nothing is checked if the sizes prove that the accumulator holds every partial sum.
"""

from __future__ import annotations

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import (
    find_max_partial_sum,
    may_overflow,
    read_partial_sums,
    saturate_sum,
)
from nmpsim.kernels.array_types import Int, Int16s, Int64s
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.conv_batches import get_output_index, write_pixel
from nmpsim.kernels.conv_groups import convolve_group_int8, convolve_group_int16
from nmpsim.kernels.conv_workspace import (
    ConvWorkspace,
    divide_workspace,
    update_tables,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import gather_window, get_padded_row_length
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import MacTile
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import IS_VALID, MAX_START


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
