"""What profiles are made of: the integer scale, the fixed-point scale, the clip."""

from __future__ import annotations

import numpy as np

from nmpsim.core.reference.events import ResultPositions, clamp, saturate
from nmpsim.core.reference.operands import INT8, Element, Float32s, Scale, Words
from nmpsim.core.reference.rounding import doubling_high, round_even, shift_away
from nmpsim.core.state import Int64s
from nmpsim.isa.words import WANTED_HIGH, WANTED_LOW
from nmpsim.kernels.saturation_stages import ACTIVATION, RESCALE, RESULT


def integer_scale(
    x: Int64s, scale: Scale, element: Element, place: ResultPositions, stage: int = RESCALE
) -> Int64s:
    """``((x >> pre) * mul + half) >> post`` (Glow's ``QuantizationTransform32To8``).

    Int8: ``x`` fits 32 bits, and the sum before the last shift saturates to 32 bits. Int16: what
    would leave 62 bits saturates before the product.
    """
    half = np.left_shift(np.int64(1), scale.post) >> 1
    shifted = x >> scale.pre
    if element == INT8:
        total = saturate(shifted * scale.mul + half, 32, stage, place)
    else:
        limit = (1 << 61) // np.maximum(np.abs(scale.mul), 1)
        total = clamp(shifted, -limit, limit, (stage, stage), place) * scale.mul + half
    result: Int64s = total >> scale.post
    return result


def fixed_point(x: Int64s, scale: Scale, place: ResultPositions) -> Int64s:
    """``x * 2^pre * (mul / 2^31) / 2^post`` (TFLite's ``MultiplyByQuantizedMultiplier``).

    Rounds twice, in the product and in the shift; what does not fit 32 bits after the left shift
    saturates. Before it, ``x`` is held where 64 bits hold the shifted value.
    """
    limit = (1 << 62) >> scale.pre
    shifted = np.clip(x, -limit, limit) << scale.pre
    return shift_away(doubling_high(saturate(shifted, 32, RESCALE, place), scale.mul), scale.post)


def wide_fixed_point(x: Int64s, scale: Scale) -> Int64s:
    """The same for sums of 48 bits (TFLite's form for int64), halves up.

    The factor is rounded to 16 bits and the shift is ``15 - pre + post``.
    """
    rounded = (np.asarray(scale.mul) + 0x8000) >> 16
    reduced = np.where(np.asarray(scale.mul) < 0x7FFF_0000, rounded, 0x7FFF)
    shift = 15 - scale.pre + scale.post
    result: Int64s = (x * reduced + np.left_shift(np.int64(1), shift - 1)) >> shift
    return result


def round_unsigned(values: Float32s, offset: int, element: Element) -> Int64s:
    """``rne(values + f32(offset))``, the zero point being that of PyTorch's unsigned tensor.

    That is greater by 128 than an Int8 tensor's, which matters where the sum is rounded.
    """
    moved = 128 if element == INT8 else 0
    return round_even(values + np.float32(offset + moved)) - moved


def clip(values: Int64s, d: Words, place: ResultPositions) -> Int64s:
    """``values`` within the descriptor's clip range."""
    low_stage = ACTIVATION if d["clip_wanted"] & WANTED_LOW else RESULT
    high_stage = ACTIVATION if d["clip_wanted"] & WANTED_HIGH else RESULT
    return clamp(values, d["clip_low"], d["clip_high"], (low_stage, high_stage), place)
