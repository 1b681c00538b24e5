"""Scaling and rounding of runs of values, in place, as the profiles define it.

Scales are those of single channels, or one for all values. ``index`` is the first value's in the
layer's output. Values that 32 bits or the product of the rescale unit cannot hold saturate and are
counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.isa.profiles import Q31
from nmpsim.isa.words import INT16
from nmpsim.kernels.array_types import Float32s, Float64s, Int, Int64s
from nmpsim.kernels.channels import (
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
from nmpsim.kernels.operands import IntegerScale
from nmpsim.kernels.rounding import (
    MAX_MAGNITUDE,
    clamp_magnitude,
    doubling_high,
    round_away,
    round_even,
    rounding_shift,
)
from nmpsim.kernels.saturate import (
    MAX_PRODUCT,
    ONCE,
    SaturationCounters,
    limit_value,
    saturate_run,
)
from nmpsim.kernels.saturation_stages import RESCALE

_MAX_ROUNDED: Any = np.float64(1 << 61)
UNSIGNED: Any = np.int64(128)
"""Difference between the zero points of PyTorch's unsigned tensors and those of Int8."""


# --- integer scales --------------------------------------------------------------------------


class RunScale(NamedTuple):
    """An integer scale and what derives from it: numbers, or arrays with one for each value."""

    pre: Int | Int64s
    mul: Int | Int64s
    half: Int | Int64s
    """Half of the last bit that ``post`` leaves."""
    post: Int | Int64s
    most: Int | Int64s
    """Largest magnitude whose product the rescale unit holds."""


@jit
def get_element(numbers: Int64s, i: Int) -> Any:
    """Return the number of value ``i``."""
    return numbers[i]


@jit
def get_common(number: Int, _: Int) -> Any:
    """Return the number that all values have."""
    return number


@jit_inlined
def get_channel_scales(integers: Int64s) -> Any:
    """Return the scales of the channels in the table of ``channels.py``."""
    pre, mul, half = integers[PRE], integers[MUL], integers[HALF]
    return RunScale(pre, mul, half, integers[POST], integers[MOST])


@jit
def scale_integers(
    values: Int64s,
    scale: IntegerScale,
    profile: Int,
    element: Int,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Scale a run of values by one integer scale, as a profile does it."""
    half, most = (ONCE << scale.post) >> ONCE, MAX_PRODUCT // max(abs(scale.mul), ONCE)
    scales = RunScale(scale.pre, scale.mul, half, scale.post, most)
    if profile == Q31:
        scale_fixed_point(values, scales, get_common, index, counters)
    elif element == INT16:
        scale_wide(values, scales, get_common, index, counters)
    else:
        scale_narrow(values, scales, get_common, index, counters)


@jit
def scale_narrow(
    values: Int64s, scales: RunScale, at: Any, index: Int, counters: SaturationCounters
) -> None:
    """Compute ``((x >> pre) * mul + half) >> post``, saturated before the last shift."""
    pre, mul, half, post = scales.pre, scales.mul, scales.half, scales.post
    for i in range(values.size):
        values[i] = (values[i] >> at(pre, i)) * at(mul, i) + at(half, i)
    saturate_run(values, RESCALE, index, counters)
    for i in range(values.size):
        values[i] >>= at(post, i)


@jit
def scale_wide(
    values: Int64s, scales: RunScale, at: Any, index: Int, counters: SaturationCounters
) -> None:
    """Compute ``((x >> pre) * mul + half) >> post`` with saturated ``x >> pre``."""
    pre, mul, half, post, most = scales
    beyond = 0
    for i in range(values.size):
        values[i] >>= at(pre, i)
        beyond += abs(values[i]) > at(most, i)
    if beyond:
        for i in range(values.size):
            limit = at(most, i)
            values[i] = limit_value(values[i], -limit, limit, RESCALE, ONCE, index + i, counters)
    for i in range(values.size):
        values[i] = (values[i] * at(mul, i) + at(half, i)) >> at(post, i)


@jit
def scale_fixed_point(
    values: Int64s, scales: RunScale, at: Any, index: Int, counters: SaturationCounters
) -> None:
    """Compute TFLite's MultiplyByQuantizedMultiplier, where ``pre`` is a shift to the left."""
    pre, mul, post = scales.pre, scales.mul, scales.post
    for i in range(values.size):
        shift = at(pre, i)
        values[i] = clamp_magnitude(values[i], MAX_MAGNITUDE >> shift) << shift
    saturate_run(values, RESCALE, index, counters)
    for i in range(values.size):
        values[i] = rounding_shift(doubling_high(values[i], at(mul, i)), at(post, i))


@jit
def scale_once(run: Int64s, integers: Int64s) -> None:
    """Multiply each sum by its channel's float64 factor, halves rounded away from zero.

    ``integers[MUL]`` holds the bits of the factors. Results are limited to +-2**61, far beyond the
    range of any element.
    """
    for c in range(run.size):
        product = np.float64(run[c]) * np.int64(integers[MUL, c]).view(np.float64)
        size = min(abs(product), _MAX_ROUNDED)
        whole = np.int64(size)
        if size - np.float64(whole) >= 0.5:
            whole += 1
        run[c] = whole if product >= 0 else -whole


# --- floats ----------------------------------------------------------------------------------


@jit
def scale_to_float(value: Int, reals: Float64s, c: Int, zero_point: np.float32) -> Any:
    """Return a channel's sum after the float32 operations that ``channels.py`` describes."""
    scaled = np.float32(value) * np.float32(reals[PRE_FACTOR, c]) * np.float32(reals[FACTOR, c])
    shifted = np.float32(np.float64(scaled) + reals[FLOAT_BIAS, c])
    return shifted * np.float32(reals[POST_FACTOR, c]) + zero_point


@jit
def multiply_to_floats(values: Int64s, factor: np.float32, floats: Float32s) -> None:
    """Fill ``floats`` with a run of values times a float32 factor."""
    for i in range(values.size):
        floats[i] = np.float32(values[i]) * factor


@jit
def add_to_floats(floats: Float32s, value: Int) -> None:
    """Add an integer, as float32, to each float."""
    addend = np.float32(value)
    for i in range(floats.size):
        floats[i] += addend


@jit
def round_run_away(floats: Float32s, values: Int64s) -> None:
    """Fill ``values`` with rounded floats, halves away from zero."""
    for i in range(values.size):
        values[i] = round_away(floats[i])


@jit
def round_run_even(floats: Float32s, values: Int64s) -> None:
    """Fill ``values`` with rounded floats, halves to even."""
    for i in range(values.size):
        values[i] = round_even(floats[i])


# --- integers --------------------------------------------------------------------------------


@jit
def add_to_run(values: Int64s, value: Int) -> None:
    """Add an integer to each value."""
    for i in range(values.size):
        values[i] += value


@jit
def divide_run(values: Int64s, divisor: Int) -> None:
    """Divide each value, halves rounded away from zero (as libjit and TFLite do)."""
    for i in range(values.size):
        if values[i] > 0:
            values[i] = (values[i] + divisor // 2) // divisor
        else:
            values[i] = -((-values[i] + divisor // 2) // divisor)
