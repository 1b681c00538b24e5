"""Consoles, tables and lines in the common style of all text views."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmpsim.escape import escape_line

FILE_WIDTH = 120
"""Width of text in files and pipes, in characters."""
_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def text_console(*, terminal: bool = False, width: int | None = None) -> Console:
    """Return a console that stores text; ``terminal`` allows style, unless NO_COLOR is set."""
    return Console(
        file=io.StringIO(),
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        width=width or (None if terminal else FILE_WIDTH),
        highlight=False,
        markup=False,
        emoji=False,
    )


def printed(console: Console) -> str:
    """Return the stored text without leading empty lines and trailing spaces."""
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    return "".join(f"{line.rstrip()}\n" for line in text.lstrip("\n").splitlines())


def text_of(
    view: Callable[[Console], None], *, terminal: bool = False, width: int | None = None
) -> str:
    """Return the text that a view prints."""
    console = text_console(terminal=terminal, width=width)
    view(console)
    return printed(console)


def new_table(console: Console, gap: int = 2) -> Table:
    """Return an empty table in the common style, with ``gap`` spaces between columns."""
    return Table(
        box=SIMPLE_HEAD if console.is_terminal else _ASCII_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),  # and one space for the box
        header_style="bold",
    )


def cell(text: str, style: str = "") -> Text:
    """Return a table cell with an escaped text."""
    return Text(escape_line(text), style=style, no_wrap=True, overflow="ellipsis", end="")


def heading(console: Console, text: str) -> None:
    """Print the heading of a section, after an empty line."""
    console.print()
    console.print(Text(escape_line(text), style="bold"), soft_wrap=True)


def line(console: Console, text: str, style: str = "") -> None:
    """Print a line, wrapped on a terminal only."""
    console.print(Text(escape_line(text), style=style), soft_wrap=not console.is_terminal)
