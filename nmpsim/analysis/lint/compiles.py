"""The rule ``not-compiled``: what the compiler refuses, told for every layer at once."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.analysis.lint.findings import Finding
from nmpsim.analysis.lint.subject import Subject
from nmpsim.compiler.driver import find_refusals

RULE = "not-compiled"


def check(subject: Subject) -> Iterator[Finding]:
    """The compiler's own errors, each at the layer that it is about."""
    found = find_refusals(
        subject.module,
        subject.device,
        numerics=subject.numerics,
        instruction_numerics=subject.layer_numerics,
    )
    for op, diagnostic in found:
        yield Finding(
            RULE,
            "error",
            f"nmpsim compile refuses it, {diagnostic.code}: {diagnostic.message}",
            diagnostic.place or subject.place_of(op),
            op.instruction.name,
            op.instruction.number,
            found=diagnostic.found or "",
            expected=diagnostic.expected or "",
            hint=diagnostic.hint or "",
            facts={"code": diagnostic.code},
        )
