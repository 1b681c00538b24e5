"""Lowering of matrix products of floats and integers."""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.conversions import emit_dequantize, emit_scalar_broadcast
from nmpsim.frontends.graph.convolution import (
    add_bias_constant,
    emit_float_convolution,
    get_channel_parameters,
    get_float_bias,
    get_float_weights,
    get_signed_weights,
    read_convolution,
    restore_rank,
)
from nmpsim.frontends.graph.lowering import CHANNELS_LAST, PLAIN, Layout
from nmpsim.frontends.graph.nodes import Array, Shape, make_unit_quantization, read_quantization
from nmpsim.frontends.graph.operation import (
    FLOAT,
    GraphLowering,
    LoweringResult,
    check_element_types,
)
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.module_builder import BuilderTensor
from nmpsim.lir.nodes import TensorType, make_quantized_type

_MAX_PRODUCTS = 1 << 12
"""Limit for the matrix products of one MatMul of integers."""
_MAX_EXACT_PRODUCTS = (1 << 24) // (255 * 255)
"""Products of differences of 8-bit integers whose sum float32 represents exactly."""
_EIGHT_BIT_TYPES = ("int8", "uint8")


def _batch_shape(shape: Shape, other: Shape) -> Shape:
    """Return the broadcast dimensions before the last two."""
    return tuple(np.broadcast_shapes(shape[:-2], other[:-2]))


def _is_matrix(op: GraphLowering) -> bool:
    """Return whether the right operand is a constant matrix; raise UnsupportedError for vectors."""
    ranks = [len(op.get_shape(index)) for index in range(2)]
    found = f"operands with {ranks[0]} and {ranks[1]} dimensions"
    require(min(ranks) > 1, found, "operands with at least 2 dimensions")
    require(op.kind != "Gemm" or max(ranks) == 2, found, "operands with 2 dimensions")
    return ranks[1] == 2 and op.is_constant(op.names[1])


def lower_matmul(
    op: GraphLowering,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transa: bool = False,
    transb: bool = False,
) -> LoweringResult:
    """Lower MatMul or Gemm on floats, ``alpha * A @ B + beta * C``.

    It becomes a fully connected layer or, without constant weights, a batch matmul.
    """
    require(math.isfinite(alpha * beta), f"alpha {alpha}, beta {beta}", "a finite product of both")
    if _is_matrix(op):
        left, weights = _turned(op, op.read_operand(0, PLAIN), transa), get_float_weights(op, 1)
        weights = weights.T if transb else weights
        weights = weights if alpha == 1 else weights * np.float32(alpha)
        outs = weights.shape[1]
        has_bias = _has_constant_bias(op, outs)
        bias = (
            get_float_bias(op, outs) * np.float32(beta) if has_bias else np.zeros(outs, np.float32)
        )
        result = emit_fully_connected(op, left, *_parameters(op, weights, bias))
        if has_bias:
            return result
    else:
        batch = _batch_shape(op.get_shape(0), op.get_shape(1))
        sides = [
            op.broadcast_operand(index, (*batch, *op.get_shape(index)[-2:])) for index in range(2)
        ]
        check_element_types(sides, ("float",))
        left, right = (_turned(op, *pair) for pair in zip(sides, (transa, transb), strict=True))
        result = _scale(op, _multiply_batches(op, left, right), alpha)
        if op.kind == "MatMul":
            return result
    if not op.node.get_input(2):
        return op.emit_result("copy", result)
    added = op.broadcast_operand(2, result.shape)
    check_element_types([added], ("float",), op.names[2])
    return op.emit_result("elementadd", result, _scale(op, added, beta))


def _multiply_batches(
    op: GraphLowering, left: BuilderTensor, right: BuilderTensor
) -> BuilderTensor:
    """Emit the float products of matrices with equal dimensions before the last two."""
    (*batch, rows, _), columns = left.shape, right.shape[-1]
    items = math.prod(batch)
    operands = [op.make_view(side, (items, *side.shape[-2:])) for side in (left, right)]
    result = op.emit_result("batchmatmul", *operands, shape=(items, rows, columns))
    return op.make_view(result, (*batch, rows, columns))


def emit_fully_connected(
    op: GraphLowering, value: BuilderTensor, weights: BuilderTensor, bias: BuilderTensor
) -> BuilderTensor:
    """Emit a fully connected layer on the last dimension and return its result."""
    ins, outs = weights.shape
    rows = math.prod(value.shape[:-1])
    flat = op.make_view(value, (rows, ins))
    result = op.emit_result("fullyconnected", flat, weights, bias, shape=(rows, outs))
    return op.make_view(result, (*value.shape[:-1], outs))


