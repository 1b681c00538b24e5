"""Values that are cut to a range, and the account that is kept of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.jit import jit
from nmpsim.kernels.stages import ACTIVATION, HIGH, LOW, RESULT

INT32_LOW = -(1 << 31)
INT32_HIGH = (1 << 31) - 1
MOST_PRODUCT: Any = np.int64(1 << 61)
"""Largest product of the rescale unit for Int16, before it rounds."""
ONCE: Any = np.int64(1)
"""Times that one value counts."""


class Sink(NamedTuple):
    """Where cut values are counted; the arrays are those of the machine."""

    layers: Any
    channel_cut: Any


class Place(NamedTuple):
    """A tile in its layer's output: index of a result = origin + y*stride_y + x*stride_x + c."""

    layer: Any
    origin: Any
    stride_y: Any
    stride_x: Any


class Clip(NamedTuple):
    """The result's range; a bit of ``wanted`` says that the network asks for that side's clip."""

    low: Any
    high: Any
    wanted: Any


class IntegerScale(NamedTuple):
    """``((x >> pre) * mul + round) >> post``."""

    pre: Any
    mul: Any
    post: Any


@jit
def record(
    sink: Any, layer: Any, stage: Any, side: Any, index: Any, overshoot: Any, times: Any
) -> None:
    """Count ``times`` values that were cut; ``index`` is the first one's in the layer's output."""
    account = sink.layers[layer]
    channel = account.channel_base + index % account.channels
    account.cut[stage, side] += times
    account.worst[stage, side] = max(account.worst[stage, side], overshoot)
    account.first[stage, side] = min(account.first[stage, side], index)
    sink.channel_cut[channel, stage, side] += times


@jit
def limit_value(
    value: Any, low: Any, high: Any, stage: Any, times: Any, index: Any, layer: Any, sink: Any
) -> Any:
    """``value`` (int64) from ``low`` to ``high``."""
    if value > high:
        record(sink, layer, stage, HIGH, index, value - high, times)
        return high
    if value < low:
        record(sink, layer, stage, LOW, index, low - value, times)
        return low
    return value


@jit
def apply_scale(
    x: Any, scale: Any, element: Any, stage: Any, times: Any, index: Any, layer: Any, sink: Any
) -> Any:
    """Integer scale of ``x`` (int64).

    Int8: ``x`` fits 32 bits, and the sum before the last shift saturates to them. Int16: ``x >>
    pre`` saturates where the product would leave 62 bits.
    """
    shifted, half = x >> scale.pre, (ONCE << scale.post) >> ONCE
    if element == INT16:
        most = MOST_PRODUCT // max(abs(scale.mul), ONCE)
        shifted = limit_value(shifted, -most, most, stage, times, index, layer, sink)
        return (shifted * scale.mul + half) >> scale.post
    low, high = np.int64(INT32_LOW), np.int64(INT32_HIGH)
    total = shifted * scale.mul + half
    return limit_value(total, low, high, stage, times, index, layer, sink) >> scale.post


@jit
def saturate_run(values: Any, count: Any, stage: Any, index: Any, layer: Any, sink: Any) -> None:
    """``count`` values saturated to 32 bits, in place.

    ``index`` is the first one's in the layer's output, here and below.
    """
    low, high = np.int64(INT32_LOW), np.int64(INT32_HIGH)
    limit_run(values, count, low, high, stage, stage, index, layer, sink)


@jit
def clip_run(values: Any, count: Any, clip: Any, index: Any, layer: Any, sink: Any) -> None:
    """``count`` values (int64) within a range, in place; what is cut is accounted for."""
    low_stage = ACTIVATION if clip.wanted & 1 else RESULT
    high_stage = ACTIVATION if clip.wanted & 2 else RESULT
    limit_run(values, count, clip.low, clip.high, low_stage, high_stage, index, layer, sink)


@jit
def limit_run(
    values: Any,
    count: Any,
    low: Any,
    high: Any,
    low_stage: Any,
    high_stage: Any,
    index: Any,
    layer: Any,
    sink: Any,
) -> None:
    """``count`` values (int64) from ``low`` to ``high``, in place; each side has its stage."""
    below = 0
    above = 0
    for i in range(count):
        below += values[i] < low
        above += values[i] > high
    if below:
        account_run(values, count, low, -1, low_stage, LOW, index, layer, sink)
    if above:
        account_run(values, count, high, 1, high_stage, HIGH, index, layer, sink)
    if below or above:
        for i in range(count):
            values[i] = min(max(values[i], low), high)


@jit
def account_run(
    values: Any,
    count: Any,
    limit: Any,
    sign: Any,
    stage: Any,
    side: Any,
    index: Any,
    layer: Any,
    sink: Any,
) -> None:
    """Count the values beyond ``limit``: above it if ``sign`` is 1, below it if it is -1."""
    account = sink.layers[layer]
    channels, base = account.channels, account.channel_base
    channel = index % channels
    times = 0
    worst = np.int64(0)
    first = np.int64(0)
    for i in range(count):
        overshoot = sign * (values[i] - limit)
        if overshoot > 0:
            if times == 0:
                first = index + i
            times += 1
            worst = max(worst, overshoot)
            sink.channel_cut[base + channel, stage, side] += 1
        channel += 1
        if channel == channels:
            channel = 0
    account.cut[stage, side] += times
    account.worst[stage, side] = max(account.worst[stage, side], worst)
    account.first[stage, side] = min(account.first[stage, side], first)
