"""Tables that fit their width: numbers stay whole, names give way in their middle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from rich.console import Console
from rich.table import Table

from nmpsim.views.console import cell, new_table
from nmpsim.views.text import shorten_middle

GAP = 2
"""Blanks between two columns; one where something would have to be shortened."""


@attrs.frozen
class Column:
    """A column: its cells, and how narrow it may become."""

    title: str
    cells: Sequence[str]
    least: int | None = None
    """Narrowest width at which it still says something; None if it must not be shortened."""
    right: bool = False
    styles: Mapping[int, str] = attrs.field(factory=dict)
    """Row -> style; never the only bearer of a meaning."""

    @property
    def natural(self) -> int:
        """Width at which nothing is shortened."""
        return max(map(len, (self.title, *self.cells)))


def fitted_table(columns: Sequence[Column], console: Console) -> Table:
    """The columns as a table that is no wider than the console, if that can be done."""
    widths, gap = _fitted_widths(columns, console.width)
    table = new_table(console, gap)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column.title, justify="right" if column.right else "left", width=width, no_wrap=True
        )
    for row in range(len(columns[0].cells)):
        table.add_row(
            *(
                cell(shorten_middle(column.cells[row], width), column.styles.get(row, ""))
                for column, width in zip(columns, widths, strict=True)
            )
        )
    return table


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
