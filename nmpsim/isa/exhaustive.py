"""Checks, at import time, that tables cover every instruction, profile or operation.

A module whose table lacks a new instruction, profile or operation cannot be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class IncompleteError(ValueError):
    """Exception raised if a table lacks an entry or has an unknown entry."""


def check_exhaustive(place: str, given: Iterable[object], expected: Iterable[object]) -> None:
    """Raise IncompleteError unless two collections have the same elements."""
    has, needs = set(given), set(expected)
    for what, names in (("has no entry for", needs - has), ("has an entry too many:", has - needs)):
        if names:
            raise IncompleteError(f"{place} {what} {', '.join(sorted(map(str, names)))}")


def make_exhaustive_table(
    place: str, table: Mapping[_Key, _Value], expected: Iterable[object]
) -> dict[_Key, _Value]:
    """Return a copy of ``table``; raise IncompleteError unless its keys equal ``expected``."""
    check_exhaustive(place, table, expected)
    return dict(table)


def require_cases(
    known: Collection[str], expected: Iterable[str]
) -> Callable[[_Function], _Function]:
    """Return a decorator that requires a function to mention exactly the constants ``expected``.

    Compiled code compares numbers with named constants in place of a table lookup.

    Parameters
    ----------
    known
        Names of all constants of a kind.
    expected
        Names that the function must mention, exactly.

    Raises
    ------
    IncompleteError
        By the decorator, if the function mentions other names.
    """
    names = frozenset(known)

    def check(function: _Function) -> _Function:
        place = f"{function.__module__}.{function.__qualname__}"
        check_exhaustive(place, names.intersection(function.__code__.co_names), expected)
        return function

    return check
