"""JSON Schemas (draft 2020-12) of documents, made from their definitions."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from nmpsim.report.data import RunReport
from nmpsim.report.fields import (
    AS_LISTS,
    BY_NAME,
    MAY_BE_SPECIAL,
    NESTED,
    As,
    Field,
    Finite,
    Range,
    bare,
    fields_of,
    is_record,
    marks,
)

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_LIMITS = {
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def report_schema() -> dict[str, Any]:
    """JSON Schema of what :func:`nmpsim.report.json.to_json` returns."""
    return document_schema(RunReport, "Report of one run of nmpsim")


def document_schema(definition: Any, title: str) -> dict[str, Any]:
    """JSON Schema of a document: a record, or another type such as a union of records."""
    defs: dict[str, Any] = {}
    whole = _object(definition, defs) if is_record(definition) else _of(definition, defs)
    names = [one.get("properties", {}).get("schema", {}) for one in (whole, *defs.values())]
    name = next((one["const"] for one in names if "const" in one), None)
    return {
        "$schema": _DRAFT,
        **({} if name is None else {"$id": name}),
        "title": title,
        **whole,
        **({"$defs": dict(sorted(defs.items()))} if defs else {}),
    }


def object_name(definition: type) -> str:
    """How schemas and pages name a record: ``float_weight`` for ``FloatWeight``."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", definition.__name__).lower()
    return name.removesuffix("_report").removesuffix("_document")


def _object(definition: type, defs: dict[str, Any]) -> dict[str, Any]:
    fields = fields_of(definition)
    return {
        "type": "object",
        "properties": {field.key: _property(field, defs) for field in fields},
        "required": [field.key for field in fields if field.is_required],
        "additionalProperties": False,
    }


def _property(field: Field, defs: dict[str, Any]) -> dict[str, Any]:
    schema = _of(field.kind, defs)
    if field.description:
        schema = {**schema, "description": _LINK.sub(r"\1", field.description)}
    return schema


def _of(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of values of a type; records that it names go to ``defs``."""
    said = marks(kind)
    like = next((one.kind for one in said if isinstance(one, As)), None)
    if like is not None:
        return _of(like, defs)
    if NESTED in said:
        return _values(defs)
    if MAY_BE_SPECIAL in said:
        return {"anyOf": [_of(Finite, defs), {"enum": ["NaN", "Infinity", "-Infinity"]}]}
    kind = bare(kind)
    if BY_NAME in said:
        return {"type": "object", "additionalProperties": _of(get_args(kind)[0], defs)}
    if AS_LISTS in said:
        fields = fields_of(get_args(kind)[0])
        return {"type": "array", "items": _row([_of(one.kind, defs) for one in fields])}
    schema = _plain(kind, defs)
    for one in said:
        if isinstance(one, Range):
            low, high = _LIMITS[schema["type"]]
            schema |= {low: one.low, high: one.high}
    return schema


def _plain(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """Of a type without annotations."""
    origin, args = get_origin(kind), get_args(kind)
    if is_record(kind):
        return _reference(kind, defs)
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return _union([_of(one, defs) for one in args])
    if origin in (tuple, list, Sequence):
        if origin is tuple and args[-1] is not Ellipsis:
            return _row([_of(one, defs) for one in args])
        return {"type": "array", "items": _of(args[0], defs)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _of(args[1], defs)}
    raise TypeError(f"no schema for values of {kind}")


def _reference(kind: type, defs: dict[str, Any]) -> dict[str, Any]:
    name = object_name(kind)
    if name not in defs:
        defs[name] = {}  # it may hold itself
        defs[name] = _object(kind, defs)
    return {"$ref": f"#/$defs/{name}"}


def _row(items: list[dict[str, Any]]) -> dict[str, Any]:
    size = len(items)
    return {"type": "array", "prefixItems": items, "minItems": size, "maxItems": size}


def _union(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Numbers and texts that may be null keep their one type list, for plainer messages."""
    null = {"type": "null"}
    first, *rest = parts
    if rest == [null] and "type" in first:
        return {**first, "type": [first["type"], "null"]}
    return {"anyOf": parts}


def _values(defs: dict[str, Any]) -> dict[str, Any]:
    special = {"enum": ["NaN", "Infinity", "-Infinity"]}
    nested = {"$ref": "#/$defs/values"}
    parts = [{"type": "array", "items": nested}, {"type": "boolean"}, _of(Finite, defs), special]
    defs["values"] = {"anyOf": parts, "description": "lists nested as the shape says"}
    return nested
