"""Glow's two arithmetics, and that of the NMP's library, which builds on the first.

Sources: LIR_FORMAT, section 3; recorded programs confirm every formula to the bit. The NMP's
arithmetic is assumed, except that its bias is on the scale of the result.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from nmpsim.compiler.numerics.profile import (
    AveragePoolOperands,
    OperandPair,
    ProfileEncoder,
    Requantization,
    WeightedScales,
    Words,
)
from nmpsim.compiler.numerics.ratios import (
    ZERO_SCALE,
    ScaleForm,
    divide_float32,
    encode_float32,
    make_factor_words,
    make_float_scale,
    make_scale_words,
    make_scales,
    make_shift_scale,
    multiply_float32,
)
from nmpsim.compiler.operations import BufferView
from nmpsim.diagnostics import Place, fail
from nmpsim.isa.profiles import GLOW_FLOAT, GLOW_FLOAT_LATE, GLOW_INT, NMP

WORKING_SCALE = 32768.0
"""Glow's Interpreter adds at a scale of 2^-15."""


class GlowEncoder(ProfileEncoder):
    """Base class of Glow's numerics profiles."""

    def quantize(self, value: float, grid: BufferView) -> int:
        """Quantize a real bound with a tensor's scale and offset.

        Formula: ``rne(fl(fl(value / S) + O))``, saturated to 32 bits.
        """
        with np.errstate(over="ignore"):
            real = np.float32(np.float32(value) / np.float32(grid.scale)) + np.float32(grid.offset)
        if np.isnan(real):
            return grid.offset
        return int(np.clip(np.rint(np.float64(real)), -(1 << 31), (1 << 31) - 1))


class GlowIntEncoder(GlowEncoder):
    """Numerics profile of Glow's compiled kernels (libjit): shifts and multipliers."""

    name = "glow-int"
    device = GLOW_INT
    clips_the_input = True
    has_leaky = True

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return the requantization of a convolution or fully connected layer.

        The factors of bias and sum are integers for ``Sb / (Sx*Sw)`` and ``Sx*Sw / Sy``.
        """
        bias = layer.integer_bias(self)
        scales = make_scales(make_shift_scale, layer.bias_ratios, layer.place)
        return Requantization(
            GLOW_INT, bias, scales, make_scales(make_shift_scale, layer.ratios, layer.place)
        )

    def get_matmul_words(self, pair: OperandPair) -> Words:
        """Return the descriptor words of a matrix product.

        Formula: ``scale(sum; Sl*Sr / Sy) + Oy``.
        """
        return self._words(pair.target, pair.place, out=pair.product_ratio)

    def get_average_words(self, pool: AveragePoolOperands) -> Words:
        """Return the descriptor words of an average pool.

        Formula: ``scale(sum; Sx / Sy / n) + Oy``.
        """
        return pool.encode_words(self.device, _form_for(pool.target))

    def get_pair_words(self, pair: OperandPair) -> Words:
        """Return the descriptor words of an elementwise operation of two tensors.

        Operands are scaled to the result: ``scale(l - Ol; Sl / Sy)``.
        """
        if pair.opcode == "elementmul":
            return self.get_matmul_words(pair)
        left, right = pair.ratios
        return self._words(pair.target, pair.place, lhs=left, rhs=right)

    def get_rescale_words(
        self, source: BufferView, target: BufferView, alpha: float | None, place: Place
    ) -> Words:
        """Return the descriptor words of a rescale; ``alpha`` is a leaky slope or None.

        Formula: ``scale(x - Ox; Sx / Sy) + Oy``.
        """
        factors = {"out": divide_float32(source.scale, target.scale)}
        if alpha is not None:
            factors["leaky"] = divide_float32(multiply_float32(source.scale, alpha), target.scale)
        return self._words(target, place, **factors)

    def get_leaky_words(self, alpha: float, target: BufferView, place: Place) -> Words:
        """Return the descriptor words of a leaky activation after a sum.

        Formula: ``scale(y - Oy; alpha) + Oy`` below zero.
        """
        return make_scale_words("leaky", _form_for(target)(float(np.float32(alpha)), place))

    def _words(self, target: BufferView, place: Place, **factors: float) -> Words:
        return make_factor_words(self.device, _form_for(target), place, **factors)


def _form_for(target: BufferView) -> ScaleForm:
    return partial(make_shift_scale, accumulator_bits=target.accumulator_bits)


class NmpEncoder(GlowIntEncoder):
    """Assumed numerics profile of the NMP: as ``glow-int``, but with a bias in result units."""

    name = "nmp"
    device = NMP

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return the requantization of a convolution or fully connected layer.

        The factors are integers for ``Sx*Sw / Sy``; the bias is in units of the result.
        """
        bias = layer.integer_bias(self)
        if np.any(layer.bias.scales != np.float32(layer.target.scale)):
            raise fail(
                "COMP001",
                "numerics nmp needs the bias on the scale of the result",
                place=layer.place,
                found=f"scale {float(layer.bias.scales[0])!r} of the bias",
                expected=f"scale {layer.target.scale!r}, that of %{layer.target.name}",
                hint="Use --rescale-bias to requantize the bias.",
            )
        out = make_scales(_form_for(layer.target), layer.ratios, layer.place)
        return Requantization(NMP, bias, (ZERO_SCALE,) * layer.channels, out, bias_in_sum=False)


