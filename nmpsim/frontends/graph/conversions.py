"""Lowering of conversions between element types: quantize, dequantize and cast."""

from __future__ import annotations

import math

import numpy as np

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.constant_folding import IS_CONSTANT
from nmpsim.frontends.graph.lowering import PLAIN
from nmpsim.frontends.graph.nodes import (
    ONNX_DTYPES,
    Array,
    Kind,
    QuantizedTensor,
    Shape,
    make_unit_quantization,
    read_quantization,
)
from nmpsim.frontends.graph.operation import FLOAT, GraphLowering, LoweringResult
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.module_builder import BuilderTensor


def get_value_kind(op: GraphLowering, name: str, value: BuilderTensor) -> Kind:
    """Return the quantization of a tensor, or its element type if it is not quantized."""
    quant, dtype = value.type.quant, np.dtype(value.type.dtype).name
    if quant is None:
        return dtype
    quantization = op.get_quantization(name)
    if quantization is None or op.make_tensor_type(quantization, value.shape) != value.type:
        scales = np.array([quant.scale], np.float32)
        return QuantizedTensor(name, dtype, scales, np.array([quant.offset], np.int64))
    return quantization


def lower_quantize(op: GraphLowering, *, axis: int = 1) -> LoweringResult:
    """Lower QuantizeLinear with one scale, or with one scale per index of an axis."""
    result = read_quantization(op.node, op.constants, op.name, default="uint8")
    value = op.read_operand()
    dtypes = ("int8", "uint8", "int16", "uint16")
    require(
        result.dtype in dtypes,
        f"a result of {result.dtype}",
        f"a result of {list_alternatives(dtypes)}",
    )
    if result.scales.size == 1:
        return op.emit("quantize", value, kind=result)
    value = op.read_operand(0, PLAIN)
    scales, zeros = _parameter_constants(op, result, axis)
    rounded = op.emit("elementround", op.emit("elementdiv", value, scales))
    moved = op.emit("elementadd", rounded, zeros)
    return op.emit("quantize", moved, kind=make_unit_quantization(op.name, result.dtype))


def lower_dequantize(op: GraphLowering, *, axis: int = 1) -> LoweringResult:
    """Lower DequantizeLinear, or compute its result if the input is constant."""
    name = op.names[0]
    given = read_quantization(op.node, op.constants, name)
    if op.is_constant(name):
        values = op.get_constant(0)
        scales, zeros = _aligned_parameters(op, given, axis, values.shape)
        floats = (values.astype(np.int64) - zeros).astype(np.float32) * scales
        op.define_constant(op.name, floats)
        return IS_CONSTANT
    if given.scales.size == 1:
        value = op.read_unchecked_operand(0, PLAIN if op.is_output(op.name) else None, given)
        require(value.type.quant, f"{name} of type {value.type.elem}", "a quantized tensor")
        return emit_dequantize(op, value)
    quantization = op.get_quantization(name)
    if quantization is None:
        raise UnsupportedError(
            f"{given.scales.size} scales for {name}, a tensor without a known zero point",
            "one scale",
        )
    factors, offsets = _parameter_constants(op, given, axis)
    value = op.read_unchecked_operand(0, PLAIN, make_unit_quantization(name, quantization.dtype))
    centered = op.emit("elementsub", emit_dequantize(op, value), offsets)
    return op.emit("elementmul", centered, factors)


def emit_dequantize(op: GraphLowering, value: BuilderTensor) -> BuilderTensor:
    """Emit the conversion of a quantized value to float32 and return the result."""
    return op.emit("dequantize", value, kind=FLOAT)


def _aligned_parameters(
    op: GraphLowering, given: QuantizedTensor, axis: int, shape: Shape
) -> tuple[Array, Array]:
    """Return scales and zero points, shaped so that they broadcast along their axis."""
    scales, zeros = given.scales, given.zero_points
    if scales.size == 1:
        return scales.reshape(()), zeros.reshape(())
    axis %= max(len(shape), 1)
    block_size = op.node.attributes.get("block_size")
    require(not block_size, f"block_size {block_size}", "block_size 0: one scale for each index")
    require(
        shape and shape[axis] == scales.size,
        f"{scales.size} scales along axis {axis} of shape {list(shape)}",
        "one scale, or one for each index of the axis",
    )
    ends = (1,) * (len(shape) - 1 - axis)
    return scales.reshape(-1, *ends), zeros.reshape(-1, *ends)


