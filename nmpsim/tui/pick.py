"""A small list to pick one of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList


class Pick(ModalScreen[int | None]):
    """Closes with the number of the option that was picked; None if none was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Close", show=False),
        Binding("j", "app.simulate_key('down')", "Next", show=False),
        Binding("k", "app.simulate_key('up')", "Before", show=False),
    ]

    def __init__(self, title: str, options: Sequence[str]) -> None:
        super().__init__()
        self._list = OptionList(*(Text(option, no_wrap=True) for option in options))
        self._list.border_title = title

    def compose(self) -> ComposeResult:
        """Only the list."""
        yield self._list

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)
