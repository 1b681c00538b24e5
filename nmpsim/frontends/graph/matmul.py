"""Matrix products of floats and of quantized integers: MatMul and Gemm."""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.frontends.graph.convolution import (
    channel_parameters,
    float_bias,
    float_values,
    integer_bias,
    stored_weights,
)
from nmpsim.frontends.graph.lowering import PLAIN
from nmpsim.frontends.graph.nodes import Array, Shape
from nmpsim.frontends.graph.operation import LoweringResult, OperatorContext, check_elems
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.module_builder import Value, quantized_type

_MAX_PRODUCTS = 1 << 12
"""Limit for the matrix products of one MatMul of integers."""


def matmul_shapes(op: OperatorContext) -> tuple[Shape, Shape]:
    """Return the shapes of both operands; raise UnsupportedError if they do not fit."""
    shape, other = op.shape(0), op.shape(1)
    require(
        min(len(shape), len(other)) > 1 and shape[-1] == other[-2],
        f"{list(shape)} times {list(other)}",
    )
    return shape, other


def _batch_shape(shape: Shape, other: Shape) -> Shape:
    """Return the broadcast dimensions before the last two."""
    try:
        return tuple(np.broadcast_shapes(shape[:-2], other[:-2]))
    except ValueError:
        raise UnsupportedError(f"{list(shape)} times {list(other)}") from None


def lower_matmul(op: OperatorContext) -> LoweringResult:
    """Lower MatMul: constant weights become a fully connected layer, else a batch matmul."""
    shape, other = matmul_shapes(op)
    if op.lowering.is_constant(op.names[1]) and len(other) == 2:
        bias, weights = float_bias(op, other[1]), float_values(op, 1)  # what was folded into it
        return connect_floats(op, op.read(0, PLAIN), *_parameters(op, weights, bias))
    batch = _batch_shape(shape, other)
    wide = [op.broadcast(index, (*batch, *op.shape(index)[-2:])) for index in range(2)]
    check_elems(wide, ("float",))
    items = math.prod(batch)
    operands = [op.view(value, (items, *value.shape[-2:])) for value in wide]
    result = op.make("batchmatmul", *operands, shape=(items, shape[-2], other[-1]))
    return op.view(result, (*batch, shape[-2], other[-1]))


def connect_floats(op: OperatorContext, value: Value, weights: Value, bias: Value) -> Value:
    """Emit a fully connected layer on the last dimension of a value; weights are [ins, outs]."""
    ins, outs = weights.shape
    rows = math.prod(value.shape[:-1])
    flat = op.view(value, (rows, ins))
    result = op.make("fullyconnected", flat, weights, bias, shape=(rows, outs))
    return op.view(result, (*value.shape[:-1], outs))


def _parameters(op: OperatorContext, weights: Array, bias: Array) -> tuple[Value, Value]:
    matrix = op.lowering.float_constant(op.node.input(1), weights)
    return matrix, op.float_constant("bias", bias)


def lower_gemm(op: OperatorContext, *, alpha: float = 1.0, beta: float = 1.0) -> LoweringResult:
    """Lower Gemm, ``alpha * A B + beta * C``; alpha is folded into constant weights."""
    left = _matrix(op, 0, "transA")
    weights = None
    if op.lowering.is_constant(op.node.input(1)):
        weights = float_values(op, 1)
        weights = (weights.T if op.node.attributes.get("transB") else weights) * np.float32(alpha)
        shape = weights.shape
    else:
        right = _matrix(op, 1, "transB")
        shape = right.shape
    require(
        len(shape) == 2 and left.shape[1] == shape[0] and math.isfinite(alpha * beta),
        f"{list(left.shape)} times {list(shape)}, {alpha}, {beta}",
    )
    size = (left.shape[0], shape[1])
    if weights is None:
        operands = [op.view(side, (1, *side.shape)) for side in (left, right)]
        product = op.view(op.make("batchmatmul", *operands, shape=(1, *size)), size)
        product = _scale(op, product, alpha)
    elif _has_constant_bias(op, size[1]):
        bias = float_bias(op, size[1]) * np.float32(beta)
        return connect_floats(op, left, *_parameters(op, weights, bias))
    else:
        zeros = np.zeros(size[1], np.float32)
        product = connect_floats(op, left, *_parameters(op, weights, zeros))
    if not op.node.input(2):
        return op.make("copy", product)
    added = op.broadcast(2, size)
    check_elems([added], ("float",), op.names[2])
    return op.make("elementadd", product, _scale(op, added, beta))


def _has_constant_bias(op: OperatorContext, outs: int) -> bool:
    """Return whether the third operand is left out or a constant for each column."""
    name = op.node.input(2)
    if not name or not op.lowering.is_constant(name):
        return not name
    count = math.prod(op.shape(2))
    return count in (1, outs) and count == math.prod(op.shape(2)[-1:])


