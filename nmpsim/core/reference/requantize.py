"""From what a sum begins with to its result, by the profile that the descriptor names."""

from __future__ import annotations

from nmpsim.core.reference.arithmetic import Steps, clip, half_of, integer_scale, result_of, step
from nmpsim.core.reference.events import ResultPositions, saturate
from nmpsim.core.reference.operands import INT8, Scale, Words, element_of, float_of_bits, scale_of
from nmpsim.core.reference.profiles import BIASES, RESULTS
from nmpsim.core.reference.profiles.formulas import Requantizer
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ACTIVATION_LEAKY
from nmpsim.kernels.saturation_stages import ACCUMULATOR, RESCALE


def requantizer_of(d: Words, bias: Int64s, bias_scale: Scale, out: Scale) -> Requantizer:
    """What a descriptor, its channel records and its scales say about results."""
    scale = float_of_bits(d["result_scale"])
    return Requantizer(
        element_of(d), bias, bias_scale, out, scale, d["out_offset"], has_bias="channels" in d
    )


def start(d: Words, zero_terms: Int64s, q: Requantizer, place: ResultPositions) -> Steps:
    """Bias plus zero term of each channel; what saturates, saturates for every pixel."""
    bias = yield from BIASES[d["profile"]](q, place)
    yield step("zero term", zero_terms, "taps * O_w * O_x - O_x * sum(w), by the compiler")
    begin = saturate(bias + zero_terms, q.element.accumulator_bits, ACCUMULATOR, place)
    yield step("start", begin, "what the sum begins with")


def leaky(values: Int64s, d: Words, place: ResultPositions) -> Steps:
    """Results below the zero point on their own scale, as ``glow_int``."""
    offset, element, scale = d["out_offset"], element_of(d), scale_of(d, "leaky")
    below = values < offset
    if not below.any():
        return values
    x = values[below] - offset
    if element == INT8:
        x = saturate(x, 32, RESCALE, place.only(below))
    bent = values.copy()
    bent[below] = offset + result_of(integer_scale(x, scale, element, place.only(below)))
    pre, mul, post = scale.pre, scale.mul, scale.post
    numbers = {"offset": offset, "pre": pre, "mul": mul, "half": half_of(post), "post": post}
    formula = "(((result - {offset}) >> {pre}) * {mul} + {half}) >> {post} + {offset}"
    yield step("leaky", bent, formula, **numbers)
    return bent


def finish(sums: Int64s, d: Words, q: Requantizer, place: ResultPositions) -> Steps:
    """Results of finished sums: profile, activation, clip."""
    values = yield from RESULTS[d["profile"]](sums, q, place)
    if d.get("activation") == ACTIVATION_LEAKY:
        values = yield from leaky(values, d, place)
    yield clip(values, d, place)
