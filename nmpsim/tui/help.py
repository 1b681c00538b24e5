"""The help: every key, made from the bindings themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

KEY_COLUMNS = 22


class HelpScreen(ModalScreen[None]):
    """Closed by any of the usual keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter", "dismiss", "Close")
    ]

    def __init__(self, parts: Sequence[tuple[str, Iterable[BindingType]]], commands: str) -> None:
        super().__init__()
        self._parts, self._commands = parts, commands

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        with VerticalScroll():
            yield Static(self.text())

    def text(self) -> Text:
        """All keys, part by part."""
        text = Text()
        for title, bindings in self._parts:
            text.append(f"{title}\n", style="bold underline")
            for keys, description in key_lines(bindings):
                text.append(f"  {keys:{KEY_COLUMNS}}", style="bold")
                text.append(f"{description}\n")
            text.append("\n")
        text.append("Commands\n", style="bold underline")
        return text.append(self._commands)


def key_lines(bindings: Iterable[BindingType]) -> list[tuple[str, str]]:
    """(keys, what they do) of each binding."""
    full = [one if isinstance(one, Binding) else Binding(*one) for one in bindings]
    return [(shown_keys(one.key), one.tooltip or one.description) for one in full]


def shown_keys(keys: str) -> str:
    """Keys as one reads them on a keyboard."""
    return " ".join(NAMES.get(key, key) for key in keys.split(","))


NAMES = {
    "question_mark": "?",
    "slash": "/",
    "colon": ":",
    "full_stop": ".",
    "comma": ",",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "escape": "Esc",
    "enter": "Enter",
    "space": "Space",
    "tab": "Tab",
    "shift+tab": "Shift-Tab",
    "ctrl+c": "Ctrl-C",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
}
"""Textual's names of keys -> what is printed on them."""
