"""Numbers used by compiled code and its callers."""

from __future__ import annotations

KIND, ARGUMENT = 0, 1
"""Columns of an item; see ``schedule_instructions``."""
LOAD, STORE, COMPUTE = 0, 1, 2
"""Kinds of instructions."""
WAIT = 3
"""Added to a kind, it means the wait for its unit."""
MAX_OUTSTANDING = 31
"""Largest count of ``nmp.wait``."""
NEVER = (1 << 63) - 1
UNKNOWN = -1
"""End of an instruction that the DRAM has not served yet."""
