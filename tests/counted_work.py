"""Work counted instead of timed: machines are noisy, calls are not."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[..., Any], *arguments: Any) -> int:
    """Function calls, Python's own included, that a call takes."""
    profile = cProfile.Profile()
    profile.runcall(function, *arguments)
    return sum(entry.callcount for entry in profile.getstats())


def lines_of(function: Callable[..., Any], *arguments: Any) -> int:
    """Return how many lines of Python a call executes; each turn of a comprehension is one."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count
