"""Glow's Interpreter, fully connected layers: the zero point comes after rounding."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import Steps, real, round_away, step
from nmpsim.core.reference.events import ResultPositions
from nmpsim.core.reference.profiles.formulas import Formulas, Requantizer
from nmpsim.core.reference.profiles.glow_float import bias
from nmpsim.core.state import Int64s


def result(sums: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """``rha(f32(sum) * m) + Oy``."""
    factor = q.out.factor
    yield step("factor", factor, "float32")
    values = round_away(real(sums) * factor) + q.offset
    formula = "rha(accumulator * {factor:.9g}) + {offset}"
    yield step("result", values, formula, factor=factor, offset=q.offset)
    return values


FORMULAS = Formulas(bias, result)
