"""Help pane: all keys, from the bindings themselves, and all commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.message import Message

from nmpsim.tui.command_prompt import CommandPrompt
from nmpsim.tui.key_bindings import list_key_actions, load_bindings
from nmpsim.tui.line_pane import LinePane, WrappedPane
from nmpsim.tui.panes import PANES

KEY_COLUMNS = 22
Part = tuple[str, Iterable[BindingType]]
"""Title, and bindings that work there."""


class HelpPane(WrappedPane):
    """Pane with all keys and commands, shown in front of all other panes."""

    title = "Help"
    BINDINGS: ClassVar[list[BindingType]] = load_bindings("help")

    class Closed(Message):
        """Message that the help was closed."""

    def __init__(self, parts: Sequence[Part], commands: Sequence[str], *, id: str) -> None:
        super().__init__(id=id)
        self.texts = [*_keys(parts), *_commands(commands)]

    def action_close(self) -> None:
        """Close the help."""
        self.post_message(self.Closed())


def _keys(parts: Sequence[Part]) -> Iterable[Text]:
    for title, bindings in parts:
        yield Text(title, "bold underline")
        for keys, description, _ in list_key_actions(bindings):
            yield Text(f"  {keys:{KEY_COLUMNS}}", "bold").append(description, "not bold")
        yield Text("")


def _commands(lines: Sequence[str]) -> Iterable[Text]:
    yield Text("Commands, typed after :", "bold underline")
    yield Text(
        "  to try a change:      change LAYER WORD VALUE, effect, then export FILE or revert"
    )
    for line in lines:
        yield Text(line, "" if line.startswith(" ") else "bold")


def list_help_sections(everywhere: Iterable[BindingType]) -> list[Part]:
    """Return the title and the key bindings of each section of the help."""
    own = [(f"In {name}", kind.__dict__.get("BINDINGS", ())) for name, kind in PANES]
    return [
        ("Everywhere", everywhere),
        ("In every pane", LinePane.BINDINGS),
        *((title, bindings) for title, bindings in own if bindings),
        ("In the command line", CommandPrompt.BINDINGS),
    ]
