"""Building blocks of the numerics profiles: rounding, fixed-point products, scales and clips.

Arrays of integers are int64, real numbers float32. NumPy rounds every float32 operation on its
own, as each profile requires. Infinities and NaN are valid results of huge factors.

A formula is a generator of :class:`FormulaStep`. The value of its last step is its result, which it
also returns. The engine evaluates it (:func:`evaluate`); the debugger's ``why`` prints every step.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nmpsim.core.reference.operands import INT8, Descriptor, ElementType, Float32s, Scale
from nmpsim.core.reference.saturation import ResultPositions, clamp, saturate
from nmpsim.core.reference.words import INT32_MAX
from nmpsim.core.state import Int64s
from nmpsim.isa.words import WANTED_HIGH, WANTED_LOW
from nmpsim.kernels.saturation_stages import ACTIVATION, RESCALE, RESULT

ignore_float_errors = np.errstate(all="ignore")
"""Decorator that ignores floating-point overflow and invalid operations."""


def to_float32(integers: Int64s) -> Float32s:
    """Round integers to the nearest float32, halves to even."""
    return np.asarray(integers).astype(np.float32)


def clamp_bits(values: Int64s, bits: int) -> Int64s:
    """Return values clamped to the range from -2^bits to 2^bits."""
    result: Int64s = np.clip(values, -(1 << bits), 1 << bits)
    return result


def to_integers(values: Any) -> Int64s:
    """Convert integral float64 values to int64, clamped to +-2^62; NaN becomes 0."""
    within = np.clip(np.nan_to_num(values, nan=0.0), -(2.0**62), 2.0**62)
    result: Int64s = within.astype(np.int64)
    return result


@ignore_float_errors
def fused_multiply_add(integers: Int64s, factor: Any, addend: Any) -> Float32s:
    """Compute ``f32(x * factor + addend)`` with one rounding.

    float64 holds the product of 24 and 16 bits. The sum is rounded to odd there, so that the second
    rounding is the only one that matters.
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


@ignore_float_errors
def round_away(values: Float32s) -> Int64s:
    """Round values to the nearest integer, halves away from zero (C's ``roundf``)."""
    wide = values.astype(np.float64)
    return to_integers(np.trunc(wide + np.copysign(0.5, wide)))


@ignore_float_errors
def round_even(values: Float32s) -> Int64s:
    """Round values to the nearest integer, halves to even (C's ``nearbyintf``)."""
    return to_integers(np.rint(values.astype(np.float64)))


def shift_away(values: Int64s, shift: Any) -> Int64s:
    """Compute ``values / 2^shift``, rounding halves away from zero (RoundingDivideByPOT)."""
    half = np.left_shift(np.int64(1), shift) >> 1
    result: Int64s = np.sign(values) * ((np.abs(values) + half) >> shift)
    return result


def compute_doubling_high(values: Int64s, mul: Any) -> Int64s:
    """Compute ``values * mul / 2^31`` as gemmlowp's SaturatingRoundingDoublingHighMul does.

    gemmlowp adds 2^30, or 1 - 2^30 to a negative product, and drops the fraction;
    -2^31 times itself does not fit and becomes 2^31 - 1.
    """
    product = values * mul
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    result: Int64s = np.minimum(np.sign(nudged) * (np.abs(nudged) >> 31), INT32_MAX)
    return result


_CLIP_DESCRIPTIONS = (
    "to {low} ... {high}",
    "to {low} ... {high} (lower clip is an activation)",
    "to {low} ... {high} (upper clip is an activation)",
    "to {low} ... {high} (lower and upper clip is an activation)",
)
"""Description of a clip, by ``clip_wanted``."""


def compute_rounding_half(post: Any) -> Any:
    """Compute the rounding term of a right shift: ``2^(post - 1)``, or 0 if ``post`` is 0."""
    return np.left_shift(np.int64(1), post) >> 1


def rescale_integer(
    x: Int64s,
    scale: Scale,
    element: ElementType,
    place: ResultPositions,
    stage: int = RESCALE,
    what: str = "x",
) -> FormulaSteps:
    """Rescale ``x`` to ``((x >> pre) * mul + half) >> post`` (Glow's QuantizationTransform32To8).

    Int8: ``x`` fits 32 bits, and the sum before the last shift saturates to 32 bits. Int16: values
    that would exceed 62 bits saturate before the product. ``what`` is the name of x in formulas.
    """
    half = compute_rounding_half(scale.post)
    exact = shifted = x >> scale.pre
    if element != INT8:
        limit = (1 << 61) // np.maximum(np.abs(scale.mul), 1)
        shifted = clamp(shifted, -limit, limit, (stage, stage), place)
    yield make_step("shifted", shifted, "{what} >> {pre}", exact, what=what, pre=scale.pre)
    exact = product = shifted * scale.mul + half
    if element == INT8:
        product = saturate(product, 32, stage, place)
    yield make_step("product", product, "* {mul} + {half}", exact, mul=scale.mul, half=half)
    result: Int64s = product >> scale.post
    yield make_step("rescaled", result, ">> {post}", post=scale.post)
    return result


