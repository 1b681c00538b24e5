"""Filling of the tables of :mod:`~nmpsim.kernels.channels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import GLOW_INT, NMP
from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import get_accumulator_max
from nmpsim.kernels.array_types import Float64s, Int, Int64s
from nmpsim.kernels.channels import ADDEND, OFFSET, START, read_channel_record, read_channel_scales
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.operands import OperandOffsets, OutputPosition, Quantizer
from nmpsim.kernels.profiles import (
    compute_initial_bias,
    fill_float_factors,
    fill_integer_scale,
    is_float_profile,
    zero_point_before_rounding,
)
from nmpsim.kernels.saturate import INT32_MAX, INT32_MIN, ONCE, SaturationCounters, limit_value
from nmpsim.kernels.saturation_stages import ACCUMULATOR, BIAS, HIGH, LOW


@jit
def fill_channel_tables(
    spm: Scratchpad, at: OperandOffsets, q: Quantizer, first: Int, integers: Int64s, reals: Float64s
) -> None:
    """Fill the tables of the channels from ``first`` on, except for the row START."""
    for c in range(integers.shape[1]):
        offset, bias_scale, out = read_channel_scales(spm, at, first + c, q)
        bias, _ = read_channel_record(spm, at, first + c)
        integers[OFFSET, c] = offset
        integers[ADDEND, c] = q.out_offset - zero_point_before_rounding(q)
        if is_float_profile(q.profile):
            fill_float_factors(q, bias, bias_scale, out, reals, c)
        else:
            fill_integer_scale(q, bias, bias_scale, out, integers, c)


@jit
def fill_unsaturated_starts(
    spm: Scratchpad, at: OperandOffsets, q: Quantizer, first: Int, integers: Int64s
) -> Any:
    """Fill the row START for Int8 on integer scales; return False if anything saturates."""
    least, most = np.int64(0), np.int64(0)
    for c in range(integers.shape[1]):
        _, scale, _ = read_channel_scales(spm, at, first + c, q)
        bias, zero_term = read_channel_record(spm, at, first + c)
        if q.profile == NMP:
            bias = np.int64(0)
        total = (bias >> scale.pre) * scale.mul + ((ONCE << scale.post) >> ONCE)
        start = (total >> scale.post) + zero_term
        least = min(least, min(bias, min(total, start)))
        most = max(most, max(bias, max(total, start)))
        integers[START, c] = start
    return least >= INT32_MIN and most <= INT32_MAX


@jit
def fill_starts(
    spm: Scratchpad,
    at: OperandOffsets,
    q: Quantizer,
    first: Int,
    integers: Int64s,
    pixels: Int,
    place: OutputPosition,
    counters: SaturationCounters,
) -> Any:
    """Fill the row START with bias plus zero term; whatever saturates does so for every pixel.

    Returns whether nothing saturated, for Int8; only its tables are reused.
    """
    is_plain = q.element != INT16 and q.profile in (GLOW_INT, NMP)
    if is_plain and fill_unsaturated_starts(spm, at, q, first, integers):
        return True
    high, before = get_accumulator_max(q.element), count_saturated_starts(place, counters)
    low = -high - ONCE
    for c in range(integers.shape[1]):
        index = place.origin + first + c
        _, scale, _ = read_channel_scales(spm, at, first + c, q)
        stored, zero_term = read_channel_record(spm, at, first + c)
        bias = compute_initial_bias(q, stored, scale, low, high, pixels, index, counters)
        start = bias + zero_term
        start = limit_value(start, low, high, ACCUMULATOR, pixels, index, counters)
        integers[START, c] = start
    return q.element != INT16 and count_saturated_starts(place, counters) == before


@jit
def count_saturated_starts(place: OutputPosition, counters: SaturationCounters) -> Any:
    """Return how many biases and initial sums of the layer have saturated."""
    counted = counters.layers[counters.layer].saturated
    return (
        counted[BIAS, LOW]
        + counted[BIAS, HIGH]
        + counted[ACCUMULATOR, LOW]
        + counted[ACCUMULATOR, HIGH]
    )
