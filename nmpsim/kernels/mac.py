"""The MAC array: convolution, depthwise convolution, matrix product.

All work on one core's scratchpad, given as int8 (``spm``) with byte offsets into it. Sums start
at the rescaled bias plus the zero term; then ``(w - weight_offset) * x`` is added in the order ky,
kx, channel. Where the sizes prove that 32 bits hold every partial sum, nothing is checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.dot import DEPTH, LANES, PATCHES, dot_block
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ORIGIN, copy_run
from nmpsim.kernels.rounding import HELD, held
from nmpsim.kernels.saturate import (
    ONCE,
    IntegerScale,
    apply_scale,
    clip_run,
    saturate_run,
    scale_run,
    to_int32,
)
from nmpsim.kernels.stages import ACCUMULATOR, BIAS, RESCALE

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
def sum_starts(
    spm32: Any, spm64: Any, at: Any, q: Any, count: Any, pixels: Any, place: Any, sink: Any
) -> Any:
    """Rescaled bias plus zero term of each channel; what is cut is cut for every pixel."""
    starts = np.zeros(count, np.int64)
    for channel in range(count):
        _, bias_scale, _ = channel_scales(spm32, at, channel, q)
        record = at.channels // 8 + 2 * channel
        index = place.origin + channel
        bias = to_int32(spm64[record], BIAS, pixels, index, place.layer, sink)
        bias = apply_scale(bias, bias_scale, BIAS, pixels, index, place.layer, sink)
        total = bias + held(spm64[record + 1], HELD)
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


class ChannelScales(NamedTuple):
    """Weight offset and output scale of each channel, as arrays."""

    offset: Any
    pre: Any
    mul: Any
    rounding: Any
    post: Any


@jit
def all_channel_scales(spm32: Any, at: Any, count: Any, q: Any) -> Any:
    """The scales of ``count`` channels."""
    scales = np.zeros((5, count), np.int64)
    for channel in range(count):
        offset, _, out = channel_scales(spm32, at, channel, q)
        scales[0, channel] = offset
        scales[1, channel] = out.pre
        scales[2, channel] = out.mul
        scales[3, channel] = np.int64(1) << (out.post - 1) if out.post > 0 else 0
        scales[4, channel] = out.post
    return ChannelScales(scales[0], scales[1], scales[2], scales[3], scales[4])


@jit
def scale_channels(
    values: Any, count: Any, scales: Any, channel: Any, index: Any, layer: Any, sink: Any
) -> None:
    """As ``scale_run``, but each value has the scale of its channel, from ``channel`` on."""
    for i in range(count):
        c = channel + i
        values[i] = (values[i] >> scales.pre[c]) * scales.mul[c] + scales.rounding[c]
    saturate_run(values, count, RESCALE, index, layer, sink)
    for i in range(count):
        values[i] >>= scales.post[channel + i]


@jit
def finish_run(values: Any, count: Any, q: Any, index: Any, place: Any, sink: Any) -> None:
    """Results from scaled sums, in place: zero point, activation, clip."""
    for i in range(count):
        values[i] += q.out_offset
    if q.leaky:
        for i in range(count):
            if values[i] < q.out_offset:
                below = values[i] - q.out_offset
                scaled = apply_scale(
                    below, q.leaky_scale, RESCALE, ONCE, index + i, place.layer, sink
                )
                values[i] = scaled + q.out_offset
    clip_run(values, count, q.clip, index, place.layer, sink)


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
def block_sums(
    spm: Any, w: Any, at: Any, group: Any, patches: Any, sums: Any, totals: Any, count: Any
) -> None:
    """``totals[p, c]`` = products of patch p with channel c of a group, unchecked."""
    per_group = w.out_channels // w.groups
    first = group * per_group
    depth = patches.shape[1]
    for block in range(first // LANES, (first + per_group + LANES - 1) // LANES):
        where = at.weights + block * depth * LANES
        dot_block(spm[where : where + depth * LANES], patches, sums)
        low = max(first, block * LANES)
        high = min(first + per_group, block * LANES + LANES)
        for p in range(count):
            for channel in range(low, high):
                totals[p, channel - first] = sums[p, channel - block * LANES]


@jit
def conv(
    spm: Any,
    spm32: Any,
    spm64: Any,
    w: Any,
    at: Any,
    parts: Any,
    q: Any,
    place: Any,
    sink: Any,
) -> None:
    """2-D convolution of one tile."""
    row4 = (w.kernel_w * w.in_channels + DEPTH - 1) // DEPTH * DEPTH
    depth = w.kernel_h * row4
    pixels = w.out_h * w.out_w
    per_group = w.out_channels // w.groups
    partial = at.partial // 4
    if parts.begins:
        starts = sum_starts(spm32, spm64, at, q, w.out_channels, pixels, place, sink)
        most = largest(starts)
    else:
        starts = np.zeros(w.out_channels, np.int64)
        most = largest(spm32[partial : partial + pixels * w.out_channels])
    checked = may_overflow(most, depth)
    scales = all_channel_scales(spm32, at, w.out_channels, q)
    patches = np.zeros((PATCHES, depth), np.int16)
    sums = np.zeros((PATCHES, LANES), np.int32)
    totals = np.zeros((PATCHES, per_group), np.int64)
    for group in range(w.groups):
        first = group * per_group
        for begin in range(0, pixels, PATCHES):
            count = min(PATCHES, pixels - begin)
            for p in range(count):
                gather(spm, w, at, group, begin + p, patches[p], row4)
            if not checked:
                block_sums(spm, w, at, group, patches, sums, totals, count)
            for p in range(count):
                pixel = begin + p
                y = pixel // w.out_w
                x = pixel - y * w.out_w
                index = place.origin + y * place.stride_y + x * place.stride_x + first
                run = totals[p]
                if not parts.begins:
                    copy_run(
                        spm32, partial + pixel * w.out_channels + first, starts, first, per_group
                    )
                if checked:
                    exact_run(spm, at, patches[p], starts, scales, first, run, index, place, sink)
                else:
                    window = patches[p].sum()
                    for c in range(per_group):
                        run[c] += starts[first + c] - scales.offset[first + c] * window
                if parts.ends:
                    scale_channels(run, per_group, scales, first, index, place.layer, sink)
                    finish_run(run, per_group, q, index, place, sink)
                    to = at.output + y * w.out_row_stride + x * w.out_pixel_stride + first
                    copy_run(run, ORIGIN, spm, to, per_group)
                else:
                    to = partial + pixel * w.out_channels + first
                    copy_run(run, ORIGIN, spm32, to, per_group)
    if parts.ends:
        sink.layers[place.layer].elements += pixels * w.out_channels


@jit
def exact_run(
    spm: Any,
    at: Any,
    patch: Any,
    starts: Any,
    scales: Any,
    first: Any,
    run: Any,
    index: Any,
    place: Any,
    sink: Any,
) -> None:
    """Sums of one pixel's channels from ``first`` on, saturated at every step."""
    depth = patch.size
    for c in range(run.size):
        channel = first + c
        where = at.weights + channel // LANES * depth * LANES
        run[c] = exact_sum(
            starts[channel],
            spm[where : where + depth * LANES],
            channel % LANES,
            patch,
            scales.offset[channel],
            index + c,
            place,
            sink,
        )


