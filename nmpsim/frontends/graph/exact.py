"""Products of integers whose sums stay integers: MatMulInteger, ConvInteger, QGemm to real numbers.

The host adds them in float32, which is exact for so few products that no sum leaves 2**24; sums of
more are added as int32.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN, Layout, Lowering, Result
from nmpsim.frontends.graph.pointwise import as_image, swapped
from nmpsim.frontends.graph.products import convolve
from nmpsim.frontends.graph.real import REAL, spread
from nmpsim.frontends.graph.steps import Array, Node, plain_integers, quantized
from nmpsim.frontends.graph.windows import window_of
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType

_MOST = (1 << 24) // (255 * 255)
"""Products of differences of 8-bit integers whose sum float32 holds."""
_EIGHT_BITS = ("int8", "uint8")


def matmul_integer(graph: Lowering, node: Node) -> Result:
    """``(A - a_zero) (B - b_zero)``, int32; the right side a constant matrix, or both alike."""
    left, right = node.inputs[:2]
    shape, other = graph.shape(left), graph.shape(right)
    if min(len(shape), len(other)) < 2 or shape[-1] != other[-2]:
        raise UnsupportedError(f"{list(shape)} times {list(other)}")
    target = graph.target(node.outputs[0], (*shape[:-1], other[-1]), "int32")
    value = _centred(graph, left, node.input(2), PLAIN)
    if graph.is_constant(right) and len(other) == 2:
        rows = graph.view(value, (math.prod(shape[:-1]), shape[-1]))
        _product(graph, node, rows, _known(graph, right, node.input(3), 1), target)
        return Result()
    if shape[:-2] != other[:-2] or shape[-1] > _MOST:
        raise UnsupportedError(f"{list(shape)} times {list(other)}, both no constant")
    items = math.prod(shape[:-2])
    sides = [value, _centred(graph, right, node.input(3), PLAIN)]
    sums = graph.temporary(f"{target.name}_sum", attrs.evolve(target.type, elem="float"))
    wide = [graph.view(side, (items, *side.shape[-2:])) for side in (sums, *sides)]
    graph.add("batchmatmul", node.outputs[0], wide)
    graph.add("convertto", node.outputs[0], (target, sums))
    return Result()


def conv_integer(graph: Lowering, node: Node) -> Result:
    """Filter [O, I / group, ...], a constant; int32."""
    name, result = node.inputs[0], node.outputs[0]
    shape, filters = graph.shape(name), _known(graph, node.input(1), node.input(3), 0)
    groups = int(node.attributes.get("group", 1))
    if not 3 <= len(shape) <= 4 or filters.ndim != len(shape) or groups < 1:
        raise UnsupportedError(f"a filter {list(filters.shape)} for an input {list(shape)}")
    if filters.shape[1] * groups != shape[1] or len(filters) % groups:
        raise UnsupportedError(f"{groups} groups, a filter {list(filters.shape)}, {shape[1]}")
    taps = math.prod(filters.shape[2:])
    step = min(_MOST // taps, filters.shape[1])
    if step == 0 or (groups > 1 and step < filters.shape[1]):
        raise UnsupportedError(f"{math.prod(filters.shape[1:])} products in {groups} groups")
    value = as_image(graph, _centred(graph, name, node.input(2), LAST))
    window = window_of(node.attributes, shape[2:], filters.shape[2:])
    made = (shape[0], len(filters), *window.out[4 - len(shape) :])
    target = as_image(graph, graph.target(result, made, "int32", LAST))
    last = np.moveaxis(filters, 1, -1).reshape(len(filters), *window.kernel, -1)
    parts = []
    for first in range(0, filters.shape[1], step):
        part = value if groups > 1 else _columns(graph, result, value, first, step)
        sums = graph.temporary(f"{result}_sum", attrs.evolve(target.type, elem="float"))
        nothing = np.zeros(len(filters), np.float32)
        weights = last[..., first : first + step]
        convolve(graph, node, (sums, part), weights, nothing, window, groups)
        parts.append(sums)
    _add(graph, result, target, parts)
    return Result()


def gemm(graph: Lowering, node: Node) -> Result:
    """QGemm without a result's scale: ``float(A B + C) * (alpha * a_scale * b_scale)``."""
    result, attributes = node.outputs[0], node.attributes
    left = quantized(graph.constants, *(node.input(i) for i in range(3)))
    right = quantized(graph.constants, *(node.input(i) for i in range(3, 6)))
    by_column = 0 if attributes.get("transB") else 1
    weights = _known(graph, right.name, node.input(5), by_column)
    weights = weights.T if attributes.get("transB") else weights
    value = _centred(graph, left.name, node.input(2), PLAIN)
    if attributes.get("transA"):
        value = swapped(graph, result, value, 0)
    shape = value.shape
    if len(shape) != 2 or weights.ndim != 2 or shape[1] != weights.shape[0]:
        raise UnsupportedError(f"weights {list(weights.shape)} for an input {list(shape)}")
    made = (shape[0], weights.shape[1])
    integers = graph.temporary(f"{result}_int", TensorType("index32", made))
    bias = graph.constant(node.input(6)) if node.input(6) else np.zeros(1, np.int32)
    _product(graph, node, value, weights, integers, np.broadcast_to(bias, made))
    alpha = np.float32(attributes.get("alpha", 1.0))
    scales = np.broadcast_to(alpha * np.float32(left.scale) * right.scales, made)
    sums = graph.temporary(f"{result}_sum", TensorType("float", made))
    graph.add("convertto", result, (sums, integers))
    factor = graph.real_constant(f"{result}_scale", scales)
    graph.add("elementmul", result, (graph.target(result, made, REAL), sums, factor))
    return Result()


