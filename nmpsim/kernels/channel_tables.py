"""Fill the tables of :mod:`nmpsim.kernels.channels` from descriptor, scratchpad and profile."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import GLOW_INT, NMP
from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import sum_high
from nmpsim.kernels.array_types import Float64s, Int, Int64s
from nmpsim.kernels.channels import ADDEND, OFFSET, START, record_of, scales_of
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.operands import Operands, Place, Quantizer
from nmpsim.kernels.profiles import bias_in_sum, early_zero_point, is_real, put_integers, put_reals
from nmpsim.kernels.saturate import INT32_HIGH, INT32_LOW, ONCE, SaturationCounters, limit_value
from nmpsim.kernels.saturation_stages import ACCUMULATOR, BIAS, HIGH, LOW


@jit
def put_channels(
    spm: Scratchpad, at: Operands, q: Quantizer, first: Int, integers: Int64s, reals: Float64s
) -> None:
    """Fill both tables, but for the starts, with the channels from ``first`` on."""
    for c in range(integers.shape[1]):
        offset, bias_scale, out = scales_of(spm, at, first + c, q)
        bias, _ = record_of(spm, at, first + c)
        integers[OFFSET, c] = offset
        integers[ADDEND, c] = q.out_offset - early_zero_point(q)
        if is_real(q.profile):
            put_reals(q, bias, bias_scale, out, reals, c)
        else:
            put_integers(q, bias, bias_scale, out, integers, c)


@jit
def put_plain_starts(
    spm: Scratchpad, at: Operands, q: Quantizer, first: Int, integers: Int64s
) -> Any:
    """As ``put_starts``, of Int8 on integer scales; False if something saturates on the way."""
    least, most = np.int64(0), np.int64(0)
    for c in range(integers.shape[1]):
        _, scale, _ = scales_of(spm, at, first + c, q)
        bias, zero_term = record_of(spm, at, first + c)
        if q.profile == NMP:
            bias = np.int64(0)
        total = (bias >> scale.pre) * scale.mul + ((ONCE << scale.post) >> ONCE)
        start = (total >> scale.post) + zero_term
        least = min(least, min(bias, min(total, start)))
        most = max(most, max(bias, max(total, start)))
        integers[START, c] = start
    return least >= INT32_LOW and most <= INT32_HIGH


@jit
def put_starts(
    spm: Scratchpad,
    at: Operands,
    q: Quantizer,
    first: Int,
    integers: Int64s,
    pixels: Int,
    place: Place,
    counters: SaturationCounters,
) -> Any:
    """Bias plus zero term of each channel; what saturates does so for every pixel.

    True if nothing is, of Int8: only its tables are kept.
    """
    is_plain = q.element != INT16 and q.profile in (GLOW_INT, NMP)
    if is_plain and put_plain_starts(spm, at, q, first, integers):
        return True
    high, before = sum_high(q.element), saturated_starts(place, counters)
    low = -high - ONCE
    for c in range(integers.shape[1]):
        index = place.origin + first + c
        _, scale, _ = scales_of(spm, at, first + c, q)
        stored, zero_term = record_of(spm, at, first + c)
        bias = bias_in_sum(q, stored, scale, low, high, pixels, index, counters)
        start = bias + zero_term
        start = limit_value(start, low, high, ACCUMULATOR, pixels, index, counters)
        integers[START, c] = start
    return q.element != INT16 and saturated_starts(place, counters) == before


@jit
def saturated_starts(place: Place, counters: SaturationCounters) -> Any:
    """How many have saturated in a layer, as a thread has counted."""
    counted = counters.layers[counters.layer].saturated
    return (
        counted[BIAS, LOW]
        + counted[BIAS, HIGH]
        + counted[ACCUMULATOR, LOW]
        + counted[ACCUMULATOR, HIGH]
    )
