"""TFLite's reference kernels: 32-bit multipliers from doubles, rounding shifts.

Sources: tensorflow/lite/kernels/internal/quantization_util.cc and the ``Prepare`` functions of each
kernel.
"""

from __future__ import annotations

import math

import numpy as np

from nmpsim.compiler.numerics.profile import (
    ProfileEncoder,
    Requantization,
    WeightedLayerScales,
    Words,
)
from nmpsim.compiler.numerics.ratios import (
    make_fixed_point_scale,
    make_scale_words,
)
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.diagnostics import Place, fail
from nmpsim.isa import profiles as device
from nmpsim.kernels.hostops.rounding import quantize_mean_multiplier
from nmpsim.kernels.hostops.softmax import RESULTS
from nmpsim.kernels.scale import IntegerScale
from nmpsim.lir.opcode import OpcodeKind

BIAS_TOLERANCE = 1e-5
"""Relative tolerance of a bias's scale, which is rounded to float32."""


class Q31Encoder(ProfileEncoder):
    """Encoder of the profile of TFLite's reference kernels for Int8 and Int16."""

    def make_requantization(self, layer: WeightedLayerScales) -> Requantization:
        """Return the factors and bias that requantize a convolution or fully connected layer.

        The factor of each channel is a fixed-point number for ``Sx * Sw / Sy`` in float64.

        Convolutions keep 31 bits of it and round twice. Fully connected layers multiply by all of
        it and round once (LiteRT's ``reference/integer_ops/fully_connected.h``).
        """
        if not self.has_custom_factors(layer):
            layer.get_integer_bias(self)  # raises for a float bias
            _check_bias(layer)
        return super().make_requantization(layer)

    def get_factor_words(self, op: Operation, place: Place) -> Words:
        """Return the descriptor words with the factors of an operation without bias.

        An average pool is TFLite's AVERAGE_POOL_2D, a mean of the integers so that zero points have
        no effect, or MEAN.
        """
        if op.kind is not OpcodeKind.AVERAGE_POOL or op.instruction.opcode in self._custom:
            return super().get_factor_words(op, place)
        target, source = op.operands
        counts_padding = bool(op.get_number("CountIncludePads"))
        if counts_padding and not any(op.get_integers("Pads")):
            taps = math.prod(op.get_integers("Kernels"))
            form = make_average_scale(source.scale / target.scale, taps, place)
            return {"profile": device.Q31, "divide": 0, **make_scale_words("out", form)}
        if (source.scale, source.offset) != (target.scale, target.offset):
            what = f"avgpool from scale {source.scale:g} and offset {source.offset}"
            what += f" to scale {target.scale:g} and offset {target.offset}"
            raise self.make_unsupported_error(what, place, "avgpool with equal scales and offsets")
        if counts_padding:
            what = "avgpool with CountIncludePads 1 and padding"
            raise self.make_unsupported_error(what, place, "avgpool with CountIncludePads 0")
        return super().get_factor_words(op, place)

    def check_softmax(
        self, source: BufferView, target: BufferView, beta: float, place: Place
    ) -> None:
        """Raise UserError (COMP001) if the scales or the offset of a softmax are not supported."""
        if not 1 / 2**26 < source.scale * beta < math.inf:
            what = f"softmax from scale {source.scale:g} with Beta {beta:g}"
            raise self.make_unsupported_error(
                what, place, "a finite product of scale and Beta above 2**-26"
            )
        scale, offset = RESULTS[target.type.dtype.name]
        if (target.scale, target.offset) != (scale, offset):
            what = f"softmax to scale {target.scale:g} and offset {target.offset}"
            expected = f"scale {scale:g} and offset {offset}"
            raise self.make_unsupported_error(what, place, expected)

    def quantize(self, value: float, grid: BufferView) -> int:
        """Quantize a real clip bound: divide, round halves away from zero, add the offset.

        Formula: ``rha(fl(value / S)) + O``.
        """
        with np.errstate(over="ignore"):
            real = float(np.nan_to_num(np.float32(value) / np.float32(grid.scale)))
        rounded = np.copysign(np.floor(abs(real) + 0.5), real)
        return int(np.clip(rounded, -(1 << 31), (1 << 31) - 1)) + grid.offset


def make_average_scale(factor: float, taps: int, place: Place) -> IntegerScale:
    """Return the fixed-point scale for ``factor / taps``, as TFLite's mean computes it."""
    make_fixed_point_scale(factor, place)  # raises for an impossible factor
    mul, exponent = quantize_mean_multiplier(factor, taps)
    return IntegerScale(max(exponent, 0), max(-exponent, 0), mul)


def _check_bias(layer: WeightedLayerScales) -> None:
    bias, expected = layer.bias, layer.products
    differs = ~np.isclose(bias.scales, expected, rtol=BIAS_TOLERANCE, atol=0)
    if differs.any():
        channel = int(differs.argmax())
        raise fail(
            "COMP001",
            "numerics q31 requires a bias with the scale of the sum",
            place=layer.place,
            found=f"scale {float(bias.scales[channel])!r} in channel {channel}",
            expected=f"scale {float(expected[channel])!r}, the input scale times the weight scale",
            hint="Quantize the bias with that scale, as TFLite's converter does.",
        )
