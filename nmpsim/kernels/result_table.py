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
from nmpsim.kernels.operands import Clip, OutputPosition
from nmpsim.kernels.saturate import (
    INT32_MAX,
    INT32_MIN,
    SaturationCounters,
    get_clip_stages,
    record_limited,
)
from nmpsim.kernels.saturation_stages import HIGH, LOW
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import TABLE_ROWS

PARAMETER_ROWS = TABLE_ROWS - START
BELOW, ABOVE, LEAST, MOST, FIRST_BELOW, FIRST_ABOVE = range(6)
"""Rows of counts: results limited from below and above; smallest and largest result before the
clip; pixels of the first results that were limited from below and above."""
SAVED = 6
"""Row at which a copy of the counts before the last results starts."""
TOO_LARGE = 2
"""Bit of a vector function's answer: a sum is too large for it. Results are invalid, and nothing is
counted."""


@jit
def copy_parameters_to_blocks(table: Int64s, begins: bool, lane: Int, parameters: Int64s) -> None:
    """Copy the channel table to blocks; channel 0 is in lane ``lane`` of the first block.

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
    """Reset the counts of all blocks to no limited results."""
    for block in range(counts.shape[0]):
        counts[block, BELOW:LEAST] = 0
        counts[block, LEAST] = INT32_MAX
        counts[block, MOST] = INT32_MIN
        counts[block, FIRST_BELOW:SAVED] = INT32_MAX


@jit
def undo_counts(counts: Int32s) -> None:
    """Restore the counts to what they were before the last results."""
    for block in range(counts.shape[0]):
        for row in range(SAVED):
            for lane in range(LANES):
                counts[block, row, lane] = counts[block, row + SAVED, lane]


@jit
def get_pixel_index(place: OutputPosition, width: Int, pixel: Int) -> Any:
    """Return the index of a tile's pixel in the layer's output; ``width`` is the tile's."""
    y = pixel // width
    return place.origin + y * place.stride_y + (pixel - y * width) * place.stride_x


@jit
def add_counts(
    counts: Int32s,
    lane: Int,
    count: Int,
    clip: Clip,
    place: OutputPosition,
    width: Int,
    counters: SaturationCounters,
) -> None:
    """Add the counts of ``count`` channels, the first in lane ``lane``, to the layer's counters.

    ``place`` is the position of the first channel, ``width`` the pixels in a row of the tile.
    """
    low_stage, high_stage = get_clip_stages(clip)
    for c in range(count):
        rows, i = counts[(lane + c) // LANES], (lane + c) % LANES
        below, above = np.int64(rows[BELOW, i]), np.int64(rows[ABOVE, i])
        if below:
            index = get_pixel_index(place, width, np.int64(rows[FIRST_BELOW, i])) + c
            overshoot = clip.low - np.int64(rows[LEAST, i])
            record_limited(counters, low_stage, LOW, index, overshoot, below)
        if above:
            index = get_pixel_index(place, width, np.int64(rows[FIRST_ABOVE, i])) + c
            overshoot = np.int64(rows[MOST, i]) - clip.high
            record_limited(counters, high_stage, HIGH, index, overshoot, above)
