"""The NMP library's arithmetic, as far as it is known: the bias lies on the result's scale.

``y = clip(rescale(sum) + (b - Ob) + Oy)``: assumed but for that. Everything without a bias is as
in ``glow-int``.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from nmpsim.compiler.numerics.glow_int import GlowInt
from nmpsim.compiler.numerics.profile import Bias, Requantization, Sums
from nmpsim.compiler.numerics.ratios import NOTHING, forms, integer_form
from nmpsim.diagnostics import UserError, fail
from nmpsim.isa.profiles import NMP


class Nmp(GlowInt):
    """Shifts where ratios are powers of two, else the integer form; Int8 and Int16."""

    name = "nmp"
    device = NMP

    def sums(self, layer: Sums) -> Requantization:
        """``scale(sum; Sx*Sw / Sy) + (b - Ob) + Oy``; COMP001 for a bias on another scale."""
        form = partial(
            integer_form, place=layer.place, accumulator_bits=layer.target.accumulator_bits
        )
        bias = layer.integer_bias(self)
        if np.any(layer.bias.scales != np.float32(layer.target.scale)):
            raise _other_scale(layer, layer.bias)
        out = forms(form, layer.ratios)
        scales = (NOTHING,) * layer.channels
        return Requantization(NMP, bias, scales, out, bias_in_sum=False)


def _other_scale(layer: Sums, bias: Bias) -> UserError:
    return fail(
        "COMP001",
        "numerics nmp needs the bias on the scale of the result",
        place=layer.place,
        found=f"scale {float(bias.scales[0])!r}",
        expected=f"scale {layer.target.scale!r}, that of %{layer.target.name}",
        hint="--rescale-bias requantizes the bias",
    )


PROFILE = Nmp()
