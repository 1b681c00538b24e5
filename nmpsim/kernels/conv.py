"""The MAC array: convolution.

It works on one core's :class:`~nmpsim.kernels.movement.Scratchpad`, with byte offsets into it. Sums
start at the bias plus the zero term; then ``(w - weight_offset) * x`` is added in the order ky, kx,
channel. Where the sizes prove that the accumulator holds every partial sum, nothing is checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import (
    largest_partial,
    may_overflow,
    read_sums,
    saturate_sum,
)
from nmpsim.kernels.array_types import Float64s, Int, Int16s, Int64s
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.conv_int8 import conv_int8
from nmpsim.kernels.conv_workspace import (
    ConvWorkspace,
    put_tables,
    workspace_at,
)
from nmpsim.kernels.dot import PATCHES, dot_int16
from nmpsim.kernels.jit import jit, jit_allocating, jit_inlined
from nmpsim.kernels.movement import Scratchpad, copy_run, write_run
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import ConvShape, Operands, Parts, Place, Quantizer
from nmpsim.kernels.requantize import requantize
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import IS_KEPT, MAX_START


@jit
def row_length(w: ConvShape, element: Int) -> Any:
    """Inputs of a row of the window, padded to whole blocks of weights."""
    side = 4 >> element
    return (w.kernel_w * w.in_channels + side - 1) // side * side


@jit_inlined
def gather(
    spm: Scratchpad, element: Int, w: ConvShape, at: Operands, group: Int, pixel: Int, patch: Int16s
) -> None:
    """Copy the window of a pixel into ``patch``, row by row, each padded."""
    y = pixel // w.out_w
    x = pixel - y * w.out_w
    corner = at.input + ((group * w.in_channels) << element)
    corner += y * w.stride_h * w.in_row_stride + x * w.stride_w * w.in_pixel_stride
    row, length, columns = row_length(w, element), w.in_channels, w.kernel_w
    if w.dilation_w == 1 and w.in_pixel_stride == w.in_channels << element:
        length *= columns
        columns = 1
    for ky in range(w.kernel_h):
        for kx in range(columns):
            source = corner + ky * w.dilation_h * w.in_row_stride
            source += kx * w.dilation_w * w.in_pixel_stride
            target = ky * row + kx * length
            if element == INT16:
                copy_run(spm.i16, source >> 1, patch, target, length)
            else:
                copy_run(spm.i8, source, patch, target, length)


@jit_inlined
def block_sums(spm: Scratchpad, weights: Int, first: Int, buffers: PatchBuffers) -> None:
    """Products of all patches with the Int16 weights that channels from ``first`` on are in.

    They go to ``sums``, unchecked.
    """
    block = buffers.patches.shape[1] * LANES
    start = (weights >> 1) + first // LANES * block
    end = (weights >> 1) + (first + buffers.run.size + LANES - 1) // LANES * block
    dot_int16(spm.i16[start:end], buffers.patches, buffers.sums)


@jit
def put_sums(run: Int64s, products: Int64s, integers: Int64s, window: Int) -> None:
    """Sums of a pixel: start, products of the weights, less their zero points times the window."""
    for c in range(run.size):
        run[c] = integers[START, c] + np.int64(products[c]) - integers[OFFSET, c] * window


@jit
def put_exact_sums(
    spm: Scratchpad,
    weights: Int,
    first: Int,
    patch: Int16s,
    integers: Int64s,
    run: Int64s,
    element: Int,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Sums of a pixel's channels from ``first`` on, saturated at every step.

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
            total = saturate_sum(total, element, index + c, layer, counters)
        run[c] = total


@jit
def window_sum(patch: Int16s, integers: Int64s) -> Any:
    """Sum of a pixel's inputs; 0 if no weight has a zero point to take it off for."""
    offsets = np.int64(0)
    for c in range(integers.shape[1]):
        offsets |= integers[OFFSET, c]
    total = np.int64(0)
    if offsets != 0:
        for k in range(patch.size):
            total += np.int64(patch[k])
    return total


