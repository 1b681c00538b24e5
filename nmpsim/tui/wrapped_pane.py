"""Pane of texts that are wrapped to its width."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.text import Text

from nmpsim.tui.line_pane import LinePane

FEWEST_COLUMNS = 20


TABLE = re.compile(r"\S  +\S")


class WrappedPane(LinePane):
    """Base class of panes whose texts are wrapped to the width of the pane."""

    keeps_tables = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.texts: list[Text] = []
        self._lines: list[Text] = []
        self._wrapped_at = self._longest = 0

    def update_size(self) -> None:
        """Wrap the texts if the width has changed, and update the virtual size."""
        self.wrap_lines()
        super().update_size()

    def wrap_lines(self) -> None:
        """Wrap the texts to lines if the width of the pane has changed."""
        if self.size and self._wrapped_at != self.columns:
            self._wrapped_at = self.columns
            self._lines = self._wrap(self.texts)
        self._longest = max((line.cell_len for line in self._lines), default=0)

    def compute_width(self) -> int:
        """Compute the width of the longest line in screen columns."""
        return self._longest

    def _wrap(self, texts: Iterable[Text]) -> list[Text]:
        width = max(self._wrapped_at, FEWEST_COLUMNS)
        console = self.app.console
        return [
            part
            for text in texts
            for part in ([text] if self._is_row(text) else text.wrap(console, width))
        ]

    def _is_row(self, text: Text) -> bool:
        return self.keeps_tables and TABLE.search(text.plain) is not None
