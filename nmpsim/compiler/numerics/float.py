"""ONNX Runtime: float32 multipliers, rounded half to even; the base of PyTorch's engines.

The formulas were found by comparison with ONNX Runtime 1.31. Quantities are float32, each operation
rounded on its own, unless a comment says otherwise.
"""

from __future__ import annotations

import numpy as np

from nmpsim.compiler.numerics.profile import (
    Array,
    Floats,
    Integers,
    ProfileEncoder,
    Requantization,
    WeightedScales,
)
from nmpsim.compiler.numerics.ratios import ZERO_SCALE, make_float_scale, make_scales
from nmpsim.compiler.operations import BufferView
from nmpsim.isa.profiles import FLOAT


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

    def quantize(self, value: float, grid: BufferView) -> int:
        """Quantize a real bound with a tensor's scale and offset.

        Formula: ``rne(value / S) + O``.
        """
        with np.errstate(over="ignore"):
            real = np.float32(value) / np.float32(grid.scale)
        return int(round_to_integers(np.asarray(real))) + grid.offset


def make_float_requantization(
    layer: WeightedScales, profile: int, bias: Integers, factors: Floats
) -> Requantization:
    """Return a requantization with a float32 factor for each channel."""
    out = make_scales(make_float_scale, factors, layer.place)
    return Requantization(profile, bias, (ZERO_SCALE,) * layer.channels, out)
