"""Findings as JSON data; docs/lint.md describes each field."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypedDict

from nmpsim.analysis.lint.findings import SEVERITIES, Fact, Finding, Severity
from nmpsim.analysis.lint.rules import RULES, LintReport
from nmpsim.analysis.lint.subject import Subject

SCHEMA: Final = "nmpsim-lint-1"


class FindingDocument(TypedDict):
    """One thing that a rule found."""

    rule: str
    severity: Severity
    message: str
    file: str | None
    line: int | None
    column: int | None
    layer: Annotated[str | None, "instruction that it concerns; null if it is the whole program"]
    number: Annotated[int | None, "number of that instruction"]
    tensor: str | None
    found: str | None
    expected: str | None
    hint: str | None
    facts: Annotated[dict[str, Fact], "numbers of the finding; each rule has its own"]


class RuleDocument(TypedDict):
    """A rule."""

    name: str
    summary: str


class SkippedDocument(TypedDict):
    """A rule that was not applied."""

    rule: str
    reason: str


class LintDocument(TypedDict):
    """What `nmpsim lint --format json` writes."""

    schema: Literal["nmpsim-lint-1"]
    program: str
    file: str | None
    numerics: str
    counts: Annotated[dict[str, int], "findings by severity"]
    findings: list[FindingDocument]
    rules: list[RuleDocument]
    skipped: list[SkippedDocument]


def lint_json(subject: Subject, report: LintReport) -> LintDocument:
    """The whole report."""
    return {
        "schema": SCHEMA,
        "program": subject.module.name,
        "file": subject.module.file,
        "numerics": subject.numerics,
        "counts": {severity: report.count(severity) for severity in SEVERITIES},
        "findings": [_finding_json(finding) for finding in report.findings],
        "rules": [{"name": rule.name, "summary": rule.summary} for rule in RULES],
        "skipped": [{"rule": rule, "reason": reason} for rule, reason in report.skipped],
    }


def _finding_json(finding: Finding) -> FindingDocument:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "message": finding.message,
        "file": finding.place.file,
        "line": finding.place.line,
        "column": finding.place.column,
        "layer": finding.layer or None,
        "number": finding.number,
        "tensor": finding.tensor or None,
        "found": finding.found or None,
        "expected": finding.expected or None,
        "hint": finding.hint or None,
        "facts": dict(finding.facts),
    }
