"""Oracle of rescaling, rounding and saturation in plain integers.

It shares only the arrays of the counters with the kernels and the reference engine.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.state import LAYER, NEVER, STAGES

BIAS, ACCUMULATOR, RESCALE, RESULT, ACTIVATION = range(5)
"""Stages, as docs/report.md has them."""
LOW, HIGH = 0, 1
INT8, INT16 = 0, 1
INT32 = -(1 << 31), (1 << 31) - 1
INT48 = -(1 << 47), (1 << 47) - 1
MAX_MAGNITUDE = 1 << 62
"""What is beyond it is held there."""
CHANNELS, BASE, LAYER_INDEX = 5, 3, 1
"""Channels of the layer, the place of its first one in the account, the layer's own place."""
F32 = np.float32


class SaturationCounters(NamedTuple):
    """Arrays of a machine that count saturated values."""

    layers: Any
    channel_saturated: Any
    layer: Any


def new_counters() -> SaturationCounters:
    layers = np.zeros(3, LAYER).view(np.recarray)
    layers.channels[:], layers.first[:] = (2, CHANNELS, 4), NEVER
    layers.channel_base[:] = 0, BASE, BASE + CHANNELS
    by_channel = np.zeros((STAGES, 2, BASE + CHANNELS + 4), np.int64)
    return SaturationCounters(layers, by_channel, np.int64(LAYER_INDEX))


class SaturationOracle:
    """Oracle of the saturation counters that updates them value by value."""

    def __init__(self) -> None:
        self.expected = new_counters()

    def clamp(
        self, value: int, low: int, high: int, stages: tuple[int, int], index: int, times: int = 1
    ) -> int:
        """Clamp ``value`` to ``low`` .. ``high`` and count it if it is saturated."""
        for side, overshoot in ((LOW, low - value), (HIGH, value - high)):
            if overshoot > 0:
                at, layer = (stages[side], side), self.expected.layers[LAYER_INDEX]
                layer["saturated"][at] += times
                layer["worst"][at] = max(int(layer["worst"][at]), overshoot)
                layer["first"][at] = min(int(layer["first"][at]), index)
                self.expected.channel_saturated[(*at, BASE + index % CHANNELS)] += times
        return min(max(value, low), high)

    def assert_equal(self, counters: SaturationCounters) -> None:
        for name in ("saturated", "worst", "first", "elements", "counts"):
            np.testing.assert_array_equal(counters.layers[name], self.expected.layers[name], name)
        np.testing.assert_array_equal(counters.channel_saturated, self.expected.channel_saturated)


def round_half_away(value: Any) -> int:
    """Round a float half away from zero and clamp it to +-2^62; return 0 for NaN."""
    if np.isnan(value):
        return 0
    if np.isinf(value):
        return MAX_MAGNITUDE if value > 0 else -MAX_MAGNITUDE
    size = int(abs(Fraction(float(value))) + Fraction(1, 2))
    return min(max(size if value > 0 else -size, -MAX_MAGNITUDE), MAX_MAGNITUDE)


def round_half_even(value: Any) -> int:
    """Round a float half to even and clamp it to +-2^62; return 0 for NaN."""
    if np.isnan(value):
        return 0
    if np.isinf(value):
        return MAX_MAGNITUDE if value > 0 else -MAX_MAGNITUDE
    return min(max(round(Fraction(float(value))), -MAX_MAGNITUDE), MAX_MAGNITUDE)


def round_to_float32(exact: Fraction) -> Any:
    """Round an exact number half to even to float32; return infinity from 2^128 on."""
    with np.errstate(over="ignore"):
        first = F32(float(exact))
        around = [np.nextafter(first, F32(-np.inf)), first, np.nextafter(first, F32(np.inf))]

    def distance(value: Any) -> tuple[Fraction, int]:
        near = min(max(float(value), -(2.0**128)), 2.0**128)
        return abs(Fraction(near) - exact), encode_float32(value) & 1

    return min(around, key=distance)


def shift_away(x: int, shift: int) -> int:
    """Divide by ``2^shift`` and round half away from zero."""
    size = int(abs(Fraction(x, 1 << shift)) + Fraction(1, 2))
    return size if x > 0 else -size


def multiply_high(x: int, mul: int) -> int:
    """Return ``x * mul / 2^31`` rounded half up, at most 2^31 - 1."""
    return min((x * mul + (1 << 30)) // (1 << 31), INT32[1])


def compute_half(post: int) -> int:
    return (1 << post) >> 1


def apply_integer_form(
    x: int, scale: tuple[int, int, int], element: int, stage: int, index: int,
    oracle: SaturationOracle, times: int = 1,
) -> int:  # fmt: skip
    """Return ``((x >> pre) * mul + half) >> post`` and count saturated values."""
    pre, mul, post = scale
    if element == INT8:
        total = oracle.clamp(
            (x >> pre) * mul + compute_half(post), *INT32, (stage,) * 2, index, times
        )
        return total >> post
    most = (1 << 61) // max(abs(mul), 1)
    shifted = oracle.clamp(x >> pre, -most, most, (stage,) * 2, index, times)
    return (shifted * mul + compute_half(post)) >> post


def apply_fixed_point_form(
    x: int, scale: tuple[int, int, int], index: int, oracle: SaturationOracle
) -> int:
    """Shift ``x`` left by ``pre``, multiply by ``mul / 2^31`` and divide by ``2^post``."""
    pre, mul, post = scale
    held = min(max(x, -(MAX_MAGNITUDE >> pre)), MAX_MAGNITUDE >> pre)
    shifted = oracle.clamp(held << pre, *INT32, (RESCALE,) * 2, index)
    return shift_away(multiply_high(shifted, mul), post)


def apply_reduced_form(x: int, scale: tuple[int, int, int]) -> int:
    """Rescale a 48-bit sum by ``mul`` rounded to 16 bits, with one shift that rounds half up."""
    pre, mul, post = scale
    reduced = 0x7FFF if mul >= 0x7FFF0000 else (mul + 0x8000) // 0x10000
    shift = 15 - pre + post
    return (x * reduced + compute_half(shift)) >> shift


def apply_single_rounding_form(
    x: int, scale: tuple[int, int, int], low: tuple[int, int, int]
) -> int:
    """Multiply by a float64 packed in two scales, round half away from zero, clamp at 2^61."""
    pre, mul, post = scale
    factor = math.ldexp(float((mul << 22) + low[1]), pre - post - low[2] - 53)
    product = float(x) * factor
    size = min(int(Fraction(abs(product)) + Fraction(1, 2)), 1 << 61)
    return size if product > 0 else -size


def decode_float32(bits: int) -> Any:
    return np.array([bits & 0xFFFF_FFFF], np.uint32).view(F32)[0]


def encode_float32(value: Any) -> int:
    return int(F32(value).view(np.int32))


def encode_float64(value: float) -> int:
    return int(np.float64(value).view(np.int64))
