"""A run of sums, each on the scale of its own channel, from the tables of ``channels.py``.

``index`` is the first value's in the layer's output.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.array_types import Float64s, Int, Int64s
from nmpsim.kernels.channels import AFTER, AHEAD, BIAS_REAL, FACTOR, HALF, MOST, MUL, POST, PRE
from nmpsim.kernels.jit import jit
from nmpsim.kernels.rounding import doubling_high, held, rounding_shift
from nmpsim.kernels.saturate import ONCE, SaturationCounters, limit_value, saturate_run
from nmpsim.kernels.saturation_stages import RESCALE

_HELD_SHIFTED: Any = np.int64(1 << 62)
_HELD_RESULT: Any = np.float64(1 << 61)


@jit
def scale_channels(
    run: Int64s, integers: Int64s, index: Int, layer: Int, counters: SaturationCounters
) -> None:
    """``((x >> pre) * mul + half) >> post``; the sum before the last shift fits 32 bits."""
    for c in range(run.size):
        run[c] = (run[c] >> integers[PRE, c]) * integers[MUL, c] + integers[HALF, c]
    saturate_run(run, run.size, RESCALE, index, layer, counters)
    for c in range(run.size):
        run[c] >>= integers[POST, c]


@jit
def scale_channels_wide(
    run: Int64s, integers: Int64s, index: Int, layer: Int, counters: SaturationCounters
) -> None:
    """The same, but 64 bits hold the product: what would leave them saturates before it."""
    beyond = 0
    for c in range(run.size):
        run[c] >>= integers[PRE, c]
        beyond += abs(run[c]) > integers[MOST, c]
    if beyond:
        for c in range(run.size):
            most = integers[MOST, c]
            run[c] = limit_value(run[c], -most, most, RESCALE, ONCE, index + c, layer, counters)
    for c in range(run.size):
        run[c] = (run[c] * integers[MUL, c] + integers[HALF, c]) >> integers[POST, c]


@jit
def scale_channels_fixed_point(
    run: Int64s, integers: Int64s, index: Int, layer: Int, counters: SaturationCounters
) -> None:
    """TFLite's MultiplyByQuantizedMultiplier: ``pre`` shifts to the left."""
    for c in range(run.size):
        pre = integers[PRE, c]
        run[c] = held(run[c], _HELD_SHIFTED >> pre) << pre
    saturate_run(run, run.size, RESCALE, index, layer, counters)
    for c in range(run.size):
        run[c] = rounding_shift(doubling_high(run[c], integers[MUL, c]), integers[POST, c])


@jit
def scale_channels_once(run: Int64s, integers: Int64s) -> None:
    """Multiply each sum by its channel's float64 factor and round halves away from zero.

    ``integers[MUL]`` holds the bits of the factors. Results are limited to +-2**61, far beyond the
    range of any element.
    """
    for c in range(run.size):
        product = np.float64(run[c]) * np.int64(integers[MUL, c]).view(np.float64)
        size = min(abs(product), _HELD_RESULT)
        whole = np.int64(size)
        if size - np.float64(whole) >= 0.5:
            whole += 1
        run[c] = whole if product >= 0 else -whole


@jit
def scaled_real(value: Int, reals: Float64s, c: Int, zero_point: np.float32) -> Any:
    """The chain of float32 operations that :mod:`~nmpsim.kernels.channels` tells."""
    scaled = np.float32(value) * np.float32(reals[AHEAD, c]) * np.float32(reals[FACTOR, c])
    shifted = np.float32(np.float64(scaled) + reals[BIAS_REAL, c])
    return shifted * np.float32(reals[AFTER, c]) + zero_point
