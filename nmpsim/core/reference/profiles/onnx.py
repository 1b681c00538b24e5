"""ONNX Runtime's elementwise operations and averages: float32, the zero point before rounding.

What is unsigned has 128 more in its values and zero point; the compiler's words say so.
"""

from __future__ import annotations

import numpy as np

from nmpsim.core.reference.arithmetic import (
    Steps,
    fused_multiply_add,
    quietly,
    real,
    round_even,
    step,
)
from nmpsim.core.reference.events import ResultPositions
from nmpsim.core.reference.operands import Float32s, Words, float_of_bits, scale_of
from nmpsim.core.reference.profiles.formulas import Formulas
from nmpsim.core.state import Int64s
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS, OP_MUL


@quietly
def total(taps: Int64s, d: Words) -> Float32s:
    """Sum of dequantized taps [taps, channels], one after the other."""
    factor = scale_of(d, "out").factor
    sums = np.zeros(taps.shape[1:], np.float32)
    for tap in taps:
        sums = sums + real(tap) * factor
    return sums


def average(sums: Float32s, divisor: int, d: Words, place: ResultPositions) -> Steps:
    """``rne(f32(sum / n) / Sy + addend)``; n is all taps of the window unless the unit divides."""
    count = divisor
    if d["divide"] != DIVIDE_BY_VALID_TAPS:
        count = d["kernel_h"] * d["kernel_w"]
    mean = sums / np.float32(count)
    yield step("mean", mean, "of the dequantized taps, / {count}", count=count)
    scale, addend = float_of_bits(d["result_scale"]), scale_of(d, "out").addend
    values = round_even(mean / scale + addend) + d["out_offset"]
    formula = "rne(mean / {scale:.9g} + {addend:.9g}) + {offset}"
    yield step("average", values, formula, scale=scale, addend=addend, offset=d["out_offset"])
    return values


def pair(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Steps:
    """add: ``rne(fma(l, Ml, fma(r, Mr, addend)))``; mul: ``rne(f32(l * r) * m + addend)``."""
    offset, rhs = d["out_offset"], scale_of(d, "rhs")
    if d["operation"] == OP_MUL:
        factor = scale_of(d, "out").factor
        product = left * right
        yield step("mul", product, "lhs * rhs")
        scaled = real(product) * factor
        yield step("scaled", scaled, "product * {factor:.9g}", factor=factor)
        values = round_even(scaled + rhs.addend) + offset
        formula = "rne(scaled + {addend:.9g}) + {offset}"
        yield step("result", values, formula, addend=rhs.addend, offset=offset)
        return values
    inner = fused_multiply_add(right, rhs.factor, rhs.addend)
    formula = "* {factor:.9g} + {addend:.9g}, as float32"
    yield step("rhs scaled", inner, formula, factor=rhs.factor, addend=rhs.addend)
    factor = scale_of(d, "lhs").factor
    outer = fused_multiply_add(left, factor, inner)
    yield step("add", outer, "lhs * {factor:.9g} + rhs scaled, as float32", factor=factor)
    values = round_even(outer) + offset
    yield step("result", values, "rne(add) + {offset}", offset=offset)
    return values


FORMULAS = Formulas(average=average, pair=pair, total=total)
