"""Values that are cut to a range, and the account that is kept of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.jit import jit
from nmpsim.kernels.stages import ACTIVATION, HIGH, LOW, RESCALE, RESULT

INT32_LOW = -(1 << 31)
INT32_HIGH = (1 << 31) - 1
ONCE = np.int64(1)
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
def to_int32(value: Any, stage: Any, times: Any, index: Any, layer: Any, sink: Any) -> Any:
    """``value`` (int64) saturated to 32 bits."""
    if value > INT32_HIGH:
        record(sink, layer, stage, HIGH, index, value - INT32_HIGH, times)
        return np.int64(INT32_HIGH)
    if value < INT32_LOW:
        record(sink, layer, stage, LOW, index, INT32_LOW - value, times)
        return np.int64(INT32_LOW)
    return np.int64(value)


@jit
def apply_scale(
    x: Any, scale: Any, stage: Any, times: Any, index: Any, layer: Any, sink: Any
) -> Any:
    """Integer scale of ``x`` (int64 that fits 32 bits); the sum before the last shift saturates."""
    total = (np.int64(x) >> np.int64(scale.pre)) * np.int64(scale.mul)
    if scale.post > 0:
        total += np.int64(1) << np.int64(scale.post - 1)
    return to_int32(total, stage, times, index, layer, sink) >> np.int64(scale.post)


@jit
def rescale(x: Any, scale: Any, index: Any, layer: Any, sink: Any) -> Any:
    """Integer scale of one value in the rescale unit."""
    return apply_scale(x, scale, RESCALE, ONCE, index, layer, sink)


@jit
def clip_result(value: Any, clip: Any, index: Any, layer: Any, sink: Any) -> Any:
    """``value`` (int64) within the result's range."""
    if value < clip.low:
        stage = ACTIVATION if clip.wanted & 1 else RESULT
        record(sink, layer, stage, LOW, index, clip.low - value, ONCE)
        return np.int64(clip.low)
    if value > clip.high:
        stage = ACTIVATION if clip.wanted & 2 else RESULT
        record(sink, layer, stage, HIGH, index, value - clip.high, ONCE)
        return np.int64(clip.high)
    return np.int64(value)
