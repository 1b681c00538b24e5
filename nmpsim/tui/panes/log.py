"""What was done and answered."""

from __future__ import annotations

from rich.text import Text

from nmpsim.tui.lines import LinePane
from nmpsim.views.text import visible_line

MOST_LINES = 10_000


class LogPane(LinePane):
    """The newest line is at the end."""

    title = "Log"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._written: list[Text] = []
        self._lines: list[Text] = []
        """What was written, folded to the pane's width."""
        self._folded_at = 0

    def write(self, text: str, style: str = "") -> None:
        """Add lines."""
        lines = [Text(visible_line(line), style) for line in text.expandtabs().splitlines()]
        self._written = [*self._written, *lines][-MOST_LINES:]
        self._lines = [*self._lines, *self._folded(lines)][-MOST_LINES:]
        if self.view is not None:
            self.renew()
            self.call_after_refresh(self.go_to, len(self._lines) - 1)

    def renew(self) -> None:
        """The width may have changed."""
        if self._folded_at != self._width():
            self._folded_at = self._width()
            self._lines = self._folded(self._written)
        super().renew()

    def count(self) -> int:
        """Lines."""
        return len(self._lines)

    def line(self, index: int, width: int) -> Text:
        """A line."""
        return self._lines[index].copy()

    def _folded(self, lines: list[Text]) -> list[Text]:
        width = max(self._folded_at, 20)
        return [part for line in lines for part in line.wrap(self.app.console, width)]
