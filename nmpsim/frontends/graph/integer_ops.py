"""Elementwise operators on integers: sums, products, look-up tables, concatenation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.graph.movement import check_concatenation
from nmpsim.frontends.graph.nodes import INTEGER_RANGES, UNSIGNED_OFFSETS, QuantizedTensor
from nmpsim.frontends.graph.operation import LoweringResult, OperatorContext, bind_attributes
from nmpsim.frontends.graph.scalar_functions import SCALAR_FUNCTIONS, Floats
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import Value

_OPCODES = {"Add": "elementadd", "Mul": "elementmul", "Sub": "elementsub"}


def unsigned_attribute(op: OperatorContext) -> dict[str, Any]:
    """Return the attribute of instructions that round the zero point of uint8 as a float32."""
    is_unsigned = isinstance(op.result, QuantizedTensor) and op.result.dtype == "uint8"
    return {"Unsigned": 1} if is_unsigned else {}


def lower_integer_pair(op: OperatorContext) -> LoweringResult:
    """Lower Add, Mul and Sub of integers, either operand broadcast."""
    operands = op.read_broadcast()
    words = {} if op.kind == "Sub" else unsigned_attribute(op)
    return op.apply_limits(op.make(_OPCODES[op.kind], *operands, **words))


def lower_integer_clip(op: OperatorContext) -> LoweringResult:
    """Lower a ReLU or clip between any two scales."""
    op.limits = op.limits or (0.0, None)
    return op.apply_limits(op.read())


def lower_scalar_function(op: OperatorContext) -> LoweringResult:
    """Lower a function of one 8-bit value to a look-up table."""
    function = SCALAR_FUNCTIONS[op.kind]
    given = bind_attributes(function, op.node.attributes)
    return tabulate(op, lambda x: function(x, **given))


def lower_integer_division(op: OperatorContext) -> LoweringResult:
    """Lower the division of 8-bit values by one constant number to a look-up table."""
    if len(op.sources) == 2:
        other = op.sources[1]
        divisor = op.lowering.constant(other.name).astype(np.float32)
        divisor = (divisor - np.float32(other.zero_point)) * np.float32(other.scale)
    else:
        divisor = op.values(1)
    require(
        divisor.size == 1 and divisor.ndim <= len(op.shape()) and divisor.any(),
        f"a division by {divisor.size} numbers",
    )
    return tabulate(op, lambda x: x / divisor.astype(np.float32).reshape(()))


def tabulate(op: OperatorContext, function: Callable[[Floats], Any]) -> LoweringResult:
    """Emit a table of the 256 results of a function and of the fused clip."""
    low, high = op.limits or (-np.inf, None)
    high = np.inf if high is None else high
    return _look_up(op, op.read(), op.sources[0], lambda x: np.clip(function(x), low, high))


def _look_up(
    op: OperatorContext, value: Value, source: QuantizedTensor, function: Callable[[Floats], Any]
) -> Value:
    assert isinstance(op.result, QuantizedTensor)
    table = _table(source, op.result, function)
    type = op.lowering.tensor_type(op.result, (256,))
    constant = op.lowering.builder.add_constant(f"{op.name}_table", table, type)
    return op.make("intlookuptable", value, constant)


def _table(
    source: QuantizedTensor, result: QuantizedTensor, function: Callable[[Floats], Any]
) -> npt.NDArray[np.int8]:
    """Compute ``rint(f(S * (q - Z)) / So) + Zo`` for all 256 integers, as they are stored.

    Source: ``QLinearLookupBase`` (onnxruntime/contrib_ops/cpu/quantization/qlinear_lookup_table.cc)
    and MLAS's ``QuantizeLinear``: float32, the zero point after rounding.
    """
    require(
        source.dtype in ("int8", "uint8") and result.dtype == source.dtype,
        f"{source.dtype} to {result.dtype}",
    )
    low, high = INTEGER_RANGES[source.dtype]
    integers = np.arange(low, high + 1) - source.zero_point
    floats = integers.astype(np.float32) * np.float32(source.scale)
    with np.errstate(all="ignore"):
        steps = np.rint(function(floats).astype(np.float32) / np.float32(result.scale))
    require(not np.isnan(steps).any(), "a function that is no number somewhere")
    wide = np.clip(steps.astype(np.float64), -(2.0**31), 2.0**31) + result.zero_point
    offset = UNSIGNED_OFFSETS.get(result.dtype, 0)
    table: npt.NDArray[np.int8] = (np.clip(wide, low, high).astype(np.int64) - offset).astype(
        np.int8
    )
    return table


def lower_integer_concatenation(op: OperatorContext, *, axis: int = 0) -> LoweringResult:
    """Lower Concat of integers; parts on another scale are rescaled by a table."""
    assert isinstance(op.result, QuantizedTensor)
    require(op.limits is None, "a clip of parts")
    axis = check_concatenation(op, list(range(len(op.names))), axis)
    type, parts = op.lowering.tensor_type(op.result, (1,)), []
    layout = op.lowering.common_layout(*op.names)
    for index, source in enumerate(op.sources):
        value = op.read(index, layout)
        if value.type.quant != type.quant:
            if type.elem == "i16":  # ONNX Runtime computes it in float32
                value = op.make("rescalequantized", value)
            else:
                source = attrs.evolve(source, dtype=source.dtype or op.result.dtype)
                value = _look_up(op, value, source, lambda x: x)
        parts.append(value)
    return op.concatenate(op.result, parts, op.layout_axis(axis, len(op.shape())))
