"""Conversion of the operators of ONNX's QOperator format to integer operations."""

from __future__ import annotations

import attrs

from nmpsim.frontends.graph.nodes import (
    Constants,
    IntegerOperation,
    Node,
    read_quantization,
)
from nmpsim.frontends.graph.operators import INTEGER_FORMS
from nmpsim.frontends.imported_model import require

QLINEAR_OPERATORS = {form.qlinear: op for op, form in INTEGER_FORMS.items() if form.qlinear}
"""Operator of the QOperator format -> ONNX name of the operator on floats."""
_BIAS_AND_RESULT = {"Conv": (8, 6), "Gemm": (6, 7)}
"""Operator on floats -> positions of the bias and of the result's scale."""


def convert_qlinear_node(node: Node, constants: Constants) -> Node:
    """Return a QLinear node with its integer form, or unchanged if its result is float32.

    A QGemm without a result scale, whose result is float32, is returned unchanged.

    Raises
    ------
    UnsupportedError
        If a scale or zero point is not a valid constant.
    """
    kind, count = QLINEAR_OPERATORS[node.op], len(node.inputs)
    first, end = 0, 3 * INTEGER_FORMS[kind].inputs
    bias, at = _BIAS_AND_RESULT.get(kind, (count, end))
    if kind == "Concat":
        expected = "2 inputs, then 3 inputs for each of the concatenated tensors"
        require(count > 4 and count % 3 == 2, f"{count} inputs", expected)
        first, end, at = 2, count, 0
    if kind == "Gemm" and not node.get_input(at):
        return node
    sources = tuple(
        read_quantization(node, constants, node.get_input(i), i + 1) for i in range(first, end, 3)
    )
    result = read_quantization(node, constants, node.outputs[0], at, sources[0].dtype)
    return attrs.evolve(
        node, integers=IntegerOperation(kind, sources, result, node.get_input(bias))
    )
