"""A view's text for a terminal or for a file: the same words, with or without style."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmpsim.visible import visible_line

FILE_WIDTH = 120
"""Columns of tables in files and pipes."""
_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def text_console(*, terminal: bool = False, width: int | None = None) -> Console:
    """A console that keeps what views print; ``terminal`` allows style, unless NO_COLOR is set."""
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
    """What it has kept, without empty lines before it and blanks at the ends of lines."""
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    return "".join(f"{line.rstrip()}\n" for line in text.lstrip("\n").splitlines())


def text_of(
    view: Callable[[Console], None], *, terminal: bool = False, width: int | None = None
) -> str:
    """What a view prints."""
    console = text_console(terminal=terminal, width=width)
    view(console)
    return printed(console)


def new_table(console: Console, gap: int = 2) -> Table:
    """An empty table in the common style, ``gap`` blanks between columns; lines where safe."""
    return Table(
        box=SIMPLE_HEAD if console.is_terminal else _ASCII_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap - 1, 0, 0),  # and one blank for the box
        header_style="bold",
    )


def cell(text: str, style: str = "") -> Text:
    """A text in a table, whatever characters it has."""
    return Text(visible_line(text), style=style, no_wrap=True, overflow="ellipsis", end="")


def heading(console: Console, text: str) -> None:
    """A line that begins a part, with a free line before it."""
    console.print()
    console.print(Text(visible_line(text), style="bold"), soft_wrap=True)


def line(console: Console, text: str, style: str = "") -> None:
    """Print a line, whole in a file; a terminal gets as many lines as its width needs."""
    console.print(Text(visible_line(text), style=style), soft_wrap=not console.is_terminal)
