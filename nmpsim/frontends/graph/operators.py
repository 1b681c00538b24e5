"""Table of the operators that can be lowered, named as in ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nmpsim.frontends.graph.operation import OperatorFunction
from nmpsim.frontends.graph.operator_table import make_row, read_operators


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
