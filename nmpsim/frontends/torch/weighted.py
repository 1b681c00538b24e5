"""Layers with weights: convolutions and fully connected layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.frontends.builder import Value, quantized
from nmpsim.frontends.torch.lowering import NHWC, Lowering, Result, tensor_of, weights_of
from nmpsim.frontends.torch.record import Call, Packed
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import AttributeValue, TensorType

_NO_TABLES: tuple[Value, ...] = ()


def convolution(graph: Lowering, call: Call) -> Result:
    """``quantized::conv2d``, with the ReLU that is fused with it."""
    packed, source = weights_of(call), tensor_of(call, "qx")
    if packed.weights.ndim != 4 or len(source.shape) != 4:
        raise UnsupportedError(f"an input {list(source.shape)}")
    (top, left), (down, across) = packed.padding, packed.stride
    window: dict[str, AttributeValue] = {
        "Kernels": packed.weights.shape[2:],
        "Strides": (down, across),
        "Pads": (top, left, top, left),
        "Group": packed.groups,
        "Dilation": tuple(packed.dilation),
    }
    if call.operation.endswith("_relu"):
        window["FusedActivation"] = "RELU"
    sides = (graph.target(call, NHWC), graph.value(source, NHWC))
    filters, bias = packed.weights.transpose(0, 2, 3, 1), _bias(graph, call, packed)
    opcode, tables = "convolution", _NO_TABLES
    kind = quantized("i8", filters.shape, float(packed.scales[0]), int(packed.zero_points[0]))
    if packed.by_channel:
        opcode, kind = "channelwisequantizedconvolution", quantized("i8", filters.shape, 1.0, 0)
        ones = np.ones(len(packed.scales), np.float32)  # of a bias that is real
        tables = (
            *_vectors(graph, call, "weight", packed.scales, packed.zero_points),
            *_vectors(graph, call, "bias", ones, np.zeros(ones.size, np.int64)),
        )
    values = graph.builder.constant(f"{call.name}.weight", filters, kind)
    name = graph.add(opcode, call, (*sides, values, bias, *tables), **window)
    graph.follow(name, packed.engine)
    return Result()


def linear(graph: Lowering, call: Call) -> Result:
    """``quantized::linear``, with the ReLU that is fused with it."""
    packed, source = weights_of(call), tensor_of(call, "X")
    outs, ins = packed.weights.shape
    if not source.shape or source.shape[-1] != ins:
        raise UnsupportedError(f"weights {[outs, ins]} for an input {list(source.shape)}")
    rows = math.prod(source.shape[:-1])
    sides = (
        graph.view(graph.target(call), (rows, outs)),
        graph.view(graph.value(source), (rows, ins)),
    )
    bias, has_relu = _bias(graph, call, packed), call.operation.endswith("_relu")
    opcode, weights, tables = "fullyconnected", packed.weights.T, _NO_TABLES
    kind = quantized("i8", (ins, outs), float(packed.scales[0]), int(packed.zero_points[0]))
    if packed.by_channel:
        opcode, weights = "rowwisequantizedfullyconnected", packed.weights
        kind = quantized("i8", (outs, ins), 1.0, 0)
        tables = _vectors(graph, call, "weight", packed.scales, packed.zero_points)
    values = graph.builder.constant(f"{call.name}.weight", weights, kind)
    operands = (*sides, values, bias, *tables)
    if has_relu:
        name = graph.add_before(opcode, "sum", call, operands)
        graph.add("relu", call, (sides[0], sides[0]))
    else:
        name = graph.add(opcode, call, operands)
    graph.follow(name, packed.engine)
    return Result()


def _bias(graph: Lowering, call: Call, packed: Packed) -> Value:
    """PyTorch's stays real; what becomes of it is the engine's affair."""
    outs = packed.weights.shape[0]
    values = np.zeros(outs, np.float32) if packed.bias is None else packed.bias
    return graph.builder.constant(f"{call.name}.bias", values, TensorType("float", (outs,)))


def _vectors(
    graph: Lowering,
    call: Call,
    what: str,
    scales: npt.NDArray[np.float32],
    zeros: npt.NDArray[Any],
) -> tuple[Value, Value]:
    shape, base = scales.shape, f"{call.name}.{what}"
    return (
        graph.builder.constant(f"{base}_scales", scales, TensorType("float", shape)),
        graph.builder.constant(f"{base}_zero_points", zeros, TensorType("index32", shape)),
    )
