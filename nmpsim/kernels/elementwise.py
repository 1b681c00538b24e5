"""Elementwise operations on one core's scratchpad."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import (
    FLOAT,
    GLOW_FLOAT,
    OP_ADD,
    OP_MAX,
    OP_MUL,
    OP_SUB,
    Q31,
    QNNPACK,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import read_run, write_run
from nmpsim.kernels.rounding import float_of_bits, held, round_away, rounding_shift
from nmpsim.kernels.saturate import Clip, clip_run, saturate_run
from nmpsim.kernels.scale_runs import (
    add_integer,
    add_real,
    multiply_reals,
    round_run_away,
    round_run_even,
    scale_integers,
)
from nmpsim.kernels.stages import RESCALE

WIDEST_SIDE: Any = np.int64(1 << 61)
"""The sum of two fits 64 bits."""
BOTH_SIDES: Any = np.int64(3)


class Pair(NamedTuple):
    """Geometry of two tensors and their result; offsets and strides in bytes.

    ``element`` and ``rhs_size`` are log2 of the bytes of what lhs and result are, and rhs.
    """

    operation: Any
    element: Any
    rhs_size: Any
    lhs: Any
    rhs: Any
    output: Any
    rows: Any
    columns: Any
    lhs_stride: Any
    rhs_stride: Any
    out_stride: Any


class PairScales(NamedTuple):
    """Zero points and scales of a binary operation; ``result_scale`` holds float32 bits."""

    profile: Any
    lhs_offset: Any
    rhs_offset: Any
    lhs_scale: Any
    rhs_scale: Any
    out_scale: Any
    result_scale: Any
    out_offset: Any
    clip: Any


@jit
def combine(operation: Any, left: Any, right: Any, count: Any) -> None:
    """add, sub, max or min of two runs, into ``left``."""
    if operation == OP_ADD:
        for i in range(count):
            left[i] += right[i]
    elif operation == OP_SUB:
        for i in range(count):
            left[i] -= right[i]
    elif operation == OP_MAX:
        for i in range(count):
            left[i] = max(left[i], right[i])
    else:
        for i in range(count):
            left[i] = min(left[i], right[i])


@jit
def multiply_runs(left: Any, right: Any, count: Any) -> None:
    """Product of two runs, into ``left``."""
    for i in range(count):
        left[i] *= right[i]


@jit
def pair_of_integers(
    left: Any, right: Any, count: Any, t: Any, q: Any, index: Any, layer: Any, sink: Any
) -> None:
    """glow_int, nmp and q31, into ``left``, without the zero point of the result."""
    if t.operation == OP_MUL:
        multiply_runs(left, right, count)
        if q.profile != Q31 and t.element == 0:
            saturate_run(left, count, RESCALE, index, layer, sink)
    else:
        scale_integers(left, count, q.lhs_scale, q.profile, t.element, index, layer, sink)
        scale_integers(right, count, q.rhs_scale, q.profile, t.element, index, layer, sink)
        combine(t.operation, left, right, count)
    is_sum = t.operation == OP_ADD or t.operation == OP_SUB
    if t.operation == OP_MUL or (q.profile == Q31 and is_sum):
        scale_integers(left, count, q.out_scale, q.profile, t.element, index, layer, sink)


@jit
def pair_on_common_scale(left: Any, right: Any, count: Any, operation: Any, q: Any) -> None:
    """qnnpack: integer factors, the operation, one shift; into ``left``, no zero point."""
    for i in range(count):
        left[i] *= q.lhs_scale.mul
        right[i] *= q.rhs_scale.mul
    combine(operation, left, right, count)
    for i in range(count):
        left[i] = rounding_shift(left[i], q.out_scale.post)


@jit
def product_of_reals(left: Any, right: Any, count: Any, q: Any, reals: Any) -> None:
    """mul of the float profiles, into ``left``, without the zero point of the result."""
    multiply_runs(left, right, count)
    multiply_reals(left, count, float_of_bits(q.out_scale.mul), reals)
    if q.profile == GLOW_FLOAT:
        round_run_away(reals, count, left)
    else:
        round_run_even(reals, count, left)


@jit
def dequantize(values: Any, count: Any, scale: Any, reals: Any) -> None:
    """PyTorch's fused multiply-add: ``value * mul + addend`` rounded to float32 once.

    ``post`` holds the addend; float64 holds the product of an element and a float32.
    """
    factor = np.float64(float_of_bits(scale.mul))
    addend = np.float64(float_of_bits(scale.post))
    for i in range(count):
        reals[i] = np.float32(np.float64(values[i]) * factor + addend)


@jit
def pair_of_reals(
    left: Any, right: Any, count: Any, operation: Any, q: Any, reals: Any, other: Any
) -> None:
    """float: both sides as real numbers, the operation, the result's scale; into ``left``."""
    dequantize(left, count, q.lhs_scale, reals)
    dequantize(right, count, q.rhs_scale, other)
    combine(operation, reals, other, count)
    factor = float_of_bits(q.result_scale)
    for i in range(count):
        reals[i] *= factor
    round_run_even(reals, count, left)


@jit
def pair_of_glow_reals(
    left: Any, right: Any, count: Any, operation: Any, q: Any, reals: Any, other: Any
) -> None:
    """glow_float: as Glow's Interpreter; into ``left``, with the zero point of the result."""
    multiply_reals(left, count, float_of_bits(q.lhs_scale.mul), reals)
    multiply_reals(right, count, float_of_bits(q.rhs_scale.mul), other)
    if operation == OP_ADD:
        factor = float_of_bits(q.out_scale.mul)
        for i in range(count):
            total = held(round_away(reals[i]), WIDEST_SIDE)
            total += held(round_away(other[i]), WIDEST_SIDE)
            reals[i] = np.float32(total) * factor
    else:
        combine(operation, reals, other, count)
    if operation != OP_ADD and operation != OP_SUB:
        divisor = float_of_bits(q.result_scale)
        for i in range(count):
            reals[i] /= divisor
    add_real(reals, count, q.out_offset)
    if operation in (OP_ADD, OP_SUB):
        round_run_away(reals, count, left)
    else:
        round_run_even(reals, count, left)


