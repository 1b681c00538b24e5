"""Conversion of a TFLite model to a graph with one node for each operator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nmpsim.frontends.graph.nodes import (
    OPSET,
    Graph,
    GraphInput,
    GraphState,
    Kind,
    Node,
    QuantizedTensor,
    TensorDeclaration,
)
from nmpsim.frontends.tflite.model_data import TFLiteModel, TFLiteOperator, TFLiteTensor
from nmpsim.lir.names import UniqueNames

_PADDINGS = {0: "SAME", 1: "VALID"}
_WINDOW_ATTRIBUTES = {
    "strides": ("stride_h", "stride_w"),
    "dilations": ("dilation_h_factor", "dilation_w_factor"),
    "kernel_shape": ("filter_height", "filter_width"),
}
"""ONNX attribute for rows and columns -> options of TFLite."""


def build_graph(model: TFLiteModel) -> tuple[Graph, dict[int, str]]:
    """Convert a TFLite model to a graph; return the graph and tensor names by index.

    Operators have the names of the schema. Their attributes are the options as snake case, and
    ``strides``, ``dilations``, ``kernel_shape`` and ``auto_pad`` as in ONNX.
    """
    unique = UniqueNames()
    ordered = sorted(model.tensors, key=lambda tensor: tensor.values is not None)
    names: dict[int, str] = {}
    for state in model.states:
        names[state.tensor.index] = unique.make_unique(state.name)
    for tensor in (*model.inputs, *model.outputs, *ordered):
        if tensor.index not in names:
            names[tensor.index] = unique.make_unique(tensor.name)
    kinds = {names[one.index]: (_kind(one, names[one.index]), one.shape) for one in model.tensors}
    graph = Graph(
        tuple(_node(operator, names) for operator in model.operators),
        {names[one.index]: one.values for one in model.tensors if one.values is not None},
        tuple(
            GraphInput(names[one.index], one.dtype, one.shape)
            for one in (*model.inputs, *(state.tensor for state in model.states))
        ),
        tuple(names[one.index] for one in model.outputs),
        OPSET,
        quantization={
            name: kind for name, (kind, _) in kinds.items() if isinstance(kind, QuantizedTensor)
        },
        declarations={name: TensorDeclaration(*one) for name, one in kinds.items()},
        states=tuple(
            GraphState(
                names[one.tensor.index], names[one.value.index], one.initial, one.assignment.index
            )
            for one in model.states
        ),
        channels_last=True,
    )
    return graph, names


def _kind(tensor: TFLiteTensor, name: str) -> Kind:
    if not tensor.is_quantized:
        return tensor.dtype
    return QuantizedTensor(name, tensor.dtype, tensor.scales, tensor.zero_points, tensor.axis)


def _node(operator: TFLiteOperator, names: dict[int, str]) -> Node:
    inputs = tuple("" if one is None else names[one.index] for one in operator.inputs)
    outputs = tuple(names[one.index] for one in operator.outputs)
    return Node(operator.index, operator.name, inputs, outputs, _attributes(operator))


def _attributes(operator: TFLiteOperator) -> dict[str, Any]:
    """Return options in snake case, and the attributes of windows as in ONNX."""
    found = to_snake_case(operator.options)
    for name, (rows, columns) in _WINDOW_ATTRIBUTES.items():
        if rows in found:
            found[name] = (found[rows], found[columns])
    if "padding" in found:
        found["auto_pad"] = _PADDINGS.get(found["padding"], str(found["padding"]))
    return found


def to_snake_case(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with their names in snake case."""
    return {re.sub("(?<!^)(?=[A-Z])", "_", name).lower(): value for name, value in options.items()}
