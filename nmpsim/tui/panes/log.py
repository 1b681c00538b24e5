"""What was done and answered."""

from __future__ import annotations

from rich.text import Text

from nmpsim.tui.folded import FoldedPane
from nmpsim.visible import visible_line

MAX_LINES = 10_000


class LogPane(FoldedPane):
    """The newest line is at the end."""

    title = "Log"
    keeps_tables = True
    _unread: tuple[Text, ...] = ()
    """The last command and its answer, until they come into sight."""

    def write(self, command: str, answer: str) -> None:
        """Add lines."""
        self._unread = (
            Text(f"> {visible_line(command)}", "bold"),
            *(Text(visible_line(line)) for line in answer.expandtabs().splitlines()),
        )
        self.texts = [*self.texts, *self._unread][-MAX_LINES:]
        self._lines = [*self._lines, *self._folded(self._unread)][-MAX_LINES:]
        self.renew()

    def fold(self) -> None:
        """Bring the last command into sight, and as much of its answer as there is room."""
        super().fold()
        if self.size and self._unread:
            rows = len(self._folded(self._unread))
            self.come_to(len(self._lines) - 1, max(len(self._lines) - rows, 0))
            self._unread = ()
