"""Queue of actions that take time, executed one after the other in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from nmpsim.diagnostics import UserError
from nmpsim.tui.view import ScreenState

if TYPE_CHECKING:
    from nmpsim.tui.app import DebugApp

MAX_WAITING = 20
"""Maximum number of waiting actions, such as keys pressed meanwhile."""


class ActionQueue:
    """Queue that executes actions one after the other in a thread, and shows what they return."""

    def __init__(self, app: DebugApp) -> None:
        self._app = app
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
                self._app.report_error(name, error)
            except asyncio.CancelledError:  # the application ends
                raise
            except BaseException as error:
                self._app.report_crash(error)
                return
            else:
                self.running = ""
                self._app.show_result(name, view)
        self.running = ""
