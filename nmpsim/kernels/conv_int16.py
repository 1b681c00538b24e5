"""Convolution of Int16 whose sums 48 bits hold: a batch of pixels at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import largest, read_sums
from nmpsim.kernels.array_types import Int, Int16s, Int32s, Int64s
from nmpsim.kernels.channels import ADDEND, OFFSET, START
from nmpsim.kernels.conv_int8 import put_offsets
from nmpsim.kernels.conv_workspace import ConvWorkspace
from nmpsim.kernels.dot import (
    ENOUGH,
    GRANULE,
    energy_of,
    products_int16,
    steps_between,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ORIGIN, Scratchpad, copy_run, gather, row_length, write_run
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import ConvShape, InputWindow, Operands, Parts, Place, Quantizer
from nmpsim.kernels.profiles import early_zero_point
from nmpsim.kernels.requantize import requantize
from nmpsim.kernels.requantize_int16 import ACCOUNTS, MAX_ADDEND, finish_wide
from nmpsim.kernels.result_blocks import (
    BEYOND,
    FIXED,
    INTEGER,
    add_accounts,
    clear_accounts,
    may_be_first,
    take_back,
    way_of,
)
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import HAS_OFFSETS, LEVELS

PIXELS = 24
"""Pixels of a batch: their sums stay in the host's nearest caches."""
FEW_PIXELS = 8
"""Where there are fewer, looking at all weights would take longer than carrying at each step."""
_ONE: Any = np.int64(1)


@jit
def is_contiguous(w: ConvShape) -> Any:
    """True if the inputs of a kernel row are contiguous."""
    return w.kernel_w == 1 or (w.dilation_w == 1 and w.in_pixel_stride == w.in_channels << 1)


@jit
def is_gathered(w: ConvShape) -> Any:
    """True if the windows cannot be read in place: an input is left over in each run."""
    return (w.kernel_w * w.in_channels if is_contiguous(w) else w.in_channels) & 1 != 0


@jit
def window_of(w: ConvShape, gathered: bool) -> Any:
    """A pixel's inputs, in place or gathered."""
    row, step = w.dilation_h * w.in_row_stride, w.dilation_w * w.in_pixel_stride
    if gathered:
        return InputWindow(_ONE, ORIGIN, _ONE, ORIGIN, w.kernel_h * row_length(w, INT16))
    if is_contiguous(w):
        return InputWindow(w.kernel_h, row, _ONE, ORIGIN, w.kernel_w * w.in_channels)
    return InputWindow(w.kernel_h, row, w.kernel_w, step, w.in_channels)


@jit
def range_of(inputs: Int16s) -> Any:
    """Smallest and largest number, or 0."""
    low, high = np.int16(0), np.int16(0)
    for i in range(inputs.size):
        low = inputs[i] if inputs[i] < low else low
        high = inputs[i] if inputs[i] > high else high
    return np.int64(low), np.int64(high)


@jit
def runs_below(w: ConvShape) -> Any:
    """All windows' inputs, with what lies between: rows, runs in each, and a run's length."""
    rows = (w.out_h - 1) * w.stride_h + (w.kernel_h - 1) * w.dilation_h + 1
    columns = (w.out_w - 1) * w.stride_w + (w.kernel_w - 1) * w.dilation_w + 1
    if w.in_pixel_stride == w.in_channels << 1:
        return rows, _ONE, columns * w.in_channels
    return rows, columns, w.in_channels


@jit
def range_of_windows(spm: Scratchpad, w: ConvShape, corner: Int) -> Any:
    """Smallest and largest of these inputs, or 0."""
    rows, runs, length = runs_below(w)
    low, high = ORIGIN, ORIGIN
    for y in range(rows):
        for x in range(runs):
            start = (corner + y * w.in_row_stride + x * w.in_pixel_stride) >> 1
            least, most = range_of(spm.i16[start : start + length])
            low, high = min(low, least), max(high, most)
    return low, high


