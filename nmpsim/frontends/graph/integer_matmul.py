"""Products of integers whose sums stay integers: MatMulInteger, ConvInteger, QGemm to floats.

The host adds them in float32, which is exact for so few products that no sum exceeds 2**24; sums of
more products are added as int32.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.frontends.graph.conversions import dequantize, repeat_number
from nmpsim.frontends.graph.convolution import as_operand_rank, convolve_floats, read_filters
from nmpsim.frontends.graph.lowering import CHANNELS_LAST, PLAIN, Layout
from nmpsim.frontends.graph.matmul import matmul_shapes
from nmpsim.frontends.graph.nodes import Array, read_quantization, unit_quantization
from nmpsim.frontends.graph.operation import FLOAT, LoweringResult, OperatorContext
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.module_builder import Value
from nmpsim.lir.nodes import TensorType

_MAX_PRODUCTS = (1 << 24) // (255 * 255)
"""Products of differences of 8-bit integers whose sum float32 represents exactly."""
_EIGHT_BIT_TYPES = ("int8", "uint8")


def lower_matmul_integer(op: OperatorContext) -> LoweringResult:
    """Lower MatMulInteger, ``(A - a_zero) (B - b_zero)`` in int32.

    The right operand is a constant matrix, or has the same batch dimensions as the left one.
    """
    shape, other = matmul_shapes(op)
    value = _centered(op, 0, 2, PLAIN)
    if op.lowering.is_constant(op.names[1]) and len(other) == 2:
        rows = op.view(value, (math.prod(shape[:-1]), shape[-1]))
        sums = _multiply(op, rows, _centered_constant(op, 1, 3, 1))
        return op.view(sums, (*shape[:-1], other[1]))
    require(
        shape[:-2] == other[:-2] and shape[-1] <= _MAX_PRODUCTS,
        f"{list(shape)} times {list(other)}, both no constant",
    )
    items = math.prod(shape[:-2])
    operands = [
        op.view(side, (items, *side.shape[-2:])) for side in (value, _centered(op, 1, 3, PLAIN))
    ]
    sums = op.make("batchmatmul", *operands, shape=(items, shape[-2], other[-1]))
    return _to_int32(op, op.view(sums, (*shape[:-1], other[-1])))


def lower_conv_integer(op: OperatorContext) -> LoweringResult:
    """Lower ConvInteger with constant filters [O, I / group, ...] to int32."""
    filters = _centered_constant(op, 1, 3, 0)
    window, groups, ordered = read_filters(op, filters)
    depth = filters.shape[1]
    step = min(_MAX_PRODUCTS // math.prod(filters.shape[2:]), depth)
    require(
        step > 0 and (groups == 1 or step == depth),
        f"{math.prod(filters.shape[1:])} products in {groups} groups",
    )
    value, parts = _centered(op, 0, 2, CHANNELS_LAST), []
    zeros = np.zeros(len(filters), np.float32)
    for first in range(0, depth, step):
        part = value if groups > 1 else _columns(op, value, first, step)
        weights = ordered[..., first : first + step]
        parts.append(convolve_floats(op, part, weights, zeros, window, groups))
    return as_operand_rank(op, _sum(op, parts))


def lower_qgemm(op: OperatorContext, *, alpha: float = 1.0) -> LoweringResult:
    """Lower QGemm without a result scale: ``float(A B + C) * (alpha * a_scale * b_scale)``."""
    node, constants, attributes = op.node, op.lowering.constants, op.node.attributes
    left, right = (
        read_quantization(constants, *(node.input(first + i) for i in range(3))) for first in (0, 3)
    )
    weights = _centered_constant(op, 3, 5, 0 if attributes.get("transB") else 1)
    weights = weights.T if attributes.get("transB") else weights
    value = _centered(op, 0, 2, PLAIN)
    if attributes.get("transA"):
        value = op.swap_with_last(value, 0)
    shape = value.shape
    require(
        len(shape) == 2 and weights.ndim == 2 and shape[1] == weights.shape[0],
        f"weights {list(weights.shape)} for an input {list(shape)}",
    )
    size = (shape[0], weights.shape[1])
    bias = op.values(6) if node.input(6) else np.zeros(1, np.int32)
    integers = _multiply(op, value, weights, np.broadcast_to(bias, size))
    scales = np.broadcast_to(np.float32(alpha) * np.float32(left.scale) * right.scales, size)
    sums = op.emit("convertto", integers, kind=FLOAT)
    return op.make("elementmul", sums, op.float_constant("scale", scales))


def _centered(op: OperatorContext, index: int, zero_index: int, layout: Layout) -> Value:
    """Return 8-bit integers minus their zero point, which may be an activation, in float32."""
    lowering, name, zero = op.lowering, op.names[index], op.node.input(zero_index)
    if lowering.is_constant(name):
        values = _centered_constant(op, index, zero_index, 0)
        return lowering.float_constant(f"{name}_real", values)
    kind = lowering.quantization(name)
    if kind is None or kind.dtype not in _EIGHT_BIT_TYPES:
        found = kind.dtype if kind else "float"
        raise UnsupportedError(f"{name} is {found}, not int8 or uint8")
    is_known = not zero or lowering.is_constant(zero)
    zeros = _zero_points(op, zero_index if is_known else -1)
    require(zeros.size == 1, f"{zeros.size} zero points of {name}")
    wanted = attrs.evolve(unit_quantization(name, kind.dtype), zero_points=zeros)
    value = dequantize(op, op.read_any(index, layout, wanted))
    if is_known:
        return value
    zero_shape = lowering.shape(zero)
    require(math.prod(zero_shape) == 1, f"zero points {list(zero_shape)} of {name}")
    number = dequantize(op, lowering.value(zero, PLAIN, unit_quantization(zero, kind.dtype)))
    return op.emit("elementsub", value, repeat_number(op, number, value.shape))


def _zero_points(op: OperatorContext, index: int) -> Array:
    """Return constant zero points as int64 [N]; zero if the input is left out."""
    if index < 0 or not op.node.input(index):
        return np.zeros(1, np.int64)
    return op.values(index).reshape(-1).astype(np.int64)


def _centered_constant(op: OperatorContext, index: int, zero_index: int, axis: int) -> Array:
    """Return constant 8-bit integers minus the zero points of an axis, in float32."""
    values, zeros = op.values(index), _zero_points(op, zero_index)
    require(
        str(values.dtype) in _EIGHT_BIT_TYPES and zeros.size in (1, values.shape[axis]),
        f"{op.names[index]} of {values.dtype}, {zeros.size} zero points",
    )
    ends = (1,) * (values.ndim - 1 - axis)
    return (values.astype(np.int64) - zeros.reshape(-1, *ends)).astype(np.float32)


def _multiply(op: OperatorContext, rows: Value, weights: Array, bias: Array | None = None) -> Value:
    """Return rows [M, K] times weights [K, N] plus a bias [M, N], as int32."""
    size, parts = (rows.shape[0], weights.shape[1]), []
    for first in range(0, len(weights), _MAX_PRODUCTS):
        part = _columns(op, rows, first, _MAX_PRODUCTS)
        name, own = f"{op.node.input(1)}_real", weights[first : first + _MAX_PRODUCTS]
        constant = op.lowering.float_constant(name, own)
        zeros = op.float_constant("bias", np.zeros(size[1], np.float32))
        parts.append(op.emit("fullyconnected", part, constant, zeros, shape=size))
    if bias is not None:
        type = TensorType("index32", size)
        parts.append(op.lowering.builder.add_constant(f"{op.name}_bias", bias, type))
    return _sum(op, parts)


def _columns(op: OperatorContext, value: Value, first: int, count: int) -> Value:
    """Return some indices of the last dimension."""
    size = min(count, value.shape[-1] - first)
    if size == value.shape[-1]:
        return value
    offsets = (*(0,) * (len(value.shape) - 1), first)
    return op.emit("extracttensor", value, shape=(*value.shape[:-1], size), Offsets=offsets)


def _to_int32(op: OperatorContext, value: Value) -> Value:
    return op.emit("convertto", value, kind="int32") if value.type.elem == "float" else value


def _sum(op: OperatorContext, parts: list[Value]) -> Value:
    """Return the sum of values in float32 or int32, as int32."""
    total, *rest = [_to_int32(op, part) for part in parts]
    for part in rest:
        total = op.emit("elementadd", total, part)
    return total