@jit
def depthwise(
    spm: Any, spm32: Any, spm64: Any, w: Any, at: Any, q: Any, place: Any, sink: Any
) -> None:
    """Depthwise convolution of one tile; ``w.out_channels`` channels, one a group."""
    channels = w.out_channels
    pixels = w.out_h * w.out_w
    starts = sum_starts(spm32, spm64, at, q, channels, pixels, place, sink)
    checked = may_overflow(largest(starts), w.kernel_h * w.kernel_w)
    scales = all_channel_scales(spm32, at, channels, q)
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
                        totals[c] += (np.int64(taps[c]) - scales.offset[c]) * np.int64(values[c])
                    if checked:
                        saturate_run(totals, channels, ACCUMULATOR, index, place.layer, sink)
            scale_channels(totals, channels, scales, ORIGIN, index, place.layer, sink)
            finish_run(totals, channels, q, index, place, sink)
            to = at.output + y * w.out_row_stride + x * w.out_pixel_stride
            copy_run(totals, ORIGIN, spm, to, channels)
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
                saturate_run(totals, g.columns, ACCUMULATOR, index, place.layer, sink)
        if parts.ends:
            scale_run(totals, g.columns, q.out, index, place.layer, sink)
            finish_run(totals, g.columns, q, index, place, sink)
            copy_run(totals, ORIGIN, spm, g.output + row * g.out_stride, g.columns)
        else:
            copy_run(totals, ORIGIN, spm32, partial + row * g.columns, g.columns)
    if parts.ends:
        sink.layers[place.layer].elements += g.rows * g.columns
