"""The rule ``range-too-narrow``: results against a recorded profile."""

from __future__ import annotations

from collections.abc import Iterator

from nmpsim.analysis.lint.findings import Finding, Severity, at_layer
from nmpsim.analysis.lint.range_foreign import possible, quantized_results, ranges_of
from nmpsim.analysis.lint.subject import Subject
from nmpsim.compiler.operations import Operation, View
from nmpsim.quantization import Range

RULE = "range-too-narrow"
HELD = 15.0 / 16.0
"""Share of a recorded range that a type must hold; a calibration may cut off outliers."""
HALF = 0.5
"""Below it an error: the type is not made for these values."""


def check(subject: Subject) -> Iterator[Finding]:
    """Results whose type does not hold what was recorded."""
    ranges = ranges_of(subject)
    for op, view in quantized_results(subject):
        recorded = ranges.find(op.instruction.name)
        if recorded is not None:
            yield from _narrow(op, view, recorded, subject)


def _narrow(op: Operation, view: View, recorded: Range, subject: Subject) -> Iterator[Finding]:
    low, high = (view.scale * (end - view.offset) for end in view.limits)
    meant = possible(recorded, (subject.ranges or {}).values())
    part = max(_held(low, high, view.scale, one) for one in meant)
    if part >= HELD:
        return
    severity: Severity = "error" if part < HALF else "warning"
    yield at_layer(
        RULE,
        severity,
        f"the type of the result of %{op.instruction.name} is too narrow for its values",
        subject,
        op,
        found=f"{low:.6g} to {high:.6g}",
        expected=f"{recorded.low:.6g} to {recorded.high:.6g}, as recorded",
        hint="a larger scale or another zero point; were they chosen from this profile?",
        facts={"part": part, "low": recorded.low, "high": recorded.high},
    )


def _held(low: float, high: float, step: float, recorded: Range) -> float:
    """Share of a recorded range that a type from low to high holds, on its worse side."""
    ends = [(recorded.high, high), (-recorded.low, -low)]
    parts = [(held + step) / wanted for wanted, held in ends if wanted > step]
    return max(min(parts, default=1.0), 0.0)
