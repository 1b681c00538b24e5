"""Arguments of a command: words, converted to the parameters of the command's function.

A parameter's type says what its words are. Parameters without a default are required. Those that
can only be passed by name are options: they may be anywhere, after their names. A flag is an option
of type bool, which is the name alone; a choice is one of its words alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal, NewType, get_args, get_origin, get_type_hints

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.inspect import find_address
from nmpsim.diagnostics import fail

Address = NewType("Address", int)
"""Address that is written as a number or as a symbol."""
Text = NewType("Text", str)
"""All remaining words as one text; for an option, all words after its name."""

_CONVERTERS: Mapping[Any, Callable[[Context, str], Any]] = {
    int: lambda _, word: int(word, 0),
    float: lambda _, word: float(word),
    str: lambda _, word: word,
    Path: lambda _, word: Path(word),
    Address: lambda context, word: find_address(context.debugger, word),
    Layer: lambda context, word: context.find_layer(word),
}


class UsageError(Exception):
    """Invalid arguments of a command: a message, and the invalid words if there are any."""


def split_line(line: str) -> list[str]:
    """Split a command line into words as a shell does; ``#`` starts a comment.

    Raises :class:`~nmpsim.diagnostics.UserError` DEBUG001 for a quote that is not closed.
    """
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise fail(
            "DEBUG001", f"the command line is incomplete: {error}", found=line.strip()
        ) from None


def convert_word(context: Context, kind: Any, word: str, name: str) -> Any:
    """Convert a word to a type of parameter; raise UsageError if it is not a number."""
    try:
        return _CONVERTERS[kind](context, word)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise UsageError(f"the argument {name!r} must be {noun}", word) from None


def bind_arguments(
    context: Context, function: Callable[..., Any], words: Sequence[str]
) -> dict[str, Any]:
    """Convert the words after a command to the keyword arguments of its function.

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
        raise UsageError("the command has too many arguments", " ".join(left))
    return given


def _take_option(context: Context, left: list[str], kind: Any, name: str) -> Any:
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


def _take_next(context: Context, left: list[str], kind: Any, name: str) -> Any:
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
