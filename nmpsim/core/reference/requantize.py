"""From a sum to a result: integer scale, activation, clip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from nmpsim.core.reference.events import Account, clamp, to_int32
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ACTIVATION_LEAKY, WANTED_HIGH, WANTED_LOW
from nmpsim.kernels.stages import ACTIVATION, RESCALE, RESULT

Words = Mapping[str, int]
"""A descriptor: word name -> value."""


@attrs.frozen
class Scale:
    """A real factor as integers; each may also be an array, one value a channel."""

    pre: Any
    mul: Any
    post: Any


def scale_of(d: Words, prefix: str) -> Scale:
    """The scale whose words begin with ``prefix``."""
    return Scale(d[f"{prefix}_pre"], d[f"{prefix}_mul"], d[f"{prefix}_post"])


def rescale(
    x: Int64s, scale: Scale, index: Int64s, account: Account, stage: int = RESCALE, times: int = 1
) -> Int64s:
    """``((x >> pre) * mul + half) >> post``; the sum before the last shift saturates to 32 bits.

    ``x`` fits 32 bits, so 64 bits hold the product.
    """
    half = np.left_shift(np.int64(1), scale.post) >> 1
    total = (x >> scale.pre) * scale.mul + half
    result: Int64s = to_int32(total, stage, index, account, times) >> scale.post
    return result


def clip(values: Int64s, d: Words, index: Int64s, account: Account) -> Int64s:
    """``values`` within the descriptor's clip range."""
    low_stage = ACTIVATION if d["clip_wanted"] & WANTED_LOW else RESULT
    high_stage = ACTIVATION if d["clip_wanted"] & WANTED_HIGH else RESULT
    stages = (low_stage, high_stage)
    return clamp(values, d["clip_low"], d["clip_high"], stages, index, account)


def finish(totals: Int64s, d: Words, scale: Scale, index: Int64s, account: Account) -> Int64s:
    """Results from finished sums: scale, zero point, activation, clip."""
    offset = d["out_offset"]
    values = rescale(totals, scale, index, account) + offset
    if d.get("activation") == ACTIVATION_LEAKY:
        below = values < offset
        leaky = rescale(values[below] - offset, scale_of(d, "leaky"), index[below], account)
        values[below] = leaky + offset
    return clip(values, d, index, account)
