"""Glow's Interpreter: float32, rounded half away from zero."""

from __future__ import annotations

from functools import partial

from nmpsim.compiler.numerics.glow import Glow
from nmpsim.compiler.numerics.profile import Average, Requantization, Sums, Words
from nmpsim.compiler.numerics.ratios import (
    float_form,
    forms,
    product,
    quotient,
    scale_words,
    word_of,
)
from nmpsim.compiler.operations import View
from nmpsim.diagnostics import Place
from nmpsim.isa.profiles import GLOW_FLOAT, GLOW_FLOAT_LATE

WORKING_SCALE = 32768.0
"""The Interpreter adds at a scale of 2^-15."""


class GlowFloat(Glow):
    """float32, rounded half away from zero; Int8 and Int16."""

    name = "glow-float"

    def sums(self, layer: Sums) -> Requantization:
        """``rha(f32(sum + B) * m + Oy)``, ``B = rha((b - Ob) * Sb / (Sx*Sw))``."""
        form = partial(float_form, place=layer.place)
        # A fully connected layer adds the zero point after rounding.
        profile = GLOW_FLOAT if layer.is_convolution else GLOW_FLOAT_LATE
        bias, scales = layer.integer_bias(self), forms(form, layer.bias_ratios)
        return Requantization(profile, bias, scales, forms(form, layer.ratios))

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """``rha(sum * m + Oy)``, ``m = Sl*Sr / Sy``; mul adds Oy afterwards."""
        ratio = quotient(product(lhs.scale, rhs.scale), target.scale)
        return self._words(place, out=ratio)

    def average(self, window: Average) -> Words:
        """``rha(sum * (Sx / Sy / n) + Oy)``."""
        return window.words(GLOW_FLOAT, float_form)

    def pair(
        self, opcode: str, operands: tuple[View, View, View], place: Place, unsigned: bool = False
    ) -> Words:
        """add at a scale of 2^-15, sub with ``S / Sy``, max and min of requantized sides."""
        target, lhs, rhs = operands
        if opcode == "elementmul":
            return self.matmul(lhs, rhs, target, place)
        if opcode == "elementsub":
            left, right = (quotient(view.scale, target.scale) for view in (lhs, rhs))
            return self._words(place, lhs=left, rhs=right)
        if opcode in ("elementmax", "elementmin"):
            return self._words(place, target, lhs=lhs.scale, rhs=rhs.scale)
        left, right = (product(view.scale, WORKING_SCALE) for view in (lhs, rhs))
        return self._words(
            place, lhs=left, rhs=right, out=quotient(1 / WORKING_SCALE, target.scale)
        )

    def unary(self, source: View, target: View, alpha: float | None, place: Place) -> Words:
        """``rne(S * x / Sy + Oy)``; ``leakyrelu`` is lowered in Glow, so its slope is assumed."""
        words = self._words(place, target, out=source.scale)
        if alpha is not None:
            words |= scale_words("leaky", float_form(product(source.scale, alpha), place))
        return words

    def _words(self, place: Place, divides_by: View | None = None, **factors: float) -> Words:
        words = {"profile": GLOW_FLOAT}
        for prefix, factor in factors.items():
            words |= scale_words(prefix, float_form(factor, place))
        if divides_by is not None:
            words["result_scale"] = word_of(divides_by.scale, place)
        return words


PROFILE = GlowFloat()
