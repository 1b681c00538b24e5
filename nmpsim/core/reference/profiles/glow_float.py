"""Profile of Glow's Interpreter: float32, halves away from zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.arithmetic import (
    FormulaSteps,
    clamp_bits,
    make_step,
    round_away,
    round_even,
    select_scale,
    to_float32,
)
from nmpsim.core.reference.operands import Descriptor, bits_to_float32, get_scale
from nmpsim.core.reference.profiles.formulas import (
    ProfileFormulas,
    RequantizationParameters,
    apply_operation,
    format_divisor,
    get_operation_name,
    make_bias_step,
)
from nmpsim.core.reference.saturation import ResultPositions, saturate
from nmpsim.core.state import Int64s
from nmpsim.isa.words import OP_ADD, OP_MUL, OP_SUB
from nmpsim.kernels.saturation_stages import BIAS


def scale_bias(q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Rescale the bias to the scale of the sum: ``roundf(f32(bias) * factor)``, saturated."""
    yield make_bias_step(q)
    factor = q.bias_scale.factor
    scaled = saturate(
        round_away(to_float32(q.bias) * factor), q.element.accumulator_bits, BIAS, place
    )
    yield make_step("bias in the sum", scaled, "rha(bias * {factor:.9g})", factor=factor)
    return scaled


def requantize(sums: Int64s, q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Requantize sums to ``roundf(f32(sum) * factor + offset)``."""
    factor = q.out.factor
    yield make_step("factor", factor, "float32")
    values = round_away(to_float32(sums) * factor + np.float32(q.offset))
    formula = "rha(accumulator * {factor:.9g} + {offset})"
    yield make_step("result", values, formula, factor=factor, offset=q.offset)
    return values


def average_pool(sums: Int64s, divisor: int, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Average sums to ``roundf(f32(sum) * (factor / divisor) + offset)``."""
    factor, offset = get_scale(d, "out").factor, d["out_offset"]
    yield make_step("factor", factor, "float32")
    values = round_away(to_float32(sums) * (factor / np.float32(divisor)) + np.float32(offset))
    formula = "rha(sum * ({factor:.9g}{by}) + {offset})"
    yield make_step(
        "average", values, formula, factor=factor, by=format_divisor(divisor), offset=offset
    )
    return values


def combine_operands(
    left: Int64s, right: Int64s, d: Descriptor, place: ResultPositions
) -> FormulaSteps:
    """Combine two operands in float32, with the rounding of the descriptor's operation.

    add: ``X = rha(l * m_l)``, ``Y = rha(r * m_r)``, ``rha(f32(X + Y) * m + f32(Oy))``.
    sub: ``rha((m_l * l - m_r * r) + f32(Oy))``. mul: ``rha(f32(l * r) * m) + Oy``.
    max, min: of ``rne(m_l * l / S + f32(Oy))`` and the same of r.
    """
    operation, offset, factor = d["operation"], d["out_offset"], get_scale(d, "out").factor
    if operation == OP_MUL:
        product = left * right
        yield make_step("mul", product, "lhs * rhs")
        yield make_step("factor", factor, "float32")
        values = round_away(to_float32(product) * factor) + offset
        formula = "rha(product * {factor:.9g}) + {offset}"
        yield make_step("result", values, formula, factor=factor, offset=offset)
        return values
    left_factor, right_factor = get_scale(d, "lhs").factor, get_scale(d, "rhs").factor
    x, y = to_float32(left) * left_factor, to_float32(right) * right_factor
    if operation == OP_ADD:
        whole_x, whole_y = round_away(x), round_away(y)
        yield make_step("lhs scaled", whole_x, "rha(* {factor:.9g})", factor=left_factor)
        yield make_step("rhs scaled", whole_y, "rha(* {factor:.9g})", factor=right_factor)
        total = clamp_bits(whole_x, 61) + clamp_bits(whole_y, 61)
        values = round_away(to_float32(total) * factor + np.float32(offset))
        formula = "rha((lhs + rhs) * {factor:.9g} + {offset})"
        yield make_step("result", values, formula, factor=factor, offset=offset)
        return values
    yield make_step("lhs scaled", x, "* {factor:.9g}", factor=left_factor)
    yield make_step("rhs scaled", y, "* {factor:.9g}", factor=right_factor)
    if operation == OP_SUB:
        values = round_away((x - y) + np.float32(offset))
        yield make_step("result", values, "rha(lhs - rhs + {offset})", offset=offset)
        return values
    scale, zero = bits_to_float32(d["result_scale"]), np.float32(offset)
    values = apply_operation(round_even(x / scale + zero), round_even(y / scale + zero), d)
    formula = "{operation} of rne(each / {scale:.9g} + {offset})"
    yield make_step(
        "result", values, formula, operation=get_operation_name(d), scale=scale, offset=offset
    )
    return values


def rescale_value(x: Int64s, below: Any, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Rescale values to ``rint(f32(x) * factor / result_scale + offset)``."""
    factor = select_scale(below, get_scale(d, "out"), get_scale(d, "leaky")).factor
    scale, offset = bits_to_float32(d["result_scale"]), d["out_offset"]
    yield make_step("factor", factor, "float32")
    values = round_even(factor * to_float32(x) / scale + np.float32(offset))
    formula = "rne(x * factor / {scale:.9g} + {offset})"
    yield make_step("result", values, formula, scale=scale, offset=offset)
    return values


FORMULAS = ProfileFormulas(scale_bias, requantize, average_pool, combine_operands, rescale_value)
