"""Child processes that are ended when this process ends, however it ends."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class ChildProcess(Protocol):
    """Protocol of a started process that can be killed."""

    def kill(self) -> None:
        """Kill the process, or do nothing if it has already ended."""
        ...


_children: list[ChildProcess] = []


def register_child(child: ChildProcess) -> None:
    """Register a process that :func:`kill_children` kills."""
    _children.append(child)


def kill_children() -> None:
    """Kill all registered processes and the child processes of ``multiprocessing``."""
    started = list(_children)
    pool: Any = sys.modules.get("multiprocessing")
    if pool is not None:
        with contextlib.suppress(Exception):  # it asks for them while it may be starting one
            started += pool.active_children()
    for child in started:
        with contextlib.suppress(OSError):
            child.kill()


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Delay Ctrl-C in the context: it would reach a process that has only begun to start."""
    if sys.platform == "win32" or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
