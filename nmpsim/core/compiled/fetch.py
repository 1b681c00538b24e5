"""From a core's pc to the row of the instruction table."""

from __future__ import annotations

from typing import Any

from nmpsim.core.compiled.memory import NOWHERE, is_shared, locate, memory_of, read
from nmpsim.core.compiled.traps import (
    FETCH_FAULT,
    FETCHED,
    ILLEGAL_INSTRUCTION,
    NEEDS_TURN,
    ZERO,
    trap,
)
from nmpsim.core.decode import BUCKETS, ILLEGAL, MASKS, MATCHES
from nmpsim.core.state import Machine
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit


@jit
def number_of(word: Int) -> Any:
    """Row of the instruction table that a word matches."""
    if word & 3 != 3:
        return ILLEGAL
    bucket = ((word >> 2) & 31) << 3 | (word >> 12) & 7
    for candidate in BUCKETS[bucket]:
        if candidate < 0:
            break
        if word & MASKS[candidate] == MATCHES[candidate]:
            return candidate
    return ILLEGAL


@jit
def fetch(m: Machine, core: Int, has_turn: bool) -> Any:
    """FETCHED with row and word of the next instruction, or how the attempt ended."""
    pc = m.cores[core].pc
    region, offset = locate(m, pc, 4)
    if region == NOWHERE:
        return trap(m, core, FETCH_FAULT, pc), ILLEGAL, ZERO
    if is_shared(region) and not has_turn:
        return NEEDS_TURN, ILLEGAL, ZERO
    word = read(memory_of(m, core, region), offset, 4)
    number = number_of(word)
    if number == ILLEGAL:
        return trap(m, core, ILLEGAL_INSTRUCTION, word), ILLEGAL, word
    return FETCHED, number, word
