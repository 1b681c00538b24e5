"""What was done and answered."""

from __future__ import annotations

from rich.text import Text

from nmpsim.tui.folded import FoldedPane
from nmpsim.views.text import visible_line

MOST_LINES = 10_000


class LogPane(FoldedPane):
    """The newest line is at the end."""

    title = "Log"

    def write(self, command: str, answer: str) -> None:
        """Add lines; the command comes into sight, and as much of its answer as there is room."""
        texts = [
            Text(f"> {visible_line(command)}", "bold"),
            *(Text(visible_line(line)) for line in answer.expandtabs().splitlines()),
        ]
        lines = self._folded(texts)
        self.texts = [*self.texts, *texts][-MOST_LINES:]
        self._lines = [*self._lines, *lines][-MOST_LINES:]
        self.come_to(len(self._lines) - 1, max(len(self._lines) - len(lines), 0))
        if self.view is not None:
            self.renew()
