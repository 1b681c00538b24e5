"""Failed checks as workflow commands, which GitHub shows at the lines of a pull request.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nmpsim.checking import CaseResult
from nmpsim.visible import visible

MAX_OF_CHECK = 5
"""Annotations of one check: GitHub shows ten of a step."""


def github_annotations(results: Sequence[CaseResult]) -> Iterator[str]:
    """One line for each layer that failed a check, and for each error."""
    for result in results:
        for error in result.errors:
            yield _command(result.source, 0, f"{result.name}: {error.code}", error.message)
        for check in result.failed:
            title = f"{result.name}: {check.name}"
            if not check.culprits:
                yield _command(result.source, 0, title, check.message)
            for one in check.culprits[:MAX_OF_CHECK]:
                yield _command(result.source, one.line, title, f"layer {one.name}: {one.message}")
        if result.version_note is not None and result.status != "passed":
            title = f"{result.name}: baseline"
            yield _command(result.source, 0, title, result.version_note, "warning")


def _command(file: str, line: int, title: str, message: str, kind: str = "error") -> str:
    place = f"file={_property(file)}," if file else ""
    place += f"line={line}," if line and file else ""
    return f"::{kind} {place}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
