"""Convolution of Int8 whose sums 32 bits hold: a batch of pixels at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.conv_workspace import ConvWorkspace
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.kept_weights import kept_words
from nmpsim.kernels.microkernel import (
    AT_ONCE,
    clear_kept,
    clear_room,
    products,
    room_words,
)
from nmpsim.kernels.movement import ORIGIN, Scratchpad, copy_run
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import ConvShape, InputWindow, Operands, Parts, Place, Quantizer
from nmpsim.kernels.profiles import early_zero_point
from nmpsim.kernels.requantize import requantize
from nmpsim.kernels.requantize_int32 import complete_sums, finish_sums, note_first, scale_sums
from nmpsim.kernels.result_blocks import (
    BEYOND,
    add_accounts,
    clear_accounts,
    may_be_first,
    take_back,
    way_of,
)
from nmpsim.kernels.result_rows import BELOW
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import HAS_OFFSETS, MAX_PIXELS

_ONE: Any = np.int64(1)
_FOUR: Any = np.int64(4)


@jit
def is_contiguous(w: ConvShape) -> Any:
    """True if the inputs of a kernel row are contiguous."""
    return w.kernel_w == 1 or (w.dilation_w == 1 and w.in_pixel_stride == w.in_channels)


@jit
def has_tails(spm: Scratchpad, w: ConvShape, weights: Int, blocks: Int) -> Any:
    """True if bytes after the last input of a kernel row hold anything, in some blocks."""
    length = w.kernel_w * w.in_channels
    tail, fours = length % _FOUR, (length + 3) // _FOUR
    if tail == 0:
        return False
    found = np.int8(0)
    for row in range(blocks * w.kernel_h):
        last = weights + ((row + 1) * fours - 1) * _FOUR * LANES
        values = spm.i8[last : last + _FOUR * LANES]
        for lane in range(LANES):
            for i in range(tail, 4):
                found |= values[_FOUR * lane + i]
    return found != 0


@jit
def is_gathered(spm: Scratchpad, w: ConvShape, weights: Int, blocks: Int) -> Any:
    """True if the windows cannot be read in place.

    The weights of a row have no gaps; and where a row ends within four bytes, those after it take
    no part, which only a padded copy is sure of if their weights are not 0.
    """
    if is_contiguous(w):
        return has_tails(spm, w, weights, blocks)
    return w.in_channels % _FOUR != 0


@jit
def window_of(w: ConvShape, gathered: bool) -> Any:
    """A pixel's inputs, in place or gathered."""
    row, step = w.dilation_h * w.in_row_stride, w.dilation_w * w.in_pixel_stride
    length = w.kernel_w * w.in_channels
    if gathered:
        return InputWindow(_ONE, ORIGIN, _ONE, ORIGIN, w.kernel_h * ((length + 3) // _FOUR * _FOUR))
    if is_contiguous(w):
        return InputWindow(w.kernel_h, row, _ONE, ORIGIN, length)
    return InputWindow(w.kernel_h, row, w.kernel_w, step, w.in_channels)


@jit
def put_offsets(w: ConvShape, begin: Int, pixels: Int, offsets: Int64s) -> None:
    """Bytes from the first pixel's corner to those from ``begin`` on; the last one again."""
    y = begin // w.out_w
    x = begin - y * w.out_w
    row, column = w.stride_h * w.in_row_stride, w.stride_w * w.in_pixel_stride
    left = pixels - begin
    for i in range(min(left + AT_ONCE, MAX_PIXELS)):
        offsets[i] = y * row + x * column
        if i < left - _ONE:
            x += _ONE
            if x == w.out_w:
                x, y = ORIGIN, y + _ONE


@jit
def gather(spm: Scratchpad, corner: Int, w: ConvShape, patch: Int8s) -> None:
    """Copy a pixel's window, each kernel row padded to a multiple of four bytes."""
    row = patch.size // w.kernel_h
    for ky in range(w.kernel_h):
        for kx in range(w.kernel_w):
            source = corner + ky * w.dilation_h * w.in_row_stride
            source += kx * w.dilation_w * w.in_pixel_stride
            copy_run(spm.i8, source, patch, ky * row + kx * w.in_channels, w.in_channels)


@jit
def sum_windows(
    inputs: Int8s, base: Int, offsets: Int64s, window: InputWindow, pixels: Int, windows: Int32s
) -> None:
    """``windows`` = sum of each pixel's inputs."""
    for p in range(pixels):
        total = np.int32(0)
        for row in range(window.rows):
            for run in range(window.runs):
                at = base + offsets[p] + row * window.row_stride + run * window.run_stride
                values = inputs[at : at + window.length]
                for i in range(window.length):
                    total = np.int32(total + np.int32(values[i]))
        windows[p] = total


class Batch(NamedTuple):
    """Some pixels of one group."""

    window: InputWindow
    weights: Int
    corner: Int
    first: Int
    """Channel."""
    lane: Int
    """The first channel's."""
    is_gathered: bool
    way: Int
    """How sums are scaled (``result_blocks.py``)."""
    patches: Int8s
    """int8 [MAX_PIXELS, depth], used where windows cannot be read in place."""
    room: Int64s
    """For products, and what is kept of these weights."""
    kept: Int64s


@jit
def add_partials(
    spm: Scratchpad, start: Int, b: Batch, workspace: ConvWorkspace, step: Int, pixels: Int
) -> None:
    """Add running sums; from pixel to pixel it is ``step`` of them."""
    count = workspace.run.size
    for p in range(pixels):
        before = spm.i32[start + p * step : start + p * step + count]
        row = workspace.sums[p, b.lane : b.lane + count]
        for c in range(count):
            row[c] = np.int32(row[c] + before[c])


@jit
def put_sums(
    inputs: Int8s, base: Int, spm: Scratchpad, b: Batch, workspace: ConvWorkspace, pixels: Int
) -> None:
    """Sums of products, and of inputs where weights have zero points."""
    offsets, sums = workspace.offsets, workspace.sums
    excess, weights = workspace.excess, b.weights
    made = b.room, b.kept
    products(inputs, base, offsets, b.window, spm.i8, weights, pixels, sums, excess, *made)
    if workspace.head[HAS_OFFSETS]:
        sum_windows(inputs, base, offsets, b.window, pixels, workspace.windows)


@jit
def put_products(
    spm: Scratchpad, w: ConvShape, b: Batch, workspace: ConvWorkspace, begin: Int, pixels: Int
) -> None:
    """Sums of the pixels from ``begin`` on, read in place or gathered."""
    put_offsets(w, begin, w.out_h * w.out_w, workspace.offsets)
    if not b.is_gathered:
        put_sums(spm.i8, b.corner, spm, b, workspace, pixels)
        return
    for p in range(pixels):
        gather(spm, b.corner + workspace.offsets[p], w, b.patches[p])
    for p in range(MAX_PIXELS):
        workspace.offsets[p] = min(p, pixels - 1) * b.patches.shape[1]
    put_sums(b.patches.reshape(-1), ORIGIN, spm, b, workspace, pixels)


@jit
def put_wide_results(
    spm: Scratchpad,
    workspace: ConvWorkspace,
    total: Int32s,
    q: Quantizer,
    index: Int,
    to: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Results of a pixel's sums, through 64 bits."""
    run = workspace.run
    copy_run(total, ORIGIN, run, ORIGIN, run.size)
    requantize(run, workspace.integers, workspace.reals, q, index, layer, counters)
    copy_run(run, ORIGIN, spm.i8, to, run.size)


@jit
def is_even(w: ConvShape, b: Batch, count: Int) -> Any:
    """True if results fill whole blocks and pixels follow each other at the same distance."""
    is_apart = w.out_pixel_stride >= count and w.out_row_stride == w.out_w * w.out_pixel_stride
    return is_apart and b.lane == 0 and count % LANES == 0


@jit
def put_plain_results(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
    b: Batch,
    workspace: ConvWorkspace,
    begin: Int,
    pixels: Int,
) -> Any:
    """Results of the pixels from ``begin`` on, straight to where they belong if they are even.

    Bits of what the table has counted; -1, and nothing is counted, if a sum is beyond what can be
    scaled here or if the layer's first limited result may be among them.
    """
    sums, table, zero = workspace.sums, workspace.table, np.float32(early_zero_point(q))
    count, found = workspace.run.size, ORIGIN
    if is_even(w, b, count):
        start, step = at.output + begin * w.out_pixel_stride + b.first, w.out_pixel_stride
        found = finish_sums(sums, pixels, table, b.way, zero, q.clip, spm.i8, start, step)
    else:
        results = workspace.results.reshape(-1)
        step = workspace.results.shape[1]
        found = finish_sums(sums, pixels, table, b.way, zero, q.clip, results, ORIGIN, step)
        for p in range(pixels):
            y = (begin + p) // w.out_w
            x = begin + p - y * w.out_w
            to = at.output + y * w.out_row_stride + x * w.out_pixel_stride + b.first
            copy_run(workspace.results[p], b.lane, spm.i8, to, count)
    lowest = place.origin + begin // w.out_w * place.stride_y + b.first
    if found & BEYOND or may_be_first(lowest, found, q.clip, place.layer, counters):
        take_back(table, BELOW)
        return -_ONE
    return found


@jit
def put_results(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
    b: Batch,
    workspace: ConvWorkspace,
    begin: Int,
    pixels: Int,
    fits_int32: bool,
) -> Any:
    """Results of the pixels from ``begin`` on; ``fits_int32`` if 32 bits can hold all on the way.

    Not 0 if the table has counted something.
    """
    limited, count = ORIGIN, workspace.run.size
    if fits_int32:
        results = workspace.results.reshape(-1)
        step = workspace.results.shape[1]
        limited = scale_sums(workspace.sums, pixels, workspace.table, q.clip, results, ORIGIN, step)
    for p in range(pixels):
        y = (begin + p) // w.out_w
        x = begin + p - y * w.out_w
        index = place.origin + y * place.stride_y + x * place.stride_x + b.first
        to = at.output + y * w.out_row_stride + x * w.out_pixel_stride + b.first
        total = workspace.sums[p, b.lane : b.lane + count]
        if fits_int32:
            copy_run(workspace.results[p], b.lane, spm.i8, to, count)
            if limited:
                known, table = workspace.results[p, b.lane : b.lane + count], workspace.table
                note_first(
                    total, known, table, b.lane, q.clip, limited, index, place.layer, counters
                )
        else:
            put_wide_results(spm, workspace, total, q, index, to, place.layer, counters)
    return limited


@jit
def put_partials(
    spm: Scratchpad, start: Int, b: Batch, workspace: ConvWorkspace, step: Int, pixels: Int
) -> None:
    """Write running sums; from pixel to pixel it is ``step`` of them."""
    for p in range(pixels):
        copy_run(workspace.sums[p], b.lane, spm.i32, start + p * step, workspace.run.size)


@jit
def convolve_batches(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    parts: Parts,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
    b: Batch,
    workspace: ConvWorkspace,
) -> None:
    """Batch after batch of a group's pixels."""
    pixels, channels = w.out_h * w.out_w, counters.layers[place.layer].channels
    # The table counts by channel: it needs pixels that are whole channels apart.
    regular = place.stride_y % channels == 0 and place.stride_x % channels == 0
    limited = ORIGIN
    is_plain = regular and parts.ends and b.way >= 0 and workspace.head[HAS_OFFSETS] == 0
    for begin in range(0, pixels, MAX_PIXELS):
        filled = min(MAX_PIXELS, pixels - begin)
        partial = (at.partial >> 2) + begin * w.out_channels + b.first
        put_products(spm, w, b, workspace, begin, filled)
        if not parts.begins:
            add_partials(spm, partial, b, workspace, w.out_channels, filled)
        if is_plain:
            found = put_plain_results(spm, w, at, q, place, counters, b, workspace, begin, filled)
            if found >= 0:
                limited |= found
                continue
        fits_int32 = (
            not complete_sums(workspace.sums, filled, workspace.windows, workspace.table)
            and regular
        )
        if parts.ends:
            limited |= put_results(
                spm, w, at, q, place, counters, b, workspace, begin, filled, fits_int32
            )
        else:
            put_partials(spm, partial, b, workspace, w.out_channels, filled)
    if limited == 0:
        return
    last = place.origin + b.first
    last += max((w.out_h - 1) * place.stride_y, ORIGIN) + max(
        (w.out_w - 1) * place.stride_x, ORIGIN
    )
    lanes = b.lane, workspace.run.size
    add_accounts(workspace.table, BELOW, *lanes, q.clip, last, place.layer, counters)
    clear_accounts(workspace.table, BELOW)


@jit_allocating
def conv_int8(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    parts: Parts,
    q: Quantizer,
    group: Int,
    place: Place,
    counters: SaturationCounters,
    workspace: ConvWorkspace,
) -> None:
    """Convolution of one group of a tile; the tables are those of the group's channels."""
    first = group * workspace.run.size
    lane = first % LANES
    is_kept = parts.begins and parts.ends and at.partial >= 0
    depth = w.kernel_h * ((w.kernel_w * w.in_channels + 3) // _FOUR * _FOUR)
    weights = at.weights + (first - lane) * depth
    blocks = workspace.sums.shape[1] // LANES
    gathered = is_gathered(spm, w, weights, blocks)
    window = window_of(w, gathered)
    words, size = room_words(blocks, depth), kept_words(blocks, depth)
    room = kept = workspace.run
    if words:
        room = np.empty(words, np.int64)
        clear_room(room)
        if is_kept:
            kept = spm.i64[at.partial >> 3 : (at.partial >> 3) + size]
        else:
            kept = np.empty(size, np.int64)
            clear_kept(kept)
    patches = np.zeros((MAX_PIXELS, depth), np.int8) if gathered else workspace.results
    batch = Batch(
        window,
        weights,
        at.input + group * w.in_channels,
        first,
        lane,
        gathered,
        way_of(q),
        patches,
        room,
        kept,
    )
    convolve_batches(spm, w, at, parts, q, place, counters, struct_pointer(batch), workspace)
