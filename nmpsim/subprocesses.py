"""Child processes that are ended when this process ends, however it ends."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Protocol


class ChildProcess(Protocol):
    """A started process that can be killed."""

    def kill(self) -> None:
        """End the process immediately; do nothing if it has ended."""
        ...


_children: list[ChildProcess] = []


def register_child(child: ChildProcess) -> None:
    """Register a process for :func:`kill_children`."""
    _children.append(child)


def kill_children() -> None:
    """End all registered processes and the processes of ``multiprocessing``."""
    started = list(_children)
    pool: Any = sys.modules.get("multiprocessing")
    if pool is not None:
        with contextlib.suppress(Exception):  # it asks for them while it may be starting one
            started += pool.active_children()
    for child in started:
        with contextlib.suppress(OSError):
            child.kill()
