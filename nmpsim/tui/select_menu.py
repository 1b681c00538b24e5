"""Menu of options to select from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList

from nmpsim.tui.key_bindings import load_bindings


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
