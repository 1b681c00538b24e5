"""Ratios of scales, and the forms in which a descriptor holds a real factor.

Products and quotients of scales are rounded to float32, each on its own, unless a function says
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.kernels.scale import (
    INT32_MAX,
    INT32_MIN,
    IntegerScale,
    InvalidScaleError,
    integer_scale,
)
from nmpsim.records import frozen

LONGEST_SHIFT = 31
"""Largest shift of the rescale unit."""
ZERO_SCALE = IntegerScale(0, 0, 0)
"""A factor of 0; also the words of a scale that a profile does not use."""
ScaleForm: TypeAlias = Callable[[float, Place], IntegerScale]
"""Converts a real factor to the words of a scale; errors name the place."""


@frozen
class Overflow:
    """Inputs from which on the 32-bit product of an integer form overflows; None for never."""

    low: int | None
    high: int | None


def product(a: float, b: float) -> float:
    """Return ``a * b`` in float32."""
    with np.errstate(all="ignore"):
        return float(np.float32(a) * np.float32(b))


def quotient(a: float, b: float) -> float:
    """Return ``a / b`` in float32."""
    with np.errstate(all="ignore"):
        return float(np.float32(a) / np.float32(b))


def float_word(value: float, place: Place) -> int:
    """Return the bits of a float32; raise UserError (COMP001) if it is not finite."""
    if not math.isfinite(value):
        raise _impossible("has no float32", value, place, "a finite number")
    return int(np.float32(value).view(np.uint32))


def integer_form(ratio: float, place: Place, accumulator_bits: int = 32) -> IntegerScale:
    """Return Glow's integer form of a factor, as ``quantizeScaleOffset32To8`` computes it.

    A ``post`` beyond 31 leaves nothing of 32 bits, but may leave bits of the 48 of Int16. The unit
    shifts the excess before the product, which is the same for a power of two.
    """
    try:
        scale = integer_scale(ratio)
    except InvalidScaleError as error:
        raise _impossible("has no integer form", ratio, place, str(error)) from error
    excess = max(scale.post - LONGEST_SHIFT, 0)
    if excess and (accumulator_bits == 32 or scale.pre + excess > LONGEST_SHIFT):
        return ZERO_SCALE
    return IntegerScale(scale.pre + excess, scale.post - excess, scale.mul)


def float_form(factor: float, place: Place) -> IntegerScale:
    """Return a factor that the unit multiplies in float32."""
    if not (math.isfinite(factor) and factor >= 0):
        raise _impossible("is no factor of the rescale unit", factor, place, "a finite float32")
    return IntegerScale(0, 0, float_word(factor, place))


def fixed_point_form(factor: float, place: Place, left_shift: int = 0) -> IntegerScale:
    """Return a shift left by ``pre``, a factor ``mul / 2^31`` and a shift right by ``post``.

    Source: TFLite's ``QuantizeMultiplier`` (quantization_util.cc); ``factor`` is a double.
    ``left_shift`` is added to ``pre``.
    """
    if not (math.isfinite(factor) and factor >= 0):
        raise _impossible("is no factor of the rescale unit", factor, place, "0 or more, finite")
    fraction, exponent = math.frexp(factor)
    mul = math.floor(fraction * (1 << 31) + 0.5)
    if mul == 1 << 31:
        mul, exponent = mul // 2, exponent + 1
    if exponent < -LONGEST_SHIFT:
        mul, exponent = 0, 0
    pre = left_shift + max(exponent, 0)
    if pre > LONGEST_SHIFT:
        raise _impossible("is too large for the rescale unit", factor, place, "less than 2^31")
    return IntegerScale(pre, max(-exponent, 0), mul)


def _impossible(why: str, ratio: float, place: Place, expected: str) -> UserError:
    return fail("COMP001", f"a ratio of scales {why}", place=place, found=ratio, expected=expected)


def convert_factors(
    form: ScaleForm, factors: npt.NDArray[Any], place: Place
) -> tuple[IntegerScale, ...]:
    """Convert each factor of an array; equal factors are converted once."""
    known = {factor: form(factor, place) for factor in dict.fromkeys(factors.tolist())}
    return tuple(known[factor] for factor in factors.tolist())


def scale_words(prefix: str, scale: IntegerScale) -> dict[str, int]:
    """Return the three words of a scale, such as ``out_pre``."""
    return {f"{prefix}_pre": scale.pre, f"{prefix}_mul": scale.mul, f"{prefix}_post": scale.post}


def factor_words(profile: int, form: ScaleForm, place: Place, **factors: float) -> dict[str, int]:
    """Return the words of a profile and of its factors, named by their prefixes."""
    words = {"profile": profile}
    for prefix, factor in factors.items():
        words |= scale_words(prefix, form(factor, place))
    return words


def find_overflow(form: IntegerScale, accumulator_bits: int) -> Overflow:
    """Return the smallest positive and largest negative x whose rescaled value exceeds 32 bits.

    The value is ``(x >> pre) * mul + half``. A side is None where no x of ``accumulator_bits`` bits
    exceeds them.
    """
    half = (1 << form.post) >> 1
    high = ((INT32_MAX - half) // form.mul + 1) << form.pre
    low = (-((half - INT32_MIN) // form.mul) << form.pre) - 1
    limit = 1 << (accumulator_bits - 1)
    return Overflow(low if low >= -limit else None, high if high < limit else None)
