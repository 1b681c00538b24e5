"""Results of checks as text, as Markdown for a pull request, and as annotations of GitHub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from nmpsim.checking import CaseResult, FailedLayer, LayerOutcome
from nmpsim.escape import escape, escape_markdown
from nmpsim.views.console import print_line
from nmpsim.views.text import format_count

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
        _print_case(result, console)
        console.print()
    print_line(console, summarize_checks(results), "bold")


def summarize_checks(results: Sequence[CaseResult]) -> str:
    """Format the number of cases by status: ``3 cases: 1 passed, 2 over budget``."""
    counts = {status: sum(result.status == status for result in results) for status in STATUS_WORDS}
    parts = [f"{n} {STATUS_WORDS[status].lower()}" for status, n in counts.items() if n]
    return f"{format_count(len(results), 'case')}: {', '.join(parts)}"


def _print_case(result: CaseResult, console: Console) -> None:
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


def _culprit_lines(culprits: Sequence[FailedLayer]) -> list[str]:
    shown = [f"{one.place}: {one.message}" for one in culprits[:MAX_CULPRITS]]
    if len(culprits) > MAX_CULPRITS:
        shown.append(f"and {format_count(len(culprits) - MAX_CULPRITS, 'layer')} more")
    return shown


_SIGNS = {"passed": "✅", "wrong": "❌", "over": "⚠️", "error": "🛑"}
_GROUPS = ("regressed", "changed", "improved", "unchanged")
_OPEN_GROUPS = ("regressed", "changed")
_LAYER_HEAD = (
    "| layer | line | operation | cycles | baseline | change | saturated | was"
    " | output | constants | rescale |",
    "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |",
)


def format_markdown(results: Sequence[CaseResult]) -> str:
    """Return the results of checks as a Markdown document."""
    return "\n".join(_markdown_lines(results)) + "\n"


def _markdown_lines(results: Sequence[CaseResult]) -> Iterator[str]:
    yield f"## nmpsim: {summarize_checks(results)}"
    yield ""
    yield "| case | result | cycles | baseline | change |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for result in results:
        status = f"{_SIGNS[result.status]} {STATUS_WORDS[result.status].lower()}"
        yield f"| {escape_markdown(result.name)} | {status} | {_cycles(result)} |"
    for result in results:
        yield from _markdown_case(result)


def _cycles(result: CaseResult) -> str:
    if result.errors:
        return "- | - | -"
    before = result.cycles_before
    if before is None:
        return f"{result.cycles:,} | - | -"
    return f"{result.cycles:,} | {before:,} | {_change(result.cycles, before)}"


def _change(now: int, before: int) -> str:
    if now == before:
        return "0"
    share = f" ({100 * (now - before) / before:+.1f}%)" if before else ""
    return f"{now - before:+,}{share}"


def _markdown_case(result: CaseResult) -> Iterator[str]:
    groups = {name: [one for one in result.layers if _group_of(one) == name] for name in _GROUPS}
    changed = any(layers for name, layers in groups.items() if name != "unchanged")
    if result.status == "passed" and not changed:
        return
    yield ""
    yield f"### {escape_markdown(result.name)}"
    yield ""
    for error in result.errors:
        yield f"- **{error.code}** {escape_markdown(error.message)}"
    for check in result.failed_checks:
        yield f"- **{check.name}**: {escape_markdown(check.message)}"
    if result.version_note is not None:
        yield f"- {escape_markdown(result.version_note)}"
    if result.core is not None:
        core = f"{result.core.command} stops {result.core.position}"
        yield f"- core file: {escape_markdown(core)}"
    for name, layers in groups.items():
        is_open = name in _OPEN_GROUPS and result.status != "passed"
        yield from _markdown_group(name, layers, is_open)


def _group_of(layer: LayerOutcome) -> str:
    """Return the group of a layer; other constants or scales count as changed."""
    if layer.change != "regressed" and layer.differs_from_baseline:
        return "changed"
    return layer.change


def _markdown_group(title: str, layers: list[LayerOutcome], is_open: bool) -> Iterator[str]:
    """Yield the layers of a group, largest change first, then most cycles."""
    if not layers:
        return
    layers.sort(key=lambda layer: (-abs(layer.added_cycles), -layer.cycles))
    count = format_count(len(layers), f"{title} layer")
    yield ""
    yield f"<details{' open' if is_open else ''}><summary>{count}</summary>"
    yield ""
    yield from _LAYER_HEAD
    yield from map(_markdown_row, layers)
    yield ""
    yield "</details>"


def _markdown_row(layer: LayerOutcome) -> str:
    before = layer.cycles_before or 0
    cells = (
        escape_markdown(layer.display_name),
        str(layer.line or "-"),
        escape_markdown(layer.operation),
        f"{layer.cycles:,}",
        f"{before:,}",
        _change(layer.cycles, before),
        f"{layer.saturated:,}",
        f"{layer.saturated_before or 0:,}",
        "changed" if layer.output_changed else "same",
        "changed" if layer.constants_changed else "same",
        "changed" if layer.rescale_changed else "same",
    )
    return f"| {' | '.join(cells)} |"


MAX_ANNOTATIONS = 5
"""Annotations of one check; GitHub shows ten of a step."""


def list_github_annotations(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield a workflow command of GitHub for each error and each layer that failed a check.

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
