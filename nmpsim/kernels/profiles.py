"""Arithmetic of sums, averages and single values in each profile, on whole runs.

The definitions are the slow modules of ``core/reference/profiles/``, with which this file shares
nothing. A run is a row of a tile; unless stated otherwise, the result replaces the first argument.
``index`` is the first value's in the layer's output; ``reals`` (float32) and ``below`` (int64) are
buffers. :mod:`nmpsim.kernels.binary_profiles` has binary operations.
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
    LOW_BITS,
    NMP,
    ONEDNN,
    ONNX,
    Q31,
    Q31_ONCE,
    REAL,
    dispatches_on_profiles,
    list_profiles_with_form,
)
from nmpsim.isa.words import INT16, OP_ADD
from nmpsim.kernels.array_types import Float32s, Float64s, Int, Int64s
from nmpsim.kernels.binary_profiles import apply_operation
from nmpsim.kernels.channels import (
    ADDEND,
    FACTOR,
    FLOAT_BIAS,
    HALF,
    MOST,
    MUL,
    POST,
    POST_FACTOR,
    PRE,
    PRE_FACTOR,
)
from nmpsim.kernels.jit import jit, jit_inlined
from nmpsim.kernels.operands import AverageParameters, IntegerScale, Quantizer, RescaleParameters
from nmpsim.kernels.rounding import (
    MAX_MAGNITUDE,
    clamp_magnitude,
    float_from_bits,
    round_away,
    round_even,
)
from nmpsim.kernels.saturate import (
    MAX_PRODUCT,
    ONCE,
    SaturationCounters,
    apply_scale,
    limit_value,
)
from nmpsim.kernels.saturation_stages import BIAS
from nmpsim.kernels.scaling import (
    UNSIGNED,
    add_to_floats,
    add_to_run,
    divide_run,
    get_channel_scales,
    get_element,
    multiply_to_floats,
    round_run_away,
    round_run_even,
    scale_fixed_point,
    scale_integers,
    scale_narrow,
    scale_once,
    scale_to_float,
    scale_wide,
)

_REAL = list_profiles_with_form(REAL)
_HELD_BIAS: Any = np.int64(1 << 61)

# --- sums ------------------------------------------------------------------------------------


@jit
def is_float_profile(profile: Int) -> Any:
    """Return whether a profile computes results with float32."""
    return profile in _REAL


@jit
def zero_point_before_rounding(q: Quantizer) -> Any:
    """Return the zero point if the profile adds it before floats are rounded, else 0."""
    if q.profile == ONEDNN and q.element != INT16:
        return q.out_offset + UNSIGNED
    return q.out_offset if q.profile in (GLOW_FLOAT, ONEDNN) else np.int64(0)


@jit
def fill_integer_scale(
    q: Quantizer, bias: Int, bias_scale: IntegerScale, out: IntegerScale, integers: Int64s, c: Int
) -> None:
    """Write the scale of channel ``c`` into the table ``integers``.

    For q31 of Int16, TFLite reduces the multiplier to 16 bits. For q31_once, row ``MUL`` gets the
    bits of a float64 factor.
    """
    pre, mul, post, most = out.pre, out.mul, out.post, MAX_MAGNITUDE
    if q.profile == Q31 and q.element == INT16:
        pre, post = np.int64(0), 15 - out.pre + out.post
        mul = np.int64(0x7FFF) if mul >= 0x7FFF_0000 else (mul + 0x8000) >> 16
    elif q.profile == Q31_ONCE:
        exponent = out.pre - out.post - bias_scale.post - 53
        power = np.int64(1023 + exponent) << 52  # 2**exponent as a float64
        factor = np.float64((mul << LOW_BITS) + bias_scale.mul) * np.int64(power).view(np.float64)
        mul = np.float64(factor).view(np.int64)
    elif q.element == INT16:
        most = MAX_PRODUCT // max(abs(mul), ONCE)
    integers[PRE, c] = pre
    integers[MUL, c] = mul
    integers[HALF, c] = (ONCE << post) >> ONCE
    integers[POST, c] = post
    integers[MOST, c] = most
    if q.profile == NMP:
        integers[ADDEND, c] += clamp_magnitude(bias, _HELD_BIAS)


@jit
def fill_float_factors(
    q: Quantizer, bias: Int, bias_scale: IntegerScale, out: IntegerScale, reals: Float64s, c: Int
) -> None:
    """Write the float factors of channel ``c`` into the table ``reals``."""
    ahead, factor, after = np.float32(1), float_from_bits(out.mul), np.float32(1)
    addend = np.float64(0)
    if q.profile == FBGEMM or q.profile == ONEDNN:
        addend = np.int64(bias).view(np.float64)
    if q.profile == FBGEMM:
        factor, after = np.float32(1), factor
    if q.profile == ONEDNN:
        ahead, after = float_from_bits(bias_scale.mul), float_from_bits(q.result_scale)
    reals[PRE_FACTOR, c] = ahead
    reals[FACTOR, c] = factor
    reals[FLOAT_BIAS, c] = addend
    reals[POST_FACTOR, c] = after


@jit
@dispatches_on_profiles("conv")
def compute_initial_bias(
    q: Quantizer,
    stored: Int,
    scale: IntegerScale,
    low: Int,
    high: Int,
    pixels: Int,
    index: Int,
    counters: SaturationCounters,
) -> Any:
    """Return the initial value of a channel's sum; count its saturation once for each pixel."""
    bias: Int = np.int64(0)
    if q.profile in (GLOW_INT, Q31, Q31_ONCE, FLOAT):
        bias = stored
    elif q.profile == GLOW_FLOAT or q.profile == GLOW_FLOAT_LATE:
        bias = round_away(np.float32(stored) * float_from_bits(scale.mul))
    elif q.profile in (NMP, FBGEMM, ONEDNN):
        bias = np.int64(0)  # added after the sum
    bias = limit_value(bias, low, high, BIAS, pixels, index, counters)
    if q.profile == GLOW_INT:
        bias = apply_scale(bias, scale, q.element, BIAS, pixels, index, counters)
    return bias


