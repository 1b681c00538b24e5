"""Lowering of elementwise operators and concatenation of quantized tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.graph.constant_folding import FOLDS
from nmpsim.frontends.graph.float_ops import EXPONENTIAL_UNITS
from nmpsim.frontends.graph.nodes import INTEGER_RANGES, Node, QuantizedTensor
from nmpsim.frontends.graph.operation import (
    GraphLowering,
    LoweringResult,
    bind_attributes,
    normalize_axis,
)
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import BuilderTensor
from nmpsim.kernels.hostops.rounding import fused_multiply_add

Floats = npt.NDArray[np.float32]


def make_unsigned_attribute(op: GraphLowering) -> dict[str, Any]:
    """Return ``{"Unsigned": 1}`` for an instruction with a uint8 result, else an empty dict."""
    is_unsigned = isinstance(op.result, QuantizedTensor) and op.result.dtype == "uint8"
    return {"Unsigned": 1} if is_unsigned else {}


def lower_integer_binary(op: GraphLowering, *, opcode: str) -> LoweringResult:
    """Lower Add, Mul or Sub of two quantized tensors with broadcasting."""
    operands = op.read_broadcast_operands()
    words = {} if opcode == "elementsub" else make_unsigned_attribute(op)
    return op.emit_fused_clip(op.emit_result(opcode, *operands, **words))


def lower_integer_clip(op: GraphLowering) -> LoweringResult:
    """Lower Relu or Clip of a quantized tensor and rescale the result."""
    op.limits = op.limits or (0.0, None)
    return op.emit_fused_clip(op.read_operand())


# --- functions of one value ------------------------------------------------------------------


_LOGISTIC_P: Floats = np.array(
    (4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03,
     2.48287947061529e-01), np.float32,
)  # fmt: skip
_LOGISTIC_Q: Floats = np.array(
    (6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03,
     1.16817656904453e-01, 9.93151921023180e-01), np.float32,
)  # fmt: skip
"""Coefficients of ONNX Runtime's logistic function, the highest power first."""


def _polynomial(square: Floats, coefficients: Floats) -> Floats:
    total = np.full_like(square, coefficients[0])
    for coefficient in coefficients[1:]:
        total = fused_multiply_add(total, square, coefficient)
    return total


def _sigmoid(x: Floats) -> Any:
    """Compute ONNX Runtime's approximation of the logistic function: ``x * p(x^2) / q(x^2) + 0.5``.

    Source: ``onnxruntime/core/mlas/lib/logistic.cpp`` and ``LogisticKernelFma3``. It has absolute
    errors of up to 1e-7, many times the value of the function far below 0. Processors without
    fused multiplication and addition round more often there.
    """
    x = np.clip(x, np.float32(-18), np.float32(18))
    square = x * x
    quotient = (_polynomial(square, _LOGISTIC_P) * x) / _polynomial(square, _LOGISTIC_Q)
    return np.maximum(quotient + np.float32(0.5), np.float32(0))


def _leaky_relu(x: Floats, alpha: float = 0.01) -> Any:
    return np.where(x >= 0, x, x * np.float32(alpha))


def _hard_sigmoid(x: Floats, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return np.clip(x * np.float32(alpha) + np.float32(beta), 0, 1)


def _exponential_unit(op: str) -> Callable[..., Any]:
    """Return ``gamma * (max(x, 0) + alpha * (exp(min(x, 0)) - 1))``; Celu: exp of x over alpha."""
    defaults = EXPONENTIAL_UNITS[op]

    def function(
        x: Floats, alpha: float = defaults["alpha"], gamma: float = defaults.get("gamma", 1.0)
    ) -> Any:
        gamma = gamma if "gamma" in defaults else 1.0
        below = np.minimum(x.astype(np.float64), 0) / (alpha if op == "Celu" else 1)
        return (gamma * (np.maximum(x, 0) + alpha * np.expm1(below))).astype(np.float32)

    return function


SCALAR_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Celu": _exponential_unit("Celu"),
    "Cos": np.cos,
    "Elu": _exponential_unit("Elu"),
    "Erf": lambda x: np.array([math.erf(one) for one in x], np.float32),
    "Exp": lambda x: np.exp(x.astype(np.float64)),
    "Floor": np.floor,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda x: x * _hard_sigmoid(x, 1 / 6),
    "LeakyRelu": _leaky_relu,
    "Neg": np.negative,
    "Round": np.rint,
    "Selu": _exponential_unit("Selu"),
    "Sigmoid": _sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Tanh": lambda x: np.tanh(x.astype(np.float64)),
}
"""Operator -> its function of float32 [N] and, as keyword arguments, attributes; finite for finite
arguments."""


def _clip(x: Floats, low: Any = None, high: Any = None, **limits: float) -> Any:
    low = limits.get("min", -np.inf) if low is None else low
    return np.clip(x, low, limits.get("max", np.inf) if high is None else high)


_PAIRS = ("Add", "Div", "Max", "Min", "Mul", "Sub")
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **SCALAR_FUNCTIONS,
    **{op: FOLDS[op] for op in _PAIRS},
    "Clip": _clip,
    "Relu": lambda x: np.maximum(x, 0),
}
"""Elementwise operator -> its function of float32 arrays and attributes."""
EXACT_FUNCTIONS = frozenset((*_PAIRS, "Abs", "Clip", "HardSigmoid", "LeakyRelu", "Neg", "Relu"))
"""Operators of ``FUNCTIONS`` whose results are those of ONNX Runtime to the bit."""


def lower_scalar_function(op: GraphLowering) -> LoweringResult:
    """Lower a function of 8-bit integers, such as Sigmoid, to a look-up table."""
    function = SCALAR_FUNCTIONS[op.kind]
    given = bind_attributes(function, op.node.attributes)
    return emit_lookup_table(op, lambda x: function(x, **given))


