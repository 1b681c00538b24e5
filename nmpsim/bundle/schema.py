"""Strict conversion between records and JSON.

Floats are exact: JSON has the shortest text that reads back the same. Infinity is written as
``Infinity``, as Python's ``json`` does. Bytes are read from hexadecimal digits.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import attrs

from nmpsim.bundle.limits import ATTRIBUTE_ITEMS, ATTRIBUTE_NUMBER, ATTRIBUTES, JSON_BYTES, Limit
from nmpsim.bundle.metadata import SCHEMA, Metadata
from nmpsim.diagnostics import Place, UserError, fail

if TYPE_CHECKING:
    from cattrs import Converter

Record = TypeVar("Record")


_OMITTED_IF_EMPTY = frozenset({"formulas", "in_scratchpads", "owned", "states"})


def _is_in_file(field: attrs.Attribute[Any], value: Any) -> bool:
    """Return whether a field is stored; some are only if they are not empty."""
    return field.name != "display_name" and (field.name not in _OMITTED_IF_EMPTY or bool(value))


def format_metadata(metadata: Metadata) -> bytes:
    """Format metadata and their schema as one line of JSON, encoded as bytes."""
    return format_record(metadata, SCHEMA)


def parse_metadata(text: bytes, place: Place) -> Metadata:
    """Parse metadata from JSON; raise UserError if they are damaged or of an unsupported schema.

    Raises
    ------
    UserError
        BUN002 for damaged metadata, BUN003 for another schema.
    """
    return parse_record(text, Metadata, SCHEMA, place, "metadata")


def format_record(record: attrs.AttrsInstance, schema: str) -> bytes:
    """Format a record as one line of JSON, encoded as bytes, with its schema as the first key."""
    fields = attrs.asdict(record, filter=_is_in_file, value_serializer=_plain_value)
    return json.dumps({"schema": schema, **fields}).encode()


def parse_record(text: bytes, kind: type[Record], schema: str, place: Place, what: str) -> Record:
    """Parse JSON as a record of the class ``kind``; raise UserError if the schema differs.

    Raises
    ------
    UserError
        BUN002 for damaged data, BUN003 for another schema.
    """
    document = _parse(text, place, what)
    found = document.pop("schema", None)
    if found != schema:
        raise fail(
            "BUN003",
            "the bundle was made for another version of nmpsim",
            place=place,
            found=_shorten(repr(found)),
            expected=repr(schema),
            hint="Compile the network again with this version.",
        )
    return _structure(document, kind, schema, place, what)


def parse_record_file(
    data: bytes, kind: type[Record], schema: str, place: Place, code: str, message: str, hint: str
) -> Record:
    """Parse the JSON of a file as a record of the class ``kind``; raise UserError if invalid."""
    try:
        return parse_record(data, kind, schema, place, "file")
    except UserError as error:
        (cause,) = error.diagnostics
        raise fail(
            code, message, place=place, found=cause.found, expected=cause.expected, hint=hint
        ) from error


def _parse(text: bytes, place: Place, what: str) -> dict[str, Any]:
    if JSON_BYTES.find_problem(len(text)):
        raise _unusable(place, what, f"{len(text)} bytes", f"at most {JSON_BYTES.high} bytes")
    try:
        document = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _unusable(place, what, _shorten(str(error)), "JSON") from error
    if not isinstance(document, dict):
        raise _unusable(place, what, type(document).__name__, "a JSON object")
    return document


def _structure(
    document: dict[str, Any], kind: type[Record], schema: str, place: Place, what: str
) -> Record:
    from cattrs import BaseValidationError, transform_error

    try:
        return _converter().structure(document, kind)
    except BaseValidationError as error:
        problems = transform_error(error, path=what, format_exception=_explain)
        found = _shorten("; ".join(problems[:3]))
        raise _unusable(place, what, found, f"schema {schema}") from error
    except RecursionError as error:
        raise _unusable(place, what, "lists nested too deeply", f"schema {schema}") from error


def _unusable(place: Place, what: str, found: str, expected: str) -> UserError:
    return fail(
        "BUN002",
        f"the bundle's {what} cannot be used",
        place=place,
        found=found,
        expected=expected,
        hint="Compile the network again.",
    )


def _shorten(text: str) -> str:
    return text if len(text) <= 300 else text[:300] + "..."


def _explain(error: BaseException, _: object) -> str:
    return str(error) or type(error).__name__


def _plain_value(_: object, field: attrs.Attribute[Any] | None, value: Any) -> Any:
    """Convert NumPy numbers to Python numbers, and integer scales to float."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if field is not None and field.name == "scale" and value is not None:
        return float(value)
    return value


