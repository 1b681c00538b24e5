"""PyTorch, engine qnnpack: additions in 32-bit integers."""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.compiler.numerics.float import integer_bias, rounded
from nmpsim.compiler.numerics.profile import Average, Requantization, Sums, Words
from nmpsim.compiler.numerics.ratios import LONGEST_SHIFT, float_form, quotient, scale_words
from nmpsim.compiler.numerics.torch import ONE, Torch
from nmpsim.compiler.operations import View
from nmpsim.diagnostics import Place
from nmpsim.isa.profiles import FLOAT, QNNPACK
from nmpsim.kernels.scale import IntegerScale

QNNPACK_BITS = 21
"""The larger factor of qnnpack's addition lies between 2^21 and 2^22."""


class Qnnpack(Torch):
    """As ``float`` with ``m = (Sx * Sw) * (1 / Sy)``; additions in 32-bit integers."""

    name = "float-qnnpack"

    def sums(self, layer: Sums) -> Requantization:
        """A float bias is ``rne(bias * (1 / (Sx*Sw)))``."""
        bias = integer_bias(layer)
        if bias is None:
            real = layer.bias.reals * (ONE / layer.products)
            bias = rounded(real, layer.target.accumulator_bits)
        factors = layer.products * (ONE / np.float32(layer.target.scale))
        return self._requantized(layer, FLOAT, bias, factors)

    def average(self, window: Average) -> Words:
        """Always over the whole window; the zero point after rounding."""
        return attrs.evolve(window, counts_padding=True).words(FLOAT, float_form)

    def pair(
        self, opcode: str, operands: tuple[View, View, View], place: Place, unsigned: bool = False
    ) -> Words:
        """Add and sub: factors of 22 bits, and one shift."""
        if opcode not in ("elementadd", "elementsub", "batchedadd"):
            return super().pair(opcode, operands, place)
        target, lhs, rhs = operands
        left, right = quotient(lhs.scale, target.scale), quotient(rhs.scale, target.scale)
        larger = max(left, right)
        shift = QNNPACK_BITS - (math.frexp(larger)[1] - 1)
        if not (math.isfinite(larger) and 0 <= shift <= LONGEST_SHIFT):
            raise self.unknown(f"{opcode} with factors {left:g} and {right:g}", place)
        words = {"profile": QNNPACK, "out_post": shift}
        for side, factor in (("lhs", left), ("rhs", right)):
            words |= scale_words(side, IntegerScale(0, 0, round(math.ldexp(factor, shift))))
        return words


PROFILE = Qnnpack()
