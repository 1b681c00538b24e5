"""A session of commands: lines in, results out. Screens and scripts are made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from nmpsim.analysis.explain import LayerFacts
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.bundle.patch import apply_patch
from nmpsim.debugger.arrays import OpenArrays
from nmpsim.debugger.audit import OperandType, bias_note, operand_types
from nmpsim.debugger.changes import Changes
from nmpsim.debugger.commands import (
    asking,
    auditing,
    changing,
    comparing,
    expecting,
    looking,
    moving,
    stopping,
)
from nmpsim.debugger.commands.arguments import Arguments, near, split_line
from nmpsim.debugger.commands.result import Result, say
from nmpsim.debugger.commands.table import Command
from nmpsim.debugger.corefile import Core, save_core
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import tensors
from nmpsim.debugger.integers import Facts, all_facts, facts_of
from nmpsim.debugger.reference import Reference, compare_layer
from nmpsim.diagnostics import about, fail
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.printer import format_instruction


class Shell:
    """Commands on a debugger."""

    def __init__(self, debugger: Debugger, open_arrays: OpenArrays) -> None:
        self.debugger = debugger
        self.changes = Changes(debugger)
        self.reference: Reference | None = None
        self.history: list[str] = []
        """Lines that were executed, without those that were not understood."""
        self.open_arrays = open_arrays
        self._module: Module | None = None
        self._facts: Facts | None = None

    def execute(self, line: str) -> Result:
        """Do one line; an empty one, or a comment, does nothing.

        Raises :class:`~nmpsim.diagnostics.UserError`: DEBUG001 if it is not understood, what the
        command raises otherwise; the run stays usable.
        """
        words = split_line(line)
        if not words:
            return Result()
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
            return [*tensors(self.debugger), *constants]
        if kind == "<breakpoint>":
            return [str(one.number) for one in self.debugger.breakpoints]
        if kind == "<command>":
            return [command.name for command in COMMANDS]
        return [] if kind.startswith("<") else [kind]

    def load_reference(self, path: Path) -> Reference:
        """Compare with a file from now on."""
        arrays = self.open_arrays(path)
        with about(path):
            self.reference = Reference(self.debugger.layers, arrays.keys, arrays.read)
        self.debugger.events.differs = self._differs
        return self.reference

    def _differs(self, index: int) -> tuple[int, str] | None:
        if self.reference is None:
            return None
        found = compare_layer(self.debugger, self.reference, index).accumulated
        if found is None:
            return None
        text = f"{self.debugger.layers[index].name} differs in {found.differing} elements"
        return found.worst_ulp, f"{text}, worst {found.worst_ulp} ulp"

    def current_layer(self) -> Layer:
        """The layer that is being computed; the last one at the end."""
        index = self.debugger.current_layer()
        order = self.debugger.layer_order()
        if index is None and not order:
            raise fail("DEBUG002", "the program has no layers")
        return self.debugger.layers[order[-1] if index is None else index]

    def image(self) -> bytes:
        """The bundle's file with the changes made."""
        bundle = self.debugger.bundle
        return apply_patch(bytes(bundle.file), self.changes.merged(), bundle.path)

    def module(self) -> Module:
        """The LIR that the bundle carries; UserError BUN005 if it carries none."""
        if self._module is None:
            self._module = self.debugger.bundle.module()
        return self._module

    def constant(self, name: str) -> tuple[Tensor, npt.NDArray[Any]] | None:
        """A constant of the LIR, without an address; None if there is none of this name."""
        if not self.debugger.bundle.debug or name not in self.module().constants:
            return None
        type_ = next(one.type for one in self.module().weights if one.name == name)
        scale, offset = (type_.quant.scale, type_.quant.offset) if type_.quant else (None, None)
        tensor = Tensor(name, type_.elem, type_.shape, 0, scale, offset)
        return tensor, self.module().constants[name]

    def operands(self, layer: Layer) -> list[OperandType]:
        """Operands of a layer as the LIR has them; none if the bundle carries no LIR."""
        if not self.debugger.bundle.debug:
            return []
        return operand_types(self.facts(layer))

    def bias_note(self, layer: Layer) -> str:
        """What is particular about the scale of a layer's bias; empty if nothing is known to be."""
        return bias_note(self.facts(layer)) if self.debugger.bundle.debug else ""

    def facts(self, layer: Layer) -> LayerFacts | None:
        """What the LIR says of a layer's instruction; UserError BUN005 if there is no LIR."""
        if self._facts is None:
            self._facts = all_facts(self.module())
        return facts_of(self._facts, layer)

    def numbers_of(self, layer: Layer) -> set[int]:
        """Numbers of the LIR instructions that a layer is made of."""
        numbers = {i.name: i.number for i in self.module().instructions}
        return {numbers[name] for name in layer.fused if name in numbers} or {layer.number}

    def printed(self, instruction: Instruction) -> str:
        """An instruction as the LIR text has it."""
        return re.sub(r"^\s*\d+\s+", "", format_instruction(instruction))


def help_command(shell: Shell, arguments: Arguments) -> Result:
    """All commands, or one."""
    if arguments:
        command = find_command(arguments.word("a command"))
        arguments.end()
        lines = [command.usage, f"  {command.summary}"]
        if command.details:
            lines.append(f"  {command.details}")
        if command.aliases:
            lines.append(f"  also: {', '.join(command.aliases)}")
        return say(*lines, command=command.name, usage=command.usage, summary=command.summary)
    lines = []
    for heading, commands in GROUPS.items():
        lines.append(heading)
        for one in commands:
            short = f" ({', '.join(one.aliases[:1])})" if one.aliases else ""
            lines.append(f"  {one.name + short:<18} {one.summary}")
    lines.append("`help COMMAND` tells more")
    return say(*lines, commands={one.name: one.summary for one in COMMANDS})


def keep(shell: Shell, arguments: Arguments) -> Result:
    """Write a core file of where the run stands."""
    path = Path(arguments.word("a file"))
    arguments.end()
    execution = shell.debugger.execution
    core = Core(
        shell.image(), execution.inputs, execution.config, execution.engine.name,
        None if execution.trap else execution.position,
    )  # fmt: skip
    save_core(path, core)
    return say(f"{path}: `nmpsim debug {path}` opens it", position=execution.position)


def leave(shell: Shell, arguments: Arguments) -> Result:
    """The end of the session."""
    arguments.end()
    return Result(ends=True)


GROUPS: Mapping[str, tuple[Command, ...]] = {
    "Move": moving.COMMANDS,
    "Stop": stopping.COMMANDS,
    "Look": looking.COMMANDS,
    "Compare": comparing.COMMANDS,
    "Ask": (*asking.COMMANDS, *auditing.COMMANDS),
    "Change": changing.COMMANDS,
    "Check": expecting.COMMANDS,
    "Session": (
        Command("help", "help [COMMAND]", "this list, or all about a command", help_command,
                ("h", "?"), ("<command>",)),
        Command("core", "core FILE", "write all that the run is made of, to open it again here",
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
        hint=near(word, list(_BY_NAME)),
    )
