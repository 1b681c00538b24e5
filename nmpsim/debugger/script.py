"""Execution of commands from a file or the command line, for CI and bug reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Literal, TypedDict

import attrs

from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.commands.shell import Shell
from nmpsim.diagnostics import Diagnostic, Place, UserError
from nmpsim.report.fields import Source
from nmpsim.report.json import to_json


class CommandResultDocument(TypedDict):
    """JSON form of a debugger command's result."""

    command: Annotated[str, Source(lambda answer: answer.line.text.strip())]
    line: Annotated[int, "of the script", Source("line.number")]
    text: Annotated[list[str], Source("result.lines")]
    data: Annotated[
        dict[str, Any], "the same facts; each command has its own", Source("result.data")
    ]


class DebugDocument(TypedDict):
    """JSON document that `nmpsim debug --format json` writes."""

    schema: Literal["nmpsim-debug-1"]
    worse: Annotated[
        bool,
        "whether a run trapped or an expectation failed",
        Source("is_worse"),
    ]
    commands: Annotated[list[CommandResultDocument], Source("answers")]
    never_hit: Annotated[list[str], "breakpoints and watchpoints that were never hit"]


@attrs.frozen
class ScriptLine:
    """Line of a script, with its file and number."""

    text: str
    file: str
    number: int


@attrs.frozen
class ScriptLineResult:
    """Result of a script line: the line, and the result of its command."""

    line: ScriptLine
    result: CommandResult


@attrs.frozen
class ScriptOutcome:
    """Outcome of a script: the results of its lines, and the breakpoints never hit."""

    answers: tuple[ScriptLineResult, ...]
    never_hit: tuple[str, ...]
    """Breakpoints and watchpoints that were never hit."""

    @property
    def is_worse(self) -> bool:
        """Whether the run trapped or an expectation failed."""
        return any(answer.result.is_worse for answer in self.answers)


def run_script(
    shell: Shell,
    lines: Iterable[ScriptLine],
    on_answer: Callable[[ScriptLineResult], None] = lambda _: None,
    line_context: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> ScriptOutcome:
    """Run a script: execute its lines in order, and return the results.

    Parameters
    ----------
    shell : Shell
        Debugger session.
    lines : iterable of ScriptLine
        Commands to execute.
    on_answer : callable
        Called with each answer.
    line_context : callable
        Returns a context in which one line is executed.

    Raises
    ------
    UserError
        At the first line that cannot be executed, with its place.
    """
    answers = []
    for line in lines:
        try:
            with line_context():
                answer = ScriptLineResult(line, shell.execute(line.text))
        except UserError as error:
            raise UserError([_placed(one, line) for one in error.diagnostics]) from error
        if line.text.strip():
            answers.append(answer)
            on_answer(answer)
        if answer.result.ends:
            break
    return ScriptOutcome(tuple(answers), describe_missed_breakpoints(shell))


def describe_missed_breakpoints(shell: Shell) -> tuple[str, ...]:
    """Describe each breakpoint and watchpoint that was never hit."""
    return tuple(
        f"{one.kind} {one.number} was never hit: {one.text}"
        for one in shell.debugger.breakpoints
        if one.hits == 0
    )


def _placed(diagnostic: Diagnostic, line: ScriptLine) -> Diagnostic:
    if diagnostic.place is not None:
        return diagnostic
    return attrs.evolve(diagnostic, place=Place(line.file, line.number))


def make_debug_document(outcome: ScriptOutcome) -> DebugDocument:
    """Return the results of a script as a JSON document."""
    return to_json(outcome, DebugDocument)
