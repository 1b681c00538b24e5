"""Table of all LIR opcodes, and the opcodes of Glow that nmpsim refuses.

``opcodes.toml`` and ``host_opcodes.toml`` are the one place that says what an instruction is; the
parser, the verifier, the compiler, the quantizer, the interpreter and the documentation derive from
them. With the refused opcodes of ``refused_opcodes.toml``, these are all instructions of Glow.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from nmpsim.diagnostics import Diagnostic, Place, did_you_mean, quote
from nmpsim.kernels.hostops import functions
from nmpsim.lir.constraints import ACTIVATION_ARGUMENTS, Rule, make_rules
from nmpsim.lir.opcode import (
    ATTRIBUTE_KINDS,
    DTYPES,
    IN,
    INOUT,
    OUT,
    Attribute,
    HostProfiles,
    Opcode,
    OpcodeKind,
    OperandRole,
    Signature,
    make_choice_kind,
)

_FORMULAS = {"numpy": np, "functions": functions}
"""Modules that contain formulas, by their names in the files of opcodes."""
_ELEMS = {
    "float32": "float",
    "float16": "float16",
    "int8": "i8",
    "int16": "i16",
    "int32": "index32",
    "int64": "index64",
    "bool": "bool",
}
"""dtype of an operand on the host -> element type."""


def _read_opcodes(file: str) -> dict[str, Opcode]:
    """Return the opcodes of a file in this folder, by name."""
    groups = tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return {
        name: _make_opcode(name, group.get("defaults", {}) | row)
        for group in groups.values()
        for name, row in group.items()
        if name != "defaults"
    }


def _make_opcode(name: str, row: Mapping[str, Any]) -> Opcode:
    operands = tuple(_make_role(*words.split()) for words in row["operands"])
    signatures = tuple(
        _make_signature(words.split(), len(operands), row.get("mixed", False))
        for words in row.get("dtypes", ())
    )
    return Opcode(
        name,
        row["summary"],
        operands,
        tuple(_make_attribute(*words.split()) for words in row.get("attributes", ())),
        OpcodeKind[row.get("kind", "host").upper()],
        tuple(_list_rules(row.get("rules", ()), operands, signatures)),
        _find_formula(row.get("formula")),
        _make_limits(*row.get("limits", ())),
        signatures,
        row.get("run", ""),
        HostProfiles[row.get("profiles", "glow").upper()],
    )


def _make_role(kind: str, name: str, mark: str = "", *scales: str) -> OperandRole:
    return OperandRole(
        name,
        kind,
        is_scratch=mark == "scratch",
        is_on_sums=mark == "on_sums",
        scales=(scales[0], scales[1]) if mark == "scales" else None,
    )


def _make_attribute(name: str, kind: str, *choices: str) -> Attribute:
    return Attribute(
        name.strip("+?"),
        make_choice_kind(*map(_convert, choices)) if kind == "one_of" else ATTRIBUTE_KINDS[kind],
        required=name.isalnum(),
        is_extension=name.startswith("+"),
    )


def _make_signature(words: Sequence[str], count: int, mixed: bool) -> Signature:
    """Return the signature of ``count`` operands; a single word describes all of them."""
    choices = (frozenset().union(*(DTYPES[one] for one in word.split("|"))) for word in words)
    return Signature(tuple(choices) * (count if len(words) == 1 else 1), mixed)


def _list_rules(
    texts: Iterable[str], operands: Sequence[OperandRole], signatures: Sequence[Signature]
) -> Iterator[Rule]:
    for text in texts:
        name, *words = text.split()
        if name == "require_dtypes":
            yield from _list_dtype_rules(operands, *signatures)
        else:
            yield from make_rules(name, *map(_convert, words))


def _list_dtype_rules(operands: Sequence[OperandRole], signature: Signature) -> Iterator[Rule]:
    """Yield rules that operands have the element types of the only signature, sources first."""

    def list_names(indices: Iterable[int]) -> list[str]:
        return [operands[i].name for i in sorted(indices, key=lambda i: operands[i].kind == OUT)]

    groups = [list_names(group) for group in signature.list_dtype_groups()]
    implied = {name for group in groups for name in group[1:]}
    choices = dict(zip((role.name for role in operands), signature.operands, strict=True))
    for name in list_names(range(len(operands))):
        if choices[name] != DTYPES["any"] and name not in implied:
            elems = "|".join(_ELEMS[dtype] for dtype in choices[name])
            yield from make_rules("require_elem", elems, name)
    for group in groups:
        yield from make_rules("require_same_elem", *group)


def _find_formula(path: str | None) -> Callable[..., Any] | None:
    if path is None:
        return None
    module, name = path.split(".")
    formula: Callable[..., Any] = getattr(_FORMULAS[module], name)
    return formula


def _make_limits(
    low: float | str | None = None, high: float | str | None = None
) -> tuple[float | str, float | str | None] | None:
    return None if low is None else (low, high)


def _convert(word: str) -> str | int:
    return int(word) if word.lstrip("-").isdecimal() else word


HOST_OPCODES = _read_opcodes("host_opcodes.toml")
"""Opcodes for which the device has no unit, by name."""
OPCODES = _read_opcodes("opcodes.toml") | HOST_OPCODES
"""All opcodes that are executed, by name."""


def find_opcodes(*kinds: OpcodeKind) -> frozenset[str]:
    """Return the names of all operations whose kind is in ``kinds``."""
    return frozenset(name for name, opcode in OPCODES.items() if opcode.kind in kinds)


NO_WORK = find_opcodes(OpcodeKind.NO_WORK)
"""Opcodes that compute nothing."""

__all__ = [
    "ACTIVATION_ARGUMENTS",
    "HOST_OPCODES",
    "IN",
    "INOUT",
    "NO_WORK",
    "OPCODES",
    "OUT",
    "OpcodeKind",
    "Opcode",
    "OperandRole",
    "find_opcodes",
]


# Glow's instructions that are known but not executed, and the errors for unknown opcodes.

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
        Path(__file__).with_name("refused_opcodes.toml").read_text(encoding="utf-8")
    ).values()
    for opcode in row["opcodes"]
}
"""All refused opcodes by name; ``refused_opcodes.toml`` lists them."""
