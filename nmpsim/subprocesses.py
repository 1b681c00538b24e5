"""Processes that must not outlive this one, also where it ends without Python's own end."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Protocol


class Child(Protocol):
    """A process that was started."""

    def kill(self) -> None:
        """End it at once; nothing happens if it has ended."""
        ...


_children: list[Child] = []


def register_child(child: Child) -> None:
    """Let :func:`kill_children` end a process."""
    _children.append(child)


def kill_children() -> None:
    """End those that were kept in mind, and those of ``multiprocessing``."""
    started = list(_children)
    pool: Any = sys.modules.get("multiprocessing")
    if pool is not None:
        with contextlib.suppress(Exception):  # it asks for them while it may be starting one
            started += pool.active_children()
    for child in started:
        with contextlib.suppress(OSError):
            child.kill()
