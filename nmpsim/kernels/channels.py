"""What each output channel brings to a sum and its result, as arrays: one value a channel.

The loops behind take them as they are: what a profile lacks is plus zero or times one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import (
    CHANNEL,
    CHANNEL_BYTES,
    FBGEMM,
    GLOW_FLOAT,
    GLOW_FLOAT_LATE,
    GLOW_INT,
    INT16,
    NMP,
    ONEDNN,
    Q31,
    SCALE,
    SCALE_BYTES,
)
from nmpsim.kernels.accumulate import sum_high
from nmpsim.kernels.jit import jit
from nmpsim.kernels.rounding import HELD, float_of_bits, held, round_away
from nmpsim.kernels.saturate import MOST_PRODUCT, IntegerScale, apply_scale, limit_value
from nmpsim.kernels.stages import ACCUMULATOR, BIAS

_HELD_BIAS: Any = np.int64(1 << 61)
_ONE: Any = np.int64(1)


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


class Channels(NamedTuple):
    """int64: zero point of the weights, start of a sum, integer scale, what is added behind it.

    ``most`` is the largest magnitude that an Int16 product takes.
    """

    offset: Any
    start: Any
    pre: Any
    mul: Any
    half: Any
    post: Any
    most: Any
    addend: Any
    reals: Any


class Reals(NamedTuple):
    """``t = f32(sum) * ahead * factor``, ``t = (t + bias) * after``, ``t + zero_point``.

    float32, but for ``bias``: float64. Each operation is rounded to float32.
    """

    ahead: Any
    factor: Any
    bias: Any
    after: Any


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
    return profile not in (GLOW_INT, NMP, Q31)


@jit
def adds_early(profile: Any) -> Any:
    """True if the zero point is added before the rounding."""
    return profile in (GLOW_FLOAT, ONEDNN)


@jit
def all_channels(spm: Any, at: Any, q: Any, count: Any) -> Any:
    """The :class:`Channels` of ``count`` channels, but for the starts of their sums."""
    integers = np.zeros((8, count), np.int64)
    factors = np.ones((3, count), np.float32)
    reals = Reals(factors[0], factors[1], np.zeros(count, np.float64), factors[2])
    channels = Channels(
        integers[0],
        integers[1],
        integers[2],
        integers[3],
        integers[4],
        integers[5],
        integers[6],
        integers[7],
        reals,
    )
    for channel in range(count):
        offset, bias_scale, out = scales_of(spm, at, channel, q)
        bias, _ = record_of(spm, at, channel)
        channels.offset[channel] = offset
        channels.addend[channel] = 0 if adds_early(q.profile) else q.out_offset
        if is_real(q.profile):
            put_reals(channels, channel, q, bias, bias_scale, out)
        else:
            put_integers(channels, channel, q, bias, out)
    return channels


@jit
def put_integers(channels: Any, channel: Any, q: Any, bias: Any, out: Any) -> None:
    """The integer scale of one channel.

    q31 of Int16 is one, too: TFLite reduces its multiplier to 16 bits for sums of 64.
    """
    pre, mul, post, most = out.pre, out.mul, out.post, HELD
    if q.profile == Q31 and q.element == INT16:
        pre, post = np.int64(0), 15 - out.pre + out.post
        mul = np.int64(0x7FFF) if mul >= 0x7FFF_0000 else (mul + 0x8000) >> 16
    elif q.element == INT16:
        most = MOST_PRODUCT // max(abs(mul), _ONE)
    channels.pre[channel] = pre
    channels.mul[channel] = mul
    channels.half[channel] = (_ONE << post) >> 1
    channels.post[channel] = post
    channels.most[channel] = most
    if q.profile == NMP:
        channels.addend[channel] += held(bias, _HELD_BIAS)


@jit
def put_reals(channels: Any, channel: Any, q: Any, bias: Any, bias_scale: Any, out: Any) -> None:
    """The float factors of one channel."""
    factor = float_of_bits(out.mul)
    if q.profile == FBGEMM:
        channels.reals.bias[channel] = np.int64(bias).view(np.float64)
        channels.reals.after[channel] = factor
    else:
        channels.reals.factor[channel] = factor
    if q.profile == ONEDNN:
        channels.reals.ahead[channel] = float_of_bits(bias_scale.mul)
        channels.reals.bias[channel] = np.int64(bias).view(np.float64)
        channels.reals.after[channel] = float_of_bits(q.result_scale)


@jit
def some_channels(c: Any, first: Any, count: Any) -> Any:
    """``count`` channels from ``first`` on; the arrays are the same."""
    end = first + count
    reals = Reals(
        c.reals.ahead[first:end],
        c.reals.factor[first:end],
        c.reals.bias[first:end],
        c.reals.after[first:end],
    )
    return Channels(
        c.offset[first:end],
        c.start[first:end],
        c.pre[first:end],
        c.mul[first:end],
        c.half[first:end],
        c.post[first:end],
        c.most[first:end],
        c.addend[first:end],
        reals,
    )


@jit
def put_starts(
    channels: Any, spm: Any, at: Any, q: Any, pixels: Any, place: Any, sink: Any
) -> None:
    """Bias plus zero term of each channel; what is cut is cut for every pixel."""
    high = sum_high(q.element)
    for channel in range(channels.start.size):
        index = place.origin + channel
        _, scale, _ = scales_of(spm, at, channel, q)
        bias, zero_term = record_of(spm, at, channel)
        if q.profile == NMP or q.profile == FBGEMM or q.profile == ONEDNN:
            bias = np.int64(0)
        elif q.profile == GLOW_FLOAT or q.profile == GLOW_FLOAT_LATE:
            bias = round_away(np.float32(bias) * float_of_bits(scale.mul))
        bias = limit_value(bias, -high - 1, high, BIAS, pixels, index, place.layer, sink)
        if q.profile == GLOW_INT:
            bias = apply_scale(bias, scale, q.element, BIAS, pixels, index, place.layer, sink)
        channels.start[channel] = limit_value(
            bias + zero_term, -high - 1, high, ACCUMULATOR, pixels, index, place.layer, sink
        )
