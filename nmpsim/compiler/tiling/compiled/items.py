"""Numbers that stand for something in compiled code, and in what calls it."""

from __future__ import annotations

KIND, ARGUMENT = 0, 1
"""Of an item: see :func:`~nmpsim.compiler.tiling.compiled.schedule.schedule`."""
LOAD, STORE, COMPUTE = 0, 1, 2
"""Kinds of instructions."""
WAIT = 3
"""Added to a kind: the wait for its unit."""
MAX_OUTSTANDING = 31
"""Largest count that ``nmp.wait`` can name."""
NEVER = (1 << 63) - 1
UNKNOWN = -1
"""The end of an instruction that the DRAM has not served."""