@jit
def energy_of_windows(spm: Scratchpad, w: ConvShape, corner: Int) -> Any:
    """The most of any granule of these inputs; windows begin with one."""
    rows, runs, length = runs_below(w)
    energy = ORIGIN
    for y in range(rows):
        for x in range(runs):
            start = (corner + y * w.in_row_stride + x * w.in_pixel_stride) >> 1
            energy = energy_of(spm.i16, start, length // GRANULE, energy)
    return energy


@jit_allocating
def find_steps(
    spm: Scratchpad,
    w: ConvShape,
    window: InputWindow,
    corner: Int,
    weights: Int,
    blocks: Int,
    reach: Int64s,
    is_kept: bool,
) -> Any:
    """Steps between two carries of a tile's sums."""
    low, high = range_of_windows(spm, w, corner)
    if not is_kept and w.out_h * w.out_w < FEW_PIXELS and low > -32768:
        return _ONE
    room = np.empty(3 * LANES, np.int32)
    twos, runs = (window.length + 1) >> 1, window.rows * window.runs * blocks
    steps = steps_between(spm.i16, weights, runs, twos, low, high, -_ONE, is_kept, reach, room)
    if steps < ENOUGH and w.in_channels % GRANULE == 0:
        energy = energy_of_windows(spm, w, corner)
        steps = steps_between(spm.i16, weights, runs, twos, low, high, energy, is_kept, reach, room)
    return steps


class Batch(NamedTuple):
    """Some pixels of one group."""

    window: InputWindow
    weights: Int
    """Element."""
    corner: Int
    first: Int
    """Channel."""
    lane: Int
    """The first channel's."""
    is_gathered: bool
    steps: Int
    """Between two carries of the sums."""
    way: Int
    """How sums are scaled (``result_blocks.py``)."""
    patches: Int16s
    """int16 [PIXELS, depth], used where windows cannot be read in place or are summed up."""
    sums: Int64s
    """int64 [PIXELS, lanes]"""
    halves: Int16s
    """What :func:`split_pairs` makes of the weights if the products of a pair may be too large."""
    others: Int64s
    """As ``sums``, those of the second half."""
    accounts: Int32s
    """int32 [blocks, ACCOUNTS, LANES]"""


@jit_allocating
def split_pairs(weights: Int16s) -> Any:
    """Weights int16 [2, size]: those of either input of each pair, and 0 for the other one."""
    halves = np.zeros((2, weights.size), np.int16)
    for i in range(weights.size):
        halves[i & 1, i] = weights[i]
    return halves


@jit
def multiply(
    spm: Scratchpad, b: Batch, inputs: Int16s, base: Int, offsets: Int64s, pixels: Int
) -> None:
    """Sums of products of pixels' windows, from byte ``base`` of the inputs."""
    if b.halves.size == 0:
        where = inputs, base, offsets, b.window, b.steps
        products_int16(*where, spm.i16, b.weights, pixels, b.sums)
        return
    once = inputs, base, offsets, b.window, _ONE
    products_int16(*once, b.halves[0], ORIGIN, pixels, b.sums)
    products_int16(*once, b.halves[1], ORIGIN, pixels, b.others)
    for p in range(pixels):
        for c in range(b.sums.shape[1]):
            b.sums[p, c] += b.others[p, c]


@jit
def put_products(
    spm: Scratchpad, w: ConvShape, b: Batch, workspace: ConvWorkspace, begin: Int, pixels: Int
) -> None:
    """Sums of products of the pixels from ``begin`` on."""
    offsets = workspace.offsets
    put_offsets(w, begin, w.out_h * w.out_w, offsets)
    if b.is_gathered or workspace.head[HAS_OFFSETS]:
        for p in range(pixels):
            gather(spm, INT16, w, b.corner + offsets[p], b.patches[p])
    if b.is_gathered:
        for p in range(pixels):
            offsets[p] = p * 2 * b.patches.shape[1]
        multiply(spm, b, b.patches.reshape(-1), ORIGIN, offsets, pixels)
    else:
        multiply(spm, b, spm.i16, b.corner, offsets, pixels)


@jit
def window_sum(patch: Int16s) -> Any:
    """Sum of a pixel's inputs."""
    total = np.int64(0)
    for k in range(patch.size):
        total += np.int64(patch[k])
    return total


@jit
def put_sums(
    spm: Scratchpad,
    b: Batch,
    parts: Parts,
    partial: Int,
    workspace: ConvWorkspace,
    p: Int,
) -> None:
    """Sums of a pixel: start, or running sums, and products, less zero points times the window."""
    run, integers = workspace.run, workspace.integers
    if parts.begins:
        copy_run(integers[START], ORIGIN, run, ORIGIN, run.size)
    else:
        read_sums(spm, INT16, partial, run)
    products = b.sums[p, b.lane : b.lane + run.size]
    for c in range(run.size):
        run[c] += products[c]
    if workspace.head[HAS_OFFSETS]:
        window = window_sum(b.patches[p])
        for c in range(run.size):
            run[c] -= integers[OFFSET, c] * window


@jit
def is_plain(
    w: ConvShape,
    parts: Parts,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
    b: Batch,
    workspace: ConvWorkspace,
) -> Any:
    """True if results fill whole blocks of channels, and pixels are equally far apart."""
    channels, addends = counters.layers[place.layer].channels, workspace.integers[ADDEND]
    is_alone = parts.begins and parts.ends and workspace.head[HAS_OFFSETS] == 0
    is_even = b.lane == 0 and addends.size % LANES == 0
    is_even = is_even and w.out_row_stride == w.out_w * w.out_pixel_stride
    is_even = is_even and place.stride_y % channels == 0 and place.stride_x % channels == 0
    return is_alone and is_even and (b.way in (INTEGER, FIXED) or largest(addends) < MAX_ADDEND)


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
    """Results of the pixels from ``begin`` on, straight to where they belong.

    Bits of what was limited; -1, and nothing is counted, if one is beyond what can be held or if
    the layer's first limited result may be among them.
    """
    start = at.output + begin * w.out_pixel_stride + 2 * b.first
    zero = np.float32(early_zero_point(q))
    found = finish_wide(
        b.sums,
        pixels,
        workspace.integers,
        workspace.reals,
        b.way,
        zero,
        b.accounts,
        q.clip,
        spm.i16,
        start,
        w.out_pixel_stride,
    )
    lowest = place.origin + begin // w.out_w * place.stride_y + b.first
    if found & BEYOND or may_be_first(lowest, found, q.clip, place.layer, counters):
        take_back(b.accounts, ORIGIN)
        return -_ONE
    return found


@jit
def put_results(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    parts: Parts,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
    b: Batch,
    workspace: ConvWorkspace,
    begin: Int,
    pixels: Int,
) -> None:
    """Results, or running sums, of the pixels from ``begin`` on, pixel by pixel."""
    run = workspace.run
    for p in range(pixels):
        y = (begin + p) // w.out_w
        x = begin + p - y * w.out_w
        partial = at.partial + (((begin + p) * w.out_channels + b.first) << 3)
        put_sums(spm, b, parts, partial, workspace, p)
        if not parts.ends:
            write_run(run, run.size, spm, 2 + INT16, partial)
            continue
        index = place.origin + y * place.stride_y + x * place.stride_x + b.first
        requantize(run, workspace.integers, workspace.reals, q, index, place.layer, counters)
        to = at.output + y * w.out_row_stride + x * w.out_pixel_stride + 2 * b.first
        write_run(run, run.size, spm, INT16, to)


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
    limited, all_pixels = ORIGIN, w.out_h * w.out_w
    plain, found = b.way >= 0 and is_plain(w, parts, q, place, counters, b, workspace), ORIGIN
    clear_accounts(b.accounts, ORIGIN)
    left, begin = (all_pixels + PIXELS - 1) // PIXELS, ORIGIN
    while left > 0:
        pixels = (all_pixels - begin + left - 1) // left
        put_products(spm, w, b, workspace, begin, pixels)
        if plain:
            found = put_plain_results(spm, w, at, q, place, counters, b, workspace, begin, pixels)
            limited |= max(found, ORIGIN)
        if not plain or found < 0:
            put_results(spm, w, at, parts, q, place, counters, b, workspace, begin, pixels)
        begin += pixels
        left -= 1
    if limited:
        last = place.origin + b.first
        last += max((w.out_h - 1) * place.stride_y, ORIGIN)
        last += max((w.out_w - 1) * place.stride_x, ORIGIN)
        lanes = b.lane, workspace.run.size
        add_accounts(b.accounts, ORIGIN, *lanes, q.clip, last, place.layer, counters)


@jit_allocating
def conv_int16(
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
    count = workspace.run.size
    first = group * count
    lane = first % LANES
    depth = w.kernel_h * row_length(w, INT16)
    weights = (at.weights >> 1) + (first - lane) * depth
    blocks = (lane + count + LANES - 1) // LANES
    corner = at.input + group * w.in_channels * 2
    gathered = is_gathered(w)
    window = window_of(w, gathered)
    is_kept = bool(parts.begins and parts.ends and at.partial >= 0)
    own = np.empty(2 * LEVELS, np.int64)
    own[:] = -1
    reach = spm.i64[at.partial >> 3 : (at.partial >> 3) + 2 * LEVELS] if is_kept else own
    steps = find_steps(spm, w, window, corner, weights, blocks, reach, is_kept)
    split = blocks * LANES * depth if steps == 0 else 0
    is_copied = gathered or workspace.head[HAS_OFFSETS] != 0
    batch = Batch(
        window,
        weights,
        corner,
        first,
        lane,
        gathered,
        steps,
        way_of(q),
        np.zeros((PIXELS if is_copied else 0, depth), np.int16),
        np.empty((PIXELS, blocks * LANES), np.int64),
        split_pairs(spm.i16[weights : weights + split]),
        np.empty((PIXELS if split else 0, blocks * LANES), np.int64),
        np.empty((blocks, ACCOUNTS, LANES), np.int32),
    )
    convolve_batches(spm, w, at, parts, q, place, counters, struct_pointer(batch), workspace)
