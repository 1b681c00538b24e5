"""Reader of the tables of operators: a row names the function that lowers its operator."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import attrs

Row = TypeVar("Row")


def read_operators(path: Path, row_type: type[Row]) -> dict[str, Row]:
    """Read the rows of a TOML file and return the rows by operator name.

    Parameters
    ----------
    path : Path
        File with groups of rows. ``defaults`` of a group are the fields that its rows leave out. A
        key may contain several operators.
    row_type : type
        ``attrs`` class of a row.
    """
    groups = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        name: make_row(row_type, group.get("defaults", {}) | row)
        for group in groups.values()
        for names, row in group.items()
        if names != "defaults"
        for name in names.split()
    }


def make_row(row_type: type[Row], values: Mapping[str, Any]) -> Row:
    """Make a row of an operator table; import the function that the first field names.

    Values that are not fields of the row are bound as arguments of this function.
    """
    fields: Any = attrs.fields_dict(row_type)  # type: ignore[arg-type]
    first = next(iter(fields))
    module, _, name = values[first].rpartition(".")
    function = getattr(import_module(f"nmpsim.frontends.{module}"), name)
    arguments = {key: value for key, value in values.items() if key not in fields}
    given = {key: value for key, value in values.items() if key in fields}
    return row_type(**given | {first: partial(function, **arguments) if arguments else function})
