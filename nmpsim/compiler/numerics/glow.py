"""Glow's two arithmetics, and that of the NMP's library, which builds on the first.

Sources: LIR_FORMAT, section 3; recorded programs confirm every formula to the bit. The NMP's
arithmetic is assumed, except that its bias is on the scale of the result.
"""

from __future__ import annotations

import attrs
import numpy as np

from nmpsim.compiler.numerics.profile import ProfileEncoder, Requantization, WeightedLayerScales
from nmpsim.compiler.operations import BufferView
from nmpsim.diagnostics import fail


class GlowEncoder(ProfileEncoder):
    """Base class of the encoders of Glow's numerics profiles."""

    def quantize(self, value: float, grid: BufferView) -> int:
        """Quantize a real clip bound: divide, add the offset, round half to even.

        Formula: ``rne(fl(fl(value / S) + O))``, saturated to 32 bits.
        """
        with np.errstate(over="ignore"):
            real = np.float32(np.float32(value) / np.float32(grid.scale)) + np.float32(grid.offset)
        if np.isnan(real):
            return grid.offset
        return int(np.clip(np.rint(np.float64(real)), -(1 << 31), (1 << 31) - 1))


class GlowIntEncoder(GlowEncoder):
    """Encoder of the profile of Glow's compiled kernels (libjit): shifts and multipliers."""

    clips_the_input = True
    has_leaky = True


class NmpEncoder(GlowIntEncoder):
    """Encoder of the assumed NMP profile: ``glow-int`` with biases in the result's scale."""

    def make_requantization(self, layer: WeightedLayerScales) -> Requantization:
        """Return the factors and bias that requantize a convolution or fully connected layer.

        The factors are integers for ``Sx*Sw / Sy``; the bias is in units of the result.
        """
        if self.has_custom_factors(layer):
            return super().make_requantization(layer)
        layer.get_integer_bias(self)  # raises for a float bias
        if np.any(layer.bias.scales != np.float32(layer.target.scale)):
            raise fail(
                "COMP001",
                "numerics nmp requires a bias with the scale of the result",
                place=layer.place,
                found=f"scale {float(layer.bias.scales[0])!r} of the bias",
                expected=f"scale {layer.target.scale!r}, that of %{layer.target.name}",
                hint="Pass --rescale-bias to requantize the bias.",
            )
        return attrs.evolve(super().make_requantization(layer), bias_in_sum=False)
