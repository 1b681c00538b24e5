"""Profile of the NMP's own library, as far as it is known: glow_int except for the bias."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import FormulaSteps, clamp_bits, make_step, rescale_integer
from nmpsim.core.reference.profiles.formulas import (
    ProfileFormulas,
    RequantizationParameters,
    initialize_without_bias,
)
from nmpsim.core.reference.profiles.glow_int import average_pool, combine_operands, rescale_value
from nmpsim.core.reference.saturation import ResultPositions
from nmpsim.core.state import Int64s


def requantize(sums: Int64s, q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Requantize sums as ``glow_int`` does, and add a bias in the scale of the result."""
    rescaled = yield from rescale_integer(sums, q.out, q.element, place, what="accumulator")
    values = rescaled + clamp_bits(q.bias, 61) + q.offset
    formula = "rescaled + bias + {offset}" if q.has_bias else "rescaled + {offset}"
    yield make_step("result", values, formula, offset=q.offset)
    return values


FORMULAS = ProfileFormulas(
    initialize_without_bias, requantize, average_pool, combine_operands, rescale_value
)
