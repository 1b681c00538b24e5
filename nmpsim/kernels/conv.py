"""Convolution on the MAC array, on one core's scratchpad.

Sums start at the bias plus the zero term; then ``(w - weight_offset) * x`` is added in the order
ky, kx, channel. Nothing is checked if the sizes prove that the accumulator holds every partial sum.
"""

from __future__ import annotations

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import (
    max_partial_sum,
    may_overflow,
    read_partial_sums,
    saturate_sum,
)
from nmpsim.kernels.array_types import Int, Int16s, Int64s
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.conv_int8 import conv_int8
from nmpsim.kernels.conv_int16 import conv_int16
from nmpsim.kernels.conv_workspace import (
    ConvWorkspace,
    divide_workspace,
    update_tables,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import Scratchpad, gather_window, padded_row_length, write_run
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import ConvShape, OperandOffsets, OutputPosition, Quantizer, SumParts
from nmpsim.kernels.requantize import requantize
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import IS_VALID, MAX_START


@jit
def sum_exactly(
    spm: Scratchpad,
    weights: Int,
    first: Int,
    patch: Int16s,
    integers: Int64s,
    run: Int64s,
    element: Int,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Sum a pixel's products for the channels from ``first`` on, saturating at every step.

    Padding of the patch has x = 0.
    """
    side = 4 >> element
    for c in range(run.size):
        block, lane = (first + c) // LANES, (first + c) % LANES
        where = (weights >> element) + block * patch.size * LANES + lane * side
        total = integers[START, c]
        for k in range(patch.size):
            i = where + k // side * LANES * side + k % side
            weight = np.int64(spm.i16[i]) if element == INT16 else np.int64(spm.i8[i])
            total += (weight - integers[OFFSET, c]) * np.int64(patch[k])
            total = saturate_sum(total, element, index + c, counters)
        run[c] = total


@jit_allocating
def convolve_exactly(
    spm: Scratchpad,
    w: ConvShape,
    at: OperandOffsets,
    parts: SumParts,
    q: Quantizer,
    group: Int,
    place: OutputPosition,
    counters: SaturationCounters,
    workspace: ConvWorkspace,
) -> None:
    """Convolve one group of a tile product by product, with the tables of the group's channels."""
    run, integers = workspace.run, workspace.integers
    first = group * run.size
    patch = np.zeros(w.kernel_h * padded_row_length(w, q.element), np.int16)
    corner = at.input + ((group * w.in_channels) << q.element)
    size = 2 + q.element
    for pixel in range(w.out_h * w.out_w):
        y = pixel // w.out_w
        x = pixel - y * w.out_w
        index = place.origin + y * place.stride_y + x * place.stride_x + first
        partial = at.partial + ((pixel * w.out_channels + first) << size)
        if not parts.begins:
            read_partial_sums(spm, q.element, partial, integers[START])
        start = corner + y * w.stride_h * w.in_row_stride + x * w.stride_w * w.in_pixel_stride
        gather_window(spm, q.element, w, start, patch)
        sum_exactly(spm, at.weights, first, patch, integers, run, q.element, index, counters)
        if parts.ends:
            requantize(run, integers, workspace.reals, q, index, counters)
            to = at.output + y * w.out_row_stride + x * w.out_pixel_stride
            write_run(run, run.size, spm, q.element, to + (first << q.element))
        else:
            write_run(run, run.size, spm, size, partial)


@jit_allocating
def conv(
    spm: Scratchpad,
    w: ConvShape,
    at: OperandOffsets,
    parts: SumParts,
    q: Quantizer,
    place: OutputPosition,
    counters: SaturationCounters,
    memory: Int64s,
) -> None:
    """Convolve a tile, group by group; ``memory`` is for a workspace."""
    pixels, depth = w.out_h * w.out_w, w.kernel_h * padded_row_length(w, q.element)
    count = w.out_channels // w.groups
    most = np.int64(0)
    if not parts.begins:
        most = max_partial_sum(spm, q.element, at.partial, pixels * w.out_channels)
    for group in range(w.groups):
        first = group * count
        lanes = (first % LANES + count + LANES - 1) // LANES * LANES
        workspace = struct_pointer(divide_workspace(memory, count, lanes))
        update_tables(spm, at, parts, q, first, pixels, place, counters, workspace)
        if parts.begins:
            most = workspace.head[MAX_START]
        if may_overflow(most, depth, q.element):
            workspace.head[IS_VALID] = 0  # running sums take the place of the starts
            convolve_exactly(spm, w, at, parts, q, group, place, counters, workspace)
        elif q.element == INT16:
            conv_int16(spm, w, at, parts, q, group, place, counters, workspace)
        else:
            conv_int8(spm, w, at, parts, q, group, place, counters, workspace)
    if parts.ends:
        counters.layers[counters.layer].elements += pixels * w.out_channels
