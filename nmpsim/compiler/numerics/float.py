"""ONNX Runtime: float32 multipliers, rounded half to even; PyTorch's engines build on it.

The formulas were found by comparing with ONNX Runtime 1.31 itself; quantities are
float32, each operation rounded on its own, unless a comment says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from nmpsim.compiler.numerics.profile import Array, Average, Profile, Requantization, Sums, Words
from nmpsim.compiler.numerics.ratios import (
    NOTHING,
    float_form,
    forms,
    product,
    quotient,
    scale_words,
    word_of,
)
from nmpsim.compiler.operations import View
from nmpsim.diagnostics import Place
from nmpsim.isa.profiles import FLOAT, ONNX
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS
from nmpsim.kernels.hostops.rounding import fused_multiply_add

Floats = npt.NDArray[np.float32]
UNSIGNED = 128
"""An Int8 tensor is an unsigned one less this."""


def reciprocal(value: float) -> float:
    """``f32(1 / value)``."""
    return quotient(1.0, value)


def integer_bias(layer: Sums) -> npt.NDArray[np.int64] | None:
    """The bias as it is, if it is an integer on the scale of the sum; else None."""
    bias = layer.bias
    if bias.is_float or not np.array_equal(bias.scales, layer.products):
        return None
    return bias.integers


def rounded(values: Array, bits: int = 32) -> npt.NDArray[np.int64]:
    """Nearest integers of this many bits, halves to even."""
    limit = 1 << (bits - 1)
    nearest = np.rint(np.nan_to_num(values.astype(np.float64)))
    integers: npt.NDArray[np.int64] = np.clip(nearest, -limit, limit - 1).astype(np.int64)
    return integers


def _constant(left: float, right: float, zeros: Sequence[int]) -> float:
    """``Oy - fma(Ml, Ol, Mr * Or)``: all zero points of an addition, in float32."""
    with np.errstate(all="ignore"):
        rhs = np.float32(right) * np.float32(zeros[2])
        (both,) = fused_multiply_add(np.array(zeros[1:2]), np.float32(left), rhs)
        return float(np.float32(zeros[0]) - both)


class Float(Profile):
    """ONNX Runtime: ``rne((sum + bias) * m) + Oy``, ``m = Sx * Sw / Sy``."""

    name = "float"

    def sums(self, layer: Sums) -> Requantization:
        """A bias that is not on the scale of the sum is brought there: ``rne(bias / (Sx*Sw))``."""
        bias = integer_bias(layer)
        if bias is None:
            bias = rounded(layer.bias.reals / layer.products, layer.target.accumulator_bits)
        return self._requantized(layer, FLOAT, bias, layer.ratios)

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """``rne(sum * m) + Oy``, ``m = Sl*Sr / Sy``."""
        return self._words(place, out=self._ratio(lhs, rhs, target))

    def average(self, window: Average) -> Words:
        """The mean of dequantized taps, ``rne(mean / Sy + Oy)``; Oy of uint8 is unsigned.

        GlobalAveragePool: ``rne(sum * (Sx / Sy / n)) + Oy``.
        """
        if window.is_global:
            return window.words(FLOAT, float_form)
        source, target, place = window.source, window.target, window.place
        moved = UNSIGNED if window.is_unsigned else 0
        return {
            "profile": ONNX,
            "divide": 0 if window.counts_padding else DIVIDE_BY_VALID_TAPS,
            **scale_words("out", float_form(source.scale, place)),
            "out_post": word_of(float(target.offset + moved), place),
            "result_scale": word_of(target.scale, place),
            "out_offset": -moved,
        }

    def pair(
        self, opcode: str, operands: tuple[View, View, View], place: Place, unsigned: bool = False
    ) -> Words:
        """add: ``rne(fma(l, Sl / Sy, fma(r, Sr / Sy, c)))`` of the integers as they are.

        mul: ``rne(l * r * m + Oy)``. c and Oy are those of uint8, where the tensors are; what else
        there is, is as in PyTorch.
        """
        target, lhs, rhs = operands
        if opcode not in ("elementadd", "elementmul"):
            return self._of_reals(opcode, operands, place)
        moved = UNSIGNED if unsigned else 0
        zeros = [view.offset + moved for view in operands]
        if opcode == "elementmul":
            words = self._words(place, out=self._ratio(lhs, rhs, target))
            addend = float(zeros[0])
        else:
            left, right = quotient(lhs.scale, target.scale), quotient(rhs.scale, target.scale)
            addend = _constant(left, right, zeros)
            words = self._words(place, lhs=left, rhs=right)
            words |= {"lhs_offset": -moved, "rhs_offset": -moved}
        return words | {
            "profile": ONNX,
            "rhs_post": word_of(addend, place),
            "out_offset": -moved,
        }

    def _of_reals(self, opcode: str, operands: tuple[View, View, View], place: Place) -> Words:
        """Real values added, then ``rne(t * (1 / Sy)) + Oy``; mul: ``rne(l * r * m) + Oy``."""
        target, lhs, rhs = operands
        if opcode == "elementmul":
            return self._words(place, out=self._ratio(lhs, rhs, target))
        return self._words(place, target, lhs=lhs.scale, rhs=rhs.scale)

    def unary(self, source: View, target: View, alpha: float | None, place: Place) -> Words:
        """``t = x * Sx``, times alpha below zero; ``rne(t * (1 / Sy)) + Oy``."""
        words = self._words(place, target, out=source.scale)
        if alpha is not None:
            words |= scale_words("leaky", float_form(alpha, place))
        return words

    def quantized(self, value: float, grid: View) -> int:
        """``rne(value / S) + O``."""
        with np.errstate(over="ignore"):
            real = np.float32(value) / np.float32(grid.scale)
        return int(rounded(np.asarray(real))) + grid.offset

    def _ratio(self, lhs: View, rhs: View, target: View) -> float:
        """The factor of a product: ``m = Sl*Sr / Sy``."""
        return quotient(product(lhs.scale, rhs.scale), target.scale)

    def _requantized(
        self, layer: Sums, profile: int, bias: npt.NDArray[np.int64], factors: Floats
    ) -> Requantization:
        out = forms(partial(float_form, place=layer.place), factors)
        return Requantization(profile, bias, (NOTHING,) * layer.channels, out)

    def _words(self, place: Place, divides_by: View | None = None, **factors: float) -> Words:
        words = {"profile": FLOAT}
        for prefix, factor in factors.items():
            words |= scale_words(prefix, float_form(factor, place))
        if divides_by is not None:
            words["result_scale"] = word_of(reciprocal(divides_by.scale), place)
        return words


PROFILE = Float()