def _matrix(op: OperatorContext, index: int, flag: str) -> Value:
    """Return a matrix operand, transposed if an attribute says so."""
    value = op.read(index, PLAIN)
    require(len(value.shape) == 2, f"{op.names[index]} {list(value.shape)}")
    return op.swap_with_last(value, 0) if op.node.attributes.get(flag) else value


def _scale(op: OperatorContext, value: Value, factor: float) -> Value:
    return value if factor == 1 else op.make("elementmulconst", value, LHS=factor)


# --- integers --------------------------------------------------------------------------------


def lower_integer_matmul(op: OperatorContext) -> LoweringResult:
    """Lower MatMul of integers; two activations become one instruction per matrix product."""
    shape, other = matmul_shapes(op)
    if op.kind == "MatMul" and op.lowering.is_constant(op.names[1]) and len(other) == 2:
        rows = op.view(op.read(0, PLAIN), (math.prod(shape[:-1]), shape[-1]))
        return op.view(_connect_integers(op, rows, stored_weights(op)), (*shape[:-1], other[1]))
    require(not op.bias and not op.limits, "a bias or clip of a product of two activations")
    batch = _batch_shape(shape, other)
    operands = [op.read(index, PLAIN) for index in range(2)]
    require(math.prod(batch) <= _MAX_PRODUCTS, f"{math.prod(batch)} products in one")
    whole = op.allocate(op.result, (*batch, shape[-2], other[-1]))
    for index in np.ndindex(*batch):
        matrices = [_matrix_view(op, value, index) for value in (whole, *operands)]
        op.lowering.add_instruction("matmul", op.name, matrices)
    return whole


def _matrix_view(op: OperatorContext, value: Value, index: Shape) -> Value:
    """Return the matrix at an index of a tensor of matrices, which may be broadcast."""
    own = value.shape[:-2]
    last = index[len(index) - len(own) :]
    offsets = (0 if size == 1 else at for at, size in zip(last, own, strict=True))
    type = attrs.evolve(value.type, shape=value.shape[-2:])
    return op.lowering.builder.add_view(value, type, (*offsets, 0, 0))


def lower_integer_gemm(
    op: OperatorContext,
    *,
    alpha: float = 1.0,
    rows: Shape | None = None,
    shape: Shape | None = None,
) -> LoweringResult:
    """Lower Gemm of integers with constant weights, or MatMul with a bias.

    alpha is part of the left operand's scale, as in ONNX Runtime. ``rows`` and ``shape`` are the
    shapes in which TFLite takes the input and the result.
    """
    attributes, (left, right), factor = op.node.attributes, op.sources, np.float32(alpha)
    require(0 < factor < np.inf, f"alpha {factor}")
    if factor != 1:
        op.sources = (attrs.evolve(left, scales=factor * left.scales), right)
    weights = stored_weights(op)
    require(weights.ndim == 2, f"weights {list(weights.shape)}")
    weights = weights.T if attributes.get("transB") else weights
    value = op.read(0, PLAIN)
    if attributes.get("transA"):
        value = op.swap_with_last(value, 0)
    rows = value.shape if rows is None else rows
    require(
        len(rows) > 1 and rows[-1] == weights.shape[0],
        f"weights {list(weights.shape)} for an input {list(rows)}",
    )
    flat = op.view(value, (math.prod(rows[:-1]), rows[-1]))
    result = _connect_integers(op, flat, weights)
    return op.view(result, (*rows[:-1], weights.shape[1]) if shape is None else shape)


def _connect_integers(op: OperatorContext, rows: Value, weights: Array) -> Value:
    """Emit a fully connected layer of integers; weights are [ins, outs]."""
    outs, own, lowering = weights.shape[1], op.sources[1], op.lowering
    scales, zeros = channel_parameters(own, outs)
    opcode, bias_scale = "fullyconnected", 0.0
    vectors: tuple[Value, ...] = ()
    if own.scales.size == 1:
        type = quantized_type("i8", weights.shape, float(scales[0]), int(zeros[0]))
        bias_scale = float(np.float32(op.sources[0].scale) * scales[0])
    else:
        opcode, weights = "rowwisequantizedfullyconnected", weights.T
        type = quantized_type("i8", weights.shape, 1.0, 0)
        vectors = lowering.channel_vectors(op.name, scales, zeros)
    constant = lowering.builder.add_constant(own.name, weights, type)
    bias = integer_bias(op, outs, bias_scale)
    shape = (rows.shape[0], outs)
    return op.apply_limits(op.make(opcode, rows, constant, bias, *vectors, shape=shape))