def lower_integer_division(op: GraphLowering) -> LoweringResult:
    """Lower Div of 8-bit integers by a one-element constant to a look-up table."""
    if len(op.sources) == 2:
        other = op.sources[1]
        divisor = op.get_constant(other.name).astype(np.float32)
        divisor = (divisor - np.float32(other.zero_point)) * np.float32(other.scale)
    else:
        divisor = op.get_constant(1)
    require(
        divisor.size == 1, f"a divisor of shape {list(divisor.shape)}", "a divisor with one element"
    )
    rank = len(op.get_shape())
    require(
        divisor.ndim <= rank,
        f"a divisor with {divisor.ndim} dimensions for an input with {rank}",
        f"a divisor with at most {rank} dimensions",
    )
    require(divisor.any(), "a divisor of 0", "a divisor other than 0")
    return emit_lookup_table(op, lambda x: x / divisor.astype(np.float32).reshape(()))


def emit_lookup_table(op: GraphLowering, function: Callable[[Floats], Any]) -> LoweringResult:
    """Emit a look-up in a 256-entry table that computes ``function`` and the fused clip."""
    low, high = op.limits or (-np.inf, None)
    high = np.inf if high is None else high
    return _look_up(op, op.read_operand(), op.sources[0], lambda x: np.clip(function(x), low, high))


def _look_up(
    op: GraphLowering,
    value: BuilderTensor,
    source: QuantizedTensor,
    function: Callable[[Floats], Any],
) -> BuilderTensor:
    """Emit the table of ``rint(f(S * (q - Z)) / So) + Zo``.

    Source: ``QLinearLookupBase`` (onnxruntime/contrib_ops/cpu/quantization/qlinear_lookup_table.cc)
    and MLAS's ``QuantizeLinear``: float32, the zero point after rounding.
    """
    result = op.quantized_result
    require(
        source.dtype in ("int8", "uint8"),
        f"input {source.name} of {source.dtype}",
        "an input of int8 or uint8",
    )
    require(
        result.dtype == source.dtype,
        f"a result of {result.dtype} from an input of {source.dtype}",
        f"a result of {source.dtype}",
    )
    floats = _list_real_values(source)
    with np.errstate(all="ignore"):
        steps = np.rint(function(floats).astype(np.float32) / np.float32(result.scale))
    undefined = np.isnan(steps)
    require(
        not undefined.any(),
        f"the result NaN for the input value {floats[undefined.argmax()]:g}",
        "a result other than NaN for each input value",
    )
    steps = np.clip(steps.astype(np.float64), -(2.0**31), 2.0**31)
    return op.emit_table_lookup(value, steps + result.zero_point)


def _list_real_values(source: QuantizedTensor) -> Floats:
    """Return the real value of each integer of a quantized type, the lowest first."""
    low, high = INTEGER_RANGES[source.dtype]
    integers = np.arange(low, high + 1) - source.zero_point
    return integers.astype(np.float32) * np.float32(source.scale)


def lower_requantization(op: GraphLowering) -> LoweringResult:
    """Lower a requantization of 8-bit integers by PyTorch's formula, or a function by its nodes."""
    result, own = op.quantized_result, op.sources[0]
    if op.node.integers and op.node.integers.float_nodes:
        nodes, rank = op.node.integers.float_nodes, len(op.get_shape())
        return emit_lookup_table(op, lambda x: _evaluate_nodes(op, nodes, x, rank))
    if own.has_equal_parameters(result):
        return op.define_view(op.get_shape())
    steps = np.rint(_list_real_values(own) * (np.float32(1) / np.float32(result.scale)))
    return op.emit_table_lookup(op.read_operand(), steps + result.zero_point)


def _evaluate_nodes(op: GraphLowering, nodes: Sequence[Node], x: Floats, rank: int) -> Any:
    """Evaluate the nodes from DequantizeLinear to QuantizeLinear for real values ``x``."""
    values: dict[str, Any] = {}
    for node in nodes[:-1]:
        given: list[Any] = []
        for name in node.inputs:
            if name and name not in values and node.op != "DequantizeLinear":
                constant = op.get_constant(name)
                found = f"constant {name} of shape {list(constant.shape)}"
                is_number = constant.size == 1 and constant.ndim <= rank
                require(is_number, found, f"one element and at most {rank} dimensions")
                values[name] = constant.reshape(())
            given.append(values.get(name))
        function = FUNCTIONS.get(node.op)
        bound = bind_attributes(function, node.attributes) if function else {}
        values[node.outputs[0]] = function(*given, **bound) if function else x
    return values[nodes[-1].inputs[0]]


def lower_integer_concatenation(op: GraphLowering, *, axis: int = 0) -> LoweringResult:
    """Lower Concat of quantized tensors; rescale operands to the scale of the result."""
    require(op.limits is None, f"a fused clip to {op.limits}", "a concatenation without a clip")
    type, parts = op.make_tensor_type(op.result, (1,)), []
    layout = op.choose_layout(*op.names)
    for index, source in enumerate(op.sources):
        value = op.read_operand(index, layout)
        if value.type.quant != type.quant:
            if type.elem == "i16":  # ONNX Runtime computes it in float32
                value = op.emit_result("rescalequantized", value)
            else:
                source = attrs.evolve(source, dtype=source.dtype or op.quantized_result.dtype)
                value = _look_up(op, value, source, lambda x: x)
        parts.append(value)
    axis = op.find_stored_axis(normalize_axis(axis, op.get_shape()), len(op.get_shape()))
    return op.emit_concatenation(op.result, parts, axis)
