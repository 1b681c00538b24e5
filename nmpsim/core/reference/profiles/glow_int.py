"""Profile of Glow's compiled kernels (libjit): integers, halves up."""

from __future__ import annotations

from typing import Any

from nmpsim.core.reference.arithmetic import (
    FormulaSteps,
    compute_rounding_half,
    divide_round_away,
    evaluate,
    make_step,
    prefix_steps,
    rescale_integer,
    select_scale,
)
from nmpsim.core.reference.operands import INT8, Descriptor, get_element_type, get_scale
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
from nmpsim.isa.words import OP_MUL
from nmpsim.kernels.saturation_stages import BIAS, RESCALE


def scale_bias(q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Rescale the bias to the scale of the sum, ``((b >> pre) * mul + half) >> post``."""
    yield make_bias_step(q)
    scale = q.bias_scale
    held = saturate(q.bias, q.element.accumulator_bits, BIAS, place)
    scaled = evaluate(rescale_integer(held, scale, q.element, place, stage=BIAS))
    pre, mul, post = scale.pre, scale.mul, scale.post
    formula = "((bias >> {pre}) * {mul} + {half}) >> {post}"
    yield make_step(
        "bias in the sum",
        scaled,
        formula,
        pre=pre,
        mul=mul,
        half=compute_rounding_half(post),
        post=post,
    )
    return scaled


def requantize(sums: Int64s, q: RequantizationParameters, place: ResultPositions) -> FormulaSteps:
    """Requantize sums to ``((sum >> pre) * mul + half) >> post`` plus the zero point."""
    rescaled = yield from rescale_integer(sums, q.out, q.element, place, what="accumulator")
    values = rescaled + q.offset
    yield make_step("result", values, "rescaled + {offset}", offset=q.offset)
    return values


def average_pool(sums: Int64s, divisor: int, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Average sums: rescale and round each sum, then divide it by ``divisor`` and round again."""
    rescaled = yield from rescale_integer(
        sums, get_scale(d, "out"), get_element_type(d), place, what="sum"
    )
    values = divide_round_away(rescaled, divisor) + d["out_offset"]
    formula = "rescaled{by} + {offset}"
    yield make_step("average", values, formula, by=format_divisor(divisor), offset=d["out_offset"])
    return values


def combine_operands(
    left: Int64s, right: Int64s, d: Descriptor, place: ResultPositions
) -> FormulaSteps:
    """Apply an elementwise operation to integers; rescale both operands first, or mul's product.

    For mul the product itself is scaled; Int8 saturates it to 32 bits first.
    """
    element, out, offset = get_element_type(d), get_scale(d, "out"), d["out_offset"]
    if d["operation"] == OP_MUL:
        exact = product = left * right
        if element == INT8:
            product = saturate(product, 32, RESCALE, place)
        yield make_step("mul", product, "lhs * rhs", exact)
        rescaled = yield from rescale_integer(product, out, element, place, what="product")
        values = rescaled + offset
        yield make_step("result", values, "rescaled + {offset}", offset=offset)
        return values
    lhs, rhs = get_scale(d, "lhs"), get_scale(d, "rhs")
    x = yield from prefix_steps("lhs", rescale_integer(left, lhs, element, place, what="lhs"))
    y = yield from prefix_steps("rhs", rescale_integer(right, rhs, element, place, what="rhs"))
    values = apply_operation(x, y, d) + offset
    formula = "{operation} of both, + {offset}"
    yield make_step("result", values, formula, operation=get_operation_name(d), offset=offset)
    return values


def rescale_value(x: Int64s, below: Any, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Rescale values with the output scale, or the leaky scale if ``below``; add the zero point."""
    scale = select_scale(below, get_scale(d, "out"), get_scale(d, "leaky"))
    rescaled = yield from rescale_integer(x, scale, get_element_type(d), place, what="x")
    values = rescaled + d["out_offset"]
    yield make_step("result", values, "rescaled + {offset}", offset=d["out_offset"])
    return values


FORMULAS = ProfileFormulas(scale_bias, requantize, average_pool, combine_operands, rescale_value)
