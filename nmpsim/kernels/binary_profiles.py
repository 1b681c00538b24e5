"""Arithmetic of binary operations in each profile, on whole runs.

See :mod:`nmpsim.kernels.profiles` for all other operations. Unless stated otherwise, a result
replaces ``left``; ``reals`` and ``other`` (float32) are buffers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.exhaustive import dispatches_on
from nmpsim.isa.profiles import (
    FLOAT,
    GLOW_FLOAT,
    GLOW_INT,
    NMP,
    ONNX,
    Q31,
    QNNPACK,
    dispatches_on_profiles,
)
from nmpsim.isa.shared_words import OPERATIONS
from nmpsim.isa.words import INT16, OP_ADD, OP_MAX, OP_MIN, OP_MUL, OP_SUB
from nmpsim.kernels.array_types import Float32s, Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import BinaryScales, BinaryShape, IntegerScale
from nmpsim.kernels.rounding import (
    clamp_magnitude,
    float_from_bits,
    round_away,
    rounding_shift,
)
from nmpsim.kernels.saturate import (
    SaturationCounters,
    saturate_run,
)
from nmpsim.kernels.saturation_stages import RESCALE
from nmpsim.kernels.scaling import (
    add_to_floats,
    add_to_run,
    multiply_to_floats,
    round_run_away,
    round_run_even,
    scale_integers,
)

MAX_OPERAND: Any = np.int64(1 << 61)
"""Largest magnitude of an operand, so that 64 bits hold the sum of two."""


@jit
@dispatches_on_profiles("eltwise")
def compute_binary(
    left: Int64s,
    right: Int64s,
    reals: Float32s,
    other: Float32s,
    t: BinaryShape,
    q: BinaryScales,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Compute the results of two runs, before the clip."""
    is_mul = t.operation == OP_MUL
    if q.profile == GLOW_FLOAT and not is_mul:
        combine_glow_float(left, right, t.operation, q, reals, other)
        return
    if is_mul and q.profile in (GLOW_FLOAT, FLOAT):
        multiply_as_floats(left, right, q, reals)
    elif q.profile == FLOAT:
        combine_float(left, right, t.operation, q, reals, other)
    elif q.profile == ONNX:
        combine_onnx(left, right, is_mul, q, reals)
    elif q.profile == QNNPACK:
        combine_qnnpack(left, right, t.operation, q)
    elif q.profile in (GLOW_INT, NMP, Q31):
        combine_integers(left, right, t, q, index, counters)
    add_to_run(left, q.out_offset)


@jit
@dispatches_on(
    ("OP_ADD", "OP_SUB", "OP_MAX", "OP_MIN"),
    (f"OP_{name.upper()}" for name in OPERATIONS if name != "mul"),
)
def apply_operation(operation: Int, left: Int64s | Float32s, right: Int64s | Float32s) -> None:
    """Compute add, sub, max or min of two runs."""
    if operation == OP_ADD:
        for i in range(left.size):
            left[i] += right[i]
    elif operation == OP_SUB:
        for i in range(left.size):
            left[i] -= right[i]
    elif operation == OP_MAX:
        for i in range(left.size):
            left[i] = max(left[i], right[i])
    elif operation == OP_MIN:
        for i in range(left.size):
            left[i] = min(left[i], right[i])


@jit
def multiply_runs(left: Int64s, right: Int64s) -> None:
    """Multiply two runs."""
    for i in range(left.size):
        left[i] *= right[i]


