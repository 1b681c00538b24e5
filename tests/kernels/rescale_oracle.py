"""Rescaling, rounding and saturation in plain integers, as docs/isa.md and docs/numerics.md say.

Shares nothing with the kernels and the reference engine but the arrays that accounts are kept in.
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
HELD = 1 << 62
"""What is beyond it is held there."""
CHANNELS, BASE, LAYER_INDEX = 5, 3, 1
"""Channels of the layer, the place of its first one in the account, the layer's own place."""
F32 = np.float32


class SaturationCounters(NamedTuple):
    """The arrays of a machine that saturation is counted in."""

    layers: Any
    channel_saturated: Any
    layer: Any


def new_counters() -> SaturationCounters:
    layers = np.zeros(3, LAYER).view(np.recarray)
    layers.channels[:], layers.first[:] = (2, CHANNELS, 4), NEVER
    layers.channel_base[:] = 0, BASE, BASE + CHANNELS
    by_channel = np.zeros((STAGES, 2, BASE + CHANNELS + 4), np.int64)
    return SaturationCounters(layers, by_channel, np.int64(LAYER_INDEX))


class Ledger:
    """The same account, kept value by value."""

    def __init__(self) -> None:
        self.expected = new_counters()

    def limit(
        self, value: int, low: int, high: int, stages: tuple[int, int], index: int, times: int = 1
    ) -> int:
        """``value`` from ``low`` to ``high``; what is saturated is noted."""
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


def rounded_away(value: Any) -> int:
    """Nearest integer of a float, halves away from zero, within +-2^62; 0 for what is no number."""
    if np.isnan(value):
        return 0
    if np.isinf(value):
        return HELD if value > 0 else -HELD
    size = int(abs(Fraction(float(value))) + Fraction(1, 2))
    return min(max(size if value > 0 else -size, -HELD), HELD)


def rounded_even(value: Any) -> int:
    """Nearest integer of a float, halves to even, likewise."""
    if np.isnan(value):
        return 0
    if np.isinf(value):
        return HELD if value > 0 else -HELD
    return min(max(round(Fraction(float(value))), -HELD), HELD)


def nearest_float32(exact: Fraction) -> Any:
    """Of an exact number; halves to even. Infinity stands where 2^128 would be."""
    with np.errstate(over="ignore"):
        first = F32(float(exact))
        around = [np.nextafter(first, F32(-np.inf)), first, np.nextafter(first, F32(np.inf))]

    def distance(value: Any) -> tuple[Fraction, int]:
        near = min(max(float(value), -(2.0**128)), 2.0**128)
        return abs(Fraction(near) - exact), bits_of(value) & 1

    return min(around, key=distance)


def divided_away(x: int, shift: int) -> int:
    """``x / 2^shift``, halves away from zero."""
    size = int(abs(Fraction(x, 1 << shift)) + Fraction(1, 2))
    return size if x > 0 else -size


def high_product(x: int, mul: int) -> int:
    """``x * mul / 2^31``, halves up; -2^31 times itself does not fit and is 2^31 - 1."""
    return min((x * mul + (1 << 30)) // (1 << 31), INT32[1])


def half_of(post: int) -> int:
    return (1 << post) >> 1


def integer_form(
    x: int, scale: tuple[int, int, int], element: int, stage: int, index: int, ledger: Ledger,
    times: int = 1,
) -> int:  # fmt: skip
    """``((x >> pre) * mul + half) >> post``."""
    pre, mul, post = scale
    if element == INT8:
        total = ledger.limit((x >> pre) * mul + half_of(post), *INT32, (stage,) * 2, index, times)
        return total >> post
    most = (1 << 61) // max(abs(mul), 1)
    shifted = ledger.limit(x >> pre, -most, most, (stage,) * 2, index, times)
    return (shifted * mul + half_of(post)) >> post


def fixed_form(x: int, scale: tuple[int, int, int], index: int, ledger: Ledger) -> int:
    """``x << pre``, times ``mul / 2^31``, divided by ``2^post``; ``x`` is held where 64 bits do."""
    pre, mul, post = scale
    held = min(max(x, -(HELD >> pre)), HELD >> pre)
    shifted = ledger.limit(held << pre, *INT32, (RESCALE,) * 2, index)
    return divided_away(high_product(shifted, mul), post)


def reduced_form(x: int, scale: tuple[int, int, int]) -> int:
    """48-bit sums: ``mul`` rounded to 16 bits, one shift by ``15 - pre + post``, halves up."""
    pre, mul, post = scale
    reduced = 0x7FFF if mul >= 0x7FFF0000 else (mul + 0x8000) // 0x10000
    shift = 15 - pre + post
    return (x * reduced + half_of(shift)) >> shift


def once_form(x: int, scale: tuple[int, int, int], low: tuple[int, int, int]) -> int:
    """``x`` times a float64 whose bits are in two scales; halves away from zero; held at 2^61."""
    pre, mul, post = scale
    factor = math.ldexp(float((mul << 22) + low[1]), pre - post - low[2] - 53)
    product = float(x) * factor
    size = min(int(Fraction(abs(product)) + Fraction(1, 2)), 1 << 61)
    return size if product > 0 else -size


def float_of(bits: int) -> Any:
    return np.array([bits & 0xFFFF_FFFF], np.uint32).view(F32)[0]


def bits_of(value: Any) -> int:
    return int(F32(value).view(np.int32))


def double_bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))
