"""Tables for requantizing blocks of sixteen channels at once, and counts of limited results.

The table of Int8 results is int32 [blocks, ROWS, LANES]: counts of the results of each lane that
were limited, and what a lane needs to scale its sums. Int16 results have a table of counts only;
their sums are scaled with the tables of :mod:`~nmpsim.kernels.channels`.
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
from nmpsim.kernels import channels
from nmpsim.kernels.array_types import Float64s, Int, Int32s, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Clip, Quantizer
from nmpsim.kernels.saturate import (
    INT32_MAX,
    INT32_MIN,
    ONCE,
    SaturationCounters,
    get_clip_stages,
    record_limited,
)
from nmpsim.kernels.saturation_stages import HIGH, LOW
from nmpsim.kernels.vector_code import LANES

INTEGER, FIXED_POINT, FLOAT_AWAY, FLOAT_EVEN = range(4)
"""Scaling modes: shifts and a product; TFLite's fixed point; float32 factors, with halves rounded
away from zero or to even."""

BELOW, ABOVE, LEAST, MOST = range(4)
"""Rows of counts: results limited from below and above; smallest and largest before the clip."""
COUNT_ROWS = 8
"""Rows of counts, followed by a copy of what they were before the last results."""
SAVED = 4
(
    BASE,
    PRE,
    LIMIT,
    MUL,
    HALF,
    POST,
    ADDEND,
    LEFT_SHIFT,
    PRE_FACTOR,
    FACTOR,
    POST_FACTOR,
    FLOAT_BIAS,
) = range(COUNT_ROWS, COUNT_ROWS + 12)
"""Other rows of an Int8 table: initial sum; integer scale with the largest magnitude that it takes
(-1: none; in mode INTEGER after the first shift); what is added to a result; left shift of
FIXED_POINT; float32 factors, and a float64 bias on two rows (see ``channels.py``)."""

TOO_LARGE = 4
"""Bit of a vector function's answer: a sum is too large for it, and the results are invalid."""
_MAX_ADDEND = 1 << 14


@jit
@dispatches_on_profiles("conv")
def choose_scaling_mode(q: Quantizer) -> Any:
    """Return the mode in which vector code scales sums, or -1 if it cannot."""
    if q.leaky or q.profile == Q31_ONCE:
        return -ONCE
    if q.profile in (GLOW_INT, NMP):
        return np.int64(INTEGER)
    if q.profile == Q31:
        return np.int64(FIXED_POINT)
    if q.profile in (GLOW_FLOAT, GLOW_FLOAT_LATE):
        return np.int64(FLOAT_AWAY)
    if q.profile in (FLOAT, FBGEMM, ONEDNN):
        return np.int64(FLOAT_EVEN)
    return -ONCE


# --- table of Int8 results -------------------------------------------------------------------


