"""The MAC array: convolution, depthwise convolution, matrix product.

All work on one core's scratchpad, given as int8 (``spm``) with byte offsets into it. Sums start
at the rescaled bias plus the zero term; then ``(w - weight_offset) * x`` is added in the order ky,
kx, channel. Where the sizes prove that 32 bits hold every partial sum, nothing is checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ORIGIN, copy_run
from nmpsim.kernels.saturate import ONCE, IntegerScale, apply_scale, clip_result, rescale, to_int32
from nmpsim.kernels.stages import ACCUMULATOR, BIAS

LANES = 16
"""Output channels of one weight block."""
PATCHES = 4
"""Pixels that share one pass over the weights."""
SUM_LIMIT = (1 << 31) - 1


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


class Operands(NamedTuple):
    """Byte offsets in the scratchpad; ``scales`` is negative if all channels share one scale."""

    input: Any
    weights: Any
    channels: Any
    scales: Any
    output: Any
    partial: Any


class Parts(NamedTuple):
    """What a sum over several instructions does in this one."""

    begins: Any
    ends: Any


class Quantizer(NamedTuple):
    """How a sum becomes a result."""

    weight_offset: Any
    bias: Any
    out: Any
    out_offset: Any
    leaky: Any
    leaky_scale: Any
    clip: Any


@jit
def channel_scales(spm32: Any, at: Any, channel: Any, q: Any) -> Any:
    """Weight offset, bias scale and output scale of one channel."""
    if at.scales < 0:
        return np.int64(q.weight_offset), q.bias, q.out
    i = at.scales // 4 + 7 * channel
    bias = IntegerScale(np.int64(spm32[i + 1]), np.int64(spm32[i + 2]), np.int64(spm32[i + 3]))
    out = IntegerScale(np.int64(spm32[i + 4]), np.int64(spm32[i + 5]), np.int64(spm32[i + 6]))
    return np.int64(spm32[i]), bias, out


@jit
def sum_starts(spm32: Any, at: Any, q: Any, count: Any, pixels: Any, place: Any, sink: Any) -> Any:
    """Rescaled bias plus zero term of each channel; what is cut is cut for every pixel."""
    starts = np.zeros(count, np.int64)
    for channel in range(count):
        _, bias_scale, _ = channel_scales(spm32, at, channel, q)
        record = at.channels // 4 + 2 * channel
        index = place.origin + channel
        bias = apply_scale(
            np.int64(spm32[record]), bias_scale, BIAS, pixels, index, place.layer, sink
        )
        total = bias + np.int64(spm32[record + 1])
        starts[channel] = to_int32(total, ACCUMULATOR, pixels, index, place.layer, sink)
    return starts


@jit
def may_overflow(largest_start: Any, terms: Any) -> Any:
    """True unless ``terms`` products cannot leave 32 bits: |w - offset| <= 255, |x| <= 128."""
    return largest_start + terms * 255 * 128 > SUM_LIMIT


@jit
def largest(values: Any) -> Any:
    """Largest magnitude."""
    most = np.int64(0)
    for i in range(values.size):
        most = max(most, abs(np.int64(values[i])))
    return most


@jit
def finish(total: Any, q: Any, out_scale: Any, index: Any, place: Any, sink: Any) -> Any:
    """A result from a finished sum: scale, activation, clip."""
    value = rescale(total, out_scale, index, place.layer, sink) + q.out_offset
    if q.leaky and value < q.out_offset:
        below = value - q.out_offset
        value = rescale(below, q.leaky_scale, index, place.layer, sink) + q.out_offset
    return clip_result(value, q.clip, index, place.layer, sink)


@jit
def gather(spm: Any, w: Any, at: Any, group: Any, pixel: Any, patch: Any, row4: Any) -> None:
    """Copy the window of a pixel into ``patch``, each kernel row padded to a multiple of four."""
    y = pixel // w.out_w
    x = pixel - y * w.out_w
    corner = at.input + group * w.in_channels
    corner += y * w.stride_h * w.in_row_stride + x * w.stride_w * w.in_pixel_stride
    length = w.in_channels
    columns = w.kernel_w
    if w.kernel_w == 1 or (w.dilation_w == 1 and w.in_pixel_stride == w.in_channels):
        length *= columns
        columns = 1
    for ky in range(w.kernel_h):
        for kx in range(columns):
            source = corner + ky * w.dilation_h * w.in_row_stride
            source += kx * w.dilation_w * w.in_pixel_stride
            target = ky * row4 + kx * length
            copy_run(spm, source, patch, target, length)


@jit
def dot_block(weights: Any, patches: Any, count: Any, sums: Any) -> None:
    """``sums[p, lane]`` = products of patch p with one block of 16 channels, unchecked int32."""
    for p in range(count):
        x = patches[p]
        total = sums[p]
        total[:] = 0
        for k in range(x.size // 4):
            x0 = np.int32(x[4 * k])
            x1 = np.int32(x[4 * k + 1])
            x2 = np.int32(x[4 * k + 2])
            x3 = np.int32(x[4 * k + 3])
            group = weights[64 * k : 64 * k + 64]
            for lane in range(LANES):
                total[lane] += (
                    np.int32(group[4 * lane]) * x0
                    + np.int32(group[4 * lane + 1]) * x1
                    + np.int32(group[4 * lane + 2]) * x2
                    + np.int32(group[4 * lane + 3]) * x3
                )


@jit
def exact_sum(
    start: Any, weights: Any, lane: Any, patch: Any, offset: Any, index: Any, place: Any, sink: Any
) -> Any:
    """One channel's sum, saturated at every step; padding of the patch has x = 0."""
    total = np.int64(start)
    for k in range(patch.size):
        weight = np.int64(weights[64 * (k // 4) + 4 * lane + k % 4]) - offset
        total += weight * np.int64(patch[k])
        total = to_int32(total, ACCUMULATOR, ONCE, index, place.layer, sink)
    return total


@jit
def conv(spm: Any, spm32: Any, w: Any, at: Any, parts: Any, q: Any, place: Any, sink: Any) -> None:
    """2-D convolution of one tile."""
    row4 = (w.kernel_w * w.in_channels + 3) // 4 * 4
    depth = w.kernel_h * row4
    pixels = w.out_h * w.out_w
    per_group = w.out_channels // w.groups
    partial = at.partial // 4
    if parts.begins:
        starts = sum_starts(spm32, at, q, w.out_channels, pixels, place, sink)
        most = largest(starts)
    else:
        starts = np.zeros(w.out_channels, np.int64)
        most = largest(spm32[partial : partial + pixels * w.out_channels])
    checked = may_overflow(most, depth)
    patches = np.zeros((PATCHES, depth), np.int8)
    window_sums = np.zeros(PATCHES, np.int64)
    sums = np.zeros((PATCHES, LANES), np.int32)
    for group in range(w.groups):
        first_channel = group * per_group
        for begin in range(0, pixels, PATCHES):
            count = min(PATCHES, pixels - begin)
            for p in range(count):
                gather(spm, w, at, group, begin + p, patches[p], row4)
                window_sums[p] = patches[p].sum()
            for block in range(
                first_channel // LANES, (first_channel + per_group + LANES - 1) // LANES
            ):
                where = at.weights + block * depth * LANES
                weights = spm[where : where + depth * LANES]
                if not checked:
                    dot_block(weights, patches, count, sums)
                low = max(first_channel, block * LANES)
                high = min(first_channel + per_group, block * LANES + LANES)
                for channel in range(low, high):
                    offset, _, out_scale = channel_scales(spm32, at, channel, q)
                    lane = channel - block * LANES
                    for p in range(count):
                        pixel = begin + p
                        y = pixel // w.out_w
                        x = pixel - y * w.out_w
                        index = place.origin + y * place.stride_y + x * place.stride_x + channel
                        start = starts[channel]
                        if not parts.begins:
                            start = np.int64(spm32[partial + pixel * w.out_channels + channel])
                        if checked:
                            total = exact_sum(
                                start, weights, lane, patches[p], offset, index, place, sink
                            )
                        else:
                            total = start + np.int64(sums[p, lane]) - offset * window_sums[p]
                        if parts.ends:
                            to = at.output + y * w.out_row_stride + x * w.out_pixel_stride
                            spm[to + channel] = finish(total, q, out_scale, index, place, sink)
                        else:
                            spm32[partial + pixel * w.out_channels + channel] = total
    if parts.ends:
        sink.layers[place.layer].elements += pixels * w.out_channels


@jit
def depthwise(spm: Any, spm32: Any, w: Any, at: Any, q: Any, place: Any, sink: Any) -> None:
    """Depthwise convolution of one tile; ``w.out_channels`` channels, one a group."""
    channels = w.out_channels
    pixels = w.out_h * w.out_w
    starts = sum_starts(spm32, at, q, channels, pixels, place, sink)
    checked = may_overflow(largest(starts), w.kernel_h * w.kernel_w)
    offsets = np.zeros(channels, np.int64)
    for channel in range(channels):
        offsets[channel], _, _ = channel_scales(spm32, at, channel, q)
    totals = np.zeros(channels, np.int64)
    for y in range(w.out_h):
        for x in range(w.out_w):
            corner = at.input + y * w.stride_h * w.in_row_stride
            corner += x * w.stride_w * w.in_pixel_stride
            index = place.origin + y * place.stride_y + x * place.stride_x
            copy_run(starts, ORIGIN, totals, ORIGIN, channels)
            for ky in range(w.kernel_h):
                for kx in range(w.kernel_w):
                    source = corner + ky * w.dilation_h * w.in_row_stride
                    source += kx * w.dilation_w * w.in_pixel_stride
                    where = at.weights + (ky * w.kernel_w + kx) * channels
                    taps = spm[where : where + channels]
                    values = spm[source : source + channels]
                    for c in range(channels):
                        totals[c] += (np.int64(taps[c]) - offsets[c]) * np.int64(values[c])
                    if checked:
                        for c in range(channels):
                            totals[c] = to_int32(
                                totals[c], ACCUMULATOR, ONCE, index + c, place.layer, sink
                            )
            to = at.output + y * w.out_row_stride + x * w.out_pixel_stride
            for c in range(channels):
                _, _, out_scale = channel_scales(spm32, at, c, q)
                spm[to + c] = finish(totals[c], q, out_scale, index + c, place, sink)
    sink.layers[place.layer].elements += pixels * channels


class Product(NamedTuple):
    """Geometry of a matrix product; offsets and strides in bytes."""

    lhs: Any
    rhs: Any
    output: Any
    partial: Any
    rows: Any
    inner: Any
    columns: Any
    lhs_stride: Any
    rhs_stride: Any
    out_stride: Any
    lhs_offset: Any
    rhs_offset: Any


@jit
def gemm(spm: Any, spm32: Any, g: Any, parts: Any, q: Any, place: Any, sink: Any) -> None:
    """Product of two matrices of activations; sums in the order of the inner dimension."""
    totals = np.zeros(g.columns, np.int64)
    partial = g.partial // 4
    for row in range(g.rows):
        index = place.origin + row * place.stride_y
        if parts.begins:
            totals[:] = 0
        else:
            copy_run(spm32, partial + row * g.columns, totals, ORIGIN, g.columns)
        checked = may_overflow(largest(totals), 2 * g.inner)
        for k in range(g.inner):
            x = np.int64(spm[g.lhs + row * g.lhs_stride + k]) - g.lhs_offset
            where = g.rhs + k * g.rhs_stride
            values = spm[where : where + g.columns]
            for c in range(g.columns):
                totals[c] += x * (np.int64(values[c]) - g.rhs_offset)
            if checked:
                for c in range(g.columns):
                    totals[c] = to_int32(totals[c], ACCUMULATOR, ONCE, index + c, place.layer, sink)
        to = g.output + row * g.out_stride
        for c in range(g.columns):
            if parts.ends:
                spm[to + c] = finish(totals[c], q, q.out, index + c, place, sink)
            else:
                spm32[partial + row * g.columns + c] = totals[c]
    if parts.ends:
        sink.layers[place.layer].elements += g.rows * g.columns
