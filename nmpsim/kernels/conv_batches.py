"""Convolution of one group of a tile, a batch of pixels at a time.

For sums that cannot leave their accumulator, whatever the order of the products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.accumulate import read_partial_sums
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.conv_workspace import ConvWorkspace
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import (
    ZERO,
    Scratchpad,
    copy_run,
    gather_window,
    padded_row_length,
    write_run,
)
from nmpsim.kernels.operands import (
    ConvShape,
    InputWindow,
    OperandOffsets,
    OutputPosition,
    Quantizer,
    SumParts,
)
from nmpsim.kernels.profiles import zero_point_before_rounding
from nmpsim.kernels.requantize import requantize
from nmpsim.kernels.result_table import (
    TOO_LARGE,
    add_counts,
    clear_counts,
    may_be_first,
    record_first,
    undo_counts,
)
from nmpsim.kernels.saturate import ONCE, SaturationCounters
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import HAS_OFFSETS, MAX_PIXELS

ONE: Any = np.int64(1)


class Batch(NamedTuple):
    """Buffers for the pixels of one group, and how their sums are computed and scaled."""

    elements: Any
    """The scratchpad as int8 or int16."""
    window: InputWindow
    weights: Int
    """First element of the weights."""
    corner: Int
    """Byte at which the first pixel's window begins."""
    first: Int
    """First channel, and its lane."""
    lane: Int
    mode: Int
    """Scaling mode of the vector code (``result_table.py``)."""
    is_gathered: bool
    """Whether windows are copied to ``patches`` before they are read."""
    is_vectorized: bool
    """Whether vector code may compute the results."""
    is_uniform: bool
    """Whether results fill whole blocks of channels, and all pixels are equally far apart."""
    patches: Any
    """[pixels, depth]"""
    sums: Any
    """int32 or int64 [pixels, lanes]"""
    window_sums: Any
    """[pixels], like ``sums``"""
    results: Any
    """[pixels, lanes]"""
    table: Int32s
    """int32 [blocks, rows, LANES], whose first rows count limited results."""
    buffers: Any
    """What the function that multiplies works on."""


# --- geometry --------------------------------------------------------------------------------


@jit
def is_contiguous(w: ConvShape, element: Int) -> Any:
    """Return whether the inputs of a kernel row are contiguous."""
    is_dense = w.dilation_w == 1 and w.in_pixel_stride == w.in_channels << element
    return w.kernel_w == 1 or is_dense


@jit
def input_window(w: ConvShape, element: Int, is_gathered: bool) -> Any:
    """Return a pixel's window, in place or gathered."""
    row, step = w.dilation_h * w.in_row_stride, w.dilation_w * w.in_pixel_stride
    if is_gathered:
        return InputWindow(ONE, ZERO, ONE, ZERO, w.kernel_h * padded_row_length(w, element))
    if is_contiguous(w, element):
        return InputWindow(w.kernel_h, row, ONE, ZERO, w.kernel_w * w.in_channels)
    return InputWindow(w.kernel_h, row, w.kernel_w, step, w.in_channels)


@jit
def is_uniform(w: ConvShape, element: Int, lane: Int, count: Int) -> Any:
    """Return whether results fill whole blocks, and all pixels are equally far apart."""
    is_disjoint = w.out_pixel_stride >= count << element
    is_even = w.out_row_stride == w.out_w * w.out_pixel_stride
    return is_disjoint and is_even and lane == 0 and count % LANES == 0


@jit
def write_offsets(w: ConvShape, begin: Int, offsets: Int64s) -> None:
    """Write the bytes from the first pixel's window to those from pixel ``begin`` on.

    The last pixel's offset is repeated.
    """
    y = begin // w.out_w
    x = begin - y * w.out_w
    row, column = w.stride_h * w.in_row_stride, w.stride_w * w.in_pixel_stride
    left = w.out_h * w.out_w - begin
    for i in range(MAX_PIXELS):
        offsets[i] = y * row + x * column
        if i < left - ONE:
            x += ONE
            if x == w.out_w:
                x, y = ZERO, y + ONE


@jit
def output_byte(w: ConvShape, at: OperandOffsets, q: Quantizer, b: Batch, pixel: Int) -> Any:
    """Return the byte of a pixel's first result."""
    y = pixel // w.out_w
    x = pixel - y * w.out_w
    return at.output + y * w.out_row_stride + x * w.out_pixel_stride + (b.first << q.element)


