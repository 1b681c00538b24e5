"""Operators with scales among their inputs, such as QLinearConv; quantization of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from nmpsim.frontends.graph.nodes import (
    INTEGER_RANGES,
    Constants,
    Graph,
    IntegerOperation,
    Node,
    QuantizedTensor,
    read_quantization,
    unit_quantization,
)
from nmpsim.frontends.imported_model import UnsupportedError, require

_KIND_PRESERVING = (
    *("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice"),
    *("Flatten", "Expand", "Gather", "Resize", "Tile", "Split", "Concat", "Identity", "Dropout"),
    *("DepthToSpace", "GlobalMaxPool", "Pad", "SpaceToDepth", "Upsample"),
)
"""Operators whose results have the quantization of their first input."""


@attrs.frozen
class _Layout:
    """Positions of the inputs of an operator."""

    kind: str
    """ONNX name of the operator on floats."""
    sources: int
    """Number of sources; each is tensor, scale, zero point, from the first input on."""
    bias: int | None = None
    result: int | None = None
    """Position of the result's scale, if it does not follow the sources."""


_LAYOUTS = {
    "QLinearConv": _Layout("Conv", 2, bias=8),
    "QLinearMatMul": _Layout("MatMul", 2),
    "com.microsoft.QGemm": _Layout("Gemm", 2, bias=6, result=7),
    "com.microsoft.QLinearAdd": _Layout("Add", 2),
    "com.microsoft.QLinearAveragePool": _Layout("AveragePool", 1),
    "com.microsoft.QLinearGlobalAveragePool": _Layout("GlobalAveragePool", 1),
    "com.microsoft.QLinearLeakyRelu": _Layout("LeakyRelu", 1),
    "com.microsoft.QLinearMul": _Layout("Mul", 2),
    "com.microsoft.QLinearSigmoid": _Layout("Sigmoid", 1),
    "com.microsoft.QLinearSoftmax": _Layout("Softmax", 1),
}
_CONCAT = "com.microsoft.QLinearConcat"
QLINEAR_OPERATORS = frozenset((*_LAYOUTS, _CONCAT))


def as_integer_operation(node: Node, constants: Constants) -> Node:
    """Return a QLinear operator as an integer operation; QGemm with a float result is unchanged.

    Raises
    ------
    UnsupportedError
        If a scale or zero point is not a valid constant.
    """
    if node.op == _CONCAT:
        count = len(node.inputs)
        require(count > 4 and count % 3 == 2, f"{count} inputs")
        kind, bias, first, at, sources_end = "Concat", "", 2, 0, count
    else:
        layout = _LAYOUTS[node.op]
        kind, first, sources_end = layout.kind, 0, 3 * layout.sources
        bias = "" if layout.bias is None else node.input(layout.bias)
        at = sources_end if layout.result is None else layout.result
        if layout.result is not None and not node.input(at):
            return node
    sources = tuple(
        read_quantization(constants, *(node.input(i + j) for j in range(3)))
        for i in range(first, sources_end, 3)
    )
    result = read_quantization(constants, node.outputs[0], node.input(at), node.input(at + 1))
    result = attrs.evolve(result, dtype=result.dtype or sources[0].dtype)
    return attrs.evolve(node, integers=IntegerOperation(kind, sources, result, bias))


def infer_quantization(graph: Graph, steps: Sequence[Node]) -> dict[str, QuantizedTensor]:
    """Return the quantization of all integer tensors of a graph.

    It is that with which a tensor is written, otherwise that with which it is read; operators that
    only move elements preserve it.
    """
    known: dict[str, QuantizedTensor] = {}
    for step in steps:
        if step.integers:
            known.setdefault(step.results[0], step.integers.result)
        elif step.op == "QuantizeLinear":
            _add_conversion(known, step.outputs[0], step, graph.constants, "uint8")
        elif step.op == "DynamicQuantizeLinear":
            known |= {name: unit_quantization(name, "uint8") for name in step.results}
    for step in reversed(steps):
        if step.integers:
            for source in step.integers.sources:
                if source.scales.size == 1:
                    known.setdefault(source.name, source)
        elif step.op == "DequantizeLinear":
            _add_conversion(known, step.inputs[0], step, graph.constants, "")
        elif step.op in _KIND_PRESERVING and step.outputs[0] in known:
            known.setdefault(step.inputs[0], known[step.outputs[0]])
    for one in graph.inputs:
        if one.dtype in INTEGER_RANGES and one.dtype != "int32":
            known.setdefault(one.name, unit_quantization(one.name, one.dtype))
    for step in steps:
        if not step.integers and step.op in _KIND_PRESERVING and step.inputs[0] in known:
            for name in step.outputs:
                known.setdefault(name, known[step.inputs[0]])
    types = {one.name: one.dtype for one in graph.inputs}
    types |= {name: str(values.dtype) for name, values in graph.constants.items()}
    return {
        name: attrs.evolve(one, dtype=one.dtype or types.get(name, "uint8"))
        for name, one in known.items()
    }


def _add_conversion(
    known: dict[str, QuantizedTensor], name: str, node: Node, constants: Constants, dtype: str
) -> None:
    """Add what a conversion says of the tensor on its integer side, if that is valid."""
    if name in known:
        return
    try:
        found = read_quantization(constants, name, node.input(1), node.input(2))
    except UnsupportedError:
        return
    dtype = found.dtype or dtype
    is_single = found.scales.size == 1
    known[name] = attrs.evolve(found, dtype=dtype) if is_single else unit_quantization(name, dtype)
