"""What each profile makes of sums, averages, pairs and single values, on whole runs.

The definition is slow, a module for each profile in ``core/reference/profiles/``; this file shares
nothing with it. A run is a row of a tile; its result goes into the first argument unless a function
says otherwise. ``index`` is the first value's in the layer's output; ``reals`` and ``other``
(float32) and ``below`` (int64) are room to work in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import (
    FBGEMM,
    FLOAT,
    GLOW_FLOAT,
    GLOW_FLOAT_LATE,
    GLOW_INT,
    NMP,
    ONEDNN,
    ONNX,
    Q31,
    Q31_ONCE,
    QNNPACK,
    REAL,
    decides_profiles,
    with_form,
)
from nmpsim.isa.shared_words import OPERATIONS
from nmpsim.isa.total import decides
from nmpsim.isa.words import INT16, OP_ADD, OP_MAX, OP_MIN, OP_MUL, OP_SUB
from nmpsim.kernels.array_types import Float32s, Float64s, Int, Int64s
from nmpsim.kernels.channels import (
    ADDEND,
    AFTER,
    AHEAD,
    BIAS_REAL,
    FACTOR,
    HALF,
    MOST,
    MUL,
    POST,
    PRE,
)
from nmpsim.kernels.jit import jit, jit_inlined
from nmpsim.kernels.operands import Average, IntegerScale, Pair, PairScales, Quantizer, Unary
from nmpsim.kernels.rounding import (
    HELD,
    float_of_bits,
    held,
    round_away,
    round_even,
    rounding_shift,
)
from nmpsim.kernels.saturate import (
    MAX_PRODUCT,
    ONCE,
    SaturationCounters,
    apply_scale,
    limit_value,
    saturate_run,
)
from nmpsim.kernels.saturation_stages import BIAS, RESCALE
from nmpsim.kernels.scale_channels import (
    scale_channels,
    scale_channels_fixed_point,
    scale_channels_once,
    scale_channels_wide,
    scaled_real,
)
from nmpsim.kernels.scale_runs import (
    UNSIGNED,
    add_integer,
    add_real,
    divide_run,
    multiply_reals,
    round_run_away,
    round_run_even,
    scale_integers,
)

_REAL = with_form(REAL)
_HELD_BIAS: Any = np.int64(1 << 61)
WIDEST_SIDE: Any = np.int64(1 << 61)
"""The sum of two fits 64 bits."""

# --- sums ------------------------------------------------------------------------------------


@jit
def is_real(profile: Int) -> Any:
    """True if results are calculated with float32."""
    return profile in _REAL


@jit
def early_zero_point(q: Quantizer) -> Any:
    """What is added to a real before it is rounded: the zero point, where the profile has it so."""
    if q.profile == ONEDNN and q.element != INT16:
        return q.out_offset + UNSIGNED
    return q.out_offset if q.profile in (GLOW_FLOAT, ONEDNN) else np.int64(0)


@jit
def put_integers(q: Quantizer, bias: Int, out: IntegerScale, integers: Int64s, c: Int) -> None:
    """The integer scale of one channel.

    q31 of Int16 is one, too: TFLite reduces its multiplier to 16 bits for sums of 64.
    """
    pre, mul, post, most = out.pre, out.mul, out.post, HELD
    if q.profile == Q31 and q.element == INT16:
        pre, post = np.int64(0), 15 - out.pre + out.post
        mul = np.int64(0x7FFF) if mul >= 0x7FFF_0000 else (mul + 0x8000) >> 16
    elif q.profile == Q31_ONCE:
        pre, post = np.int64(0), 31 - out.pre + out.post
    elif q.element == INT16:
        most = MAX_PRODUCT // max(abs(mul), ONCE)
    integers[PRE, c] = pre
    integers[MUL, c] = mul
    integers[HALF, c] = (ONCE << post) >> ONCE
    integers[POST, c] = post
    integers[MOST, c] = most
    if q.profile == NMP:
        integers[ADDEND, c] += held(bias, _HELD_BIAS)


@jit
def put_reals(
    q: Quantizer, bias: Int, bias_scale: IntegerScale, out: IntegerScale, reals: Float64s, c: Int
) -> None:
    """The float factors of one channel."""
    ahead, factor, after = np.float32(1), float_of_bits(out.mul), np.float32(1)
    addend = np.float64(0)
    if q.profile == FBGEMM or q.profile == ONEDNN:
        addend = np.int64(bias).view(np.float64)
    if q.profile == FBGEMM:
        factor, after = np.float32(1), factor
    if q.profile == ONEDNN:
        ahead, after = float_of_bits(bias_scale.mul), float_of_bits(q.result_scale)
    reals[AHEAD, c] = ahead
    reals[FACTOR, c] = factor
    reals[BIAS_REAL, c] = addend
    reals[AFTER, c] = after


@jit
@decides_profiles("conv")
def bias_in_sum(
    q: Quantizer,
    stored: Int,
    scale: IntegerScale,
    low: Int,
    high: Int,
    pixels: Int,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> Any:
    """What the sum of a channel begins with, before the zero term; it saturates for every pixel."""
    bias: Int = np.int64(0)
    if q.profile in (GLOW_INT, Q31, Q31_ONCE, FLOAT):
        bias = stored
    elif q.profile == GLOW_FLOAT or q.profile == GLOW_FLOAT_LATE:
        bias = round_away(np.float32(stored) * float_of_bits(scale.mul))
    elif q.profile in (NMP, FBGEMM, ONEDNN):
        bias = np.int64(0)  # it comes after the sum
    bias = limit_value(bias, low, high, BIAS, pixels, index, layer, counters)
    if q.profile == GLOW_INT:
        bias = apply_scale(bias, scale, q.element, BIAS, pixels, index, layer, counters)
    return bias


@jit_inlined
@decides_profiles("conv")
def scale_sums(
    run: Int64s,
    integers: Int64s,
    reals: Float64s,
    q: Quantizer,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Sums (int64) on the result's scale, in place, before ``ADDEND`` is added."""
    if q.profile in (GLOW_FLOAT, GLOW_FLOAT_LATE, FLOAT, FBGEMM, ONEDNN):
        scale_reals(run, reals, q)
    elif q.profile == Q31_ONCE:
        scale_channels_once(run, integers)
    elif q.profile in (GLOW_INT, NMP, Q31) and q.element == INT16:
        scale_channels_wide(run, integers, index, layer, counters)
    elif q.profile == Q31:
        scale_channels_fixed_point(run, integers, index, layer, counters)
    elif q.profile in (GLOW_INT, NMP):
        scale_channels(run, integers, index, layer, counters)


