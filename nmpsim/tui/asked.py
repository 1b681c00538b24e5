"""Searching in a pane and copying it to a file: done in the thread of commands.

A program may have a hundred thousand lines.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

from nmpsim.atomic import write_file
from nmpsim.debugger.commands.result import say
from nmpsim.diagnostics import fail
from nmpsim.tui.lines import LinePane
from nmpsim.tui.view import View


def found(
    view: View, pane: LinePane, text: str, step: int, interrupted: Callable[[], bool]
) -> View:
    """Go to the next line with a text, forwards or backwards."""
    index = pane.find(text, pane.cursor + step, step, interrupted)
    if index is not None:
        pane.app.call_from_thread(pane.go_to, index)
        return _said(view, f"line {index + 1:,} of {pane.title}")
    missing = f"{text!r} is not found in {pane.title}"
    return _said(view, "interrupted" if interrupted() else missing)


def copied(view: View, pane: LinePane, name: str) -> View:
    """Write all of a pane's lines to a file.

    Raises :class:`~nmpsim.diagnostics.UserError`: ARG001 without a name, FILE002 if it cannot be
    written.
    """
    if not name.strip():
        raise fail("ARG001", "the file to copy to is missing", expected=">FILE")
    path = Path(name.strip())
    lines = pane.plain_lines()
    text = "".join(f"{line}\n" for line in lines).encode()
    is_there = path.exists()
    write_file(path, lambda file: file.write(text))
    more = ", in place of what was there" if is_there else ""
    return _said(view, f"{len(lines):,} lines written to {path}{more}")


def _said(view: View, text: str) -> View:
    return attrs.evolve(view, answer=say(text))


def free_name(stem: str) -> str:
    """A name for a text file that is not there yet."""
    number, name = 1, f"{stem}.txt"
    while Path(name).exists():
        number += 1
        name = f"{stem}-{number}.txt"
    return name
