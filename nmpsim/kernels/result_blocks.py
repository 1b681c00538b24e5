"""What results of sixteen channels at a time have in common: how sums are scaled, what is counted.

Rows of a table, int32 [blocks, rows, LANES], hold the accounts of each lane of a block of channels:
BEFORE of them from a row on, and after these what they were before the last results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import (
    FBGEMM,
    FLOAT,
    GLOW_FLOAT,
    GLOW_FLOAT_LATE,
    GLOW_INT,
    NMP,
    ONEDNN,
    Q31,
    Q31_ONCE,
    dispatches_on_profiles,
)
from nmpsim.kernels.array_types import Int, Int32s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Clip, Quantizer
from nmpsim.kernels.saturate import INT32_HIGH, INT32_LOW, SaturationCounters, record, stages_of
from nmpsim.kernels.saturation_stages import HIGH, LOW
from nmpsim.kernels.vector_code import LANES

INTEGER, FIXED, AWAY, EVEN = range(4)
"""How sums are scaled: by shifts and a product; by TFLite's fixed point; by float32 numbers that
are rounded with halves away from zero, or to even."""
BEYOND = 4
"""Bit of what makes results answers: a sum, or a result, is beyond what it can do."""
BELOW, ABOVE, LEAST, MOST = range(4)
"""Accounts: results limited from below and above, least and most before that."""
BEFORE = 4

_ONE: Any = np.int64(1)


@jit
@dispatches_on_profiles("conv")
def way_of(q: Quantizer) -> Any:
    """How sixteen channels at a time are scaled; -1 if they cannot be."""
    if q.leaky or q.profile == Q31_ONCE:
        return -_ONE
    if q.profile in (GLOW_INT, NMP):
        return np.int64(INTEGER)
    if q.profile == Q31:
        return np.int64(FIXED)
    if q.profile in (GLOW_FLOAT, GLOW_FLOAT_LATE):
        return np.int64(AWAY)
    if q.profile in (FLOAT, FBGEMM, ONEDNN):
        return np.int64(EVEN)
    return -_ONE


@jit
def clear_accounts(table: Int32s, first: Int) -> None:
    """Count from zero; the accounts begin at row ``first``."""
    for block in range(table.shape[0]):
        table[block, first + BELOW] = 0
        table[block, first + ABOVE] = 0
        table[block, first + LEAST] = INT32_HIGH
        table[block, first + MOST] = INT32_LOW


@jit
def take_back(table: Int32s, first: Int) -> None:
    """Accounts as they were before the last results."""
    for block in range(table.shape[0]):
        for row in range(first, first + BEFORE):
            for lane in range(LANES):
                table[block, row, lane] = table[block, row + BEFORE, lane]


@jit
def may_be_first(
    index: Int, limited: Int, clip: Clip, layer: Int, counters: SaturationCounters
) -> Any:
    """False if nothing limited from ``index`` on can come before what was noted; bit 0 of
    ``limited`` says that something was from below, bit 1 from above."""
    first = counters.layers[layer].first
    low_stage, high_stage = stages_of(clip)
    is_low = limited & 1 and index < first[low_stage, LOW]
    return is_low or (limited & 2 and index < first[high_stage, HIGH])


@jit
def add_accounts(
    table: Int32s,
    first: Int,
    lane: Int,
    count: Int,
    clip: Clip,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Add what was counted of ``count`` channels from a lane on to the layer's accounts.

    ``index`` is that of the first channel's last result: the first limited result is noted already.
    """
    low_stage, high_stage = stages_of(clip)
    for c in range(count):
        rows, i = table[(lane + c) // LANES], (lane + c) % LANES
        below, above = np.int64(rows[first + BELOW, i]), np.int64(rows[first + ABOVE, i])
        if below:
            over = clip.low - np.int64(rows[first + LEAST, i])
            record(counters, layer, low_stage, LOW, index + c, over, below)
        if above:
            over = np.int64(rows[first + MOST, i]) - clip.high
            record(counters, layer, high_stage, HIGH, index + c, over, above)
