"""Commands, and their results as lines of text and as data for JSON, both from records."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from nmpsim.debugger.commands.arguments import UsageError, bind_arguments
from nmpsim.debugger.commands.context import Context
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
    """Format records as a table: a line of column titles, then one line for each record.

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
class Command:
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

    def execute(self, context: Context, words: Sequence[str]) -> CommandResult:
        """Run the command with the words after its name; raise DEBUG001 if they do not fit."""
        try:
            return self.run(context, **bind_arguments(context, self.run, words))
        except UsageError as error:
            message, found = (*error.args, None)[:2]
            raise fail("DEBUG001", message, found=found, expected=self.usage) from None

    @property
    def name(self) -> str:
        """Name of the command, the first word of its usage."""
        return self.usage.split()[0]

    @property
    def completes(self) -> tuple[str, ...]:
        """Completions of the arguments: words, and placeholders such as ``<layer>``."""
        arguments = re.findall(r"(?<!\.)\b[A-Za-z]+\b", self.usage[len(self.name) :])
        words = (f"<{word.lower()}>" if word in PLACEHOLDERS else word for word in arguments)
        return (*self.words, *(word for word in words if word.islower()))
