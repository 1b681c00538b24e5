"""Rows of the tables that Int8 results are made with (``requantize_int32.py``).

A table is int32 [blocks, ROWS, LANES]: what each lane of a block of channels needs, and which of
its results were limited.
"""

from __future__ import annotations

BASE, ZERO, PRE, LIMIT, MUL, HALF, POST, ADDEND, BELOW, ABOVE, LEAST, MOST = range(12)
"""Start of a sum, zero point of the weights, scale with the largest shifted sum that it can take,
what is added to a result; results limited from below and above, and the extremes before that."""
BEFORE = 12
"""What the last four were before the last :func:`finish_sums`."""
REACH, UP, AHEAD, FACTOR, AFTER, BIAS = range(16, 22)
"""The largest sum that other ways than INTEGER can take; the shift of FIXED to the left; float32
factors, and a float64 on the last two rows, which ``channels.py`` tells."""
