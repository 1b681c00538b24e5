"""Findings of lint rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from nmpsim.analysis.lint.subject import LintSubject
from nmpsim.compiler.operations import Operation, View
from nmpsim.diagnostics import Place

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: results will be wrong. ``warning``: they may be wrong. ``note``: for information."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

Fact: TypeAlias = float | int | str | bool


@attrs.frozen
class Finding:
    """A problem that a rule reports."""

    rule: str
    severity: Severity
    message: str
    place: Place
    layer: str = ""
    """Full name of the instruction; empty if the finding is about the whole program."""
    number: int | None = None
    """Number of that instruction in the LIR."""
    tensor: str = ""
    found: str = ""
    expected: str = ""
    hint: str = ""
    facts: Mapping[str, Fact] = attrs.field(factory=dict)
    """Values of the finding by name; docs/lint.md explains them."""


def layer_finding(
    rule: str,
    severity: Severity,
    message: str,
    subject: LintSubject,
    op: Operation,
    *,
    tensor: View | None = None,
    found: str = "",
    expected: str = "",
    hint: str = "",
    facts: Mapping[str, Fact] | None = None,
) -> Finding:
    """Return a finding located at an instruction, or at the declaration of one of its constants."""
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
