"""Checks for reading: every case, and of a failed one which layer and why."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from nmpsim.checking import CaseResult, Culprit
from nmpsim.views.console import line
from nmpsim.views.text import plural

MAX_CULPRITS = 8
"""Layers of a failed check that are told."""
STATUS_WORDS = {
    "passed": "passed",
    "wrong": "WRONG ANSWER",
    "over": "OVER BUDGET",
    "error": "CANNOT BE CHECKED",
}
_STYLES = {"passed": "green", "wrong": "red", "over": "yellow", "error": "red"}


def print_checks(results: Sequence[CaseResult], console: Console) -> None:
    """All cases, then the count."""
    for result in results:
        line(console, f"{result.name}: {STATUS_WORDS[result.status]}", "bold")
        _print_case(result, console)
        console.print()
    line(console, summary(results), "bold")


def summary(results: Sequence[CaseResult]) -> str:
    """``3 cases: 1 passed, 2 over budget``"""
    counts = {status: sum(result.status == status for result in results) for status in STATUS_WORDS}
    parts = [f"{n} {STATUS_WORDS[status].lower()}" for status, n in counts.items() if n]
    return f"{plural(len(results), 'case')}: {', '.join(parts)}"


def _print_case(result: CaseResult, console: Console) -> None:
    for error in result.errors:
        for text in str(error).splitlines():
            line(console, f"  {text}", "red")
    for check in result.checks:
        word = "ok  " if not check.failed else "FAIL"
        line(console, f"  {word} {check.name:<10} {check.message}", _STYLES[check.status])
        for text in _culprit_lines(check.culprits):
            line(console, f"         {text}")
    if result.version_note is not None:
        line(console, f"  {result.version_note}", "yellow")
    if result.contract == "not_checked" and not result.errors:
        line(console, "  the contract of the instruction set was not checked")
    if result.core is not None:
        line(console, f"  core file: {result.core.command} stops {result.core.stands}")
    if result.baseline_written:
        line(console, "  baseline written")


def _culprit_lines(culprits: Sequence[Culprit]) -> list[str]:
    shown = [f"{one.place}: {one.message}" for one in culprits[:MAX_CULPRITS]]
    if len(culprits) > MAX_CULPRITS:
        shown.append(f"and {plural(len(culprits) - MAX_CULPRITS, 'layer')} more")
    return shown
