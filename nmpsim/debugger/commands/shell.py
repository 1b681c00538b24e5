"""A session of commands: lines in, results out. Screens and scripts are made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from nmpsim.debugger.commands import (
    auditing,
    breakpoints,
    changing,
    comparing,
    expecting,
    inspect,
    run,
    why,
)
from nmpsim.debugger.commands.arguments import Arguments, split_line, suggest
from nmpsim.debugger.commands.command import Command, CommandResult, make_result
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.core_dump import CoreDump, write_core_file
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import list_tensors
from nmpsim.debugger.reference import ArrayOpener
from nmpsim.diagnostics import fail


class Shell(Context):
    """Lines in, results out."""

    def __init__(self, debugger: Debugger, open_arrays: ArrayOpener) -> None:
        super().__init__(debugger, open_arrays)
        self.history: list[str] = []
        """Lines that were executed, without those that were not understood."""

    def execute(self, line: str) -> CommandResult:
        """Do one line; an empty one, or a comment, does nothing.

        Raises :class:`~nmpsim.diagnostics.UserError`: DEBUG001 if it is not understood, what the
        command raises otherwise; the run stays usable.
        """
        words = split_line(line)
        if not words:
            return CommandResult()
        command = find_command(words[0])
        result = command.run(self, Arguments(words[1:], command.usage))
        self.history.append(line.strip())
        return result

    def complete(self, line: str) -> list[str]:
        """What the last word of a line may become, sorted."""
        words = line.split()
        last = "" if not words or line[-1:].isspace() else words.pop()
        if not words:
            offered: Iterable[str] = [name for c in COMMANDS for name in (c.name, *c.aliases)]
        else:
            command = _BY_NAME.get(words[0])
            kinds = command.completes if command is not None else ()
            offered = [text for kind in kinds for text in self._offered(kind)]
        return sorted({text for text in offered if text.startswith(last)})

    def _offered(self, kind: str) -> Iterable[str]:
        if kind == "<layer>":
            return [layer.name for layer in self.debugger.layers]
        if kind == "<tensor>":
            constants = self.module().constants if self.debugger.bundle.debug else ()
            return [*list_tensors(self.debugger), *constants]
        if kind == "<breakpoint>":
            return [str(one.number) for one in self.debugger.breakpoints]
        if kind == "<command>":
            return [command.name for command in COMMANDS]
        return [] if kind.startswith("<") else [kind]


def help_command(context: Context, arguments: Arguments) -> CommandResult:
    """All commands, or one."""
    if arguments:
        command = find_command(arguments.take_word("a command"))
        arguments.expect_end()
        lines = [command.usage, f"  {command.summary}"]
        if command.details:
            lines.append(f"  {command.details}")
        if command.aliases:
            lines.append(f"  also: {', '.join(command.aliases)}")
        return make_result(
            *lines, command=command.name, usage=command.usage, summary=command.summary
        )
    lines = []
    for heading, commands in GROUPS.items():
        lines.append(heading)
        for one in commands:
            short = f" ({', '.join(one.aliases[:1])})" if one.aliases else ""
            lines.append(f"  {one.name + short:<18} {one.summary}")
    lines.append("`help COMMAND` shows more")
    return make_result(*lines, commands={one.name: one.summary for one in COMMANDS})


def keep(context: Context, arguments: Arguments) -> CommandResult:
    """Write a core file of where the run stands."""
    path = Path(arguments.take_word("a file"))
    arguments.expect_end()
    execution = context.debugger.execution
    core = CoreDump(
        bytes(execution.bundle.file), execution.inputs, execution.config, execution.engine.name,
        None if execution.trap else execution.position, execution.edits,
    )  # fmt: skip
    write_core_file(path, core)
    return make_result(f"{path}: `nmpsim debug {path}` opens it", position=execution.position)


def leave(context: Context, arguments: Arguments) -> CommandResult:
    """The end of the session."""
    arguments.expect_end()
    return CommandResult(ends=True)


GROUPS: Mapping[str, tuple[Command, ...]] = {
    "Move": run.COMMANDS,
    "Stop": breakpoints.COMMANDS,
    "Look": inspect.COMMANDS,
    "Compare": comparing.COMMANDS,
    "Ask": (*why.COMMANDS, *auditing.COMMANDS),
    "Change": changing.COMMANDS,
    "Check": expecting.COMMANDS,
    "Session": (
        Command("help", "help [COMMAND]", "this list, or all about a command", help_command,
                ("h", "?"), ("<command>",)),
        Command("core", "core FILE", "write a file that repeats the run, to open it again here",
                keep, (), ("<file>",)),
        Command("quit", "quit", "end the session", leave, ("q", "exit")),
    ),
}  # fmt: skip
COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)
"""The table of all commands."""
_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


def find_command(word: str) -> Command:
    """The command of this name, alias or clear beginning; UserError DEBUG001 if there is none."""
    if word in _BY_NAME:
        return _BY_NAME[word]
    begun = [command for command in COMMANDS if command.name.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    raise fail(
        "DEBUG001",
        f"there is no command {word!r}",
        expected=", ".join(c.name for c in begun) if begun else "one of `help`",
        hint=suggest(word, list(_BY_NAME)),
    )
