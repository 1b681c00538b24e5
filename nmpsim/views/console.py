"""Consoles, lines and tables in the common style of all text views.

A table fits the width of the console: numbers stay whole, names are shortened. If that is not
enough, each row is printed as lines of titles and values.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, JustifyMethod
from rich.text import Text

from nmpsim.escape import escape_line
from nmpsim.records import frozen
from nmpsim.views.text import shorten_distinct

if TYPE_CHECKING:
    from rich.table import Table

    from nmpsim.views.measures import TableCell, TableColumn

FILE_WIDTH = 120
"""Width of text in files and pipes, in characters."""
GAP = 2
"""Spaces between two columns; one if something would have to be shortened."""
STYLES = {"host": "magenta", "alarm": "bold yellow", "notice": "yellow"}
"""Mark of a cell -> style."""
_ASCII_HEAD = "    \n    \n -- \n    \n    \n    \n    \n    \n"
"""Box of a table with one line below the titles."""


def make_text_console(*, terminal: bool = False, width: int | None = None) -> Console:
    """Return a console that stores its output as text, with styles if ``terminal`` is true."""
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
    """Call a print function with a new text console, and return the printed text."""
    console = make_text_console(terminal=terminal, width=width)
    view(console)
    return get_printed_text(console)


def print_heading(console: Console, text: str) -> None:
    """Print the heading of a section, after an empty line."""
    console.print()
    console.print(Text(escape_line(text), style="bold"), soft_wrap=True)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print an escaped line; only a terminal wraps the line."""
    console.print(Text(escape_line(text), style=style), soft_wrap=not console.is_terminal)


def print_facts(console: Console, facts: Iterable[tuple[str, str]], width: int = 12) -> None:
    """Print a line for each label and text; labels are padded to ``width`` characters."""
    for label, text in facts:
        print_line(console, f"  {label:<{width}} {text}")


def print_more(console: Console, hidden: int, hint: str = "") -> None:
    """Print how many more rows there are, and where they are shown; print nothing without any."""
    if hidden > 0:
        print_line(console, f"  and {hidden:,} more{hint}")


@frozen
class _FilledColumn:
    """A column of a text table with its cells."""

    definition: TableColumn
    cells: Sequence[TableCell]

    @property
    def title(self) -> str:
        """Title on a terminal."""
        return self.definition.short or self.definition.title

    @property
    def natural_width(self) -> int:
        """Width of the longest cell or title, in characters."""
        return max(len(self.title), *(len(cell.text) for cell in self.cells))


def print_table(console: Console, rows: Sequence[Any], *columns: TableColumn) -> None:
    """Print a table with one row per record, fitted to the console."""
    filled = [_FilledColumn(one, [one.make_cell(row) for row in rows]) for one in columns]
    console.print(_fit_table(filled, console))


def _fit_table(columns: Sequence[_FilledColumn], console: Console) -> Table | Text:
    """Return a table that fits the width of the console, or its rows as lines."""
    from rich.box import SIMPLE_HEAD, Box
    from rich.table import Table

    columns = _needed(columns, console.width)
    widths, gap = _fitted_widths(columns, console.width)
    if sum(widths) + gap * (len(columns) - 1) > console.width:
        return Text("\n".join(_rows_as_lines(columns, console.width)))
    table = Table(
        box=SIMPLE_HEAD if console.is_terminal else Box(_ASCII_HEAD, ascii=True),
        show_edge=False,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),  # and one space for the box
        header_style="bold",
    )
    shown = []
    for column, width in zip(columns, widths, strict=True):
        justify: JustifyMethod = "right" if column.definition.is_number else "left"
        table.add_column(column.title, justify=justify, width=width, no_wrap=True)
        texts = shorten_distinct([cell.text for cell in column.cells], width)
        shown.append(
            [
                Text(
                    escape_line(text),
                    style=STYLES.get(cell.mark, ""),
                    no_wrap=True,
                    overflow="ellipsis",
                    end="",
                )
                for text, cell in zip(texts, column.cells, strict=True)
            ]
        )
    for row in zip(*shown, strict=True):
        table.add_row(*row)
    return table


def _needed(columns: Sequence[_FilledColumn], available: int) -> Sequence[_FilledColumn]:
    """Return the columns without optional ones, from the right, until the rest fits."""
    optional = [column for column in columns if column.definition.is_optional]
    while optional and sum(column.natural_width + 1 for column in columns) - 1 > available:
        left_out = optional.pop()
        columns = [column for column in columns if column is not left_out]
    return columns


def _rows_as_lines(columns: Sequence[_FilledColumn], width: int) -> Iterator[str]:
    """Yield the first cell of each row, and below it the other cells with their titles."""
    first, *others = columns
    for row, cell in enumerate(first.cells):
        yield escape_line(f"{first.title} {cell.text}" if first.definition.is_number else cell.text)
        text = "   "
        for column in others:
            fact = escape_line(f"{column.title} {column.cells[row].text}")
            if text.strip() and len(text) + len(fact) + 2 > width:
                yield f"{text},"
                text = "   "
            text += f", {fact}" if text.strip() else f" {fact}"
        yield text


def _fitted_widths(columns: Sequence[_FilledColumn], available: int) -> tuple[list[int], int]:
    """Return widths and gap; excess width is taken from the widest columns that may shrink."""
    widths = [column.natural_width for column in columns]
    gap = GAP if sum(widths) + GAP * (len(columns) - 1) <= available else 1
    gaps = gap * (len(columns) - 1)
    while sum(widths) + gaps > available:
        shrinkable = [
            (widths[index], index)
            for index, column in enumerate(columns)
            if (least := column.definition.least) is not None and widths[index] > least
        ]
        if not shrinkable:
            break
        widths[max(shrinkable)[1]] -= 1
    return widths, gap
