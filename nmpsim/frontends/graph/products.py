"""Nodes that multiply real numbers by weights: convolutions, matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN
from nmpsim.frontends.graph.nodes import Array, Shape
from nmpsim.frontends.graph.operation import REAL, Made, Operation, as_image, check_elems
from nmpsim.frontends.graph.windows import Window, window_of
from nmpsim.frontends.imported_model import UnsupportedError


def convolution(op: Operation) -> Made:
    """Filter [O, I / group, ...], a constant."""
    filters = _weights(op, 1)
    window, groups, held = filter_window(op, filters)
    bias = _bias(op, len(filters))
    return image_result(op, convolve(op, op.read(0, LAST), held, bias, window, groups))


def filter_window(op: Operation, filters: Array) -> tuple[Window, int, Array]:
    """The window of a convolution, its groups, and the filters OHWI."""
    shape, groups = op.image(), op.integer("group", 1)
    if not 3 <= len(shape) <= 4 or filters.ndim != len(shape) or groups < 1:
        raise UnsupportedError(f"a filter {list(filters.shape)} for an input {list(shape)}")
    if filters.shape[1] * groups != shape[1] or len(filters) % groups:
        raise UnsupportedError(f"{groups} groups, a filter {list(filters.shape)}, {shape[1]}")
    more = op.graph.padding.get(op.names[0], (0, 0, 0, 0))
    window = window_of(op.attributes, shape[2:], filters.shape[2:], more)
    return window, groups, np.moveaxis(filters, 1, -1).reshape(len(filters), *window.kernel, -1)


def image_result(op: Operation, made: Value) -> Value:
    """An image as one of as many dimensions as the operand."""
    return made if len(op.shape()) == 4 else op.view(made, (made.shape[0], *made.shape[2:]))


def words_of(window: Window, groups: int) -> dict[str, Any]:
    """The attributes of a convolution in LIR."""
    return {
        "Kernels": window.kernel,
        "Strides": window.strides,
        "Pads": window.pads,
        "Group": groups,
        "Dilation": window.dilation,
    }


def convolve(
    op: Operation, value: Value, filters: Array, bias: Array, window: Window, groups: int
) -> Value:
    """The image of a convolution of real numbers; ``filters`` are OHWI."""
    value = as_image(op.graph, value)
    constants = (
        op.graph.real_constant(op.node.input(1), filters),
        op.graph.real_constant(op.node.input(2) or f"{op.name}_bias", bias),
    )
    shape = (value.shape[0], *window.out, len(filters))
    words = words_of(window, groups)
    return op.emit("convolution", value, *constants, shape=shape, kind=REAL, **words)


def _weights(op: Operation, place: int) -> Array:
    values = op.values(place)
    if values.dtype != np.float32:
        raise UnsupportedError(f"weights of {values.dtype}")
    return values


def _bias(op: Operation, outs: int) -> Array:
    values = np.zeros(outs, np.float32)
    if op.node.input(2):
        given = _weights(op, 2)
        if given.size not in (1, outs) or given.size != math.prod(given.shape[-1:]):
            raise UnsupportedError(f"a bias {list(given.shape)}")
        values = np.broadcast_to(given.reshape(-1), (outs,))
    return values


def gemm(op: Operation) -> Made:
    """``alpha * A B + beta * C``; alpha becomes part of constant weights."""
    alpha, beta = op.number("alpha", 1.0), op.number("beta", 1.0)
    left = _matrix(op, 0, "transA")
    is_known = op.graph.is_constant(op.node.input(1))
    if is_known:
        weights = _weights(op, 1)
        weights = (weights.T if op.attributes.get("transB") else weights) * np.float32(alpha)
        shape = weights.shape
    else:
        right = _matrix(op, 1, "transB")
        shape = right.shape
    if len(shape) != 2 or left.shape[1] != shape[0] or not math.isfinite(alpha * beta):
        raise UnsupportedError(f"{list(left.shape)} times {list(shape)}, {alpha}, {beta}")
    made = (left.shape[0], shape[1])
    if is_known and _is_bias(op, made[1]):
        return _connected(op, left, weights, _bias(op, made[1]) * np.float32(beta))
    if is_known:
        product = _connected(op, left, weights, np.zeros(made[1], np.float32))
    else:
        sides = [op.view(side, (1, *side.shape)) for side in (left, right)]
        product = op.view(op.make("batchmatmul", *sides, shape=(1, *made)), made)
        product = _times(op, product, alpha)
    if not op.node.input(2):
        return op.make("copy", product)
    added = op.broadcast(2, made)
    check_elems([added], ("float",), op.names[2])
    return op.make("elementadd", product, _times(op, added, beta))


def _is_bias(op: Operation, outs: int) -> bool:
    """Whether what is added is a constant for each column, or nothing."""
    name = op.node.input(2)
    if not name or not op.graph.is_constant(name):
        return not name
    shape = op.shape(2)
    return math.prod(shape) in (1, outs) and math.prod(shape) == math.prod(shape[-1:])


def _matrix(op: Operation, place: int, flag: str) -> Value:
    """A side of Gemm, transposed if it is to be."""
    value = op.read(place, PLAIN)
    if len(value.shape) != 2:
        raise UnsupportedError(f"{op.names[place]} {list(value.shape)}")
    return op.swapped(value, 0) if op.attributes.get(flag) else value


def _times(op: Operation, value: Value, factor: float) -> Value:
    return value if factor == 1 else op.make("elementmulconst", value, LHS=factor)


def product(op: Operation) -> Made:
    """The right side a constant matrix, or two activations, either broadcast."""
    shape, other = op.shape(0), op.shape(1)
    if min(len(shape), len(other)) < 2 or shape[-1] != other[-2]:
        raise UnsupportedError(f"{list(shape)} times {list(other)}")
    if op.graph.is_constant(op.names[1]) and len(other) == 2:
        bias, weights = _bias(op, other[1]), _weights(op, 1)  # what was folded into it
        return _connected(op, op.read(0, PLAIN), weights, bias)
    lead = broadcast_lead(shape, other)
    wide = [op.broadcast(place, (*lead, *op.shape(place)[-2:])) for place in range(2)]
    check_elems(wide, ("float",))
    items = math.prod(lead)
    sides = [op.view(side, (items, *side.shape[-2:])) for side in wide]
    made = op.make("batchmatmul", *sides, shape=(items, shape[-2], other[-1]))
    return op.view(made, (*lead, shape[-2], other[-1]))


def broadcast_lead(shape: Shape, other: Shape) -> Shape:
    """What products of two tensors have before the last two dimensions."""
    try:
        return tuple(np.broadcast_shapes(shape[:-2], other[:-2]))
    except ValueError:
        raise UnsupportedError(f"{list(shape)} times {list(other)}") from None


def _connected(op: Operation, value: Value, weights: Array, bias: Array) -> Value:
    """Rows, the last dimension of ``value``, times weights [ins, outs]."""
    rows, outs = math.prod(value.shape[:-1]), weights.shape[1]
    constants = op.graph.real_constant(op.node.input(1), weights), op.real("bias", bias)
    flat = op.view(value, (rows, value.shape[-1]))
    made = op.make("fullyconnected", flat, *constants, shape=(rows, outs))
    return op.view(made, (*value.shape[:-1], outs))


def transposed_convolution(op: Operation) -> Made:
    """Filter [I, O / group, ...], a constant; pads as they are given."""
    shape, filters, groups = op.image(), _weights(op, 1), op.integer("group", 1)
    window, size = transposed_window(op.attributes, shape, filters.shape)
    image, outs = as_image(op.graph, op.read(0, LAST)), filters.shape[1] * groups
    last = np.moveaxis(filters, 0, -1).reshape(filters.shape[1], *window.kernel, shape[1])
    made = op.make(
        "convtranspose",
        image,
        op.graph.real_constant(op.node.input(1), last),
        op.real("bias", _bias(op, outs)),
        shape=(shape[0], *size, outs),
        **words_of(window, groups),
    )
    return image_result(op, made)


def transposed_window(
    attributes: Mapping[str, Any], shape: Shape, filters: Shape
) -> tuple[Window, tuple[int, int]]:
    """The window of a transposed convolution, and rows and columns of its result."""
    groups, dims = int(attributes.get("group", 1)), len(shape) - 2
    if not 1 <= dims <= 2 or len(filters) != len(shape) or groups < 1:
        raise UnsupportedError(f"a filter {list(filters)} for an input {list(shape)}")
    if filters[0] != shape[1] or shape[1] % groups:
        raise UnsupportedError(f"{groups} groups, a filter {list(filters)}, {shape[1]}")
    if (
        attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
        or "output_shape" in attributes
    ):
        raise UnsupportedError(f"auto_pad {attributes.get('auto_pad')}, or a shape that is given")
    # A window over an input that is large enough: what is wanted are its numbers.
    window = window_of({**attributes, "ceil_mode": 0}, (1 << 19,) * dims, filters[2:])
    more = tuple(int(one) for one in attributes.get("output_padding", (0,) * dims))
    if len(more) != dims or min(more) < 0:
        raise UnsupportedError(f"output_padding {list(more)}")
    pads, added, image = window.pads, (0,) * (2 - dims) + more, (1,) * (2 - dims) + shape[2:]
    rows, columns = (
        (image[i] - 1) * window.strides[i]
        + (window.kernel[i] - 1) * window.dilation[i]
        + (1 + added[i] - pads[i] - pads[2 + i])
        for i in range(2)
    )
    return window, (rows, columns)
