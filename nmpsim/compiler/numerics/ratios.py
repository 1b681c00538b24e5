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
from nmpsim.kernels.hostops.rounding import LONGEST_SHIFT, quantize_multiplier
from nmpsim.kernels.scale import (
    INT32_MAX,
    INT32_MIN,
    IntegerScale,
    InvalidScaleError,
    make_integer_scale,
)
from nmpsim.records import frozen

ZERO_SCALE = IntegerScale(0, 0, 0)
"""A factor of 0; also the words of a scale that a profile does not use."""
ScaleForm: TypeAlias = Callable[[float, Place], IntegerScale]
"""Converts a real factor to the words of a scale; errors name the place."""


@frozen
class OverflowBounds:
    """Smallest positive and largest negative inputs that overflow 32 bits, or None if none does."""

    low: int | None
    high: int | None


def multiply_float32(a: float, b: float) -> float:
    """Return ``a * b``, rounded to float32."""
    with np.errstate(all="ignore"):
        return float(np.float32(a) * np.float32(b))


def divide_float32(a: float, b: float) -> float:
    """Return ``a / b``, rounded to float32."""
    with np.errstate(all="ignore"):
        return float(np.float32(a) / np.float32(b))


def encode_float32(value: float, place: Place) -> int:
    """Return the bits of a value rounded to float32; raise UserError (COMP001) if not finite."""
    if not math.isfinite(value):
        raise _impossible("is not finite in float32", value, place, "a finite factor")
    return int(np.float32(value).view(np.uint32))


def make_shift_scale(ratio: float, place: Place, accumulator_bits: int = 32) -> IntegerScale:
    """Return the integer scale of a factor, as Glow's ``quantizeScaleOffset32To8`` chooses it.

    A ``post`` beyond 31 leaves nothing of 32 bits, but may leave bits of the 48 of Int16. The unit
    shifts the excess before the product, which is the same for a power of two.
    """
    try:
        scale = make_integer_scale(ratio)
    except InvalidScaleError as error:
        raise _impossible(
            "has no integer form in Glow's arithmetic", ratio, place, str(error)
        ) from error
    excess = max(scale.post - LONGEST_SHIFT, 0)
    if excess and (accumulator_bits == 32 or scale.pre + excess > LONGEST_SHIFT):
        return ZERO_SCALE
    return IntegerScale(scale.pre + excess, scale.post - excess, scale.mul)


def make_float_scale(factor: float, place: Place) -> IntegerScale:
    """Return a scale whose field ``mul`` contains the float32 bits of a factor."""
    if not (math.isfinite(factor) and factor >= 0):
        raise _impossible(
            "is negative or not finite", factor, place, "a finite factor of 0 or more"
        )
    return IntegerScale(0, 0, encode_float32(factor, place))


def make_fixed_point_scale(factor: float, place: Place) -> IntegerScale:
    """Return a factor's 31-bit multiplier and shifts, as TFLite's ``QuantizeMultiplier``.

    Source: TFLite's ``QuantizeMultiplier`` (quantization_util.cc); ``factor`` is a double.
    """
    if not (math.isfinite(factor) and factor >= 0):
        raise _impossible(
            "is negative or not finite", factor, place, "a finite factor of 0 or more"
        )
    mul, exponent = quantize_multiplier(factor)
    pre = max(exponent, 0)
    if pre > LONGEST_SHIFT:
        raise _impossible(
            "is too large for the rescale unit", factor, place, "a factor less than 2^31"
        )
    return IntegerScale(pre, max(-exponent, 0), mul)


def make_float64_scales(factor: float, place: Place) -> tuple[IntegerScale, IntegerScale]:
    """Split a double into the words of two scales: its upper 31 bits, and its lower 22 bits.

    The shift of the second scale adds to that of the first, for factors below 2**-32.
    """
    make_fixed_point_scale(factor, place)  # raises for an impossible factor
    fraction, exponent = math.frexp(factor)
    if exponent < -2 * LONGEST_SHIFT:
        return ZERO_SCALE, ZERO_SCALE  # every result is 0
    high, low = divmod(int(fraction * (1 << 53)), 1 << 22)
    post = max(-exponent, 0)
    out = IntegerScale(max(exponent, 0), min(post, LONGEST_SHIFT), high)
    return out, IntegerScale(0, post - out.post, low)


def _impossible(why: str, ratio: float, place: Place, expected: str) -> UserError:
    message, hint = f"a rescale factor {why}", "Quantize the tensors with other scales."
    return fail("COMP001", message, place=place, found=ratio, expected=expected, hint=hint)


def make_scales(
    form: ScaleForm, factors: npt.NDArray[Any], place: Place
) -> tuple[IntegerScale, ...]:
    """Apply ``form`` to each factor of an array; return the scales in order."""
    known = {factor: form(factor, place) for factor in dict.fromkeys(factors.tolist())}
    return tuple(known[factor] for factor in factors.tolist())


def make_scale_words(prefix: str, scale: IntegerScale) -> dict[str, int]:
    """Return a scale's descriptor words ``PREFIX_pre``, ``PREFIX_mul`` and ``PREFIX_post``."""
    return {f"{prefix}_pre": scale.pre, f"{prefix}_mul": scale.mul, f"{prefix}_post": scale.post}


def find_overflow(form: IntegerScale, accumulator_bits: int) -> OverflowBounds:
    """Return the inputs closest to zero that overflow 32 bits when rescaled.

    The value is ``(x >> pre) * mul + half``. A side is None where no x of ``accumulator_bits`` bits
    exceeds them.
    """
    half = (1 << form.post) >> 1
    high = ((INT32_MAX - half) // form.mul + 1) << form.pre
    low = (-((half - INT32_MIN) // form.mul) << form.pre) - 1
    limit = 1 << (accumulator_bits - 1)
    return OverflowBounds(low if low >= -limit else None, high if high < limit else None)
