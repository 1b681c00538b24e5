"""Glow's two arithmetics: compiled kernels in integers (libjit), the Interpreter in float32.

Source of every formula: LIR_FORMAT, section 3; the recorded programs hold them to the bit.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from nmpsim.compiler.numerics.profile import (
    DEVICE,
    Average,
    Profile,
    Requantization,
    Sums,
    Words,
)
from nmpsim.compiler.numerics.ratios import (
    float_form,
    forms,
    integer_form,
    product,
    quotient,
    scale_words,
    word_of,
)
from nmpsim.compiler.work import View
from nmpsim.diagnostics import Place

WORKING_SCALE = 32768.0
"""The Interpreter adds at a scale of 2^-15."""


class _Glow(Profile):
    def quantized(self, value: float, grid: View) -> int:
        """``rne(fl(fl(value / S) + O))`` within 32 bits; NaN is real zero."""
        with np.errstate(over="ignore"):
            real = np.float32(np.float32(value) / np.float32(grid.scale)) + np.float32(grid.offset)
        if np.isnan(real):
            return grid.offset
        return int(np.clip(np.rint(np.float64(real)), -(1 << 31), (1 << 31) - 1))


class GlowInt(_Glow):
    """Shifts and a multiplier of about nine bits."""

    name = "glow-int"
    device = "glow_int"
    clips_the_input = True
    has_leaky = True

    def sums(self, layer: Sums) -> Requantization:
        """``scale(scale(b - Ob; Sb / (Sx*Sw)) + sum; Sx*Sw / Sy) + Oy``."""
        form = partial(integer_form, place=layer.place)
        bias = layer.integer_bias(self)
        scales = forms(form, layer.bias_ratios)
        return Requantization(DEVICE["glow_int"], bias, scales, forms(form, layer.ratios))

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """``scale(sum; Sl*Sr / Sy) + Oy``."""
        return self._scaled(quotient(product(lhs.scale, rhs.scale), target.scale), target, place)

    def average(self, window: Average) -> Words:
        """``scale(sum; Sx / Sy / n) + Oy``, or divided by the taps that exist afterwards."""
        bits = window.target.accumulator_bits
        return window.words(self.device, partial(integer_form, accumulator_bits=bits))

    def pair(self, opcode: str, operands: tuple[View, View, View], place: Place) -> Words:
        """Each side on the result's scale, ``scale(l - Ol; Sl / Sy)``; mul as matmul."""
        target, lhs, rhs = operands
        if opcode == "elementmul":
            return self.matmul(lhs, rhs, target, place)
        words = {"profile": DEVICE[self.device]}
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
        return {"profile": DEVICE[self.device], **self._words("out", ratio, target, place)}

    def _words(self, prefix: str, ratio: float, target: View, place: Place) -> Words:
        return scale_words(prefix, integer_form(ratio, place, target.accumulator_bits))


class GlowFloat(_Glow):
    """float32, rounded half away from zero; Int8 and Int16."""

    name = "glow-float"

    def sums(self, layer: Sums) -> Requantization:
        """``rha(f32(sum + B) * m + Oy)``, ``B = rha((b - Ob) * Sb / (Sx*Sw))``."""
        form = partial(float_form, place=layer.place)
        # A fully connected layer adds the zero point after rounding.
        profile = DEVICE["glow_float" if layer.is_convolution else "glow_float_late"]
        bias, scales = layer.integer_bias(self), forms(form, layer.bias_ratios)
        return Requantization(profile, bias, scales, forms(form, layer.ratios))

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """``rha(sum * m + Oy)``, ``m = Sl*Sr / Sy``; mul adds Oy afterwards."""
        ratio = quotient(product(lhs.scale, rhs.scale), target.scale)
        return self._words(place, out=ratio)

    def average(self, window: Average) -> Words:
        """``rha(sum * (Sx / Sy / n) + Oy)``."""
        return window.words("glow_float", float_form)

    def pair(self, opcode: str, operands: tuple[View, View, View], place: Place) -> Words:
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
        words = {"profile": DEVICE["glow_float"]}
        for prefix, factor in factors.items():
            words |= scale_words(prefix, float_form(factor, place))
        if divides_by is not None:
            words["result_scale"] = word_of(divides_by.scale, place)
        return words
