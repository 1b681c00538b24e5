"""PyTorch, engine fbgemm: the bias stays a real number."""

from __future__ import annotations

import numpy as np

from nmpsim.compiler.numerics.profile import Requantization, Sums
from nmpsim.compiler.numerics.torch import ONE, Torch
from nmpsim.isa.profiles import FBGEMM


class Fbgemm(Torch):
    """``rne(f32(f32(sum) + B) * m) + Oy``: the bias stays float."""

    name = "float-fbgemm"

    def sums(self, layer: Sums) -> Requantization:
        """B is ``f32(bias / s)``; with one scale for all weights ``bias * f32(1 / s)``, exact."""
        real = layer.bias.reals
        if layer.by_channel:
            bias = (real / layer.products).astype(np.float64)
        else:
            bias = real.astype(np.float64) * (ONE / layer.products)
        result = self._requantized(layer, FBGEMM, bias.view(np.int64), layer.ratios)
        return result.with_bias_behind_the_sum()


PROFILE = Fbgemm()