@jit
def combine_integers(
    left: Int64s,
    right: Int64s,
    t: BinaryShape,
    q: BinaryScales,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Combine two runs in glow_int, nmp and q31, without the zero point of the result."""
    if t.operation == OP_MUL:
        multiply_runs(left, right)
        if q.profile != Q31 and t.element != INT16:
            saturate_run(left, RESCALE, index, counters)
    else:
        scale_integers(left, q.lhs_scale, q.profile, t.element, index, counters)
        scale_integers(right, q.rhs_scale, q.profile, t.element, index, counters)
        apply_operation(t.operation, left, right)
    is_sum = t.operation == OP_ADD or t.operation == OP_SUB
    if t.operation == OP_MUL or (q.profile == Q31 and is_sum):
        scale_integers(left, q.out_scale, q.profile, t.element, index, counters)


@jit
def combine_qnnpack(left: Int64s, right: Int64s, operation: Int, q: BinaryScales) -> None:
    """Combine two runs in qnnpack: integer factors, the operation, one shift; no zero point."""
    for i in range(left.size):
        left[i] *= q.lhs_scale.mul
        right[i] *= q.rhs_scale.mul
    apply_operation(operation, left, right)
    for i in range(left.size):
        left[i] = rounding_shift(left[i], q.out_scale.post)


@jit
def multiply_as_floats(left: Int64s, right: Int64s, q: BinaryScales, reals: Float32s) -> None:
    """Multiply two runs in the float profiles, without the zero point of the result."""
    multiply_runs(left, right)
    multiply_to_floats(left, float_from_bits(q.out_scale.mul), reals)
    if q.profile == GLOW_FLOAT:
        round_run_away(reals, left)
    else:
        round_run_even(reals, left)


@jit
def dequantize_fused(values: Int64s, scale: IntegerScale, reals: Float32s) -> None:
    """Compute PyTorch's fused multiply-add, ``value * mul + addend`` rounded to float32 once.

    ``post`` holds the addend; float64 holds the product of an element and a float32.
    """
    factor = np.float64(float_from_bits(scale.mul))
    addend = np.float64(float_from_bits(scale.post))
    for i in range(values.size):
        reals[i] = np.float32(np.float64(values[i]) * factor + addend)


@jit
def combine_float(
    left: Int64s,
    right: Int64s,
    operation: Int,
    q: BinaryScales,
    reals: Float32s,
    other: Float32s,
) -> None:
    """Combine two runs in float: both dequantized, the operation, the result's scale."""
    dequantize_fused(left, q.lhs_scale, reals)
    dequantize_fused(right, q.rhs_scale, other)
    apply_operation(operation, reals, other)
    factor = float_from_bits(q.result_scale)
    for i in range(left.size):
        reals[i] *= factor
    round_run_even(reals, left)


@jit
def fused_multiply_add(x: Any, factor: Any, addend: Any) -> Any:
    """Return ``f32(x * factor + addend)`` of float64 numbers, rounded once.

    ``x`` is an element and ``factor`` a float32, so float64 holds their product. The sum is rounded
    to odd, so that rounding it to float32 is the only visible rounding.
    """
    product = x * factor
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    bits = np.float64(total).view(np.int64)
    if (lost > 0 or lost < 0) and bits & 1 == 0:  # `lost` is NaN for an infinite sum
        bits += 1 if (lost > 0) == (total > 0) else -1
        total = np.int64(bits).view(np.float64)
    return np.float32(total)


@jit
def combine_onnx(
    left: Int64s, right: Int64s, is_mul: bool, q: BinaryScales, reals: Float32s
) -> None:
    """Combine two runs in onnx with two fused additions, or a product and an addend.

    The zero point of the result is not added.
    """
    addend = float_from_bits(q.rhs_scale.post)
    if is_mul:
        multiply_runs(left, right)
        multiply_to_floats(left, float_from_bits(q.out_scale.mul), reals)
        for i in range(left.size):
            reals[i] += addend
    else:
        lhs = np.float64(float_from_bits(q.lhs_scale.mul))
        rhs = np.float64(float_from_bits(q.rhs_scale.mul))
        for i in range(left.size):
            inner = fused_multiply_add(np.float64(right[i]), rhs, np.float64(addend))
            reals[i] = fused_multiply_add(np.float64(left[i]), lhs, np.float64(inner))
    round_run_even(reals, left)


@jit
def combine_glow_float(
    left: Int64s,
    right: Int64s,
    operation: Int,
    q: BinaryScales,
    reals: Float32s,
    other: Float32s,
) -> None:
    """Combine two runs in glow_float like Glow's Interpreter, with the zero point of the result."""
    multiply_to_floats(left, float_from_bits(q.lhs_scale.mul), reals)
    multiply_to_floats(right, float_from_bits(q.rhs_scale.mul), other)
    if operation == OP_ADD:
        factor = float_from_bits(q.out_scale.mul)
        for i in range(left.size):
            total = clamp_magnitude(round_away(reals[i]), MAX_OPERAND)
            total += clamp_magnitude(round_away(other[i]), MAX_OPERAND)
            reals[i] = np.float32(total) * factor
    else:
        apply_operation(operation, reals, other)
    if operation != OP_ADD and operation != OP_SUB:
        divisor = float_from_bits(q.result_scale)
        for i in range(left.size):
            reals[i] /= divisor
    add_to_floats(reals, q.out_offset)
    if operation in (OP_ADD, OP_SUB):
        round_run_away(reals, left)
    else:
        round_run_even(reals, left)
