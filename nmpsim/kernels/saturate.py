"""Limiting of values to a range, by saturation or a clip, and counters of limited values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.array_types import Int, Int32s, Int64s, Records
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.saturation_stages import ACTIVATION, HIGH, LOW, RESULT

INT32_MIN = -(1 << 31)
INT32_MAX = (1 << 31) - 1
ONCE: Any = np.int64(1)
"""Weight of a value that counts once."""


class SaturationCounters(NamedTuple):
    """Counters of a layer's saturated and clipped values, in arrays of the machine."""

    layers: Records
    channel_saturated: Int64s
    layer: Int
    """Index of the layer in ``layers``."""


@jit
def add_saturations(
    counters: SaturationCounters,
    stage: Int,
    side: Int,
    index: Int,
    overshoot: Int,
    times: Int,
) -> None:
    """Count ``times`` saturated or clipped values, the first of which is at ``index``."""
    account = counters.layers[counters.layer]
    channel = account.channel_base + index % account.channels
    account.saturated[stage, side] += times
    account.worst[stage, side] = max(account.worst[stage, side], overshoot)
    account.first[stage, side] = min(account.first[stage, side], index)
    counters.channel_saturated[stage, side, channel] += times


@jit
def clamp_value(
    value: Int,
    low: Int,
    high: Int,
    stage: Int,
    times: Int,
    index: Int,
    counters: SaturationCounters,
) -> Any:
    """Return an int64 clamped to ``low`` ... ``high``; count a value outside this range."""
    if value > high:
        add_saturations(counters, stage, HIGH, index, value - high, times)
        return high
    if value < low:
        add_saturations(counters, stage, LOW, index, low - value, times)
        return low
    return value


@jit
def saturate_elements(values: Int64s, stage: Int, index: Int, counters: SaturationCounters) -> None:
    """Saturate an array to 32 bits in place, and count saturated values.

    ``index`` is the first one's in the layer's output, here and below.
    """
    low, high = np.int64(INT32_MIN), np.int64(INT32_MAX)
    clamp_elements(values, low, high, stage, stage, index, counters)


@jit
def get_clip_stages(clip: Clip) -> Any:
    """Return the two stages that count values below and above the limits of a clip."""
    return ACTIVATION if clip.wanted & 1 else RESULT, ACTIVATION if clip.wanted & 2 else RESULT


@jit
def clip_elements(
    values: Int32s | Int64s,
    clip: Clip,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Clip an array in place, and count saturated and clipped values."""
    low_stage, high_stage = get_clip_stages(clip)
    clamp_elements(values, clip.low, clip.high, low_stage, high_stage, index, counters)


@jit
def clamp_elements(
    values: Int32s | Int64s,
    low: Int,
    high: Int,
    low_stage: Int,
    high_stage: Int,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Clamp an array to ``low`` ... ``high`` in place, and count values beyond each limit.

    The values' type holds both limits.
    """
    lowest, highest = values.dtype.type(low), values.dtype.type(high)
    least, most = lowest, highest
    for i in range(values.size):
        least = min(least, values[i])
        most = max(most, values[i])
    if least < lowest:
        count_outside(values, lowest, low_stage, LOW, index, counters)
        record_overshoot(values, low, low_stage, LOW, low - np.int64(least), index, counters)
    if most > highest:
        count_outside(values, highest, high_stage, HIGH, index, counters)
        record_overshoot(values, high, high_stage, HIGH, np.int64(most) - high, index, counters)
    if least < lowest or most > highest:
        for i in range(values.size):
            values[i] = min(max(values[i], lowest), highest)


@jit
def record_overshoot(
    values: Int32s | Int64s,
    limit: Int,
    stage: Int,
    side: Int,
    overshoot: Int,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Record the largest overshoot and the index of the first value beyond ``limit``."""
    account = counters.layers[counters.layer]
    account.worst[stage, side] = max(account.worst[stage, side], overshoot)
    if index >= account.first[stage, side]:
        return
    sign = 1 if side == HIGH else -1
    place = 0
    while sign * (values[place] - limit) <= 0:
        place += 1
    account.first[stage, side] = min(account.first[stage, side], index + place)


@jit
def count_outside(
    values: Int32s | Int64s,
    limit: Any,
    stage: Int,
    side: Int,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Count an array's values beyond ``limit`` in the layer's and the channels' counters."""
    account = counters.layers[counters.layer]
    # Inverting all bits reverses the order: values above a limit become values below it.
    inverted = values.dtype.type(-side)
    limit = limit ^ inverted
    channel, times, done = index % account.channels, np.int64(0), np.int64(0)
    while done < values.size:  # up to the last channel of a pixel at a time
        row = account.channel_base + channel
        run = values[done : min(values.size, done + account.channels - channel)]
        by_channel = counters.channel_saturated[stage, side, row : row + run.size]
        for i in range(run.size):
            beyond = np.int64((run[i] ^ inverted) < limit)
            by_channel[i] += beyond
            times += beyond
        done += run.size
        channel = 0
    account.saturated[stage, side] += times
