"""Findings as JSON data; docs/lint.md describes each field."""

from __future__ import annotations

from typing import Any

from nmpsim.analysis.lint.findings import SEVERITIES, Finding
from nmpsim.analysis.lint.rules import RULES, LintReport
from nmpsim.analysis.lint.subject import Subject

SCHEMA = "nmpsim-lint-1"


def lint_json(subject: Subject, report: LintReport) -> dict[str, Any]:
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


def _finding_json(finding: Finding) -> dict[str, Any]:
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
