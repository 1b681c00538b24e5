"""Conversion of records to JSON, with the schema of :mod:`nmpsim.report.schema`.

Floats are written exactly. Infinities and NaN, which JSON lacks, become the strings ``"Infinity"``,
``"-Infinity"`` and ``"NaN"``, which Python's ``float()`` understands.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, overload

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.atomic import write_file
from nmpsim.escape import escape_json
from nmpsim.report.data import RunReport
from nmpsim.report.fields import (
    AS_LISTS,
    BY_NAME,
    NESTED,
    OR_NULL,
    Field,
    JsonType,
    Real,
    Source,
    encode_float,
    get_annotations,
    get_path_value,
    is_record,
    list_fields,
    strip_annotations,
)
from nmpsim.report.schema import make_report_schema

__all__ = ["format_json", "make_report_schema", "to_json", "write_report"]

_Encode = Callable[[Any], Any]
_Document = TypeVar("_Document")


@overload
def to_json(record: attrs.AttrsInstance) -> Any: ...
@overload
def to_json(record: Any, definition: type[_Document]) -> _Document: ...
def to_json(record: Any, definition: Any = None) -> Any:
    """Convert a record, such as a report, to plain data for ``json``.

    With the ``definition`` of a document, its fields are read from attributes or keys of the same
    name, or as ``Source`` specifies.
    """
    kind: Any = definition or type(record)
    return _encoder(kind)(record)


def write_report(report: RunReport, path: Path | str) -> None:
    """Write a report to a JSON file; raise UserError (FILE002) if the file cannot be written."""
    write_file(Path(path), format_json(to_json(report)))


def format_json(data: Any) -> str:
    """Format plain data as an indented JSON document; flat lists are on one line."""
    return escape_json(_text(data, "\n")) + "\n"


def _text(data: Any, newline: str) -> str:
    deeper = newline + "  "
    if isinstance(data, dict) and data:
        items = [f"{json.dumps(key)}: {_text(value, deeper)}" for key, value in data.items()]
        return "{" + deeper + f",{deeper}".join(items) + newline + "}"
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return "[" + deeper + f",{deeper}".join(_text(one, deeper) for one in data) + newline + "]"
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError:
        return json.dumps(_replace_special(data))


@cache
def _encoder(kind: Any) -> _Encode:
    """Return the function that converts values of a type to JSON data."""
    annotations, plain = get_annotations(kind), strip_annotations(kind)
    origin, args = get_origin(plain), get_args(plain)
    other = next((one.kind for one in annotations if isinstance(one, JsonType)), None)
    if other is not None:
        return _encoder(other)
    if NESTED in annotations:
        return _encode_array
    if BY_NAME in annotations:
        encode = _encoder(args[0])
        return lambda records: {record.name: encode(record) for record in records}
    if AS_LISTS in annotations:
        encode = _encoder(args[0])
        return lambda records: [list(encode(record).values()) for record in records]
    if OR_NULL in annotations:
        encode = _encoder(plain)
        return lambda value: (
            None
            if value == "" or (isinstance(value, float) and not math.isfinite(value))
            else encode(value)
        )
    if is_record(plain):
        return _record_encoder(plain)
    if origin in (tuple, Sequence, list):
        encode = _encoder(args[0])
        return lambda values: [encode(value) for value in values]
    if origin in (Mapping, dict):
        encode = _encoder(args[1])
        return lambda values: {name: encode(value) for name, value in values.items()}
    if len(args) == 2 and args[1] is type(None):
        encode = _encoder(args[0])
        return lambda value: None if value is None else encode(value)
    if plain is float:
        return encode_float
    if Real in args:
        return lambda value: value if isinstance(value, int) else encode_float(value)
    return int if plain is int else lambda value: value


def _record_encoder(definition: Any) -> _Encode:
    """Return the function that converts a record to an object, without empty optional fields."""
    parts = [(one, _reader(one), _encoder(one.kind)) for one in list_fields(definition)]

    def encode(record: Any) -> dict[str, Any]:
        values = [(field, read(record), encode) for field, read, encode in parts]
        return {
            field.key: encode(value)
            for field, value, encode in values
            if not field.is_omitted(value)
        }

    return encode


def _reader(field: Field) -> Callable[[Any], Any]:
    """Return the function that reads a field's value from a record."""
    kind = strip_annotations(field.kind)
    if get_origin(kind) is Literal and len(get_args(kind)) == 1:
        return lambda _: get_args(kind)[0]
    source = next(
        (one.source for one in get_annotations(field.kind) if isinstance(one, Source)),
        field.name,
    )
    return source if callable(source) else partial(get_path_value, path=source)


def _encode_array(values: Array) -> Any:
    """Return nested lists, or a number for an array without dimensions."""
    if values.dtype.kind != "f" or bool(np.isfinite(values).all()):
        return values.tolist()
    return _replace_special(values.tolist())


def _replace_special(values: Any) -> Any:
    if isinstance(values, list | tuple):
        return [_replace_special(value) for value in values]
    return encode_float(values) if isinstance(values, float) else values
