"""Findings for reading: by severity and rule, many of one kind in few lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console

from nmpsim.analysis.lint import SEVERITIES, Finding, LintReport, Subject
from nmpsim.views.console import heading, line
from nmpsim.views.text import plural

SHOWN = {"error": 8, "warning": 8, "note": 3}
"""Findings of one rule and severity that are told in full, unless all are asked for."""
_STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}


def print_findings(
    subject: Subject, report: LintReport, console: Console, *, show_all: bool = False
) -> None:
    """All findings, then what was counted and what could not be looked at."""
    for (severity, rule), group in groupby(report.findings, lambda f: (f.severity, f.rule)):
        findings = list(group)
        heading(console, f"{severity}: {rule} ({len(findings)})")
        shown = findings if show_all else findings[: SHOWN[severity]]
        hint = ""
        for finding in shown:
            _print_finding(finding, console)
            if finding.hint != hint:
                line(console, f"    hint: {finding.hint}")
            hint = finding.hint
        if len(shown) < len(findings):
            line(console, f"  and {len(findings) - len(shown)} more; --all shows them")
    if report.findings:
        line(console, "")
    line(console, f"{subject.module.name}: {_counts(report)}", "bold")
    for rule, reason in report.skipped:
        line(console, f"  not checked: {rule}: {reason}")


def _print_finding(finding: Finding, console: Console) -> None:
    where = "" if finding.place.line is None else f"{finding.place}: "
    line(console, f"  {where}{finding.message}", _STYLES[finding.severity])
    for label, text in (("found", finding.found), ("expected", finding.expected)):
        if text:
            line(console, f"    {label}: {text}")


def _counts(report: LintReport) -> str:
    counts: Sequence[str] = [
        plural(report.count(severity), severity)
        for severity in SEVERITIES
        if report.count(severity)
    ]
    return ", ".join(counts) or "nothing found"
