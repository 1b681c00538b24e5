"""A run of values on another scale, the same for all of them, as each profile does it.

``index`` is the first value's in the layer's output. What 32 bits or the unit's product cannot
hold saturates and is counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import Q31
from nmpsim.isa.words import INT16
from nmpsim.kernels.array_types import Float32s, Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import IntegerScale
from nmpsim.kernels.rounding import (
    HELD,
    doubling_high,
    held,
    round_away,
    round_even,
    rounding_shift,
)
from nmpsim.kernels.saturate import MAX_PRODUCT, SaturationCounters, limit_run, saturate_run
from nmpsim.kernels.saturation_stages import RESCALE

_ONE: Any = np.int64(1)
UNSIGNED: Any = np.int64(128)
"""PyTorch's zero points are those of unsigned tensors; Int8 ones are less by so much."""


@jit
def scale_integers(
    values: Int64s,
    count: Int,
    scale: IntegerScale,
    profile: Int,
    element: Int,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """``count`` integers (int64) on an integer scale, in place."""
    if profile == Q31:
        scale_fixed_point(values, count, scale, index, layer, counters)
    elif element == INT16:
        scale_wide(values, count, scale, index, layer, counters)
    else:
        scale_narrow(values, count, scale, index, layer, counters)


@jit
def scale_narrow(
    values: Int64s,
    count: Int,
    scale: IntegerScale,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """``((x >> pre) * mul + half) >> post``; what is shifted last saturates to 32 bits.

    The values fit 32 bits.
    """
    half = (_ONE << scale.post) >> _ONE
    for i in range(count):
        values[i] = (values[i] >> scale.pre) * scale.mul + half
    saturate_run(values, count, RESCALE, index, layer, counters)
    for i in range(count):
        values[i] >>= scale.post


@jit
def scale_wide(
    values: Int64s,
    count: Int,
    scale: IntegerScale,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """The same of values beyond 32 bits; ``x >> pre`` saturates where its product leaves 62."""
    limit = MAX_PRODUCT // max(abs(scale.mul), _ONE)
    half = (_ONE << scale.post) >> _ONE
    for i in range(count):
        values[i] >>= scale.pre
    limit_run(values, count, -limit, limit, RESCALE, RESCALE, index, layer, counters)
    for i in range(count):
        values[i] = (values[i] * scale.mul + half) >> scale.post


@jit
def scale_fixed_point(
    values: Int64s,
    count: Int,
    scale: IntegerScale,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """TFLite's MultiplyByQuantizedMultiplier: ``pre`` shifts to the left."""
    limit = HELD >> scale.pre
    for i in range(count):
        values[i] = held(values[i], limit) << scale.pre
    saturate_run(values, count, RESCALE, index, layer, counters)
    for i in range(count):
        values[i] = rounding_shift(doubling_high(values[i], scale.mul), scale.post)


@jit
def multiply_reals(values: Int64s, count: Int, factor: np.float32, reals: Float32s) -> None:
    """``reals`` (float32) = ``count`` integers times a float32."""
    for i in range(count):
        reals[i] = np.float32(values[i]) * factor


@jit
def add_real(reals: Float32s, count: Int, value: Int) -> None:
    """Add an integer, as float32, to ``count`` reals, in place."""
    real = np.float32(value)
    for i in range(count):
        reals[i] += real


@jit
def round_run_away(reals: Float32s, count: Int, values: Int64s) -> None:
    """``values`` = nearest integers of ``count`` reals, halves away from zero."""
    for i in range(count):
        values[i] = round_away(reals[i])


@jit
def round_run_even(reals: Float32s, count: Int, values: Int64s) -> None:
    """``values`` = nearest integers of ``count`` reals, halves to even."""
    for i in range(count):
        values[i] = round_even(reals[i])


@jit
def add_integer(values: Int64s, count: Int, value: Int) -> None:
    """Add an integer to ``count`` values, in place."""
    for i in range(count):
        values[i] += value


@jit
def divide_run(values: Int64s, count: Int, by: Int) -> None:
    """Nearest integers of ``value / by``, halves away from zero (libjit, TFLite), in place."""
    for i in range(count):
        if values[i] > 0:
            values[i] = (values[i] + by // 2) // by
        else:
            values[i] = -((-values[i] + by // 2) // by)
