"""Functions that fill the table of channels (see :mod:`~nmpsim.kernels.channels`)."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import get_accumulator_max
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.channels import OFFSET, START, read_channel_record, read_channel_scales
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ScratchpadViews
from nmpsim.kernels.operands import OperandOffsets, OutputPosition, Quantizer
from nmpsim.kernels.profiles import fill_parameters, scale_bias
from nmpsim.kernels.saturate import ONCE, SaturationCounters, clamp_value
from nmpsim.kernels.saturation_stages import ACCUMULATOR, BIAS, HIGH, LOW


@jit
def fill_channel_table(
    spm: ScratchpadViews, at: OperandOffsets, q: Quantizer, first: Int, table: Int64s
) -> None:
    """Fill ``table`` with the parameters of channels from ``first`` on, except initial sums."""
    for c in range(table.shape[1]):
        offset, bias_scale, out = read_channel_scales(spm, at, first + c, q)
        bias, _ = read_channel_record(spm, at, first + c)
        table[OFFSET, c] = offset
        fill_parameters(q, bias, bias_scale, out, table, c)


@jit
def fill_initial_sums(
    spm: ScratchpadViews,
    at: OperandOffsets,
    q: Quantizer,
    first: Int,
    table: Int64s,
    pixels: Int,
    place: OutputPosition,
    counters: SaturationCounters,
) -> Any:
    """Write each channel's initial sum; return whether the sums are Int8 and none saturated.

    Returns whether nothing saturated, for Int8; only its tables are reused.
    """
    high, before = get_accumulator_max(q.element), get_saturation_count(place, counters)
    low = -high - ONCE
    for c in range(table.shape[1]):
        index = place.origin + first + c
        _, scale, _ = read_channel_scales(spm, at, first + c, q)
        stored, zero_term = read_channel_record(spm, at, first + c)
        start = scale_bias(q, stored, scale, pixels, index, counters) + zero_term
        start = clamp_value(start, low, high, ACCUMULATOR, pixels, index, counters)
        table[START, c] = start
    return q.element != INT16 and get_saturation_count(place, counters) == before


@jit
def get_saturation_count(place: OutputPosition, counters: SaturationCounters) -> Any:
    """Return how many biases and sums of the current layer have saturated so far."""
    counted = counters.layers[counters.layer].saturated
    return (
        counted[BIAS, LOW]
        + counted[BIAS, HIGH]
        + counted[ACCUMULATOR, LOW]
        + counted[ACCUMULATOR, HIGH]
    )
