"""Profile of ONNX Runtime's elementwise operations and averages: float32.

The zero point is added before rounding. Unsigned tensors have 128 more in values and zero point, as
the compiler's descriptor words say.
"""

from __future__ import annotations

import numpy as np

from nmpsim.core.reference.arithmetic import (
    FormulaSteps,
    fused_multiply_add,
    ignore_float_errors,
    make_step,
    round_even,
    to_float32,
)
from nmpsim.core.reference.operands import Descriptor, Float32s, bits_to_float32, get_scale
from nmpsim.core.reference.profiles.formulas import ProfileFormulas
from nmpsim.core.reference.saturation import ResultPositions
from nmpsim.core.state import Int64s
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS, OP_MUL


@ignore_float_errors
def sum_taps(taps: Int64s, d: Descriptor) -> Float32s:
    """Return the float32 sum of dequantized taps, [taps, channels], added one by one."""
    factor = get_scale(d, "out").factor
    sums = np.zeros(taps.shape[1:], np.float32)
    for tap in taps:
        sums = sums + to_float32(tap) * factor
    return sums


def average_pool(
    sums: Float32s, divisor: int, d: Descriptor, place: ResultPositions
) -> FormulaSteps:
    """Average sums of dequantized taps to ``rint(sum / count / scale + addend) + offset``."""
    count = divisor
    if d["divide"] != DIVIDE_BY_VALID_TAPS:
        count = d["kernel_h"] * d["kernel_w"]
    mean = sums / np.float32(count)
    yield make_step("mean", mean, "of the dequantized taps, / {count}", count=count)
    scale, addend = bits_to_float32(d["result_scale"]), get_scale(d, "out").addend
    values = round_even(mean / scale + addend) + d["out_offset"]
    formula = "rne(mean / {scale:.9g} + {addend:.9g}) + {offset}"
    yield make_step("average", values, formula, scale=scale, addend=addend, offset=d["out_offset"])
    return values


def combine_operands(
    left: Int64s, right: Int64s, d: Descriptor, place: ResultPositions
) -> FormulaSteps:
    """Combine two operands by addition or multiplication, and requantize the result.

    add: ``rne(fma(l, Ml, fma(r, Mr, addend)))``; mul: ``rne(f32(l * r) * m + addend)``.
    """
    offset, rhs = d["out_offset"], get_scale(d, "rhs")
    if d["operation"] == OP_MUL:
        factor = get_scale(d, "out").factor
        product = left * right
        yield make_step("mul", product, "lhs * rhs")
        scaled = to_float32(product) * factor
        yield make_step("scaled", scaled, "product * {factor:.9g}", factor=factor)
        values = round_even(scaled + rhs.addend) + offset
        formula = "rne(scaled + {addend:.9g}) + {offset}"
        yield make_step("result", values, formula, addend=rhs.addend, offset=offset)
        return values
    inner = fused_multiply_add(right, rhs.factor, rhs.addend)
    formula = "* {factor:.9g} + {addend:.9g}, as float32"
    yield make_step("rhs scaled", inner, formula, factor=rhs.factor, addend=rhs.addend)
    factor = get_scale(d, "lhs").factor
    outer = fused_multiply_add(left, factor, inner)
    yield make_step("add", outer, "lhs * {factor:.9g} + rhs scaled, as float32", factor=factor)
    values = round_even(outer) + offset
    yield make_step("result", values, "rne(add) + {offset}", offset=offset)
    return values


FORMULAS = ProfileFormulas(average=average_pool, pair=combine_operands, total=sum_taps)
