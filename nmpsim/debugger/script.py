"""Commands from a file or a command line, without a screen: for CI and bug reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Final, Literal, TypedDict

import attrs

from nmpsim.debugger.commands.command import Result
from nmpsim.debugger.commands.shell import Shell
from nmpsim.diagnostics import Diagnostic, Place, UserError

SCHEMA: Final = "nmpsim-debug-1"


class AnswerDocument(TypedDict):
    """What a command answered."""

    command: str
    line: Annotated[int, "of the script"]
    text: list[str]
    data: Annotated[dict[str, Any], "the same facts; each command has its own"]


class DebugDocument(TypedDict):
    """What `nmpsim debug --format json` writes."""

    schema: Literal["nmpsim-debug-1"]
    worse: Annotated[bool, "whether a run trapped, or did not fulfil what was expected"]
    commands: list[AnswerDocument]
    never_hit: Annotated[list[str], "breakpoints and watchpoints that were never met"]


"""Version of the JSON document of a script."""


@attrs.frozen
class Line:
    """A line of a script."""

    text: str
    file: str
    number: int


@attrs.frozen
class Answer:
    """What became of a line."""

    line: Line
    result: Result


@attrs.frozen
class Outcome:
    """What became of a script."""

    answers: tuple[Answer, ...]
    never_hit: tuple[str, ...]
    """Breakpoints and watchpoints that were never met."""

    @property
    def is_worse(self) -> bool:
        """Did a run trap, or not fulfil what was expected?"""
        return any(answer.result.is_worse for answer in self.answers)


def run_script(
    shell: Shell,
    lines: Iterable[Line],
    told: Callable[[Answer], None] = lambda _: None,
    during: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Outcome:
    """Do line after line; ``told`` hears each answer, ``during`` is entered for each.

    Raises :class:`~nmpsim.diagnostics.UserError` at the first line that cannot be done, with its
    place.
    """
    answers = []
    for line in lines:
        try:
            with during():
                answer = Answer(line, shell.execute(line.text))
        except UserError as error:
            raise UserError([_placed(one, line) for one in error.diagnostics]) from error
        if line.text.strip():
            answers.append(answer)
            told(answer)
        if answer.result.ends:
            break
    return Outcome(tuple(answers), never_hit(shell))


def never_hit(shell: Shell) -> tuple[str, ...]:
    """Breakpoints and watchpoints that were never met, in words."""
    return tuple(
        f"{'watchpoint' if one.is_watchpoint else 'breakpoint'} {one.number} was never hit:"
        f" {one.text}"
        for one in shell.debugger.breakpoints
        if one.hits == 0
    )


def _placed(diagnostic: Diagnostic, line: Line) -> Diagnostic:
    if diagnostic.place is not None:
        return diagnostic
    return attrs.evolve(diagnostic, place=Place(line.file, line.number))


def document(outcome: Outcome) -> DebugDocument:
    """A script's answers as JSON."""
    return {
        "schema": SCHEMA,
        "worse": outcome.is_worse,
        "commands": [
            {
                "command": answer.line.text.strip(),
                "line": answer.line.number,
                "text": list(answer.result.lines),
                "data": dict(answer.result.data),
            }
            for answer in outcome.answers
        ],
        "never_hit": list(outcome.never_hit),
    }
