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
    largest,
    largest_partial,
    may_overflow,
    read_sums,
    saturate_sum,
)
from nmpsim.kernels.channels import all_channels, put_starts, some_channels
from nmpsim.kernels.dot import LANES, PATCHES, dot_int8, dot_int16
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import copy_run, write_run
from nmpsim.kernels.requantize import requantize


class Window(NamedTuple):
    """Geometry of a convolution; strides of the images in bytes."""

    groups: Any
    in_channels: Any
    out_channels: Any
    kernel_h: Any
    kernel_w: Any
    stride_h: Any
    stride_w: Any
    dilation_h: Any
    dilation_w: Any
    out_h: Any
    out_w: Any
    in_row_stride: Any
    in_pixel_stride: Any
    out_row_stride: Any
    out_pixel_stride: Any


class Parts(NamedTuple):
    """What a sum over several instructions does in this one."""

    begins: Any
    ends: Any


@jit
def gather(
    spm: Any, element: Any, w: Any, at: Any, group: Any, pixel: Any, patch: Any, row: Any
) -> None:
    """Copy the window of a pixel into ``patch``, each kernel row padded to ``row`` values."""
    y = pixel // w.out_w
    x = pixel - y * w.out_w
    corner = at.input + ((group * w.in_channels) << element)
    corner += y * w.stride_h * w.in_row_stride + x * w.stride_w * w.in_pixel_stride
    length = w.in_channels
    columns = w.kernel_w
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


@jit
def copy_lanes(sums: Any, first: Any, totals: Any, to: Any, count: Any) -> None:
    """Copy ``count`` lanes from ``first`` on of every patch to ``totals``."""
    for p in range(PATCHES):
        copy_run(sums[p], first, totals[p], to, count)


@jit
def block_sums(
    spm: Any, element: Any, weights: Any, first: Any, patches: Any, sums: Any, totals: Any
) -> None:
    """``totals[p, c]`` = products of patch p with channel ``first + c``, unchecked.

    ``sums`` are two arrays [PATCHES, LANES] to work in: int32 and int64.
    """
    depth = patches.shape[1]
    channels = totals.shape[1]
    end = first + channels
    for block in range(first // LANES, (end + LANES - 1) // LANES):
        where = (weights >> element) + block * depth * LANES
        low = max(first, block * LANES)
        count = min(end, block * LANES + LANES) - low
        if element == INT16:
            dot_int16(spm.i16[where : where + depth * LANES], patches, sums[1])
            copy_lanes(sums[1], low - block * LANES, totals, low - first, count)
        else:
            dot_int8(spm.i8[where : where + depth * LANES], patches, sums[0])
            copy_lanes(sums[0], low - block * LANES, totals, low - first, count)


@jit
def exact_sums(
    spm: Any,
    element: Any,
    weights: Any,
    first: Any,
    channels: Any,
    patch: Any,
    run: Any,
    index: Any,
    layer: Any,
    sink: Any,
) -> None:
    """Sums of one pixel's channels from ``first`` on, saturated at every step.

    Padding of the patch has x = 0.
    """
    in_block = 4 >> element
    for c in range(run.size):
        block, lane = (first + c) // LANES, (first + c) % LANES
        where = (weights >> element) + block * patch.size * LANES + lane * in_block
        total = channels.start[c]
        for k in range(patch.size):
            i = where + k // in_block * LANES * in_block + k % in_block
            weight = np.int64(spm.i16[i]) if element == INT16 else np.int64(spm.i8[i])
            total += (weight - channels.offset[c]) * np.int64(patch[k])
            total = saturate_sum(total, element, index + c, layer, sink)
        run[c] = total


@jit
def begin_sums(run: Any, channels: Any, patch: Any) -> None:
    """Add to products of weights what begins a sum, and what the weights' zero points take off."""
    start, offset = channels.start, channels.offset
    window = patch.sum()
    for c in range(run.size):
        run[c] += start[c] - offset[c] * window


@jit
def conv(spm: Any, w: Any, at: Any, parts: Any, q: Any, place: Any, sink: Any) -> None:
    """2-D convolution of one tile."""
    in_block = 4 >> q.element
    row = (w.kernel_w * w.in_channels + in_block - 1) // in_block * in_block
    pixels = w.out_h * w.out_w
    per_group = w.out_channels // w.groups
    sum_size = 2 + q.element
    channels = all_channels(spm, at, q, w.out_channels)
    if parts.begins:
        put_starts(channels, spm, at, q, pixels, place, sink)
        most = largest(channels.start)
    else:
        most = largest_partial(spm, q.element, at.partial, pixels * w.out_channels)
    checked = may_overflow(most, w.kernel_h * row, q.element)
    patches = np.zeros((PATCHES, w.kernel_h * row), np.int16)
    sums = np.zeros((PATCHES, LANES), np.int32), np.zeros((PATCHES, LANES), np.int64)
    totals = np.zeros((PATCHES, per_group), np.int64)
    reals = np.zeros(per_group, np.float32)
    for group in range(w.groups):
        first = group * per_group
        some = some_channels(channels, first, per_group)
        for begin in range(0, pixels, PATCHES):
            count = min(PATCHES, pixels - begin)
            for p in range(count):
                gather(spm, q.element, w, at, group, begin + p, patches[p], row)
            if not checked:
                block_sums(spm, q.element, at.weights, first, patches, sums, totals)
            for p in range(count):
                pixel = begin + p
                y = pixel // w.out_w
                x = pixel - y * w.out_w
                index = place.origin + y * place.stride_y + x * place.stride_x + first
                run = totals[p]
                partial = at.partial + ((pixel * w.out_channels + first) << sum_size)
                if not parts.begins:
                    read_sums(spm, q.element, partial, some.start)
                if checked:
                    exact_sums(
                        spm,
                        q.element,
                        at.weights,
                        first,
                        some,
                        patches[p],
                        run,
                        index,
                        place.layer,
                        sink,
                    )
                else:
                    begin_sums(run, some, patches[p])
                if parts.ends:
                    requantize(run, reals, some, q, index, place.layer, sink)
                    to = at.output + y * w.out_row_stride + x * w.out_pixel_stride
                    write_run(run, per_group, spm, q.element, to + (first << q.element))
                else:
                    write_run(run, per_group, spm, sum_size, partial)
    if parts.ends:
        sink.layers[place.layer].elements += pixels * w.out_channels