@jit_inlined
def scale_reals(run: Int64s, reals: Float64s, q: Quantizer) -> None:
    """Nearest integers of the scaled sums, in place."""
    zero_point = np.float32(early_zero_point(q))
    if q.profile == GLOW_FLOAT or q.profile == GLOW_FLOAT_LATE:
        for c in range(run.size):
            run[c] = round_away(scaled_real(run[c], reals, c, zero_point))
    elif q.profile in (FLOAT, FBGEMM, ONEDNN):
        for c in range(run.size):
            run[c] = round_even(scaled_real(run[c], reals, c, zero_point))


# --- averages --------------------------------------------------------------------------------


@jit
@decides_profiles("avgpool")
def average_results(
    sums: Int64s,
    count: Int,
    taps: Int,
    a: Average,
    reals: Float32s,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Averages of the sums of ``taps`` values each, before the clip."""
    if a.profile in (GLOW_FLOAT, FLOAT, FBGEMM):
        real_average(sums, count, taps, a, reals)
    elif a.profile == ONNX:
        average_of_reals(sums, count, taps, a, reals)
    elif a.profile in (GLOW_INT, NMP, Q31):
        scale_integers(sums, count, a.scale, a.profile, a.element, index, layer, counters)
        if a.by_valid_taps and taps > 0:
            divide_run(sums, count, taps)
        add_integer(sums, count, a.out_offset)


@jit
def average_of_reals(sums: Int64s, count: Int, taps: Int, a: Average, reals: Float32s) -> None:
    """onnx: results of sums (float32, in ``reals``) of ``taps`` dequantized values each."""
    divisor, scale = np.float32(max(taps, 1)), float_of_bits(a.result_scale)
    addend = float_of_bits(a.scale.post)
    for i in range(count):
        reals[i] = reals[i] / divisor / scale + addend
    round_run_even(reals, count, sums)
    add_integer(sums, count, a.out_offset)


@jit
def real_average(sums: Int64s, count: Int, taps: Int, a: Average, reals: Float32s) -> None:
    """Results of a float profile, in place; ``reals`` (float32) is room to work in."""
    factor = float_of_bits(a.scale.mul)
    if a.by_valid_taps and taps > 0:
        factor /= np.float32(taps)
    multiply_reals(sums, count, factor, reals)
    if a.profile == FLOAT:
        round_run_even(reals, count, sums)
        add_integer(sums, count, a.out_offset)
    elif a.profile == FBGEMM:
        moved = np.int64(0) if a.element else UNSIGNED
        add_real(reals, count, a.out_offset + moved)
        round_run_even(reals, count, sums)
        add_integer(sums, count, -moved)
    elif a.profile == GLOW_FLOAT:
        add_real(reals, count, a.out_offset)
        round_run_away(reals, count, sums)


# --- pairs -----------------------------------------------------------------------------------


@jit
@decides_profiles("eltwise")
def pair_results(
    left: Int64s,
    right: Int64s,
    reals: Float32s,
    other: Float32s,
    count: Int,
    t: Pair,
    q: PairScales,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
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
    elif q.profile == ONNX:
        pair_of_onnx(left, right, count, is_mul, q, reals)
    elif q.profile == QNNPACK:
        pair_on_common_scale(left, right, count, t.operation, q)
    elif q.profile in (GLOW_INT, NMP, Q31):
        pair_of_integers(left, right, count, t, q, index, layer, counters)
    add_integer(left, count, q.out_offset)


@jit
@decides(
    ("OP_ADD", "OP_SUB", "OP_MAX", "OP_MIN"),
    (f"OP_{name.upper()}" for name in OPERATIONS if name != "mul"),
)
def combine(operation: Int, left: Int64s | Float32s, right: Int64s | Float32s, count: Int) -> None:
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
def multiply_runs(left: Int64s, right: Int64s, count: Int) -> None:
    """Product of two runs, into ``left``."""
    for i in range(count):
        left[i] *= right[i]


@jit
def pair_of_integers(
    left: Int64s,
    right: Int64s,
    count: Int,
    t: Pair,
    q: PairScales,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """glow_int, nmp and q31, into ``left``, without the zero point of the result."""
    if t.operation == OP_MUL:
        multiply_runs(left, right, count)
        if q.profile != Q31 and t.element != INT16:
            saturate_run(left, count, RESCALE, index, layer, counters)
    else:
        scale_integers(left, count, q.lhs_scale, q.profile, t.element, index, layer, counters)
        scale_integers(right, count, q.rhs_scale, q.profile, t.element, index, layer, counters)
        combine(t.operation, left, right, count)
    is_sum = t.operation == OP_ADD or t.operation == OP_SUB
    if t.operation == OP_MUL or (q.profile == Q31 and is_sum):
        scale_integers(left, count, q.out_scale, q.profile, t.element, index, layer, counters)


@jit
def pair_on_common_scale(
    left: Int64s, right: Int64s, count: Int, operation: Int, q: PairScales
) -> None:
    """qnnpack: integer factors, the operation, one shift; into ``left``, no zero point."""
    for i in range(count):
        left[i] *= q.lhs_scale.mul
        right[i] *= q.rhs_scale.mul
    combine(operation, left, right, count)
    for i in range(count):
        left[i] = rounding_shift(left[i], q.out_scale.post)


@jit
def product_of_reals(
    left: Int64s, right: Int64s, count: Int, q: PairScales, reals: Float32s
) -> None:
    """mul of the float profiles, into ``left``, without the zero point of the result."""
    multiply_runs(left, right, count)
    multiply_reals(left, count, float_of_bits(q.out_scale.mul), reals)
    if q.profile == GLOW_FLOAT:
        round_run_away(reals, count, left)
    else:
        round_run_even(reals, count, left)


@jit
def dequantize(values: Int64s, count: Int, scale: IntegerScale, reals: Float32s) -> None:
    """PyTorch's fused multiply-add: ``value * mul + addend`` rounded to float32 once.

    ``post`` holds the addend; float64 holds the product of an element and a float32.
    """
    factor = np.float64(float_of_bits(scale.mul))
    addend = np.float64(float_of_bits(scale.post))
    for i in range(count):
        reals[i] = np.float32(np.float64(values[i]) * factor + addend)


@jit
def pair_of_reals(
    left: Int64s,
    right: Int64s,
    count: Int,
    operation: Int,
    q: PairScales,
    reals: Float32s,
    other: Float32s,
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
def fused_multiply_add(x: Any, factor: Any, addend: Any) -> Any:
    """``f32(x * factor + addend)`` of float64 numbers, rounded once.

    ``x`` is an element and ``factor`` a float32, so float64 holds their product. The sum is rounded
    to odd, so that rounding it to float32 is the only rounding seen.
    """
    product = x * factor
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    bits = np.float64(total).view(np.int64)
    if (lost > 0 or lost < 0) and bits & 1 == 0:  # of an infinite sum it is no number
        bits += 1 if (lost > 0) == (total > 0) else -1
        total = np.int64(bits).view(np.float64)
    return np.float32(total)


@jit
def pair_of_onnx(
    left: Int64s, right: Int64s, count: Int, is_mul: bool, q: PairScales, reals: Float32s
) -> None:
    """onnx: add in two fused steps, or a product and an addend; into ``left``, not moved yet."""
    addend = float_of_bits(q.rhs_scale.post)
    if is_mul:
        multiply_runs(left, right, count)
        multiply_reals(left, count, float_of_bits(q.out_scale.mul), reals)
        for i in range(count):
            reals[i] += addend
    else:
        lhs = np.float64(float_of_bits(q.lhs_scale.mul))
        rhs = np.float64(float_of_bits(q.rhs_scale.mul))
        for i in range(count):
            inner = fused_multiply_add(np.float64(right[i]), rhs, np.float64(addend))
            reals[i] = fused_multiply_add(np.float64(left[i]), lhs, np.float64(inner))
    round_run_even(reals, count, left)


@jit
def pair_of_glow_reals(
    left: Int64s,
    right: Int64s,
    count: Int,
    operation: Int,
    q: PairScales,
    reals: Float32s,
    other: Float32s,
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


# --- single values ---------------------------------------------------------------------------


@jit_inlined
@decides_profiles("rescale")
def rescale_results(
    values: Int64s,
    count: Int,
    u: Unary,
    reals: Float32s,
    below: Int64s,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Values less their zero point on another scale, before the clip."""
    if u.profile == GLOW_FLOAT:
        rescale_glow_reals(values, count, u, reals)
    elif u.profile == FLOAT:
        rescale_reals(values, count, u, reals)
    elif u.profile in (GLOW_INT, NMP, Q31):
        rescale_integers(values, count, u, below, index, layer, counters)


@jit
def rescale_integers(
    values: Int64s,
    count: Int,
    u: Unary,
    below: Int64s,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """glow_int, nmp and q31, in place; ``below`` (int64) is room to work in.

    Every scale makes 0 of 0, so a leaky result is the sum of its two halves.
    """
    if u.leaky:
        for i in range(count):
            below[i] = min(values[i], 0)
            values[i] = max(values[i], 0)
        scale_integers(below, count, u.leaky_scale, u.profile, u.element, index, layer, counters)
    scale_integers(values, count, u.scale, u.profile, u.element, index, layer, counters)
    if u.leaky:
        combine(OP_ADD, values, below, count)
    add_integer(values, count, u.out_offset)


@jit
def rescale_glow_reals(values: Int64s, count: Int, u: Unary, reals: Float32s) -> None:
    """glow_float, in place; ``reals`` (float32) is room to work in."""
    factor = float_of_bits(u.scale.mul)
    below = float_of_bits(u.leaky_scale.mul) if u.leaky else factor
    divisor = float_of_bits(u.result_scale)
    for i in range(count):
        reals[i] = np.float32(values[i]) * (below if values[i] < 0 else factor) / divisor
    add_real(reals, count, u.out_offset)
    round_run_even(reals, count, values)


@jit
def rescale_reals(values: Int64s, count: Int, u: Unary, reals: Float32s) -> None:
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
