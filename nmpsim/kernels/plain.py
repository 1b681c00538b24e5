"""Functions that compiled code calls, and that run without a compiler, too.

Nothing here imports Numba, so who runs them as plain Python need not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

_declared: list[Callable[..., Any]] = []
"""Functions that Numba does not know yet."""


def jit_general(function: _F) -> _F:
    """As ``jit``, but compiled once for all constants that callers pass, not once for each.

    For code that is large and not hot; LLVM still sees the constants where it inlines.
    """
    _declared.append(function)
    return function


def take_declared() -> list[Callable[..., Any]]:
    """The functions that were declared since the last call."""
    taken = _declared[:]
    _declared.clear()
    return taken
