"""TFLite and gemmlowp: fixed point, rounded twice."""

from __future__ import annotations

from typing import Any

from nmpsim.core.reference.arithmetic import (
    Steps,
    fixed_point,
    of_side,
    rounded_quotient,
    scale_by_sign,
    step,
    wide_fixed_point,
)
from nmpsim.core.reference.events import ResultPositions
from nmpsim.core.reference.operands import INT8, Words, scale_of
from nmpsim.core.reference.profiles.formulas import (
    Formulas,
    Requantizer,
    divided_by,
    operate,
    operation_name,
    plain_bias,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.words import OP_ADD, OP_MUL, OP_SUB


def result(sums: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """Fixed point of 32 bits for Int8, of 16 for the wider sums of Int16."""
    if q.element == INT8:
        rescaled = yield from fixed_point(sums, q.out, place, "accumulator")
    else:
        rescaled = yield from wide_fixed_point(sums, q.out, "accumulator")
    values = rescaled + q.offset
    yield step("result", values, "rescaled + {offset}", offset=q.offset)
    return values


def average(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Steps:
    """Fixed point, then the quotient; TFLite's own average has a scale of one."""
    rescaled = yield from fixed_point(sums, scale_of(d, "out"), place, "sum")
    values = rounded_quotient(rescaled, divisor) + d["out_offset"]
    formula = "rescaled{by} + {offset}"
    yield step("average", values, formula, by=divided_by(divisor), offset=d["out_offset"])
    return values


def pair(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Steps:
    """Each side in fixed point; a sum, or the product, is scaled once more."""
    out, offset, name = scale_of(d, "out"), d["out_offset"], operation_name(d)
    if d["operation"] == OP_MUL:
        product = left * right
        yield step("mul", product, "lhs * rhs")
        scaled = yield from fixed_point(product, out, place, "product")
        values = scaled + offset
        yield step("result", values, "rescaled + {offset}", offset=offset)
        return values
    x = yield from of_side("lhs", fixed_point(left, scale_of(d, "lhs"), place, "lhs"))
    y = yield from of_side("rhs", fixed_point(right, scale_of(d, "rhs"), place, "rhs"))
    both = operate(x, y, d)
    if d["operation"] in (OP_ADD, OP_SUB):
        yield step(name, both, "of both")
        scaled = yield from fixed_point(both, out, place, name)
        values = scaled + offset
        yield step("result", values, "rescaled + {offset}", offset=offset)
        return values
    values = both + offset
    yield step("result", values, "{operation} of both, + {offset}", operation=name, offset=offset)
    return values


def rescale(x: Int64s, below: Any, d: Words, place: ResultPositions) -> Steps:
    """Fixed point, plus the zero point."""
    scale = scale_by_sign(below, scale_of(d, "out"), scale_of(d, "leaky"))
    rescaled = yield from fixed_point(x, scale, place, "x")
    values = rescaled + d["out_offset"]
    yield step("result", values, "rescaled + {offset}", offset=d["out_offset"])
    return values


FORMULAS = Formulas(plain_bias, result, average, pair, rescale)
