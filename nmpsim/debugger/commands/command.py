"""Definition, argument binding and results of debugger commands."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal, NewType, get_args, get_origin, get_type_hints

import attrs

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.inspect import find_address
from nmpsim.diagnostics import fail
from nmpsim.report.fields import get_value


@attrs.frozen
class CommandResult:
    """Result of a debugger command, as text and as JSON data."""

    lines: tuple[str, ...] = ()
    data: Mapping[str, Any] = attrs.field(factory=dict)
    """JSON-serializable values only."""
    is_worse: bool = False
    """Whether a run trapped or an expectation failed."""
    ends: bool = False
    """Whether the session ends."""

    @property
    def text(self) -> str:
        """Lines of the result, each with a line end."""
        return "".join(f"{line}\n" for line in self.lines)


def make_result(
    *lines: str, record: Any = None, hints: Iterable[str] = (), is_worse: bool = False, **data: Any
) -> CommandResult:
    """Make a command's result from lines of text and JSON data.

    Parameters
    ----------
    *lines : str
        Text of the result.
    record : object, optional
        attrs record whose fields are the first JSON data.
    hints : iterable of str
        Commands to continue with, which the last line lists.
    is_worse : bool
        Whether a run trapped or an expectation failed.
    **data
        More JSON data: plain values, records, and collections of them.
    """
    commands = ", ".join(f"`{hint}`" for hint in hints)
    if commands:
        lines = (*lines, f"  next: {commands}")
    fields = {} if record is None else to_json_data(record)
    return CommandResult(lines, fields | to_json_data(data), is_worse)


def to_json_data(value: Any) -> Any:
    """Convert a value to JSON data: attrs records to objects, infinity and NaN to text."""
    if attrs.has(type(value)):
        names = [field.name for field in attrs.fields(type(value)) if field.repr]
        return {name: to_json_data(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: to_json_data(one) for key, one in value.items()}
    if isinstance(value, Collection) and not isinstance(value, str):
        return [to_json_data(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


Column = str | tuple[str, str | Callable[[Any], object]]
"""Title and attribute path of a column; or its title, and the path or a function of a record."""


def format_table(
    records: Sequence[Any], columns: Iterable[Column], empty: str = ""
) -> tuple[str, ...]:
    """Format records as the lines of a text table, beginning with the column titles.

    Numbers are aligned to the right. ``empty`` is the text if there are no records; by default the
    titles are shown.
    """
    if empty and not records:
        return (empty,)
    titles, reads = zip(*((c, c) if isinstance(c, str) else c for c in columns), strict=True)
    rows = [[_read_cell(record, read) for read in reads] for record in records]
    cells = [titles, *([str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    alignments = [
        ">" if rows and all(isinstance(v, int | float) or v == "" for v in column) else "<"
        for column in (zip(*rows, strict=True) if rows else titles)
    ]
    shapes = list(zip(alignments, widths, strict=True))
    return tuple(
        "  ".join(f"{cell:{side}{width}}" for cell, (side, width) in zip(row, shapes, strict=True))
        .rstrip()
        for row in cells
    )  # fmt: skip


def _read_cell(record: Any, read: str | Callable[[Any], object]) -> object:
    value = read(record) if callable(read) else get_value(record, read)
    return "" if value is None else value


def format_count(number: int, noun: str) -> str:
    """Return a count with its noun: ``1 layer``, ``2 layers``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


PLACEHOLDERS = ("LAYER", "TENSOR", "BREAKPOINT", "FILE", "COMMAND")
"""Words of a usage that stand for names, which can be completed."""


@attrs.frozen
class DebuggerCommand:
    """Definition of a debugger command: usage, help, function and completions."""

    usage: str
    """Name and arguments; ``[...]`` is optional."""
    summary: str
    run: Callable[..., CommandResult]
    """Function of a context and of the arguments, whose types say how words are converted."""
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Completions besides those that the usage names."""
    details: str = ""

    def execute(self, context: CommandContext, words: Sequence[str]) -> CommandResult:
        """Run the command with its arguments; raise UserError (DEBUG001) for invalid arguments."""
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
    """Error for invalid arguments of a command, with a message and the invalid words."""


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
    """Convert a word to the type of a parameter; raise UsageError for an invalid number."""
    try:
        return _CONVERTERS[kind](context, word)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise UsageError(f"the argument {name!r} is not {noun}", word) from None


def call_with_words(
    context: CommandContext, function: Callable[..., Any], words: Sequence[str], usage: str
) -> Any:
    """Call a function of a context and of arguments that are given as words; return its result.

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
    """Convert words to the keyword arguments of a function of a context.

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
