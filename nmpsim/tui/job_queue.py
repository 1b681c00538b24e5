"""Queue of actions that take time, executed one after the other in a thread."""

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
"""Maximum number of waiting actions, such as keys pressed meanwhile."""


class JobListener(Protocol):
    """Receiver of the results of actions; its methods are called in the screen's thread."""

    def accept_view(self, name: str, view: View) -> None:
        """Handle the view that an action returned."""

    def report_error(self, name: str, error: UserError) -> None:
        """Handle the user error of an action; waiting actions are dropped."""

    def report_crash(self, error: BaseException) -> None:
        """Handle an internal error."""


class JobQueue:
    """Queue that executes actions in a thread, one after the other."""

    def __init__(self, app: App[None], listener: JobListener) -> None:
        self._app, self._listener = app, listener
        self._waiting: deque[tuple[str, Callable[[], View]]] = deque()
        self._stop = threading.Event()
        self.running = ""
        """Name of the running action; empty if none runs."""

    def submit(self, name: str, action: Callable[[], View]) -> None:
        """Add an action that returns the next view; it is started if no other action runs."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append((name, action))
        if not self.running:
            self._next()

    def interrupt(self) -> None:
        """Request the running action to stop, and drop the waiting actions."""
        self._waiting.clear()
        self._stop.set()

    def is_interrupted(self) -> bool:
        """Return whether the running action has been requested to stop."""
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
            ended = partial(self._listener.report_crash, error)
        if self._app.is_running:
            self._app.call_from_thread(ended)

    def _done(self, view: View) -> None:
        name, self.running = self.running, ""
        self._listener.accept_view(name, view)
        self._next()

    def _refused(self, error: UserError) -> None:
        name, self.running = self.running, ""
        self._waiting.clear()
        self._listener.report_error(name, error)
