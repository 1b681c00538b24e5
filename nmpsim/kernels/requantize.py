"""From sums to results: scale, zero point, activation, clip, a run of channels at a time."""

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
    Q31,
    decides_profiles,
)
from nmpsim.isa.words import INT16
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
    early_zero_point,
)
from nmpsim.kernels.jit import jit
from nmpsim.kernels.rounding import doubling_high, held, round_away, round_even, rounding_shift
from nmpsim.kernels.saturate import (
    INT32_HIGH,
    INT32_LOW,
    ONCE,
    apply_scale,
    clip_run,
    limit_value,
    saturate_run,
)
from nmpsim.kernels.saturation_stages import RESCALE

_HELD_SHIFTED: Any = np.int64(1 << 62)


@jit
@decides_profiles("conv")
def requantize(
    run: Any, integers: Any, reals: Any, q: Any, index: Any, layer: Any, sink: Any
) -> None:
    """Results of sums (int64), in place; the tables are those of their channels.

    ``index`` is the first one's in the layer's output, here and below.
    """
    is_wide = q.element == INT16
    if q.profile in (GLOW_FLOAT, GLOW_FLOAT_LATE, FLOAT, FBGEMM, ONEDNN):
        scale_reals(run, reals, q)
    elif q.profile in (GLOW_INT, NMP, Q31) and is_wide:
        scale_wide(run, integers, index, layer, sink)
    elif q.profile == Q31:
        scale_fixed_point(run, integers, index, layer, sink)
    elif q.profile in (GLOW_INT, NMP):
        scale_integers(run, integers, index, layer, sink)
    for c in range(run.size):
        run[c] += integers[ADDEND, c]
    if q.leaky:
        leak(run, q, index, layer, sink)
    clip_run(run, run.size, q.clip, index, layer, sink)


@jit
def scale_integers(run: Any, integers: Any, index: Any, layer: Any, sink: Any) -> None:
    """``((x >> pre) * mul + half) >> post``; the sum before the last shift fits 32 bits."""
    for c in range(run.size):
        run[c] = (run[c] >> integers[PRE, c]) * integers[MUL, c] + integers[HALF, c]
    saturate_run(run, run.size, RESCALE, index, layer, sink)
    for c in range(run.size):
        run[c] >>= integers[POST, c]


@jit
def scale_wide(run: Any, integers: Any, index: Any, layer: Any, sink: Any) -> None:
    """The same, but 64 bits hold the product: what would leave them is cut before it."""
    beyond = 0
    for c in range(run.size):
        run[c] >>= integers[PRE, c]
        beyond += abs(run[c]) > integers[MOST, c]
    if beyond:
        for c in range(run.size):
            most = integers[MOST, c]
            run[c] = limit_value(run[c], -most, most, RESCALE, ONCE, index + c, layer, sink)
    for c in range(run.size):
        run[c] = (run[c] * integers[MUL, c] + integers[HALF, c]) >> integers[POST, c]


@jit
def scale_fixed_point(run: Any, integers: Any, index: Any, layer: Any, sink: Any) -> None:
    """TFLite's MultiplyByQuantizedMultiplier: ``pre`` shifts to the left."""
    for c in range(run.size):
        pre = integers[PRE, c]
        run[c] = held(run[c], _HELD_SHIFTED >> pre) << pre
    saturate_run(run, run.size, RESCALE, index, layer, sink)
    for c in range(run.size):
        run[c] = rounding_shift(doubling_high(run[c], integers[MUL, c]), integers[POST, c])


@jit
def scaled_real(value: Any, reals: Any, c: Any, zero_point: Any) -> Any:
    """The chain of float32 operations that :mod:`~nmpsim.kernels.channels` tells."""
    scaled = np.float32(value) * np.float32(reals[AHEAD, c]) * np.float32(reals[FACTOR, c])
    shifted = np.float32(np.float64(scaled) + reals[BIAS_REAL, c])
    return shifted * np.float32(reals[AFTER, c]) + zero_point


@jit
def scale_reals(run: Any, reals: Any, q: Any) -> None:
    """Nearest integers of the scaled sums, in place."""
    zero_point = np.float32(early_zero_point(q))
    if q.profile == GLOW_FLOAT or q.profile == GLOW_FLOAT_LATE:
        for c in range(run.size):
            run[c] = round_away(scaled_real(run[c], reals, c, zero_point))
    elif q.profile in (FLOAT, FBGEMM, ONEDNN):
        for c in range(run.size):
            run[c] = round_even(scaled_real(run[c], reals, c, zero_point))


@jit
def leak(run: Any, q: Any, index: Any, layer: Any, sink: Any) -> None:
    """Results below the zero point on a scale of their own."""
    low, high = np.int64(INT32_LOW), np.int64(INT32_HIGH)
    for c in range(run.size):
        x = run[c] - q.out_offset
        if x >= 0:
            continue
        if q.element != INT16:
            x = limit_value(x, low, high, RESCALE, ONCE, index + c, layer, sink)
        x = apply_scale(x, q.leaky_scale, q.element, RESCALE, ONCE, index + c, layer, sink)
        run[c] = x + q.out_offset
