"""TFLite's reference kernels: 32-bit multipliers from doubles, rounding shifts.

Source: tensorflow/lite/kernels/internal/quantization_util.cc and the ``Prepare`` functions of each
kernel, which form some ratios in float32 and some in double.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from nmpsim.compiler.numerics.profile import Average, Bias, Profile, Requantization, Sums, Words
from nmpsim.compiler.numerics.ratios import (
    LONGEST_SHIFT,
    NOTHING,
    fixed_point_form,
    forms,
    product,
    quotient,
    scale_words,
)
from nmpsim.compiler.operations import View
from nmpsim.diagnostics import Place, fail
from nmpsim.isa import profiles as device
from nmpsim.kernels.hostops.numerics import UNSIGNED
from nmpsim.kernels.hostops.rounding import quantize_mean_multiplier
from nmpsim.kernels.hostops.softmax_tflite import RESULTS
from nmpsim.kernels.scale import IntegerScale

SHIFT_OF_SUMS = {"i8": 20, "i16": 15}
"""Bits that both sides of an addition are shifted up, to be added with more precision."""
BIAS_TOLERANCE = 1e-5
"""Relative; scales of a bias are rounded to float32."""


class Q31(Profile):
    """Int8 and Int16."""

    name = "q31"

    def sums(self, layer: Sums) -> Requantization:
        """The multiplier of each channel is ``Sx * Sw / Sy`` in doubles.

        Convolutions have 31 bits of it and round twice. Fully connected layers multiply by all of
        it and round once (LiteRT's ``reference/integer_ops/fully_connected.h``).
        """
        bias = layer.integer_bias(self)
        _check_bias(layer, layer.bias)
        factors = _factors(layer)
        if layer.is_convolution:
            out = forms(partial(fixed_point_form, place=layer.place), factors)
            return Requantization(device.Q31, bias, (NOTHING,) * layer.channels, out)
        high, low = zip(*(_float64_form(f, layer.place) for f in factors.tolist()), strict=True)
        return Requantization(device.Q31_ONCE, bias, low, high)

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """``float32(Sl * Sr) / Sy`` as a double."""
        return self._words(place, out=product(lhs.scale, rhs.scale) / target.scale)

    def average(self, window: Average) -> Words:
        """AVERAGE_POOL_2D where taps that exist count, MEAN where all do.

        The first is a mean of integers as they are, so zero points play no part.
        """
        source, target = window.source, window.target
        if window.counts_padding and not window.has_padding:
            form = mean_form(source.scale / target.scale, window.taps, window.place)
            return {"profile": device.Q31, "divide": 0, **scale_words("out", form)}
        if (source.scale, source.offset) != (target.scale, target.offset):
            raise self.unknown("avgpool between scales", window.place)
        if window.counts_padding:
            raise self.unknown("avgpool that counts padding", window.place)
        # Of unsigned values halves go up, of others away from zero.
        moved = -UNSIGNED if window.is_unsigned else 0
        words = window.words(device.Q31, fixed_point_form)
        return {**words, "in_offset": moved, "out_offset": moved}

    def check_softmax(self, source: View, target: View, beta: float, place: Place) -> None:
        """TFLite has one scale and zero point of the result."""
        if not 1 / 2**26 < source.scale * beta < math.inf:
            raise self.unknown(f"softmax from scale {source.scale:g} with Beta {beta:g}", place)
        elem = target.type.dtype.name
        if (target.scale, target.offset) != RESULTS[elem]:
            raise self.unknown(f"softmax to scale {target.scale:g}", place)

    def pair(
        self, opcode: str, operands: tuple[View, View, View], place: Place, unsigned: bool = False
    ) -> Words:
        """add and sub at twice the larger scale; mul with a float32 ratio; max, min by side."""
        target, lhs, rhs = operands
        if opcode == "elementmul":
            return self._words(place, out=quotient(product(lhs.scale, rhs.scale), target.scale))
        if opcode in ("elementmax", "elementmin"):
            return self._words(place, lhs=lhs.scale / target.scale, rhs=rhs.scale / target.scale)
        shift = SHIFT_OF_SUMS[target.type.elem]
        twice = 2 * max(lhs.scale, rhs.scale)
        words = self._words(place, out=twice / ((1 << shift) * target.scale))
        for side, view in (("lhs", lhs), ("rhs", rhs)):
            words |= scale_words(side, fixed_point_form(view.scale / twice, place, shift))
        return words

    def unary(self, source: View, target: View, alpha: float | None, place: Place) -> Words:
        """``Sx / Sy`` in doubles; with a slope both ratios are float32."""
        if alpha is None:
            return self._words(place, out=source.scale / target.scale)
        return self._words(
            place,
            out=quotient(source.scale, target.scale),
            leaky=quotient(product(source.scale, alpha), target.scale),
        )

    def quantized(self, value: float, grid: View) -> int:
        """``rha(fl(value / S)) + O``."""
        with np.errstate(over="ignore"):
            real = float(np.nan_to_num(np.float32(value) / np.float32(grid.scale)))
        rounded = np.copysign(np.floor(abs(real) + 0.5), real)
        return int(np.clip(rounded, -(1 << 31), (1 << 31) - 1)) + grid.offset

    def _words(self, place: Place, **factors: float) -> Words:
        words = {"profile": device.Q31}
        for prefix, factor in factors.items():
            words |= scale_words(prefix, fixed_point_form(factor, place))
        return words


def mean_form(factor: float, taps: int, place: Place) -> IntegerScale:
    """A factor divided by a count, as the host has it."""
    fixed_point_form(factor, place)  # refuses what is no factor
    mul, exponent = quantize_mean_multiplier(factor, taps)
    return IntegerScale(max(exponent, 0), max(-exponent, 0), mul)


def _float64_form(factor: float, place: Place) -> tuple[IntegerScale, IntegerScale]:
    """Split a double into the words of two scales: its upper 31 bits, and its lower 22 bits.

    The shift of the second scale adds to that of the first, for factors below 2**-32.
    """
    fixed_point_form(factor, place)  # refuses what is no factor
    fraction, exponent = math.frexp(factor)
    if exponent < -2 * LONGEST_SHIFT:
        return NOTHING, NOTHING  # no sum has a result but 0
    high, low = divmod(int(fraction * (1 << 53)), 1 << 22)
    post = max(-exponent, 0)
    out = IntegerScale(max(exponent, 0), min(post, LONGEST_SHIFT), high)
    return out, IntegerScale(0, post - out.post, low)


def _factors(layer: Sums) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    products = layer.source.scale * layer.weight_scales.astype(np.float64)
    return products / layer.target.scale


def _check_bias(layer: Sums, bias: Bias) -> None:
    expected = layer.products
    differs = ~np.isclose(bias.scales, expected, rtol=BIAS_TOLERANCE, atol=0)
    if differs.any():
        channel = int(differs.argmax())
        raise fail(
            "COMP001",
            "numerics q31 needs the bias on the scale of the sum",
            place=layer.place,
            found=f"scale {float(bias.scales[channel])!r} in channel {channel}",
            expected=f"scale {float(expected[channel])!r}, that of input times weights",
            hint="quantize the bias with that scale, as TFLite's converter does",
        )


PROFILE = Q31()
