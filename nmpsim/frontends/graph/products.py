"""Nodes that multiply real numbers by weights: convolutions, matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN, Lowering, Result
from nmpsim.frontends.graph.pointwise import as_image, swapped
from nmpsim.frontends.graph.real import REAL, real
from nmpsim.frontends.graph.steps import Array, Node, Shape
from nmpsim.frontends.graph.windows import Window, window_of
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType


def convolution(graph: Lowering, node: Node) -> Result:
    """Filter [O, I / group, ...], a constant."""
    name, result = node.inputs[0], node.outputs[0]
    shape, filters = graph.shape(name), _weights(graph, node.input(1))
    groups = int(node.attributes.get("group", 1))
    if not 3 <= len(shape) <= 4 or filters.ndim != len(shape) or groups < 1:
        raise UnsupportedError(f"a filter {list(filters.shape)} for an input {list(shape)}")
    if filters.shape[1] * groups != shape[1] or len(filters) % groups:
        raise UnsupportedError(f"{groups} groups, a filter {list(filters.shape)}, {shape[1]}")
    more = graph.padding.get(name, (0, 0, 0, 0))
    window = window_of(node.attributes, shape[2:], filters.shape[2:], more)
    last = np.moveaxis(filters, 1, -1).reshape(len(filters), *window.kernel, -1)
    value = as_image(graph, real(graph, name, LAST))
    made = (shape[0], len(filters), *window.out[4 - len(shape) :])
    target = as_image(graph, graph.target(result, made, REAL, LAST))
    convolve(graph, node, (target, value), last, _bias(graph, node, len(filters)), window, groups)
    return Result()


def convolve(
    graph: Lowering,
    node: Node,
    sides: tuple[Value, Value],
    filters: Array,
    bias: Array,
    window: Window,
    groups: int,
) -> None:
    """Target and source are images, channels last; ``filters`` are OHWI, all float32."""
    name = node.outputs[0]
    weights = graph.real_constant(node.input(1), filters)
    shift = graph.real_constant(node.input(2) or f"{name}_bias", bias)
    graph.add(
        "convolution",
        name,
        (*sides, weights, shift),
        Kernels=window.kernel,
        Strides=window.strides,
        Pads=window.pads,
        Group=groups,
        Dilation=window.dilation,
    )


def _weights(graph: Lowering, name: str) -> Array:
    values = graph.constant(name)
    if values.dtype != np.float32:
        raise UnsupportedError(f"weights of {values.dtype}")
    return values


def _bias(graph: Lowering, node: Node, outs: int) -> Array:
    values = np.zeros(outs, np.float32)
    if node.input(2):
        given = _weights(graph, node.input(2))
        if given.size not in (1, outs) or given.size != math.prod(given.shape[-1:]):
            raise UnsupportedError(f"a bias {list(given.shape)}")
        values = np.broadcast_to(given.reshape(-1), (outs,))
    return values


def gemm(graph: Lowering, node: Node) -> Result:
    """``alpha * A B + beta * C``; alpha becomes part of constant weights."""
    attributes, result = node.attributes, node.outputs[0]
    alpha, beta = (float(attributes.get(key, 1.0)) for key in ("alpha", "beta"))
    left = _matrix(graph, node, 0, bool(attributes.get("transA")))
    if graph.is_constant(node.input(1)):
        weights = _weights(graph, node.input(1))
        weights = weights.T if attributes.get("transB") else weights
        weights = weights * np.float32(alpha)
        shape = weights.shape
    else:
        right = _matrix(graph, node, 1, bool(attributes.get("transB")))
        shape = right.shape
    if len(shape) != 2 or left.shape[1] != shape[0] or not math.isfinite(alpha * beta):
        raise UnsupportedError(f"{list(left.shape)} times {list(shape)}, {alpha}, {beta}")
    made = (left.shape[0], shape[1])
    if graph.is_constant(node.input(1)) and _is_bias(graph, node, made[1]):
        bias = _bias(graph, node, made[1]) * np.float32(beta)
        _connected(graph, node, left, weights, bias, graph.target(result, made, REAL))
        return Result()
    product = graph.temporary(f"{result}_product", TensorType("float", made))
    if graph.is_constant(node.input(1)):
        _connected(graph, node, left, weights, np.zeros(made[1], np.float32), product)
    else:
        sides = [graph.view(side, (1, *side.shape)) for side in (product, left, right)]
        graph.add("batchmatmul", result, sides)
        product = _times(graph, result, product, alpha)
    target = graph.target(result, made, REAL)
    if not node.input(2):
        graph.add("copy", result, (target, product))
        return Result()
    added = graph.broadcast(node.input(2), PLAIN, made, None)
    if added.type.elem != "float":
        raise UnsupportedError(f"{node.input(2)} is {added.type.elem}")
    graph.add("elementadd", result, (target, product, _times(graph, result, added, beta)))
    return Result()


def _is_bias(graph: Lowering, node: Node, outs: int) -> bool:
    """Whether what is added is a constant for each column, or nothing."""
    name = node.input(2)
    if not name or not graph.is_constant(name):
        return not name
    shape = graph.shape(name)
    return math.prod(shape) in (1, outs) and math.prod(shape) == math.prod(shape[-1:])


def _matrix(graph: Lowering, node: Node, place: int, is_turned: bool) -> Value:
    """A side of Gemm, transposed if it is to be."""
    name = node.input(place)
    value = real(graph, name, PLAIN)
    if len(value.shape) != 2:
        raise UnsupportedError(f"{name} {list(value.shape)}")
    return swapped(graph, f"{node.outputs[0]}_{place}", value, 0) if is_turned else value


def _times(graph: Lowering, name: str, value: Value, factor: float) -> Value:
    if factor == 1:
        return value
    made = graph.temporary(f"{name}_scaled", value.type)
    graph.add("elementmulconst", name, (made, value), LHS=factor)
    return made


def product(graph: Lowering, node: Node) -> Result:
    """The right side a constant matrix, or two activations, either broadcast."""
    names, result = node.inputs, node.outputs[0]
    shape, other = graph.shape(names[0]), graph.shape(names[1])
    if min(len(shape), len(other)) < 2 or shape[-1] != other[-2]:
        raise UnsupportedError(f"{list(shape)} times {list(other)}")
    if graph.is_constant(names[1]) and len(other) == 2:
        bias = _bias(graph, node, other[1])  # what was added to it, where that was folded
        target = graph.target(result, (*shape[:-1], other[1]), REAL)
        weights = _weights(graph, names[1])
        _connected(graph, node, real(graph, names[0], PLAIN), weights, bias, target)
        return Result()
    try:
        lead = tuple(np.broadcast_shapes(shape[:-2], other[:-2]))
    except ValueError:
        raise UnsupportedError(f"{list(shape)} times {list(other)}") from None
    wide = [
        graph.broadcast(name, PLAIN, (*lead, *own[-2:]), None)
        for name, own in zip(names, (shape, other), strict=True)
    ]
    for side in wide:
        if side.type.elem != "float":
            raise UnsupportedError(f"{side.name} is {side.type.elem}")
    target = graph.target(result, (*lead, shape[-2], other[-1]), REAL)
    items = math.prod(lead)
    sides = [graph.view(side, (items, *side.shape[-2:])) for side in (target, *wide)]
    graph.add("batchmatmul", result, sides)
    return Result()


def _connected(
    graph: Lowering, node: Node, value: Value, weights: Array, bias: Array, target: Value
) -> None:
    """Rows, the last dimension of ``value``, times weights [ins, outs]."""
    result, rows = node.outputs[0], math.prod(value.shape[:-1])
    operands = (
        graph.view(target, (rows, weights.shape[1])),
        graph.view(value, (rows, value.shape[-1])),
        graph.real_constant(node.input(1), weights),
        graph.real_constant(f"{result}_bias", bias),
    )
    graph.add("fullyconnected", result, operands)


def transposed_convolution(graph: Lowering, node: Node) -> Result:
    """Filter [I, O / group, ...], a constant; pads as they are given."""
    name, result, attributes = node.inputs[0], node.outputs[0], node.attributes
    shape, filters = graph.shape(name), _weights(graph, node.input(1))
    window, size = transposed_window(attributes, shape, filters.shape)
    groups = int(attributes.get("group", 1))
    image = as_image(graph, real(graph, name, LAST))
    outs = filters.shape[1] * groups
    made = (shape[0], outs, *size[4 - len(shape) :])
    target = as_image(graph, graph.target(result, made, REAL, LAST))
    last = np.moveaxis(filters, 0, -1).reshape(filters.shape[1], *window.kernel, shape[1])
    graph.add(
        "convtranspose",
        result,
        (
            target,
            image,
            graph.real_constant(node.input(1), last),
            graph.real_constant(f"{result}_bias", _bias(graph, node, outs)),
        ),
        Kernels=window.kernel,
        Strides=window.strides,
        Pads=window.pads,
        Group=groups,
        Dilation=window.dilation,
    )
    return Result()


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
