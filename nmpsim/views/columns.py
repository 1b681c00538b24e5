"""Tables that fit their width: numbers stay whole, names give way in their middle.

Where even that is not enough, the rows come one after the other, each fact with its title.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmpsim.records import frozen
from nmpsim.views.console import cell, new_table
from nmpsim.views.measures import Measure
from nmpsim.views.text import shorten_apart
from nmpsim.visible import visible_line

GAP = 2
"""Blanks between two columns; one where something would have to be shortened."""


@frozen
class Column:
    """A column: its cells, and how narrow it may become."""

    title: str
    cells: Sequence[str]
    least: int | None = None
    """Narrowest width at which it still says something; None if it must not be shortened."""
    right: bool = False
    is_optional: bool = False
    """Whether it is left out where another column would have to be shortened."""
    styles: Mapping[int, str] = attrs.field(factory=dict)
    """Row -> style; never the only bearer of a meaning."""

    @property
    def natural(self) -> int:
        """Width at which nothing is shortened."""
        return max(map(len, (self.title, *self.cells)))


def print_table(console: Console, rows: Sequence[Any], *measures: Measure) -> None:
    """Print a table with one row per record and one column per measure, fitted to the console."""
    columns = []
    for one in measures:
        cells = [one.cell(row) for row in rows]
        marks = {row: cell.mark for row, cell in enumerate(cells) if cell.mark}
        texts = [cell.text for cell in cells]
        columns.append(Column(one.title, texts, one.least, one.number, one.is_optional, marks))
    console.print(fitted_table(columns, console))


def fitted_table(columns: Sequence[Column], console: Console) -> Table | Text:
    """The columns as a table that is no wider than the console; else its rows as lines."""
    columns = _needed(columns, console.width)
    widths, gap = _fitted_widths(columns, console.width)
    if sum(widths) + gap * (len(columns) - 1) > console.width:
        return Text("\n".join(_rows_as_lines(columns, console.width)))
    table = new_table(console, gap)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column.title, justify="right" if column.right else "left", width=width, no_wrap=True
        )
    shown = [
        shorten_apart(column.cells, width) for column, width in zip(columns, widths, strict=True)
    ]
    for row, cells in enumerate(zip(*shown, strict=True)):
        table.add_row(
            *(
                cell(text, column.styles.get(row, ""))
                for text, column in zip(cells, columns, strict=True)
            )
        )
    return table


def _needed(columns: Sequence[Column], available: int) -> Sequence[Column]:
    """Return the columns, leaving out optional ones from the right until the rest fits."""
    optional = [column for column in columns if column.is_optional]
    while optional and sum(column.natural + 1 for column in columns) - 1 > available:
        left_out = optional.pop()
        columns = [column for column in columns if column is not left_out]
    return columns


def _rows_as_lines(columns: Sequence[Column], width: int) -> Iterator[str]:
    """A row's first cell, below it the others after their titles, as many on a line as fit.

    A number that comes first has its title, too.
    """
    first, *others = columns
    for row, name in enumerate(first.cells):
        yield visible_line(f"{first.title} {name}" if first.right else name)
        text = "   "
        for column in others:
            fact = visible_line(f"{column.title} {column.cells[row]}")
            if text.strip() and len(text) + len(fact) + 2 > width:
                yield f"{text},"
                text = "   "
            text += f", {fact}" if text.strip() else f" {fact}"
        yield text


def _fitted_widths(columns: Sequence[Column], available: int) -> tuple[list[int], int]:
    """Natural widths and the gap; what is too much is taken from the widest that can give."""
    widths = [column.natural for column in columns]
    gap = GAP if sum(widths) + GAP * (len(columns) - 1) <= available else 1
    gaps = gap * (len(columns) - 1)
    while sum(widths) + gaps > available:
        room = [
            (widths[index], index)
            for index, column in enumerate(columns)
            if column.least is not None and widths[index] > column.least
        ]
        if not room:
            break
        widths[max(room)[1]] -= 1
    return widths, gap
