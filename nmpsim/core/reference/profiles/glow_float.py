"""Glow's Interpreter: float32, halves away from zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.arithmetic import (
    Steps,
    held,
    real,
    round_away,
    round_even,
    scale_by_sign,
    step,
)
from nmpsim.core.reference.events import ResultPositions, saturate
from nmpsim.core.reference.operands import Words, float_of_bits, scale_of
from nmpsim.core.reference.profiles.formulas import (
    Formulas,
    Requantizer,
    divided_by,
    operate,
    operation_name,
    stored_bias,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.words import OP_ADD, OP_MUL, OP_SUB
from nmpsim.kernels.saturation_stages import BIAS


def bias(q: Requantizer, place: ResultPositions) -> Steps:
    """The bias on the scale of the sum, ``rha(f32(b) * m)``."""
    yield stored_bias(q)
    factor = q.bias_scale.factor
    scaled = saturate(round_away(real(q.bias) * factor), q.element.accumulator_bits, BIAS, place)
    yield step("bias in the sum", scaled, "rha(bias * {factor:.9g})", factor=factor)
    return scaled


def result(sums: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """``rha(f32(sum) * m + f32(Oy))``: convolutions and matrix products."""
    factor = q.out.factor
    yield step("factor", factor, "float32")
    values = round_away(real(sums) * factor + np.float32(q.offset))
    formula = "rha(accumulator * {factor:.9g} + {offset})"
    yield step("result", values, formula, factor=factor, offset=q.offset)
    return values


def average(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Steps:
    """``rha(f32(sum) * (m / f32(n)) + f32(Oy))``."""
    factor, offset = scale_of(d, "out").factor, d["out_offset"]
    yield step("factor", factor, "float32")
    values = round_away(real(sums) * (factor / np.float32(divisor)) + np.float32(offset))
    formula = "rha(sum * ({factor:.9g}{by}) + {offset})"
    yield step("average", values, formula, factor=factor, by=divided_by(divisor), offset=offset)
    return values


def pair(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Steps:
    """Its operations round differently.

    add: ``X = rha(l * m_l)``, ``Y = rha(r * m_r)``, ``rha(f32(X + Y) * m + f32(Oy))``.
    sub: ``rha((m_l * l - m_r * r) + f32(Oy))``. mul: ``rha(f32(l * r) * m) + Oy``.
    max, min: of ``rne(m_l * l / S + f32(Oy))`` and the same of r.
    """
    operation, offset, factor = d["operation"], d["out_offset"], scale_of(d, "out").factor
    if operation == OP_MUL:
        product = left * right
        yield step("mul", product, "lhs * rhs")
        yield step("factor", factor, "float32")
        values = round_away(real(product) * factor) + offset
        formula = "rha(product * {factor:.9g}) + {offset}"
        yield step("result", values, formula, factor=factor, offset=offset)
        return values
    left_factor, right_factor = scale_of(d, "lhs").factor, scale_of(d, "rhs").factor
    x, y = real(left) * left_factor, real(right) * right_factor
    if operation == OP_ADD:
        whole_x, whole_y = round_away(x), round_away(y)
        yield step("lhs scaled", whole_x, "rha(* {factor:.9g})", factor=left_factor)
        yield step("rhs scaled", whole_y, "rha(* {factor:.9g})", factor=right_factor)
        total = held(whole_x, 61) + held(whole_y, 61)
        values = round_away(real(total) * factor + np.float32(offset))
        formula = "rha((lhs + rhs) * {factor:.9g} + {offset})"
        yield step("result", values, formula, factor=factor, offset=offset)
        return values
    yield step("lhs scaled", x, "* {factor:.9g}", factor=left_factor)
    yield step("rhs scaled", y, "* {factor:.9g}", factor=right_factor)
    if operation == OP_SUB:
        values = round_away((x - y) + np.float32(offset))
        yield step("result", values, "rha(lhs - rhs + {offset})", offset=offset)
        return values
    scale, zero = float_of_bits(d["result_scale"]), np.float32(offset)
    values = operate(round_even(x / scale + zero), round_even(y / scale + zero), d)
    formula = "{operation} of rne(each / {scale:.9g} + {offset})"
    yield step("result", values, formula, operation=operation_name(d), scale=scale, offset=offset)
    return values


def rescale(x: Int64s, below: Any, d: Words, place: ResultPositions) -> Steps:
    """Dequantizes and quantizes: ``rne(m * f32(x) / S + f32(Oy))``."""
    factor = scale_by_sign(below, scale_of(d, "out"), scale_of(d, "leaky")).factor
    scale, offset = float_of_bits(d["result_scale"]), d["out_offset"]
    yield step("factor", factor, "float32")
    values = round_even(factor * real(x) / scale + np.float32(offset))
    formula = "rne(x * factor / {scale:.9g} + {offset})"
    yield step("result", values, formula, scale=scale, offset=offset)
    return values


FORMULAS = Formulas(bias, result, average, pair, rescale)
