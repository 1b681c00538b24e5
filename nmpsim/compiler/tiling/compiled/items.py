"""Numbers used by compiled code and its callers."""

from __future__ import annotations

KIND, ARGUMENT = 0, 1
"""Columns of an item; see ``schedule_instructions``."""
LOAD, STORE, MAC, VECTOR = 0, 1, 2, 3
"""Kinds of instructions: the numbers of their units (:class:`~nmpsim.isa.table.Unit`)."""
WAIT = 4
"""Added to a kind, it means the wait for its unit."""
BARRIER = 8
"""Kind of an item that is a barrier within a chain; its argument is the number of cores."""
BARRIER_INSTRUCTIONS = 4
"""Instructions of a barrier: ``lui``, ``addi``, ``addi``, ``nmp.barrier``."""
MAX_OUTSTANDING = 31
"""Largest count of ``nmp.wait``."""
NEVER = (1 << 63) - 1
UNKNOWN = -1
"""End of an instruction that the DRAM has not served yet."""
