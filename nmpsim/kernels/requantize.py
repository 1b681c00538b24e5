"""Requantization of sums with 64-bit arithmetic, a run of channels at a time."""

from __future__ import annotations

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.array_types import Float64s, Int, Int64s
from nmpsim.kernels.channels import ADDEND
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Quantizer
from nmpsim.kernels.profiles import scale_sums
from nmpsim.kernels.saturate import (
    INT32_MAX,
    INT32_MIN,
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
    """Turn sums (int64) into results in place, with the tables of their channels.

    ``index`` is the first one's in the layer's output.
    """
    scale_sums(run, integers, reals, q, index, counters)
    for c in range(run.size):
        run[c] += integers[ADDEND, c]
    if q.leaky:
        apply_leaky(run, q, index, counters)
    clip_run(run, q.clip, index, counters)


@jit
def apply_leaky(run: Int64s, q: Quantizer, index: Int, counters: SaturationCounters) -> None:
    """Scale results below the zero point by the slope of a leaky ReLU."""
    low, high = np.int64(INT32_MIN), np.int64(INT32_MAX)
    for c in range(run.size):
        x = run[c] - q.out_offset
        if x >= 0:
            continue
        if q.element != INT16:
            x = limit_value(x, low, high, RESCALE, ONCE, index + c, counters)
        x = apply_scale(x, q.leaky_scale, q.element, RESCALE, ONCE, index + c, counters)
        run[c] = x + q.out_offset
