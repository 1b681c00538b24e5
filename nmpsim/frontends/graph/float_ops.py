"""Lowering of elementwise operators on floats and booleans, which the host executes.

ONNX Runtime also computes them in float32, but adds in another order, so the last bit may differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nmpsim.frontends.graph.convolution import emit_float_convolution
from nmpsim.frontends.graph.lowering import CHANNELS_LAST, PLAIN
from nmpsim.frontends.graph.nodes import Array
from nmpsim.frontends.graph.operation import (
    GraphLowering,
    Integers,
    LoweringResult,
    as_image,
    check_element_types,
)
from nmpsim.frontends.graph.windows import Window
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import BuilderTensor

AS_CONVOLUTION = "as_convolution"
"""Attribute of a batch norm that is lowered to a convolution of each channel."""
_MAX_FLOAT = float(np.finfo(np.float32).max)
EXPONENTIAL_UNITS: dict[str, dict[str, float]] = {
    "Celu": {"alpha": 1.0},
    "Elu": {"alpha": 1.0},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
}
"""Exponential unit -> default values of its attributes."""


def lower_unary(op: GraphLowering, *, opcode: str) -> LoweringResult:
    """Lower an elementwise operator of one float tensor, such as Exp, to ``opcode``."""
    return op.emit_result(opcode, op.read_operand())


def lower_variadic(op: GraphLowering, *, opcode: str, is_mean: bool = False) -> LoweringResult:
    """Lower Add, Max, Mean or another operator that combines any number of float tensors."""
    operands = op.read_broadcast_operands()
    check_element_types(operands, ("float",))
    total = operands[0]
    for operand in operands[1:]:
        total = op.emit_result(opcode, total, operand)
    if is_mean:
        return op.emit_result(
            "elementdiv", total, op.add_filled_constant(total.shape, len(operands))
        )
    return total if len(operands) > 1 else op.emit_result("copy", total)


def lower_logic(
    op: GraphLowering, *, opcode: str, elems: Sequence[str], is_reversed: bool = False
) -> LoweringResult:
    """Lower a comparison or a logical operator of two tensors to ``opcode``."""
    operands = op.read_broadcast_operands()
    check_element_types(operands, elems)
    return op.emit(opcode, *(operands[::-1] if is_reversed else operands), kind="bool")


def lower_where(op: GraphLowering) -> LoweringResult:
    """Lower Where, which selects elements from two tensors by a condition."""
    condition, *operands = op.read_broadcast_operands()
    check_element_types([condition], ("bool",))
    check_element_types(operands, ("float", "index32", "index64"))
    return op.emit("elementselect", condition, *operands, kind=operands[0].type)


def lower_expand(op: GraphLowering, shape: Integers) -> LoweringResult:
    """Lower Expand, which broadcasts a tensor to a constant shape."""
    own = op.get_shape()
    wide = tuple(np.broadcast_shapes(own, tuple(shape)))
    require(math.prod(wide) > 0, f"a result of shape {list(wide)}", "dimensions of 1 or more")
    op.layout = op.choose_layout(op.names[0]) if len(wide) == len(own) else PLAIN
    return op.emit("copy", op.broadcast_operand(0, wide))


def lower_leaky_relu(op: GraphLowering, *, alpha: float = 0.01) -> LoweringResult:
    """Lower LeakyRelu: ``x`` if positive, otherwise ``alpha * x``."""
    require(math.isfinite(alpha), f"alpha {alpha}", "a finite alpha")
    return op.emit_result("leakyrelu", op.read_operand(), Alpha=alpha)


def lower_clip(
    op: GraphLowering, min: float = -_MAX_FLOAT, max: float = _MAX_FLOAT
) -> LoweringResult:
    """Lower Clip of a float tensor with constant limits."""
    low, high = (float(np.clip(limit, -_MAX_FLOAT, _MAX_FLOAT)) for limit in (min, max))
    return op.emit_result("clip", op.read_operand(), Min=low, Max=high)


def lower_exponential_unit(op: GraphLowering) -> LoweringResult:
    """Lower Elu, Celu or Selu, which are linear above zero and exponential below.

    ``gamma * (max(x, 0) + alpha * (exp(min(x, 0)) - 1))``; the exponent of Celu is over alpha.
    """
    value, given = op.read_operand(), op.node.attributes
    numbers = {key: float(given.get(key, d)) for key, d in EXPONENTIAL_UNITS[op.kind].items()}
    alpha, gamma = numbers["alpha"], numbers.get("gamma", 1.0)
    require(alpha != 0, "alpha 0", "alpha other than 0")
    require(math.isfinite(alpha), f"alpha {alpha}", "a finite alpha")
    require(
        math.isfinite(alpha * gamma),
        f"gamma {gamma} and alpha {alpha}",
        "gamma and alpha with a finite product",
    )
    above = op.emit_result("elementmulconst", op.emit_result("relu", value), LHS=gamma)
    below = op.emit_result("clip", value, Min=-_MAX_FLOAT, Max=0.0)
    if op.kind == "Celu":
        below = op.emit_result("elementdiv", below, op.add_filled_constant(value.shape, alpha))
    missing = op.emit_result("elementrsubconst", op.emit_result("elementexp", below), LHS=1.0)
    return op.emit_result(
        "elementadd", above, op.emit_result("elementmulconst", missing, LHS=-alpha * gamma)
    )


def lower_hard_sigmoid(
    op: GraphLowering, *, alpha: float = 0.2, beta: float = 0.5
) -> BuilderTensor:
    """Lower HardSigmoid ``clip(alpha * x + beta, 0, 1)``."""
    value = op.read_operand()
    scaled = op.emit_result("elementmul", value, op.add_filled_constant(value.shape, alpha))
    moved = op.emit_result("elementadd", scaled, op.add_filled_constant(value.shape, beta))
    return op.emit_result("clip", moved, Min=0.0, Max=1.0)


def lower_hard_swish(op: GraphLowering) -> LoweringResult:
    """Lower HardSwish ``x * clip(x / 6 + 1 / 2, 0, 1)``."""
    gate = lower_hard_sigmoid(op, alpha=1 / 6)
    return op.emit_result("elementmul", op.read_operand(), gate)


def lower_prelu(op: GraphLowering) -> LoweringResult:
    """Lower PRelu as ``max(x, 0) + slope * min(x, 0)``."""
    shape, slopes = op.get_shape(), op.names[1]
    if op.opset < 7 and len(op.get_shape(1)) == 1:  # one for each channel
        slopes = f"{op.name}_slopes"
        op.define_constant(slopes, op.get_constant(1).reshape(-1, *(1,) * (len(shape) - 2)))
    value = op.read_operand()
    wide = op.broadcast(slopes, op.layout, shape, None)
    check_element_types([wide], ("float",), slopes)
    above = op.emit_result("relu", value)
    below = op.emit_result("clip", value, Min=-_MAX_FLOAT, Max=0.0)
    return op.emit_result("elementadd", above, op.emit_result("elementmul", below, wide))


def lower_batch_normalization(
    op: GraphLowering,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> LoweringResult:
    """Lower BatchNormalization: ``(x - mean) / sqrt(variance + epsilon) * scale + bias``."""
    parts = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    for name, part in parts.items():
        require(part.dtype == np.float32, f"{name} of type {part.dtype}", f"{name} of type float32")
    value = op.read_operand(0, CHANNELS_LAST)
    if AS_CONVOLUTION in op.node.attributes and 3 <= len(value.shape) <= 4:
        wide_scale, wide_bias, wide_mean, wide_variance = (
            part.astype(np.float64) for part in parts.values()
        )
        factor = wide_scale / np.sqrt(wide_variance + epsilon)
        filters = factor.astype(np.float32).reshape(-1, 1, 1, 1)
        shift = (wide_bias - wide_mean * factor).astype(np.float32)
        image = as_image(op, value)
        window = Window((1, 1), out=(image.shape[1], image.shape[2]))
        return op.make_view(
            emit_float_convolution(op, image, filters, shift, window, len(factor)), value.shape
        )
    return op.emit_result(
        "batchnormalization",
        value,
        *(op.add_result_constant(name, part) for name, part in parts.items()),
        ChannelIdx=len(value.shape) - 1,
        Epsilon=epsilon,
        Momentum=momentum,
    )


def lower_response_normalization(
    op: GraphLowering,
    *,
    size: int = 0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
) -> LoweringResult:
    """Lower LRN (local response normalization) with an odd number of channels in a window."""
    shape = op.get_shape()
    require(len(shape) == 4, f"an input of shape {list(shape)}", "an input with 4 dimensions")
    require(size > 0 and size % 2, f"size {size}", "a positive odd size")
    value = op.read_operand(0, CHANNELS_LAST)
    return op.emit_result(
        "localresponsenormalization",
        value,
        op.allocate(value.type, value.shape),
        HalfWindowSize=size // 2,
        Alpha=alpha,
        Beta=beta,
        K=bias,
    )
