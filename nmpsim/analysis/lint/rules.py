"""The table of all rules, and running them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from nmpsim.analysis.lint.accumulators import ACCUMULATOR_OVERFLOW, check_accumulators
from nmpsim.analysis.lint.bias_payload import BIAS_PAYLOAD, check_bias_payloads
from nmpsim.analysis.lint.bias_range import (
    BIAS_LOSES_BITS,
    BIAS_SATURATES,
    check_bias_precision,
    check_bias_saturation,
)
from nmpsim.analysis.lint.findings import SEVERITIES, Finding, Severity
from nmpsim.analysis.lint.fixed_values import (
    CONSTANT_UNUSED,
    SPLAT_SATURATES,
    WEIGHTS_DIFFER,
    check_splat_values,
    check_unused_constants,
    check_weights,
)
from nmpsim.analysis.lint.islands import (
    FLOAT_ISLANDS,
    NOT_COMPILED,
    NOTHING_QUANTIZED,
    check_any_quantized,
    check_compilation,
    check_islands,
)
from nmpsim.analysis.lint.ranges import (
    RANGE_TOO_NARROW,
    RANGE_WASTED,
    RANGES_FOREIGN,
    RANGES_UNKNOWN,
    check_foreign_profile,
    check_narrow_ranges,
    check_profile_coverage,
    check_wasted_ranges,
    unusable_reason,
)
from nmpsim.analysis.lint.result_reference import RESULT_DIFFERS, check_results
from nmpsim.analysis.lint.scales import (
    SCALE_NOT_POWER_OF_TWO,
    SCALES_LOST_IN_PRINT,
    check_powers_of_two,
    check_printed_scales,
    missing_text_reason,
)
from nmpsim.analysis.lint.subject import LintSubject


@attrs.frozen
class Rule:
    """A rule of ``nmpsim lint``; docs/lint.md has a section for each, by its name."""

    name: str
    summary: str
    check: Callable[[LintSubject], Iterator[Finding]] = attrs.field(eq=False)
    skip_reason: Callable[[LintSubject], str] = attrs.field(default=lambda _: "", eq=False)
    """Returns why the rule cannot be applied to a program, or an empty string if it can."""


def _unknown_constants(subject: LintSubject) -> str:
    return "" if subject.has_constants else "the values of the constants are not known (--weights)"


RULES: tuple[Rule, ...] = (
    Rule(
        NOTHING_QUANTIZED,
        "no convolution or matrix product is quantized",
        check_any_quantized,
    ),
    Rule(
        NOT_COMPILED,
        "a layer that the compiler refuses",
        check_compilation,
        _unknown_constants,
    ),
    Rule(
        WEIGHTS_DIFFER,
        "weights that are not those of the float model",
        check_weights,
        _unknown_constants,
    ),
    Rule(
        RESULT_DIFFERS,
        "a result's scale or zero point that the float model contradicts",
        check_results,
        _unknown_constants,
    ),
    Rule(
        BIAS_PAYLOAD,
        "a bias whose declared type was changed while its payload was not",
        check_bias_payloads,
        _unknown_constants,
    ),
    Rule(
        BIAS_SATURATES,
        "a bias that saturates on its scale, or on the scale of the result",
        check_bias_saturation,
        _unknown_constants,
    ),
    Rule(
        BIAS_LOSES_BITS,
        "a bias that its scale, or the scale of the result, leaves few bits",
        check_bias_precision,
        _unknown_constants,
    ),
    Rule(
        SCALE_NOT_POWER_OF_TWO,
        "a scale that is not a power of two, where the profile needs one",
        check_powers_of_two,
    ),
    Rule(
        SCALES_LOST_IN_PRINT,
        "a scale of which only the printed decimals are known",
        check_printed_scales,
        missing_text_reason,
    ),
    Rule(
        ACCUMULATOR_OVERFLOW,
        "an accumulator that can overflow, from geometry and weights",
        check_accumulators,
        _unknown_constants,
    ),
    Rule(
        RANGE_WASTED,
        "weights or results that use few of their integers",
        check_wasted_ranges,
        _unknown_constants,
    ),
    Rule(
        RANGE_TOO_NARROW,
        "results whose type does not hold their recorded range",
        check_narrow_ranges,
        unusable_reason,
    ),
    Rule(
        RANGES_FOREIGN,
        "a profile of another network",
        check_foreign_profile,
    ),
    Rule(
        RANGES_UNKNOWN,
        "a profile that covers few of the results",
        check_profile_coverage,
        unusable_reason,
    ),
    Rule(
        SPLAT_SATURATES,
        "a fill with a value that its type does not hold",
        check_splat_values,
    ),
    Rule(
        CONSTANT_UNUSED,
        "a constant that no instruction reads",
        check_unused_constants,
    ),
    Rule(
        FLOAT_ISLANDS,
        "operations that stay float between quantized ones",
        check_islands,
    ),
)
"""All rules in the order of their findings in a report. A name never changes its meaning."""


@attrs.frozen
class LintReport:
    """Findings, most severe first, and the rules that could not be applied."""

    findings: tuple[Finding, ...]
    skipped: tuple[tuple[str, str], ...]
    """Name of a rule, and why it was skipped."""

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)


def run_rules(subject: LintSubject) -> LintReport:
    """Apply every rule to a program."""
    findings: list[Finding] = []
    skipped: list[tuple[str, str]] = []
    for rule in RULES:
        if reason := rule.skip_reason(subject):
            skipped.append((rule.name, reason))
        else:
            findings += rule.check(subject)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return LintReport(tuple(findings), tuple(skipped))
