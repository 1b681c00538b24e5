"""Commands, and their results as lines of text and as data for JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import attrs

from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.context import Context


@attrs.frozen
class CommandResult:
    """Result of one command."""

    lines: tuple[str, ...] = ()
    data: Mapping[str, Any] = attrs.field(factory=dict)
    """JSON-serializable values only."""
    is_worse: bool = False
    """Whether a run trapped or an expectation failed."""
    ends: bool = False
    """Whether the session ends."""

    @property
    def text(self) -> str:
        """All lines, each with a line end."""
        return "".join(f"{line}\n" for line in self.lines)


def make_result(*lines: str, **data: Any) -> CommandResult:
    """Return a result of some lines and data."""
    return CommandResult(lines, data)


def format_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[str, ...]:
    """Return rows as aligned columns, numbers to the right."""
    cells = [[str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    is_number = [
        bool(rows) and all(isinstance(row[i], int | float) or row[i] == "" for row in rows)
        for i in range(len(headers))
    ]

    def line(row: Sequence[str]) -> str:
        aligned = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ]
        return "  ".join(aligned).rstrip()

    return line(list(headers)), *(line(row) for row in cells)


Column = str | tuple[str, Callable[[Any], object]]
"""Attribute of a record that is also the title; or a title and a function of a record."""


def list_records(
    name: str, records: Sequence[Any], columns: Sequence[Column], empty: str = ""
) -> CommandResult:
    """Return attrs records as a table, and with all their fields as JSON data under ``name``.

    ``empty`` is the text if there are no records; by default only the titles are shown.
    """
    named: dict[str, Callable[[Any], object]] = dict(
        (one, attrgetter(one)) if isinstance(one, str) else one for one in columns
    )
    rows = [[read(record) for read in named.values()] for record in records]
    lines = format_table(tuple(named), rows) if rows or not empty else (empty,)
    return CommandResult(lines, {name: [attrs.asdict(one) for one in records]})


def to_json_value(value: Any) -> Any:
    """Return a value that JSON can represent: infinity and NaN become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def format_count(number: int, thing: str) -> str:
    """Return a count with its noun: ``1 layer``, ``2 layers``."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


@attrs.frozen
class Command:
    """A debugger command: name, help, function and completions."""

    usage: str
    """Name and arguments; ``[...]`` is optional."""
    summary: str
    run: Callable[[Context, Arguments], CommandResult]
    aliases: tuple[str, ...] = ()
    completes: tuple[str, ...] = ()
    """Completions of its arguments: words, or <layer>, <tensor>, <breakpoint>, <file>."""
    details: str = ""

    @property
    def name(self) -> str:
        """Name of the command, the first word of its usage."""
        return self.usage.split()[0]
