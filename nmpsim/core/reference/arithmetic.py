"""What profiles are made of: rounding, fixed-point products, scales and clips, as named steps.

Arrays of integers are int64, real numbers float32. NumPy rounds every float32 operation on its
own, as each profile wants it. Infinities and NaN are results like any other: a huge factor is no
error.

A formula is a generator of :class:`FormulaStep`; the last one's value is its result, which it also
returns. The engine takes :func:`result_of` it; the debugger's ``why`` prints every step.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nmpsim.core.reference.events import ResultPositions, clamp, saturate
from nmpsim.core.reference.operands import INT8, Element, Float32s, Scale, Words
from nmpsim.core.reference.words import INT32_MAX
from nmpsim.core.state import Int64s
from nmpsim.isa.words import WANTED_HIGH, WANTED_LOW
from nmpsim.kernels.saturation_stages import ACTIVATION, RESCALE, RESULT

quietly = np.errstate(all="ignore")
"""Decorator of functions that calculate with float32."""


def real(integers: Int64s) -> Float32s:
    """The nearest float32 of each integer, halves to even."""
    return np.asarray(integers).astype(np.float32)


def held(values: Int64s, bits: int) -> Int64s:
    """``values`` within +-2^bits."""
    result: Int64s = np.clip(values, -(1 << bits), 1 << bits)
    return result


def whole(values: Any) -> Int64s:
    """Whole float64 numbers as integers, held at +-2^62; 0 for what is no number."""
    within = np.clip(np.nan_to_num(values, nan=0.0), -(2.0**62), 2.0**62)
    result: Int64s = within.astype(np.int64)
    return result


@quietly
def fused_multiply_add(integers: Int64s, factor: Any, addend: Any) -> Float32s:
    """``f32(x * factor + addend)``, rounded once: float64 holds the product of 24 and 16 bits.

    The sum is rounded to odd there, so that rounding it again is the only rounding seen.
    """
    product = integers.astype(np.float64) * np.float64(factor)
    wide = np.asarray(addend).astype(np.float64)
    total = product + wide
    back = total - product
    lost = (product - (total - back)) + (wide - back)
    is_even = total.view(np.int64) & 1 == 0
    towards = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
    result: Float32s = np.where((lost != 0) & is_even, towards, total).astype(np.float32)
    return result


@quietly
def round_away(values: Float32s) -> Int64s:
    """Nearest integer, halves away from zero (C's ``roundf``); float64 holds value and half."""
    wide = values.astype(np.float64)
    return whole(np.trunc(wide + np.copysign(0.5, wide)))


@quietly
def round_even(values: Float32s) -> Int64s:
    """Nearest integer, halves to even (C's ``nearbyintf``)."""
    return whole(np.rint(values.astype(np.float64)))


def shift_away(values: Int64s, shift: Any) -> Int64s:
    """``values / 2^shift``, halves away from zero: gemmlowp's RoundingDivideByPOT."""
    half = np.left_shift(np.int64(1), shift) >> 1
    result: Int64s = np.sign(values) * ((np.abs(values) + half) >> shift)
    return result


def doubling_high(values: Int64s, mul: Any) -> Int64s:
    """``values * mul / 2^31`` of 32-bit numbers, halves up: gemmlowp's doubling high product.

    gemmlowp adds 2^30, or 1 - 2^30 to a negative product, and drops the fraction;
    -2^31 times itself does not fit and becomes 2^31 - 1.
    """
    product = values * mul
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    result: Int64s = np.minimum(np.sign(nudged) * (np.abs(nudged) >> 31), INT32_MAX)
    return result


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


class FormulaStep(NamedTuple):
    """One step, of any number of values at once."""

    name: str
    value: Any
    """int64, or float32 [...]"""
    formula: str
    """With the names of ``numbers`` in braces, as ``str.format`` takes them."""
    numbers: Mapping[str, Any]
    """Each a number, or one for each value."""
    exact: Any
    """The values before they saturated; None where none can."""


Steps: TypeAlias = Generator[FormulaStep, None, Any]


def step(name: str, value: Any, formula: str, exact: Any = None, **numbers: Any) -> FormulaStep:
    """A step; ``numbers`` are those that ``formula`` names."""
    return FormulaStep(name, value, formula, numbers, exact)


def result_of(steps: Steps) -> Any:
    """The last step's value. Infinities and what is no number are results like any other."""
    with np.errstate(all="ignore"):
        for one in steps:
            value = one.value
    return value


def of_side(side: str, steps: Steps) -> Steps:
    """The steps, named as those of one of two operands."""
    for one in steps:
        yield one._replace(name=f"{side} {one.name}")
    return one.value
