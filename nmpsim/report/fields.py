"""Definitions of JSON documents: classes with annotated types.

A definition is an attrs class or a ``TypedDict``. ``Annotated[T, "..."]`` holds the description of
a field as Markdown. JSON data (:mod:`nmpsim.report.json`), JSON Schemas and the tables of pages
(:mod:`nmpsim.report.schema`) derive from it. A property with the marker ``Before`` is a field, too.
A field of a ``TypedDict`` with ``Source`` takes its value from another attribute of the record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.records import frozen


@frozen
class AllowedRange:
    """Allowed range of a number, or of the length of a collection."""

    low: float
    high: float


@frozen
class JsonType:
    """Annotation that gives the type of a field's JSON value."""

    kind: Any


@frozen
class JsonKey:
    """Annotation that gives the key of a field in JSON."""

    key: str


@frozen
class WrittenBefore:
    """Annotation that writes a property to JSON, before the named field."""

    name: str


@frozen
class Source:
    """Annotation with the attribute or function that supplies a field's value."""

    source: str | Callable[[Any], Any]
    """Path of attributes, or function of the record."""


@frozen
class Marker:
    """Annotation without a parameter, such as ``NOT_IN_JSON``."""

    meaning: str


AT_END = WrittenBefore("")
NOT_IN_JSON = Marker("not in JSON")
OMITTED_IF_EMPTY = Marker("not in JSON if it is empty")
OMITTED_IF_NONE = Marker("not in JSON if it is None")
BY_NAME = Marker("an object: the name of each record is its key")
FLAT = Marker("the fields of the record replace the record; they are null if there is none")
AS_LISTS = Marker("each record is the list of its values")
MAY_BE_SPECIAL = Marker("infinities and NaN are allowed, as texts")
OR_NULL = Marker("an empty text and what is not finite are null")
NESTED = Marker("numbers in lists nested by shape")

Whole = Annotated[int, AllowedRange(-(1 << 63), (1 << 63) - 1)]
Count = Annotated[int, AllowedRange(0, (1 << 63) - 1)]
Finite = Annotated[float, AllowedRange(-sys.float_info.max, sys.float_info.max)]
Share = Annotated[float, AllowedRange(0, sys.float_info.max)]
"""Finite, non-negative number."""
Real = Annotated[float, MAY_BE_SPECIAL]
"""Any float; ``"Infinity"``, ``"-Infinity"`` and ``"NaN"`` are strings in JSON."""
RealText = Annotated[float | str, JsonType(Real)]
"""JSON form of any float, as :func:`encode_float` returns it."""
Values = Annotated[Array, NESTED]


@frozen
class Field:
    """Field of a JSON object: its key, attribute and type."""

    key: str
    name: str
    """Name of the attribute; ``outer.inner`` for a field of a flattened record."""
    kind: Any
    """Annotated type."""
    is_required: bool = True

    def is_omitted(self, value: Any) -> bool:
        """Return whether a value of the field is left out of the JSON object."""
        if self.is_required:
            return False
        return value is None if OMITTED_IF_NONE in get_annotations(self.kind) else not value

    @property
    def description(self) -> str:
        """Markdown text that describes the field, or "" if there is none."""
        return next((one for one in get_annotations(self.kind) if isinstance(one, str)), "")


def get_annotations(kind: Any) -> tuple[Any, ...]:
    """Return the metadata of an ``Annotated`` type, or () for other types."""
    return tuple(kind.__metadata__) if get_origin(kind) is Annotated else ()


def strip_annotations(kind: Any) -> Any:
    """Return ``T`` for ``Annotated[T, ...]``, and other types unchanged."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def is_record(kind: Any) -> bool:
    """Return whether a type is a record: an attrs class or a TypedDict."""
    return isinstance(kind, type) and (attrs.has(kind) or is_typeddict(kind))


@cache
def list_fields(definition: type) -> tuple[Field, ...]:
    """Return the fields of a record class in the order of the JSON keys."""
    hints = get_type_hints(definition, include_extras=True)
    names = hints if is_typeddict(definition) else [f.name for f in attrs.fields(definition)]
    kinds = [(name, hints[name]) for name in names]
    for name, value in vars(definition).items():
        if isinstance(value, property):
            kind = get_type_hints(value.fget, include_extras=True)["return"]
            after = next(
                (one.name for one in get_annotations(kind) if isinstance(one, WrittenBefore)), None
            )
            if after is not None:
                names = [other for other, _ in kinds]
                kinds.insert(names.index(after) if after else len(kinds), (name, kind))
    return tuple(field for name, kind in kinds for field in _fields(name, kind))


def _fields(name: str, kind: Any) -> Iterator[Field]:
    if FLAT in get_annotations(kind):
        inner = strip_annotations(kind)
        record, *null = get_args(inner) or [inner]
        for field in list_fields(record):
            kind = field.kind
            if null and type(None) not in get_args(strip_annotations(kind)):
                kind = Annotated[kind | None, field.description]
            yield attrs.evolve(field, name=f"{name}.{field.name}", kind=kind)
    elif NOT_IN_JSON not in get_annotations(kind):
        is_optional = get_origin(kind) is NotRequired
        inner = get_args(kind)[0] if is_optional else kind
        omissions = {OMITTED_IF_EMPTY, OMITTED_IF_NONE}
        is_required = not is_optional and omissions.isdisjoint(get_annotations(inner))
        keys = (one.key for one in get_annotations(inner) if isinstance(one, JsonKey))
        yield Field(next(keys, name), name, inner, is_required)


def get_path_value(record: Any, path: str) -> Any:
    """Return the value at a dotted path of attributes or keys, or None if a part is None."""
    for name in path.split("."):
        if record is not None:
            record = record.get(name) if isinstance(record, Mapping) else getattr(record, name)
    return record


def encode_float(value: float) -> float | str:
    """Return a float, or "Infinity", "-Infinity" or "NaN" if it is not finite."""
    if np.isfinite(value):
        return float(value)
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
