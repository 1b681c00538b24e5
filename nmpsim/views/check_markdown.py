"""Checks as Markdown for a pull request: what failed, and which layers changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nmpsim.checking import CaseResult, LayerOutcome
from nmpsim.views.check_text import STATUS_WORDS, summary
from nmpsim.visible import markdown

_SIGNS = {"passed": "✅", "wrong": "❌", "over": "⚠️", "error": "🛑"}
_GROUPS = ("regressed", "changed", "improved", "unchanged")
_OPEN = ("regressed", "changed")
_HEAD = (
    "| layer | line | operation | cycles | baseline | change | saturated | was"
    " | output | constants | rescale |",
    "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |",
)


def markdown_text(results: Sequence[CaseResult]) -> str:
    """The document: a table of cases, then each case's failures and layers."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Sequence[CaseResult]) -> Iterator[str]:
    yield f"## nmpsim: {summary(results)}"
    yield ""
    yield "| case | result | cycles | baseline | change |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for result in results:
        status = f"{_SIGNS[result.status]} {STATUS_WORDS[result.status].lower()}"
        yield f"| {markdown(result.name)} | {status} | {_cycles(result)} |"
    for result in results:
        yield from _case(result)


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


def _case(result: CaseResult) -> Iterator[str]:
    groups = {name: [one for one in result.layers if _kind(one) == name] for name in _GROUPS}
    changed = any(layers for name, layers in groups.items() if name != "unchanged")
    if result.status == "passed" and not changed:
        return
    yield ""
    yield f"### {markdown(result.name)}"
    yield ""
    for error in result.errors:
        yield f"- **{error.code}** {markdown(error.message)}"
    for check in result.failed:
        yield f"- **{check.name}**: {markdown(check.message)}"
    if result.version_note is not None:
        yield f"- {markdown(result.version_note)}"
    if result.core is not None:
        yield f"- core file: {markdown(result.core.command)} stops {markdown(result.core.stands)}"
    for name, layers in groups.items():
        is_open = name in _OPEN and result.status != "passed"
        yield from _group(name, layers, is_open)


def _kind(layer: LayerOutcome) -> str:
    """The group of a layer; one that computes something else is not hidden as unchanged."""
    if layer.change != "regressed" and layer.computes_otherwise:
        return "changed"
    return layer.change


def _group(title: str, layers: list[LayerOutcome], is_open: bool) -> Iterator[str]:
    """Layers of one kind, those that weigh most first: by change, or else by their cycles."""
    if not layers:
        return
    layers.sort(key=lambda layer: (-abs(layer.more_cycles), -layer.cycles))
    count = f"{len(layers)} {title} layer{'s' if len(layers) != 1 else ''}"
    yield ""
    yield f"<details{' open' if is_open else ''}><summary>{count}</summary>"
    yield ""
    yield from _HEAD
    yield from map(_row, layers)
    yield ""
    yield "</details>"


def _row(layer: LayerOutcome) -> str:
    before = layer.cycles_before or 0
    cells = (
        markdown(layer.display_name),
        str(layer.line or "-"),
        markdown(layer.operation),
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
