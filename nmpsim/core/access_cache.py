"""Cache of loads and stores that the contract check can skip.

What a core does by itself does not make a correct access wrong. So a repeated access of the same
kind to the same bytes is correct as long as the core issues no tensor instruction, does not
synchronize and writes no word of the control block. Until then no other core can tell the two
accesses apart. Each core has a table of the words that it has accessed since then, its generation.
Evicted entries are checked again.

The functions are plain Python on one core's table, int64 [ACCESS_CACHE_WORDS]; compiled code calls
them, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.instruction_tables import ACCESS_BYTES, IS_WRITE
from nmpsim.core.state import Int64s
from nmpsim.isa.table import CONTROL_BASE, CONTROL_BYTES

ENTRIES = 1 << 16
"""Entries of a table; adjacent words have different entries."""
GENERATION = ENTRIES
"""Index of the number of the generation."""
IS_USED = GENERATION + 1
"""Index of a flag: 1 if the table is not empty."""
ACCESS_CACHE_WORDS = ENTRIES + 2
KIND_BITS, GENERATION_BITS = 16, 17
"""An entry has a bit for each byte, halfword and word read or written; its generation; its word."""
FIRST_BIT = np.array(
    [{0: 0, 1: 0, 2: 4, 4: 7}[int(n)] for n in ACCESS_BYTES] + 8 * IS_WRITE, np.int64
)
"""Bit of an instruction's access to the first bytes of a word; those of other bytes follow."""


def get_entry_index(word: Any) -> Any:
    """Return the index of the cache entry for a word, given the word's address divided by 4."""
    return (word ^ word >> 15) & (ENTRIES - 1)


def is_cached(seen: Int64s, number: Any, address: Any) -> Any:
    """Return whether an aligned load or store by instruction ``number`` is in the cache."""
    word = address >> 2
    entry = seen[get_entry_index(word)]
    is_word = entry >> KIND_BITS == word << GENERATION_BITS | seen[GENERATION]
    return is_word and (entry >> (FIRST_BIT[number] + (address & 3))) & 1 != 0


def add_access(seen: Int64s, number: Any, address: Any) -> None:
    """Add an access to the cache; for control memory, only invalidate the cache on a write."""
    if CONTROL_BASE <= address < CONTROL_BASE + CONTROL_BYTES:
        if IS_WRITE[number]:
            invalidate(seen)
        return  # a core may learn more there each time
    word = address >> 2
    place = get_entry_index(word)
    name = word << GENERATION_BITS | seen[GENERATION]
    if seen[place] >> KIND_BITS != name:
        seen[place] = name << KIND_BITS
    seen[place] |= np.int64(1) << (FIRST_BIT[number] + (address & 3))
    seen[IS_USED] = 1


def invalidate(seen: Int64s) -> None:
    """Invalidate all entries of a core's access cache."""
    if seen[IS_USED] == 0:
        return  # an unwritten table takes no host memory
    seen[IS_USED] = 0
    seen[GENERATION] += 1
    if seen[GENERATION] >> GENERATION_BITS != 0:  # the numbers wrap around
        seen[:] = 0
