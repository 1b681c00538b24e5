"""Nodes that make integers of real numbers, and real numbers of integers."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import PLAIN, Lowering, Result
from nmpsim.frontends.graph.movement import identity, kind_of
from nmpsim.frontends.graph.real import REAL, real, spread
from nmpsim.frontends.graph.steps import (
    DTYPES,
    Array,
    Node,
    Quantized,
    Shape,
    plain_integers,
    quantized,
)
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType


def quantize(graph: Lowering, node: Node) -> Result:
    """Real numbers to integers."""
    name, result = node.inputs[0], node.outputs[0]
    made = quantized(graph.constants, result, node.input(1), node.input(2))
    made = attrs.evolve(made, dtype=made.dtype or "uint8")
    layout = graph.layout(name)
    value = real(graph, name, layout)
    if made.dtype not in ("int8", "uint8", "int16", "uint16"):
        raise UnsupportedError(f"a result of {made.dtype}")
    if made.scales.size > 1:
        return _quantize_along(graph, node, made)
    graph.add("quantize", result, (graph.target(result, graph.shape(name), made, layout), value))
    return Result()


def dequantize(graph: Lowering, node: Node) -> Result:
    """Integers to real numbers; a constant's are known."""
    name, result = node.inputs[0], node.outputs[0]
    given = quantized(graph.constants, name, node.input(1), node.input(2))
    if graph.is_constant(name):
        values = graph.constant(name)
        scales, zeros = _along(node, given, values.shape)
        graph.fold(result, (values.astype(np.int64) - zeros).astype(np.float32) * scales)
        return Result("a constant")
    if given.scales.size > 1:
        return _dequantize_along(graph, node, given)
    layout = graph.layout(name)
    value = graph.value(name, layout, given)
    if value.type.quant is None:
        raise UnsupportedError(f"{name} is {value.type.elem}")
    graph.add("dequantize", result, (graph.target(result, graph.shape(name), REAL, layout), value))
    return Result()


def _along(node: Node, given: Quantized, shape: Shape) -> tuple[Array, Array]:
    """Scales and zero points, shaped so that they meet their dimension."""
    scales, zeros = given.scales, given.zero_points
    if scales.size == 1:
        return scales.reshape(()), zeros.reshape(())
    axis = int(node.attributes.get("axis", 1)) % max(len(shape), 1)
    if not shape or shape[axis] != scales.size or node.attributes.get("block_size"):
        raise UnsupportedError(f"{scales.size} scales for {list(shape)}")
    ends = (1,) * (len(shape) - 1 - axis)
    return scales.reshape(-1, *ends), zeros.reshape(-1, *ends)


def _quantize_along(graph: Lowering, node: Node, made: Quantized) -> Result:
    """``rint(x / scale) + zero`` with a scale for each index of a dimension."""
    result, shape = node.outputs[0], graph.shape(node.inputs[0])
    type = TensorType("float", shape)
    scales, zeros = (
        graph.real_constant(f"{result}_{what}", np.broadcast_to(one, shape).astype(np.float32))
        for what, one in zip(("scales", "zeros"), _along(node, made, shape), strict=True)
    )
    steps, rounded, placed = (
        graph.temporary(f"{result}_{what}", type) for what in ("steps", "rounded", "placed")
    )
    graph.add("elementdiv", result, (steps, real(graph, node.inputs[0], PLAIN), scales))
    graph.add("elementround", result, (rounded, steps))
    graph.add("elementadd", result, (placed, rounded, zeros))
    target = graph.target(result, shape, plain_integers(result, made.dtype))
    graph.add("quantize", result, (target, placed))
    return Result()


def _dequantize_along(graph: Lowering, node: Node, given: Quantized) -> Result:
    """``(x - zero) * scale`` with a scale for each index of a dimension."""
    name, result = node.inputs[0], node.outputs[0]
    shape = graph.shape(name)
    kind = graph.parameters(name)
    if kind is None:
        raise UnsupportedError(f"{name} has {given.scales.size} scales")
    scales, zeros = (
        graph.real_constant(f"{result}_{what}", np.broadcast_to(one, shape).astype(np.float32))
        for what, one in zip(("scales", "zeros"), _along(node, given, shape), strict=True)
    )
    type = TensorType("float", shape)
    whole, centred = (graph.temporary(f"{result}_{what}", type) for what in ("whole", "centred"))
    value = graph.value(name, PLAIN, plain_integers(name, kind.dtype))
    graph.add("dequantize", result, (whole, value))
    graph.add("elementsub", result, (centred, whole, zeros))
    graph.add("elementmul", result, (graph.target(result, shape, REAL), centred, scales))
    return Result()


