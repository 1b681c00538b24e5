"""Nodes on real numbers, which the host computes in float32.

ONNX Runtime computes them in float32, too, but adds in other orders; so a last bit may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.functions import UNITS
from nmpsim.frontends.graph.lowering import LAST
from nmpsim.frontends.graph.operation import Made, Operation, as_image, check_elems
from nmpsim.frontends.imported_model import UnsupportedError

Lower = Callable[[Operation], Made]
AS_CONVOLUTION = "as_convolution"
"""Attribute of a batch norm that becomes a convolution of each channel by itself."""
_LARGEST = float(np.finfo(np.float32).max)


def unary(opcode: str, **given: float) -> Lower:
    """A function of each value."""

    def lower(op: Operation) -> Made:
        numbers: dict[str, Any] = {
            key: op.number(key.lower(), default) for key, default in given.items()
        }
        if not all(map(math.isfinite, numbers.values())):
            raise UnsupportedError(f"{numbers}")
        return op.make(opcode, op.read(), **numbers)

    return lower


def clip(op: Operation) -> Made:
    """Limits are attributes, or constants."""
    limits = []
    for place, (key, default) in enumerate((("min", -_LARGEST), ("max", _LARGEST)), 1):
        limit = op.attributes.get(key, default)
        if op.node.input(place):
            given = op.values(place)
            if given.size != 1:
                raise UnsupportedError(f"{given.size} limits")
            limit = given.reshape(-1)[0]
        limits.append(max(-_LARGEST, min(_LARGEST, float(limit))))
    if not limits[0] <= limits[1]:
        raise UnsupportedError(f"limits {limits}")
    return op.make("clip", op.read(), Min=limits[0], Max=limits[1])


def series(opcode: str, *, is_mean: bool = False) -> Lower:
    """Tensors, any of them broadcast: two, or more one after the other."""

    def lower(op: Operation) -> Made:
        sides = op.alike()
        check_elems(sides, ("float",))
        total = sides[0]
        for side in sides[1:]:
            total = op.make(opcode, total, side)
        if is_mean:
            return op.make("elementdiv", total, op.full(total, len(sides)))
        return total if len(sides) > 1 else op.make("copy", total)

    return lower


def exponential_unit(op: Operation) -> Made:
    """``gamma * (max(x, 0) + alpha * (exp(min(x, 0)) - 1))``; Celu's exponent is over alpha."""
    value = op.read()
    numbers = {key: op.number(key, default) for key, default in UNITS[op.kind].items()}
    alpha, gamma = numbers["alpha"], numbers.get("gamma", 1.0)
    if alpha == 0 or not math.isfinite(alpha * gamma):
        raise UnsupportedError(f"{numbers}")
    above = op.make("elementmulconst", op.make("relu", value), LHS=gamma)
    below = op.make("clip", value, Min=-_LARGEST, Max=0.0)
    if op.kind == "Celu":
        below = op.make("elementdiv", below, op.full(value, alpha))
    missing = op.make("elementrsubconst", op.make("elementexp", below), LHS=1.0)
    return op.make("elementadd", above, op.make("elementmulconst", missing, LHS=-alpha * gamma))


def hard_sigmoid(op: Operation) -> Made:
    """``clip(alpha * x + beta, 0, 1)``; HardSwish is x times that of 1/6 and 1/2."""
    is_swish, value = op.kind == "HardSwish", op.read()
    alpha = 1 / 6 if is_swish else op.number("alpha", 0.2)
    beta = 0.5 if is_swish else op.number("beta", 0.5)
    scaled = op.make("elementmul", value, op.full(value, alpha))
    moved = op.make("elementadd", scaled, op.full(value, beta))
    gate = op.make("clip", moved, Min=0.0, Max=1.0)
    return op.make("elementmul", value, gate) if is_swish else gate


def prelu(op: Operation) -> Made:
    """``max(x, 0) + slope * min(x, 0)``: one of the two is always zero."""
    graph, shape, slopes = op.graph, op.shape(), op.names[1]
    if graph.opset < 7 and len(op.shape(1)) == 1:  # one for each channel
        slopes = f"{op.name}_slopes"
        graph.fold(slopes, op.values(1).reshape(-1, *(1,) * (len(shape) - 2)))
    value = op.read()
    wide = graph.broadcast(slopes, op.layout, shape, None)
    check_elems([wide], ("float",), slopes)
    above = op.make("relu", value)
    below = op.make("clip", value, Min=-_LARGEST, Max=0.0)
    return op.make("elementadd", above, op.make("elementmul", below, wide))


def batch_normalization(op: Operation) -> Made:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` of each channel."""
    shape, parts = op.shape(), [op.values(place) for place in range(1, 5)]
    if len(shape) < 2 or any(one.shape != (shape[1],) for one in parts):
        raise UnsupportedError(f"parameters {list(parts[0].shape)} for an input {list(shape)}")
    if any(one.dtype != np.float32 for one in parts):
        raise UnsupportedError("parameters that are no float32")
    value, epsilon = op.read(0, LAST), op.number("epsilon", 1e-5)
    if AS_CONVOLUTION in op.attributes and 3 <= len(shape) <= 4:
        return _by_channel(op, value, epsilon)
    names = ("scale", "bias", "mean", "variance")
    return op.make(
        "batchnormalization",
        value,
        *(op.real(what, one) for what, one in zip(names, parts, strict=True)),
        ChannelIdx=len(value.shape) - 1,
        Epsilon=epsilon,
        Momentum=op.number("momentum", 0.9),
    )


def _by_channel(op: Operation, value: Value, epsilon: float) -> Value:
    """The same as a convolution of each channel by itself, which the device has."""
    scale, bias, mean, variance = (op.values(at).astype(np.float64) for at in range(1, 5))
    factor = scale / np.sqrt(variance + epsilon)
    real = op.graph.real_constant
    made = op.make(
        "convolution",
        as_image(op.graph, value),
        real(op.names[1], factor.astype(np.float32).reshape(-1, 1, 1, 1)),
        real(op.names[2], (bias - mean * factor).astype(np.float32)),
        Kernels=(1, 1),
        Strides=(1, 1),
        Pads=(0, 0, 0, 0),
        Group=len(factor),
        Dilation=(1, 1),
    )
    return op.view(made, value.shape)


def response_normalization(op: Operation) -> Made:
    """``LRN`` over an odd number of channels."""
    shape, size = op.shape(), op.integer("size")
    if len(shape) != 4 or size < 1 or size % 2 == 0:
        raise UnsupportedError(f"{size} channels of {list(shape)}")
    value = op.read(0, LAST)
    return op.make(
        "localresponsenormalization",
        value,
        op.room(value.type, value.shape),
        HalfWindowSize=size // 2,
        Alpha=op.number("alpha", 1e-4),
        Beta=op.number("beta", 0.75),
        K=op.number("bias", 1.0),
    )
