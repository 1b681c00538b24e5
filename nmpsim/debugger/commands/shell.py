"""Shell: executes command lines; screens and scripts are built on it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

from nmpsim.debugger.breakpoints import FORMS
from nmpsim.debugger.commands.command import DebuggerCommand, split_line
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.expecting import FUNCTIONS
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.core_dump import CoreDump, write_core_file
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import get_tensors
from nmpsim.debugger.reference import ArrayOpener
from nmpsim.diagnostics import did_you_mean, fail


class Shell(CommandContext):
    """Shell that executes command lines, with completion and history."""

    def __init__(self, debugger: Debugger, open_arrays: ArrayOpener) -> None:
        super().__init__(debugger, open_arrays)
        self.history: list[str] = []
        """Lines that were executed successfully."""

    def execute(self, line: str) -> CommandResult:
        """Execute a command line and return the result; an empty line or a comment has no effect.

        Raises :class:`~nmpsim.diagnostics.UserError`: DEBUG001 if the line cannot be parsed, and
        whatever the command raises; the run stays usable.
        """
        words = split_line(line)
        if not words:
            return CommandResult()
        result = find_command(words[0]).execute(self, words[1:])
        self.history.append(line.strip())
        return result

    def complete(self, line: str) -> list[str]:
        """Return the sorted completions of the last word of a line."""
        words = line.split()
        last = "" if not words or line[-1:].isspace() else words.pop()
        if not words:
            offered: Iterable[str] = [name for c in COMMANDS for name in (c.name, *c.aliases)]
        else:
            command = _BY_NAME.get(words[0])
            kinds = command.completions if command is not None else ()
            offered = [text for kind in kinds for text in self._offered(kind)]
        return sorted({text for text in offered if text.startswith(last)})

    def _offered(self, kind: str) -> Iterable[str]:
        if kind == "<layer>":
            return [layer.name for layer in self.debugger.layers]
        if kind == "<tensor>":
            constants = self.get_module().constants if self.debugger.bundle.has_module else ()
            return [*get_tensors(self.debugger), *constants]
        if kind == "<breakpoint>":
            return [str(one.number) for one in self.debugger.breakpoints]
        if kind == "<command>":
            return [command.name for command in COMMANDS]
        if kind == "<expression>":
            return FUNCTIONS
        return [] if kind.startswith("<") else [kind]


def show_help(context: CommandContext, command: str = "") -> CommandResult:
    """Show the help of one command or of all commands."""
    if command:
        one = find_command(command)
        return context.make_result(
            "command_help",
            command=one.name,
            usage=one.usage,
            summary=one.summary,
            _details=one.details,
            _aliases=one.aliases,
        )
    commands = {one.name: one.summary for one in COMMANDS}
    return context.make_result("help", commands=commands, _groups=GROUPS)


def write_core(context: CommandContext, path: Path) -> CommandResult:
    """Write a core file that reopens the run at the current position."""
    execution = context.debugger
    core = CoreDump(
        bytes(execution.bundle.file), execution.inputs, execution.config, execution.engine.name,
        None if execution.trap else execution.position, execution.edits,
    )  # fmt: skip
    write_core_file(path, core)
    return context.make_result("core_file", position=execution.position, _path=path)


def quit_session(context: CommandContext) -> CommandResult:
    """End the session."""
    return CommandResult(ends=True)


_DEFINITIONS = Template(
    Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
).substitute(forms=" | ".join(FORMS), functions=", ".join(FUNCTIONS))
GROUPS: Mapping[str, tuple[DebuggerCommand, ...]] = {
    heading: tuple(DebuggerCommand(**entry) for entry in group.values())
    for heading, group in tomllib.loads(_DEFINITIONS).items()
}
"""Heading of the help -> its commands."""
COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)
"""All commands."""
_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


def find_command(word: str) -> DebuggerCommand:
    """Return the command with a name, alias or unique prefix; raise DEBUG001 if there is none."""
    if word in _BY_NAME:
        return _BY_NAME[word]
    begun = [command for command in COMMANDS if command.name.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    raise fail(
        "DEBUG001",
        f"the command {word!r} is {'ambiguous' if begun else 'unknown'}",
        found=word,
        expected=", ".join(c.name for c in begun) or "a command that `help` lists",
        hint=did_you_mean(word, _BY_NAME),
    )