def _parameters(
    op: GraphLowering, weights: Array, bias: Array
) -> tuple[BuilderTensor, BuilderTensor]:
    matrix = op.add_float_constant(op.node.get_input(1), weights)
    return matrix, op.add_result_constant("bias", bias)


def _has_constant_bias(op: GraphLowering, outs: int) -> bool:
    """Return whether the third operand is left out or a constant for each column."""
    name = op.node.get_input(2)
    if not name or not op.is_constant(name):
        return not name
    count = math.prod(op.get_shape(2))
    return count in (1, outs) and count == math.prod(op.get_shape(2)[-1:])


def _turned(op: GraphLowering, value: BuilderTensor, is_transposed: bool) -> BuilderTensor:
    """Return a value with its last two dimensions exchanged if ``is_transposed``."""
    return op.swap_with_last(value, len(value.shape) - 2) if is_transposed else value


def _scale(op: GraphLowering, value: BuilderTensor, factor: float) -> BuilderTensor:
    return value if factor == 1 else op.emit_result("elementmulconst", value, LHS=factor)


# --- integers --------------------------------------------------------------------------------


def lower_integer_matmul(
    op: GraphLowering, *, alpha: float = 1.0, transa: bool = False, transb: bool = False
) -> LoweringResult:
    """Lower MatMul or Gemm of integers to a fully connected layer or to matrix products.

    alpha is part of the left operand's scale, as in ONNX Runtime.
    """
    left, right = op.sources
    factor = np.float32(alpha)
    require(0 < factor < np.inf, f"alpha {factor}", "a positive finite alpha")
    if factor != 1:
        op.sources = (attrs.evolve(left, scales=factor * left.scales), right)
    if _is_matrix(op) or op.kind == "Gemm":
        value, weights = _turned(op, op.read_operand(0, PLAIN), transa), get_signed_weights(op)
        rows = op.make_view(value, (math.prod(value.shape[:-1]), value.shape[-1]))
        connected = emit_integer_fully_connected(op, rows, weights.T if transb else weights)
        return op.make_view(connected, (*value.shape[:-1], connected.shape[1]))
    expected = "a constant operand, or only the product of two activations"
    require(not op.bias, f"bias {op.bias} of a product of two activations", expected)
    require(not op.limits, f"a product of two activations with a clip to {op.limits}", expected)
    return emit_integer_matmul(op, op.read_operand(0, PLAIN), op.read_operand(1, PLAIN))


def emit_integer_matmul(
    op: GraphLowering, left: BuilderTensor, right: BuilderTensor
) -> BuilderTensor:
    """Emit a matrix product for each item of two batches of integer matrices; return the result."""
    batch = _batch_shape(left.shape, right.shape)
    require(
        math.prod(batch) <= _MAX_PRODUCTS,
        f"{math.prod(batch)} matrix products in one operator",
        f"at most {_MAX_PRODUCTS} products",
    )
    whole = op.allocate(op.result, (*batch, left.shape[-2], right.shape[-1]))
    for index in np.ndindex(*batch):
        matrices = [_matrix_view(op, value, index) for value in (whole, left, right)]
        op.add_instruction("matmul", op.layer, matrices)
    return whole


def _matrix_view(op: GraphLowering, value: BuilderTensor, index: Shape) -> BuilderTensor:
    """Return the matrix at an index of a tensor of matrices, which may be broadcast."""
    own = value.shape[:-2]
    last = index[len(index) - len(own) :]
    offsets = (0 if size == 1 else at for at, size in zip(last, own, strict=True))
    type = attrs.evolve(value.type, shape=value.shape[-2:])
    return op.builder.add_view(value, type, (*offsets, 0, 0))


