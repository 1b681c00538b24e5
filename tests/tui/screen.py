"""Operate the screen like a user: press keys, read text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from textual import _wait
from textual.pilot import Pilot

from nmpsim.bundle import Bundle
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.tui.app import DebugApp
from nmpsim.tui.theme import UNICODE, Glyphs

# Textual's pilot polls every 20 ms, several times a key, until the process is idle. `settle`
# waits for the app itself, so that much shorter polls suffice.
_wait.SLEEP_GRANULARITY, _wait.SLEEP_IDLE = 0.002, 0.0002

Start = Callable[[], Shell]
SMALL, LARGE = (80, 24), (200, 50)


class ArrayFile:
    """Reader of an ``.npz`` file."""

    def __init__(self, path: Path) -> None:
        self._arrays = dict(np.load(path))
        self.keys = list(self._arrays)

    def read(self, key: str) -> np.ndarray[Any, Any]:
        return self._arrays[key]


def session(bundle: Bundle, image: np.ndarray[Any, Any]) -> Shell:
    """Return a debugger session on a program with one input."""
    return Shell(Debugger(bundle, {bundle.metadata.inputs[0].name: image}), ArrayFile)


class User:
    """Simulated user who presses keys, waits for the app and reads the screen."""

    def __init__(self, app: DebugApp, pilot: Pilot[Any]) -> None:
        self.app, self.pilot = app, pilot

    async def settle(self) -> None:
        """Wait until all requested work is done and displayed."""
        while self.app.view is None or self.app.is_busy:
            await self.pilot.pause(0.005)
        for _ in range(3):  # an action may post messages, whose handlers post others
            await self.pilot.pause()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; fail after ten seconds."""
        async with asyncio.timeout(10):
            while not condition():
                await self.pilot.pause(0.005)

    async def press(self, *keys: str) -> str:
        """Press keys in sequence and return the text on the screen."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()
        return self.text()

    async def enter(self, line: str) -> str:
        """Type a line into the command line."""
        self.app.action_prompt(line)
        return await self.press("enter")

    def text(self) -> str:
        """Return the text on the screen."""
        width, height = self.app.size
        lines = self.app.screen._compositor.render_strips()
        assert len(lines) == height
        return "\n".join(line.text[:width] for line in lines)


def drive(
    session: Shell,
    size: tuple[int, int],
    play: Callable[[User], Awaitable[None]],
    glyphs: Glyphs = UNICODE,
) -> DebugApp:
    """Show a session on a screen of a size (columns, rows), and let a user act on it."""

    async def run() -> DebugApp:
        app = DebugApp(session, glyphs)
        async with app.run_test(size=size) as pilot:
            user = User(app, pilot)
            await user.settle()
            await play(user)
        return app

    return asyncio.run(run())