class PatchBuffers(NamedTuple):
    """Arrays to work in: windows of some pixels, their products, the tables of a group's channels,
    sums or results of a pixel."""

    patches: Int16s
    sums: Int64s
    integers: Int64s
    reals: Float64s
    run: Int64s


@jit_inlined
def finish_pixel(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    parts: Parts,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
    buffers: PatchBuffers,
    first: Int,
    pixel: Int,
    p: Int,
    checked: bool,
) -> None:
    """Results, or running sums, of the channels from ``first`` on; the window is patch ``p``."""
    integers, run, patch = buffers.integers, buffers.run, buffers.patches[p]
    y = pixel // w.out_w
    x = pixel - y * w.out_w
    index = place.origin + y * place.stride_y + x * place.stride_x + first
    sum_size = 2 + q.element
    partial = at.partial + ((pixel * w.out_channels + first) << sum_size)
    lane = first % LANES
    if not parts.begins:
        read_sums(spm, q.element, partial, integers[START])
    if checked:
        put_exact_sums(
            spm, at.weights, first, patch, integers, run, q.element, index, place.layer, counters
        )
    else:
        products = buffers.sums[p, lane : lane + run.size]
        put_sums(run, products, integers, window_sum(patch, integers))
    if parts.ends:
        requantize(run, integers, buffers.reals, q, index, place.layer, counters)
        to = at.output + y * w.out_row_stride + x * w.out_pixel_stride
        write_run(run, run.size, spm, q.element, to + (first << q.element))
    else:
        write_run(run, run.size, spm, sum_size, partial)


@jit
def convolve_patches(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    parts: Parts,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
    buffers: PatchBuffers,
    first: Int,
    checked: bool,
) -> None:
    """One group, some gathered pixels at a time."""
    pixels = w.out_h * w.out_w
    for begin in range(0, pixels, PATCHES):
        filled = min(PATCHES, pixels - begin)
        for p in range(filled):
            gather(spm, q.element, w, at, first // buffers.run.size, begin + p, buffers.patches[p])
        if not checked:
            block_sums(spm, at.weights, first, buffers)
        for p in range(filled):
            finish_pixel(
                spm, w, at, parts, q, place, counters, buffers, first, begin + p, p, checked
            )


@jit_allocating
def conv_patches(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    parts: Parts,
    q: Quantizer,
    group: Int,
    place: Place,
    counters: SaturationCounters,
    workspace: ConvWorkspace,
    checked: bool,
) -> None:
    """Convolution of one group of a tile; the tables are those of the group's channels."""
    count = workspace.run.size
    lanes = (LANES - 1 + count + LANES - 1) // LANES * LANES  # a group may begin within a block
    buffers = PatchBuffers(
        np.zeros((PATCHES, w.kernel_h * row_length(w, q.element)), np.int16),
        np.zeros((PATCHES, lanes), np.int64),
        workspace.integers,
        workspace.reals,
        workspace.run,
    )
    convolve_patches(spm, w, at, parts, q, place, counters, buffers, group * count, checked)


@jit_allocating
def conv(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    parts: Parts,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
    memory: Int64s,
) -> None:
    """2-D convolution of one tile, group after group; ``memory`` is for a workspace."""
    pixels, depth = w.out_h * w.out_w, w.kernel_h * row_length(w, q.element)
    count = w.out_channels // w.groups
    most = np.int64(0)
    if not parts.begins:
        most = largest_partial(spm, q.element, at.partial, pixels * w.out_channels)
    for group in range(w.groups):
        first = group * count
        lanes = (first % LANES + count + LANES - 1) // LANES * LANES
        workspace = struct_pointer(workspace_at(memory, count, lanes))
        put_tables(spm, at, parts, q, first, pixels, place, counters, workspace)
        if parts.begins:
            most = workspace.head[MAX_START]
        checked = may_overflow(most, depth, q.element)
        if q.element != INT16 and not checked:
            conv_int8(spm, w, at, parts, q, group, place, counters, workspace)
        else:
            workspace.head[IS_KEPT] = 0  # running sums take the place of the starts
            conv_patches(spm, w, at, parts, q, group, place, counters, workspace, checked)
    if parts.ends:
        counters.layers[place.layer].elements += pixels * w.out_channels
