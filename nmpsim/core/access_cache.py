"""Loads and stores that the check of the contract need not look at: it has seen the same before.

What a core does by itself makes no access wrong that was right. So another one of the same kind to
the same bytes is as right, as long as the core issues no tensor instruction, meets no other core
and writes no word of the control block; and as long as it does not, others cannot tell the two
apart, since they learn nothing of the core between them. Each core has a table of the words that
it has accessed in such a stretch. What has fallen out of the table is looked at again.

Plain functions of one core's table, int64 [SEEN_WORDS], which compiled code calls, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.instruction_tables import ACCESS_BYTES, IS_WRITE
from nmpsim.core.state import Int64s
from nmpsim.isa.table import CONTROL_BASE, CONTROL_BYTES

PLACES = 1 << 16
"""Entries of a table; as many words that lie next to each other have one each."""
STRETCH = PLACES
"""Behind them is the number of the stretch."""
HAS_SEEN = STRETCH + 1
"""Whether anything was seen in it."""
ACCESS_CACHE_WORDS = PLACES + 2
KIND_BITS, STRETCH_BITS = 16, 17
"""An entry has a bit for each byte, half and whole of a word, read or written; the number of its
stretch; the number of the word."""
FIRST_BIT = np.array(
    [{0: 0, 1: 0, 2: 4, 4: 7}[int(n)] for n in ACCESS_BYTES] + 8 * IS_WRITE, np.int64
)
"""Of an access by instruction, to the first bytes of a word; the bits of others follow."""


def place_of(word: Any) -> Any:
    """A word's entry; where scratchpads and DRAM begin are far apart."""
    return (word ^ word >> 15) & (PLACES - 1)


def is_seen(seen: Int64s, number: Any, address: Any) -> Any:
    """Was there an access like this one, which is aligned, in this stretch?"""
    word = address >> 2
    entry = seen[place_of(word)]
    is_word = entry >> KIND_BITS == word << STRETCH_BITS | seen[STRETCH]
    return is_word and (entry >> (FIRST_BIT[number] + (address & 3))) & 1 != 0


def note_access(seen: Int64s, number: Any, address: Any) -> None:
    """The check will look at an access."""
    if CONTROL_BASE <= address < CONTROL_BASE + CONTROL_BYTES:
        if IS_WRITE[number]:
            begin_stretch(seen)
        return  # what a core learns there may be more each time
    word = address >> 2
    place = place_of(word)
    name = word << STRETCH_BITS | seen[STRETCH]
    if seen[place] >> KIND_BITS != name:
        seen[place] = name << KIND_BITS
    seen[place] |= np.int64(1) << (FIRST_BIT[number] + (address & 3))
    seen[HAS_SEEN] = 1


def begin_stretch(seen: Int64s) -> None:
    """Nothing is seen yet."""
    if seen[HAS_SEEN] == 0:
        return  # a table that nobody writes takes no memory, which the host would have to clear
    seen[HAS_SEEN] = 0
    seen[STRETCH] += 1
    if seen[STRETCH] >> STRETCH_BITS != 0:  # numbers begin again
        seen[:] = 0
