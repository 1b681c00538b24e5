"""Results of checks as text, Markdown, and annotations of GitHub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from nmpsim.checking import CaseResult, FailedLayer, LayerOutcome
from nmpsim.diagnostics import format_count
from nmpsim.escape import escape
from nmpsim.views.console import print_line
from nmpsim.views.templates import load_template

MAX_CULPRITS = 8
"""Layers that are shown for a failed check."""
STATUS_WORDS = {
    "passed": "passed",
    "wrong": "WRONG OUTPUT",
    "over": "OVER BUDGET",
    "error": "CANNOT BE CHECKED",
}
_STYLES = {"passed": "green", "wrong": "red", "over": "yellow", "error": "red"}


def print_checks(results: Sequence[CaseResult], console: Console) -> None:
    """Print the results of all cases and the number of cases by status."""
    for result in results:
        print_line(console, f"{result.name}: {STATUS_WORDS[result.status]}", "bold")
        for error in result.errors:
            for text in str(error).splitlines():
                print_line(console, f"  {text}", "red")
        for check in result.checks:
            word = "ok  " if not check.failed else "FAIL"
            print_line(console, f"  {word} {check.name:<10} {check.message}", _STYLES[check.status])
            for text in _culprit_lines(check.culprits):
                print_line(console, f"         {text}")
        if result.version_note is not None:
            print_line(console, f"  {result.version_note}", "yellow")
        if result.contract == "not_checked" and not result.errors:
            print_line(console, "  the contract of the instruction set was not checked")
        if result.core is not None:
            print_line(console, f"  core file: {result.core.command} stops {result.core.position}")
        if result.baseline_written:
            print_line(console, "  baseline written")
        console.print()
    print_line(console, summarize_checks(results), "bold")


def summarize_checks(results: Sequence[CaseResult]) -> str:
    """Summarize the statuses of all cases in a line: ``3 cases: 1 passed, 2 over budget``."""
    counts = {status: sum(result.status == status for result in results) for status in STATUS_WORDS}
    parts = [f"{n} {STATUS_WORDS[status].lower()}" for status, n in counts.items() if n]
    return f"{format_count(len(results), 'case')}: {', '.join(parts)}"


def _culprit_lines(culprits: Sequence[FailedLayer]) -> list[str]:
    shown = [f"{one.place}: {one.message}" for one in culprits[:MAX_CULPRITS]]
    if len(culprits) > MAX_CULPRITS:
        shown.append(f"and {format_count(len(culprits) - MAX_CULPRITS, 'layer')} more")
    return shown


_GROUPS = ("regressed", "changed", "improved", "unchanged")


def format_markdown(results: Sequence[CaseResult]) -> str:
    """Format the results of checks as a Markdown document."""
    text: str = load_template("check.md.jinja").render(
        results=results,
        summary=summarize_checks(results),
        words=STATUS_WORDS,
        group_layers=_group_layers,
    )
    return text


def _group_layers(result: CaseResult) -> dict[str, list[LayerOutcome]]:
    """Return the layers by change, largest change first; other constants count as changed."""
    layers = sorted(result.layers, key=lambda layer: (-abs(layer.added_cycles), -layer.cycles))
    groups: dict[str, list[LayerOutcome]] = {name: [] for name in _GROUPS}
    for layer in layers:
        is_changed = layer.change != "regressed" and layer.differs_from_baseline
        name = "changed" if is_changed else layer.change
        groups.setdefault(name, []).append(layer)
    return {name: groups[name] for name in _GROUPS if groups[name]}


MAX_ANNOTATIONS = 5
"""Annotations of one check; GitHub shows ten of a step."""


def format_github_annotations(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield GitHub workflow commands that annotate errors, failed layers and old baselines.

    https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    for result in results:
        for error in result.errors:
            yield _github_command(result.source, 0, f"{result.name}: {error.code}", error.message)
        for check in result.failed_checks:
            title = f"{result.name}: {check.name}"
            if not check.culprits:
                yield _github_command(result.source, 0, title, check.message)
            for one in check.culprits[:MAX_ANNOTATIONS]:
                yield _github_command(
                    result.source, one.line, title, f"layer {one.name}: {one.message}"
                )
        if result.version_note is not None and result.status != "passed":
            title = f"{result.name}: baseline"
            yield _github_command(result.source, 0, title, result.version_note, "warning")


def _github_command(file: str, line: int, title: str, message: str, kind: str = "error") -> str:
    place = f"file={_escape_property(file)}," if file else ""
    place += f"line={line}," if line and file else ""
    return f"::{kind} {place}title={_escape_property(title)}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    return escape(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")
