"""Operations of two tensors, element by element, on one core's scratchpad.

A run is a row of a tile; where nothing else is said its result goes into ``left``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.profiles import FLOAT, GLOW_FLOAT, GLOW_INT, NMP, Q31, QNNPACK, decides_profiles
from nmpsim.isa.shared_words import OPERATIONS
from nmpsim.isa.total import decides
from nmpsim.isa.words import INT16, OP_ADD, OP_MAX, OP_MIN, OP_MUL, OP_SUB
from nmpsim.kernels.elementwise_int32 import (
    ENDS,
    NUMBERS,
    SUM,
    is_regular,
    put_run,
    put_sum_numbers,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import read_run, write_run
from nmpsim.kernels.rounding import float_of_bits, held, round_away, rounding_shift
from nmpsim.kernels.saturate import clip_run, saturate_run, stages_of
from nmpsim.kernels.saturation_stages import RESCALE
from nmpsim.kernels.scale_runs import (
    add_integer,
    add_real,
    multiply_reals,
    round_run_away,
    round_run_even,
    scale_integers,
)
from nmpsim.kernels.vector_code import LANES

WIDEST_SIDE: Any = np.int64(1 << 61)
"""The sum of two fits 64 bits."""


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
@decides(
    ("OP_ADD", "OP_SUB", "OP_MAX", "OP_MIN"),
    (f"OP_{name.upper()}" for name in OPERATIONS if name != "mul"),
)
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
    elif operation == OP_MIN:
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
        if q.profile != Q31 and t.element != INT16:
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


@jit
@decides_profiles("eltwise")
def pair_results(
    left: Any,
    right: Any,
    reals: Any,
    other: Any,
    count: Any,
    t: Any,
    q: Any,
    index: Any,
    layer: Any,
    sink: Any,
) -> None:
    """Results of two sides before the clip, into ``left``; the reals are room to work in."""
    is_mul = t.operation == OP_MUL
    if q.profile == GLOW_FLOAT and not is_mul:
        pair_of_glow_reals(left, right, count, t.operation, q, reals, other)
        return
    if is_mul and q.profile in (GLOW_FLOAT, FLOAT):
        product_of_reals(left, right, count, q, reals)
    elif q.profile == FLOAT:
        pair_of_reals(left, right, count, t.operation, q, reals, other)
    elif q.profile == QNNPACK:
        pair_on_common_scale(left, right, count, t.operation, q)
    elif q.profile in (GLOW_INT, NMP, Q31):
        pair_of_integers(left, right, count, t, q, index, layer, sink)
    add_integer(left, count, q.out_offset)


@jit_allocating
def eltwise(spm: Any, t: Any, q: Any, place: Any, sink: Any) -> None:
    """Binary operation of one tile."""
    count = t.columns
    left = np.zeros(count, np.int64)
    right = np.zeros(count, np.int64)
    reals = np.zeros(count, np.float32)
    other = np.zeros(count, np.float32)
    numbers = np.empty(NUMBERS, np.int32)
    is_narrow = put_sum_numbers(t, q, numbers)
    channels = sink.layers[place.layer].channels
    counts = np.empty((2, min(count, channels)), np.int32)
    ends = np.empty((ENDS, LANES), np.int32)
    stages = stages_of(q.clip)
    for row in range(t.rows):
        index = place.origin + row * place.stride_y
        sides = (
            t.lhs + row * t.lhs_stride,
            t.rhs + row * t.rhs_stride,
            t.output + row * t.out_stride,
        )
        if is_narrow and is_regular(sides, index, count, channels):
            put_run(spm, SUM, sides, count, numbers, counts, ends, stages, index, place.layer, sink)
            continue
        read_run(spm, t.element, t.lhs + row * t.lhs_stride, left, count)
        read_run(spm, t.rhs_size, t.rhs + row * t.rhs_stride, right, count)
        add_integer(left, count, -q.lhs_offset)
        add_integer(right, count, -q.rhs_offset)
        saturate_run(right, count, RESCALE, index, place.layer, sink)
        pair_results(left, right, reals, other, count, t, q, index, place.layer, sink)
        clip_run(left, count, q.clip, index, place.layer, sink)
        write_run(left, count, spm, t.element, t.output + row * t.out_stride)
    sink.layers[place.layer].elements += t.rows * count
