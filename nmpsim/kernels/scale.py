"""Integer scales of a real factor: ``y = (((x >> pre) * mul + half) >> post) + offset``.

Glow's compiled kernels (libjit) rescale 32-bit accumulators like this: its
``quantizeScaleOffset32To8`` chooses the integers, its ``QuantizationTransform32To8`` applies them.
The multiplier has about nine bits, so that a 32-bit product does not overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.records import frozen

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
_LONGEST_SHIFT = 62
"""Longest shift of a value saturated to 32 bits that matters; 64 is undefined in NumPy."""

_MAX_PRODUCT = np.int64(1 << 62)


class InvalidScaleError(ValueError):
    """Exception for a rescale factor that is not a positive finite float32."""


@frozen
class IntegerScale:
    """Integer scale ``((x >> pre) * mul + half) >> post`` with rounding half up."""

    pre: int
    post: int
    mul: int


def make_integer_scale(scale: float) -> IntegerScale:
    """Return the integer scale of a positive factor after rounding the factor to float32.

    A power of two becomes a shift, or a multiplication if it is above one. A multiplier beyond
    int32 is clamped, because any input but zero saturates anyway. Other factors are doubled:

    1. Each doubling adds one to ``post``, until the factor is 256 or more, at most 15 times.
    2. Then each doubling adds one to ``pre``, until the factor is 255 or more, at most
       ``post // 2`` times.
    3. The multiplier is the result, rounded.

    Raises
    ------
    InvalidScaleError
        The factor is not a positive finite number.
    """
    pre, post, mul = make_integer_scales(np.array(scale))
    return IntegerScale(int(pre), int(post), int(mul))


def make_integer_scales(
    scales: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the arrays ``(pre, post, mul)`` of the integer scales of an array of factors.

    With ``s = m * 2**e`` and ``0.5 <= m < 1``, ``k`` doublings give ``m * 2**(e + k)``, so the
    number of doublings follows from ``e``.

    Raises
    ------
    InvalidScaleError
        A factor is not a positive finite number.
    """
    s = np.asarray(scales, dtype=np.float32).astype(np.float64)
    is_valid = (s > 0.0) & np.isfinite(s)
    if not np.all(is_valid):
        invalid = np.asarray(scales)[~is_valid].flat[0]
        raise InvalidScaleError(f"the rescale factor {invalid} is not positive and finite")
    mantissa, exponent = np.frexp(s)
    post = np.maximum(np.maximum(-exponent, np.minimum(15, 9 - exponent)), 0)
    bits_before_pre = exponent + post
    doublings_to_255 = np.where(mantissa >= 255.0 / 256.0, 8, 9) - bits_before_pre
    pre = np.clip(doublings_to_255, 0, post // 2)
    mul = np.floor(np.ldexp(mantissa, bits_before_pre + pre) + 0.5)

    is_power = mantissa == 0.5
    pre = np.where(is_power, 0, pre)
    post = np.where(is_power, np.maximum(1 - exponent, 0), post)
    mul = np.where(is_power, np.ldexp(1.0, np.maximum(exponent - 1, 0)), mul)
    mul = np.minimum(mul, float(INT32_MAX))
    return pre.astype(np.int32), post.astype(np.int32), mul.astype(np.int32)


def apply_integer_scale(
    x: npt.NDArray[np.int64], scale: IntegerScale, offset: int = 0
) -> npt.NDArray[np.int64]:
    """Rescale integers by one integer scale and add an offset."""
    return apply_integer_scales(x, scale.pre, scale.post, scale.mul, offset)


def apply_integer_scales(
    x: npt.NDArray[np.int64],
    pre: npt.NDArray[np.int32] | int,
    post: npt.NDArray[np.int32] | int,
    mul: npt.NDArray[np.int32] | int,
    offset: int = 0,
    saturate: Callable[[npt.NDArray[np.int64], int, int], npt.NDArray[np.int64]] = np.clip,
) -> npt.NDArray[np.int64]:
    """Rescale integers by broadcast integer scales, rounding half up, and add an offset.

    Shifts round down, so halves are rounded up. Computed in 64 bits; ``saturate`` limits the sum
    before the last shift to int32. ``pre``, ``post`` and ``mul`` broadcast against ``x`` (one for
    each channel), whose values are within +-2^61.
    """
    mul64 = np.asarray(mul, dtype=np.int64)
    shift = np.minimum(np.asarray(post, dtype=np.int64), _LONGEST_SHIFT)
    half = (np.int64(1) << shift) >> np.int64(1)
    # Products beyond 62 bits are far beyond int32, even with the half added.
    most = _MAX_PRODUCT // mul64
    narrowed = np.clip(np.asarray(x, dtype=np.int64) >> np.asarray(pre), -most, most)
    total = saturate(narrowed * mul64 + half, INT32_MIN, INT32_MAX)
    result: npt.NDArray[np.int64] = (total >> shift) + np.int64(offset)
    return result
