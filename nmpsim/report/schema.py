"""JSON Schemas (draft 2020-12) and Markdown tables of documents, made from their definitions.

``python -m nmpsim.report.schema docs/report.md`` prints the page with its tables filled in: a table
with the head ``| field | meaning |``, in a section named as an object of the report, lists the
fields of the definition.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from nmpsim.report.data import RunReport
from nmpsim.report.fields import (
    AS_LISTS,
    BY_NAME,
    MAY_BE_SPECIAL,
    NESTED,
    OR_NULL,
    AllowedRange,
    Field,
    Finite,
    JsonType,
    get_annotations,
    is_record,
    list_fields,
    strip_annotations,
)

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_HEAD = "| field | meaning |\n| --- | --- |\n"
_SECTION = re.compile(r"^## .*?(?=^## |\Z)", re.M | re.S)
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)*")
_LIMITS = {
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def make_report_schema() -> dict[str, Any]:
    """Return the JSON Schema of the report of a run."""
    return make_document_schema(RunReport, "Report of one run of nmpsim")


def make_document_schema(definition: Any, title: str) -> dict[str, Any]:
    """Return the JSON Schema of a document that a record class or type defines."""
    defs: dict[str, Any] = {}
    whole = _object(definition, defs) if is_record(definition) else _type_schema(definition, defs)
    names = [one.get("properties", {}).get("schema", {}) for one in (whole, *defs.values())]
    name = next((one["const"] for one in names if "const" in one), None)
    return {
        "$schema": _DRAFT,
        **({} if name is None else {"$id": name}),
        "title": title,
        **whole,
        **({"$defs": dict(sorted(defs.items()))} if defs else {}),
    }


def get_object_name(definition: type) -> str:
    """Return the schema name of a record class, such as ``float_weight`` for ``FloatWeight``."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", definition.__name__).lower()
    return name.removesuffix("_report").removesuffix("_document")


def _object(definition: type, defs: dict[str, Any]) -> dict[str, Any]:
    fields = list_fields(definition)
    return {
        "type": "object",
        "properties": {field.key: _property(field, defs) for field in fields},
        "required": [field.key for field in fields if field.is_required],
        "additionalProperties": False,
    }


def _property(field: Field, defs: dict[str, Any]) -> dict[str, Any]:
    schema = _type_schema(field.kind, defs)
    if field.description:
        schema = {**schema, "description": _LINK.sub(r"\1", field.description)}
    return schema


def _type_schema(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of values of a type, and add its records to ``defs``."""
    annotations = get_annotations(kind)
    like = next((one.kind for one in annotations if isinstance(one, JsonType)), None)
    if like is not None:
        return _type_schema(like, defs)
    if NESTED in annotations:
        special = {"enum": ["NaN", "Infinity", "-Infinity"]}
        nested = {"$ref": "#/$defs/values"}
        parts = [
            {"type": "array", "items": nested},
            {"type": "boolean"},
            _type_schema(Finite, defs),
            special,
        ]
        defs["values"] = {"anyOf": parts, "description": "lists nested as the shape says"}
        return nested
    if MAY_BE_SPECIAL in annotations:
        return {"anyOf": [_type_schema(Finite, defs), {"enum": ["NaN", "Infinity", "-Infinity"]}]}
    kind = strip_annotations(kind)
    if OR_NULL in annotations:
        kind |= None
    if BY_NAME in annotations:
        return {"type": "object", "additionalProperties": _type_schema(get_args(kind)[0], defs)}
    if AS_LISTS in annotations:
        fields = list_fields(get_args(kind)[0])
        return {"type": "array", "items": _row([_type_schema(one.kind, defs) for one in fields])}
    schema = _plain(kind, defs)
    for one in annotations:
        if isinstance(one, AllowedRange):
            low, high = _LIMITS[schema["type"]]
            schema |= {low: one.low, high: one.high}
    return schema


def _plain(kind: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type without annotations."""
    origin, args = get_origin(kind), get_args(kind)
    if is_record(kind):
        name = get_object_name(kind)
        if name not in defs:
            defs[name] = {}  # it may be recursive
            defs[name] = _object(kind, defs)
        return {"$ref": f"#/$defs/{name}"}
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if origin in (Union, types.UnionType):
        parts = [_type_schema(one, defs) for one in args]
        null = {"type": "null"}
        first, *rest = parts
        if rest == [null] and "type" in first:
            return {**first, "type": [first["type"], "null"]}
        return {"anyOf": parts}
    if origin in (tuple, list, Sequence):
        if origin is tuple and args[-1] is not Ellipsis:
            return _row([_type_schema(one, defs) for one in args])
        return {"type": "array", "items": _type_schema(args[0], defs)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _type_schema(args[1], defs)}
    raise TypeError(f"no schema for values of {kind}")


def _row(items: list[dict[str, Any]]) -> dict[str, Any]:
    size = len(items)
    return {"type": "array", "prefixItems": items, "minItems": size, "maxItems": size}


def fill_tables(page: str) -> str:
    """Return a Markdown page with its tables of report fields filled from the record classes."""
    titles = {f"`{get_object_name(one)}`": one for one in _records(RunReport)}
    titles["The run"] = RunReport

    def section(found: re.Match[str]) -> str:
        definition = titles.get(found[0].splitlines()[0].removeprefix("## "))
        return (
            found[0]
            if definition is None
            else _TABLE.sub(lambda _: make_field_table(definition), found[0])
        )

    return _SECTION.sub(section, page)


def make_field_table(definition: type) -> str:
    """Return a Markdown table with the key and meaning of each field of a record class."""
    rows = [f"| `{field.key}` | {field.description} |\n" for field in list_fields(definition)]
    return _HEAD + "".join(rows)


def _records(kind: Any) -> Iterator[type]:
    """Yield the records in values of a type, recursively."""
    if is_record(strip_annotations(kind)):
        yield strip_annotations(kind)
        for field in list_fields(strip_annotations(kind)):
            yield from _records(field.kind)
    for one in get_args(strip_annotations(kind)):
        yield from _records(one)


def main() -> None:
    """Print the Markdown page ``sys.argv[1]`` with its tables of report fields updated."""
    sys.stdout.write(fill_tables(Path(sys.argv[1]).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
