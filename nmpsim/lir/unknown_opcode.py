"""What is said of an opcode that is not executed: known and refused, or unknown."""

from __future__ import annotations

from nmpsim.diagnostics import Diagnostic, Place
from nmpsim.lir.messages import did_you_mean, quote
from nmpsim.lir.opcodes import OPCODES
from nmpsim.lir.refused_opcodes import REFUSED

_NEARNESS = 0.8
"""Opcodes are short words that resemble each other; at less than this a hint would mislead."""


def opcode_problem(word: str, place: Place, may_hint: bool = True) -> Diagnostic:
    """LIR012 or LIR006. A hint for an unknown word takes time; ``may_hint`` says whether to."""
    refusal = REFUSED.get(word)
    if refusal is not None:
        return Diagnostic(
            "LIR012",
            f"{word} is not supported",
            place,
            found=f"an instruction of Glow, but {refusal.reason}",
            expected="an opcode that is executed (docs/operations.md)",
            hint=refusal.hint,
        )
    known = (*OPCODES, *REFUSED)
    return Diagnostic(
        "LIR006",
        f"unknown opcode {quote(word)}",
        place,
        found=quote(word),
        expected="an opcode of the LIR",
        hint=did_you_mean(word, known, nearness=_NEARNESS) if may_hint else None,
    )
