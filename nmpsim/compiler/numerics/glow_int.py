"""Glow's compiled kernels (libjit): integers."""

from __future__ import annotations

from functools import partial

import numpy as np

from nmpsim.compiler.numerics.glow import Glow
from nmpsim.compiler.numerics.profile import Average, Requantization, Sums, Words
from nmpsim.compiler.numerics.ratios import forms, integer_form, product, quotient, scale_words
from nmpsim.compiler.operations import View
from nmpsim.diagnostics import Place
from nmpsim.isa.profiles import GLOW_INT


class GlowInt(Glow):
    """Shifts and a multiplier of about nine bits."""

    name = "glow-int"
    device = GLOW_INT
    clips_the_input = True
    has_leaky = True

    def sums(self, layer: Sums) -> Requantization:
        """``scale(scale(b - Ob; Sb / (Sx*Sw)) + sum; Sx*Sw / Sy) + Oy``."""
        form = partial(integer_form, place=layer.place)
        bias = layer.integer_bias(self)
        scales = forms(form, layer.bias_ratios)
        return Requantization(GLOW_INT, bias, scales, forms(form, layer.ratios))

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """``scale(sum; Sl*Sr / Sy) + Oy``."""
        return self._scaled(quotient(product(lhs.scale, rhs.scale), target.scale), target, place)

    def average(self, window: Average) -> Words:
        """``scale(sum; Sx / Sy / n) + Oy``, or divided by the taps that exist afterwards."""
        bits = window.target.accumulator_bits
        return window.words(self.device, partial(integer_form, accumulator_bits=bits))

    def pair(
        self, opcode: str, operands: tuple[View, View, View], place: Place, unsigned: bool = False
    ) -> Words:
        """Each side on the result's scale, ``scale(l - Ol; Sl / Sy)``; mul as matmul."""
        target, lhs, rhs = operands
        if opcode == "elementmul":
            return self.matmul(lhs, rhs, target, place)
        words = {"profile": self.device}
        for side, view in (("lhs", lhs), ("rhs", rhs)):
            words |= self._words(side, quotient(view.scale, target.scale), target, place)
        return words

    def unary(self, source: View, target: View, alpha: float | None, place: Place) -> Words:
        """``scale(x - Ox; Sx / Sy) + Oy``; below zero ``Sx*alpha / Sy``."""
        words = self._scaled(quotient(source.scale, target.scale), target, place)
        if alpha is not None:
            below = quotient(product(source.scale, alpha), target.scale)
            words |= self._words("leaky", below, target, place)
        return words

    def leaky(self, alpha: float, target: View, place: Place) -> Words:
        """``scale(y - Oy; alpha) + Oy`` below Oy."""
        return self._words("leaky", float(np.float32(alpha)), target, place)

    def _scaled(self, ratio: float, target: View, place: Place) -> Words:
        return {"profile": self.device, **self._words("out", ratio, target, place)}

    def _words(self, prefix: str, ratio: float, target: View, place: Place) -> Words:
        return scale_words(prefix, integer_form(ratio, place, target.accumulator_bits))


PROFILE = GlowInt()
