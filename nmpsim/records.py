"""A faster ``attrs.frozen`` for classes that every run imports.

attrs generates and compiles ``__eq__``, ``__hash__`` and ``__repr__`` for each class, which takes
half of the time to create it; a command creates a hundred classes at start. Here all classes share
these methods.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import attrs

__all__ = ["frozen"]

if TYPE_CHECKING:
    from attrs import frozen
else:

    def frozen(cls: type | None = None, **options: Any) -> Any:
        """As ``attrs.frozen``; what a class or an option says of ``eq`` or ``repr`` holds."""
        if cls is None:
            return lambda cls: frozen(cls, **options)
        if "eq" not in options and "__eq__" not in vars(cls):
            cls.__eq__, cls.__hash__, options["eq"] = _equals, _hash, False
        if "repr" not in options and "__repr__" not in vars(cls):
            cls.__repr__, options["repr"] = _text, False
        return attrs.frozen(**options)(cls)


def _equals(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(map(operator.eq, _compared(self), _compared(other)))


def _hash(self: Any) -> int:
    return hash((self.__class__, *_compared(self)))


def _text(self: Any) -> str:
    fields = (f"{name}={shown(getattr(self, name))}" for name, shown in _shown(self.__class__))
    return f"{self.__class__.__qualname__.rsplit('>.', 1)[-1]}({', '.join(fields)})"


def _compared(record: Any) -> list[Any]:
    """Return the values by which records are compared."""
    values = [(key, getattr(record, name)) for name, key in _keys(record.__class__)]
    return [value if key is None else key(value) for key, value in values]


@cache
def _keys(cls: type) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    """Return the compared fields and their key functions."""
    return tuple((field.name, field.eq_key) for field in attrs.fields(cls) if field.eq)


@cache
def _shown(cls: type) -> tuple[tuple[str, Callable[[Any], str]], ...]:
    """Return the fields of a record's representation and their formatting functions."""
    fields = [field for field in attrs.fields(cls) if field.repr]
    return tuple((one.name, repr if one.repr is True else one.repr) for one in fields)
