"""Convolution of one group of a tile, a batch of pixels at a time.

For sums that cannot leave their accumulator, whatever the order of the products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from nmpsim.kernels.accumulate import read_partial_sums
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.conv_workspace import ConvWorkspace
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import (
    ZERO,
    copy_elements,
    gather_window,
    get_padded_row_length,
    write_elements,
)
from nmpsim.kernels.operands import ConvShape, InputWindow, MacTile
from nmpsim.kernels.requantize import requantize
from nmpsim.kernels.requantize_blocks import requantize_blocks
from nmpsim.kernels.result_table import (
    TOO_LARGE,
    add_counts,
    clear_counts,
    may_be_first,
    record_first_saturation,
    restore_counts,
)
from nmpsim.kernels.saturate import ONCE
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import HAS_OFFSETS, MAX_PIXELS


class PixelBatch(NamedTuple):
    """Batch of pixels of one channel group: the buffers and settings to compute their results."""

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
    formula: Int
    """Number of the formula of sums (see ``profiles.py``)."""
    is_gathered: bool
    """Whether windows are copied to ``patches`` before they are read."""
    is_vectorized: bool
    """Whether vector code may compute the results."""
    has_uniform_results: bool
    """Whether results fill whole blocks of channels, and all pixels are equally far apart."""
    patches: Any
    """[pixels, depth]"""
    sums: Any
    """int32 or int64 [pixels, lanes]"""
    window_sums: Any
    """[pixels], like ``sums``"""
    results: Any
    """[pixels, lanes]"""
    buffers: Any
    """Buffers of the multiplying function."""


# --- geometry --------------------------------------------------------------------------------


@jit
def is_contiguous(w: ConvShape, element: Int) -> Any:
    """Return whether the inputs of a kernel row are contiguous in memory."""
    is_dense = w.dilation_w == 1 and w.in_pixel_stride == w.in_channels << element
    return w.kernel_w == 1 or is_dense


@jit
def choose_window(w: ConvShape, element: Int, is_gathered: bool) -> Any:
    """Choose the window of inputs that vector code reads for a pixel."""
    row, step = w.dilation_h * w.in_row_stride, w.dilation_w * w.in_pixel_stride
    if is_gathered:
        return InputWindow(ONCE, ZERO, ONCE, ZERO, w.kernel_h * get_padded_row_length(w, element))
    if is_contiguous(w, element):
        return InputWindow(w.kernel_h, row, ONCE, ZERO, w.kernel_w * w.in_channels)
    return InputWindow(w.kernel_h, row, w.kernel_w, step, w.in_channels)


@jit
def has_uniform_results(w: ConvShape, element: Int, lane: Int, count: Int) -> Any:
    """Return whether results fill whole channel blocks and their pixels have a uniform stride."""
    is_disjoint = w.out_pixel_stride >= count << element
    is_even = w.out_row_stride == w.out_w * w.out_pixel_stride
    return is_disjoint and is_even and lane == 0 and count % LANES == 0


@jit
def write_window_offsets(w: ConvShape, begin: Int, offsets: Int64s) -> None:
    """Write to ``offsets`` where each pixel's window begins, in bytes from the first window.

    They are counted from the first pixel's window. The last pixel's offset is repeated.
    """
    y = begin // w.out_w
    x = begin - y * w.out_w
    row, column = w.stride_h * w.in_row_stride, w.stride_w * w.in_pixel_stride
    left = w.out_h * w.out_w - begin
    for i in range(MAX_PIXELS):
        offsets[i] = y * row + x * column
        if i < left - ONCE:
            x += ONCE
            if x == w.out_w:
                x, y = ZERO, y + ONCE


@jit
def get_output_byte(t: MacTile, pixel: Int, first: Int) -> Any:
    """Return the byte offset of a pixel's result in channel ``first``."""
    w = t.shape
    y = pixel // w.out_w
    x = pixel - y * w.out_w
    return t.at.output + y * w.out_row_stride + x * w.out_pixel_stride + (first << t.q.element)


