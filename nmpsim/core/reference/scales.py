"""What profiles are made of: the integer scale, the fixed-point scale, the clip."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.events import ResultPositions, clamp, saturate
from nmpsim.core.reference.formula_steps import FormulaStep, Steps, step
from nmpsim.core.reference.operands import INT8, Element, Float32s, Scale, Words
from nmpsim.core.reference.rounding import doubling_high, round_even, shift_away
from nmpsim.core.state import Int64s
from nmpsim.isa.words import WANTED_HIGH, WANTED_LOW
from nmpsim.kernels.saturation_stages import ACTIVATION, RESCALE, RESULT

_CLIPS = (
    "to {low} ... {high}",
    "to {low} ... {high} (lower clip is an activation)",
    "to {low} ... {high} (upper clip is an activation)",
    "to {low} ... {high} (lower and upper clip is an activation)",
)
"""By ``clip_wanted``."""


def half_of(post: Any) -> Any:
    """What is added before a shift to round: half of ``2^post``, or 0."""
    return np.left_shift(np.int64(1), post) >> 1


def integer_scale(
    x: Int64s,
    scale: Scale,
    element: Element,
    place: ResultPositions,
    stage: int = RESCALE,
    what: str = "x",
) -> Steps:
    """``((x >> pre) * mul + half) >> post`` (Glow's ``QuantizationTransform32To8``).

    Int8: ``x`` fits 32 bits, and the sum before the last shift saturates to 32 bits. Int16: what
    would leave 62 bits saturates before the product. ``what`` names x.
    """
    half = half_of(scale.post)
    exact = shifted = x >> scale.pre
    if element != INT8:
        limit = (1 << 61) // np.maximum(np.abs(scale.mul), 1)
        shifted = clamp(shifted, -limit, limit, (stage, stage), place)
    yield step("shifted", shifted, "{what} >> {pre}", exact, what=what, pre=scale.pre)
    exact = product = shifted * scale.mul + half
    if element == INT8:
        product = saturate(product, 32, stage, place)
    yield step("product", product, "* {mul} + {half}", exact, mul=scale.mul, half=half)
    result: Int64s = product >> scale.post
    yield step("rescaled", result, ">> {post}", post=scale.post)
    return result


def fixed_point(x: Int64s, scale: Scale, place: ResultPositions, what: str = "x") -> Steps:
    """``x * 2^pre * (mul / 2^31) / 2^post`` (TFLite's ``MultiplyByQuantizedMultiplier``).

    Rounds twice, in the product and in the shift; what does not fit 32 bits after the left shift
    saturates. Before it, ``x`` is held where 64 bits hold the shifted value.
    """
    limit = (1 << 62) >> scale.pre
    exact = np.clip(x, -limit, limit) << scale.pre
    shifted = saturate(exact, 32, RESCALE, place)
    yield step("shifted", shifted, "{what} << {pre}", exact, what=what, pre=scale.pre)
    product = doubling_high(shifted, scale.mul)
    yield step("product", product, "* {mul} / 2^31, rounded", mul=scale.mul)
    result = shift_away(product, scale.post)
    yield step("rescaled", result, ">> {post}, rounded, halves away from 0", post=scale.post)
    return result


def wide_fixed_point(x: Int64s, scale: Scale, what: str = "x") -> Steps:
    """The same for sums of 48 bits (TFLite's form for int64), halves up.

    The factor is rounded to 16 bits and the shift is ``15 - pre + post``.
    """
    rounded = (np.asarray(scale.mul) + 0x8000) >> 16
    reduced = np.where(np.asarray(scale.mul) < 0x7FFF_0000, rounded, 0x7FFF)
    shift = 15 - scale.pre + scale.post
    half = np.left_shift(np.int64(1), shift - 1)
    result: Int64s = (x * reduced + half) >> shift
    formula = "({what} * {reduced} + {half}) >> {shift}"
    yield step("rescaled", result, formula, what=what, reduced=reduced, half=half, shift=shift)
    return result


def rounded_quotient(values: Int64s, by: int) -> Int64s:
    """Nearest integer of ``values / by``, halves away from zero."""
    result: Int64s = np.sign(values) * ((np.abs(values) + by // 2) // by)
    return result


def round_unsigned(values: Float32s, offset: int, element: Element) -> Int64s:
    """``rne(values + f32(offset))``, the zero point being that of PyTorch's unsigned tensor.

    That is greater by 128 than an Int8 tensor's, which matters where the sum is rounded.
    """
    moved = 128 if element == INT8 else 0
    return round_even(values + np.float32(offset + moved)) - moved


def scale_by_sign(below: Any, out: Scale, leaky: Scale) -> Scale:
    """The scale of each element: the leaky one ``below`` the zero point."""
    return Scale(
        pre=np.where(below, leaky.pre, out.pre),
        mul=np.where(below, leaky.mul, out.mul),
        post=np.where(below, leaky.post, out.post),
    )


def clip(values: Int64s, d: Words, place: ResultPositions) -> FormulaStep:
    """``values`` within the descriptor's clip range."""
    low, high, wanted = d["clip_low"], d["clip_high"], d["clip_wanted"]
    low_stage = ACTIVATION if wanted & WANTED_LOW else RESULT
    high_stage = ACTIVATION if wanted & WANTED_HIGH else RESULT
    clipped = clamp(values, low, high, (low_stage, high_stage), place)
    return step("clip", clipped, _CLIPS[wanted], low=low, high=high)