@cache
def _converter() -> Converter:
    return make_strict_converter()


def make_strict_converter() -> Converter:
    """Return a cattrs converter that raises an error instead of converting types."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True)

    def structure_optional(value: Any, kind: Any) -> Any:
        return None if value is None else converter.structure(value, get_args(kind)[0])

    def structure_tuple(value: Any, kind: Any) -> tuple[Any, ...]:
        items = _require(value, list, "a list")
        return tuple(converter.structure(item, get_args(kind)[0]) for item in items)

    def structure_mapping(value: Any, kind: Any) -> dict[str, Any]:
        items, item_kind = _require(value, dict, "an object").items(), get_args(kind)[1]
        return {
            key: _lists_as_tuples(item)
            if item_kind is Any
            else converter.structure(item, item_kind)
            for key, item in items
        }

    def structure_limited(value: Any, kind: Any) -> Any:
        """Limit the value of a number, or the length of a list or object."""
        limit = kind.__metadata__[0]
        if isinstance(value, list | dict):
            _check_limit(limit, len(value))
        found = converter.structure(value, kind.__origin__)
        if isinstance(found, int):
            _check_limit(limit, found)
        if limit is ATTRIBUTES:
            _check_attributes(found.values())
        return found

    real = "a floating-point number"
    converter.register_structure_hook(float, lambda value, _: _require(value, float, real))
    converter.register_structure_hook(str, lambda value, _: _require(value, str, "text"))
    converter.register_structure_hook(int, _structure_integer)
    converter.register_structure_hook(bool, lambda value, _: _require(value, bool, "a boolean"))
    converter.register_structure_hook(bytes, _structure_bytes)
    converter.register_structure_hook_func(_is_limited, structure_limited)
    for origins, function in (
        ((Mapping,), structure_mapping),
        ((types.UnionType, Union), structure_optional),
        ((tuple,), structure_tuple),
        ((Literal,), _structure_literal),
    ):
        converter.register_structure_hook_func(partial(_has_origin, origins), function)
    return converter


def _has_origin(origins: tuple[Any, ...], kind: Any) -> bool:
    return get_origin(kind) in origins


def _is_limited(kind: Any) -> bool:
    return get_origin(kind) is Annotated and isinstance(kind.__metadata__[0], Limit)


def _require(value: Any, kind: type, name: str) -> Any:
    """Return a value of exactly this type; raise TypeError for another one."""
    if type(value) is not kind:
        raise TypeError(f"{_shorten(repr(value))} is not {name}")
    return value


def _structure_integer(value: Any, _: object) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise TypeError(f"{_shorten(repr(value))} is not a 64-bit integer")
    return value


def _structure_bytes(value: Any, _: object) -> bytes:
    """Return the bytes of hexadecimal digits."""
    return bytes.fromhex(_require(value, str, "text"))


def _check_limit(limit: Limit, value: int) -> None:
    if problem := limit.find_problem(value):
        raise ValueError(problem)


def _check_attributes(values: Iterable[Any]) -> None:
    """Check the numbers in the attributes of a host operation."""
    for value in values:
        if isinstance(value, tuple | dict):
            _check_limit(ATTRIBUTE_ITEMS, len(value))
            _check_attributes(value.values() if isinstance(value, dict) else value)
        elif isinstance(value, int):
            _check_limit(ATTRIBUTE_NUMBER, value)


def _lists_as_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_lists_as_tuples, value))
    if isinstance(value, dict):
        return {key: _lists_as_tuples(item) for key, item in value.items()}
    return value


def _structure_literal(value: Any, kind: Any) -> Any:
    if value not in get_args(kind):
        expected = ", ".join(map(str, get_args(kind)))
        raise TypeError(f"{_shorten(repr(value))} is not one of {expected}")
    return value
