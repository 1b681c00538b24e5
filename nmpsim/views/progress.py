"""A progress bar on a terminal, and a notice while kernels are compiled."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from nmpsim.compile_notice import COMPILE_NOTICE
from nmpsim.escape import escape_line
from nmpsim.records import frozen
from nmpsim.views.text import shorten_middle

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DELAY_SECONDS = 0.5
"""Time before the bar appears."""


@frozen
class ItemProgress:
    """Progress event with the number of finished items."""

    done: int
    """Number of finished items."""
    total: int
    name: str
    """Name of the current item."""
    kind: str = "item"


class ProgressEvent(Protocol):
    """Protocol of events with a kind, the finished items, their total and the current item."""

    @property
    def kind(self) -> str:
        """Kind of the event, such as ``compiling`` or ``layer``."""

    @property
    def done(self) -> int:
        """Number of finished items."""

    @property
    def total(self) -> int:
        """Number of items in total."""

    @property
    def name(self) -> str:
        """Name of the current item."""


class RunProgress:
    """Progress display for a console on stderr, used as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._has_printed_notice = False

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: ProgressEvent) -> None:
        """Show an event."""
        if event.kind == "compiling":
            self._print_notice()
        elif self._bar is not None:
            self._update(event)
        elif self._is_due():
            self._begin(event)

    def _print_notice(self) -> None:
        if not self._has_printed_notice:
            self._has_printed_notice = True
            self._console.print(COMPILE_NOTICE, soft_wrap=True)

    def _is_due(self) -> bool:
        return self._console.is_terminal and time.monotonic() - self._start > DELAY_SECONDS

    def _begin(self, event: ProgressEvent) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            Elapsed(),
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(_description(event), total=event.total)
        self._bar.start()
        self._update(event)

    def _update(self, event: ProgressEvent) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=event.done,
                total=event.total,
                description=_description(event),
            )


def _description(event: ProgressEvent) -> str:
    return shorten_middle(escape_line(event.name), 30)


def make_stderr_console() -> Console:
    """Return a console that prints to stderr, without markup."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)
