"""What a rule reports, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

import attrs

from nmpsim.analysis.lint.subject import Subject
from nmpsim.compiler.operations import Operation, View
from nmpsim.diagnostics import Place

Severity: TypeAlias = Literal["error", "warning", "note"]
"""error: results will be wrong. warning: they may be. note: worth knowing."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

Fact: TypeAlias = float | int | str | bool


@attrs.frozen
class Finding:
    """One thing that a rule found."""

    rule: str
    severity: Severity
    message: str
    place: Place
    layer: str = ""
    """Instruction that it concerns; empty if it is the whole program."""
    number: int | None = None
    """Of that instruction."""
    tensor: str = ""
    found: str = ""
    expected: str = ""
    hint: str = ""
    facts: Mapping[str, Fact] = attrs.field(factory=dict)
    """Numbers of the finding, by names that docs/lint.md explains."""


@attrs.frozen
class Rule:
    """One rule: a name that never changes its meaning, and what it looks for in a line."""

    name: str
    summary: str
    check: Callable[[Subject], Iterator[Finding]] = attrs.field(eq=False)
    missing: Callable[[Subject], str] = attrs.field(default=lambda _: "", eq=False)
    """Why it cannot look at a program; empty if it can."""


def at_layer(
    rule: str,
    severity: Severity,
    message: str,
    subject: Subject,
    op: Operation,
    *,
    tensor: View | None = None,
    found: str = "",
    expected: str = "",
    hint: str = "",
    facts: Mapping[str, Fact] | None = None,
) -> Finding:
    """A finding about an instruction, at its line; or at the declaration of a constant of it."""
    return Finding(
        rule,
        severity,
        message,
        subject.place_of(op, tensor),
        op.instruction.name,
        op.instruction.number,
        tensor.name if tensor else "",
        found,
        expected,
        hint,
        facts or {},
    )
