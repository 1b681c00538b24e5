"""Nodes that make integers of real numbers, and real numbers of integers."""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import PLAIN
from nmpsim.frontends.graph.movement import kind_of
from nmpsim.frontends.graph.nodes import (
    DTYPES,
    Array,
    Quantized,
    Shape,
    plain_integers,
    quantized,
)
from nmpsim.frontends.graph.operation import REAL, Made, Operation
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.lir.nodes import TensorType

_CONSTANT = "a constant"


def quantize(op: Operation) -> Made:
    """Real numbers to integers."""
    made = quantized(op.graph.constants, op.name, op.node.input(1), op.node.input(2))
    made = attrs.evolve(made, dtype=made.dtype or "uint8")
    value = op.read()
    if made.dtype not in ("int8", "uint8", "int16", "uint16"):
        raise UnsupportedError(f"a result of {made.dtype}")
    if made.scales.size == 1:
        return op.emit("quantize", value, kind=made)
    value = op.read(0, PLAIN)  # rint(x / scale) + zero, with a scale for each index
    scales, zeros = _parameters(op, made, op.shape())
    rounded = op.emit("elementround", op.emit("elementdiv", value, scales))
    placed = op.emit("elementadd", rounded, zeros)
    return op.emit("quantize", placed, kind=plain_integers(op.name, made.dtype))


def dequantize(op: Operation) -> Made:
    """Integers to real numbers; a constant's are known."""
    graph, name = op.graph, op.names[0]
    given = quantized(graph.constants, name, op.node.input(1), op.node.input(2))
    if graph.is_constant(name):
        values = op.values(0)
        scales, zeros = _along(op, given, values.shape)
        graph.fold(op.name, (values.astype(np.int64) - zeros).astype(np.float32) * scales)
        return _CONSTANT
    if given.scales.size == 1:
        value = op.read_any(0, None, given)
        if value.type.quant is None:
            raise UnsupportedError(f"{name} is {value.type.elem}")
        return op.emit("dequantize", value, kind=REAL)
    kind = graph.parameters(name)  # (x - zero) * scale, with a scale for each index
    if kind is None:
        raise UnsupportedError(f"{name} has {given.scales.size} scales")
    factors, offsets = _parameters(op, given, op.shape())
    value = op.read_any(0, PLAIN, plain_integers(name, kind.dtype))
    centred = op.emit("elementsub", op.emit("dequantize", value, kind=REAL), offsets)
    return op.emit("elementmul", centred, factors)


def _along(op: Operation, given: Quantized, shape: Shape) -> tuple[Array, Array]:
    """Scales and zero points, shaped so that they meet their dimension."""
    scales, zeros = given.scales, given.zero_points
    if scales.size == 1:
        return scales.reshape(()), zeros.reshape(())
    axis = op.integer("axis", 1) % max(len(shape), 1)
    if not shape or shape[axis] != scales.size or op.attributes.get("block_size"):
        raise UnsupportedError(f"{scales.size} scales for {list(shape)}")
    ends = (1,) * (len(shape) - 1 - axis)
    return scales.reshape(-1, *ends), zeros.reshape(-1, *ends)


def _parameters(op: Operation, given: Quantized, shape: Shape) -> tuple[Value, Value]:
    """The same as constants of a shape, real numbers."""
    scales, zeros = (
        op.real(what, np.broadcast_to(one, shape).astype(np.float32))
        for what, one in zip(("scales", "zeros"), _along(op, given, shape), strict=True)
    )
    return scales, zeros


def quantize_dynamically(op: Operation) -> Made:
    """``DynamicQuantizeLinear``: scale and zero point are those of the values.

    The scale is (largest - smallest) / 255 with 0 between them, or 1 where all are 0; the zero
    point is ``rint(0 - smallest / scale)``. Integers of a scale that is not known stand for
    themselves.
    """
    result, scale_name, zero_name = op.node.outputs
    shape, kinds = op.shape(), [op.graph.parameters(name) for name in (result, zero_name)]
    if kinds[0] is None or kinds[1] is None:
        raise UnsupportedError("outputs that are left out")

    def number(value: float) -> Value:
        return op.real("number", np.array([value], np.float32))

    count = math.prod(shape)
    x = op.view(op.read(0, PLAIN), (count,))
    low, high = (
        op.emit(pair, op.view(op.emit(reduce, x, shape=(), Axes=(0,)), (1,)), number(0))
        for pair, reduce in (
            ("elementmin", "batchedreducemin"),
            ("elementmax", "batchedreducemax"),
        )
    )
    span = op.emit("elementsub", high, low)
    nothing = op.emit("elementcmpeq", span, number(0), kind="bool")
    steps = op.emit("elementdiv", span, number(255))
    choice = (nothing, number(1), steps)
    scale = op.emit("elementselect", *choice, kind=REAL, name=scale_name)
    op.give(scale_name, op.view(scale, ()))
    zero = op.emit("elementsub", number(0), op.emit("elementdiv", low, scale))
    zero = op.emit("elementround", zero)
    held = op.emit("quantize", zero, kind=kinds[1], name=zero_name)
    op.give(zero_name, op.view(held, ()))
    steps = op.emit("elementdiv", x, spread(op, scale, (count,)))
    placed = op.emit("elementadd", op.emit("elementround", steps), spread(op, zero, (count,)))
    return op.view(op.emit("quantize", placed, kind=kinds[0]), shape)


def spread(op: Operation, value: Value, shape: Shape) -> Value:
    """One number in all places of a shape."""
    count = math.prod(shape)
    wide = op.room(REAL, (count,))
    op.graph.builder.add("touch", f"{op.name}_touch", (wide,))
    one = op.view(value, (1,))
    op.graph.add("inserttensor", op.name, (wide, one), Offsets=(0,), Count=count, Axis=0)
    return op.view(wide, shape)


def cast(op: Operation) -> Made:
    """Between real numbers, whole numbers and truth; 8-bit integers to any of these."""
    return _cast(op, DTYPES.get(op.integer("to"), ""))


def cast_like(op: Operation) -> Made:
    """To the type of another tensor."""
    graph, (name, like) = op.graph, (op.names[0], op.node.input(1))
    if graph.is_constant(like):
        dtype = str(graph.constant(like).dtype)
    else:
        kind = kind_of(graph, like, op.read_any(1))
        dtype = kind if isinstance(kind, str) else kind.dtype
    if graph.is_constant(name):
        graph.fold(op.name, graph.constant(name).astype(dtype))
        return _CONSTANT
    is_one = kind_of(graph, name, op.read_any()) == dtype
    return op.viewed(op.shape()) if is_one else _cast(op, dtype)


def _cast(op: Operation, dtype: str) -> Made:
    kind = op.graph.parameters(op.names[0])
    wanted = None if kind is None else plain_integers(op.names[0], kind.dtype)
    value = op.read_any(0, None, wanted)
    if value.type.quant is not None:
        value = op.emit("dequantize", value, kind=REAL)
        if dtype == REAL:
            return value
    if dtype not in ("float32", "float16", "int32", "int64", "bool"):
        raise UnsupportedError(f"a result of {dtype or op.attributes.get('to')}")
    return op.emit("convertto", value, kind=dtype)


def as_real(op: Operation, value: Value) -> Value:
    """8-bit integers as the real numbers that they stand for."""
    return op.emit("dequantize", value, kind=TensorType("float", value.shape))
