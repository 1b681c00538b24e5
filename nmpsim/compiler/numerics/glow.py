"""Glow's two arithmetics, and that of the NMP's library, which builds on the first.

Sources: LIR_FORMAT, section 3; recorded programs confirm every formula to the bit. The NMP's
arithmetic is assumed, except that its bias is on the scale of the result.
"""

from __future__ import annotations

from functools import partial

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
    ZERO_SCALE,
    ScaleForm,
    convert_factors,
    factor_words,
    float_form,
    float_word,
    integer_form,
    product,
    quotient,
    scale_words,
)
from nmpsim.compiler.operations import View
from nmpsim.diagnostics import Place, fail
from nmpsim.isa.profiles import GLOW_FLOAT, GLOW_FLOAT_LATE, GLOW_INT, NMP

WORKING_SCALE = 32768.0
"""Glow's Interpreter adds at a scale of 2^-15."""


class Glow(Profile):
    """Base of both of Glow's arithmetics."""

    def quantize(self, value: float, grid: View) -> int:
        """Return ``rne(fl(fl(value / S) + O))`` within 32 bits; NaN is real zero."""
        with np.errstate(over="ignore"):
            real = np.float32(np.float32(value) / np.float32(grid.scale)) + np.float32(grid.offset)
        if np.isnan(real):
            return grid.offset
        return int(np.clip(np.rint(np.float64(real)), -(1 << 31), (1 << 31) - 1))


class GlowInt(Glow):
    """Glow's compiled kernels (libjit): shifts and a multiplier of about nine bits."""

    name = "glow-int"
    device = GLOW_INT
    clips_the_input = True
    has_leaky = True

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return ``scale(scale(b - Ob; Sb / (Sx*Sw)) + sum; Sx*Sw / Sy) + Oy``."""
        bias = layer.integer_bias(self)
        scales = convert_factors(integer_form, layer.bias_ratios, layer.place)
        return Requantization(
            GLOW_INT, bias, scales, convert_factors(integer_form, layer.ratios, layer.place)
        )

    def matmul_words(self, pair: Pair) -> Words:
        """Return ``scale(sum; Sl*Sr / Sy) + Oy``."""
        return self._words(pair.target, pair.place, out=pair.product_ratio)

    def average_words(self, pool: AveragePool) -> Words:
        """Return ``scale(sum; Sx / Sy / n) + Oy``, or a division by the existing taps after it."""
        return pool.words(self.device, _form_for(pool.target))

    def pair_words(self, pair: Pair) -> Words:
        """Return ``scale(l - Ol; Sl / Sy)`` and likewise for r; mul as matmul."""
        if pair.opcode == "elementmul":
            return self.matmul_words(pair)
        left, right = pair.ratios
        return self._words(pair.target, pair.place, lhs=left, rhs=right)

    def unary_words(self, source: View, target: View, alpha: float | None, place: Place) -> Words:
        """Return ``scale(x - Ox; Sx / Sy) + Oy``; below zero ``Sx*alpha / Sy``."""
        factors = {"out": quotient(source.scale, target.scale)}
        if alpha is not None:
            factors["leaky"] = quotient(product(source.scale, alpha), target.scale)
        return self._words(target, place, **factors)

    def leaky_words(self, alpha: float, target: View, place: Place) -> Words:
        """Return ``scale(y - Oy; alpha) + Oy`` for results below Oy."""
        return scale_words("leaky", _form_for(target)(float(np.float32(alpha)), place))

    def _words(self, target: View, place: Place, **factors: float) -> Words:
        return factor_words(self.device, _form_for(target), place, **factors)


def _form_for(target: View) -> ScaleForm:
    return partial(integer_form, accumulator_bits=target.accumulator_bits)


class Nmp(GlowInt):
    """The NMP's library (assumed): as ``glow-int``, with the bias on the scale of the result."""

    name = "nmp"
    device = NMP

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return ``scale(sum; Sx*Sw / Sy) + (b - Ob) + Oy``; COMP001 for another bias scale."""
        bias = layer.integer_bias(self)
        if np.any(layer.bias.scales != np.float32(layer.target.scale)):
            raise fail(
                "COMP001",
                "numerics nmp needs the bias on the scale of the result",
                place=layer.place,
                found=f"scale {float(layer.bias.scales[0])!r}",
                expected=f"scale {layer.target.scale!r}, that of %{layer.target.name}",
                hint="use --rescale-bias to requantize the bias",
            )
        out = convert_factors(_form_for(layer.target), layer.ratios, layer.place)
        return Requantization(NMP, bias, (ZERO_SCALE,) * layer.channels, out, bias_in_sum=False)


class GlowFloat(Glow):
    """Glow's Interpreter: float32, rounded half away from zero."""

    name = "glow-float"

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return ``rha(f32(sum + B) * m + Oy)``, ``B = rha((b - Ob) * Sb / (Sx*Sw))``."""
        # A fully connected layer adds the zero point after rounding.
        profile = GLOW_FLOAT if layer.is_convolution else GLOW_FLOAT_LATE
        bias, scales = (
            layer.integer_bias(self),
            convert_factors(float_form, layer.bias_ratios, layer.place),
        )
        return Requantization(
            profile, bias, scales, convert_factors(float_form, layer.ratios, layer.place)
        )

    def matmul_words(self, pair: Pair) -> Words:
        """Return ``rha(sum * m + Oy)``, ``m = Sl*Sr / Sy``; mul adds Oy after rounding."""
        return _float_words(pair.place, out=pair.product_ratio)

    def average_words(self, pool: AveragePool) -> Words:
        """Return ``rha(sum * (Sx / Sy / n) + Oy)``."""
        return pool.words(GLOW_FLOAT, float_form)

    def pair_words(self, pair: Pair) -> Words:
        """Return add at a scale of 2^-15, sub with ``S / Sy``, max and min of requantized sides."""
        place, target = pair.place, pair.target
        if pair.opcode == "elementmul":
            return self.matmul_words(pair)
        if pair.opcode == "elementsub":
            left, right = pair.ratios
            return _float_words(place, lhs=left, rhs=right)
        if pair.opcode in ("elementmax", "elementmin"):
            words = _float_words(place, lhs=pair.lhs.scale, rhs=pair.rhs.scale)
            return words | {"result_scale": float_word(target.scale, place)}
        left, right = (product(view.scale, WORKING_SCALE) for _, view in pair.sides)
        back = quotient(1 / WORKING_SCALE, target.scale)
        return _float_words(place, lhs=left, rhs=right, out=back)

    def unary_words(self, source: View, target: View, alpha: float | None, place: Place) -> Words:
        """Return ``rne(S * x / Sy + Oy)``; Glow lowers ``leakyrelu``, so its slope is assumed."""
        factors = {"out": source.scale}
        if alpha is not None:
            factors["leaky"] = product(source.scale, alpha)
        return _float_words(place, **factors) | {"result_scale": float_word(target.scale, place)}


def _float_words(place: Place, **factors: float) -> Words:
    return factor_words(GLOW_FLOAT, float_form, place, **factors)
