"""ONNX Runtime, PyTorch's qnnpack, and what PyTorch's engines share: float32, halves to even."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.arithmetic import Steps, real, round_even, step
from nmpsim.core.reference.events import ResultPositions
from nmpsim.core.reference.operands import Float32s, Scale, Words, float_of_bits, scale_of
from nmpsim.core.reference.profiles.formulas import (
    Formulas,
    Requantizer,
    divided_by,
    operate,
    operation_name,
    plain_bias,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ACTIVATION_LEAKY, OP_MUL


def result(sums: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """``rne(f32(sum) * m) + Oy``: PyTorch's qnnpack, ONNX Runtime."""
    factor = q.out.factor
    yield step("factor", factor, "float32")
    values = round_even(real(sums) * factor) + q.offset
    formula = "rne(accumulator * {factor:.9g}) + {offset}"
    yield step("result", values, formula, factor=factor, offset=q.offset)
    return values


def average(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Steps:
    """PyTorch's qnnpack, ONNX Runtime: ``rne(f32(sum) * (m / f32(n))) + Oy``."""
    factor, offset = scale_of(d, "out").factor, d["out_offset"]
    yield step("factor", factor, "float32")
    values = round_even(real(sums) * (factor / np.float32(divisor))) + offset
    formula = "rne(sum * ({factor:.9g}{by})) + {offset}"
    yield step("average", values, formula, factor=factor, by=divided_by(divisor), offset=offset)
    return values


def pair(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Steps:
    """PyTorch's fbgemm and onednn: real values, then ``rne(t * r) + Oy``, r in ``result_scale``.

    mul: ``rne(f32(l * r) * m) + Oy``.
    """
    offset = d["out_offset"]
    if d["operation"] == OP_MUL:
        product, factor = left * right, scale_of(d, "out").factor
        yield step("mul", product, "lhs * rhs")
        yield step("factor", factor, "float32")
        values = round_even(real(product) * factor) + offset
        formula = "rne(product * {factor:.9g}) + {offset}"
        yield step("result", values, formula, factor=factor, offset=offset)
        return values
    x = yield from dequantized("lhs", left, scale_of(d, "lhs"))
    y = yield from dequantized("rhs", right, scale_of(d, "rhs"))
    factor = float_of_bits(d["result_scale"])
    values = round_even(operate(x, y, d) * factor) + offset
    formula = "rne({operation} * {factor:.9g}) + {offset}"
    yield step("result", values, formula, operation=operation_name(d), factor=factor, offset=offset)
    return values


def dequantized(side: str, values: Int64s, scale: Scale) -> Steps:
    """``f32(side * m + a)``, product and sum in float64; ``post`` holds the addend, a float32."""
    factor, addend = scale.factor, scale.addend
    product = values.astype(np.float64) * factor.astype(np.float64)
    real_values: Float32s = (product + addend.astype(np.float64)).astype(np.float32)
    formula = "* {factor:.9g} + {addend:.9g}, as float32"
    yield step(f"{side} scaled", real_values, formula, factor=factor, addend=addend)
    return real_values


def rescale(x: Int64s, below: Any, d: Words, place: ResultPositions) -> Steps:
    """``rne(t * r) + Oy`` of ``t = m * f32(x)``, times the leaky factor where ``below``.

    r is ``result_scale``.
    """
    factor, offset = scale_of(d, "out").factor, d["out_offset"]
    scaled = factor * real(x)
    yield step("scaled", scaled, "x * {factor:.9g}", factor=factor)
    if d["activation"] == ACTIVATION_LEAKY:
        leaky = scale_of(d, "leaky").factor
        scaled = np.where(below, scaled * leaky, scaled)
        yield step("leaky", scaled, "* {leaky:.9g} if x is below 0", leaky=leaky)
    scale = float_of_bits(d["result_scale"])
    values = round_even(scaled * scale) + offset
    yield step("result", values, "rne(* {scale:.9g}) + {offset}", scale=scale, offset=offset)
    return values


FORMULAS = Formulas(plain_bias, result, average, pair, rescale)
