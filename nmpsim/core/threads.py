"""How many threads of the host share the work of a run."""

from __future__ import annotations

import os

from nmpsim.diagnostics import fail


def available_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_threads(threads: int | None) -> int:
    """``threads``, or as many as there are processors; raises ``UserError`` (ARG001) below 1."""
    if threads is None:
        return available_processors()
    if threads < 1:
        raise fail("ARG001", "a run needs a thread", found=threads, expected="1 or more threads")
    return threads
