"""How far a run is: a bar on a terminal once it lasts, and one line while kernels compile."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from nmpsim.compiling import COMPILING
from nmpsim.views.text import shorten_middle
from nmpsim.visible import visible_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DELAY_SECONDS = 0.5
"""A run that is shorter shows no bar."""


class Event(Protocol):
    """What the session reports: see ``nmpsim.session.Progress``."""

    @property
    def kind(self) -> str:
        """compiling or layer"""

    @property
    def done(self) -> int:
        """Layers that are finished."""

    @property
    def total(self) -> int:
        """Layers in all."""

    @property
    def name(self) -> str:
        """The layer at hand."""


class RunProgress:
    """Shows progress events on a console for stderr; use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said_compiling = False

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        if event.kind == "compiling":
            self._say_compiling()
        elif self._bar is not None:
            self._update(event)
        elif self._is_due():
            self._begin(event)

    def _say_compiling(self) -> None:
        if not self._said_compiling:
            self._said_compiling = True
            self._console.print(COMPILING, soft_wrap=True)

    def _is_due(self) -> bool:
        return self._console.is_terminal and time.monotonic() - self._start > DELAY_SECONDS

    def _begin(self, event: Event) -> None:
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

    def _update(self, event: Event) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=event.done,
                total=event.total,
                description=_description(event),
            )


def _description(event: Event) -> str:
    return shorten_middle(visible_line(event.name), 30)


def stderr_console() -> Console:
    """Where progress goes."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)
