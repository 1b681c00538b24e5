"""The table of all lint rules, and the driver that applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

import attrs

from nmpsim.analysis.lint import (
    accumulators,
    bias_payload,
    bias_range,
    fixed_values,
    islands,
    ranges,
    result_reference,
    scales,
)
from nmpsim.analysis.lint.findings import SEVERITIES, LintFinding, LocatedFinding, Severity
from nmpsim.analysis.lint.subject import LintSubject
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.diagnostics import Place
from nmpsim.lir.nodes import SourcePosition
from nmpsim.report.fields import NOT_IN_JSON


@attrs.frozen
class LintRule:
    """Rule of ``nmpsim lint``: name, summary and function that finds problems."""

    name: str
    summary: str
    check: Annotated[Callable[[LintSubject], Iterator[LintFinding]], NOT_IN_JSON] = attrs.field(
        eq=False
    )
    """Function that yields the problems of a program."""
    skip_reason: Annotated[Callable[[LintSubject], str], NOT_IN_JSON] = attrs.field(
        default=lambda _: "", eq=False
    )
    """Function that returns why the rule cannot be applied, or an empty string."""

    def apply(self, subject: LintSubject) -> Iterator[LocatedFinding]:
        """Apply the rule to a program, and yield the findings."""
        for problem in self.check(subject):
            source, tensor = problem.source, problem.tensor
            op = source if isinstance(source, Operation) else None
            yield LocatedFinding(
                self.name,
                problem.severity,
                problem.message,
                problem.place or _find_place(subject, source, tensor),
                op.instruction.name if op else "",
                op.instruction.number if op else None,
                tensor.name if isinstance(tensor, BufferView) else tensor or "",
                problem.found,
                problem.expected,
                problem.hint,
                problem.facts,
            )


def _find_place(
    subject: LintSubject, source: Operation | SourcePosition | None, tensor: BufferView | str | None
) -> Place:
    if isinstance(source, Operation):
        return subject.find_place(source, tensor if isinstance(tensor, BufferView) else None)
    return source.place(subject.module.file) if source else Place(subject.module.file)


@attrs.frozen
class SkippedRule:
    """Rule that could not be applied to a program, and the reason."""

    rule: str
    reason: str


def _unknown_constants(subject: LintSubject) -> str:
    return (
        ""
        if subject.has_constant_values
        else "the values of the constants are unknown; pass --weights FILE.npz"
    )


RULES: tuple[LintRule, ...] = (
    LintRule(
        "nothing-quantized",
        "no convolution or matrix product is quantized",
        islands.check_any_quantized,
    ),
    LintRule(
        "not-compiled",
        "an operation that the compiler rejects",
        islands.check_compilation,
        _unknown_constants,
    ),
    LintRule(
        "weights-differ",
        "weights that differ from the float model",
        fixed_values.check_weights,
        _unknown_constants,
    ),
    LintRule(
        "bias-differs",
        "a bias that is zero, in another order or unknown in the float model",
        fixed_values.check_biases,
        _unknown_constants,
    ),
    LintRule(
        "result-differs",
        "a result's scale or zero point that the float model contradicts",
        result_reference.check_results,
        _unknown_constants,
    ),
    LintRule(
        "bias-payload",
        "a bias whose declared type was changed while its payload was not",
        bias_payload.check_bias_payloads,
        _unknown_constants,
    ),
    LintRule(
        "bias-saturates",
        "a bias that saturates with its scale, or with the scale of the result",
        bias_range.check_bias_saturation,
        _unknown_constants,
    ),
    LintRule(
        "bias-loses-bits",
        "a bias that loses most of its bits with its scale, or with the scale of the result",
        bias_range.check_bias_precision,
        _unknown_constants,
    ),
    LintRule(
        "scale-not-power-of-two",
        "a scale that is not a power of two, where the profile needs one",
        scales.check_powers_of_two,
    ),
    LintRule(
        "scales-lost-in-print",
        "a scale of which only the printed digits are known",
        scales.check_printed_scales,
        scales.find_missing_text_reason,
    ),
    LintRule(
        "accumulator-overflow",
        "an accumulator that can overflow, from geometry and weights",
        accumulators.check_accumulators,
        _unknown_constants,
    ),
    LintRule(
        "range-wasted",
        "weights or results that use a small part of the integer range",
        ranges.check_wasted_ranges,
        _unknown_constants,
    ),
    LintRule(
        "range-too-narrow",
        "results whose type is narrower than their recorded range",
        ranges.check_narrow_ranges,
        ranges.find_unusable_reason,
    ),
    LintRule(
        "ranges-foreign",
        "a profile of another network",
        ranges.check_foreign_profile,
    ),
    LintRule(
        "ranges-unknown",
        "a profile that covers few of the results",
        ranges.check_profile_coverage,
        ranges.find_unusable_reason,
    ),
    LintRule(
        "splat-saturates",
        "a fill with a value outside the range of its type",
        fixed_values.check_splat_values,
    ),
    LintRule(
        "constant-unused",
        "a constant that no instruction reads",
        fixed_values.check_unused_constants,
    ),
    LintRule(
        "float-islands",
        "operations that are float between quantized operations",
        islands.check_islands,
    ),
)
"""All rules in the order in which a report lists their findings; names never change meaning."""


@attrs.frozen
class LintReport:
    """Report of lint: all findings, most severe first, and the rules that were skipped."""

    findings: tuple[LocatedFinding, ...]
    skipped: tuple[SkippedRule, ...]

    def count_findings(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)


def run_rules(subject: LintSubject) -> LintReport:
    """Run all rules on a program; return the findings by severity and the skipped rules."""
    findings: list[LocatedFinding] = []
    skipped: list[SkippedRule] = []
    for rule in RULES:
        if reason := rule.skip_reason(subject):
            skipped.append(SkippedRule(rule.name, reason))
        else:
            findings += rule.apply(subject)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return LintReport(tuple(findings), tuple(skipped))
