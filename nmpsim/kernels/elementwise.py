"""Elementwise operations on one core's scratchpad."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.jit import jit
from nmpsim.kernels.saturate import ONCE, clip_result, record, rescale, to_int32
from nmpsim.kernels.stages import ACTIVATION, HIGH, LOW, RESCALE

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
def combine(
    operation: Any, left: Any, right: Any, q: Any, index: Any, layer: Any, sink: Any
) -> Any:
    """The operation on two values less their zero points; the sum of both is within 33 bits."""
    if operation == MUL:
        product = to_int32(left * right, RESCALE, ONCE, index, layer, sink)
        return rescale(product, q.out_scale, index, layer, sink)
    x = rescale(left, q.lhs_scale, index, layer, sink)
    y = rescale(right, q.rhs_scale, index, layer, sink)
    if operation == ADD:
        return x + y
    if operation == SUB:
        return x - y
    if operation == MAX:
        return max(x, y)
    return min(x, y)


@jit
def eltwise(spm: Any, spm32: Any, t: Any, q: Any, place: Any, sink: Any) -> None:
    """Binary operation of one tile."""
    for row in range(t.rows):
        for column in range(t.columns):
            left = np.int64(spm[t.lhs + row * t.lhs_stride + column]) - q.lhs_offset
            if t.rhs_is_int32:
                right = np.int64(spm32[(t.rhs + row * t.rhs_stride) // 4 + column])
            else:
                right = np.int64(spm[t.rhs + row * t.rhs_stride + column])
            index = place.origin + row * place.stride_y + column
            right = to_int32(right - q.rhs_offset, RESCALE, ONCE, index, place.layer, sink)
            value = combine(t.operation, left, right, q, index, place.layer, sink)
            spm[t.output + row * t.out_stride + column] = clip_result(
                value + q.out_offset, q.clip, index, place.layer, sink
            )
    sink.layers[place.layer].elements += t.rows * t.columns


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
    for i in range(count):
        x = np.int64(spm[source + i])
        index = place.origin + i
        if x < u.in_low:
            record(sink, place.layer, ACTIVATION, LOW, index, u.in_low - x, ONCE)
            x = np.int64(u.in_low)
        elif x > u.in_high:
            record(sink, place.layer, ACTIVATION, HIGH, index, x - u.in_high, ONCE)
            x = np.int64(u.in_high)
        x -= u.in_offset
        if u.leaky and x < 0:
            value = rescale(x, u.leaky_scale, index, place.layer, sink)
        else:
            value = rescale(x, u.scale, index, place.layer, sink)
        spm[target + i] = clip_result(value + u.out_offset, u.clip, index, place.layer, sink)
    sink.layers[place.layer].elements += count


@jit
def look_up(spm: Any, source: Any, target: Any, table: Any, count: Any) -> None:
    """Each element through a table of 256 bytes."""
    for i in range(count):
        spm[target + i] = spm[table + np.int64(spm[source + i]) + 128]
