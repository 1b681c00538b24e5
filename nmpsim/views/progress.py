"""A progress bar on a terminal, and a notice while kernels are compiled."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console

from nmpsim.compile_notice import COMPILE_NOTICE
from nmpsim.escape import escape_line
from nmpsim.views.text import shorten_middle

if TYPE_CHECKING:
    from rich.progress import Progress as ProgressBar
    from rich.progress import TaskID

    from nmpsim.core.run import Progress

DELAY_SECONDS = 0.5
"""Time before the bar appears."""


class RunProgress:
    """Progress display for a console on stderr, used as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()
        self._bar: ProgressBar | None = None
        self._task: TaskID | None = None
        self._has_printed_notice = False

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Progress) -> None:
        """Show an event."""
        if event.kind == "compiling":
            if not self._has_printed_notice:
                self._has_printed_notice = True
                self._console.print(COMPILE_NOTICE, soft_wrap=True)
            return
        name = shorten_middle(escape_line(event.name), 30)
        is_due = time.monotonic() - self._start > DELAY_SECONDS
        if self._bar is None and self._console.is_terminal and is_due:
            self._bar = self._make_bar()
            self._task = self._bar.add_task(name, total=event.total)
            self._bar.start()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=event.done, total=event.total, description=name)

    def _make_bar(self) -> ProgressBar:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            Elapsed(),
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )


def make_stderr_console() -> Console:
    """Return a console that prints to stderr, without markup."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)
