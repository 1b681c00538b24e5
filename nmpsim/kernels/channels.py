"""What each output channel brings to a sum and its result: a table of integers, a table of reals.

The loops behind take their rows as they are: what a profile lacks is plus zero or times one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.profiles import (
    FBGEMM,
    FLOAT,
    GLOW_FLOAT,
    GLOW_FLOAT_LATE,
    GLOW_INT,
    NMP,
    ONEDNN,
    Q31,
    decides_profiles,
)
from nmpsim.isa.words import CHANNEL, CHANNEL_BYTES, INT16, SCALE, SCALE_BYTES
from nmpsim.kernels.accumulate import sum_high
from nmpsim.kernels.jit import jit
from nmpsim.kernels.rounding import HELD, float_of_bits, held, round_away
from nmpsim.kernels.saturate import (
    INT32_HIGH,
    INT32_LOW,
    MAX_PRODUCT,
    ONCE,
    IntegerScale,
    apply_scale,
    limit_value,
)
from nmpsim.kernels.saturation_stages import ACCUMULATOR, BIAS
from nmpsim.kernels.scale_runs import UNSIGNED

INTEGERS = 8
OFFSET, START, PRE, MUL, HALF, POST, MOST, ADDEND = range(INTEGERS)
"""Rows of the integers: zero point of the weights, start of a sum, integer scale, largest factor
of an Int16 product, what is added to the scaled sum."""
REALS = 4
AHEAD, FACTOR, BIAS_REAL, AFTER = range(REALS)
"""Rows of the reals: ``t = f32(sum) * ahead * factor``, ``t = (t + bias) * after``; each operation
is rounded to float32. All are float32 values but the bias, which is float64."""
_HELD_BIAS: Any = np.int64(1 << 61)


class Operands(NamedTuple):
    """Byte offsets in the scratchpad.

    ``channels`` is negative if there is neither bias nor zero term, ``scales`` if all channels
    share one scale.
    """

    input: Any
    weights: Any
    channels: Any
    scales: Any
    output: Any
    partial: Any


class Quantizer(NamedTuple):
    """How a sum becomes a result: words of a descriptor."""

    element: Any
    profile: Any
    weight_offset: Any
    bias: Any
    out: Any
    result_scale: Any
    out_offset: Any
    leaky: Any
    leaky_scale: Any
    clip: Any


@jit
def scale_in(record: Any, i: Any) -> Any:
    """The scale whose ``pre`` is word ``i`` of a scale record."""
    return IntegerScale(np.int64(record[i]), np.int64(record[i + 1]), np.int64(record[i + 2]))


@jit
def scales_of(spm: Any, at: Any, channel: Any, q: Any) -> Any:
    """Weight offset, bias scale and output scale of one channel."""
    if at.scales < 0:
        return q.weight_offset, q.bias, q.out
    i = (at.scales + SCALE_BYTES * channel) >> 2
    record = spm.i32[i : i + SCALE_BYTES // 4]
    return (
        np.int64(record[SCALE.weight_offset]),
        scale_in(record, SCALE.bias_pre),
        scale_in(record, SCALE.out_pre),
    )


@jit
def record_of(spm: Any, at: Any, channel: Any) -> Any:
    """Bias and zero term of one channel."""
    if at.channels < 0:
        return np.int64(0), np.int64(0)
    i = (at.channels + CHANNEL_BYTES * channel) >> 3
    return spm.i64[i + CHANNEL.bias_low // 2], held(spm.i64[i + CHANNEL.zero_term_low // 2], HELD)


@jit
def is_real(profile: Any) -> Any:
    """True if results are calculated with float32."""
    return profile in (GLOW_FLOAT, GLOW_FLOAT_LATE, FLOAT, FBGEMM, ONEDNN)


@jit
def early_zero_point(q: Any) -> Any:
    """What is added to a real before it is rounded: the zero point, where the profile has it so."""
    if q.profile == ONEDNN and q.element != INT16:
        return q.out_offset + UNSIGNED
    return q.out_offset if q.profile in (GLOW_FLOAT, ONEDNN) else np.int64(0)


@jit
def put_channels(spm: Any, at: Any, q: Any, first: Any, integers: Any, reals: Any) -> None:
    """Fill both tables, but for the starts, with the channels from ``first`` on."""
    for c in range(integers.shape[1]):
        offset, bias_scale, out = scales_of(spm, at, first + c, q)
        bias, _ = record_of(spm, at, first + c)
        integers[OFFSET, c] = offset
        integers[ADDEND, c] = q.out_offset - early_zero_point(q)
        if is_real(q.profile):
            put_reals(q, bias, bias_scale, out, reals, c)
        else:
            put_integers(q, bias, out, integers, c)


@jit
def put_integers(q: Any, bias: Any, out: Any, integers: Any, c: Any) -> None:
    """The integer scale of one channel.

    q31 of Int16 is one, too: TFLite reduces its multiplier to 16 bits for sums of 64.
    """
    pre, mul, post, most = out.pre, out.mul, out.post, HELD
    if q.profile == Q31 and q.element == INT16:
        pre, post = np.int64(0), 15 - out.pre + out.post
        mul = np.int64(0x7FFF) if mul >= 0x7FFF_0000 else (mul + 0x8000) >> 16
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
def put_reals(q: Any, bias: Any, bias_scale: Any, out: Any, reals: Any, c: Any) -> None:
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
def put_plain_starts(spm: Any, at: Any, q: Any, first: Any, integers: Any) -> Any:
    """As ``put_starts``, of Int8 on integer scales; False if something is cut on the way."""
    least, most = np.int64(0), np.int64(0)
    for c in range(integers.shape[1]):
        _, scale, _ = scales_of(spm, at, first + c, q)
        bias, zero_term = record_of(spm, at, first + c)
        if q.profile == NMP:
            bias = np.int64(0)
        total = (bias >> scale.pre) * scale.mul + ((ONCE << scale.post) >> ONCE)
        start = (total >> scale.post) + zero_term
        least = min(least, min(bias, min(total, start)))
        most = max(most, max(bias, max(total, start)))
        integers[START, c] = start
    return least >= INT32_LOW and most <= INT32_HIGH


@jit
@decides_profiles("conv")
def put_starts(
    spm: Any, at: Any, q: Any, first: Any, integers: Any, pixels: Any, place: Any, sink: Any
) -> Any:
    """Bias plus zero term of each channel; what is cut is cut for every pixel.

    True if surely nothing is.
    """
    is_plain = q.element != INT16 and q.profile in (GLOW_INT, NMP)
    if is_plain and put_plain_starts(spm, at, q, first, integers):
        return True
    high = sum_high(q.element)
    low = -high - ONCE
    for c in range(integers.shape[1]):
        index = place.origin + first + c
        _, scale, _ = scales_of(spm, at, first + c, q)
        stored, zero_term = record_of(spm, at, first + c)
        bias = np.int64(0)
        if q.profile in (GLOW_INT, Q31, FLOAT):
            bias = stored
        elif q.profile == GLOW_FLOAT or q.profile == GLOW_FLOAT_LATE:
            bias = round_away(np.float32(stored) * float_of_bits(scale.mul))
        elif q.profile in (NMP, FBGEMM, ONEDNN):
            bias = np.int64(0)  # it comes after the sum
        bias = limit_value(bias, low, high, BIAS, pixels, index, place.layer, sink)
        if q.profile == GLOW_INT:
            bias = apply_scale(bias, scale, q.element, BIAS, pixels, index, place.layer, sink)
        start = bias + zero_term
        start = limit_value(start, low, high, ACCUMULATOR, pixels, index, place.layer, sink)
        integers[START, c] = start
    return False
