"""Findings of lint as text, by severity and rule."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.console import Console

from nmpsim.analysis.lint import SEVERITIES, LintReport, LintSubject
from nmpsim.diagnostics import format_count
from nmpsim.views.console import print_heading, print_line

SHOWN = {"error": 8, "warning": 8, "note": 3}
"""Findings per rule and severity that are shown without ``--all``."""
_STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}


def print_findings(
    subject: LintSubject, report: LintReport, console: Console, *, show_all: bool = False
) -> None:
    """Print the findings of lint, their number by severity, and the skipped rules."""
    for (severity, rule), group in groupby(report.findings, lambda f: (f.severity, f.rule)):
        findings = list(group)
        print_heading(console, f"{severity}: {rule} ({len(findings)})")
        shown = findings if show_all else findings[: SHOWN[severity]]
        hint = ""
        for finding in shown:
            where = "" if finding.place.line is None else f"{finding.place}: "
            message = _shortened(finding.message, subject.display_names)
            print_line(console, f"  {where}{message}", _STYLES[severity])
            for label, text in (("found", finding.found), ("expected", finding.expected)):
                if text:
                    words = _shortened(str(text), subject.display_names)
                    print_line(console, f"    {label}: {words}")
            if finding.hint != hint:
                print_line(console, f"    hint: {finding.hint}")
            hint = finding.hint
        if len(shown) < len(findings):
            print_line(console, f"  and {len(findings) - len(shown)} more; --all shows them")
    if report.findings:
        print_line(console, "")
    print_line(console, f"{subject.module.name}: {_counts(report)}", "bold")
    for one in report.skipped:
        print_line(console, f"  not checked: {one.rule}: {one.reason}")


def _shortened(text: str, shown: Mapping[str, str]) -> str:
    """Return a message with display names after percent signs, where it has full names."""

    def short(found: re.Match[str]) -> str:
        name = found[1].rstrip(",.:;")
        return f"%{shown.get(name, name)}{found[1][len(name) :]}"

    return re.sub(r"%(\S+)", short, text)


def _counts(report: LintReport) -> str:
    counts: Sequence[str] = [
        format_count(report.count_findings(severity), severity)
        for severity in SEVERITIES
        if report.count_findings(severity)
    ]
    return ", ".join(counts) or "no problems found"
