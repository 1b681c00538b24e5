"""All rules, in the order in which their findings are told; and running them."""

from __future__ import annotations

import attrs

from nmpsim.analysis.lint import (
    accumulators,
    bias_payload,
    bias_range,
    bias_reference,
    compiles,
    fixed_values,
    islands,
    range_foreign,
    range_narrow,
    ranges,
    result_reference,
    scales,
    weights_reference,
)
from nmpsim.analysis.lint.findings import SEVERITIES, Finding, Rule, Severity
from nmpsim.analysis.lint.subject import Subject


def _needs_constants(subject: Subject) -> str:
    return "" if subject.has_constants else "the values of the constants are not known (--weights)"


RULES: tuple[Rule, ...] = (
    Rule(
        islands.NOTHING,
        "no convolution or matrix product is quantized",
        islands.check_nothing,
    ),
    Rule(
        compiles.RULE,
        "a layer that the compiler refuses",
        compiles.check,
        _needs_constants,
    ),
    Rule(
        weights_reference.RULE,
        "weights that are not those of the float model",
        weights_reference.check,
        _needs_constants,
    ),
    Rule(
        result_reference.RULE,
        "a result's scale or zero point that the float model contradicts",
        result_reference.check,
        _needs_constants,
    ),
    Rule(
        bias_reference.RULE,
        "a bias whose declared type was changed while its payload was not",
        bias_payload.check,
        _needs_constants,
    ),
    Rule(
        bias_range.SATURATES,
        "a bias that saturates on its scale, or on the scale of the result",
        bias_range.check_saturates,
        _needs_constants,
    ),
    Rule(
        bias_range.LOSES_BITS,
        "a bias of which its scale, or the scale of the result, leaves few bits",
        bias_range.check_loses_bits,
        _needs_constants,
    ),
    Rule(
        scales.NOT_POWER,
        "a scale that is no power of two, where the profile needs one",
        scales.check_powers,
    ),
    Rule(
        scales.LOST,
        "a scale of which only the printed decimals are known",
        scales.check_print,
        scales.print_is_unknown,
    ),
    Rule(
        accumulators.RULE,
        "an accumulator that can overflow, from geometry and weights",
        accumulators.check,
        _needs_constants,
    ),
    Rule(
        ranges.RULE,
        "weights or results that use few of their integers",
        ranges.check,
        _needs_constants,
    ),
    Rule(
        range_narrow.RULE,
        "results whose type does not hold their recorded range",
        range_narrow.check,
        range_foreign.unusable,
    ),
    Rule(
        range_foreign.FOREIGN,
        "a profile of another network",
        range_foreign.check_foreign,
    ),
    Rule(
        range_foreign.UNKNOWN,
        "a profile that knows few of the results",
        range_foreign.check_unknown,
        range_foreign.unusable,
    ),
    Rule(
        fixed_values.SATURATES,
        "a fill with a value that its type does not hold",
        fixed_values.check_splats,
    ),
    Rule(
        fixed_values.UNUSED,
        "a constant that no instruction takes",
        fixed_values.check_unused,
    ),
    Rule(
        islands.ISLANDS,
        "operations that stay float between quantized ones",
        islands.check_islands,
    ),
)
"""Names never change their meaning; docs/lint.md has a section for each."""


@attrs.frozen
class LintReport:
    """What the rules found, worst first, and which of them could not look."""

    findings: tuple[Finding, ...]
    skipped: tuple[tuple[str, str], ...]
    """Name of a rule, and why it was skipped."""

    def count(self, severity: Severity) -> int:
        """How many findings are of a severity."""
        return sum(finding.severity == severity for finding in self.findings)


def run_rules(subject: Subject) -> LintReport:
    """Every rule on a program."""
    findings: list[Finding] = []
    skipped: list[tuple[str, str]] = []
    for rule in RULES:
        reason = rule.missing(subject)
        if reason:
            skipped.append((rule.name, reason))
        else:
            findings += rule.check(subject)
    order = {severity: place for place, severity in enumerate(SEVERITIES)}
    return LintReport(
        tuple(sorted(findings, key=lambda finding: order[finding.severity])), tuple(skipped)
    )
