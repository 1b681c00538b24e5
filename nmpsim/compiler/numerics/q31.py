"""TFLite's reference kernels: 32-bit multipliers from doubles, rounding shifts.

Source: tensorflow/lite/kernels/internal/quantization_util.cc and the ``Prepare`` functions of each
kernel, which form some ratios in float32 and some in double.
"""

from __future__ import annotations

import math

import numpy as np

from nmpsim.compiler.numerics.profile import (
    AveragePool,
    Pair,
    Profile,
    Requantization,
    WeightedScales,
    Words,
)
from nmpsim.compiler.numerics.ratios import (
    LONGEST_SHIFT,
    ZERO_SCALE,
    convert_factors,
    factor_words,
    fixed_point_form,
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
"""Bits by which both sides of an addition are shifted left for more precision."""
BIAS_TOLERANCE = 1e-5
"""Relative tolerance of a bias's scale, which is rounded to float32."""


class Q31(Profile):
    """TFLite's reference kernels for Int8 and Int16."""

    name = "q31"

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return ``Sx * Sw / Sy`` of each channel in doubles.

        Convolutions keep 31 bits of it and round twice. Fully connected layers multiply by all of
        it and round once (LiteRT's ``reference/integer_ops/fully_connected.h``).
        """
        bias = layer.integer_bias(self)
        _check_bias(layer)
        products = layer.source.scale * layer.weight_scales.astype(np.float64)
        factors = products / layer.target.scale
        if layer.is_convolution:
            out = convert_factors(fixed_point_form, factors, layer.place)
            return Requantization(device.Q31, bias, (ZERO_SCALE,) * layer.channels, out)
        high, low = zip(*(_float64_form(f, layer.place) for f in factors.tolist()), strict=True)
        return Requantization(device.Q31_ONCE, bias, low, high)

    def matmul_words(self, pair: Pair) -> Words:
        """Return ``float32(Sl * Sr) / Sy`` as a double."""
        return _words(pair.place, out=pair.product / pair.target.scale)

    def average_words(self, pool: AveragePool) -> Words:
        """Return AVERAGE_POOL_2D if existing taps count, MEAN if all do.

        The former is a mean of the integers, so that zero points have no effect.
        """
        source, target, place = pool.source, pool.target, pool.place
        if pool.counts_padding and not pool.has_padding:
            form = mean_form(source.scale / target.scale, pool.taps, place)
            return {"profile": device.Q31, "divide": 0, **scale_words("out", form)}
        if (source.scale, source.offset) != (target.scale, target.offset):
            raise self.unsupported("avgpool between scales", place)
        if pool.counts_padding:
            raise self.unsupported("avgpool that counts padding", place)
        # Halves of unsigned values go up, others away from zero.
        moved = -UNSIGNED if pool.is_unsigned else 0
        words = pool.words(device.Q31, fixed_point_form)
        return {**words, "in_offset": moved, "out_offset": moved}

    def check_softmax(self, source: View, target: View, beta: float, place: Place) -> None:
        """Raise UserError (COMP001) for a result other than TFLite's one scale and zero point."""
        if not 1 / 2**26 < source.scale * beta < math.inf:
            raise self.unsupported(f"softmax from scale {source.scale:g} with Beta {beta:g}", place)
        elem = target.type.dtype.name
        if (target.scale, target.offset) != RESULTS[elem]:
            raise self.unsupported(f"softmax to scale {target.scale:g}", place)

    def pair_words(self, pair: Pair) -> Words:
        """Return add and sub at twice the larger scale, mul with a float32 ratio, max and min."""
        place, target, lhs, rhs = pair.place, pair.target, pair.lhs, pair.rhs
        if pair.opcode == "elementmul":
            return _words(place, out=pair.product_ratio)
        if pair.opcode in ("elementmax", "elementmin"):
            return _words(place, lhs=lhs.scale / target.scale, rhs=rhs.scale / target.scale)
        shift = SHIFT_OF_SUMS[target.type.elem]
        twice = 2 * max(lhs.scale, rhs.scale)
        words = _words(place, out=twice / ((1 << shift) * target.scale))
        for side, view in pair.sides:
            words |= scale_words(side, fixed_point_form(view.scale / twice, place, shift))
        return words

    def unary_words(self, source: View, target: View, alpha: float | None, place: Place) -> Words:
        """Return ``Sx / Sy`` in doubles; with a slope both ratios are float32."""
        if alpha is None:
            return _words(place, out=source.scale / target.scale)
        slope = quotient(product(source.scale, alpha), target.scale)
        return _words(place, out=quotient(source.scale, target.scale), leaky=slope)

    def quantize(self, value: float, grid: View) -> int:
        """Return ``rha(fl(value / S)) + O``."""
        with np.errstate(over="ignore"):
            real = float(np.nan_to_num(np.float32(value) / np.float32(grid.scale)))
        rounded = np.copysign(np.floor(abs(real) + 0.5), real)
        return int(np.clip(rounded, -(1 << 31), (1 << 31) - 1)) + grid.offset


def _words(place: Place, **factors: float) -> Words:
    return factor_words(device.Q31, fixed_point_form, place, **factors)


def mean_form(factor: float, taps: int, place: Place) -> IntegerScale:
    """Return a factor divided by a count, as the host computes it."""
    fixed_point_form(factor, place)  # raises for an impossible factor
    mul, exponent = quantize_mean_multiplier(factor, taps)
    return IntegerScale(max(exponent, 0), max(-exponent, 0), mul)


def _float64_form(factor: float, place: Place) -> tuple[IntegerScale, IntegerScale]:
    """Split a double into the words of two scales: its upper 31 bits, and its lower 22 bits.

    The shift of the second scale adds to that of the first, for factors below 2**-32.
    """
    fixed_point_form(factor, place)  # raises for an impossible factor
    fraction, exponent = math.frexp(factor)
    if exponent < -2 * LONGEST_SHIFT:
        return ZERO_SCALE, ZERO_SCALE  # every result is 0
    high, low = divmod(int(fraction * (1 << 53)), 1 << 22)
    post = max(-exponent, 0)
    out = IntegerScale(max(exponent, 0), min(post, LONGEST_SHIFT), high)
    return out, IntegerScale(0, post - out.post, low)


def _check_bias(layer: WeightedScales) -> None:
    bias, expected = layer.bias, layer.products
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
