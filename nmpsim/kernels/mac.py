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
from nmpsim.kernels.channels import INTEGERS, OFFSET, REALS, START, put_channels, put_starts
from nmpsim.kernels.dot import LANES, PATCHES, dot_int8, dot_int16
from nmpsim.kernels.jit import jit, jit_allocating
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
def block_sums(
    spm: Any, element: Any, weights: Any, first: Any, patches: Any, sums: Any, wide_sums: Any
) -> None:
    """Products of all patches with the blocks of weights from channel ``first`` on, unchecked.

    They go to ``sums`` (int32), or ``wide_sums`` (int64) for Int16: [PATCHES, lanes].
    """
    start = (weights >> element) + first // LANES * LANES * patches.shape[1]
    if element == INT16:
        end = start + wide_sums.shape[1] * patches.shape[1]
        dot_int16(spm.i16[start:end], patches, wide_sums)
    else:
        end = start + sums.shape[1] * patches.shape[1]
        dot_int8(spm.i8[start:end], patches, sums)


@jit
def put_sums(run: Any, products: Any, integers: Any, window: Any) -> None:
    """Sums of a pixel: start, products of the weights, less their zero points times the window."""
    for c in range(run.size):
        run[c] = integers[START, c] + np.int64(products[c]) - integers[OFFSET, c] * window


@jit
def put_exact_sums(
    spm: Any,
    weights: Any,
    first: Any,
    patch: Any,
    integers: Any,
    run: Any,
    element: Any,
    index: Any,
    layer: Any,
    sink: Any,
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
            total = saturate_sum(total, element, index + c, layer, sink)
        run[c] = total


@jit
def window_sum(patch: Any, integers: Any) -> Any:
    """Sum of a pixel's inputs; 0 if no weight has a zero point to take it off for."""
    offsets = np.int64(0)
    for c in range(integers.shape[1]):
        offsets |= integers[OFFSET, c]
    total = np.int64(0)
    if offsets != 0:
        for k in range(patch.size):
            total += np.int64(patch[k])
    return total


@jit_allocating
def conv(spm: Any, w: Any, at: Any, parts: Any, q: Any, place: Any, sink: Any) -> None:
    """2-D convolution of one tile."""
    side = 4 >> q.element
    row = (w.kernel_w * w.in_channels + side - 1) // side * side
    depth = w.kernel_h * row
    pixels = w.out_h * w.out_w
    count = w.out_channels // w.groups
    sum_size = 2 + q.element
    most = np.int64(0)
    if not parts.begins:
        most = largest_partial(spm, q.element, at.partial, pixels * w.out_channels)
    patches = np.zeros((PATCHES, depth), np.int16)
    integers = np.zeros((INTEGERS, count), np.int64)
    reals = np.zeros((REALS, count), np.float64)
    run = np.zeros(count, np.int64)
    for group in range(w.groups):
        first = group * count
        lane = first % LANES
        lanes = (lane + count + LANES - 1) // LANES * LANES
        sums = np.zeros((PATCHES, 0 if q.element == INT16 else lanes), np.int32)
        wide_sums = np.zeros((PATCHES, lanes if q.element == INT16 else 0), np.int64)
        put_channels(spm, at, q, first, integers, reals)
        if parts.begins:
            put_starts(spm, at, q, first, integers, pixels, place, sink)
            most = largest(integers[START])
        checked = may_overflow(most, depth, q.element)
        for begin in range(0, pixels, PATCHES):
            filled = min(PATCHES, pixels - begin)
            for p in range(filled):
                gather(spm, q.element, w, at, group, begin + p, patches[p], row)
            if not checked:
                block_sums(spm, q.element, at.weights, first, patches, sums, wide_sums)
            for p in range(filled):
                pixel = begin + p
                y = pixel // w.out_w
                x = pixel - y * w.out_w
                index = place.origin + y * place.stride_y + x * place.stride_x + first
                partial = at.partial + ((pixel * w.out_channels + first) << sum_size)
                if not parts.begins:
                    read_sums(spm, q.element, partial, integers[START])
                if checked:
                    put_exact_sums(
                        spm,
                        at.weights,
                        first,
                        patches[p],
                        integers,
                        run,
                        q.element,
                        index,
                        place.layer,
                        sink,
                    )
                elif q.element == INT16:
                    window = window_sum(patches[p], integers)
                    put_sums(run, wide_sums[p, lane : lane + count], integers, window)
                else:
                    window = window_sum(patches[p], integers)
                    put_sums(run, sums[p, lane : lane + count], integers, window)
                if parts.ends:
                    requantize(run, integers, reals, q, index, place.layer, sink)
                    to = at.output + y * w.out_row_stride + x * w.out_pixel_stride
                    write_run(run, count, spm, q.element, to + (first << q.element))
                else:
                    write_run(run, count, spm, sum_size, partial)
    if parts.ends:
        sink.layers[place.layer].elements += pixels * w.out_channels
