"""Elementwise operations on one core's scratchpad."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ORIGIN, copy_run
from nmpsim.kernels.saturate import ONCE, Clip, apply_scale, clip_run, saturate_run, scale_run
from nmpsim.kernels.stages import RESCALE

ADD, SUB, MAX, MIN, MUL = range(5)


class Pair(NamedTuple):
    """Geometry of two tensors and their result; offsets and strides in bytes."""

    operation: Any
    lhs: Any
    rhs: Any
    output: Any
    rhs_is_int32: Any
    rows: Any
    columns: Any
    lhs_stride: Any
    rhs_stride: Any
    out_stride: Any


class PairScales(NamedTuple):
    """Zero points and scales of a binary operation; ``out_scale`` is for mul only."""

    lhs_offset: Any
    rhs_offset: Any
    lhs_scale: Any
    rhs_scale: Any
    out_scale: Any
    out_offset: Any
    clip: Any


@jit
def combine(operation: Any, left: Any, right: Any, count: Any) -> None:
    """add, sub, max or min of two runs, into ``left``."""
    if operation == ADD:
        for i in range(count):
            left[i] += right[i]
    elif operation == SUB:
        for i in range(count):
            left[i] -= right[i]
    elif operation == MAX:
        for i in range(count):
            left[i] = max(left[i], right[i])
    else:
        for i in range(count):
            left[i] = min(left[i], right[i])


@jit
def multiply(left: Any, right: Any, count: Any, q: Any, index: Any, layer: Any, sink: Any) -> None:
    """Product of two runs on the result's scale, into ``left``; products saturate to 32 bits."""
    for i in range(count):
        left[i] *= right[i]
    saturate_run(left, count, RESCALE, index, layer, sink)
    scale_run(left, count, q.out_scale, index, layer, sink)


@jit
def eltwise(spm: Any, spm32: Any, t: Any, q: Any, place: Any, sink: Any) -> None:
    """Binary operation of one tile."""
    layer = place.layer
    count = t.columns
    left = np.zeros(count, np.int64)
    right = np.zeros(count, np.int64)
    for row in range(t.rows):
        index = place.origin + row * place.stride_y
        copy_run(spm, t.lhs + row * t.lhs_stride, left, ORIGIN, count)
        if t.rhs_is_int32:
            copy_run(spm32, (t.rhs + row * t.rhs_stride) // 4, right, ORIGIN, count)
        else:
            copy_run(spm, t.rhs + row * t.rhs_stride, right, ORIGIN, count)
        for i in range(count):
            left[i] -= q.lhs_offset
            right[i] -= q.rhs_offset
        saturate_run(right, count, RESCALE, index, layer, sink)
        if t.operation == MUL:
            multiply(left, right, count, q, index, layer, sink)
        else:
            scale_run(left, count, q.lhs_scale, index, layer, sink)
            scale_run(right, count, q.rhs_scale, index, layer, sink)
            combine(t.operation, left, right, count)
        for i in range(count):
            left[i] += q.out_offset
        clip_run(left, count, q.clip, index, layer, sink)
        copy_run(left, ORIGIN, spm, t.output + row * t.out_stride, count)
    sink.layers[layer].elements += t.rows * count


class Unary(NamedTuple):
    """How one value becomes another."""

    in_low: Any
    in_high: Any
    in_offset: Any
    scale: Any
    leaky: Any
    leaky_scale: Any
    out_offset: Any
    clip: Any


@jit
def rescale_tile(
    spm: Any, source: Any, target: Any, count: Any, u: Any, place: Any, sink: Any
) -> None:
    """Clamp (an activation, not saturation), change scale, clip."""
    layer = place.layer
    values = np.zeros(count, np.int64)
    copy_run(spm, source, values, ORIGIN, count)
    clamp = Clip(u.in_low, u.in_high, np.int64(3))
    clip_run(values, count, clamp, place.origin, layer, sink)
    for i in range(count):
        values[i] -= u.in_offset
    if u.leaky:
        for i in range(count):
            scale = u.leaky_scale if values[i] < 0 else u.scale
            values[i] = apply_scale(values[i], scale, RESCALE, ONCE, place.origin + i, layer, sink)
    else:
        scale_run(values, count, u.scale, place.origin, layer, sink)
    for i in range(count):
        values[i] += u.out_offset
    clip_run(values, count, u.clip, place.origin, layer, sink)
    copy_run(values, ORIGIN, spm, target, count)
    sink.layers[place.layer].elements += count


@jit
def look_up(spm: Any, source: Any, target: Any, table: Any, count: Any) -> None:
    """Each element through a table of 256 bytes."""
    for i in range(count):
        spm[target + i] = spm[table + np.int64(spm[source + i]) + 128]
