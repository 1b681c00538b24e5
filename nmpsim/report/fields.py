"""What a JSON document holds: read from its definition, a class with annotated types.

A definition is an attrs class or a ``TypedDict``. ``Annotated[T, "..."]`` says what a field means;
the description is Markdown. JSON data (:mod:`nmpsim.report.json`), the JSON Schema
(:mod:`nmpsim.report.schema`) and the tables of pages (:mod:`nmpsim.report.page`) derive from it. A
property is a field as well if it says where it stands: ``Before`` another one. A ``TypedDict``
says with ``From`` where its values are in the record that it is made from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.records import frozen


@frozen
class Range:
    """Smallest and largest value of a number, or how many of something there may be."""

    low: float
    high: float


@frozen
class As:
    """In JSON the value looks like one of another type."""

    kind: Any


@frozen
class Key:
    """The field's key in JSON, where it is not its name."""

    key: str


@frozen
class Before:
    """Where a property stands among the fields; at their end if the name is empty."""

    name: str


@frozen
class From:
    """What has the value in the record that a document is made from, where it is not the name."""

    source: str | Callable[[Any], Any]
    """A path of attributes, or a function of the record."""


@frozen
class Mark:
    """A marker without a value."""

    what: str


AT_END = Before("")
NOT_IN_JSON = Mark("not in JSON")
BY_NAME = Mark("an object: the name of each record is its key")
FLAT = Mark("the fields of the record stand in its place")
AS_LISTS = Mark("each record is the list of its values")
MAY_BE_SPECIAL = Mark("infinities and NaN are allowed, as texts")
OR_NULL = Mark("an empty text and what is not finite are null")
NESTED = Mark("numbers in lists nested by shape")

Whole = Annotated[int, Range(-(1 << 63), (1 << 63) - 1)]
Count = Annotated[int, Range(0, (1 << 63) - 1)]
Finite = Annotated[float, Range(-sys.float_info.max, sys.float_info.max)]
Share = Annotated[float, Range(0, sys.float_info.max)]
"""A finite number that is not negative."""
Real = Annotated[float, MAY_BE_SPECIAL]
"""Any float: ``"Infinity"``, ``"-Infinity"`` and ``"NaN"`` are texts in JSON."""
RealText = Annotated[float | str, As(Real)]
"""Such a float as JSON has it: what :func:`float_text` returns."""
Values = Annotated[npt.NDArray[Any], NESTED]


@frozen
class Field:
    """One key of a JSON object."""

    key: str
    name: str
    """Of the attribute that has the value; ``outer.inner`` for a record that stands in another."""
    kind: Any
    """Its type, with what it is annotated with."""
    is_required: bool = True

    @property
    def description(self) -> str:
        """What the field means, as Markdown; empty if nothing says it."""
        return next((one for one in marks(self.kind) if isinstance(one, str)), "")


def marks(kind: Any) -> tuple[Any, ...]:
    """What a type is annotated with."""
    return tuple(kind.__metadata__) if get_origin(kind) is Annotated else ()


def bare(kind: Any) -> Any:
    """A type without what it is annotated with."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def is_record(kind: Any) -> bool:
    """Whether values of a type are objects in JSON that have a definition."""
    return isinstance(kind, type) and (attrs.has(kind) or is_typeddict(kind))


@cache
def fields_of(definition: type) -> tuple[Field, ...]:
    """The keys of a record in the order in which JSON has them."""
    hints = get_type_hints(definition, include_extras=True)
    names = hints if is_typeddict(definition) else [f.name for f in attrs.fields(definition)]
    kinds = [(name, hints[name]) for name in names]
    for name, value in vars(definition).items():
        if isinstance(value, property):
            kind = get_type_hints(value.fget, include_extras=True)["return"]
            after = next((one.name for one in marks(kind) if isinstance(one, Before)), None)
            if after is not None:
                names = [other for other, _ in kinds]
                kinds.insert(names.index(after) if after else len(kinds), (name, kind))
    return tuple(field for name, kind in kinds for field in _fields(name, kind))


def _fields(name: str, kind: Any) -> Iterator[Field]:
    if FLAT in marks(kind):
        for field in fields_of(bare(kind)):
            yield attrs.evolve(field, name=f"{name}.{field.name}")
    elif NOT_IN_JSON not in marks(kind):
        is_optional = get_origin(kind) is NotRequired
        inner = get_args(kind)[0] if is_optional else kind
        yield Field(_key(name, inner), name, inner, not is_optional)


def _key(name: str, kind: Any) -> str:
    return next((one.key for one in marks(kind) if isinstance(one, Key)), name)


def value_at(record: Any, path: str) -> Any:
    """Return the attribute or key at a dotted path, such as ``a.b``; None if ``a`` is None."""
    for name in path.split("."):
        if record is not None:
            record = record.get(name) if isinstance(record, Mapping) else getattr(record, name)
    return record


def float_text(value: float) -> float | str:
    """A float as JSON has it: what is not finite as the text that ``float()`` understands."""
    if np.isfinite(value):
        return float(value)
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