@jit
def output_index(w: ConvShape, place: OutputPosition, b: Batch, pixel: Int) -> Any:
    """Return the index of a pixel's first result in the layer's output."""
    y = pixel // w.out_w
    x = pixel - y * w.out_w
    return place.origin + y * place.stride_y + x * place.stride_x + b.first


# --- sums ------------------------------------------------------------------------------------


@jit
def sum_windows(
    inputs: Int8s | Int16s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    element: Int,
    pixels: Int,
    sums: Int32s | Int64s,
) -> None:
    """Sum the inputs of each pixel's window."""
    kind = sums.dtype.type
    for p in range(pixels):
        total = kind(0)
        for row in range(window.rows):
            for run in range(window.runs):
                at = base + offsets[p] + row * window.row_stride + run * window.run_stride
                values = inputs[at >> element : (at >> element) + window.length]
                for i in range(window.length):
                    total = kind(total + kind(values[i]))
        sums[p] = total


@jit
def sum_products(
    inputs: Int8s | Int16s,
    base: Int,
    q: Quantizer,
    b: Batch,
    workspace: ConvWorkspace,
    multiply: Any,
    pixels: Int,
) -> None:
    """Compute the sums of some pixels' products, less the weights' zero points."""
    multiply(b, inputs, base, workspace.offsets, pixels)
    if not workspace.head[HAS_OFFSETS]:
        return
    windows, kind = b.window_sums, b.sums.dtype.type
    sum_windows(inputs, base, workspace.offsets, b.window, q.element, pixels, windows)
    zero_points = workspace.integers[OFFSET]
    for p in range(pixels):
        row = b.sums[p, b.lane : b.lane + zero_points.size]
        for c in range(zero_points.size):
            row[c] = kind(row[c] - kind(zero_points[c]) * windows[p])


@jit
def compute_sums(
    spm: Scratchpad,
    w: ConvShape,
    q: Quantizer,
    b: Batch,
    workspace: ConvWorkspace,
    multiply: Any,
    begin: Int,
    pixels: Int,
) -> None:
    """Compute the sums of the pixels from ``begin`` on, read in place or gathered."""
    offsets = workspace.offsets
    write_offsets(w, begin, offsets)
    if not b.is_gathered:
        sum_products(b.elements, b.corner, q, b, workspace, multiply, pixels)
        return
    for p in range(pixels):
        gather_window(spm, q.element, w, b.corner + offsets[p], b.patches[p])
    for p in range(MAX_PIXELS):
        offsets[p] = min(p, pixels - 1) * (b.patches.shape[1] << q.element)
    sum_products(b.patches.reshape(-1), ZERO, q, b, workspace, multiply, pixels)


@jit
def add_partial_sums(
    spm: Scratchpad,
    start: Int,
    step: Int,
    q: Quantizer,
    b: Batch,
    workspace: ConvWorkspace,
    pixels: Int,
) -> None:
    """Add the running sums from byte ``start`` on, ``step`` bytes from pixel to pixel."""
    run, kind = workspace.run, b.sums.dtype.type
    for p in range(pixels):
        read_partial_sums(spm, q.element, start + p * step, run)
        row = b.sums[p, b.lane : b.lane + run.size]
        for c in range(run.size):
            row[c] = kind(row[c] + run[c])


# --- results ---------------------------------------------------------------------------------


@jit
def requantize_pixels(
    w: ConvShape,
    at: OperandOffsets,
    q: Quantizer,
    b: Batch,
    workspace: ConvWorkspace,
    requantize_blocks: Any,
    sums: Int32s | Int64s,
    begin: Int,
    pixels: Int,
) -> Any:
    """Compute results with vector code; return its answer (see ``requantize_blocks.py``)."""
    count, zero_point = workspace.run.size, np.float32(zero_point_before_rounding(q))
    how, tables = (b.table, b.mode, zero_point, q.clip), (workspace.integers, workspace.reals)
    if b.is_uniform:
        to = output_byte(w, at, q, b, begin), w.out_pixel_stride
        return requantize_blocks(sums, pixels, *how, b.elements, *to, *tables)
    to = ZERO, b.results.shape[1] << q.element
    found = requantize_blocks(sums, pixels, *how, b.results.reshape(-1), *to, *tables)
    for p in range(pixels):
        first = output_byte(w, at, q, b, begin + p) >> q.element
        copy_run(b.results[p], b.lane, b.elements, first, count)
    return found