@jit
def get_output_index(t: MacTile, pixel: Int, first: Int) -> Any:
    """Return the index of a pixel's result in channel ``first`` within the layer's output."""
    y = pixel // t.shape.out_w
    x = pixel - y * t.shape.out_w
    return t.place.origin + y * t.place.stride_y + x * t.place.stride_x + first


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
    """Write the sum of the inputs of each pixel's window to ``sums``."""
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
    t: MacTile,
    inputs: Int8s | Int16s,
    base: Int,
    b: PixelBatch,
    workspace: ConvWorkspace,
    multiply: Any,
    pixels: Int,
) -> None:
    """Write each pixel's sums of products to ``b.sums``, with weight zero points subtracted."""
    offsets = workspace.offsets
    multiply(b, inputs, base, offsets, pixels)
    if not workspace.head[HAS_OFFSETS]:
        return
    windows, kind = b.window_sums, b.sums.dtype.type
    sum_windows(inputs, base, offsets, b.window, t.q.element, pixels, windows)
    zero_points = workspace.table[OFFSET]
    for p in range(pixels):
        row = b.sums[p, b.lane : b.lane + zero_points.size]
        for c in range(zero_points.size):
            row[c] = kind(row[c] - kind(zero_points[c]) * windows[p])


@jit
def compute_sums(
    t: MacTile, b: PixelBatch, workspace: ConvWorkspace, multiply: Any, begin: Int, pixels: Int
) -> None:
    """Compute the sums of a batch in ``b.sums``; first copy its windows if ``b.is_gathered``."""
    offsets, element = workspace.offsets, t.q.element
    write_window_offsets(t.shape, begin, offsets)
    if not b.is_gathered:
        sum_products(t, b.elements, b.corner, b, workspace, multiply, pixels)
        return
    for p in range(pixels):
        gather_window(t.spm, element, t.shape, b.corner + offsets[p], b.patches[p])
    for p in range(MAX_PIXELS):
        offsets[p] = min(p, pixels - 1) * (b.patches.shape[1] << element)
    sum_products(t, b.patches.reshape(-1), ZERO, b, workspace, multiply, pixels)


@jit
def add_partial_sums(
    t: MacTile, b: PixelBatch, workspace: ConvWorkspace, start: Int, pixels: Int
) -> None:
    """Add stored partial sums, which begin at byte ``start``, to the sums of a batch."""
    run, kind, element = workspace.run, b.sums.dtype.type, t.q.element
    for p in range(pixels):
        at = start + (p * t.shape.out_channels << (2 + element))
        read_partial_sums(t.spm, element, at, run)
        row = b.sums[p, b.lane : b.lane + run.size]
        for c in range(run.size):
            row[c] = kind(row[c] + run[c])


# --- results ---------------------------------------------------------------------------------


@jit
def requantize_pixels(
    t: MacTile,
    b: PixelBatch,
    workspace: ConvWorkspace,
    sums: Int32s | Int64s,
    begin: Int,
    pixels: Int,
) -> Any:
    """Requantize and write the results of consecutive pixels; return bit flags of clipped sides."""
    q, step, first = t.q, t.shape.out_pixel_stride, b.first
    how = workspace.parameters, workspace.counts, b.formula, q.clip
    if b.has_uniform_results:
        to = b.elements, get_output_byte(t, begin, first), step
        return requantize_blocks(sums, pixels, *how, *to)
    to = b.results.reshape(-1), ZERO, b.results.shape[1] << q.element
    found = requantize_blocks(sums, pixels, *how, *to)
    for p in range(pixels):
        at = get_output_byte(t, begin + p, first) >> q.element
        copy_elements(b.results[p], b.lane, b.elements, at, workspace.run.size)
    return found