def quantize_dynamically(graph: Lowering, node: Node) -> Result:
    """``DynamicQuantizeLinear``: scale and zero point are those of the values.

    The scale is (largest - smallest) / 255 with 0 between them, or 1 where all are 0; the zero
    point is ``rint(0 - smallest / scale)``. Integers of a scale that is not known stand for
    themselves.
    """
    name, (result, scale_name, zero_name) = node.inputs[0], node.outputs
    shape, one = graph.shape(name), TensorType("float", (1,))
    count = math.prod(shape)
    flat = TensorType("float", (count,))
    integers = [graph.parameters(each) for each in (result, zero_name)]
    if integers[0] is None or integers[1] is None:
        raise UnsupportedError("outputs that are left out")

    def make(opcode: str, type: TensorType, *operands: Value, **given: Any) -> Value:
        target = graph.temporary(f"{result}_{opcode}", type)
        graph.add(opcode, result, (target, *operands), **given)
        return target

    def number(value: float) -> Value:
        return graph.real_constant(f"{result}_number", np.array([value], np.float32))

    x = graph.view(real(graph, name, PLAIN), (count,))
    low, high = (
        make(pair, one, graph.view(make(reduce, TensorType("float", ()), x, Axes=(0,)), (1,)), zero)
        for pair, reduce, zero in (
            ("elementmin", "batchedreducemin", number(0)),
            ("elementmax", "batchedreducemax", number(0)),
        )
    )
    span = make("elementsub", one, high, low)
    nothing = make("elementcmpeq", TensorType("bool", (1,)), span, number(0))
    steps = make("elementdiv", one, span, number(255))
    scale = graph.view(graph.target(scale_name, (), REAL), (1,))
    graph.add("elementselect", scale_name, (scale, nothing, number(1), steps))
    zero = make("elementsub", one, number(0), make("elementdiv", one, low, scale))
    zero = make("elementround", one, zero)
    held = graph.view(graph.target(zero_name, (), integers[1]), (1,))
    graph.add("quantize", zero_name, (held, zero))
    rounded = make(
        "elementround", flat, make("elementdiv", flat, x, spread(graph, result, scale, (count,)))
    )
    placed = make("elementadd", flat, rounded, spread(graph, result, zero, (count,)))
    graph.add(
        "quantize", result, (graph.view(graph.target(result, shape, integers[0]), (count,)), placed)
    )
    return Result()


def cast(graph: Lowering, node: Node) -> Result:
    """Between real numbers, whole numbers and truth; 8-bit integers to any of these."""
    return _cast(graph, node, DTYPES.get(int(node.attributes.get("to", 0)), ""))


def cast_like(graph: Lowering, node: Node) -> Result:
    """To the type of another tensor."""
    name, like = node.inputs[0], node.input(1)
    if graph.is_constant(like):
        dtype = str(graph.constant(like).dtype)
    else:
        kind = kind_of(graph, like, graph.value(like, graph.layout(like)))
        dtype = kind if isinstance(kind, str) else kind.dtype
    if graph.is_constant(name):
        graph.fold(node.outputs[0], graph.constant(name).astype(dtype))
        return Result("a constant")
    own = kind_of(graph, name, graph.value(name, graph.layout(name)))
    return identity(graph, node) if own == dtype else _cast(graph, node, dtype)


def _cast(graph: Lowering, node: Node, dtype: str) -> Result:
    name, result = node.inputs[0], node.outputs[0]
    kind, layout, shape = graph.parameters(name), graph.layout(name), graph.shape(name)
    wanted = None if kind is None else plain_integers(name, kind.dtype)
    value = graph.value(name, layout, wanted)
    if value.type.quant is not None:
        whole = value
        value = graph.temporary(f"{result}_whole", TensorType("float", whole.shape))
        if dtype == REAL:
            value = graph.target(result, shape, REAL, layout)
        graph.add("dequantize", result, (value, whole))
        if dtype == REAL:
            return Result()
    if dtype not in ("float32", "float16", "int32", "int64", "bool"):
        raise UnsupportedError(f"a result of {dtype or node.attributes.get('to')}")
    target = graph.target(result, shape, dtype, layout)
    graph.add("convertto", result, (target, value))
    return Result()
