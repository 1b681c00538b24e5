"""The rules ``splat-saturates`` and ``constant-unused``: values that are there from the start."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.analysis.lint.findings import Finding, at_layer
from nmpsim.analysis.lint.subject import Subject
from nmpsim.lir.opcode import Kind

SATURATES, UNUSED = "splat-saturates", "constant-unused"


def check_splats(subject: Subject) -> Iterator[Finding]:
    """Fills with a value that the type does not reach, by more than its rounding."""
    for op in subject.operations:
        view, value = op.operands[0], op.instruction.attributes.get("Value")
        if (
            op.kind is not Kind.FILL
            or view.type.quant is None
            or not isinstance(value, int | float)
        ):
            continue
        low, high = (view.scale * (end - view.offset) for end in view.limits)
        held = min(max(value, low), high)
        if abs(held - value) <= view.scale / 2:
            continue
        yield at_layer(
            SATURATES,
            "warning",
            f"the value of %{op.instruction.name} is beyond what its type holds",
            subject,
            op,
            found=f"{value:.9g}, stored as {held:.9g}",
            expected=f"{low:.9g} to {high:.9g}",
            hint="a larger scale or another zero point",
            facts={"value": float(value), "held": held},
        )


def check_unused(subject: Subject) -> Iterator[Finding]:
    """Constants that no instruction takes."""
    used = {operand.name for one in subject.module.instructions for operand in one.operands}
    for weight in subject.module.weights:
        if weight.constant and weight.name not in used:
            yield Finding(
                UNUSED,
                "note",
                f"no instruction takes the constant %{weight.name}",
                weight.span.place(subject.module.file),
                tensor=weight.name,
                found=f"{weight.type.nbytes} bytes",
                hint="Glow leaves some; of a layer's weights it means that the layer has others",
                facts={"bytes": weight.type.nbytes},
            )
