"""Operations on integers that have weights: convolutions, matrix products."""

from __future__ import annotations

import math

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.builder import Value, quantized
from nmpsim.frontends.graph.lowering import LAST, Lowering, Result
from nmpsim.frontends.graph.pointwise import as_image, clip, swapped
from nmpsim.frontends.graph.steps import MOVED, IntegerOperation, Quantized, Shape
from nmpsim.frontends.graph.windows import Window, window_of
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import AttributeValue


def convolution(graph: Lowering, step: IntegerOperation) -> Result:
    """``Conv``: filter [O, I / group, ...]."""
    source, weights = step.sources
    shape, filters = graph.image(source.name), graph.held_values(graph.constant(weights.name))
    groups = int(step.attributes.get("group", 1))
    if not 3 <= len(shape) <= 4 or filters.ndim != len(shape) or groups < 1:
        raise UnsupportedError(f"a filter {list(filters.shape)} for an input {list(shape)}")
    if filters.shape[1] * groups != shape[1] or filters.shape[0] % groups:
        raise UnsupportedError(f"{groups} groups, a filter {list(filters.shape)}, {shape[1]}")
    more = graph.padding.get(source.name, (0, 0, 0, 0))
    window = window_of(step.attributes, shape[2:], filters.shape[2:], more)
    result = graph.from_nchw((shape[0], len(filters), *window.out[4 - len(shape) :]))
    last = np.moveaxis(filters, 1, -1).reshape(len(filters), *window.kernel, -1)
    target = graph.target(step.result.name, result, step.result, LAST)
    sides = (as_image(graph, target), as_image(graph, graph.value(source.name, LAST, source)))
    convolve(graph, step, sides, last, window, groups)
    return Result()


