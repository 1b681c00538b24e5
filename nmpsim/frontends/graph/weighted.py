"""Operations on integers that have weights: convolutions, matrix products."""

from __future__ import annotations

import math

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.builder import Value, quantized
from nmpsim.frontends.graph.lowering import LAST, PLAIN
from nmpsim.frontends.graph.nodes import MOVED, Array, Quantized, Shape
from nmpsim.frontends.graph.operation import Made, Operation, as_image
from nmpsim.frontends.graph.products import (
    broadcast_lead,
    filter_window,
    image_result,
    words_of,
)
from nmpsim.frontends.graph.windows import Window
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.lir.nodes import AttributeValue


def convolution(op: Operation) -> Made:
    """``Conv``: filter [O, I / group, ...]."""
    window, groups, held = filter_window(op, held_weights(op))
    value = as_image(op.graph, op.read(0, LAST))
    return image_result(op, convolve(op, value, held, window, groups))


def held_weights(op: Operation) -> Array:
    """The weights as they are held."""
    return op.graph.held_values(op.graph.constant(op.names[1]))


def convolve(op: Operation, value: Value, filters: Array, window: Window, groups: int) -> Value:
    """The image of a convolution; ``filters`` are OHWI."""
    graph, source, weights = op.graph, *op.sources[:2]
    outs = len(filters)
    scales, zeros = _of_weights(weights, outs)
    fused: dict[str, AttributeValue] = {}
    if op.limits is not None:
        low, high = op.limits
        fused["FusedActivation"] = "RELU" if high is None else "CLIP"
        if high is not None:
            fused["FusedActivationArgs"] = (low, high)
    return op.make(
        "channelwisequantizedconvolution",
        value,
        graph.builder.constant(weights.name, filters, quantized("i8", filters.shape, 1.0, 0)),
        _bias(op, outs, 0.0),
        *graph.vectors(op.name, scales, zeros),
        *graph.vectors(
            f"{op.name}_bias", np.float32(source.scale) * scales, np.zeros(outs, np.int64)
        ),
        shape=(value.shape[0], *window.out, outs),
        **words_of(window, groups),
        **fused,
    )


def _of_weights(
    weights: Quantized, outs: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Scale and held zero point of each output channel."""
    if weights.scales.size not in (1, outs):
        raise UnsupportedError(f"{weights.scales.size} scales for {outs} output channels")
    zeros = weights.zero_points - MOVED.get(weights.dtype, 0)
    return np.broadcast_to(weights.scales, (outs,)), np.broadcast_to(zeros, (outs,))


def _bias(op: Operation, outs: int, scale: float) -> Value:
    """On the scale of the sum; zeros if there is none."""
    values = np.zeros(outs, np.int32)
    if op.bias:
        values = op.graph.constant(op.bias)
        # One for each row is no bias of the columns, as many as there may be.
        is_row = values.size == math.prod(values.shape[-1:])
        wide = ("int64",) if op.sources[0].dtype == "int16" else ()
        if str(values.dtype) not in ("int32", *wide) or values.size not in (1, outs) or not is_row:
            raise UnsupportedError(f"a bias {list(values.shape)} of {values.dtype}")
        values = np.broadcast_to(values.reshape(-1), (outs,))
    kind = quantized(f"i{8 * values.itemsize}", (outs,), scale, 0)
    return op.graph.builder.constant(op.bias or f"{op.name}_bias", values, kind)


def product(op: Operation) -> Made:
    """``MatMul``: the right side a constant, or another activation."""
    shape, other = op.shape(0), op.shape(1)
    if min(len(shape), len(other)) < 2 or shape[-1] != other[-2]:
        raise UnsupportedError(f"{list(shape)} times {list(other)}")
    if op.kind == "MatMul" and op.graph.is_constant(op.names[1]) and len(other) == 2:
        rows = op.view(op.read(0, PLAIN), (math.prod(shape[:-1]), shape[-1]))
        return op.view(_connected(op, rows, held_weights(op)), (*shape[:-1], other[1]))
    if op.bias or op.limits:
        raise UnsupportedError("a bias or clip of a product of two activations")
    lead = broadcast_lead(shape, other)
    sides = [op.read(place, PLAIN) for place in range(2)]
    if math.prod(lead) > 1 << 12:
        raise UnsupportedError(f"{math.prod(lead)} products in one")
    whole = op.room(op.result, (*lead, shape[-2], other[-1]))
    for index in np.ndindex(*lead):
        parts = [_part(op, one, index) for one in (whole, *sides)]
        op.graph.add("matmul", op.name, parts)
    return whole


def _part(op: Operation, value: Value, index: Shape) -> Value:
    """The last two dimensions of a tensor, at an index of those before, which may be broadcast."""
    own = value.shape[:-2]
    last = index[len(index) - len(own) :]
    index = tuple(0 if size == 1 else at for at, size in zip(last, own, strict=True))
    type = attrs.evolve(value.type, shape=value.shape[-2:])
    return op.graph.builder.view(value, type, (*index, 0, 0))


def gemm(op: Operation) -> Made:
    """``Gemm``: the right side a constant; a ``MatMul`` with a bias, too.

    alpha is part of the left side's scale, as in ONNX Runtime.
    """
    attributes, (left, right) = op.attributes, op.sources
    alpha = np.float32(attributes.get("alpha", 1.0))
    if not 0 < alpha < np.inf:
        raise UnsupportedError(f"alpha {alpha}")
    if alpha != 1:
        op.sources = (attrs.evolve(left, scales=alpha * left.scales), right)
    weights = held_weights(op)
    if weights.ndim != 2:
        raise UnsupportedError(f"weights {list(weights.shape)}")
    weights = weights.T if attributes.get("transB") else weights
    value = op.read(0, PLAIN)
    if attributes.get("transA"):
        value = op.swapped(value, 0)
    shape = attributes.get("rows", value.shape)
    if len(shape) < 2 or shape[-1] != weights.shape[0]:
        raise UnsupportedError(f"weights {list(weights.shape)} for an input {list(shape)}")
    rows = op.view(value, (math.prod(shape[:-1]), shape[-1]))
    made = attributes.get("shape", (*shape[:-1], weights.shape[1]))
    return op.view(_connected(op, rows, weights), made)


def _connected(op: Operation, rows: Value, weights: Array) -> Value:
    """A fully connected layer; ``weights`` are [ins, outs]."""
    outs, own, graph = weights.shape[1], op.sources[1], op.graph
    scales, zeros = _of_weights(own, outs)
    opcode, held, scale = "fullyconnected", weights, 0.0
    tables: tuple[Value, ...] = ()
    if own.scales.size == 1:
        kind = quantized("i8", weights.shape, float(scales[0]), int(zeros[0]))
        scale = float(np.float32(op.sources[0].scale) * scales[0])
    else:
        opcode, held = "rowwisequantizedfullyconnected", weights.T
        kind, tables = quantized("i8", held.shape, 1.0, 0), graph.vectors(op.name, scales, zeros)
    values = graph.builder.constant(own.name, held, kind)
    shape = (rows.shape[0], outs)
    return op.clipped(op.make(opcode, rows, values, _bias(op, outs, scale), *tables, shape=shape))
