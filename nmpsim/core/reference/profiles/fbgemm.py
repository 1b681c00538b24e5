"""Profile of PyTorch's fbgemm engine, whose bias is a real number, B = bias / (Sx * Sw)."""

from __future__ import annotations

import numpy as np

from nmpsim.core.reference.arithmetic import (
    FormulaSteps,
    make_step,
    round_even,
    round_unsigned,
    to_float32,
)
from nmpsim.core.reference.operands import Descriptor, Float32s, get_element_type, get_scale
from nmpsim.core.reference.profiles.formulas import (
    ProfileFormulas,
    RequantizationParameters,
    format_divisor,
    initialize_without_float_bias,
)
from nmpsim.core.reference.saturation import ResultPositions
from nmpsim.core.state import Int64s


def requantize(sums: Int64s, q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Requantize sums to ``rint(f32(f32(sum) + bias) * factor) + offset``."""
    factor = q.out.factor
    yield make_step("factor", factor, "float32")
    values = round_even(add_float_bias(to_float32(sums), q) * factor) + q.offset
    formula = "rne((accumulator + bias) * {factor:.9g}) + {offset}"
    yield make_step("result", values, formula, factor=factor, offset=q.offset)
    return values


def add_float_bias(values: Float32s, q: RequantizationParameters) -> Float32s:
    """Add the float64 bias to values; return the float64 sums rounded to float32."""
    return (values.astype(np.float64) + q.bias.view(np.float64)).astype(np.float32)


def average_pool(sums: Int64s, divisor: int, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Average sums to ``rint(f32(sum) * (factor / divisor) + offset)``, with an unsigned offset."""
    factor, offset = get_scale(d, "out").factor, d["out_offset"]
    yield make_step("factor", factor, "float32")
    values = round_unsigned(
        to_float32(sums) * (factor / np.float32(divisor)), offset, get_element_type(d)
    )
    formula = "rne(sum * ({factor:.9g}{by}) + {offset})"
    yield make_step(
        "average", values, formula, factor=factor, by=format_divisor(divisor), offset=offset
    )
    return values


FORMULAS = ProfileFormulas(initialize_without_float_bias, requantize, average_pool)
