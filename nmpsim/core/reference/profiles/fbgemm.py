"""PyTorch, engine fbgemm: the bias stays a real number, B = bias / (Sx * Sw)."""

from __future__ import annotations

import numpy as np

from nmpsim.core.reference.arithmetic import Steps, real, round_even, round_unsigned, step
from nmpsim.core.reference.events import ResultPositions
from nmpsim.core.reference.operands import Float32s, Words, element_of, scale_of
from nmpsim.core.reference.profiles.formulas import Formulas, Requantizer, divided_by, no_real_bias
from nmpsim.core.state import Int64s


def result(sums: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """``rne(f32(f32(sum) + B) * m) + Oy``."""
    factor = q.out.factor
    yield step("factor", factor, "float32")
    values = round_even(biased(real(sums), q) * factor) + q.offset
    formula = "rne((accumulator + bias) * {factor:.9g}) + {offset}"
    yield step("result", values, formula, factor=factor, offset=q.offset)
    return values


def biased(values: Float32s, q: Requantizer) -> Float32s:
    """``f32(value + B)``: the sum is one of float64."""
    return (values.astype(np.float64) + q.bias.view(np.float64)).astype(np.float32)


def average(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Steps:
    """fbgemm and onednn: ``rne(f32(sum) * (m / f32(n)) + f32(Oy))``, Oy unsigned."""
    factor, offset = scale_of(d, "out").factor, d["out_offset"]
    yield step("factor", factor, "float32")
    values = round_unsigned(real(sums) * (factor / np.float32(divisor)), offset, element_of(d))
    formula = "rne(sum * ({factor:.9g}{by}) + {offset})"
    yield step("average", values, formula, factor=factor, by=divided_by(divisor), offset=offset)
    return values


FORMULAS = Formulas(no_real_bias, result, average)
