"""Status line: program, location of the run, last answer or progress."""

from __future__ import annotations

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from nmpsim.debugger import RunLocation
from nmpsim.escape import escape_line
from nmpsim.tui.view import ScreenState
from nmpsim.views.text import shorten_middle

PROGRESS_COLUMNS = 10


class StatusLine(Widget):
    """Status line of one row, with the location of the run and the last answer."""

    location: reactive[RunLocation | None] = reactive(None)
    answer = reactive("")
    warning = reactive("")
    """Problem with the screen's size; empty if none."""
    busy = reactive("")
    """Name of the running action; empty if none runs."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = escape_line(program)

    def show(self, view: ScreenState) -> None:
        """Show the location of a view, and the last answer if the answer has one line."""
        self.busy, self.location = "", view.location
        lines, reason = view.answer.lines, view.answer.data.get("reason")
        is_told = reason not in ("step", "begin") and (reason is not None or len(lines) == 1)
        self.answer = lines[0] if is_told and lines else ""

    def show_progress(self, busy: str, location: RunLocation | None) -> None:
        """Show the name of the running action; update the location if ``location`` is not None."""
        self.busy = busy
        if busy and location is not None:
            self.location = location

    def render(self) -> Text:
        """Render program, layer, cycle, and the last answer or the running action."""
        text = Text(no_wrap=True, overflow="ellipsis")
        if self.warning:
            text.append(f"{self.warning} ", style="bold reverse")
        text.append(f" {shorten_middle(self._program, 16)} ", style="bold reverse")
        where = self.location
        if where is None:
            return text.append(f" {escape_line(self.busy)}")
        if self.busy:
            filled = round(PROGRESS_COLUMNS * where.layers_done / max(where.layers, 1))
            bar = "#" * filled + "-" * (PROGRESS_COLUMNS - filled)
            text.append(f" {escape_line(self.busy)} [{bar}] Esc stops ", style="bold")
        name = (
            f"layer {where.layer} {where.layer_display_name}"
            if where.layer is not None
            else "the end"
        )
        text.append(f" {shorten_middle(escape_line(name), 30)}", style="bold")
        text.append(f"  {where.layers_done}/{where.layers} done  cycle {where.cycle:,}")
        return text.append("" if self.busy else f"  {escape_line(self.answer)}")
