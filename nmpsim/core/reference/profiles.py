"""What each profile makes of a bias and of a sum, to the bit.

One function per profile; ``docs/numerics.md`` says where each formula comes from. float32
operations are rounded one by one; ``rha`` is rounding half away from zero, ``rne`` half to even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from nmpsim.core.reference.events import ResultPositions, saturate
from nmpsim.core.reference.operands import (
    INT8,
    Element,
    Float32s,
    Scale,
    Words,
    element_of,
    float_of_bits,
    scale_of,
)
from nmpsim.core.reference.rounding import held, quietly, real, round_away, round_even
from nmpsim.core.reference.scales import (
    clip,
    fixed_point,
    integer_scale,
    round_unsigned,
    wide_fixed_point,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.profiles import (
    FBGEMM,
    FLOAT,
    GLOW_FLOAT,
    GLOW_FLOAT_LATE,
    GLOW_INT,
    NMP,
    ONEDNN,
    Q31,
    check_profiles,
)
from nmpsim.isa.words import ACTIVATION_LEAKY
from nmpsim.kernels.saturation_stages import BIAS, RESCALE


@attrs.frozen(eq=False)
class Requantizer:
    """All that makes a result of a sum; scales and bias have one value a channel, or one for all.

    ``bias`` is the channel record's: an integer, or for fbgemm and onednn the bits of a float64.
    """

    element: Element
    bias: Int64s
    bias_scale: Scale
    out: Scale
    result_scale: Any
    offset: int


def integer_bias(q: Requantizer, place: ResultPositions) -> Int64s:
    """glow_int: the bias on the scale of the sum, ``((b >> pre) * mul + half) >> post``."""
    bias = saturate(q.bias, q.element.accumulator_bits, BIAS, place)
    return integer_scale(bias, q.bias_scale, q.element, place, BIAS)


@quietly
def float_bias(q: Requantizer, place: ResultPositions) -> Int64s:
    """glow_float: the bias on the scale of the sum, ``rha(f32(b) * m)``."""
    bias = round_away(real(q.bias) * q.bias_scale.factor)
    return saturate(bias, q.element.accumulator_bits, BIAS, place)


def plain_bias(q: Requantizer, place: ResultPositions) -> Int64s:
    """q31, float: the bias has the scale of the sum."""
    return saturate(q.bias, q.element.accumulator_bits, BIAS, place)


def no_bias(q: Requantizer, place: ResultPositions) -> Int64s:
    """nmp, fbgemm, onednn: the bias comes after the sum."""
    return np.zeros_like(q.bias)


def glow_int(sums: Int64s, q: Requantizer, place: ResultPositions) -> Int64s:
    """``((sum >> pre) * mul + half) >> post``, plus the zero point: Glow's libjit."""
    return integer_scale(sums, q.out, q.element, place) + q.offset


@quietly
def glow_float(sums: Int64s, q: Requantizer, place: ResultPositions) -> Int64s:
    """``rha(f32(sum) * m + f32(Oy))``: convolutions and matrix products of Glow's Interpreter."""
    return round_away(real(sums) * q.out.factor + np.float32(q.offset))


@quietly
def glow_float_late(sums: Int64s, q: Requantizer, place: ResultPositions) -> Int64s:
    """``rha(f32(sum) * m) + Oy``: the Interpreter's fully connected layers."""
    return round_away(real(sums) * q.out.factor) + q.offset


def nmp(sums: Int64s, q: Requantizer, place: ResultPositions) -> Int64s:
    """As glow_int, with the bias added on the scale of the result."""
    return integer_scale(sums, q.out, q.element, place) + held(q.bias, 61) + q.offset


def q31(sums: Int64s, q: Requantizer, place: ResultPositions) -> Int64s:
    """TFLite's fixed point: of 32 bits for Int8, of 16 for the wider sums of Int16."""
    if q.element == INT8:
        return fixed_point(sums, q.out, place) + q.offset
    return wide_fixed_point(sums, q.out) + q.offset


@quietly
def float_late(sums: Int64s, q: Requantizer, place: ResultPositions) -> Int64s:
    """float: ``rne(f32(sum) * m) + Oy``: PyTorch's qnnpack, ONNX Runtime."""
    return round_even(real(sums) * q.out.factor) + q.offset


@quietly
def fbgemm(sums: Int64s, q: Requantizer, place: ResultPositions) -> Int64s:
    """``rne(f32(f32(sum) + B) * m) + Oy``: PyTorch's fbgemm; B is a float64, bias / (Sx * Sw)."""
    return round_even(biased(real(sums), q) * q.out.factor) + q.offset


@quietly
def onednn(sums: Int64s, q: Requantizer, place: ResultPositions) -> Int64s:
    """``rne(f32(f32(sum) * Sx * Sw + B) * r + f32(Oy))``: PyTorch's onednn, Oy unsigned.

    Sx is in ``bias_mul``, Sw in ``out_mul``, r = 1 / Sy in ``result_scale``; B is a float64.
    """
    values = biased(real(sums) * q.bias_scale.factor * q.out.factor, q)
    return round_unsigned(values * q.result_scale, q.offset, q.element)


def biased(values: Float32s, q: Requantizer) -> Float32s:
    """``f32(value + B)``: the sum is one of float64."""
    return (values.astype(np.float64) + q.bias.view(np.float64)).astype(np.float32)


BIASES: dict[int, Callable[[Requantizer, ResultPositions], Int64s]] = {
    GLOW_INT: integer_bias,
    GLOW_FLOAT: float_bias,
    GLOW_FLOAT_LATE: float_bias,
    NMP: no_bias,
    Q31: plain_bias,
    FLOAT: plain_bias,
    FBGEMM: no_bias,
    ONEDNN: no_bias,
}
"""Profile -> what a sum begins with, before the zero term."""
check_profiles(f"{__name__}.BIASES", BIASES, "conv", "dwconv", "gemm")

RESULTS: dict[int, Callable[[Int64s, Requantizer, ResultPositions], Int64s]] = {
    GLOW_INT: glow_int,
    GLOW_FLOAT: glow_float,
    GLOW_FLOAT_LATE: glow_float_late,
    NMP: nmp,
    Q31: q31,
    FLOAT: float_late,
    FBGEMM: fbgemm,
    ONEDNN: onednn,
}
"""Profile -> the result of a sum, before activation and clip."""
check_profiles(f"{__name__}.RESULTS", RESULTS, "conv", "dwconv", "gemm")


def requantizer_of(d: Words, bias: Int64s, bias_scale: Scale, out: Scale) -> Requantizer:
    """What a descriptor, its channel records and its scales say about results."""
    scale = float_of_bits(d["result_scale"])
    return Requantizer(element_of(d), bias, bias_scale, out, scale, d["out_offset"])


def leaky(values: Int64s, d: Words, place: ResultPositions) -> Int64s:
    """Results below the zero point on their own scale, as ``glow_int``."""
    offset, element = d["out_offset"], element_of(d)
    below = values < offset
    x = values[below] - offset
    if element == INT8:
        x = saturate(x, 32, RESCALE, place.only(below))
    scaled = values.copy()
    scaled[below] = offset + integer_scale(x, scale_of(d, "leaky"), element, place.only(below))
    return scaled


def finish(sums: Int64s, d: Words, q: Requantizer, place: ResultPositions) -> Int64s:
    """Results of finished sums: profile, activation, clip."""
    values = RESULTS[d["profile"]](sums, q, place)
    if d.get("activation") == ACTIVATION_LEAKY:
        values = leaky(values, d, place)
    return clip(values, d, place)
