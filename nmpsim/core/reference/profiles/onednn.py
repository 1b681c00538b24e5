"""Profile of PyTorch's onednn engine: three float32 factors, zero point before rounding."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import FormulaSteps, make_step, round_unsigned, to_float32
from nmpsim.core.reference.profiles.fbgemm import add_float_bias
from nmpsim.core.reference.profiles.formulas import (
    ProfileFormulas,
    RequantizationParameters,
    initialize_without_float_bias,
)
from nmpsim.core.reference.saturation import ResultPositions
from nmpsim.core.state import Int64s


def requantize(sums: Int64s, q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Requantize sums to ``rint(f32(sum * Sx * Sw + bias) / Sy + offset)`` with unsigned offset.

    Sx is in ``bias_mul``, Sw in ``out_mul``, r = 1 / Sy in ``result_scale``; B is a float64.
    """
    source, factor, back = q.bias_scale.factor, q.out.factor, q.result_scale
    yield make_step("factor", factor, "float32")
    biased = add_float_bias(to_float32(sums) * source * factor, q)
    values = round_unsigned(biased * back, q.offset, q.element)
    formula = "rne((accumulator * {source:.9g} * {factor:.9g} + bias) * {back:.9g} + {offset})"
    yield make_step(
        "result", values, formula, source=source, factor=factor, back=back, offset=q.offset
    )
    return values


FORMULAS = ProfileFormulas(initialize_without_float_bias, requantize)
