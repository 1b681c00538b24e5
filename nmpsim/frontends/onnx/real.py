"""Nodes on real numbers, which the host computes in float32.

ONNX Runtime computes them in float32, too, but adds in other orders; so a last bit may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.onnx.lowering import LAST, PLAIN, Layout, Lowering, Result, Shape
from nmpsim.frontends.onnx.model import Array, Node
from nmpsim.frontends.onnx.pointwise import as_image
from nmpsim.frontends.onnx.weight_folding import AS_CONVOLUTION
from nmpsim.frontends.onnx.windows import Window, window_of
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType

Lower = Callable[[Lowering, Node], Result]
REAL = "float32"


def real(graph: Lowering, name: str, layout: Layout) -> Value:
    """A tensor of float32."""
    value = graph.value(name, layout)
    if value.type.elem != "float":
        raise UnsupportedError(f"{name} is {value.type.elem}")
    return value


def spread(graph: Lowering, name: str, value: Value, shape: Shape) -> Value:
    """One number in all places of a shape."""
    count = math.prod(shape)
    wide = graph.temporary(f"{name}_wide", TensorType("float", (count,)))
    graph.builder.add("touch", f"{name}_touch", (wide,))
    one = graph.view(value, (1,))
    graph.add("inserttensor", name, (wide, one), Offsets=(0,), Count=count, Axis=0)
    return graph.view(wide, shape)


# --- element by element ----------------------------------------------------------------------


def unary(opcode: str, **given: float) -> Lower:
    """A function of each value."""

    def lower(graph: Lowering, node: Node) -> Result:
        name, result = node.inputs[0], node.outputs[0]
        layout = graph.layout(name)
        value = real(graph, name, layout)
        target = graph.target(result, graph.shape(name), REAL, layout)
        numbers = {key: float(node.attributes.get(key.lower(), d)) for key, d in given.items()}
        if not all(map(math.isfinite, numbers.values())):
            raise UnsupportedError(f"{numbers}")
        graph.add(opcode, result, (target, value), **numbers)
        return Result()

    return lower


def clip(graph: Lowering, node: Node) -> Result:
    """Limits are attributes, or constants."""
    name, result = node.inputs[0], node.outputs[0]
    limits = []
    largest = float(np.finfo(np.float32).max)
    for place, (key, default) in enumerate((("min", -largest), ("max", largest)), 1):
        limit = node.attributes.get(key, default)
        if node.input(place):
            given = graph.constant(node.input(place))
            if given.size != 1:
                raise UnsupportedError(f"{given.size} limits")
            limit = given.reshape(-1)[0]
        limits.append(max(-largest, min(largest, float(limit))))
    if not limits[0] <= limits[1]:
        raise UnsupportedError(f"limits {limits}")
    layout = graph.layout(name)
    value = real(graph, name, layout)
    target = graph.target(result, graph.shape(name), REAL, layout)
    graph.add("clip", result, (target, value), Min=limits[0], Max=limits[1])
    return Result()


def pair(opcode: str) -> Lower:
    """Two tensors, either broadcast."""

    def lower(graph: Lowering, node: Node) -> Result:
        names = node.inputs[:2]
        if len(node.inputs) != 2:
            raise UnsupportedError(f"{len(node.inputs)} inputs")
        try:
            shape = tuple(np.broadcast_shapes(*(graph.shape(name) for name in names)))
        except ValueError:
            raise UnsupportedError(" and ".join(str(graph.shape(n)) for n in names)) from None
        layout = graph.layout(*names)
        sides = [graph.broadcast(name, layout, shape, None) for name in names]
        for side in sides:
            if side.type.elem != "float":
                raise UnsupportedError(f"{side.name} is {side.type.elem}")
        graph.add(
            opcode, node.outputs[0], (graph.target(node.outputs[0], shape, REAL, layout), *sides)
        )
        return Result()

    return lower


def hard_sigmoid(graph: Lowering, node: Node) -> Result:
    """``clip(alpha * x + beta, 0, 1)``; HardSwish is x times that of 1/6 and 1/2."""
    name, result = node.inputs[0], node.outputs[0]
    is_swish = node.op == "HardSwish"
    alpha = 1 / 6 if is_swish else float(node.attributes.get("alpha", 0.2))
    beta = 0.5 if is_swish else float(node.attributes.get("beta", 0.5))
    layout = graph.layout(name)
    value = real(graph, name, layout)
    target = graph.target(result, graph.shape(name), REAL, layout)
    numbers = [
        graph.real_constant(f"{result}_{what}", np.full(value.shape, number, np.float32))
        for what, number in (("alpha", alpha), ("beta", beta))
    ]
    scaled, moved = (graph.temporary(f"{result}_{what}", value.type) for what in ("mul", "add"))
    graph.add("elementmul", result, (scaled, value, numbers[0]))
    graph.add("elementadd", result, (moved, scaled, numbers[1]))
    gate = graph.temporary(f"{result}_gate", value.type) if is_swish else target
    graph.add("clip", result, (gate, moved), Min=0.0, Max=1.0)
    if is_swish:
        graph.add("elementmul", result, (target, value, gate))
    return Result()


def prelu(graph: Lowering, node: Node) -> Result:
    """``max(x, 0) + slope * min(x, 0)``: one of the two is always zero."""
    name, slopes, result = node.inputs[0], node.input(1), node.outputs[0]
    shape, layout = graph.shape(name), graph.layout(name)
    value = real(graph, name, layout)
    wide = graph.broadcast(slopes, layout, shape, None)
    if wide.type.elem != "float":
        raise UnsupportedError(f"{slopes} is {wide.type.elem}")
    target = graph.target(result, shape, REAL, layout)
    above, below, scaled = (
        graph.temporary(f"{result}_{what}", value.type) for what in ("above", "below", "scaled")
    )
    graph.add("relu", result, (above, value))
    largest = float(np.finfo(np.float32).max)
    graph.add("clip", result, (below, value), Min=-largest, Max=0.0)
    graph.add("elementmul", result, (scaled, below, wide))
    graph.add("elementadd", result, (target, above, scaled))
    return Result()


def batch_normalization(graph: Lowering, node: Node) -> Result:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` of each channel."""
    name, result = node.inputs[0], node.outputs[0]
    shape = graph.shape(name)
    scale, bias, mean, variance = (graph.constant(node.input(i)) for i in range(1, 5))
    if len(shape) < 2 or any(one.shape != (shape[1],) for one in (scale, bias, mean, variance)):
        raise UnsupportedError(f"parameters {list(scale.shape)} for an input {list(shape)}")
    if any(one.dtype != np.float32 for one in (scale, bias, mean, variance)):
        raise UnsupportedError("parameters that are no float32")
    value = real(graph, name, LAST)
    target = graph.target(result, shape, REAL, LAST)
    if AS_CONVOLUTION in node.attributes and 3 <= len(shape) <= 4:
        _by_channel(graph, node, target, value)
        return Result()
    graph.add(
        "batchnormalization",
        result,
        (
            target,
            value,
            *(
                graph.real_constant(f"{result}_{what}", one)
                for what, one in (
                    ("scale", scale),
                    ("bias", bias),
                    ("mean", mean),
                    ("variance", variance),
                )
            ),
        ),
        ChannelIdx=len(value.shape) - 1,
        Epsilon=float(node.attributes.get("epsilon", 1e-5)),
        Momentum=float(node.attributes.get("momentum", 0.9)),
    )
    return Result()


