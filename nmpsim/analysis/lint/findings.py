"""Records of problems that lint rules find in a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.diagnostics import Place
from nmpsim.lir.nodes import SourcePosition

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: results will be wrong. ``warning``: they may be wrong. ``note``: for information."""

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

Fact: TypeAlias = float | int | str | bool


@attrs.frozen
class LintFinding:
    """Finding of a lint rule: message, found and expected values, and a hint."""

    severity: Severity
    message: str
    source: Operation | SourcePosition | None = None
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
class LocatedFinding:
    """Finding with its lint rule and its place in the program."""

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
