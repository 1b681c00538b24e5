"""Profile of ONNX Runtime and PyTorch's qnnpack, and formulas that PyTorch's engines share.

float32, halves to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.arithmetic import FormulaSteps, make_step, round_even, to_float32
from nmpsim.core.reference.operands import Descriptor, Float32s, Scale, bits_to_float32, get_scale
from nmpsim.core.reference.profiles.formulas import (
    ProfileFormulas,
    RequantizationParameters,
    apply_operation,
    format_divisor,
    get_operation_name,
    initialize_with_bias,
)
from nmpsim.core.reference.saturation import ResultPositions
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ACTIVATION_LEAKY, OP_MUL


def requantize(sums: Int64s, q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Requantize sums to ``rint(f32(sum) * factor) + offset``."""
    factor = q.out.factor
    yield make_step("factor", factor, "float32")
    values = round_even(to_float32(sums) * factor) + q.offset
    formula = "rne(accumulator * {factor:.9g}) + {offset}"
    yield make_step("result", values, formula, factor=factor, offset=q.offset)
    return values


def average_pool(sums: Int64s, divisor: int, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Average sums to ``rint(f32(sum) * (factor / divisor)) + offset``."""
    factor, offset = get_scale(d, "out").factor, d["out_offset"]
    yield make_step("factor", factor, "float32")
    values = round_even(to_float32(sums) * (factor / np.float32(divisor))) + offset
    formula = "rne(sum * ({factor:.9g}{by})) + {offset}"
    yield make_step(
        "average", values, formula, factor=factor, by=format_divisor(divisor), offset=offset
    )
    return values


def combine_operands(
    left: Int64s, right: Int64s, d: Descriptor, place: ResultPositions
) -> FormulaSteps:
    """Combine two operands in float32 with a binary operation, and requantize the result.

    mul: ``rne(f32(l * r) * m) + Oy``.
    """
    offset = d["out_offset"]
    if d["operation"] == OP_MUL:
        product, factor = left * right, get_scale(d, "out").factor
        yield make_step("mul", product, "lhs * rhs")
        yield make_step("factor", factor, "float32")
        values = round_even(to_float32(product) * factor) + offset
        formula = "rne(product * {factor:.9g}) + {offset}"
        yield make_step("result", values, formula, factor=factor, offset=offset)
        return values
    x = yield from dequantize_operand("lhs", left, get_scale(d, "lhs"))
    y = yield from dequantize_operand("rhs", right, get_scale(d, "rhs"))
    factor = bits_to_float32(d["result_scale"])
    values = round_even(apply_operation(x, y, d) * factor) + offset
    formula = "rne({operation} * {factor:.9g}) + {offset}"
    yield make_step(
        "result", values, formula, operation=get_operation_name(d), factor=factor, offset=offset
    )
    return values


def dequantize_operand(side: str, values: Int64s, scale: Scale) -> FormulaSteps:
    """Dequantize an operand to ``f32(value * scale.factor + scale.addend)``."""
    factor, addend = scale.factor, scale.addend
    product = values.astype(np.float64) * factor.astype(np.float64)
    dequantized: Float32s = (product + addend.astype(np.float64)).astype(np.float32)
    formula = "* {factor:.9g} + {addend:.9g}, as float32"
    yield make_step(f"{side} scaled", dequantized, formula, factor=factor, addend=addend)
    return dequantized


def rescale_value(x: Int64s, below: Any, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Rescale values to ``rint(x * factor * result_scale) + offset``; apply a leaky scale below 0.

    r is ``result_scale``.
    """
    factor, offset = get_scale(d, "out").factor, d["out_offset"]
    scaled = factor * to_float32(x)
    yield make_step("scaled", scaled, "x * {factor:.9g}", factor=factor)
    if d["activation"] == ACTIVATION_LEAKY:
        leaky = get_scale(d, "leaky").factor
        scaled = np.where(below, scaled * leaky, scaled)
        yield make_step("leaky", scaled, "* {leaky:.9g} if x is below 0", leaky=leaky)
    scale = bits_to_float32(d["result_scale"])
    values = round_even(scaled * scale) + offset
    yield make_step("result", values, "rne(* {scale:.9g}) + {offset}", scale=scale, offset=offset)
    return values


FORMULAS = ProfileFormulas(
    initialize_with_bias, requantize, average_pool, combine_operands, rescale_value
)