@jit_allocating
def eltwise(spm: Any, t: Any, q: Any, place: Any, sink: Any) -> None:
    """Binary operation of one tile."""
    layer = place.layer
    count = t.columns
    is_mul = t.operation == OP_MUL
    left = np.zeros(count, np.int64)
    right = np.zeros(count, np.int64)
    reals = np.zeros(count, np.float32)
    other = np.zeros(count, np.float32)
    for row in range(t.rows):
        index = place.origin + row * place.stride_y
        read_run(spm, t.element, t.lhs + row * t.lhs_stride, left, count)
        read_run(spm, t.rhs_size, t.rhs + row * t.rhs_stride, right, count)
        add_integer(left, count, -q.lhs_offset)
        add_integer(right, count, -q.rhs_offset)
        saturate_run(right, count, RESCALE, index, layer, sink)
        if q.profile == GLOW_FLOAT and not is_mul:
            pair_of_glow_reals(left, right, count, t.operation, q, reals, other)
        else:
            if is_mul and q.profile in (GLOW_FLOAT, FLOAT):
                product_of_reals(left, right, count, q, reals)
            elif q.profile == FLOAT:
                pair_of_reals(left, right, count, t.operation, q, reals, other)
            elif q.profile == QNNPACK:
                pair_on_common_scale(left, right, count, t.operation, q)
            else:
                pair_of_integers(left, right, count, t, q, index, layer, sink)
            add_integer(left, count, q.out_offset)
        clip_run(left, count, q.clip, index, layer, sink)
        write_run(left, count, spm, t.element, t.output + row * t.out_stride)
    sink.layers[layer].elements += t.rows * count


class Unary(NamedTuple):
    """How one value becomes another; ``result_scale`` holds float32 bits."""

    element: Any
    profile: Any
    in_low: Any
    in_high: Any
    in_offset: Any
    scale: Any
    leaky: Any
    leaky_scale: Any
    result_scale: Any
    out_offset: Any
    clip: Any


@jit
def rescale_integers(
    values: Any, count: Any, u: Any, below: Any, index: Any, layer: Any, sink: Any
) -> None:
    """glow_int, nmp and q31, in place; ``below`` (int64) is room to work in.

    Every scale makes 0 of 0, so a leaky result is the sum of its two halves.
    """
    if u.leaky:
        for i in range(count):
            below[i] = min(values[i], 0)
            values[i] = max(values[i], 0)
        scale_integers(below, count, u.leaky_scale, u.profile, u.element, index, layer, sink)
    scale_integers(values, count, u.scale, u.profile, u.element, index, layer, sink)
    if u.leaky:
        combine(OP_ADD, values, below, count)
    add_integer(values, count, u.out_offset)


@jit
def rescale_glow_reals(values: Any, count: Any, u: Any, reals: Any) -> None:
    """glow_float, in place; ``reals`` (float32) is room to work in."""
    factor = float_of_bits(u.scale.mul)
    below = float_of_bits(u.leaky_scale.mul) if u.leaky else factor
    divisor = float_of_bits(u.result_scale)
    for i in range(count):
        reals[i] = np.float32(values[i]) * (below if values[i] < 0 else factor) / divisor
    add_real(reals, count, u.out_offset)
    round_run_even(reals, count, values)


@jit
def rescale_reals(values: Any, count: Any, u: Any, reals: Any) -> None:
    """float, in place; ``reals`` (float32) is room to work in."""
    multiply_reals(values, count, float_of_bits(u.scale.mul), reals)
    if u.leaky:
        below = float_of_bits(u.leaky_scale.mul)
        for i in range(count):
            if values[i] < 0:
                reals[i] *= below
    factor = float_of_bits(u.result_scale)
    for i in range(count):
        reals[i] *= factor
    round_run_even(reals, count, values)
    add_integer(values, count, u.out_offset)


@jit_allocating
def rescale_tile(
    spm: Any, source: Any, target: Any, count: Any, u: Any, place: Any, sink: Any
) -> None:
    """Clamp (an activation, not saturation), change scale, clip."""
    layer = place.layer
    values = np.zeros(count, np.int64)
    read_run(spm, u.element, source, values, count)
    clamp = Clip(u.in_low, u.in_high, BOTH_SIDES)
    clip_run(values, count, clamp, place.origin, layer, sink)
    add_integer(values, count, -u.in_offset)
    if u.profile == GLOW_FLOAT:
        rescale_glow_reals(values, count, u, np.zeros(count, np.float32))
    elif u.profile == FLOAT:
        rescale_reals(values, count, u, np.zeros(count, np.float32))
    else:
        below = np.zeros(count if u.leaky else 0, np.int64)
        rescale_integers(values, count, u, below, place.origin, layer, sink)
    clip_run(values, count, u.clip, place.origin, layer, sink)
    write_run(values, count, spm, u.element, target)
    sink.layers[place.layer].elements += count


@jit
def look_up(spm: Any, source: Any, target: Any, table: Any, count: Any) -> None:
    """Each element through a table of 256 bytes."""
    for i in range(count):
        spm[target + i] = spm[table + np.int64(spm[source + i]) + 128]