def convolve(
    graph: Lowering,
    step: IntegerOperation,
    sides: tuple[Value, Value],
    filters: npt.NDArray[np.generic],
    window: Window,
    groups: int,
) -> None:
    """``filters`` are OHWI."""
    weights, name = step.sources[1], step.result.name
    scales, zeros = _of_weights(weights, len(filters))
    products = np.float32(step.sources[0].scale) * scales
    nothing = np.zeros(len(filters), np.int64)
    fused: dict[str, AttributeValue] = {}
    if step.limits is not None:
        low, high = step.limits
        fused["FusedActivation"] = "RELU" if high is None else "CLIP"
        if high is not None:
            fused["FusedActivationArgs"] = (low, high)
    graph.add(
        "channelwisequantizedconvolution",
        name,
        (
            *sides,
            graph.builder.constant(weights.name, filters, quantized("i8", filters.shape, 1.0, 0)),
            _bias(graph, step, len(filters), 0.0),
            *graph.vectors(name, scales, zeros),
            *graph.vectors(f"{name}_bias", products, nothing),
        ),
        Kernels=window.kernel,
        Strides=window.strides,
        Pads=window.pads,
        Group=groups,
        Dilation=window.dilation,
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


def _bias(graph: Lowering, step: IntegerOperation, outs: int, scale: float) -> Value:
    """On the scale of the sum; zeros if there is none."""
    values = np.zeros(outs, np.int32)
    if step.bias:
        values = graph.constant(step.bias)
        # One for each row is no bias of the columns, as many as there may be.
        is_row = values.size == math.prod(values.shape[-1:])
        wide = ("int64",) if step.sources[0].dtype == "int16" else ()
        if str(values.dtype) not in ("int32", *wide) or values.size not in (1, outs) or not is_row:
            raise UnsupportedError(f"a bias {list(values.shape)} of {values.dtype}")
        values = np.broadcast_to(values.reshape(-1), (outs,))
    name = step.bias or f"{step.result.name}_bias"
    return graph.builder.constant(
        name, values, quantized(f"i{8 * values.itemsize}", (outs,), scale, 0)
    )


def product(graph: Lowering, step: IntegerOperation) -> Result:
    """``MatMul``: the right side a constant, or another activation."""
    left, right = step.sources
    shape, other = graph.shape(left.name), graph.shape(right.name)
    if min(len(shape), len(other)) < 2 or shape[-1] != other[-2]:
        raise UnsupportedError(f"{list(shape)} times {list(other)}")
    if step.kind == "MatMul" and graph.is_constant(right.name) and len(other) == 2:
        rows = (math.prod(shape[:-1]), shape[-1])
        value = graph.view(graph.value(left.name, wanted=left), rows)
        weights = graph.held_values(graph.constant(right.name))
        return _connected(graph, step, value, weights, (*shape[:-1], other[1]))
    if step.bias or step.limits:
        raise UnsupportedError("a bias or clip of a product of two activations")
    lead = _broadcast_lead(shape[:-2], other[:-2])
    result = (*lead, shape[-2], other[-1])
    target = graph.target(step.result.name, result, step.result)
    sides = [graph.value(one.name, wanted=one) for one in step.sources]
    if math.prod(lead) > 1 << 12:
        raise UnsupportedError(f"{math.prod(lead)} products in one")
    for index in np.ndindex(*lead):
        graph.add(
            "matmul", step.result.name, [_part(graph, one, index) for one in (target, *sides)]
        )
    return Result()


def _broadcast_lead(first: Shape, second: Shape) -> Shape:
    try:
        return tuple(np.broadcast_shapes(first, second))
    except ValueError:
        raise UnsupportedError(f"products of {list(first)} and {list(second)}") from None


def _part(graph: Lowering, value: Value, index: tuple[int, ...]) -> Value:
    """The last two dimensions of a tensor, at an index of those before, which may be broadcast."""
    own = value.shape[:-2]
    last = index[len(index) - len(own) :]
    index = tuple(0 if size == 1 else at for at, size in zip(last, own, strict=True))
    type = attrs.evolve(value.type, shape=value.shape[-2:])
    return graph.builder.view(value, type, (*index, 0, 0))


def gemm(graph: Lowering, step: IntegerOperation) -> Result:
    """``Gemm``: the right side a constant; a ``MatMul`` with a bias, too.

    alpha is part of the left side's scale, as in ONNX Runtime.
    """
    left, right = step.sources
    attributes = step.attributes
    alpha = np.float32(attributes.get("alpha", 1.0))
    if not 0 < alpha < np.inf:
        raise UnsupportedError(f"alpha {alpha}")
    if alpha != 1:
        left = attrs.evolve(left, scales=alpha * left.scales)
        step = attrs.evolve(step, sources=(left, right))
    weights = graph.held_values(graph.constant(right.name))
    if weights.ndim != 2:
        raise UnsupportedError(f"weights {list(weights.shape)}")
    if attributes.get("transB"):
        weights = weights.T
    value = graph.value(left.name, wanted=left)
    if attributes.get("transA"):
        value = swapped(graph, step.result.name, value, 0)
    if "rows" in attributes:
        value = graph.view(value, attributes["rows"])
    shape = value.shape
    if len(shape) < 2 or shape[-1] != weights.shape[0]:
        raise UnsupportedError(f"weights {list(weights.shape)} for an input {list(shape)}")
    value = graph.view(value, (math.prod(shape[:-1]), shape[-1]))
    made = attributes.get("shape", (*shape[:-1], weights.shape[1]))
    return _connected(graph, step, value, weights, made)


def _connected(
    graph: Lowering,
    step: IntegerOperation,
    rows: Value,
    weights: npt.NDArray[np.generic],
    result: Shape,
) -> Result:
    """A fully connected layer; ``weights`` are [ins, outs]."""
    outs, name = weights.shape[1], step.result.name
    scales, zeros = _of_weights(step.sources[1], outs)
    whole = graph.target(name, result, step.result)
    target = graph.view(whole, (rows.shape[0], outs))
    made = target if step.limits is None else graph.temporary(f"{name}_sum", target.type)
    if step.sources[1].scales.size == 1:
        kind = quantized("i8", weights.shape, float(scales[0]), int(zeros[0]))
        product = float(np.float32(step.sources[0].scale) * scales[0])
        operands = (graph.builder.constant(step.sources[1].name, weights, kind),)
        bias = _bias(graph, step, outs, product)
        graph.add("fullyconnected", name, (made, rows, *operands, bias))
    else:
        kind = quantized("i8", weights.shape[::-1], 1.0, 0)
        held = graph.builder.constant(step.sources[1].name, weights.T, kind)
        bias = _bias(graph, step, outs, 0.0)
        graph.add(
            "rowwisequantizedfullyconnected",
            name,
            (made, rows, held, bias, *graph.vectors(name, scales, zeros)),
        )
    clip(graph, name, made, target, step.limits)
    return Result()