@jit
def requantize_batch(
    t: MacTile, b: PixelBatch, workspace: ConvWorkspace, begin: Int, pixels: Int
) -> Any:
    """Requantize and write a batch; return bit flags of clipped sides, or -1 for too large sums.

    Returns bits of what was limited, or -1 if a sum is too large: then nothing is counted.
    """
    clip, counters = t.q.clip, t.counters
    found = requantize_pixels(t, b, workspace, b.sums, begin, pixels)
    if found & TOO_LARGE:
        restore_counts(workspace.counts)
        return -ONCE
    lowest = t.place.origin + begin // t.shape.out_w * t.place.stride_y + b.first
    if may_be_first(lowest, found, clip, counters):
        for p in range(pixels):
            index = get_output_index(t, begin + p, b.first)
            if may_be_first(index, found, clip, counters):
                # The counts of this pixel alone, which are counted already.
                requantize_pixels(t, b, workspace, b.sums[p:], begin + p, ONCE)
                record_first_saturation(
                    workspace.counts, b.lane, workspace.run.size, clip, index, counters
                )
                restore_counts(workspace.counts)
    return found


@jit
def write_pixel(t: MacTile, pixel: Int, first: Int, partial: Int, workspace: ConvWorkspace) -> None:
    """Requantize and write a pixel's sums, or write partial sums at byte ``partial``."""
    run, element = workspace.run, t.q.element
    if t.parts.ends:
        index = get_output_index(t, pixel, first)
        requantize(run, workspace.table, t.q, index, t.counters)
        write_elements(run, t.spm, element, get_output_byte(t, pixel, first))
    else:
        write_elements(run, t.spm, 2 + element, partial)


@jit
def write_pixels(
    t: MacTile, b: PixelBatch, workspace: ConvWorkspace, begin: Int, pixels: Int, partial: Int
) -> None:
    """Requantize and write a batch's sums, or write partial sums that begin at byte ``partial``."""
    run, starts, size = workspace.run, workspace.table[START], 2 + t.q.element
    for p in range(pixels):
        copy_elements(b.sums[p], b.lane, run, ZERO, run.size)
        if t.parts.begins:
            for c in range(run.size):
                run[c] += starts[c]
        at = partial + (p * t.shape.out_channels << size)
        write_pixel(t, begin + p, b.first, at, workspace)


@jit
def convolve_batches(t: MacTile, b: PixelBatch, workspace: ConvWorkspace, multiply: Any) -> None:
    """Convolve the pixels of a channel group in batches, with ``multiply`` to sum products.

    ``multiply(batch, inputs, base, offsets, pixels)`` sums products into ``batch.sums``.
    """
    w, place, all_pixels = t.shape, t.place, t.shape.out_h * t.shape.out_w
    channels = t.counters.layers[t.counters.layer].channels
    # Results are counted by channel: pixels must be whole channels apart.
    is_regular = place.stride_y % channels == 0 and place.stride_x % channels == 0
    is_vectorized = b.is_vectorized and is_regular and t.parts.ends
    most, limited, begin = b.sums.shape[0], ZERO, ZERO
    left = (all_pixels + most - 1) // most
    while left > 0:
        pixels = (all_pixels - begin + left - 1) // left
        compute_sums(t, b, workspace, multiply, begin, pixels)
        partial = t.at.partial + ((begin * w.out_channels + b.first) << (2 + t.q.element))
        if not t.parts.begins:
            add_partial_sums(t, b, workspace, partial, pixels)
        found = -ONCE
        if is_vectorized:
            found = requantize_batch(t, b, workspace, begin, pixels)
        if found < 0:
            write_pixels(t, b, workspace, begin, pixels, partial)
        limited |= max(found, ZERO)
        begin += pixels
        left -= ONCE
    if limited:
        last = place.origin + b.first
        last += max((w.out_h - 1) * place.stride_y, ZERO)
        last += max((w.out_w - 1) * place.stride_x, ZERO)
        add_counts(workspace.counts, b.lane, workspace.run.size, t.q.clip, last, t.counters)
        clear_counts(workspace.counts)
