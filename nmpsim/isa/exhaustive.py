"""Tables that say something about every row of another table, checked when they are imported.

Who adds an instruction, a profile or an operation and forgets a place learns it before anything
runs: the module that lacks it cannot be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class IncompleteError(ValueError):
    """A place lacks an entry that it must have, or has one that means nothing."""


def check_exhaustive(place: str, given: Iterable[object], expected: Iterable[object]) -> None:
    """Raise IncompleteError unless ``place`` has an entry for each of ``expected`` and no other."""
    has, needs = set(given), set(expected)
    for what, names in (("has no entry for", needs - has), ("has an entry too many:", has - needs)):
        if names:
            raise IncompleteError(f"{place} {what} {', '.join(sorted(map(str, names)))}")


def exhaustive_table(
    place: str, table: Mapping[_Key, _Value], expected: Iterable[object]
) -> dict[_Key, _Value]:
    """``table``, which has an entry for each of ``expected``; see ``check_exhaustive``."""
    check_exhaustive(place, table, expected)
    return dict(table)


def dispatches_on(
    known: Collection[str], expected: Iterable[str]
) -> Callable[[_Function], _Function]:
    """For a compiled function that compares a number with one name after the other.

    Of the ``known`` names it mentions each of ``expected`` and no other. What compiled code has
    instead of a table of functions is checked like one; the function goes on to say itself what
    happens if nothing fits.
    """
    names = frozenset(known)

    def check(function: _Function) -> _Function:
        place = f"{function.__module__}.{function.__qualname__}"
        check_exhaustive(place, names.intersection(function.__code__.co_names), expected)
        return function

    return check
