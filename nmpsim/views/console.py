"""Consoles, lines and tables in the common style of all text views.

A table fits the width of the console: numbers stay whole, names are shortened. If that is not
enough, each row is printed as lines of titles and values.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.box import SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmpsim.escape import escape_line
from nmpsim.records import frozen
from nmpsim.views.measures import Measure
from nmpsim.views.text import shorten_distinct

FILE_WIDTH = 120
"""Width of text in files and pipes, in characters."""
GAP = 2
"""Spaces between two columns; one if something would have to be shortened."""
STYLES = {"host": "magenta", "alarm": "bold yellow", "notice": "yellow"}
"""Mark of a cell -> style."""
_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def make_text_console(*, terminal: bool = False, width: int | None = None) -> Console:
    """Return a console that stores text, with styles if ``terminal``."""
    return Console(
        file=io.StringIO(),
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        width=width or (None if terminal else FILE_WIDTH),
        highlight=False,
        markup=False,
        emoji=False,
    )


def get_printed_text(console: Console) -> str:
    """Return the text stored in a console, without trailing spaces."""
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    return "".join(f"{line.rstrip()}\n" for line in text.lstrip("\n").splitlines())


def render_text(
    view: Callable[[Console], None], *, terminal: bool = False, width: int | None = None
) -> str:
    """Call a view with a new console and return the printed text."""
    console = make_text_console(terminal=terminal, width=width)
    view(console)
    return get_printed_text(console)


def print_heading(console: Console, text: str) -> None:
    """Print the heading of a section, after an empty line."""
    console.print()
    console.print(Text(escape_line(text), style="bold"), soft_wrap=True)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print an escaped line, wrapped on a terminal only."""
    console.print(Text(escape_line(text), style=style), soft_wrap=not console.is_terminal)


def print_facts(console: Console, facts: Iterable[tuple[str, str]], width: int = 12) -> None:
    """Print a line for each label and text, the labels padded to ``width`` characters."""
    for label, text in facts:
        print_line(console, f"  {label:<{width}} {text}")


@frozen
class Column:
    """A column of a text table: its title, cells and smallest width."""

    title: str
    cells: Sequence[str]
    least: int | None = None
    """Smallest width; None if the column must not be shortened."""
    right: bool = False
    is_optional: bool = False
    """Whether it is omitted if another column would have to be shortened."""
    styles: Mapping[int, str] = attrs.field(factory=dict)
    """Row -> style; the text has the same meaning."""

    @property
    def natural_width(self) -> int:
        """Width of the longest cell or title, in characters."""
        return max(map(len, (self.title, *self.cells)))


def print_table(console: Console, rows: Sequence[Any], *measures: Measure) -> None:
    """Print a table with one row per record and one column per measure, fitted to the console."""
    columns = []
    for one in measures:
        cells = [one.cell(row) for row in rows]
        styles = {row: STYLES.get(cell.mark, "") for row, cell in enumerate(cells)}
        texts = [cell.text for cell in cells]
        columns.append(
            Column(one.short or one.title, texts, one.least, one.number, one.is_optional, styles)
        )
    console.print(fit_table(columns, console))


def fit_table(columns: Sequence[Column], console: Console) -> Table | Text:
    """Return a table that fits the width of the console, or its rows as lines."""
    columns = _needed(columns, console.width)
    widths, gap = _fitted_widths(columns, console.width)
    if sum(widths) + gap * (len(columns) - 1) > console.width:
        return Text("\n".join(_rows_as_lines(columns, console.width)))
    table = Table(
        box=SIMPLE_HEAD if console.is_terminal else _ASCII_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),  # and one space for the box
        header_style="bold",
    )
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column.title, justify="right" if column.right else "left", width=width, no_wrap=True
        )
    shown = [
        shorten_distinct(column.cells, width) for column, width in zip(columns, widths, strict=True)
    ]
    for row, cells in enumerate(zip(*shown, strict=True)):
        table.add_row(
            *(
                Text(
                    escape_line(text),
                    style=column.styles.get(row, ""),
                    no_wrap=True,
                    overflow="ellipsis",
                    end="",
                )
                for text, column in zip(cells, columns, strict=True)
            )
        )
    return table


def _needed(columns: Sequence[Column], available: int) -> Sequence[Column]:
    """Return the columns without optional ones, from the right, until the rest fits."""
    optional = [column for column in columns if column.is_optional]
    while optional and sum(column.natural_width + 1 for column in columns) - 1 > available:
        left_out = optional.pop()
        columns = [column for column in columns if column is not left_out]
    return columns


def _rows_as_lines(columns: Sequence[Column], width: int) -> Iterator[str]:
    """Yield the first cell of each row, and below it the other cells with their titles."""
    first, *others = columns
    for row, name in enumerate(first.cells):
        yield escape_line(f"{first.title} {name}" if first.right else name)
        text = "   "
        for column in others:
            fact = escape_line(f"{column.title} {column.cells[row]}")
            if text.strip() and len(text) + len(fact) + 2 > width:
                yield f"{text},"
                text = "   "
            text += f", {fact}" if text.strip() else f" {fact}"
        yield text


def _fitted_widths(columns: Sequence[Column], available: int) -> tuple[list[int], int]:
    """Return widths and gap; excess width is taken from the widest columns that may shrink."""
    widths = [column.natural_width for column in columns]
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
