"""Actions that take time, one after the other in a thread of their own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from textual.app import App

from nmpsim.diagnostics import UserError
from nmpsim.tui.view import View

MAX_WAITING = 20
"""Actions that wait for the one that runs: keys pressed meanwhile."""


class Listener(Protocol):
    """Is told, in the thread of the screen, how an action ended."""

    def done(self, name: str, view: View) -> None:
        """It led to this view."""

    def refused(self, name: str, error: UserError) -> None:
        """It could not be done; what waited for it is dropped."""

    def failed(self, error: BaseException) -> None:
        """It met an error of nmpsim itself."""


class Jobs:
    """While an action runs nobody else reads or moves the debugger."""

    def __init__(self, app: App[None], listener: Listener) -> None:
        self._app, self._listener = app, listener
        self._waiting: deque[tuple[str, Callable[[], View]]] = deque()
        self._stop = threading.Event()
        self.running = ""
        """Name of the action that runs; empty while nothing does."""

    def perform(self, name: str, action: Callable[[], View]) -> None:
        """Do something that leads to another view, after what was asked for before."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append((name, action))
        if not self.running:
            self._next()

    def interrupt(self) -> None:
        """Ask what runs to stop, and drop what waits."""
        self._waiting.clear()
        self._stop.set()

    def is_interrupted(self) -> bool:
        """Was what runs asked to stop?"""
        return self._stop.is_set()

    def _next(self) -> None:
        if self._waiting:
            self._stop.clear()
            self.running, action = self._waiting.popleft()
            self._app.run_worker(partial(self._in_thread, action), thread=True)

    def _in_thread(self, action: Callable[[], View]) -> None:
        try:
            ended = partial(self._done, action())
        except UserError as error:
            ended = partial(self._refused, error)
        except BaseException as error:
            ended = partial(self._listener.failed, error)
        if self._app.is_running:
            self._app.call_from_thread(ended)

    def _done(self, view: View) -> None:
        name, self.running = self.running, ""
        self._listener.done(name, view)
        self._next()

    def _refused(self, error: UserError) -> None:
        name, self.running = self.running, ""
        self._waiting.clear()
        self._listener.refused(name, error)
