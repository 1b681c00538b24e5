"""Nodes on real numbers, which the host computes in float32.

ONNX Runtime computes them in float32, too, but adds in other orders; so a last bit may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.functions import UNITS
from nmpsim.frontends.graph.logic import alike, check
from nmpsim.frontends.graph.lowering import LAST, Layout, Lowering, Result
from nmpsim.frontends.graph.pointwise import as_image
from nmpsim.frontends.graph.steps import Node, Shape
from nmpsim.frontends.graph.windows import window_of
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType

Lower = Callable[[Lowering, Node], Result]
REAL = "float32"
AS_CONVOLUTION = "as_convolution"
"""Attribute of a batch norm that becomes a convolution of each channel by itself."""


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


def pair(opcode: str, *, is_mean: bool = False) -> Lower:
    """Tensors, any of them broadcast: two, or more one after the other."""

    def lower(graph: Lowering, node: Node) -> Result:
        result = node.outputs[0]
        shape, layout, sides = alike(graph, node.inputs)
        check(sides, ("float",))
        target = graph.target(result, shape, REAL, layout)
        total = sides[0]
        for place, side in enumerate(sides[1:], 2):
            is_last = place == len(sides) and not is_mean
            made = target if is_last else graph.temporary(f"{result}_part", target.type)
            graph.add(opcode, result, (made, total, side))
            total = made
        if is_mean:
            graph.add("elementdiv", result, (target, total, _number(graph, target, len(sides))))
        elif len(sides) == 1:
            graph.add("copy", result, (target, total))
        return Result()

    return lower


def _number(graph: Lowering, like: Value, number: float) -> Value:
    """A constant as large as a tensor."""
    return graph.real_constant(f"{like.name}_number", np.full(like.shape, number, np.float32))


def exponential_unit(graph: Lowering, node: Node) -> Result:
    """``gamma * (max(x, 0) + alpha * (exp(min(x, 0)) - 1))``; Celu's exponent is over alpha."""
    name, result = node.inputs[0], node.outputs[0]
    layout = graph.layout(name)
    value = real(graph, name, layout)
    target = graph.target(result, graph.shape(name), REAL, layout)
    numbers = {key: float(node.attributes.get(key, d)) for key, d in UNITS[node.op].items()}
    alpha, gamma = numbers["alpha"], numbers.get("gamma", 1.0)
    if alpha == 0 or not math.isfinite(alpha * gamma):
        raise UnsupportedError(f"{numbers}")

    def make(opcode: str, *operands: Value, **given: float) -> Value:
        made = graph.temporary(f"{result}_{opcode}", value.type)
        graph.add(opcode, result, (made, *operands), **given)
        return made

    above = make("elementmulconst", make("relu", value), LHS=gamma)
    below = make("clip", value, Min=-float(np.finfo(np.float32).max), Max=0.0)
    if node.op == "Celu":
        below = make("elementdiv", below, _number(graph, value, alpha))
    missing = make("elementrsubconst", make("elementexp", below), LHS=1.0)
    scaled = make("elementmulconst", missing, LHS=-alpha * gamma)
    graph.add("elementadd", result, (target, above, scaled))
    return Result()


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
    if graph.opset < 7 and len(graph.shape(slopes)) == 1:  # one for each channel
        values = graph.constant(slopes)
        slopes = f"{result}_slopes"
        graph.fold(slopes, values.reshape(-1, *(1,) * (len(shape) - 2)))
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


# --- pools, channels -------------------------------------------------------------------


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


def response_normalization(graph: Lowering, node: Node) -> Result:
    """``LRN`` over an odd number of channels."""
    name, result, attributes = node.inputs[0], node.outputs[0], node.attributes
    shape, size = graph.shape(name), int(attributes.get("size", 0))
    if len(shape) != 4 or size < 1 or size % 2 == 0:
        raise UnsupportedError(f"{size} channels of {list(shape)}")
    value = real(graph, name, LAST)
    target = graph.target(result, shape, REAL, LAST)
    scale = graph.temporary(f"{result}_scale", value.type)
    graph.add(
        "localresponsenormalization",
        result,
        (target, value, scale),
        HalfWindowSize=size // 2,
        Alpha=float(attributes.get("alpha", 1e-4)),
        Beta=float(attributes.get("beta", 0.75)),
        K=float(attributes.get("bias", 1.0)),
    )
    return Result()
