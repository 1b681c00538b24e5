"""From sums to results: scale, zero point, activation, clip, a run of channels at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.words import GLOW_FLOAT, GLOW_FLOAT_LATE, INT16, Q31
from nmpsim.kernels.channels import adds_early, is_real
from nmpsim.kernels.jit import jit
from nmpsim.kernels.rounding import doubling_high, held, rounding_shift
from nmpsim.kernels.saturate import (
    INT32_HIGH,
    INT32_LOW,
    ONCE,
    apply_scale,
    clip_run,
    limit_value,
    saturate_run,
)
from nmpsim.kernels.scale_runs import round_run_away, round_run_even
from nmpsim.kernels.stages import RESCALE

_HELD_SHIFTED: Any = np.int64(1 << 62)


@jit
def requantize(
    run: Any, reals: Any, channels: Any, q: Any, index: Any, layer: Any, sink: Any
) -> None:
    """Results of sums (int64), in place; ``reals`` (float32) is room to work in.

    ``index`` is the first one's in the layer's output, here and below.
    """
    count = run.size
    if is_real(q.profile):
        scale_reals(run, reals, channels.reals, q)
    elif q.element == INT16:
        scale_wide(run, channels, index, layer, sink)
    elif q.profile == Q31:
        scale_fixed_point(run, channels, index, layer, sink)
    else:
        scale_integers(run, channels, index, layer, sink)
    addend = channels.addend
    for i in range(count):
        run[i] += addend[i]
    if q.leaky:
        leak(run, q, index, layer, sink)
    clip_run(run, count, q.clip, index, layer, sink)


@jit
def scale_integers(run: Any, channels: Any, index: Any, layer: Any, sink: Any) -> None:
    """``((x >> pre) * mul + half) >> post``; the sum before the last shift fits 32 bits."""
    pre, mul, half, post = channels.pre, channels.mul, channels.half, channels.post
    for i in range(run.size):
        run[i] = (run[i] >> pre[i]) * mul[i] + half[i]
    saturate_run(run, run.size, RESCALE, index, layer, sink)
    for i in range(run.size):
        run[i] >>= post[i]


@jit
def scale_wide(run: Any, channels: Any, index: Any, layer: Any, sink: Any) -> None:
    """The same, but 64 bits hold the product: what would leave them is cut before it."""
    pre, mul, half, post = channels.pre, channels.mul, channels.half, channels.post
    most = channels.most
    beyond = 0
    for i in range(run.size):
        run[i] >>= pre[i]
        beyond += abs(run[i]) > most[i]
    if beyond:
        for i in range(run.size):
            run[i] = limit_value(run[i], -most[i], most[i], RESCALE, ONCE, index + i, layer, sink)
    for i in range(run.size):
        run[i] = (run[i] * mul[i] + half[i]) >> post[i]


@jit
def scale_fixed_point(run: Any, channels: Any, index: Any, layer: Any, sink: Any) -> None:
    """TFLite's MultiplyByQuantizedMultiplier: ``pre`` shifts to the left."""
    pre, mul, post = channels.pre, channels.mul, channels.post
    for i in range(run.size):
        run[i] = held(run[i], _HELD_SHIFTED >> pre[i]) << pre[i]
    saturate_run(run, run.size, RESCALE, index, layer, sink)
    for i in range(run.size):
        run[i] = rounding_shift(doubling_high(run[i], mul[i]), post[i])


@jit
def scale_reals(run: Any, reals: Any, c: Any, q: Any) -> None:
    """The chain of float32 operations of :class:`~nmpsim.kernels.channels.Reals`, rounded."""
    ahead, factor, bias, after = c.ahead, c.factor, c.bias, c.after
    zero_point = np.float32(q.out_offset) if adds_early(q.profile) else np.float32(0)
    for i in range(run.size):
        scaled = np.float32(run[i]) * ahead[i] * factor[i]
        reals[i] = np.float32(np.float64(scaled) + bias[i]) * after[i] + zero_point
    if q.profile == GLOW_FLOAT or q.profile == GLOW_FLOAT_LATE:
        round_run_away(reals, run.size, run)
    else:
        round_run_even(reals, run.size, run)


@jit
def leak(run: Any, q: Any, index: Any, layer: Any, sink: Any) -> None:
    """Results below the zero point on a scale of their own."""
    low, high = np.int64(INT32_LOW), np.int64(INT32_HIGH)
    for i in range(run.size):
        x = run[i] - q.out_offset
        if x >= 0:
            continue
        at = index + i
        if q.element != INT16:
            x = limit_value(x, low, high, RESCALE, ONCE, at, layer, sink)
        x = apply_scale(x, q.leaky_scale, q.element, RESCALE, ONCE, at, layer, sink)
        run[i] = x + q.out_offset
