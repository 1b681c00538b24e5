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
    """A table lacks an entry or has an unknown one."""


def check_exhaustive(place: str, given: Iterable[object], expected: Iterable[object]) -> None:
    """Raise IncompleteError unless ``given`` and ``expected`` are the same set."""
    has, needs = set(given), set(expected)
    for what, names in (("has no entry for", needs - has), ("has an entry too many:", has - needs)):
        if names:
            raise IncompleteError(f"{place} {what} {', '.join(sorted(map(str, names)))}")


def exhaustive_table(
    place: str, table: Mapping[_Key, _Value], expected: Iterable[object]
) -> dict[_Key, _Value]:
    """Return ``table``; raise IncompleteError unless its keys are exactly ``expected``."""
    check_exhaustive(place, table, expected)
    return dict(table)


def dispatches_on(
    known: Collection[str], expected: Iterable[str]
) -> Callable[[_Function], _Function]:
    """Decorate a function that compares a number with named constants, to check their names.

    Compiled code has such functions instead of tables. Raises IncompleteError unless the function
    mentions, of the ``known`` names, exactly the ``expected`` ones.
    """
    names = frozenset(known)

    def check(function: _Function) -> _Function:
        place = f"{function.__module__}.{function.__qualname__}"
        check_exhaustive(place, names.intersection(function.__code__.co_names), expected)
        return function

    return check
