"""TFLite's fully connected layers: fixed point, rounded once."""

from __future__ import annotations

import numpy as np

from nmpsim.core.reference.events import ResultPositions
from nmpsim.core.reference.formula_steps import Steps, step
from nmpsim.core.reference.profiles.formulas import Formulas, Requantizer, plain_bias
from nmpsim.core.state import Int64s

_MOST = 1 << 61
"""Results are held here, far beyond every element."""


def result(sums: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """``x * mul / 2^shift``, halves away from zero, with as many bits as that needs."""
    shift = np.asarray(31 - q.out.pre + q.out.post).astype(object)
    half = (1 << shift) >> 1
    exact = (abs(sums.astype(object)) * np.asarray(q.out.mul).astype(object) + half) >> shift
    rescaled = np.sign(sums) * np.clip(exact, -_MOST, _MOST).astype(np.int64)
    formula = "accumulator * {mul} / 2^{shift}, rounded, halves away from 0"
    yield step("rescaled", rescaled, formula, mul=q.out.mul, shift=shift)
    values = rescaled + q.offset
    yield step("result", values, "rescaled + {offset}", offset=q.offset)
    return values


FORMULAS = Formulas(plain_bias, result)
