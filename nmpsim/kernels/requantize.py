"""From sums to results: scale, zero point, activation, clip, a run of channels at a time."""

from __future__ import annotations

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.array_types import Float64s, Int, Int64s
from nmpsim.kernels.channels import ADDEND
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Quantizer
from nmpsim.kernels.profiles import scale_sums
from nmpsim.kernels.saturate import (
    INT32_HIGH,
    INT32_LOW,
    ONCE,
    SaturationCounters,
    apply_scale,
    clip_run,
    limit_value,
)
from nmpsim.kernels.saturation_stages import RESCALE


@jit
def requantize(
    run: Int64s,
    integers: Int64s,
    reals: Float64s,
    q: Quantizer,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Results of sums (int64), in place; the tables are those of their channels.

    ``index`` is the first one's in the layer's output, here and below.
    """
    scale_sums(run, integers, reals, q, index, counters)
    for c in range(run.size):
        run[c] += integers[ADDEND, c]
    if q.leaky:
        leak(run, q, index, counters)
    clip_run(run, run.size, q.clip, index, counters)


@jit
def leak(run: Int64s, q: Quantizer, index: Int, counters: SaturationCounters) -> None:
    """Results below the zero point on a scale of their own."""
    low, high = np.int64(INT32_LOW), np.int64(INT32_HIGH)
    for c in range(run.size):
        x = run[c] - q.out_offset
        if x >= 0:
            continue
        if q.element != INT16:
            x = limit_value(x, low, high, RESCALE, ONCE, index + c, counters)
        x = apply_scale(x, q.leaky_scale, q.element, RESCALE, ONCE, index + c, counters)
        run[c] = x + q.out_offset
