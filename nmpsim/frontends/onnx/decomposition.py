"""Operators that become several operators of the graph, or operators on integers (QOperator)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.nodes import (
    Constants,
    Graph,
    IntegerOperation,
    Node,
    NodeBuilder,
    get_constant_values,
    read_quantization,
)
from nmpsim.frontends.graph.operators import INTEGER_FORMS
from nmpsim.frontends.graph.problems import UnsupportedOperators
from nmpsim.frontends.imported_model import require

_TANH_FACTOR = 0.044715
"""Factor of the cube in the approximation of Gelu with a hyperbolic tangent."""


def decompose_operators(graph: Graph, problems: UnsupportedOperators) -> Graph:
    """Replace the operators of DECOMPOSED by their nodes; return the new graph.

    ``problems`` receives operators whose parameters are not constants.
    """
    if not any(node.op in DECOMPOSED for node in graph.nodes):
        return graph
    builder = NodeBuilder(dict(graph.constants))
    for node in graph.nodes:
        if node.op not in DECOMPOSED:
            builder.nodes.append(node)
            continue
        builder.begin_operator(node.index, node.label, node.outputs[0])
        result = ""
        with problems.collect_errors(node.index, node.label):
            result = DECOMPOSED[node.op](builder, node)
        if result:
            builder.append_node("Identity", [result], node.outputs[0])
        else:
            builder.nodes.append(node)
    return attrs.evolve(
        graph,
        nodes=tuple(builder.nodes),
        constants=builder.constants,
        layers={**graph.layers, **builder.layers},
    )


def _add_gelu(b: NodeBuilder, node: Node) -> str:
    """Add ``x (1 + erf(x / sqrt(2))) / 2``."""
    error = b.add("Erf", b.add("Mul", node.inputs[0], b.add_number(1 / math.sqrt(2))))
    return _add_gate(b, node.inputs[0], error)


def _add_fast_gelu(b: NodeBuilder, node: Node) -> str:
    """Add ``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`` of an input with a bias."""
    x = node.inputs[0]
    if node.get_input(1):
        x = b.add("Add", x, node.inputs[1])
    cube = b.add("Mul", b.add("Mul", x, x), b.add("Mul", x, b.add_number(_TANH_FACTOR)))
    inner = b.add("Mul", b.add("Add", x, cube), b.add_number(math.sqrt(2 / math.pi)))
    return _add_gate(b, x, b.add("Tanh", inner))


def _add_gate(b: NodeBuilder, x: str, gate: str) -> str:
    """Add ``x (1 + gate) / 2``."""
    half = b.add("Mul", b.add("Add", gate, b.add_number(1)), b.add_number(0.5))
    return b.add("Mul", x, half)


def _add_quick_gelu(b: NodeBuilder, node: Node) -> str:
    """Add ``x sigmoid(alpha x)``."""
    x, alpha = node.inputs[0], node.attributes.get("alpha", 1.702)
    return b.add("Mul", x, b.add("Sigmoid", b.add("Mul", x, b.add_number(alpha))))


def _make_normalization(has_mean: bool) -> Callable[[NodeBuilder, Node], str]:
    """Return the function that adds a normalization of the last dimensions.

    Without the mean, values are divided by their root mean square.
    """

    def add(b: NodeBuilder, node: Node) -> str:
        x, scale = node.inputs[:2]
        axis = node.attributes.get("axis", -1)
        dimensions = -axis if axis < 0 else get_constant_values(b.constants, scale).ndim
        axes: dict[str, Any] = {"axes": tuple(range(-dimensions, 0)), "keepdims": 1}
        centered = b.add("Sub", x, b.add("ReduceMean", x, **axes)) if has_mean else x
        variance = b.add("ReduceMean", b.add("Mul", centered, centered), **axes)
        result = b.add("Mul", _add_division(b, node, centered, variance), scale)
        return b.add("Add", result, node.inputs[2]) if node.get_input(2) else result

    return add


def _add_instance_normalization(b: NodeBuilder, node: Node) -> str:
    """Normalize each channel of each image; a batch norm applies the scales and biases."""
    x, scale, bias = node.inputs
    channels = get_constant_values(b.constants, scale).size
    centered = b.add("Sub", x, b.add("GlobalAveragePool", x))
    variance = b.add("GlobalAveragePool", b.add("Mul", centered, centered))
    result = _add_division(b, node, centered, variance)
    means, variances = (b.add_constant(np.full(channels, one, np.float32)) for one in (0, 1))
    return b.add("BatchNormalization", result, scale, bias, means, variances, epsilon=0.0)


def _add_division(b: NodeBuilder, node: Node, x: str, variance: str) -> str:
    """Add ``x / sqrt(variance + epsilon)``."""
    epsilon = b.add_number(node.attributes.get("epsilon", 1e-5))
    root = b.add("Sqrt", b.add("Add", variance, epsilon))
    return b.add("Mul", x, b.add("Reciprocal", root))


DECOMPOSED: Mapping[str, Callable[[NodeBuilder, Node], str]] = {
    "com.microsoft.FastGelu": _add_fast_gelu,
    "com.microsoft.Gelu": _add_gelu,
    "com.microsoft.QuickGelu": _add_quick_gelu,
    "InstanceNormalization": _add_instance_normalization,
    "LayerNormalization": _make_normalization(has_mean=True),
    "RMSNormalization": _make_normalization(has_mean=False),
    "SimplifiedLayerNormalization": _make_normalization(has_mean=False),
}
"""Operator -> function that adds its nodes and returns the name of their result."""


# Conversion of the operators of ONNX's QOperator format to integer operations.

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
