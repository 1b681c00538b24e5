"""PyTorch's engines: float32 multipliers, rounded half to even.

They differ in the bias, in reciprocals, and in when the zero point is added. The formulas were
found by comparison with PyTorch 2.13. Quantities are float32, each operation rounded on its own,
unless a comment says otherwise.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.compiler.numerics.float import (
    UNSIGNED,
    Float,
    float_requantization,
    integer_bias,
    reciprocal,
    round_to_integers,
)
from nmpsim.compiler.numerics.profile import (
    AveragePool,
    Pair,
    Requantization,
    WeightedScales,
    Words,
)
from nmpsim.compiler.numerics.ratios import (
    LONGEST_SHIFT,
    float_form,
    float_word,
    product,
    scale_words,
)
from nmpsim.diagnostics import fail
from nmpsim.isa.profiles import FBGEMM, FLOAT, ONEDNN, QNNPACK
from nmpsim.kernels.scale import IntegerScale

ONE = np.float32(1)
QNNPACK_BITS = 21
"""The larger factor of qnnpack's addition is between 2^21 and 2^22."""


class Torch(Float):
    """Base of PyTorch's engines."""

    def matmul_words(self, pair: Pair) -> Words:
        """Return words for Int16, which has no reference; raise UserError (COMP001) for Int8.

        PyTorch multiplies dequantized numbers in float32; the last bit of these sums depends on
        the order in which its BLAS adds.
        """
        if pair.lhs.type.elem == "i8":
            raise fail(
                "COMP001",
                f"numerics {self.name} has no matmul of Int8",
                place=pair.place,
                found="PyTorch sums it in float32, in an order that no formula tells",
                expected="another profile for this layer",
                hint="--numerics LAYER=float multiplies integers, as ONNX Runtime does",
            )
        return super().matmul_words(pair)

    def average_words(self, pool: AveragePool) -> Words:
        """Return ``rne(sum * (Sx / Sy / n) + Oy)``: the zero point before rounding."""
        return pool.words(FBGEMM, float_form)

    def pair_words(self, pair: Pair) -> Words:
        """Return ``A = fma(q, S, -O*S)`` of unsigned integers, which Int8 holds minus 128."""
        words = self._real_words(pair)
        if pair.opcode == "elementmul":
            return words
        for side, view in pair.sides:
            moved = UNSIGNED if view.type.elem == "i8" else 0
            addend = -product(float(view.offset + moved), view.scale)
            words |= {f"{side}_offset": -moved, f"{side}_post": float_word(addend, pair.place)}
        return words

    def _product_ratio(self, pair: Pair) -> float:
        """Return ``m = (Sl*Sr) * (1 / Sy)``."""
        return product(pair.product, reciprocal(pair.target.scale))


class Fbgemm(Torch):
    """Engine fbgemm: ``rne(f32(f32(sum) + B) * m) + Oy``; the bias stays float."""

    name = "float-fbgemm"

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return B: ``f32(bias / s)``; ``bias * f32(1 / s)``, exact, for one scale of weights."""
        real = layer.bias.reals
        if layer.by_channel:
            bias = (real / layer.products).astype(np.float64)
        else:
            bias = real.astype(np.float64) * (ONE / layer.products)
        result = float_requantization(layer, FBGEMM, bias.view(np.int64), layer.ratios)
        return attrs.evolve(result, bias_in_sum=False)


class Onednn(Torch):
    """Engine onednn: ``rne(f32(f32(sum) * Sx * Sw + B) * (1 / Sy) + Oy)``."""

    name = "float-onednn"

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return ``Sx`` as the bias's scale, ``Sw`` as the factor, ``1 / Sy`` as result scale.

        They are reciprocals of reciprocals.
        """
        weights = layer.weight_scales
        if not layer.is_convolution:
            weights = ONE / (ONE / weights)
        bias = layer.bias.reals.astype(np.float64).view(np.int64)
        source = float_form(reciprocal(reciprocal(layer.source.scale)), layer.place)
        return attrs.evolve(
            float_requantization(layer, ONEDNN, bias, weights),
            bias_in_sum=False,
            bias_scales=(source,) * layer.channels,
            result_scale=float_word(reciprocal(layer.target.scale), layer.place),
        )


class Qnnpack(Torch):
    """Engine qnnpack: as ``float`` with ``m = (Sx * Sw) * (1 / Sy)``; integer additions."""

    name = "float-qnnpack"

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return ``m``; a float bias becomes ``rne(bias * (1 / (Sx*Sw)))``."""
        bias = integer_bias(layer)
        if bias is None:
            real = layer.bias.reals * (ONE / layer.products)
            bias = round_to_integers(real, layer.target.accumulator_bits)
        factors = layer.products * (ONE / np.float32(layer.target.scale))
        return float_requantization(layer, FLOAT, bias, factors)

    def average_words(self, pool: AveragePool) -> Words:
        """Return the mean over the whole window; the zero point after rounding."""
        return attrs.evolve(pool, counts_padding=True).words(FLOAT, float_form)

    def pair_words(self, pair: Pair) -> Words:
        """Return factors of 22 bits and one shift for add and sub."""
        if pair.opcode not in ("elementadd", "elementsub", "batchedadd"):
            return super().pair_words(pair)
        left, right = pair.ratios
        larger = max(left, right)
        shift = QNNPACK_BITS - (math.frexp(larger)[1] - 1)
        if not (math.isfinite(larger) and 0 <= shift <= LONGEST_SHIFT):
            what = f"{pair.opcode} with factors {left:g} and {right:g}"
            raise self.unsupported(what, pair.place)
        words = {"profile": QNNPACK, "out_post": shift}
        for side, factor in (("lhs", left), ("rhs", right)):
            words |= scale_words(side, IntegerScale(0, 0, round(math.ldexp(factor, shift))))
        return words
