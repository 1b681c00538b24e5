"""Records of problems that lint rules find in a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.diagnostics import Place
from nmpsim.lir.nodes import Span

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: results will be wrong. ``warning``: they may be wrong. ``note``: for information."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

Fact: TypeAlias = float | int | str | bool


@attrs.frozen
class LintFinding:
    """A problem that a lint rule reports."""

    severity: Severity
    message: str
    source: Operation | Span | None = None
    """The instruction concerned, or the place in the LIR text; None for the whole program."""
    tensor: BufferView | str | None = None
    """The tensor concerned; a constant is located at its declaration."""
    found: str = ""
    expected: str = ""
    hint: str = ""
    facts: Mapping[str, Fact] = attrs.field(factory=dict)
    """Values of the problem by name; docs/lint.md explains them."""
    place: Place | None = None
    """Place, if it is not that of ``source``."""


@attrs.frozen
class Finding:
    """A problem of a program with the lint rule that found it and its place."""

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
