"""Profile of TFLite's fully connected layers: a float64 factor, rounded once."""

from __future__ import annotations

import numpy as np

from nmpsim.core.reference.arithmetic import FormulaSteps, make_step
from nmpsim.core.reference.profiles.formulas import (
    ProfileFormulas,
    RequantizationParameters,
    initialize_with_bias,
)
from nmpsim.core.reference.saturation import ResultPositions
from nmpsim.core.state import Int64s

_MOST = float(1 << 61)
"""Bound of results, far beyond every element type."""


def requantize(sums: Int64s, q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Requantize sums to ``round(sum * factor) + offset`` in float64, halves away from zero."""
    bits = (np.asarray(q.out.mul, np.int64) << 22) + q.bias_scale.mul
    exponent = np.asarray(q.out.pre - q.out.post - q.bias_scale.post - 53)
    factor = np.ldexp(bits.astype(np.float64), exponent)
    product = sums.astype(np.float64) * factor
    size = np.minimum(abs(product), _MOST)
    whole = np.floor(size)
    rescaled = np.copysign(whole + (size - whole >= 0.5), product).astype(np.int64)
    formula = "accumulator * {factor:.17g}, rounded, halves away from 0"
    yield make_step("rescaled", rescaled, formula, factor=factor)
    values = rescaled + q.offset
    yield make_step("result", values, "rescaled + {offset}", offset=q.offset)
    return values


FORMULAS = ProfileFormulas(initialize_with_bias, requantize)
