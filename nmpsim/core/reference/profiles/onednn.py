"""PyTorch, engine onednn: three float32 factors, the zero point before rounding."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import Steps, real, round_unsigned, step
from nmpsim.core.reference.events import ResultPositions
from nmpsim.core.reference.profiles.fbgemm import biased
from nmpsim.core.reference.profiles.formulas import Formulas, Requantizer, no_real_bias
from nmpsim.core.state import Int64s


def result(sums: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """``rne(f32(f32(sum) * Sx * Sw + B) * r + f32(Oy))``, Oy unsigned.

    Sx is in ``bias_mul``, Sw in ``out_mul``, r = 1 / Sy in ``result_scale``; B is a float64.
    """
    source, factor, back = q.bias_scale.factor, q.out.factor, q.result_scale
    yield step("factor", factor, "float32")
    dequantized = biased(real(sums) * source * factor, q)
    values = round_unsigned(dequantized * back, q.offset, q.element)
    formula = "rne((accumulator * {source:.9g} * {factor:.9g} + bias) * {back:.9g} + {offset})"
    yield step("result", values, formula, source=source, factor=factor, back=back, offset=q.offset)
    return values


FORMULAS = Formulas(no_real_bias, result)
