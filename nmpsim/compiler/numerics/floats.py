"""float32 multipliers, rounded half to even: ONNX Runtime and PyTorch's three engines.

They differ in what they make of the bias, in reciprocals, and in when the zero point is added. The
formulas were found by comparing with ONNX Runtime 1.31 and PyTorch 2.13 themselves; quantities
are float32, each operation rounded on its own, unless a comment says otherwise.
"""

from __future__ import annotations

import math
from functools import partial

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.numerics.profile import (
    DEVICE,
    Array,
    Average,
    Profile,
    Requantization,
    Sums,
    Words,
)
from nmpsim.compiler.numerics.ratios import (
    LONGEST_SHIFT,
    NOTHING,
    float_form,
    forms,
    product,
    quotient,
    scale_words,
    word_of,
)
from nmpsim.compiler.work import View
from nmpsim.diagnostics import Place, fail
from nmpsim.kernels.scale import IntegerScale

ONE = np.float32(1)
QNNPACK_BITS = 21
"""The larger factor of qnnpack's addition lies between 2^21 and 2^22."""
UNSIGNED = 128
"""An Int8 tensor is PyTorch's unsigned one less this."""
Floats = npt.NDArray[np.float32]


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


class Float(Profile):
    """ONNX Runtime: ``rne((sum + bias) * m) + Oy``, ``m = Sx * Sw / Sy``."""

    name = "float"

    def sums(self, layer: Sums) -> Requantization:
        """A bias that is not on the scale of the sum is brought there: ``rne(bias / (Sx*Sw))``."""
        bias = integer_bias(layer)
        if bias is None:
            bias = rounded(layer.bias.reals / layer.products, layer.target.accumulator_bits)
        return self._requantized(layer, "float", bias, layer.ratios)

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """``rne(sum * m) + Oy``, ``m = Sl*Sr / Sy``."""
        return self._words(place, out=self._ratio(lhs, rhs, target))

    def average(self, window: Average) -> Words:
        """``rne(sum * (Sx / Sy / n)) + Oy``."""
        return window.words("float", float_form)

    def pair(self, opcode: str, operands: tuple[View, View, View], place: Place) -> Words:
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
        self, layer: Sums, profile: str, bias: npt.NDArray[np.int64], factors: Floats
    ) -> Requantization:
        out = forms(partial(float_form, place=layer.place), factors)
        return Requantization(DEVICE[profile], bias, (NOTHING,) * layer.channels, out)

    def _words(self, place: Place, divides_by: View | None = None, **factors: float) -> Words:
        words = {"profile": DEVICE["float"]}
        for prefix, factor in factors.items():
            words |= scale_words(prefix, float_form(factor, place))
        if divides_by is not None:
            words["result_scale"] = word_of(reciprocal(divides_by.scale), place)
        return words


class _Torch(Float):
    """What PyTorch's engines share."""

    def matmul(self, lhs: View, rhs: View, target: View, place: Place) -> Words:
        """Int16 has no reference, and is multiplied as element by element; COMP001 for Int8.

        PyTorch multiplies dequantized numbers in float32; the last bit of these sums depends on
        the order in which its BLAS adds.
        """
        if lhs.type.elem == "i8":
            raise fail(
                "COMP001",
                f"numerics {self.name} has no matmul of Int8",
                place=place,
                found="PyTorch sums it in float32, in an order that no formula tells",
                expected="another profile for this layer",
                hint="--numerics LAYER=float multiplies integers, as ONNX Runtime does",
            )
        return super().matmul(lhs, rhs, target, place)

    def average(self, window: Average) -> Words:
        """``rne(sum * (Sx / Sy / n) + Oy)``: the zero point before rounding."""
        return window.words("fbgemm", float_form)

    def _ratio(self, lhs: View, rhs: View, target: View) -> float:
        """``m = (Sl*Sr) * (1 / Sy)``."""
        return product(product(lhs.scale, rhs.scale), reciprocal(target.scale))

    def pair(self, opcode: str, operands: tuple[View, View, View], place: Place) -> Words:
        """``A = fma(q, S, -O*S)`` of unsigned integers, which Int8 is less 128."""
        words = super().pair(opcode, operands, place)
        if opcode == "elementmul":
            return words
        for side, view in (("lhs", operands[1]), ("rhs", operands[2])):
            moved = UNSIGNED if view.type.elem == "i8" else 0
            addend = -product(float(view.offset + moved), view.scale)
            words |= {f"{side}_offset": -moved, f"{side}_post": word_of(addend, place)}
        return words


class Fbgemm(_Torch):
    """``rne(f32(f32(sum) + B) * m) + Oy``: the bias stays float."""

    name = "float-fbgemm"

    def sums(self, layer: Sums) -> Requantization:
        """B is ``f32(bias / s)``; with one scale for all weights ``bias * f32(1 / s)``, exact."""
        real = layer.bias.reals
        if layer.by_channel:
            bias = (real / layer.products).astype(np.float64)
        else:
            bias = real.astype(np.float64) * (ONE / layer.products)
        result = self._requantized(layer, "fbgemm", bias.view(np.int64), layer.ratios)
        return result.with_bias_behind_the_sum()


class Onednn(_Torch):
    """``rne(f32(f32(sum) * Sx * Sw + B) * (1 / Sy) + Oy)``, with reciprocals of reciprocals."""

    name = "float-onednn"

    def sums(self, layer: Sums) -> Requantization:
        """``Sx`` is in the bias's words, ``Sw`` the factor, ``1 / Sy`` the result's scale."""
        weights = layer.weight_scales
        if not layer.is_convolution:
            weights = ONE / (ONE / weights)
        bias = layer.bias.reals.astype(np.float64).view(np.int64)
        source = float_form(reciprocal(reciprocal(layer.source.scale)), layer.place)
        back = word_of(reciprocal(layer.target.scale), layer.place)
        result = self._requantized(layer, "onednn", bias, weights)
        return result.with_bias_behind_the_sum(source, back)


class Qnnpack(_Torch):
    """As ``float`` with ``m = (Sx * Sw) * (1 / Sy)``; additions in 32-bit integers."""

    name = "float-qnnpack"

    def sums(self, layer: Sums) -> Requantization:
        """A float bias is ``rne(bias * (1 / (Sx*Sw)))``."""
        bias = integer_bias(layer)
        if bias is None:
            real = layer.bias.reals * (ONE / layer.products)
            bias = rounded(real, layer.target.accumulator_bits)
        factors = layer.products * (ONE / np.float32(layer.target.scale))
        return self._requantized(layer, "float", bias, factors)

    def average(self, window: Average) -> Words:
        """Always over the whole window; the zero point after rounding."""
        return attrs.evolve(window, counts_padding=True).words("float", float_form)

    def pair(self, opcode: str, operands: tuple[View, View, View], place: Place) -> Words:
        """Add and sub: factors of 22 bits, and one shift."""
        if opcode not in ("elementadd", "elementsub", "batchedadd"):
            return super().pair(opcode, operands, place)
        target, lhs, rhs = operands
        left, right = quotient(lhs.scale, target.scale), quotient(rhs.scale, target.scale)
        larger = max(left, right)
        shift = QNNPACK_BITS - (math.frexp(larger)[1] - 1)
        if not (math.isfinite(larger) and 0 <= shift <= LONGEST_SHIFT):
            raise self.unknown(f"{opcode} with factors {left:g} and {right:g}", place)
        words = {"profile": DEVICE["qnnpack"], "out_post": shift}
        for side, factor in (("lhs", left), ("rhs", right)):
            words |= scale_words(side, IntegerScale(0, 0, round(math.ldexp(factor, shift))))
        return words
