"""Sizes of the workspace of convolutions, which need no compiler to be known."""

from __future__ import annotations

from nmpsim.isa.words import CHANNEL_BYTES, SCALE_BYTES

LANES = 16
"""Channels side by side in a vector."""
MAX_PIXELS = 56
"""Rows of sums that one call fills, a multiple of the pixels of all register blocks."""
LEVELS = 7
"""Levels of the number of steps between two carries of an Int16 sum: 1, 2, 4 and so on."""
TABLE_ROWS = 8
"""Rows of the table of channels (``channels.py``)."""
COUNT_ROWS = 8
"""Rows of counts of limited results (``result_table.py``)."""
LANE_ROWS = COUNT_ROWS + 2 * (TABLE_ROWS - 1)
"""int32 rows of the tables of blocks: counts, and int64 parameters (``result_table.py``)."""
IS_VALID, MAX_START, HAS_OFFSETS, FIRST_KEY = range(4)
"""Entries of ``ConvWorkspace.head``: 1 if the tables are valid; largest magnitude of an initial
sum; 1 if weights have zero points. The key of the tables follows, and then the new key."""
KEY_WORDS = 17
HEAD_WORDS = FIRST_KEY + 2 * KEY_WORDS


def get_workspace_size(channels: int) -> int:
    """Return the workspace size in 64-bit words for convolutions of up to ``channels`` channels."""
    lanes = channels + 2 * LANES
    longs = HEAD_WORDS + MAX_PIXELS + channels * (CHANNEL_BYTES // 8 + TABLE_ROWS + 1)
    words = LANES + 2 * MAX_PIXELS + SCALE_BYTES // 4 * channels + (LANE_ROWS + MAX_PIXELS) * lanes
    return longs + (words + MAX_PIXELS * lanes // 4) // 2 + 1
