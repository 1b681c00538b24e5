"""Requantization of sums to results, by the profile that the descriptor names."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import (
    FormulaSteps,
    clip,
    compute_rounding_half,
    evaluate,
    make_step,
    rescale_integer,
)
from nmpsim.core.reference.operands import (
    INT8,
    Descriptor,
    Scale,
    bits_to_float32,
    get_element_type,
    get_scale,
)
from nmpsim.core.reference.profiles.formulas import ProfileFormulas, RequantizationParameters
from nmpsim.core.reference.saturation import ResultPositions, saturate
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ACTIVATION_LEAKY
from nmpsim.kernels.saturation_stages import ACCUMULATOR, RESCALE


def make_requantization_parameters(
    d: Descriptor, formulas: ProfileFormulas, bias: Int64s, bias_scale: Scale, out: Scale
) -> RequantizationParameters:
    """Return the requantization parameters of a descriptor, its biases and its scales."""
    scale = bits_to_float32(d["result_scale"])
    return RequantizationParameters(
        get_element_type(d),
        bias,
        bias_scale,
        out,
        scale,
        d["out_offset"],
        formulas,
        has_bias="channels" in d,
    )


def compute_initial_sums(
    d: Descriptor, zero_terms: Int64s, q: RequantizationParameters, place: ResultPositions
) -> FormulaSteps:
    """Compute the initial sum of each channel: the bias in the sum's scale plus the zero term."""
    assert q.formulas.bias is not None
    bias = yield from q.formulas.bias(q, place)
    yield make_step("zero term", zero_terms, "taps * O_w * O_x - O_x * sum(w), by the compiler")
    begin = saturate(bias + zero_terms, q.element.accumulator_bits, ACCUMULATOR, place)
    yield make_step("start", begin, "what the sum begins with")


def apply_leaky(values: Int64s, d: Descriptor, place: ResultPositions) -> FormulaSteps:
    """Rescale results below the zero point with the leaky scale, as ``glow_int`` does."""
    offset, element, scale = d["out_offset"], get_element_type(d), get_scale(d, "leaky")
    below = values < offset
    if not below.any():
        return values
    x = values[below] - offset
    if element == INT8:
        x = saturate(x, 32, RESCALE, place.select(below))
    bent = values.copy()
    bent[below] = offset + evaluate(rescale_integer(x, scale, element, place.select(below)))
    pre, mul, post = scale.pre, scale.mul, scale.post
    numbers = {
        "offset": offset,
        "pre": pre,
        "mul": mul,
        "half": compute_rounding_half(post),
        "post": post,
    }
    formula = "(((result - {offset}) >> {pre}) * {mul} + {half}) >> {post} + {offset}"
    yield make_step("leaky", bent, formula, **numbers)
    return bent


def finish_sums(
    sums: Int64s, d: Descriptor, q: RequantizationParameters, place: ResultPositions
) -> FormulaSteps:
    """Requantize complete sums: apply the profile's formula, the activation and the clip."""
    assert q.formulas.result is not None
    values = yield from q.formulas.result(sums, q, place)
    if d.get("activation") == ACTIVATION_LEAKY:
        values = yield from (q.formulas.leaky_sums or apply_leaky)(values, d, place)
    yield clip(values, d, place)
