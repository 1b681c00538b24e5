"""Invented and known devices: how they requantize, in Python's integers and fractions.

Nothing here comes from nmpsim: rules are stated again, independently of its formula language.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

HALF = Fraction(1, 2)


def half_away(x: Fraction) -> int:
    return math.floor(abs(x) + HALF) * (1 if x >= 0 else -1)


def half_to_zero(x: Fraction) -> int:
    return math.ceil(abs(x) - HALF) * (1 if x >= 0 else -1)


ROUNDINGS: Mapping[str, Callable[[Fraction], int]] = {
    "away": half_away,
    "up": lambda x: math.floor(x + HALF),
    "even": round,
    "half down": lambda x: math.ceil(x - HALF),
    "half to zero": half_to_zero,
    "floor": math.floor,
    "zero": math.trunc,
    "ceil": math.ceil,
}


@attrs.frozen
class Device:
    """A device: multiplier, place of the bias, and roundings."""

    name: str
    width: str
    """``fixed N``, ``shift N``, ``float32``, ``float64`` or ``power``."""
    rounding: str = "up"
    first: str = ""
    """Rounding of the high half of the product, before the last shift; empty for none."""
    place: str = "sum"
    late_offset: bool = True
    pre_shift: int = 0
    style: str = ""
    """``tosa double`` or empty."""
    accumulator: str = ""
    """``wraps N`` or ``saturates N`` for a narrow accumulator of N bits."""
    clamp: tuple[int, int] = (-128, 127)
    compute: Callable[[Any, Any, Any, int], Any] | None = None
    """Function of sums, biases, scales and the zero point, in place of the other fields."""


def split(factor: float, bits: int) -> tuple[int, int]:
    """Return a multiplier of ``bits`` bits and the exponent of its last bit."""
    fraction, exponent = math.frexp(factor)
    mul = math.floor(Fraction(fraction) * 2**bits + HALF)
    if mul == 1 << bits:
        mul, exponent = mul // 2, exponent + 1
    return mul, exponent - bits


def make_multiplier(device: Device, factor: float) -> tuple[int, int]:
    kind, _, number = device.width.partition(" ")
    if kind == "fixed":
        return split(factor, int(number))
    if kind == "shift":
        return round(Fraction(factor) * 2 ** int(number)), -int(number)
    return 1, round(math.log2(factor))


def scale_float(device: Device, acc: int, bias: int, scales: tuple[Any, ...], zero: int) -> int:
    in_scale, weight_scale, out_scale = scales
    if device.width == "float32":
        factor = np.float32(np.float32(in_scale * weight_scale) / out_scale)
        total = acc + bias if device.place == "sum" else acc
        value = np.float32(np.float32(total) * factor)
        if device.place == "real":
            real = np.float32(np.float32(in_scale * weight_scale) * np.float32(bias))
            value = np.float32(value + np.float32(real / out_scale))
        if not device.late_offset:
            value = np.float32(value + np.float32(zero))
    else:
        wide = float(in_scale) * float(weight_scale) / float(out_scale)
        value = float(acc + bias) * wide
        if not device.late_offset:
            value += zero
    result = ROUNDINGS[device.rounding](Fraction(float(value)))
    return result + (zero if device.late_offset else 0)


def limit_sum(device: Device, total: int) -> int:
    """Return a sum as a narrow accumulator holds it."""
    kind, _, number = device.accumulator.partition(" ")
    if not kind:
        return total
    half = 1 << int(number) - 1
    if kind == "wraps":
        return (total + half) % (2 * half) - half
    return max(-half, min(total, half - 1))


def scale_integer(device: Device, acc: int, bias: int, factor: float, zero: int) -> int:
    mul, exponent = make_multiplier(device, factor)
    last = ROUNDINGS[device.rounding]
    total = limit_sum(device, acc + (bias if device.place == "sum" else 0))
    if device.pre_shift:
        total = (total >> device.pre_shift) << device.pre_shift
    product = total * mul
    if device.place == "product":
        product += round(Fraction(bias) * Fraction(factor) / Fraction(2) ** exponent)
    if device.style == "tosa double":
        shift = -exponent
        nudge = 1 << shift - 1
        if shift > 31:
            nudge += (1 << 30) if total >= 0 else -(1 << 30)
        result = product + nudge >> shift
    elif device.first:
        bits = int(device.width.split()[1])
        high = ROUNDINGS[device.first](Fraction(product, 1 << bits))
        result = last(Fraction(high) * Fraction(2) ** (exponent + bits))
    else:
        value = Fraction(product) * Fraction(2) ** exponent
        result = last(value) if device.late_offset else last(value + zero) - zero
    if device.place == "result":
        result += round(Fraction(bias) * Fraction(factor))
    return result + zero


def requantize(
    device: Device, sums: Any, biases: Any, scales: tuple[Any, Any, Any], zero: int
) -> Any:
    """Return the results, clipped to int8, of sums whose last axis is the output channel."""
    if device.compute is not None:
        return np.clip(device.compute(sums, biases, scales, zero), *device.clamp).astype(np.int8)
    in_scale, weight_scales, out_scale = scales
    results = np.empty(sums.shape, np.int64)
    flat, out = sums.reshape(-1, sums.shape[-1]), results.reshape(-1, sums.shape[-1])
    for channel, weight_scale in enumerate(weight_scales):
        factor = float(in_scale) * float(weight_scale) / float(out_scale)
        known: dict[int, int] = {}
        for row in range(len(flat)):
            acc, bias = int(flat[row, channel]), int(biases[channel])
            if acc not in known:
                if device.width.startswith("float"):
                    one = (in_scale, weight_scale, out_scale)
                    known[acc] = scale_float(device, acc, bias, one, zero)
                else:
                    known[acc] = scale_integer(device, acc, bias, factor, zero)
            out[row, channel] = known[acc]
    return np.clip(results, *device.clamp).astype(np.int8)


def draw_device(rng: np.random.Generator) -> Device:
    """Return a device with a random rule."""
    choice = rng.choice
    if rng.random() < 0.2:
        width = str(choice(["float32", "float64"]))
        rounding = str(choice(["away", "even", "floor", "zero"]))
        return Device(
            "invented", width, rounding, late_offset=bool(rng.random() < 0.6), place="sum"
        )
    width = (
        f"fixed {rng.integers(8, 32)}" if rng.random() < 0.8 else f"shift {rng.integers(16, 25)}"
    )
    if rng.random() < 0.05:
        width = "power"
    place = str(choice(["sum", "sum", "product", "result"]))
    rounding = str(choice(list(ROUNDINGS)))
    first = ""
    if width.startswith("fixed") and place != "product" and rng.random() < 0.3:
        first = str(choice(["up", "away", "even", "floor"]))
        rounding = str(choice(["up", "away", "even", "floor", "zero"]))
    limits: dict[str, Any] = {}
    if rng.random() < 0.15:
        limits["accumulator"] = f"{choice(['wraps', 'saturates'])} {rng.integers(16, 19)}"
    if rng.random() < 0.15:
        limits["clamp"] = (-127, 127)
    pre = int(rng.integers(1, 6)) if place == "sum" and not first and rng.random() < 0.2 else 0
    if pre:
        rounding = str(choice(["up", "away", "floor"]))
    return Device("invented", width, rounding, first, place, pre_shift=pre, **limits)
