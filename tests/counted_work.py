"""Count executed calls and lines, as a deterministic measure of work."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable
from typing import Any


def count_calls(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the number of function calls that a call makes, built-in functions included."""
    profile = cProfile.Profile()
    profile.runcall(function, *arguments)
    return sum(entry.callcount for entry in profile.getstats())


def count_lines(function: Callable[..., Any], *arguments: Any) -> int:
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