def emit_integer_fully_connected(
    op: GraphLowering, rows: BuilderTensor, weights: Array, is_by_channel: bool | None = None
) -> BuilderTensor:
    """Emit an integer fully connected layer with weights [ins, outs] and return its result.

    By default the weights have a scale for each output if there are several scales.
    """
    outs, own = weights.shape[1], op.sources[1]
    scales, zeros = get_channel_parameters(own, outs)
    opcode, bias_scale = "fullyconnected", 0.0
    vectors: tuple[BuilderTensor, ...] = ()
    if not (own.scales.size > 1 if is_by_channel is None else is_by_channel):
        type = make_quantized_type("i8", weights.shape, float(scales[0]), int(zeros[0]))
        bias_scale = float(np.float32(op.sources[0].scale) * scales[0])
    else:
        opcode, weights = "rowwisequantizedfullyconnected", weights.T
        type = make_quantized_type("i8", weights.shape, 1.0, 0)
        vectors = op.add_channel_constants(op.name, scales, zeros)
    constant = op.builder.add_constant(own.name, weights, type)
    bias = add_bias_constant(op, outs, bias_scale)
    shape = (rows.shape[0], outs)
    return op.emit_fused_clip(op.emit_result(opcode, rows, constant, bias, *vectors, shape=shape))


# --- sums that stay integers -----------------------------------------------------------------
#
# The host adds them in float32, which is exact for so few products that no sum exceeds 2**24; sums
# of more products are added as int32.


def lower_matmul_integer(op: GraphLowering) -> LoweringResult:
    """Lower MatMulInteger: ``(A - a_zero_point) @ (B - b_zero_point)`` in int32.

    The right operand is a constant matrix, or has the same batch dimensions as the left one.
    """
    value = _centered(op, 0, 2, PLAIN)
    if _is_matrix(op):
        rows = op.make_view(value, (math.prod(value.shape[:-1]), value.shape[-1]))
        sums = _multiply(op, rows, _centered_constant(op, 1, 3, 1))
        return op.make_view(sums, (*value.shape[:-1], sums.shape[1]))
    other = _centered(op, 1, 3, PLAIN)
    require(
        value.shape[:-2] == other.shape[:-2],
        f"activations of shape {list(value.shape)} and {list(other.shape)}",
        "equal batch dimensions",
    )
    require(
        value.shape[-1] <= _MAX_EXACT_PRODUCTS,
        f"{value.shape[-1]} products per sum of a product of two activations",
        f"at most {_MAX_EXACT_PRODUCTS} products per sum",
    )
    return _to_int32(op, _multiply_batches(op, value, other))


