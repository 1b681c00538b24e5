"""PyTorch, engine onednn: three float32 factors."""

from __future__ import annotations

import numpy as np

from nmpsim.compiler.numerics.float import reciprocal
from nmpsim.compiler.numerics.profile import Requantization, Sums
from nmpsim.compiler.numerics.ratios import float_form, word_of
from nmpsim.compiler.numerics.torch import ONE, Torch
from nmpsim.isa.profiles import ONEDNN


class Onednn(Torch):
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
        result = self._requantized(layer, ONEDNN, bias, weights)
        return result.with_bias_behind_the_sum(source, back)


PROFILE = Onednn()