def _parameter_constants(
    op: GraphLowering, given: QuantizedTensor, axis: int
) -> tuple[BuilderTensor, BuilderTensor]:
    """Return scales and zero points as float constants of the operand's shape."""
    shape = op.get_shape()
    scales, zeros = (
        op.add_result_constant(name, np.broadcast_to(one, shape).astype(np.float32))
        for name, one in zip(
            ("scales", "zeros"), _aligned_parameters(op, given, axis, shape), strict=True
        )
    )
    return scales, zeros


def lower_dynamic_quantize(op: GraphLowering) -> LoweringResult:
    """Lower DynamicQuantizeLinear, which computes its scale and zero point from the input.

    The scale is (largest - smallest) / 255 with 0 between them, or 1 where all are 0; the zero
    point is ``rint(0 - smallest / scale)``. The integers are stored with scale 1.
    """
    result, scale_name, zero_name = op.node.outputs
    shape = op.get_shape()
    kinds = [op.get_quantization(name) for name in (result, zero_name)]
    for name, kind in zip(("y", "y_zero_point"), kinds, strict=True):
        require(kind, f"no quantization of output {name}", "quantized y and y_zero_point")

    def number(value: float) -> BuilderTensor:
        return op.add_filled_constant((1,), value)

    count = math.prod(shape)
    x = op.make_view(op.read_operand(0, PLAIN), (count,))
    low, high = (
        op.emit(
            f"element{name}",
            op.make_view(op.emit(f"batchedreduce{name}", x, shape=(), Axes=(0,)), (1,)),
            number(0),
        )
        for name in ("min", "max")
    )
    span = op.emit("elementsub", high, low)
    is_empty = op.emit("elementcmpeq", span, number(0), kind="bool")
    steps = op.emit("elementdiv", span, number(255))
    scale = op.emit("elementselect", is_empty, number(1), steps, kind=FLOAT, name=scale_name)
    op.define_result(scale_name, op.make_view(scale, ()))
    zero = op.emit("elementsub", number(0), op.emit("elementdiv", low, scale))
    zero = op.emit("elementround", zero)
    stored_zero = op.emit("quantize", zero, kind=kinds[1], name=zero_name)
    op.define_result(zero_name, op.make_view(stored_zero, ()))
    steps = op.emit("elementdiv", x, emit_scalar_broadcast(op, scale, (count,)))
    rounded = op.emit("elementround", steps)
    moved = op.emit("elementadd", rounded, emit_scalar_broadcast(op, zero, (count,)))
    return op.make_view(op.emit("quantize", moved, kind=kinds[0]), shape)


def emit_scalar_broadcast(op: GraphLowering, value: BuilderTensor, shape: Shape) -> BuilderTensor:
    """Emit a broadcast of a one-element float to ``shape``; return the broadcast tensor."""
    count = math.prod(shape)
    wide = op.allocate(FLOAT, (count,))
    op.emit_touch(wide)
    words = {"Offsets": (0,), "Count": count, "Axis": 0}
    operands = (wide, op.make_view(value, (1,)))
    op.add_instruction("inserttensor", op.layer, operands, **words)
    return op.make_view(wide, shape)


def lower_cast(op: GraphLowering, *, to: int = 0) -> LoweringResult:
    """Lower Cast between floats, integers and truth values."""
    return _cast(op, ONNX_DTYPES.get(to, ""), to)


def lower_cast_like(op: GraphLowering) -> LoweringResult:
    """Lower CastLike, which casts to the element type of the second operand."""
    name, like = op.names[0], op.node.get_input(1)
    if op.is_constant(like):
        dtype = str(op.get_constant(like).dtype)
    else:
        kind = get_value_kind(op, like, op.read_unchecked_operand(1))
        dtype = kind if isinstance(kind, str) else kind.dtype
    if op.is_constant(name):
        op.define_constant(op.name, op.get_constant(name).astype(dtype))
        return IS_CONSTANT
    is_same = get_value_kind(op, name, op.read_unchecked_operand()) == dtype
    return op.define_view(op.get_shape()) if is_same else _cast(op, dtype)


def _cast(op: GraphLowering, dtype: str, to: int | None = None) -> LoweringResult:
    name = op.names[0]
    quantization = op.get_quantization(name)
    wanted = make_unit_quantization(name, quantization.dtype) if quantization else None
    value = op.read_unchecked_operand(0, None, wanted)
    if value.type.quant is not None:
        value = emit_dequantize(op, value)
        if dtype == FLOAT:
            return value
    dtypes = ("float32", "float16", "int32", "int64", "bool")
    require(
        dtype in dtypes,
        f"a cast to {dtype or f'type number {to}'}",
        f"a cast to {list_alternatives(dtypes)}",
    )
    return op.emit("convertto", value, kind=dtype)
