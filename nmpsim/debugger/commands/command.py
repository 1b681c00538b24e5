"""Commands, and their results as lines of text and as data for JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.context import Context


@attrs.frozen
class CommandResult:
    """The answer to one command."""

    lines: tuple[str, ...] = ()
    data: Mapping[str, Any] = attrs.field(factory=dict)
    """Plain values only: what ``json`` can write."""
    is_worse: bool = False
    """Did a run trap, or not fulfil what was expected?"""
    ends: bool = False
    """Was the session asked to end?"""

    @property
    def text(self) -> str:
        """All lines, each with its end."""
        return "".join(f"{line}\n" for line in self.lines)


def make_result(*lines: str, **data: Any) -> CommandResult:
    """An answer in a few lines."""
    return CommandResult(lines, data)


def format_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[str, ...]:
    """Aligned columns; numbers to the right."""
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


def to_json_value(value: Any) -> Any:
    """A value that JSON can hold: infinity and what is no number as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def format_count(number: int, thing: str) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


@attrs.frozen
class Command:
    """One command."""

    name: str
    usage: str
    """With its arguments; ``[...]`` may be left out."""
    summary: str
    run: Callable[[Context, Arguments], CommandResult]
    aliases: tuple[str, ...] = ()
    completes: tuple[str, ...] = ()
    """What its arguments may be: words as they are, or <layer>, <tensor>, <breakpoint>, <file>."""
    details: str = ""
