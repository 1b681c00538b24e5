"""Table of TFLite operators with their lowering and the requirements of their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.nodes import Kind, Limits
from nmpsim.frontends.graph.operation import (
    GraphLowering,
    LoweringResult,
    OperatorFunction,
    bind_attributes,
)
from nmpsim.frontends.graph.operators import read_operators
from nmpsim.frontends.imported_model import require
from nmpsim.lir.printer import format_type

_QUANTIZED_TYPES = ("int8", "uint8", "int16")
_PLAIN_TYPES = ("float32", "int32", "int64", "bool")
_FUSED_ACTIVATIONS: tuple[Limits | None, ...] = (None, (0.0, None), (-1.0, 1.0), (0.0, 6.0))
"""Bounds of fused activations by their number in the schema."""


@attrs.frozen
class OperatorRow:
    """Row of the operator table: a TFLite operator's lowering, and requirements of its tensors."""

    lower: OperatorFunction
    inputs: Sequence[int] = (0,)
    """Positions of the inputs that are not parameters; empty: all inputs."""
    is_quantized: bool = True
    """Whether these inputs must be quantized."""
    has_equal_types: bool = False
    """Whether these inputs and the results must have equal element types."""
    has_equal_scales: bool = False
    """Whether these inputs and the results must have equal scales and zero points."""
    activation: int = 0
    """Number of the activation in the schema, for operators without an option for it."""


OPERATORS = read_operators(Path(__file__).with_name("operators.toml"), OperatorRow)
"""Operator name in the schema -> row."""


def lower_operator(op: GraphLowering) -> LoweringResult:
    """Check the tensors of a TFLite operator against its row, and lower the operator."""
    row = OPERATORS[op.kind]
    if row.inputs:
        op.names = tuple(op.node.get_input(index) for index in row.inputs)
    sources = [_check_kind(op, name, row.is_quantized) for name in op.names]
    results = [_check_kind(op, name) for name in op.node.outputs]
    op.sources = tuple(one for one in sources if row.is_quantized and not isinstance(one, str))
    op.result = results[0]
    kinds = [*sources, *results]
    if row.has_equal_types:
        dtypes = [kind if isinstance(kind, str) else kind.dtype for kind in kinds]
        found = f"inputs and results of {', '.join(dtypes)}"
        require(len(set(dtypes)) == 1, found, "inputs and results of one type")
    if row.has_equal_scales:
        types = [format_type(op.make_tensor_type(kind, ())) for kind in kinds]
        found = f"inputs and results of {', '.join(types)}"
        require(len(set(types)) == 1, found, "inputs and results with equal scales and zero points")
    number = op.node.attributes.get("fused_activation_function", row.activation)
    require(
        0 <= number < len(_FUSED_ACTIVATIONS),
        f"fused activation number {number}",
        "fused activation number 0 (NONE), 1 (RELU), 2 (RELU_N1_TO_1) or 3 (RELU6)",
    )
    op.limits = _FUSED_ACTIVATIONS[number]
    return row.lower(op, **bind_attributes(row.lower, op.node.attributes))


def _check_kind(op: GraphLowering, name: str, is_quantized: bool = False) -> Kind:
    """Return the kind of a tensor; raise UnsupportedError if it is not supported."""
    require(name, "an omitted input", "all inputs that the operator requires")
    kind = op.graph.declarations[name].kind
    if isinstance(kind, str):
        missing = " without a scale" if kind in _QUANTIZED_TYPES else ""
        is_plain = kind in _PLAIN_TYPES and not is_quantized
        expected = f"type {list_alternatives(_QUANTIZED_TYPES)} with a scale"
        if not is_quantized:
            expected = f"type {list_alternatives(_PLAIN_TYPES)}, or {expected}"
        require(is_plain, f"{name} of type {kind}{missing}", expected)
    elif not op.is_constant(name):
        is_known = kind.dtype in (*_QUANTIZED_TYPES, *_PLAIN_TYPES)
        found = f"{name} of type {kind.dtype} with a scale"
        require(is_known, found, f"type {list_alternatives(_QUANTIZED_TYPES)} with a scale")
        require(kind.scales.size == 1, f"{kind.scales.size} scales of {name}", "one scale")
    return kind
