"""Loading a program, with a line for whoever waits at a terminal."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nmpsim.cli.guard import say

if TYPE_CHECKING:
    from nmpsim.bundle import Bundle
    from nmpsim.config import DeviceConfig

PATIENCE_SECONDS = 1.0
"""What takes no longer needs no word."""


def load_program(
    path: Path, patch: Path | None = None, *, device: DeviceConfig | None = None
) -> Bundle:
    """As :func:`nmpsim.session.load`; if it lasts, a terminal is told what is waited for."""
    from nmpsim import session

    with told_of_loading(path):
        return session.load(path, patch, device=device)


@contextmanager
def told_of_loading(path: Path) -> Iterator[None]:
    """While a file is read: if it lasts, a terminal is told so, once."""
    timer = threading.Timer(PATIENCE_SECONDS, _say_loading, (path,))
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@functools.cache
def _say_loading(path: Path) -> None:
    with suppress(OSError):
        say(f"loading {path} ({path.stat().st_size / 1e6:,.0f} MB)")