@jit
def fill_result_table(
    integers: Int64s, reals: Float64s, begins: bool, lane: Int, q: Quantizer, table: Int32s
) -> None:
    """Fill the table of Int8 results from the tables of the channels.

    The first channel is in lane ``lane`` of the first block. Lanes without a channel are never
    limited.
    """
    table[:] = 0
    table[:, PRE] = 31
    table[:, LIMIT] = INT32_MAX
    clear_counts(table)
    mode = choose_scaling_mode(q)
    for c in range(integers.shape[1]):
        rows, i = table[(lane + c) // LANES], (lane + c) % LANES
        rows[BASE, i] = np.int32(integers[channels.START, c] if begins else np.int64(0))
        rows[LIMIT, i] = -1
        if np.abs(integers[channels.ADDEND, c]) > _MAX_ADDEND:
            continue
        rows[ADDEND, i] = integers[channels.ADDEND, c]
        if mode in (INTEGER, FIXED_POINT):
            _fill_integers(integers[:, c], mode, rows, i)
        elif mode >= 0:
            _fill_reals(reals[:, c], rows, i)


@jit
def _fill_integers(integers: Int64s, mode: Int, rows: Int32s, i: Int) -> None:
    """Fill a channel's integer scale, if 32 bits hold it."""
    pre, mul = integers[channels.PRE], integers[channels.MUL]
    half, post = integers[channels.HALF], integers[channels.POST]
    if np.abs(mul) > INT32_MAX or post > 31 or pre > 31:
        return
    rows[MUL, i] = mul
    rows[POST, i] = post
    most = np.int64(INT32_MAX >> 1 if post == 0 else INT32_MAX)  # leave room for the addend
    if mode == FIXED_POINT:
        rows[LEFT_SHIFT, i] = pre
        rows[LIMIT, i] = most >> pre
        return
    rows[LIMIT, i] = (most - half) // max(abs(mul), ONCE)
    rows[PRE, i] = pre
    rows[HALF, i] = half


@jit
def _fill_reals(reals: Float64s, rows: Int32s, i: Int) -> None:
    """Fill a channel's float factors."""
    rows[PRE_FACTOR, i] = np.float32(reals[channels.PRE_FACTOR]).view(np.int32)
    rows[FACTOR, i] = np.float32(reals[channels.FACTOR]).view(np.int32)
    rows[POST_FACTOR, i] = np.float32(reals[channels.POST_FACTOR]).view(np.int32)
    bits, at = np.float64(reals[channels.FLOAT_BIAS]).view(np.int64), 2 * i
    rows[FLOAT_BIAS + at // LANES, at % LANES] = np.int32(bits)
    rows[FLOAT_BIAS + at // LANES, at % LANES + 1] = np.int32(bits >> 32)
    rows[LIMIT, i] = INT32_MAX


# --- counts of limited results ---------------------------------------------------------------


@jit
def clear_counts(table: Int32s) -> None:
    """Reset the counts of all blocks."""
    for block in range(table.shape[0]):
        table[block, BELOW] = 0
        table[block, ABOVE] = 0
        table[block, LEAST] = INT32_MAX
        table[block, MOST] = INT32_MIN


@jit
def undo_counts(table: Int32s) -> None:
    """Restore the counts to what they were before the last results."""
    for block in range(table.shape[0]):
        for row in range(SAVED):
            for lane in range(LANES):
                table[block, row, lane] = table[block, row + SAVED, lane]


@jit
def may_be_first(index: Int, limited: Int, clip: Clip, counters: SaturationCounters) -> Any:
    """Return whether results limited from ``index`` on may precede the first that is recorded.

    Bit 0 of ``limited`` says that some were limited from below, bit 1 from above.
    """
    first = counters.layers[counters.layer].first
    low_stage, high_stage = get_clip_stages(clip)
    is_low = limited & 1 and index < first[low_stage, LOW]
    return is_low or (limited & 2 and index < first[high_stage, HIGH])


@jit
def record_first(
    table: Int32s,
    lane: Int,
    count: Int,
    clip: Clip,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Record the first limited results of the pixel that was counted last.

    ``index`` is that of its first channel in the layer's output, which is in lane ``lane``.
    """
    first = counters.layers[counters.layer].first
    low_stage, high_stage = get_clip_stages(clip)
    for c in range(count):
        rows, i = table[(lane + c) // LANES], (lane + c) % LANES
        if rows[BELOW, i] != rows[SAVED + BELOW, i]:
            first[low_stage, LOW] = min(first[low_stage, LOW], index + c)
        if rows[ABOVE, i] != rows[SAVED + ABOVE, i]:
            first[high_stage, HIGH] = min(first[high_stage, HIGH], index + c)


@jit
def add_counts(
    table: Int32s,
    lane: Int,
    count: Int,
    clip: Clip,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Add the counts of ``count`` channels from a lane on to the layer's counters.

    The first limited result must be recorded already; ``index`` is that of the first channel's
    last result.
    """
    low_stage, high_stage = get_clip_stages(clip)
    for c in range(count):
        rows, i = table[(lane + c) // LANES], (lane + c) % LANES
        below, above = np.int64(rows[BELOW, i]), np.int64(rows[ABOVE, i])
        if below:
            overshoot = clip.low - np.int64(rows[LEAST, i])
            record_limited(counters, low_stage, LOW, index + c, overshoot, below)
        if above:
            overshoot = np.int64(rows[MOST, i]) - clip.high
            record_limited(counters, high_stage, HIGH, index + c, overshoot, above)
