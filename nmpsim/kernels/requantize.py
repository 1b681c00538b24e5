"""Requantization of sums with 64-bit arithmetic, a run of channels at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Quantizer
from nmpsim.kernels.profiles import SUM_NUMBERS, apply_leaky, is_custom, scale_sums
from nmpsim.kernels.saturate import SaturationCounters, clip_elements


@jit
def get_sum_formula(q: Quantizer) -> Any:
    """Return the index in ``SUMS`` of a quantizer's formula, or -1 if it is custom."""
    return np.int64(-1) if is_custom(q.profile) else np.int64(SUM_NUMBERS[q.profile, q.element])


@jit
def has_vector_code(q: Quantizer) -> Any:
    """Return whether vector code can requantize: no leaky ReLU and no custom formula."""
    return q.leaky == 0 and not is_custom(q.profile)


@jit
def requantize(
    run: Int64s, table: Int64s, q: Quantizer, index: Int, counters: SaturationCounters
) -> None:
    """Replace int64 sums by requantized, clipped results in place; count clipped values.

    ``index`` is the first one's in the layer's output.
    """
    scale_sums(run, table, q, index, counters)
    if q.leaky:
        apply_leaky(run, q, index, counters)
    clip_elements(run, q.clip, index, counters)
