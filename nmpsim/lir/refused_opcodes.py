"""Glow's instructions that are known but not executed, and the errors for unknown opcodes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import attrs

from nmpsim.diagnostics import Diagnostic, Place, did_you_mean
from nmpsim.lir.messages import quote
from nmpsim.lir.opcodes import OPCODES

_NEARNESS = 0.8
"""Similarity needed for a hint; opcodes are short words that resemble each other."""


def make_opcode_diagnostic(word: str, place: Place, may_hint: bool = True) -> Diagnostic:
    """Return the diagnostic for an unsupported (LIR012) or unknown (LIR006) opcode."""
    refusal = REFUSED.get(word)
    if refusal is not None:
        return Diagnostic(
            "LIR012",
            f"{word} is not supported",
            place,
            found=f"an instruction of Glow that cannot be executed: {refusal.reason}",
            expected="an opcode that nmpsim executes (docs/operations.md)",
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


@attrs.frozen
class OpcodeRefusal:
    """Refusal of an opcode that cannot be executed: the reason, and a hint for the user."""

    reason: str
    hint: str


REFUSED: dict[str, OpcodeRefusal] = {
    opcode: OpcodeRefusal(row["reason"], row["hint"])
    for row in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).values()
    for opcode in row["opcodes"]
}
"""All refused opcodes by name; ``refused_opcodes.toml`` lists them."""
