"""From a core's pc to the row of the instruction table, and the operands that the word holds."""

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
from nmpsim.core.instruction_tables import BUCKETS, ILLEGAL, MASKS, MATCHES
from nmpsim.core.state import Machine
from nmpsim.isa import table
from nmpsim.isa.fields import BitField
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit

_MAX_PIECES = 4


def _reader(field: BitField) -> Any:
    """A compiled function that does as ``field.decode``: int64 word in, int64 value out."""
    pieces = [(p.word_bit, (1 << p.width) - 1, p.value_bit) for p in field.pieces]
    pieces += [(0, 0, 0)] * (_MAX_PIECES - len(pieces))
    (b0, m0, v0), (b1, m1, v1), (b2, m2, v2), (b3, m3, v3) = pieces
    sign = 1 << (field.bits - 1) if field.signed else 0

    def value(word: Int) -> Any:
        low = ((word >> b0) & m0) << v0 | ((word >> b1) & m1) << v1
        high = ((word >> b2) & m2) << v2 | ((word >> b3) & m3) << v3
        return ((low | high) ^ sign) - sign

    return jit(value)


rd_of, rs1_of, rs2_of = _reader(table.RD), _reader(table.RS1), _reader(table.RS2)
i_immediate, s_immediate = _reader(table.IMM_I), _reader(table.IMM_S)
b_offset, j_offset = _reader(table.IMM_B), _reader(table.IMM_J)
u_immediate = _reader(table.IMM_U)
csr_of = _reader(table.CSR_ADDRESS)
unit_of, outstanding_of = _reader(table.UNIT), _reader(table.OUTSTANDING)


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
