"""Tables of blocks of sixteen channels, for results that are computed at once.

The parameters of a block are int64 [PARAMETER_ROWS, LANES]: initial sums and the parameters of the
channels, as in the table of :mod:`~nmpsim.kernels.channels`. The counts of its limited results are
int32 [COUNT_ROWS, LANES].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.array_types import Int, Int32s, Int64s
from nmpsim.kernels.channels import START
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.saturate import (
    INT32_MAX,
    INT32_MIN,
    SaturationCounters,
    add_saturations,
    get_clip_stages,
)
from nmpsim.kernels.saturation_stages import HIGH, LOW
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import TABLE_ROWS

PARAMETER_ROWS = TABLE_ROWS - START
BELOW, ABOVE, LEAST, MOST = range(4)
"""Rows of counts: results limited from below and above; smallest and largest before the clip."""
SAVED = 4
"""Row at which a copy of the counts before the last results starts."""
TOO_LARGE = 4
"""Bit of a vector function's answer: a sum is too large for it, and the results are invalid."""


@jit
def copy_parameters_to_blocks(table: Int64s, begins: bool, lane: Int, parameters: Int64s) -> None:
    """Copy each channel's parameters from ``table`` to 16-lane blocks, from lane ``lane`` on.

    Initial sums are 0 unless a sum begins. Lanes without a channel are 0.
    """
    parameters[:] = 0
    for c in range(table.shape[1]):
        rows, i = parameters[(lane + c) // LANES], (lane + c) % LANES
        for row in range(START if begins else START + 1, TABLE_ROWS):
            rows[row - START, i] = table[row, c]


# --- counts of limited results ---------------------------------------------------------------


@jit
def clear_counts(counts: Int32s) -> None:
    """Reset the counts of saturated and clipped values, and the extreme values, of all blocks."""
    for block in range(counts.shape[0]):
        counts[block, BELOW] = 0
        counts[block, ABOVE] = 0
        counts[block, LEAST] = INT32_MAX
        counts[block, MOST] = INT32_MIN


@jit
def restore_counts(counts: Int32s) -> None:
    """Restore the counts to their values before the last batch of results."""
    for block in range(counts.shape[0]):
        for row in range(SAVED):
            for lane in range(LANES):
                counts[block, row, lane] = counts[block, row + SAVED, lane]


@jit
def may_be_first(index: Int, limited: Int, clip: Clip, counters: SaturationCounters) -> Any:
    """Return whether values saturated or clipped at ``index`` may precede the recorded first one.

    Bit 0 of ``limited`` says that some were limited from below, bit 1 from above.
    """
    first = counters.layers[counters.layer].first
    low_stage, high_stage = get_clip_stages(clip)
    is_low = limited & 1 and index < first[low_stage, LOW]
    return is_low or (limited & 2 and index < first[high_stage, HIGH])


@jit
def record_first_saturation(
    counts: Int32s,
    lane: Int,
    count: Int,
    clip: Clip,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Record the index of a pixel's first result below, and first result above, the clip.

    ``index`` is that of its first channel in the layer's output, which is in lane ``lane``.
    """
    first = counters.layers[counters.layer].first
    low_stage, high_stage = get_clip_stages(clip)
    for c in range(count):
        rows, i = counts[(lane + c) // LANES], (lane + c) % LANES
        if rows[BELOW, i] != rows[SAVED + BELOW, i]:
            first[low_stage, LOW] = min(first[low_stage, LOW], index + c)
        if rows[ABOVE, i] != rows[SAVED + ABOVE, i]:
            first[high_stage, HIGH] = min(first[high_stage, HIGH], index + c)


@jit
def add_counts(
    counts: Int32s,
    lane: Int,
    count: Int,
    clip: Clip,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Add the counts of clipped values in ``count`` lanes to the layer's counters.

    The first limited result must be recorded already; ``index`` is that of the first channel's
    last result.
    """
    low_stage, high_stage = get_clip_stages(clip)
    for c in range(count):
        rows, i = counts[(lane + c) // LANES], (lane + c) % LANES
        below, above = np.int64(rows[BELOW, i]), np.int64(rows[ABOVE, i])
        if below:
            overshoot = clip.low - np.int64(rows[LEAST, i])
            add_saturations(counters, low_stage, LOW, index + c, overshoot, below)
        if above:
            overshoot = np.int64(rows[MOST, i]) - clip.high
            add_saturations(counters, high_stage, HIGH, index + c, overshoot, above)
