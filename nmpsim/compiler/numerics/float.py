"""ONNX Runtime: float32 multipliers, rounded half to even; the base of PyTorch's engines.

The formulas were found by comparison with ONNX Runtime 1.31. Quantities are float32, each operation
rounded on its own, unless a comment says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.compiler.numerics.profile import (
    Array,
    AveragePoolOperands,
    Floats,
    Integers,
    OperandPair,
    ProfileEncoder,
    Requantization,
    WeightedScales,
    Words,
)
from nmpsim.compiler.numerics.ratios import (
    ZERO_SCALE,
    divide_float32,
    encode_float32,
    make_factor_words,
    make_float_scale,
    make_scale_words,
    make_scales,
)
from nmpsim.compiler.operations import BufferView
from nmpsim.diagnostics import Place
from nmpsim.isa.profiles import FLOAT, ONNX
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS
from nmpsim.kernels.hostops.rounding import fused_multiply_add

UNSIGNED = 128
"""An Int8 tensor holds unsigned values minus this."""


def compute_reciprocal(value: float) -> float:
    """Return ``1 / value`` in float32."""
    return divide_float32(1.0, value)


def find_integer_bias(layer: WeightedScales) -> Integers | None:
    """Return the bias as integers if it has the scale of the sum, else None."""
    bias = layer.bias
    if bias.is_float or not np.array_equal(bias.scales, layer.products):
        return None
    return bias.integers


def round_to_integers(values: Array, bits: int = 32) -> Integers:
    """Round values half to even and saturate them to ``bits`` bits."""
    limit = 1 << (bits - 1)
    nearest = np.rint(np.nan_to_num(values.astype(np.float64)))
    integers: Integers = np.clip(nearest, -limit, limit - 1).astype(np.int64)
    return integers


def _constant(left: float, right: float, zeros: Sequence[int]) -> float:
    """Return ``Oy - fma(Ml, Ol, Mr * Or)`` in float32: the zero points of an addition."""
    with np.errstate(all="ignore"):
        rhs = np.float32(right) * np.float32(zeros[2])
        (both,) = fused_multiply_add(np.array(zeros[1:2]), np.float32(left), rhs)
        return float(np.float32(zeros[0]) - both)


class FloatEncoder(ProfileEncoder):
    """Numerics profile of ONNX Runtime: float32 factors, rounded half to even."""

    name = "float"

    def requantize(self, layer: WeightedScales) -> Requantization:
        """Return the requantization of a convolution or fully connected layer.

        The factors are float32, ``m = Sx * Sw / Sy``; the bias is in units of the sum.
        """
        bias = find_integer_bias(layer)
        if bias is None:
            reals = layer.bias.real_values / layer.products
            bias = round_to_integers(reals, layer.target.accumulator_bits)
        return make_float_requantization(layer, FLOAT, bias, layer.ratios)

    def get_matmul_words(self, pair: OperandPair) -> Words:
        """Return the descriptor words of a matrix product.

        Formula: ``rne(sum * m) + Oy``, ``m = Sl*Sr / Sy``.
        """
        return make_float_words(pair.place, out=self._product_ratio(pair))

    def get_average_words(self, pool: AveragePoolOperands) -> Words:
        """Return the descriptor words of an average pool.

        Formula: ``rne(mean / Sy + Oy)`` of dequantized values.

        GlobalAveragePool: ``rne(sum * (Sx / Sy / n)) + Oy``.
        """
        if pool.is_global:
            return pool.encode_words(FLOAT, make_float_scale)
        source, target, place = pool.source, pool.target, pool.place
        moved = UNSIGNED if pool.is_unsigned else 0
        return {
            "profile": ONNX,
            "divide": 0 if pool.counts_padding else DIVIDE_BY_VALID_TAPS,
            **make_scale_words("out", make_float_scale(source.scale, place)),
            "out_post": encode_float32(float(target.offset + moved), place),
            "result_scale": encode_float32(target.scale, place),
            "out_offset": -moved,
        }

    def get_pair_words(self, pair: OperandPair) -> Words:
        """Return the descriptor words of an elementwise operation of two tensors.

        c and Oy are those of uint8 if the tensors are. Other operations are those of PyTorch.
        """
        place = pair.place
        if pair.opcode not in ("elementadd", "elementmul"):
            return self._real_words(pair)
        moved = UNSIGNED if pair.is_unsigned else 0
        zeros = [view.offset + moved for view in (pair.target, pair.lhs, pair.rhs)]
        if pair.opcode == "elementmul":
            words = make_float_words(place, out=self._product_ratio(pair))
            addend = float(zeros[0])
        else:
            left, right = pair.ratios
            addend = _constant(left, right, zeros)
            words = make_float_words(place, lhs=left, rhs=right)
            words |= {"lhs_offset": -moved, "rhs_offset": -moved}
        return words | {
            "profile": ONNX,
            "rhs_post": encode_float32(addend, place),
            "out_offset": -moved,
        }

    def get_rescale_words(
        self, source: BufferView, target: BufferView, alpha: float | None, place: Place
    ) -> Words:
        """Return the descriptor words of a rescale; ``alpha`` is a leaky slope or None.

        Formula: ``rne(x * Sx * (1 / Sy)) + Oy``.
        """
        factors = {"out": source.scale} | ({} if alpha is None else {"leaky": alpha})
        words = make_float_words(place, **factors)
        return words | {"result_scale": encode_float32(compute_reciprocal(target.scale), place)}

    def quantize(self, value: float, grid: BufferView) -> int:
        """Quantize a real bound with a tensor's scale and offset.

        Formula: ``rne(value / S) + O``.
        """
        with np.errstate(over="ignore"):
            real = np.float32(value) / np.float32(grid.scale)
        return int(round_to_integers(np.asarray(real))) + grid.offset

    def _product_ratio(self, pair: OperandPair) -> float:
        """Return the factor of a product: ``m = Sl*Sr / Sy``."""
        return pair.product_ratio

    def _real_words(self, pair: OperandPair) -> Words:
        """Return sums of real values, ``rne(t * (1 / Sy)) + Oy``; mul ``rne(l * r * m) + Oy``."""
        place = pair.place
        if pair.opcode == "elementmul":
            return make_float_words(place, out=self._product_ratio(pair))
        words = make_float_words(place, lhs=pair.lhs.scale, rhs=pair.rhs.scale)
        return words | {
            "result_scale": encode_float32(compute_reciprocal(pair.target.scale), place)
        }


def make_float_words(place: Place, **factors: float) -> Words:
    """Return the descriptor words of float32 factors; keywords are prefixes of word names."""
    return make_factor_words(FLOAT, make_float_scale, place, **factors)


def make_float_requantization(
    layer: WeightedScales, profile: int, bias: Integers, factors: Floats
) -> Requantization:
    """Return a requantization with a float32 factor for each channel."""
    out = make_scales(make_float_scale, factors, layer.place)
    return Requantization(profile, bias, (ZERO_SCALE,) * layer.channels, out)
