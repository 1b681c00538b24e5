"""The rules ``range-too-narrow`` and ``ranges-unknown``: results against a recorded profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from nmpsim.analysis.lint.findings import Finding, Severity, at_layer
from nmpsim.analysis.lint.subject import RecordedRange, Subject
from nmpsim.compiler.work import Operation, View
from nmpsim.diagnostics import Place
from nmpsim.lir.names import without_suffix

RULE, UNKNOWN = "range-too-narrow", "ranges-unknown"
HELD = 15.0 / 16.0
"""Share of a recorded range that a type must hold; a calibration may cut off outliers."""
FEW = 3
"""A profile that knows less than one stem in N is another network's."""
HALF = 0.5
"""Below it an error: the type is not made for these values."""


def recorded_for(name: str, ranges: Mapping[str, RecordedRange]) -> RecordedRange | None:
    """The range of an instruction by its name, else by what is left without Glow's ``__N``.

    Of several tensors with that stem it is known only if all have one range.
    """
    shorter = name
    while shorter not in ranges and (stem := shorter.rpartition("__")[0]):
        if not shorter.removeprefix(stem + "__").isdecimal():
            break
        shorter = stem
    if shorter in ranges:
        return ranges[shorter]
    stem = without_suffix(name)
    alike = {one for other, one in ranges.items() if without_suffix(other) == stem}
    return alike.pop() if len(alike) == 1 else None


def quantized_results(subject: Subject) -> Iterator[tuple[Operation, View]]:
    """Every operation whose result is quantized, and the result."""
    for op in subject.operations:
        if op.operands[0].type.quant is not None:
            yield op, op.operands[0]


def check(subject: Subject) -> Iterator[Finding]:
    """Results whose type does not hold what was recorded."""
    for op, view in quantized_results(subject):
        recorded = recorded_for(op.instruction.name, subject.ranges or {})
        if recorded is not None:
            yield from _narrow(op, view, recorded, subject)


def _narrow(
    op: Operation, view: View, recorded: RecordedRange, subject: Subject
) -> Iterator[Finding]:
    low, high = (view.scale * (end - view.offset) for end in view.limits)
    meant = _possible(recorded, (subject.ranges or {}).values())
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


def _possible(own: RecordedRange, ranges: Iterable[RecordedRange]) -> list[RecordedRange]:
    """An operation's own range, and those that an activation after it may have.

    Glow merges these into the operation and takes the activation's type. A ReLU of any kind keeps
    the highest value to the bit; a clip cuts at zero and at a whole number.
    """
    after = [
        one
        for one in ranges
        if own.low < one.low <= 0
        and (
            one.high == own.high
            or (one.low == 0 and one.high < own.high and one.high == round(one.high) > 0)
        )
    ]
    return [own, *after]


def _held(low: float, high: float, step: float, recorded: RecordedRange) -> float:
    """Share of a recorded range that a type from low to high holds, on its worse side."""
    ends = [(recorded.high, high), (-recorded.low, -low)]
    parts = [(held + step) / wanted for wanted, held in ends if wanted > step]
    return max(min(parts, default=1.0), 0.0)


def check_unknown(subject: Subject) -> Iterator[Finding]:
    """A profile that knows few of the results."""
    if subject.ranges is None:
        return
    stems: dict[str, bool] = defaultdict(bool)
    for op, _ in quantized_results(subject):
        name = op.instruction.name
        stems[without_suffix(name)] |= recorded_for(name, subject.ranges) is not None
    known = sum(stems.values())
    if not stems or known * FEW >= len(stems):
        return
    yield Finding(
        UNKNOWN,
        "warning",
        f"the profile knows {known} of {len(stems)} quantized results",
        Place(subject.module.file),
        found=f"ranges of {', '.join(list(subject.ranges)[:3])}",
        expected=f"ranges of {', '.join(list(stems)[:3])}",
        hint="is it the profile of another network?",
        facts={"known": known, "results": len(stems)},
    )
