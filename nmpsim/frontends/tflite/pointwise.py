"""Lowering of TFLite's elementwise operators, type conversions, resizing and softmax."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.integer_ops import make_unsigned_attribute
from nmpsim.frontends.graph.nodes import INTEGER_RANGES
from nmpsim.frontends.graph.operation import GraphLowering, LoweringResult
from nmpsim.frontends.graph.resizing import emit_repetition, find_repetition
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import BuilderTensor
from nmpsim.frontends.tflite.tables import (
    INT16_FUNCTIONS,
    TABLES,
    TableFunction,
    rescale_leaky_relu,
)
from nmpsim.kernels.hostops.resize import ResizeCoordinates
from nmpsim.kernels.hostops.rounding import shift_away

_INT16_VALUES = np.arange(-32768, 32768)


def lower_binary(
    op: GraphLowering, *, opcode: str, pot_scale_int16: bool = False
) -> LoweringResult:
    """Lower ADD, SUB, MUL, MAXIMUM or MINIMUM with broadcasting."""
    if pot_scale_int16 and all(source.dtype == "int16" for source in op.sources):
        _shift_finer_operand(op)
    return op.emit_fused_clip(op.emit_result(opcode, *op.read_broadcast_operands()))


def _shift_finer_operand(op: GraphLowering) -> None:
    """Shift the Int16 operand of a sum that is on the finer of scales that are powers of two.

    Both are then on the result's scale, where a sum is exact. Sources: ``Prepare`` (add.cc) and
    ``Add`` of Int16 (internal/reference/add.h): the shift rounds halves away from zero.
    """
    powers = [math.log2(kind.scale) for kind in (*op.sources, op.quantized_result)]
    rounded = [round(power) for power in powers]
    if any(abs(power - near) >= 1e-3 for power, near in zip(powers, rounded, strict=True)):
        return
    shifts = [rounded[2] - power for power in rounded[:2]]
    is_broadcast = op.kind == "ADD" and op.get_shape(0) != op.get_shape(1)
    scales = [f"2^{power}" for power in rounded]
    require(
        min(shifts) == 0,
        f"int16 operands with the scales {scales[0]} and {scales[1]}",
        f"one operand with {scales[2]}, the result's scale, and one with a smaller scale",
    )
    require(
        not is_broadcast,
        f"int16 operands of shape {list(op.get_shape(0))} and {list(op.get_shape(1))}",
        "equal shapes",
    )
    names, sources = list(op.names), list(op.sources)
    for index, shift in enumerate(shifts):
        if shift > 0:
            values = shift_away(_INT16_VALUES, shift)
            names[index], sources[index] = f"{op.name}_shifted", op.quantized_result
            shifted = op.emit_table_lookup(op.read_operand(index), values)
            op.define_tensor(names[index], shifted, op.layout, is_own=True)
    op.names, op.sources = tuple(names), tuple(sources)


def lower_clip(op: GraphLowering) -> LoweringResult:
    """Lower RELU, RELU6 or RELU_N1_TO_1, which rescale before they clip.

    The factor is a float32 quotient (``ReluPrepare``, activations.cc), as of a leaky ReLU.
    """
    value = op.read_operand()
    if value.type != op.make_tensor_type(op.result, value.shape):
        value = _rescale(op, value, 1.0)
    return op.emit_fused_clip(value)


def lower_leaky_relu(op: GraphLowering, *, alpha: float) -> LoweringResult:
    """Lower LEAKY_RELU to an instruction, or to a table if the device lacks the slope."""
    require(math.isfinite(alpha), f"alpha {alpha:g}", "a finite alpha")
    if alpha > 0:
        return _rescale(op, op.read_operand(), alpha)
    return _look_up(op, lambda x, own, out: rescale_leaky_relu(x, own, out, alpha))


def _rescale(op: GraphLowering, value: BuilderTensor, alpha: float) -> BuilderTensor:
    """Emit a leaky ReLU that converts to the result's scale; for Int16 by a table."""
    if op.sources[0].dtype != "int16":
        return op.emit_result("leakyrelu", value, Alpha=alpha)
    return _look_up(op, lambda x, own, out: rescale_leaky_relu(x, own, out, alpha))