def _by_channel(graph: Lowering, node: Node, target: Value, value: Value) -> None:
    """The same as a convolution of each channel by itself, which the device has."""
    names = [node.input(place) for place in range(1, 5)]
    scale, bias, mean, variance = (graph.constant(name).astype(np.float64) for name in names)
    factor = scale / np.sqrt(variance + float(node.attributes.get("epsilon", 1e-5)))
    constants = (
        graph.real_constant(names[0], factor.astype(np.float32).reshape(-1, 1, 1, 1)),
        graph.real_constant(names[1], (bias - mean * factor).astype(np.float32)),
    )
    graph.add(
        "convolution",
        node.outputs[0],
        (as_image(graph, target), as_image(graph, value), *constants),
        Kernels=(1, 1),
        Strides=(1, 1),
        Pads=(0, 0, 0, 0),
        Group=len(factor),
        Dilation=(1, 1),
    )


# --- weights ---------------------------------------------------------------------------------


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
    """alpha and beta 1, the right side a constant."""
    attributes = node.attributes
    if any(attributes.get(k, 1.0) != 1.0 for k in ("alpha", "beta")) or attributes.get("transA"):
        raise UnsupportedError("alpha, beta, or the left side transposed")
    weights = _weights(graph, node.input(1))
    shape = graph.shape(node.inputs[0])
    if attributes.get("transB"):
        weights = weights.T
    if weights.ndim != 2 or len(shape) != 2 or shape[1] != weights.shape[0]:
        raise UnsupportedError(f"weights {list(weights.shape)} for an input {list(shape)}")
    bias = _bias(graph, node, weights.shape[1])
    return _connected(graph, node, shape, weights, bias)


def product(graph: Lowering, node: Node) -> Result:
    """The right side a constant matrix, or both alike."""
    names, result = node.inputs, node.outputs[0]
    shape, other = graph.shape(names[0]), graph.shape(names[1])
    if min(len(shape), len(other)) < 2 or shape[-1] != other[-2]:
        raise UnsupportedError(f"{list(shape)} times {list(other)}")
    if graph.is_constant(names[1]) and len(other) == 2:
        return _connected(
            graph, node, shape, _weights(graph, names[1]), _bias(graph, node, other[1])
        )
    lead = shape[:-2]
    if lead != other[:-2]:
        raise UnsupportedError(f"{list(shape)} times {list(other)}")
    items = math.prod(lead)
    sides = [
        graph.view(side, (items, *side.shape[-2:]))
        for side in (
            graph.target(result, (*shape[:-1], other[-1]), REAL),
            real(graph, names[0], PLAIN),
            real(graph, names[1], PLAIN),
        )
    ]
    graph.add("batchmatmul", result, sides)
    return Result()


