"""Log pane: commands and their answers."""

from __future__ import annotations

from rich.text import Text

from nmpsim.escape import escape_line
from nmpsim.tui.line_pane import WrappedPane

MAX_LINES = 10_000


class LogPane(WrappedPane):
    """Pane with the log of commands and answers; the newest line is last."""

    title = "Log"
    keeps_tables = True
    _unread: tuple[Text, ...] = ()
    """The last command and its answer, until they are visible."""

    def write(self, command: str, answer: str) -> None:
        """Append a command and its answer to the log."""
        self._unread = (
            Text(f"> {escape_line(command)}", "bold"),
            *(Text(escape_line(line)) for line in answer.expandtabs().splitlines()),
        )
        self.texts = [*self.texts, *self._unread][-MAX_LINES:]
        self._lines = [*self._lines, *self._wrap(self._unread)][-MAX_LINES:]
        self.update_lines()

    def wrap_lines(self) -> None:
        """Wrap the lines and scroll to the last command."""
        super().wrap_lines()
        if self.size and self._unread:
            rows = len(self._wrap(self._unread))
            self.schedule_cursor_moves(len(self._lines) - 1, max(len(self._lines) - rows, 0))
            self._unread = ()
