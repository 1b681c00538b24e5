"""Profile of Glow's Interpreter for fully connected layers: zero point added after rounding."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import FormulaSteps, make_step, round_away, to_float32
from nmpsim.core.reference.profiles.formulas import ProfileFormulas, RequantizationParameters
from nmpsim.core.reference.profiles.glow_float import scale_bias
from nmpsim.core.reference.saturation import ResultPositions
from nmpsim.core.state import Int64s


def requantize(sums: Int64s, q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Requantize sums to ``roundf(f32(sum) * factor) + offset``."""
    factor = q.out.factor
    yield make_step("factor", factor, "float32")
    values = round_away(to_float32(sums) * factor) + q.offset
    formula = "rha(accumulator * {factor:.9g}) + {offset}"
    yield make_step("result", values, formula, factor=factor, offset=q.offset)
    return values


FORMULAS = ProfileFormulas(scale_bias, requantize)
