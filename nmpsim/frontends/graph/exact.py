"""Products of integers whose sums stay integers: MatMulInteger, ConvInteger, QGemm to real numbers.

The host adds them in float32, which is exact for so few products that no sum leaves 2**24; sums of
more are added as int32.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.conversions import as_real, spread
from nmpsim.frontends.graph.lowering import LAST, PLAIN, Layout
from nmpsim.frontends.graph.nodes import Array, plain_integers, quantized
from nmpsim.frontends.graph.operation import REAL, Made, Operation
from nmpsim.frontends.graph.products import convolve, filter_window, image_result
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.lir.nodes import TensorType

_MOST = (1 << 24) // (255 * 255)
"""Products of differences of 8-bit integers whose sum float32 holds."""
_EIGHT_BITS = ("int8", "uint8")
_WHOLE = "int32"


def matmul_integer(op: Operation) -> Made:
    """``(A - a_zero) (B - b_zero)``, int32; the right side a constant matrix, or both alike."""
    shape, other = op.shape(0), op.shape(1)
    if min(len(shape), len(other)) < 2 or shape[-1] != other[-2]:
        raise UnsupportedError(f"{list(shape)} times {list(other)}")
    value = _centred(op, 0, 2, PLAIN)
    if op.graph.is_constant(op.names[1]) and len(other) == 2:
        rows = op.view(value, (math.prod(shape[:-1]), shape[-1]))
        sums = _product(op, rows, _known(op, 1, 3, 1))
        return op.view(sums, (*shape[:-1], other[1]))
    if shape[:-2] != other[:-2] or shape[-1] > _MOST:
        raise UnsupportedError(f"{list(shape)} times {list(other)}, both no constant")
    items = math.prod(shape[:-2])
    sides = [
        op.view(side, (items, *side.shape[-2:])) for side in (value, _centred(op, 1, 3, PLAIN))
    ]
    sums = op.make("batchmatmul", *sides, shape=(items, shape[-2], other[-1]))
    return op.emit("convertto", op.view(sums, (*shape[:-1], other[-1])), kind=_WHOLE)


def conv_integer(op: Operation) -> Made:
    """Filter [O, I / group, ...], a constant; int32."""
    filters = _known(op, 1, 3, 0)
    window, groups, held = filter_window(op, filters)
    step = min(_MOST // math.prod(filters.shape[2:]), filters.shape[1])
    if step == 0 or (groups > 1 and step < filters.shape[1]):
        raise UnsupportedError(f"{math.prod(filters.shape[1:])} products in {groups} groups")
    value, parts = _centred(op, 0, 2, LAST), []
    nothing = np.zeros(len(filters), np.float32)
    for first in range(0, filters.shape[1], step):
        part = value if groups > 1 else _columns(op, value, first, step)
        weights = held[..., first : first + step]
        parts.append(convolve(op, part, weights, nothing, window, groups))
    return image_result(op, _total(op, parts))


def gemm(op: Operation) -> Made:
    """QGemm without a result's scale: ``float(A B + C) * (alpha * a_scale * b_scale)``."""
    node, constants, attributes = op.node, op.graph.constants, op.attributes
    left = quantized(constants, *(node.input(i) for i in range(3)))
    right = quantized(constants, *(node.input(i) for i in range(3, 6)))
    weights = _known(op, 3, 5, 0 if attributes.get("transB") else 1)
    weights = weights.T if attributes.get("transB") else weights
    value = _centred(op, 0, 2, PLAIN)
    if attributes.get("transA"):
        value = op.swapped(value, 0)
    shape = value.shape
    if len(shape) != 2 or weights.ndim != 2 or shape[1] != weights.shape[0]:
        raise UnsupportedError(f"weights {list(weights.shape)} for an input {list(shape)}")
    made = (shape[0], weights.shape[1])
    bias = op.values(6) if node.input(6) else np.zeros(1, np.int32)
    integers = _product(op, value, weights, np.broadcast_to(bias, made))
    alpha = np.float32(attributes.get("alpha", 1.0))
    scales = np.broadcast_to(alpha * np.float32(left.scale) * right.scales, made)
    sums = op.emit("convertto", integers, kind=REAL)
    return op.make("elementmul", sums, op.real("scale", scales))


