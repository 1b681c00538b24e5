"""Glow's compiled kernels (libjit): integers, halves up."""

from __future__ import annotations

from typing import Any

from nmpsim.core.reference.arithmetic import (
    Steps,
    half_of,
    integer_scale,
    of_side,
    result_of,
    rounded_quotient,
    scale_by_sign,
    step,
)
from nmpsim.core.reference.events import ResultPositions, saturate
from nmpsim.core.reference.operands import INT8, Words, element_of, scale_of
from nmpsim.core.reference.profiles.formulas import (
    Formulas,
    Requantizer,
    divided_by,
    operate,
    operation_name,
    stored_bias,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.words import OP_MUL
from nmpsim.kernels.saturation_stages import BIAS, RESCALE


def bias(q: Requantizer, place: ResultPositions) -> Steps:
    """The bias on the scale of the sum, ``((b >> pre) * mul + half) >> post``."""
    yield stored_bias(q)
    scale = q.bias_scale
    held = saturate(q.bias, q.element.accumulator_bits, BIAS, place)
    scaled = result_of(integer_scale(held, scale, q.element, place, stage=BIAS))
    pre, mul, post = scale.pre, scale.mul, scale.post
    formula = "((bias >> {pre}) * {mul} + {half}) >> {post}"
    yield step("bias in the sum", scaled, formula, pre=pre, mul=mul, half=half_of(post), post=post)
    return scaled


def result(sums: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """``((sum >> pre) * mul + half) >> post``, plus the zero point."""
    rescaled = yield from integer_scale(sums, q.out, q.element, place, what="accumulator")
    values = rescaled + q.offset
    yield step("result", values, "rescaled + {offset}", offset=q.offset)
    return values


def average(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Steps:
    """Rounds twice: the scaled sum, then its quotient."""
    rescaled = yield from integer_scale(sums, scale_of(d, "out"), element_of(d), place, what="sum")
    values = rounded_quotient(rescaled, divisor) + d["out_offset"]
    formula = "rescaled{by} + {offset}"
    yield step("average", values, formula, by=divided_by(divisor), offset=d["out_offset"])
    return values


def pair(left: Int64s, right: Int64s, d: Words, place: ResultPositions) -> Steps:
    """Each side on the result's scale, rounded; then the operation.

    The product of mul is scaled itself; Int8 saturates it to 32 bits first.
    """
    element, out, offset = element_of(d), scale_of(d, "out"), d["out_offset"]
    if d["operation"] == OP_MUL:
        exact = product = left * right
        if element == INT8:
            product = saturate(product, 32, RESCALE, place)
        yield step("mul", product, "lhs * rhs", exact)
        rescaled = yield from integer_scale(product, out, element, place, what="product")
        values = rescaled + offset
        yield step("result", values, "rescaled + {offset}", offset=offset)
        return values
    lhs, rhs = scale_of(d, "lhs"), scale_of(d, "rhs")
    x = yield from of_side("lhs", integer_scale(left, lhs, element, place, what="lhs"))
    y = yield from of_side("rhs", integer_scale(right, rhs, element, place, what="rhs"))
    values = operate(x, y, d) + offset
    formula = "{operation} of both, + {offset}"
    yield step("result", values, formula, operation=operation_name(d), offset=offset)
    return values


def rescale(x: Int64s, below: Any, d: Words, place: ResultPositions) -> Steps:
    """``((x >> pre) * mul + half) >> post``, plus the zero point."""
    scale = scale_by_sign(below, scale_of(d, "out"), scale_of(d, "leaky"))
    rescaled = yield from integer_scale(x, scale, element_of(d), place, what="x")
    values = rescaled + d["out_offset"]
    yield step("result", values, "rescaled + {offset}", offset=d["out_offset"])
    return values


FORMULAS = Formulas(bias, result, average, pair, rescale)
