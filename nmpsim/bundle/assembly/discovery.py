"""Analysis of code: branch targets, loaded addresses and used descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs

from nmpsim.isa.codec import DecodedInstruction, decode

_PAIR_BYTES = 8


@attrs.frozen
class CodeAnalysis:
    """Analysis of a range of code: branch targets, loaded addresses and used descriptors."""

    start: int
    words: Sequence[int]
    targets: frozenset[int]
    """Targets of branches and jumps."""
    pairs: dict[int, tuple[int, int]]
    """Address of a ``lui`` followed by its ``addi`` -> register and the value they load."""
    descriptors: dict[int, str]
    """Address -> kind of the descriptor that a tensor instruction uses there."""
    uses: dict[int, int]
    """Address of a tensor instruction -> address of its descriptor."""


def analyze_code(words: Sequence[int], start: int) -> CodeAnalysis:
    """Analyze instruction words: find branch targets, loaded addresses and used descriptors."""
    decoded = [decode(word) for word in words]
    targets = frozenset(
        start + 4 * index + one.operands["offset"]
        for index, one in enumerate(decoded)
        if one is not None and "offset" in one.operands
    )
    pairs = {
        start + 4 * index: pair
        for index, (first, second) in enumerate(pairwise(decoded))
        if (pair := _absolute_pair(first, second)) and start + 4 * index + 4 not in targets
    }
    uses = _uses(decoded, start, pairs, targets)
    kinds = {address: kind for _, address, kind in uses}
    by_pc = {pc: address for pc, address, _ in uses}
    return CodeAnalysis(start, words, targets, pairs, kinds, by_pc)


def _absolute_pair(
    first: DecodedInstruction | None, second: DecodedInstruction | None
) -> tuple[int, int] | None:
    """Return register and value if two instructions are the expansion of ``la``."""
    if first is None or second is None:
        return None
    if first.instruction.mnemonic != "lui" or second.instruction.mnemonic != "addi":
        return None
    register = first.operands["rd"]
    if not second.operands["rd"] == second.operands["rs1"] == register:
        return None
    return register, first.operands["imm"] + second.operands["imm"] & 0xFFFF_FFFF


def _uses(
    decoded: Sequence[DecodedInstruction | None],
    start: int,
    pairs: dict[int, tuple[int, int]],
    targets: frozenset[int],
) -> list[tuple[int, int, str]]:
    """Return (pc, descriptor address, kind) where straight-line code determines the register."""
    found = []
    known: dict[int, int] = {}
    for index, one in enumerate(decoded):
        pc = start + 4 * index
        if pc in targets or one is None:
            known.clear()
        if one is None:
            continue
        kind = one.instruction.descriptor
        if kind is not None and one.operands["rs1"] in known:
            found.append((pc, known[one.operands["rs1"]], kind))
        _follow(one, pairs.get(pc - _PAIR_BYTES // 2), known)
    return found


def _follow(one: DecodedInstruction, pair: tuple[int, int] | None, known: dict[int, int]) -> None:
    """Update the known register values after an instruction."""
    written = one.operands.get("rd")
    if written is None:
        return
    if pair is not None:
        known[written] = pair[1]
    elif one.instruction.mnemonic == "addi" and one.operands["rs1"] in known:
        known[written] = known[one.operands["rs1"]] + one.operands["imm"] & 0xFFFF_FFFF
    else:
        known.pop(written, None)
    known.pop(0, None)
