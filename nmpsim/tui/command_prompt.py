"""The command line (commands, ``/text`` to search, ``>file`` to copy), and a menu of options.

Searching and copying run in the thread of commands: a program may have a hundred thousand lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from os.path import commonprefix
from pathlib import Path
from typing import ClassVar

import attrs
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Input, OptionList

from nmpsim.atomic import write_file
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.diagnostics import fail
from nmpsim.escape import escape_line
from nmpsim.tui.key_bindings import load_bindings
from nmpsim.tui.line_pane import LinePane
from nmpsim.tui.view import ScreenState


def search_pane(
    view: ScreenState, pane: LinePane, text: str, step: int, interrupted: Callable[[], bool]
) -> ScreenState:
    """Move a pane's cursor to the next match of a text; return a view with the result as answer."""
    index = pane.find_line(text, pane.cursor + step, step, interrupted)
    if index is not None:
        pane.app.call_from_thread(pane.move_cursor, index)
        return _said(view, f"line {index + 1:,} of {pane.title}")
    missing = f"{text!r} is not found in {pane.title}"
    return _said(view, "interrupted" if interrupted() else missing)


def copy_pane(view: ScreenState, pane: LinePane, name: str) -> ScreenState:
    """Copy all lines of a pane to a text file; return a view with the file name in its answer.

    Raises :class:`~nmpsim.diagnostics.UserError`: ARG001 without a name, FILE002 if the file cannot
    be written.
    """
    if not name.strip():
        message = "the name of the output file is missing"
        raise fail("ARG001", message, found=">", expected="> and a file name, such as >lines.txt")
    path = Path(name.strip())
    lines = pane.list_plain_lines()
    text = "".join(f"{line}\n" for line in lines).encode()
    is_there = path.exists()
    write_file(path, text)
    more = ", in place of what was there" if is_there else ""
    return _said(view, f"{len(lines):,} lines written to {path}{more}")


def _said(view: ScreenState, text: str) -> ScreenState:
    return attrs.evolve(view, answer=CommandResult((text,)))


def choose_file_name(stem: str) -> str:
    """Return ``STEM.txt``, or ``STEM-2.txt``, ``STEM-3.txt`` and so on if such files exist."""
    names = (f"{stem}-{number}.txt" if number > 1 else f"{stem}.txt" for number in count(1))
    return next(name for name in names if not Path(name).exists())


Completer = Callable[[str], Sequence[str]]
"""Function of a line that returns completions of its last word."""


class CommandPrompt(Input):
    """Prompt for command lines: an input widget with history and completion."""

    BINDINGS: ClassVar[list[BindingType]] = load_bindings("command_prompt")

    class Closed(Message):
        """Message that the user has left the command line."""

    def __init__(self, complete: Completer) -> None:
        super().__init__(
            placeholder="  :command  /search  >file   ? help",
            compact=True,
            suggester=_First(partial(_completed, complete)),
            select_on_focus=False,
        )
        self._complete = partial(_completed, complete)
        self._history: list[str] = []
        self._at = 0

    def open(self, text: str) -> None:
        """Replace the text of the command line, and move the focus to the command line."""
        self.value = text
        self.cursor_position = len(text)
        self.focus()

    def close(self, line: str) -> None:
        """Add a line to the history and leave the command line."""
        self.action_leave()
        if line and self._history[-1:] != [line]:
            self._history.append(line)
        self._at = len(self._history)

    def action_recall(self, lines: int) -> None:
        """Recall a line of the history: replace the text with an earlier or later line."""
        self._at = min(max(self._at + lines, 0), len(self._history))
        self.value = self._history[self._at] if self._at < len(self._history) else ""
        self.cursor_position = len(self.value)

    def action_complete(self) -> None:
        """Extend the line to the longest common prefix of its completions."""
        found = self._complete(self.value)
        if found:
            self.value = commonprefix(found)  # noqa: RUF071 - by characters
            self.cursor_position = len(self.value)

    def action_leave(self) -> None:
        """Clear the line and return to the pane."""
        self.value = ""
        self.post_message(self.Closed())


class _First(Suggester):
    def __init__(self, complete: Completer) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        """Return the first completion."""
        return next(iter(self._complete(value)), None)


def _completed(complete: Completer, line: str) -> list[str]:
    """Return the completions of a line; searches and file names have none.

    Names with invisible characters are left out, because they cannot be typed; such layers have
    numbers.
    """
    if line.startswith(("/", ">")) or not line:
        return []
    last = "" if line[-1:].isspace() else line.split()[-1]
    return [
        line[: len(line) - len(last)] + word for word in complete(line) if escape_line(word) == word
    ]


# Menu of options to select from.


class SelectMenu(ModalScreen[int | None]):
    """Modal menu whose result is the index of the selected option, or None if it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = load_bindings("select_menu")

    def __init__(self, title: str, options: Sequence[str]) -> None:
        super().__init__()
        self._list = OptionList(*(Text(option, no_wrap=True) for option in options))
        self._list.border_title = title

    def compose(self) -> ComposeResult:
        """Yield the list of options."""
        yield self._list

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)