def lower_table(op: GraphLowering) -> LoweringResult:
    """Lower LOGISTIC, TANH or HARD_SWISH to a look-up table."""
    source, result = op.sources[0], op.quantized_result
    if source.dtype != "int16":
        return _look_up(op, TABLES[op.kind])
    require(
        result.scale == 1 / 32768,
        f"a result scale of {result.scale:g}",
        "a result scale of 1/32768",
    )
    for kind in (source, result):
        require(not kind.zero_point, f"zero point {kind.zero_point} of {kind.name}", "zero point 0")
    found = f"an input scale of {source.scale:g}"
    require(source.scale * 3 * 4096 <= 32767, found, "an input scale of at most 2.66")
    require(
        op.kind in INT16_FUNCTIONS, f"input {source.name} of int16", "an input of int8 or uint8"
    )
    return op.emit_table_lookup(
        op.read_operand(), INT16_FUNCTIONS[op.kind](_INT16_VALUES, source.scale)
    )


def _look_up(op: GraphLowering, function: TableFunction) -> BuilderTensor:
    """Emit the table of a function of integers minus their zero point."""
    source, result = op.sources[0], op.quantized_result
    low, high = INTEGER_RANGES[source.dtype]
    values = np.arange(low, high + 1) - source.zero_point
    results = function(values, source.scales[0], result.scales[0])
    return op.emit_table_lookup(op.read_operand(), results + result.zero_point)


def lower_prelu(op: GraphLowering) -> LoweringResult:
    """Lower PRELU to ``rescale(max(x, 0)) + min(x, 0) * slope``.

    One of the two is always zero, so their sum is exact. The factor of the first is a float32
    quotient, as of a leaky ReLU. Source: ``Prelu`` (internal/reference/prelu.h).
    """
    source, slopes = op.sources
    slope_dtype = source.dtype.replace("int16", "int8")
    found = f"slopes of {slopes.dtype} for an input of {source.dtype}"
    require(slopes.dtype == slope_dtype, found, f"slopes of {slope_dtype}")
    found = f"a result of {op.quantized_result.dtype} from an input of {source.dtype}"
    require(source.dtype == op.quantized_result.dtype, found, f"a result of {source.dtype}")
    value = op.read_operand()
    if source.dtype == "int16":
        above = _look_up(op, lambda x, own, out: rescale_leaky_relu(x, own, out, 0.0))
        wide = attrs.evolve(slopes, name=f"{op.name}_slopes", dtype="int16")
        values = op.get_constant(slopes.name).astype(np.int16)
        op.define_constant(wide.name, values)
        op.names, op.sources = (op.names[0], wide.name), (source, wide)
    else:
        above = _rescale(op, op.emit("relu", value), 1.0)
    lowest = source.scale * (INTEGER_RANGES[source.dtype][0] - source.zero_point)
    below = op.emit("clip", value, Min=min(2 * lowest, 0.0), Max=0.0)
    product = op.emit_result("elementmul", below, op.broadcast_operand(1, value.shape))
    return op.emit_result("elementadd", above, product)


def lower_conversion(op: GraphLowering) -> LoweringResult:
    """Lower QUANTIZE of floats or quantized tensors, or DEQUANTIZE."""
    value = op.read_unchecked_operand()
    is_float, elem = value.type.quant is None, value.type.elem
    require(
        not is_float or elem == "float",
        f"{op.names[0]} of type {elem} without a scale",
        "an input of float32, or of a quantized type with a scale",
    )
    if op.kind == "DEQUANTIZE":
        return op.emit_result("dequantize", value)
    return op.emit_result("quantize" if is_float else "rescalequantized", value)


def lower_resize(
    op: GraphLowering,
    *,
    opcode: str,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> LoweringResult:
    """Lower RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR."""
    value, shape = op.read_operand(), op.declared_shape
    if opcode == "resizenearest":
        coordinates = ResizeCoordinates(align_corners, half_pixel_centers)
        counts = [
            find_repetition(size, coordinates.find_nearest(size, new))
            for size, new in zip(value.shape, shape, strict=True)
        ]
        if tuple(np.multiply(value.shape, counts)) == shape != value.shape:
            return emit_repetition(op, value, tuple(counts))
    scale = tuple(float(new) / float(old) for new, old in zip(shape, value.shape, strict=True))
    words: dict[str, Any] = {"AlignCorners": align_corners, "HalfPixelCenters": half_pixel_centers}
    if opcode == "resizebilinear":
        words |= make_unsigned_attribute(op)
    given = {name: 1 for name, flag in words.items() if flag}
    return op.emit_result(opcode, value, shape=shape, Scale=scale, **given)


def lower_softmax(op: GraphLowering, *, beta: float) -> LoweringResult:
    """Lower SOFTMAX along the last dimension."""
    require(0 < beta < math.inf, f"beta {beta:g}", "a positive finite beta")
    value = op.read_operand()
    rows = op.make_view(value, (math.prod(value.shape[:-1]), value.shape[-1]))
    words: dict[str, Any] = {} if beta == 1 else {"Beta": beta}
    return op.make_view(op.emit_result("softmax", rows, **words), value.shape)
