"""How much room convolutions take, in numbers that need no compiler to be known."""

from __future__ import annotations

from nmpsim.isa.words import CHANNEL_BYTES, SCALE_BYTES

LANES = 16
"""Channels that lie side by side in a vector."""
MAX_PIXELS = 56
"""Rows of sums that one call fills: a multiple of what is done at once, sums and excess."""
LEVELS = 7
"""Numbers of steps between two carries of a sum of Int16: 1, 2, 4 and so on (``dot.py``)."""
ROWS = 21
"""Rows of the table of Int8 results (``result_table.py``)."""
INTEGERS, REALS = 8, 4
"""Rows of the tables of channels (``channels.py``)."""
IS_KEPT, MAX_START, HAS_OFFSETS, FIRST_WORD = range(4)
"""Entries of ``ConvWorkspace.head``: 1 if the tables are valid; largest magnitude of an initial
sum; 1 if weights have zero points. Then come the words of the tables, and the new ones."""
WORDS = 17
HEAD = FIRST_WORD + 2 * WORDS


def workspace_words(channels: int) -> int:
    """64-bit words of a workspace for convolutions of up to ``channels`` channels."""
    lanes = channels + 2 * LANES
    longs = HEAD + MAX_PIXELS + channels * (CHANNEL_BYTES // 8 + INTEGERS + REALS + 1)
    words = LANES + 2 * MAX_PIXELS + SCALE_BYTES // 4 * channels + (ROWS + MAX_PIXELS) * lanes
    return longs + (words + MAX_PIXELS * lanes // 4) // 2 + 1
