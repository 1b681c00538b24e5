"""Operations of two tensors, element by element, on one core's scratchpad.

A run is a row of a tile; where nothing else is said its result goes into ``left``.
"""

from __future__ import annotations

import numpy as np

from nmpsim.kernels.elementwise_int32 import (
    ENDS,
    NUMBERS,
    SUM,
    is_regular,
    put_run,
    put_sum_numbers,
)
from nmpsim.kernels.jit import jit_allocating
from nmpsim.kernels.movement import Scratchpad, read_run, write_run
from nmpsim.kernels.operands import Pair, PairScales, Place
from nmpsim.kernels.pair_profiles import pair_results
from nmpsim.kernels.saturate import SaturationCounters, clip_run, saturate_run, stages_of
from nmpsim.kernels.saturation_stages import RESCALE
from nmpsim.kernels.scale_runs import add_integer
from nmpsim.kernels.vector_code import LANES


@jit_allocating
def eltwise(
    spm: Scratchpad, t: Pair, q: PairScales, place: Place, counters: SaturationCounters
) -> None:
    """Binary operation of one tile."""
    count = t.columns
    left = np.zeros(count, np.int64)
    right = np.zeros(count, np.int64)
    reals = np.zeros(count, np.float32)
    other = np.zeros(count, np.float32)
    numbers = np.empty(NUMBERS, np.int32)
    in_int32 = put_sum_numbers(t, q, numbers)
    channels = counters.layers[place.layer].channels
    counts = np.empty((2, min(count, channels)), np.int32)
    ends = np.empty((ENDS, LANES), np.int32)
    stages = stages_of(q.clip)
    for row in range(t.rows):
        index = place.origin + row * place.stride_y
        sides = (
            t.lhs + row * t.lhs_stride,
            t.rhs + row * t.rhs_stride,
            t.output + row * t.out_stride,
        )
        if in_int32 and is_regular(sides, index, count, channels):
            put_run(
                spm, SUM, sides, count, numbers, counts, ends, stages, index, place.layer, counters
            )
            continue
        read_run(spm, t.element, t.lhs + row * t.lhs_stride, left, count)
        read_run(spm, t.rhs_size, t.rhs + row * t.rhs_stride, right, count)
        add_integer(left, count, -q.lhs_offset)
        add_integer(right, count, -q.rhs_offset)
        saturate_run(right, count, RESCALE, index, place.layer, counters)
        pair_results(left, right, reals, other, count, t, q, index, place.layer, counters)
        clip_run(left, count, q.clip, index, place.layer, counters)
        write_run(left, count, spm, t.element, t.output + row * t.out_stride)
    counters.layers[place.layer].elements += t.rows * count