def _centred(op: Operation, place: int, zero_place: int, layout: Layout) -> Value:
    """8-bit integers less their zero point, which may be an activation, in float32."""
    graph, name, zero = op.graph, op.names[place], op.node.input(zero_place)
    if graph.is_constant(name):
        return graph.real_constant(f"{name}_real", _known(op, place, zero_place, 0))
    kind = graph.parameters(name)
    if kind is None or kind.dtype not in _EIGHT_BITS:
        found = kind.dtype if kind else "float"
        raise UnsupportedError(f"{name} is {found}, not int8 or uint8")
    is_known = not zero or graph.is_constant(zero)
    zeros = op.values(zero_place) if zero and is_known else np.zeros(1, np.int64)
    if zeros.size != 1:
        raise UnsupportedError(f"{zeros.size} zero points of {name}")
    whole = attrs.evolve(plain_integers(name, kind.dtype), zero_points=_wide(zeros))
    real = as_real(op, op.read_any(place, layout, whole))
    if is_known:
        return real
    if math.prod(graph.shape(zero)) != 1:
        raise UnsupportedError(f"zero points {list(graph.shape(zero))} of {name}")
    one = graph.value(zero, PLAIN, plain_integers(zero, kind.dtype))
    return op.emit("elementsub", real, spread(op, as_real(op, one), real.shape))


def _wide(zeros: Array) -> Array:
    return zeros.reshape(-1).astype(np.int64)


def _known(op: Operation, place: int, zero_place: int, axis: int) -> Array:
    """A constant's 8-bit integers less the zero points of a dimension, in float32."""
    values, has_zero = op.values(place), op.node.input(zero_place)
    zeros = _wide(op.values(zero_place)) if has_zero else np.zeros(1, np.int64)
    if str(values.dtype) not in _EIGHT_BITS or zeros.size not in (1, values.shape[axis]):
        raise UnsupportedError(f"{op.names[place]} of {values.dtype}, {zeros.size} zero points")
    ends = (1,) * (values.ndim - 1 - axis)
    return (values.astype(np.int64) - zeros.reshape(-1, *ends)).astype(np.float32)


def _product(op: Operation, rows: Value, weights: Array, bias: Array | None = None) -> Value:
    """Rows [M, K] times weights [K, N] and a bias as large as the result, int32."""
    flat, parts = (rows.shape[0], weights.shape[1]), []
    for first in range(0, len(weights), _MOST):
        part = _columns(op, rows, first, _MOST)
        held = op.graph.real_constant(f"{op.node.input(1)}_real", weights[first : first + _MOST])
        nothing = op.real("bias", np.zeros(flat[1], np.float32))
        parts.append(op.emit("fullyconnected", part, held, nothing, shape=flat))
    if bias is not None:
        kind = TensorType("index32", flat)
        parts.append(op.graph.builder.constant(f"{op.name}_bias", bias, kind))
    return _total(op, parts)


def _columns(op: Operation, value: Value, first: int, count: int) -> Value:
    """Some indices of the last dimension."""
    size = min(count, value.shape[-1] - first)
    if size == value.shape[-1]:
        return value
    offsets = (*(0,) * (len(value.shape) - 1), first)
    return op.emit("extracttensor", value, shape=(*value.shape[:-1], size), Offsets=offsets)


def _total(op: Operation, parts: list[Value]) -> Value:
    """The sum as int32 of whole numbers in float32 or int32."""
    whole = [
        op.emit("convertto", part, kind=_WHOLE) if part.type.elem == "float" else part
        for part in parts
    ]
    total = whole[0]
    for part in whole[1:]:
        total = op.emit("elementadd", total, part)
    return total