def lower_conv_integer(op: GraphLowering) -> LoweringResult:
    """Lower ConvInteger with constant filters [O, I / groups, ...] and an int32 result."""
    filters = _centered_constant(op, 1, 3, 0)
    window, groups, ordered = read_convolution(op, filters)
    depth = filters.shape[1]
    step = min(_MAX_EXACT_PRODUCTS // math.prod(filters.shape[2:]), depth)
    require(
        step > 0,
        f"a filter of {' x '.join(map(str, filters.shape[2:]))} positions",
        f"at most {_MAX_EXACT_PRODUCTS} positions, whose products float32 sums exactly",
    )
    require(
        groups == 1 or step == depth,
        f"{math.prod(filters.shape[1:])} products per sum in {groups} groups",
        f"at most {_MAX_EXACT_PRODUCTS} products, or one group",
    )
    value, parts = _centered(op, 0, 2, CHANNELS_LAST), []
    zeros = np.zeros(len(filters), np.float32)
    for first in range(0, depth, step):
        part = value if groups > 1 else _columns(op, value, first, step)
        weights = ordered[..., first : first + step]
        parts.append(emit_float_convolution(op, part, weights, zeros, window, groups))
    return restore_rank(op, _sum(op, parts))


def lower_qgemm(
    op: GraphLowering, *, alpha: float = 1.0, transa: bool = False, transb: bool = False
) -> LoweringResult:
    """Lower QGemm with a float result: ``float(A @ B + C) * (alpha * a_scale * b_scale)``."""
    left, right = (
        read_quantization(op.node, op.constants, op.node.get_input(index), index + 1)
        for index in (0, 3)
    )
    weights = _centered_constant(op, 3, 5, 0 if transb else 1)
    value, weights = (
        _turned(op, _centered(op, 0, 2, PLAIN), transa),
        weights.T if transb else weights,
    )
    size = (value.shape[0], weights.shape[1])
    bias = op.get_constant(6) if op.node.get_input(6) else np.zeros(1, np.int32)
    integers = _multiply(op, value, weights, np.broadcast_to(bias, size))
    scales = np.broadcast_to(np.float32(alpha) * np.float32(left.scale) * right.scales, size)
    sums = op.emit("convertto", integers, kind=FLOAT)
    return op.emit_result("elementmul", sums, op.add_result_constant("scale", scales))


def _centered(op: GraphLowering, index: int, zero_index: int, layout: Layout) -> BuilderTensor:
    """Return 8-bit integers minus their zero point, which may be an activation, in float32."""
    name, zero = op.names[index], op.node.get_input(zero_index)
    if op.is_constant(name):
        values = _centered_constant(op, index, zero_index, 0)
        return op.add_float_constant(f"{name}_real", values)
    kind = op.get_quantization(name)
    if kind is None or kind.dtype not in _EIGHT_BIT_TYPES:
        found = kind.dtype if kind else FLOAT
        raise UnsupportedError(
            f"{name} of type {found}", f"{name} of type {list_alternatives(_EIGHT_BIT_TYPES)}"
        )
    is_known = not zero or op.is_constant(zero)
    zeros = _zero_points(op, zero_index if is_known else -1)
    require(zeros.size == 1, f"{zeros.size} zero points of {name}", "one zero point")
    wanted = attrs.evolve(make_unit_quantization(name, kind.dtype), zero_points=zeros)
    value = emit_dequantize(op, op.read_unchecked_operand(index, layout, wanted))
    if is_known:
        return value
    zero_shape = op.get_shape(zero)
    found = f"zero points of shape {list(zero_shape)} for {name}"
    require(math.prod(zero_shape) == 1, found, "one zero point")
    number = emit_dequantize(
        op, op.read_value(zero, PLAIN, make_unit_quantization(zero, kind.dtype))
    )
    return op.emit("elementsub", value, emit_scalar_broadcast(op, number, value.shape))


def _zero_points(op: GraphLowering, index: int) -> Array:
    """Return constant zero points as int64 [N]; zero if the input is left out."""
    if index < 0 or not op.node.get_input(index):
        return np.zeros(1, np.int64)
    return op.get_constant(index).reshape(-1).astype(np.int64)


def _centered_constant(op: GraphLowering, index: int, zero_index: int, axis: int) -> Array:
    """Return constant 8-bit integers minus the zero points of an axis, in float32."""
    values, zeros = op.get_constant(index), _zero_points(op, zero_index)
    require(
        str(values.dtype) in _EIGHT_BIT_TYPES,
        f"{op.names[index]} of type {values.dtype}",
        f"a constant of type {list_alternatives(_EIGHT_BIT_TYPES)}",
    )
    require(
        zeros.size in (1, values.shape[axis]),
        f"{zeros.size} zero points of {op.names[index]}",
        f"1 zero point, or {values.shape[axis]}, one per channel",
    )
    ends = (1,) * (values.ndim - 1 - axis)
    return (values.astype(np.int64) - zeros.reshape(-1, *ends)).astype(np.float32)


def _multiply(
    op: GraphLowering, rows: BuilderTensor, weights: Array, bias: Array | None = None
) -> BuilderTensor:
    """Return rows [M, K] times weights [K, N] plus a bias [M, N], as int32."""
    size, parts = (rows.shape[0], weights.shape[1]), []
    for first in range(0, len(weights), _MAX_EXACT_PRODUCTS):
        part = _columns(op, rows, first, _MAX_EXACT_PRODUCTS)
        name, own = f"{op.node.get_input(1)}_real", weights[first : first + _MAX_EXACT_PRODUCTS]
        constant = op.add_float_constant(name, own)
        zeros = op.add_result_constant("bias", np.zeros(size[1], np.float32))
        parts.append(op.emit("fullyconnected", part, constant, zeros, shape=size))
    if bias is not None:
        type = TensorType("index32", size)
        parts.append(op.builder.add_constant(f"{op.name}_bias", bias, type))
    return _sum(op, parts)


def _columns(op: GraphLowering, value: BuilderTensor, first: int, count: int) -> BuilderTensor:
    """Return some indices of the last dimension."""
    return op.emit_extraction(
        value, len(value.shape) - 1, first, min(count, value.shape[-1] - first)
    )


def _to_int32(op: GraphLowering, value: BuilderTensor) -> BuilderTensor:
    return op.emit("convertto", value, kind="int32") if value.type.elem == "float" else value


def _sum(op: GraphLowering, parts: list[BuilderTensor]) -> BuilderTensor:
    """Return the sum of values in float32 or int32, as int32."""
    total, *rest = [_to_int32(op, part) for part in parts]
    for part in rest:
        total = op.emit("elementadd", total, part)
    return total
