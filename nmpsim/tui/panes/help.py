"""The help: every key, made from the bindings themselves, and every command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message

from nmpsim.tui.folded import FoldedPane
from nmpsim.tui.keys import key_lines
from nmpsim.tui.lines import LinePane
from nmpsim.tui.panes import PANES
from nmpsim.tui.prompt import Prompt

KEY_COLUMNS = 22
Part = tuple[str, Iterable[BindingType]]
"""Where keys work, and the keys."""


class HelpPane(FoldedPane):
    """In front of the other panes until one of the usual keys closes it."""

    title = "Help"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,question_mark,f1", "close", "Close the help", show=False)
    ]

    class Closed(Message):
        """The user has read it."""

    def __init__(self, parts: Sequence[Part], commands: Sequence[str], *, id: str) -> None:
        super().__init__(id=id)
        self.texts = [*_keys(parts), *_commands(commands)]

    def action_close(self) -> None:
        """Tell the screen."""
        self.post_message(self.Closed())


def _keys(parts: Sequence[Part]) -> Iterable[Text]:
    for title, bindings in parts:
        yield Text(title, "bold underline")
        for keys, description in key_lines(bindings):
            yield Text(f"  {keys:{KEY_COLUMNS}}", "bold").append(description, "not bold")
        yield Text("")


def _commands(lines: Sequence[str]) -> Iterable[Text]:
    yield Text("Commands, typed after :", "bold underline")
    yield Text(
        "  to try a change:      change LAYER WORD VALUE, effect, then export FILE or revert"
    )
    for line in lines:
        yield Text(line, "" if line.startswith(" ") else "bold")


def help_parts(everywhere: Iterable[BindingType]) -> list[Part]:
    """Where keys work, and the keys; ``everywhere`` are those of the screen."""
    own = [(f"In {name}", kind.__dict__.get("BINDINGS", ())) for name, kind in PANES]
    return [
        ("Everywhere", everywhere),
        ("In every pane", LinePane.BINDINGS),
        *((title, bindings) for title, bindings in own if bindings),
        ("In the command line", Prompt.BINDINGS),
    ]