def rescale_fixed_point(
    x: Int64s, scale: Scale, place: ResultPositions, what: str = "x"
) -> FormulaSteps:
    """Compute ``x * 2^pre * (mul / 2^31) / 2^post`` (``MultiplyByQuantizedMultiplier`` of TFLite).

    Rounds twice, in the product and in the shift; values that do not fit 32 bits after the left
    shift saturate. ``x`` is first clamped to the range whose shifted value fits 64 bits.
    """
    limit = (1 << 62) >> scale.pre
    exact = np.clip(x, -limit, limit) << scale.pre
    shifted = saturate(exact, 32, RESCALE, place)
    yield make_step("shifted", shifted, "{what} << {pre}", exact, what=what, pre=scale.pre)
    product = compute_doubling_high(shifted, scale.mul)
    yield make_step("product", product, "* {mul} / 2^31, rounded", mul=scale.mul)
    result = shift_away(product, scale.post)
    yield make_step("rescaled", result, ">> {post}, rounded, halves away from 0", post=scale.post)
    return result


def rescale_wide_fixed_point(x: Int64s, scale: Scale, what: str = "x") -> FormulaSteps:
    """Rescale 48-bit sums and round halves up (TFLite's formula for int64).

    The factor is rounded to 16 bits and the shift is ``15 - pre + post``.
    """
    rounded = (np.asarray(scale.mul) + 0x8000) >> 16
    reduced = np.where(np.asarray(scale.mul) < 0x7FFF_0000, rounded, 0x7FFF)
    shift = 15 - scale.pre + scale.post
    half = np.left_shift(np.int64(1), shift - 1)
    result: Int64s = (x * reduced + half) >> shift
    formula = "({what} * {reduced} + {half}) >> {shift}"
    yield make_step("rescaled", result, formula, what=what, reduced=reduced, half=half, shift=shift)
    return result


def divide_round_away(values: Int64s, by: int) -> Int64s:
    """Divide integers by ``by`` and round to the nearest integer, halves away from zero."""
    result: Int64s = np.sign(values) * ((np.abs(values) + by // 2) // by)
    return result


def round_unsigned(values: Float32s, offset: int, element: ElementType) -> Int64s:
    """Compute ``rint(values + f32(offset))`` with the zero point of an unsigned PyTorch tensor.

    It is greater by 128 than that of an Int8 tensor, which matters where the sum is rounded.
    """
    moved = 128 if element == INT8 else 0
    return round_even(values + np.float32(offset + moved)) - moved


def select_scale(below: Any, out: Scale, leaky: Scale) -> Scale:
    """Return the scale of each element: ``leaky`` where ``below`` is true, else ``out``."""
    return Scale(
        pre=np.where(below, leaky.pre, out.pre),
        mul=np.where(below, leaky.mul, out.mul),
        post=np.where(below, leaky.post, out.post),
    )


def clip(values: Int64s, d: Descriptor, place: ResultPositions) -> FormulaStep:
    """Clip values to a descriptor's range and count the clipped ones; return the formula step."""
    low, high, wanted = d["clip_low"], d["clip_high"], d["clip_wanted"]
    low_stage = ACTIVATION if wanted & WANTED_LOW else RESULT
    high_stage = ACTIVATION if wanted & WANTED_HIGH else RESULT
    clipped = clamp(values, low, high, (low_stage, high_stage), place)
    return make_step("clip", clipped, _CLIP_DESCRIPTIONS[wanted], low=low, high=high)


class FormulaStep(NamedTuple):
    """Evaluated step of a formula: its name, the resulting values, and its expression as text."""

    name: str
    value: Any
    """Values after the step, int64 or float32 [...]."""
    formula: str
    """Format string with the names of ``numbers`` in braces."""
    numbers: Mapping[str, Any]
    """Numbers of the formula: scalars, or one for each value."""
    exact: Any
    """Values before they saturated; None if they cannot saturate."""


FormulaSteps: TypeAlias = Generator[FormulaStep, None, Any]


def make_step(
    name: str, value: Any, formula: str, exact: Any = None, **numbers: Any
) -> FormulaStep:
    """Return a formula step; ``numbers`` are the values of the names in ``formula``."""
    return FormulaStep(name, value, formula, numbers, exact)


def evaluate(steps: FormulaSteps) -> Any:
    """Evaluate the steps of a formula; return the value of the last step."""
    with np.errstate(all="ignore"):
        for one in steps:
            value = one.value
    return value


def prefix_steps(side: str, steps: FormulaSteps) -> FormulaSteps:
    """Prefix the names of a formula's steps with the name of an operand."""
    for one in steps:
        yield one._replace(name=f"{side} {one.name}")
    return one.value
