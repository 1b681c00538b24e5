"""Queue of actions that take time, executed one after the other in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from textual.app import App

from nmpsim.diagnostics import UserError
from nmpsim.tui.view import ScreenState

MAX_WAITING = 20
"""Maximum number of waiting actions, such as keys pressed meanwhile."""


class ActionListener(Protocol):
    """Listener that receives the results and errors of queued actions."""

    def show_result(self, name: str, view: ScreenState) -> None:
        """Show the view that an action returned."""

    def report_error(self, name: str, error: UserError) -> None:
        """Report a UserError that an action raised; the waiting actions have been discarded."""

    def report_crash(self, error: BaseException) -> None:
        """Report an exception that an action raised and that is not a UserError."""


class ActionQueue:
    """Queue that executes actions one after the other in a thread."""

    def __init__(self, app: App[None], listener: ActionListener) -> None:
        self._app, self._listener = app, listener
        self._waiting: deque[tuple[str, Callable[[], ScreenState]]] = deque()
        self._stop = threading.Event()
        self.running = ""
        """Name of the running action; empty if none runs."""

    def submit(self, name: str, action: Callable[[], ScreenState]) -> None:
        """Queue an action that returns the next view; ignore the action if the queue is full."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append((name, action))
        if not self.running:
            self.running = name
            self._app.run_worker(self._execute())

    def interrupt(self) -> None:
        """Ask the running action to stop, and discard the waiting actions."""
        self._waiting.clear()
        self._stop.set()

    def is_interrupted(self) -> bool:
        """Return whether the running action has been requested to stop."""
        return self._stop.is_set()

    async def _execute(self) -> None:
        """Execute the waiting actions; the error of one drops the others."""
        while self._waiting:
            self._stop.clear()
            name, action = self._waiting.popleft()
            self.running = name
            try:
                view = await asyncio.to_thread(action)
            except UserError as error:
                self.running = ""
                self._waiting.clear()
                self._listener.report_error(name, error)
            except asyncio.CancelledError:  # the application ends
                raise
            except BaseException as error:
                self._listener.report_crash(error)
                return
            else:
                self.running = ""
                self._listener.show_result(name, view)
        self.running = ""
