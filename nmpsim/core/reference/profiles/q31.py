"""Profile of TFLite and gemmlowp: fixed point, rounded twice."""

from __future__ import annotations

from typing import Any

from nmpsim.core.reference.arithmetic import (
    FormulaSteps,
    divide_round_away,
    make_step,
    prefix_steps,
    rescale_fixed_point,
    rescale_wide_fixed_point,
    select_scale,
)
from nmpsim.core.reference.operands import INT8, Descriptor, get_scale
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
from nmpsim.isa.words import OP_ADD, OP_MUL, OP_SUB


def requantize(sums: Int64s, q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Requantize sums in fixed point, with a 32-bit factor for Int8 and 16 bits for Int16."""
    if q.element == INT8:
        rescaled = yield from rescale_fixed_point(sums, q.out, place, "accumulator")
    else:
        rescaled = yield from rescale_wide_fixed_point(sums, q.out, "accumulator")
    values = rescaled + q.offset
    yield make_step("result", values, "rescaled + {offset}", offset=q.offset)
    return values


def average_pool(sums: Int64s, divisor: int, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Average a pool's sums: rescale them in fixed point, then divide by ``divisor``."""
    rescaled = yield from rescale_fixed_point(sums, get_scale(d, "out"), place, "sum")
    values = divide_round_away(rescaled, divisor) + d["out_offset"]
    formula = "rescaled{by} + {offset}"
    yield make_step("average", values, formula, by=format_divisor(divisor), offset=d["out_offset"])
    return values


def combine_operands(
    left: Int64s, right: Int64s, d: Descriptor, place: ResultPositions
) -> FormulaSteps:
    """Combine two operands in fixed point; rescale a sum or product to the scale of the result."""
    out, offset, name = get_scale(d, "out"), d["out_offset"], get_operation_name(d)
    if d["operation"] == OP_MUL:
        product = left * right
        yield make_step("mul", product, "lhs * rhs")
        scaled = yield from rescale_fixed_point(product, out, place, "product")
        values = scaled + offset
        yield make_step("result", values, "rescaled + {offset}", offset=offset)
        return values
    x = yield from prefix_steps("lhs", rescale_fixed_point(left, get_scale(d, "lhs"), place, "lhs"))
    y = yield from prefix_steps(
        "rhs", rescale_fixed_point(right, get_scale(d, "rhs"), place, "rhs")
    )
    both = apply_operation(x, y, d)
    if d["operation"] in (OP_ADD, OP_SUB):
        yield make_step(name, both, "of both")
        scaled = yield from rescale_fixed_point(both, out, place, name)
        values = scaled + offset
        yield make_step("result", values, "rescaled + {offset}", offset=offset)
        return values
    values = both + offset
    yield make_step(
        "result", values, "{operation} of both, + {offset}", operation=name, offset=offset
    )
    return values


def rescale_value(x: Int64s, below: Any, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Rescale values in fixed point and add the zero point."""
    scale = select_scale(below, get_scale(d, "out"), get_scale(d, "leaky"))
    rescaled = yield from rescale_fixed_point(x, scale, place, "x")
    values = rescaled + d["out_offset"]
    yield make_step("result", values, "rescaled + {offset}", offset=d["out_offset"])
    return values


FORMULAS = ProfileFormulas(
    initialize_with_bias, requantize, average_pool, combine_operands, rescale_value
)