def _connected(graph: Lowering, node: Node, shape: Shape, weights: Array, bias: Array) -> Result:
    result = node.outputs[0]
    rows = math.prod(shape[:-1])
    value = graph.view(real(graph, node.inputs[0], PLAIN), (rows, shape[-1]))
    whole = graph.target(result, (*shape[:-1], weights.shape[1]), REAL)
    target = graph.view(whole, (rows, weights.shape[1]))
    graph.add(
        "fullyconnected",
        result,
        (
            target,
            value,
            graph.real_constant(node.input(1), weights),
            graph.real_constant(f"{result}_bias", bias),
        ),
    )
    return Result()


# --- pools, means, softmax -------------------------------------------------------------------


def average_pool(graph: Lowering, node: Node) -> Result:
    """A window over rows and columns; or over all of them."""
    name, result = node.inputs[0], node.outputs[0]
    shape = graph.shape(name)
    if not 3 <= len(shape) <= 4:
        raise UnsupportedError(f"an input {list(shape)}")
    is_global = node.op == "GlobalAveragePool"
    attributes = {"kernel_shape": tuple(shape[2:])} if is_global else node.attributes
    window = window_of(attributes, shape[2:])
    if window.dilation != (1, 1) or (window.is_extended and window.counts_padding):
        raise UnsupportedError(f"dilations {window.dilation}, or ceil_mode with counted padding")
    value = real(graph, name, LAST)
    made = (*shape[:2], *window.out[4 - len(shape) :])
    target = graph.target(result, made, REAL, LAST)
    graph.add(
        "avgpool",
        result,
        (as_image(graph, target), as_image(graph, value)),
        Kernels=window.kernel,
        Strides=window.strides,
        Pads=window.pads,
        CountIncludePads=int(window.counts_padding),
    )
    return Result()


def mean(graph: Lowering, node: Node) -> Result:
    """Neighbouring dimensions become the rows of a window that covers them."""
    name, result = node.inputs[0], node.outputs[0]
    shape = graph.shape(name)
    given = node.attributes.get("axes")
    if given is None and node.input(1):
        given = graph.integers(node.input(1))
    axes = sorted({a % max(len(shape), 1) for a in (range(len(shape)) if given is None else given)})
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        raise UnsupportedError(f"dimensions {axes}, which are not neighbours")
    first, last = axes[0], axes[-1] + 1
    outer, rows, inner = map(math.prod, (shape[:first], shape[first:last], shape[last:]))
    kept = (1,) * len(axes) if node.attributes.get("keepdims", 1) else ()
    if len(shape) == 4 and axes == [2, 3]:  # an image's, where channels come last
        made = graph.target(result, (*shape[:2], *kept), REAL, LAST if kept else PLAIN)
        target = graph.view(made, (shape[0], 1, 1, shape[1]))
        _average(graph, result, target, real(graph, name, LAST), (shape[2], shape[3]))
        return Result()
    value = graph.view(real(graph, name, PLAIN), (outer, rows, 1, inner))
    whole = graph.target(result, (*shape[:first], *kept, *shape[last:]), REAL)
    _average(graph, result, graph.view(whole, (outer, 1, 1, inner)), value, (rows, 1))
    return Result()


def _average(
    graph: Lowering, name: str, target: Value, source: Value, window: tuple[int, int]
) -> None:
    """Over the whole of an image."""
    graph.add(
        "avgpool",
        name,
        (target, source),
        Kernels=window,
        Strides=(1, 1),
        Pads=(0, 0, 0, 0),
        CountIncludePads=1,
    )


def softmax(graph: Lowering, node: Node) -> Result:
    """Along the last dimension; before opset 13 along all from one on."""
    name, result = node.inputs[0], node.outputs[0]
    shape = graph.shape(name)
    axis = int(node.attributes.get("axis", -1 if graph.opset >= 13 else 1))
    if not shape or not -len(shape) <= axis < len(shape):
        raise UnsupportedError(f"dimension {axis} of {list(shape)}")
    axis %= len(shape)
    if graph.opset >= 13 and math.prod(shape[axis + 1 :]) > 1:
        raise UnsupportedError(f"dimension {axis} of {list(shape)}, which is not the last")
    rows = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    value = graph.view(real(graph, name, PLAIN), rows)
    graph.add("softmax", result, (graph.view(graph.target(result, shape, REAL), rows), value))
    return Result()
