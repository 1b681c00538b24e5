"""Instruction fetch: from a core's pc to the row of the instruction table and the operands."""

from __future__ import annotations

from typing import Any

from nmpsim.core.compiled.expressions import define_function
from nmpsim.core.compiled.memory import NOWHERE, get_memory, is_shared, locate, read
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


def _make_decoder(field: BitField) -> Any:
    """Compile a function that decodes a field: int64 word in, int64 value out."""
    parts = (
        f"((word >> {p.word_bit}) & {(1 << p.width) - 1}) << {p.value_bit}" for p in field.pieces
    )
    sign = 1 << (field.bits - 1) if field.signed else 0
    value = f"return (({' | '.join(parts)}) ^ {sign}) - {sign}"
    return jit(define_function("decode(word)", value))


decode_rd, decode_rs1, decode_rs2 = map(_make_decoder, (table.RD, table.RS1, table.RS2))
decode_i_immediate, decode_s_immediate = _make_decoder(table.IMM_I), _make_decoder(table.IMM_S)
decode_b_offset, decode_j_offset = _make_decoder(table.IMM_B), _make_decoder(table.IMM_J)
decode_u_immediate = _make_decoder(table.IMM_U)
decode_csr = _make_decoder(table.CSR_ADDRESS)
decode_unit, decode_outstanding = _make_decoder(table.UNIT), _make_decoder(table.OUTSTANDING)


@jit
def match_instruction(word: Int) -> Any:
    """Return the row of the instruction table that a word matches, or ILLEGAL."""
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
    """Fetch a core's next instruction, or trap; return status, instruction number and word."""
    pc = m.cores[core].pc
    region, offset = locate(m, pc, 4)
    if region == NOWHERE:
        return trap(m, core, FETCH_FAULT, pc), ILLEGAL, ZERO
    if is_shared(region) and not has_turn:
        return NEEDS_TURN, ILLEGAL, ZERO
    word = read(get_memory(m, core, region), offset, 4)
    number = match_instruction(word)
    if number == ILLEGAL:
        return trap(m, core, ILLEGAL_INSTRUCTION, word), ILLEGAL, word
    return FETCHED, number, word
