"""Table of the operators that can be lowered, named as in ONNX, and the reader of such tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import attrs

from nmpsim.frontends.graph.operation import OperatorFunction

# Reader of the tables of operators: a row names the function that lowers its operator.

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


@attrs.frozen
class IntegerForm:
    """Integer form of an operator: its lowering on quantized tensors, and when to use it."""

    lower: OperatorFunction
    inputs: int = 1
    """Number of quantized inputs without a bias; 0: any number, or not between conversions."""
    is_island: bool = False
    """Whether ONNX Runtime computes it in float32 even between integers."""
    has_16_bits: bool = True
    takes_limits: bool = False
    """Whether it clips by the bounds of a fused clip."""
    is_weighted: bool = False
    """Whether its second input is weights, whose type may differ."""
    qlinear: str = ""
    """Operator of the QOperator format with this form."""


def _make_integer_form(values: Mapping[str, Any] | None) -> IntegerForm | None:
    return None if values is None else make_row(IntegerForm, values)


@attrs.frozen
class GraphOperator:
    """Operator that can be lowered, with its functions for float and quantized tensors."""

    lower: OperatorFunction
    """Lowering on floats, or on elements of any type."""
    moves: str = ""
    """``commutes``, ``between`` or ``keeps``, as explained in the table; empty if it computes."""
    integers: IntegerForm | None = attrs.field(default=None, converter=_make_integer_form)


OPERATORS = read_operators(Path(__file__).with_name("operators.toml"), GraphOperator)
"""Operator -> row."""
INTEGER_FORMS = {op: row.integers for op, row in OPERATORS.items() if row.integers}
"""Operator with a lowering on quantized tensors -> that lowering."""