class GlowFloatEncoder(GlowEncoder):
    """Numerics profile of Glow's Interpreter: float32, rounded half away from zero."""

    name = "glow-float"

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return the requantization of a convolution or fully connected layer.

        The factors of bias and sum are float32, ``Sb / (Sx*Sw)`` and ``Sx*Sw / Sy``.
        """
        # A fully connected layer adds the zero point after rounding.
        profile = GLOW_FLOAT if layer.is_convolution else GLOW_FLOAT_LATE
        bias, scales = (
            layer.integer_bias(self),
            make_scales(make_float_scale, layer.bias_ratios, layer.place),
        )
        return Requantization(
            profile, bias, scales, make_scales(make_float_scale, layer.ratios, layer.place)
        )

    def get_matmul_words(self, pair: OperandPair) -> Words:
        """Return the descriptor words of a matrix product.

        Formula: ``rha(sum * m + Oy)``, ``m = Sl*Sr / Sy``.
        """
        return _float_words(pair.place, out=pair.product_ratio)

    def get_average_words(self, pool: AveragePoolOperands) -> Words:
        """Return the descriptor words of an average pool.

        Formula: ``rha(sum * (Sx / Sy / n) + Oy)``.
        """
        return pool.encode_words(GLOW_FLOAT, make_float_scale)

    def get_pair_words(self, pair: OperandPair) -> Words:
        """Return the descriptor words of an elementwise operation of two tensors."""
        place, target = pair.place, pair.target
        if pair.opcode == "elementmul":
            return self.get_matmul_words(pair)
        if pair.opcode == "elementsub":
            left, right = pair.ratios
            return _float_words(place, lhs=left, rhs=right)
        if pair.opcode in ("elementmax", "elementmin"):
            words = _float_words(place, lhs=pair.lhs.scale, rhs=pair.rhs.scale)
            return words | {"result_scale": encode_float32(target.scale, place)}
        left, right = (multiply_float32(view.scale, WORKING_SCALE) for _, view in pair.sides)
        back = divide_float32(1 / WORKING_SCALE, target.scale)
        return _float_words(place, lhs=left, rhs=right, out=back)

    def get_rescale_words(
        self, source: BufferView, target: BufferView, alpha: float | None, place: Place
    ) -> Words:
        """Return the descriptor words of a rescale; ``alpha`` is a leaky slope or None.

        Formula: ``rne(S * x / Sy + Oy)``.
        """
        factors = {"out": source.scale}
        if alpha is not None:
            factors["leaky"] = multiply_float32(source.scale, alpha)
        return _float_words(place, **factors) | {
            "result_scale": encode_float32(target.scale, place)
        }


def _float_words(place: Place, **factors: float) -> Words:
    return make_factor_words(GLOW_FLOAT, make_float_scale, place, **factors)