def _centred(graph: Lowering, name: str, zero: str, layout: Layout) -> Value:
    """8-bit integers less their zero point, which may be an activation, in float32."""
    if graph.is_constant(name):
        return graph.real_constant(f"{name}_real", _known(graph, name, zero, 0))
    kind = graph.parameters(name)
    if kind is None or kind.dtype not in _EIGHT_BITS:
        found = kind.dtype if kind else "float"
        raise UnsupportedError(f"{name} is {found}, not int8 or uint8")
    is_known = not zero or graph.is_constant(zero)
    zeros = graph.constant(zero) if zero and is_known else np.zeros(1, np.int64)
    if zeros.size != 1:
        raise UnsupportedError(f"{zeros.size} zero points of {name}")
    whole = attrs.evolve(plain_integers(name, kind.dtype), zero_points=_wide(zeros))
    value = graph.value(name, layout, whole)
    real = graph.temporary(f"{name}_real", TensorType("float", value.shape))
    graph.add("dequantize", name, (real, value))
    if is_known:
        return real
    if math.prod(graph.shape(zero)) != 1:
        raise UnsupportedError(f"zero points {list(graph.shape(zero))} of {name}")
    one = graph.value(zero, PLAIN, plain_integers(zero, kind.dtype))
    least = graph.temporary(f"{zero}_real", TensorType("float", one.shape))
    graph.add("dequantize", zero, (least, one))
    centred = graph.temporary(f"{name}_centred", real.type)
    graph.add("elementsub", name, (centred, real, spread(graph, zero, least, real.shape)))
    return centred


def _wide(zeros: Array) -> Array:
    return zeros.reshape(-1).astype(np.int64)


def _known(graph: Lowering, name: str, zero: str, axis: int) -> Array:
    """A constant's 8-bit integers less the zero points of a dimension, in float32."""
    values = graph.constant(name)
    zeros = _wide(graph.constant(zero)) if zero else np.zeros(1, np.int64)
    if str(values.dtype) not in _EIGHT_BITS or zeros.size not in (1, values.shape[axis]):
        raise UnsupportedError(f"{name} of {values.dtype}, {zeros.size} zero points")
    ends = (1,) * (values.ndim - 1 - axis)
    return (values.astype(np.int64) - zeros.reshape(-1, *ends)).astype(np.float32)


def _product(
    graph: Lowering,
    node: Node,
    rows: Value,
    weights: Array,
    target: Value,
    bias: Array | None = None,
) -> None:
    """Rows [M, K] times weights [K, N] and a bias as large as the result, int32."""
    name, flat = node.outputs[0], (rows.shape[0], weights.shape[1])
    parts = []
    for first in range(0, len(weights), _MOST):
        part = _columns(graph, name, rows, first, _MOST)
        sums = graph.temporary(f"{name}_sum", TensorType("float", flat))
        held = graph.real_constant(f"{node.input(1)}_real", weights[first : first + _MOST])
        nothing = graph.real_constant(f"{name}_bias", np.zeros(flat[1], np.float32))
        graph.add("fullyconnected", name, (sums, part, held, nothing))
        parts.append(sums)
    if bias is not None:
        kind = TensorType("index32", flat)
        parts.append(graph.builder.constant(f"{name}_bias", bias, kind))
    _add(graph, name, graph.view(target, flat), parts)


def _columns(graph: Lowering, name: str, value: Value, first: int, count: int) -> Value:
    """Some indices of the last dimension."""
    size = min(count, value.shape[-1] - first)
    if size == value.shape[-1]:
        return value
    part = graph.temporary(
        f"{name}_part", attrs.evolve(value.type, shape=(*value.shape[:-1], size))
    )
    offsets = (*(0,) * (len(value.shape) - 1), first)
    graph.add("extracttensor", name, (part, value), Offsets=offsets)
    return part


def _add(graph: Lowering, name: str, target: Value, parts: list[Value]) -> None:
    """The sum as int32 of whole numbers in float32 or int32."""
    total: Value | None = None
    for place, part in enumerate(parts):
        is_last = place == len(parts) - 1
        whole = part
        if part.type.elem == "float":
            whole = target if total is None and is_last else graph.temporary(name, target.type)
            graph.add("convertto", name, (whole, part))
        if total is not None:
            made = target if is_last else graph.temporary(name, target.type)
            graph.add("elementadd", name, (made, total, whole))
            whole = made
        total = whole