@jit
def requantize_batch(
    w: ConvShape,
    at: OperandOffsets,
    q: Quantizer,
    place: OutputPosition,
    counters: SaturationCounters,
    b: Batch,
    workspace: ConvWorkspace,
    requantize_blocks: Any,
    begin: Int,
    pixels: Int,
) -> Any:
    """Compute and write the results of the pixels from ``begin`` on with vector code.

    Returns bits of what was limited, or -1 if a sum is too large: then nothing is counted.
    """
    scaled = w, at, q, b, workspace, requantize_blocks
    found = requantize_pixels(*scaled, b.sums, begin, pixels)
    if found & TOO_LARGE:
        undo_counts(b.table)
        return -ONE
    lowest = place.origin + begin // w.out_w * place.stride_y + b.first
    if may_be_first(lowest, found, q.clip, counters):
        undo_counts(b.table)
        for p in range(pixels):
            if requantize_pixels(*scaled, b.sums[p:], begin + p, ONE):
                index = output_index(w, place, b, begin + p)
                channels = b.lane, workspace.run.size
                record_first(b.table, *channels, q.clip, index, counters)
    return found


@jit
def write_pixels(
    spm: Scratchpad,
    w: ConvShape,
    at: OperandOffsets,
    parts: SumParts,
    q: Quantizer,
    place: OutputPosition,
    counters: SaturationCounters,
    b: Batch,
    workspace: ConvWorkspace,
    begin: Int,
    pixels: Int,
    partial: Int,
) -> None:
    """Write results, or running sums from byte ``partial`` on, with 64-bit arithmetic."""
    run, integers, size = workspace.run, workspace.integers, 2 + q.element
    for p in range(pixels):
        copy_run(b.sums[p], b.lane, run, ZERO, run.size)
        if parts.begins:
            for c in range(run.size):
                run[c] += integers[START, c]
        if parts.ends:
            index = output_index(w, place, b, begin + p)
            requantize(run, integers, workspace.reals, q, index, counters)
            write_run(run, run.size, spm, q.element, output_byte(w, at, q, b, begin + p))
        else:
            write_run(run, run.size, spm, size, partial + (p * w.out_channels << size))


@jit
def convolve_batches(
    spm: Scratchpad,
    w: ConvShape,
    at: OperandOffsets,
    parts: SumParts,
    q: Quantizer,
    place: OutputPosition,
    counters: SaturationCounters,
    b: Batch,
    workspace: ConvWorkspace,
    multiply: Any,
    requantize_blocks: Any,
) -> None:
    """Compute a group's pixels in batches.

    Parameters
    ----------
    multiply
        ``multiply(batch, inputs, base, offsets, pixels)`` sums products into ``batch.sums``.
    requantize_blocks
        Vector function of ``requantize_blocks.py``.
    """
    all_pixels, channels = w.out_h * w.out_w, counters.layers[counters.layer].channels
    # The table counts by channel: pixels must be whole channels apart.
    is_regular = place.stride_y % channels == 0 and place.stride_x % channels == 0
    is_vectorized = b.is_vectorized and is_regular and parts.ends and b.mode >= 0
    size, most, limited, begin = 2 + q.element, b.sums.shape[0], ZERO, ZERO
    left = (all_pixels + most - 1) // most
    while left > 0:
        pixels = (all_pixels - begin + left - 1) // left
        compute_sums(spm, w, q, b, workspace, multiply, begin, pixels)
        partial = at.partial + ((begin * w.out_channels + b.first) << size)
        if not parts.begins:
            step = w.out_channels << size
            add_partial_sums(spm, partial, step, q, b, workspace, pixels)
        found = -ONE
        if is_vectorized:
            found = requantize_batch(
                w, at, q, place, counters, b, workspace, requantize_blocks, begin, pixels
            )
        if found < 0:
            done = begin, pixels, partial
            write_pixels(spm, w, at, parts, q, place, counters, b, workspace, *done)
        limited |= max(found, ZERO)
        begin += pixels
        left -= ONCE
    if limited:
        last = place.origin + b.first
        last += max((w.out_h - 1) * place.stride_y, ZERO)
        last += max((w.out_w - 1) * place.stride_x, ZERO)
        add_counts(b.table, b.lane, workspace.run.size, q.clip, last, counters)
        clear_counts(b.table)
