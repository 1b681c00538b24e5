"""Definition and argument binding of debugger commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, NewType, get_args, get_origin, get_type_hints

import attrs

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.inspect import find_address
from nmpsim.diagnostics import fail

PLACEHOLDERS = ("LAYER", "TENSOR", "BREAKPOINT", "FILE", "COMMAND", "EXPRESSION")
"""Words of a usage that stand for names, which can be completed."""


def _find_function(name: str) -> Callable[..., CommandResult]:
    """Return a function of this package by module and name, such as ``moving:step_back``."""
    function: Callable[..., CommandResult] = resolve_name(f"{__package__}.{name}")
    return function


@attrs.frozen
class DebuggerCommand:
    """Debugger command with usage, summary, function and aliases, as in ``commands.toml``."""

    usage: str
    """Name and arguments; ``[...]`` is optional."""
    summary: str
    run: Callable[..., CommandResult] = attrs.field(converter=_find_function)
    """Function of a context and of the arguments, whose types say how words are converted."""
    aliases: Sequence[str] = ()
    words: Sequence[str] = ()
    """Completions besides those that the usage names."""
    details: str = ""

    def execute(self, context: CommandContext, words: Sequence[str]) -> CommandResult:
        """Execute the command with arguments; raise UserError (DEBUG001) if they are invalid."""
        result: CommandResult = call_with_words(context, self.run, words, self.usage)
        return result

    @property
    def name(self) -> str:
        """Name of the command, the first word of its usage."""
        return self.usage.split()[0]

    @property
    def completions(self) -> tuple[str, ...]:
        """Possible completions of the arguments: words and placeholders such as ``<layer>``."""
        arguments = re.findall(r"(?<!\.)\b[A-Za-z]+\b", self.usage[len(self.name) :])
        words = (f"<{word.lower()}>" if word in PLACEHOLDERS else word for word in arguments)
        return (*self.words, *(word for word in words if word.islower()))


Address = NewType("Address", int)
"""Address that is written as a number or as a symbol."""
Text = NewType("Text", str)
"""All remaining words as one text; for an option, all words after its name."""

_CONVERTERS: Mapping[Any, Callable[[CommandContext, str], Any]] = {
    int: lambda _, word: int(word, 0),
    float: lambda _, word: float(word),
    str: lambda _, word: word,
    Path: lambda _, word: Path(word),
    Address: lambda context, word: find_address(context.debugger, word),
    Layer: lambda context, word: context.find_layer(word),
}


class UsageError(Exception):
    """Exception raised for invalid arguments of a command, with a message and the words."""


def split_line(line: str) -> list[str]:
    """Split a command line into words as a shell does; ``#`` starts a comment.

    Raises :class:`~nmpsim.diagnostics.UserError` DEBUG001 for a quote that is not closed.
    """
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise fail(
            "DEBUG001",
            f"the command line is incomplete: {error}",
            found=line.strip(),
            expected="closed quotes and a character after each backslash",
        ) from None


def convert_word(context: CommandContext, kind: Any, word: str, name: str) -> Any:
    """Convert a word to the type ``kind``; raise UsageError if a number is invalid."""
    try:
        return _CONVERTERS[kind](context, word)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise UsageError(f"the argument {name!r} is not {noun}", word) from None


def call_with_words(
    context: CommandContext, function: Callable[..., Any], words: Sequence[str], usage: str
) -> Any:
    """Call ``function`` with the context and with arguments parsed from words.

    Raises UserError (DEBUG001) with the ``usage`` for invalid arguments.
    """
    try:
        return function(context, **bind_arguments(context, function, words))
    except UsageError as error:
        message, found = (*error.args, None)[:2]
        raise fail("DEBUG001", message, found=found, expected=usage) from None


def bind_arguments(
    context: CommandContext, function: Callable[..., Any], words: Sequence[str]
) -> dict[str, Any]:
    """Parse words as arguments of ``function``; return the arguments by parameter name.

    Raises UsageError if words are missing, invalid or left, and UserError for an unknown name.
    """
    left, hints, given = list(words), get_type_hints(function), dict[str, Any]()
    _, *parameters = signature(function).parameters.values()
    for one in sorted(parameters, key=lambda one: one.kind is not Parameter.KEYWORD_ONLY):
        kind, name = hints[one.name], one.name.rstrip("_")
        if type(None) in get_args(kind):
            kind, _ = get_args(kind)
        take = _take_option if one.kind is Parameter.KEYWORD_ONLY else _take_next
        value = take(context, left, kind, name)
        if value is None:
            value = one.default
        if value is Parameter.empty:
            raise UsageError(f"the argument {name!r} is missing")
        given[one.name] = value
    if left:
        raise UsageError("there are too many arguments", " ".join(left))
    return given


def _take_option(context: CommandContext, left: list[str], kind: Any, name: str) -> Any:
    """Remove an option from the words and return its value, or None if it is not there."""
    choices = get_args(kind) if get_origin(kind) is Literal else (name,)
    word = next((word for word in choices if word in left), None)
    if word is None:
        return None
    index = left.index(word)
    if kind is bool or get_origin(kind) is Literal:
        del left[index]
        return word if kind is not bool else True
    if index + 1 == len(left):
        raise UsageError(f"the argument after {name!r} is missing")
    rest = left[index + 1 :]
    del left[index : None if kind is Text else index + 2]
    return " ".join(rest) if kind is Text else convert_word(context, kind, rest[0], name)


def _take_next(context: CommandContext, left: list[str], kind: Any, name: str) -> Any:
    """Remove the words of a parameter and return its value, or None if there are none."""
    if get_origin(kind) is Literal:
        return _take_choice(left, get_args(kind))
    if not left:
        return None
    if kind is Text or get_origin(kind) is tuple:
        text = " ".join(left)
        left.clear()
        if kind is Text:
            return text
        listed = text.strip("[]()").replace(",", " ").split()
        return tuple(convert_word(context, get_args(kind)[0], word, name) for word in listed)
    return convert_word(context, kind, left.pop(0), name)


def _take_choice(left: list[str], choices: Sequence[str]) -> str | None:
    """Remove an abbreviation of one of ``choices`` and return the choice, or None without one."""
    if not left or not left[0][:1].isalpha():
        return None
    found = [name for name in choices if name.startswith(left[0])]
    if left[0] not in found and len(found) != 1:
        return None
    word = left.pop(0)
    return word if word in found else found[0]