@jit_inlined
@dispatches_on_profiles("conv")
def scale_sums(
    run: Int64s,
    integers: Int64s,
    reals: Float64s,
    q: Quantizer,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Scale sums (int64) to the result's scale, before ``ADDEND`` is added."""
    if q.profile in (GLOW_FLOAT, GLOW_FLOAT_LATE, FLOAT, FBGEMM, ONEDNN):
        scale_sums_as_floats(run, reals, q)
    elif q.profile == Q31_ONCE:
        scale_once(run, integers)
    elif q.profile in (GLOW_INT, NMP, Q31) and q.element == INT16:
        scale_wide(run, get_channel_scales(integers), get_element, index, counters)
    elif q.profile == Q31:
        scale_fixed_point(run, get_channel_scales(integers), get_element, index, counters)
    elif q.profile in (GLOW_INT, NMP):
        scale_narrow(run, get_channel_scales(integers), get_element, index, counters)


@jit_inlined
def scale_sums_as_floats(run: Int64s, reals: Float64s, q: Quantizer) -> None:
    """Scale sums with float32 factors and round them."""
    zero_point = np.float32(zero_point_before_rounding(q))
    if q.profile == GLOW_FLOAT or q.profile == GLOW_FLOAT_LATE:
        for c in range(run.size):
            run[c] = round_away(scale_to_float(run[c], reals, c, zero_point))
    elif q.profile in (FLOAT, FBGEMM, ONEDNN):
        for c in range(run.size):
            run[c] = round_even(scale_to_float(run[c], reals, c, zero_point))


# --- averages --------------------------------------------------------------------------------


@jit
@dispatches_on_profiles("avgpool")
def compute_averages(
    sums: Int64s,
    taps: Int,
    a: AverageParameters,
    reals: Float32s,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Compute averages of the sums of ``taps`` values each, before the clip."""
    if a.profile in (GLOW_FLOAT, FLOAT, FBGEMM):
        average_as_floats(sums, taps, a, reals)
    elif a.profile == ONNX:
        average_onnx(sums, taps, a, reals)
    elif a.profile in (GLOW_INT, NMP, Q31):
        scale_integers(sums, a.scale, a.profile, a.element, index, counters)
        if a.by_valid_taps and taps > 0:
            divide_run(sums, taps)
        add_to_run(sums, a.out_offset)


@jit
def average_onnx(sums: Int64s, taps: Int, a: AverageParameters, reals: Float32s) -> None:
    """Compute averages in onnx of sums of dequantized values (float32, in ``reals``)."""
    divisor, scale = np.float32(max(taps, 1)), float_from_bits(a.result_scale)
    addend = float_from_bits(a.scale.post)
    for i in range(sums.size):
        reals[i] = reals[i] / divisor / scale + addend
    round_run_even(reals, sums)
    add_to_run(sums, a.out_offset)


@jit
def average_as_floats(sums: Int64s, taps: Int, a: AverageParameters, reals: Float32s) -> None:
    """Compute averages in the float profiles."""
    factor = float_from_bits(a.scale.mul)
    if a.by_valid_taps and taps > 0:
        factor /= np.float32(taps)
    multiply_to_floats(sums, factor, reals)
    if a.profile == FLOAT:
        round_run_even(reals, sums)
        add_to_run(sums, a.out_offset)
    elif a.profile == FBGEMM:
        moved = np.int64(0) if a.element else UNSIGNED
        add_to_floats(reals, a.out_offset + moved)
        round_run_even(reals, sums)
        add_to_run(sums, -moved)
    elif a.profile == GLOW_FLOAT:
        add_to_floats(reals, a.out_offset)
        round_run_away(reals, sums)


# --- single values ---------------------------------------------------------------------------


@jit_inlined
@dispatches_on_profiles("rescale")
def rescale_values(
    values: Int64s,
    u: RescaleParameters,
    reals: Float32s,
    below: Int64s,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Rescale values without their zero point, before the clip."""
    if u.profile == GLOW_FLOAT:
        rescale_glow_float(values, u, reals)
    elif u.profile == FLOAT:
        rescale_float(values, u, reals)
    elif u.profile in (GLOW_INT, NMP, Q31):
        rescale_integers(values, u, below, index, counters)


@jit
def rescale_integers(
    values: Int64s,
    u: RescaleParameters,
    below: Int64s,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Rescale values in glow_int, nmp and q31.

    Every scale maps 0 to 0, so a leaky result is the sum of its two halves.
    """
    if u.leaky:
        for i in range(values.size):
            below[i] = min(values[i], 0)
            values[i] = max(values[i], 0)
        scale_integers(below, u.leaky_scale, u.profile, u.element, index, counters)
    scale_integers(values, u.scale, u.profile, u.element, index, counters)
    if u.leaky:
        apply_operation(OP_ADD, values, below)
    add_to_run(values, u.out_offset)


@jit
def rescale_glow_float(values: Int64s, u: RescaleParameters, reals: Float32s) -> None:
    """Rescale values in glow_float."""
    factor = float_from_bits(u.scale.mul)
    below = float_from_bits(u.leaky_scale.mul) if u.leaky else factor
    divisor = float_from_bits(u.result_scale)
    for i in range(values.size):
        reals[i] = np.float32(values[i]) * (below if values[i] < 0 else factor) / divisor
    add_to_floats(reals, u.out_offset)
    round_run_even(reals, values)


@jit
def rescale_float(values: Int64s, u: RescaleParameters, reals: Float32s) -> None:
    """Rescale values in float."""
    multiply_to_floats(values, float_from_bits(u.scale.mul), reals)
    if u.leaky:
        below = float_from_bits(u.leaky_scale.mul)
        for i in range(values.size):
            if values[i] < 0:
                reals[i] *= below
    factor = float_from_bits(u.result_scale)
    for i in range(values.size):
        reals[i] *= factor
    round_run_even(reals, values)
    add_to_run(values, u.out_offset)
