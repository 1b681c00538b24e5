"""Operators that work element by element, pools, means and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nmpsim.frontends.tflite.lowering import Lowering, Result, same_parameters
from nmpsim.frontends.tflite.model import Operator, Tensor
from nmpsim.frontends.tflite.tables import TABLES, WIDE_TABLES
from nmpsim.frontends.tflite.weighted import paddings
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType

Lower = Callable[[Lowering, Operator], Result]


def pair(opcode: str) -> Lower:
    """Two tensors of the result's shape, or broadcast to it."""

    def lower(graph: Lowering, operator: Operator) -> Result:
        lhs, rhs = _quantized(operator, 2)
        shape = operator.outputs[0].shape
        sides = tuple(graph.broadcast(operator, side, shape) for side in (lhs, rhs))
        if opcode in ("elementmax", "elementmin"):
            target = graph.target(operator.outputs[0])
            if not same_parameters(target, *sides):
                raise UnsupportedError("inputs and result of other scales")
            graph.add(opcode, operator, (target, *sides))
            return Result()
        if opcode != "elementmul" and lhs.dtype == "int16":
            _same_scales_for_int16(lhs, rhs)
        made, target = graph.before_activation(operator)
        graph.add(opcode, operator, (made, *sides))
        graph.activate(operator, made, target)
        return Result()

    return lower


def _same_scales_for_int16(lhs: Tensor, rhs: Tensor) -> None:
    if lhs.scales[0] != rhs.scales[0]:
        raise UnsupportedError("Int16 inputs of two scales, of which no formula is known")


def activation(opcode: str) -> Lower:
    """Relu and its kin on their own; between two scales they rescale first and clip then."""

    def lower(graph: Lowering, operator: Operator) -> Result:
        (source,) = _quantized(operator, 1)
        result = operator.outputs[0]
        value, target = graph.value(source), graph.target(result)
        if not same_parameters(value, target):
            between = graph.temporary(result, "rescaled")
            graph.add("rescalequantized", operator, (between, value))
            value = between
        if opcode == "relu":
            graph.add("relu", operator, (target, value))
        else:
            low, high = {"relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}[opcode]
            graph.add("clip", operator, (target, value), Min=low, Max=high)
        return Result()

    return lower


def leaky_relu(graph: Lowering, operator: Operator) -> Result:
    """The slope below zero is the file's float32."""
    (source,) = _quantized(operator, 1)
    alpha = float(operator.options["Alpha"])
    if not math.isfinite(alpha):
        raise UnsupportedError(f"alpha {alpha:g}")
    graph.add(
        "leakyrelu", operator, (graph.target(operator.outputs[0]), graph.value(source)), Alpha=alpha
    )
    return Result()


def look_up(graph: Lowering, operator: Operator) -> Result:
    """A function of one 8-bit value as the table of its 256 results."""
    (source,) = _quantized(operator, 1)
    result = operator.outputs[0]
    if source.dtype == result.dtype == "int16" and operator.name in WIDE_TABLES:
        return _look_up_wide(graph, operator, source)
    if source.dtype not in ("int8", "uint8") or result.dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    values = TABLES[operator.name](
        np.arange(-128, 128, dtype=np.int64) - graph.zero_point(source),
        source.scales[0],
        result.scales[0],
    )
    table = np.clip(values + graph.zero_point(result), -128, 127).astype(np.int8)
    mapping = graph.builder.constant(
        f"{result.name}_table", table, TensorType("i8", (256,), graph.type_of(result).quant)
    )
    graph.add("intlookuptable", operator, (graph.target(result), graph.value(source), mapping))
    return Result()


def _look_up_wide(graph: Lowering, operator: Operator, source: Tensor) -> Result:
    """The same with 65,536 results; the host looks them up."""
    result = operator.outputs[0]
    target = graph.target(result)
    if graph.scale(result) != 1 / 32768 or graph.zero_point(result) or graph.zero_point(source):
        raise UnsupportedError("zero points, or a result that is not on 1/32768")
    values = WIDE_TABLES[operator.name](np.arange(-32768, 32768), graph.scale(source))
    table = np.clip(values, -32768, 32767).astype(np.int16)
    kind = TensorType("i16", (65536,), target.type.quant)
    mapping = graph.builder.constant(f"{result.name}_table", table, kind)
    graph.add("intlookuptable", operator, (target, graph.value(source), mapping))
    return Result()


def prelu(graph: Lowering, operator: Operator) -> Result:
    """A slope for each channel: what is above zero rescaled, plus what is below times its slope.

    One of the two is always zero, so their sum is exact. The factor of the first is a float32
    quotient, as a leaky activation has it. Source: ``Prelu`` (internal/reference/prelu.h).
    """
    source, slopes = _quantized(operator, 2)
    result = operator.outputs[0]
    if source.dtype == "int16":
        raise UnsupportedError("Int16")
    value = graph.value(source)
    above, below = graph.temporary(source, "above"), graph.temporary(source, "below")
    first, second = graph.temporary(result, "above"), graph.temporary(result, "below")
    graph.add("relu", operator, (above, value))
    graph.add("leakyrelu", operator, (first, above), Alpha=1.0)
    lowest = graph.scale(source) * (-128 - graph.zero_point(source))
    graph.add("clip", operator, (below, value), Min=min(2 * lowest, 0.0), Max=0.0)
    wide = graph.broadcast(operator, slopes, source.shape)
    graph.add("elementmul", operator, (second, below, wide))
    graph.add("elementadd", operator, (graph.target(result), first, second))
    return Result()


def batch_matmul(graph: Lowering, operator: Operator) -> Result:
    """One product after the other, each of two activations."""
    lhs, rhs = _quantized(operator, 2)
    result = operator.outputs[0]
    if lhs.dtype != rhs.dtype or operator.options["AdjX"] or operator.options["AdjY"]:
        raise UnsupportedError(f"{lhs.dtype} times {rhs.dtype}, or one transposed")
    if lhs.shape[:-2] != rhs.shape[:-2] or min(len(lhs.shape), len(rhs.shape)) < 2:
        raise UnsupportedError(f"{list(lhs.shape)} times {list(rhs.shape)}")
    sides = (graph.target(result), graph.value(lhs), graph.value(rhs))
    for index in np.ndindex(*lhs.shape[:-2]):
        graph.add("matmul", operator, [graph.part(side, index) for side in sides])
    return Result()


def resize(opcode: str) -> Lower:
    """To another height and width, on the host."""

    def lower(graph: Lowering, operator: Operator) -> Result:
        (source,) = _quantized(operator, 1)
        result = operator.outputs[0]
        target, value = graph.target(result), graph.value(source)
        if len(source.shape) != 4 or len(result.shape) != 4 or not same_parameters(value, target):
            raise UnsupportedError("input and result of other scales, or not of four dimensions")
        scale = tuple(float(o) / float(i) for o, i in zip(result.shape, source.shape, strict=True))
        flags = {name: 1 for name in ("AlignCorners", "HalfPixelCenters") if operator.options[name]}
        if source.dtype == "uint8" and opcode == "resizebilinear":
            flags["Unsigned"] = 1
        graph.add(opcode, operator, (target, value), Scale=scale, **flags)
        return Result()

    return lower


def pool(opcode: str) -> Lower:
    """A window over rows and columns; an average counts the taps that exist."""

    def lower(graph: Lowering, operator: Operator) -> Result:
        (source,) = _quantized(operator, 1)
        options = operator.options
        kernel = (options["FilterHeight"], options["FilterWidth"])
        strides = (options["StrideH"], options["StrideW"])
        if len(source.shape) != 4:
            raise UnsupportedError(f"an input {list(source.shape)}")
        made, target = graph.before_activation(operator)
        value = graph.value(source)
        if not same_parameters(value, made):
            raise UnsupportedError("input and result of other scales")
        pads = paddings(operator, source.shape, kernel, strides)
        more = {"CountIncludePads": 0} if opcode == "avgpool" else {}
        if more and source.dtype == "uint8":
            more["Unsigned"] = 1
        graph.add(
            opcode, operator, (made, value), Kernels=kernel, Strides=strides, Pads=pads, **more
        )
        graph.activate(operator, made, target)
        return Result()

    return lower


def mean(graph: Lowering, operator: Operator) -> Result:
    """Neighbouring dimensions become the rows of a window that covers them."""
    (source,) = _inputs(operator, 1)
    rank = len(source.shape)
    if not source.is_quantized:
        raise UnsupportedError(f"{source.name} is {source.dtype}")
    given = graph.integers(operator, 1)
    reduced = sorted({axis % rank for axis in given if -rank <= axis < rank})
    if not reduced or reduced != list(range(reduced[0], reduced[-1] + 1)):
        raise UnsupportedError(f"axes {given}, which are not neighbours")
    first, last = reduced[0], reduced[-1] + 1
    outer, rows, inner = (
        int(np.prod(part))
        for part in (source.shape[:first], source.shape[first:last], source.shape[last:])
    )
    value = graph.view(graph.value(source), (outer, rows, 1, inner))
    target = graph.target(operator.outputs[0], (outer, 1, 1, inner))
    graph.add(
        "avgpool",
        operator,
        (target, value),
        Kernels=(rows, 1),
        Strides=(1, 1),
        Pads=(0, 0, 0, 0),
        CountIncludePads=1,
    )
    return Result()


def softmax(graph: Lowering, operator: Operator) -> Result:
    """Along the last dimension."""
    (source,) = _quantized(operator, 1)
    if not source.shape:
        raise UnsupportedError("an input without dimensions")
    rows = (int(np.prod(source.shape[:-1])), source.shape[-1])
    value = graph.view(graph.value(source), rows)
    target = graph.target(operator.outputs[0], rows)
    beta = float(operator.options["Beta"])
    if not 0 < beta < math.inf:
        raise UnsupportedError(f"beta {beta:g}")
    more = {} if beta == 1 else {"Beta": beta}
    graph.add("softmax", operator, (target, value), **more)
    return Result()


def quantize(graph: Lowering, operator: Operator) -> Result:
    """From float, or from one scale, zero point or width to another."""
    (source,) = _inputs(operator, 1)
    target = graph.target(operator.outputs[0])
    if source.dtype == "float32":
        graph.add("quantize", operator, (target, graph.value(source)))
        return Result()
    if not source.is_quantized:
        raise UnsupportedError(f"{source.name} is {source.dtype}")
    graph.add("rescalequantized", operator, (target, graph.value(source)))
    return Result()


def dequantize(graph: Lowering, operator: Operator) -> Result:
    """To float32, on the host."""
    (source,) = _quantized(operator, 1)
    graph.add("dequantize", operator, (graph.target(operator.outputs[0]), graph.value(source)))
    return Result()


def _inputs(operator: Operator, count: int) -> tuple[Tensor, ...]:
    tensors = tuple(t for t in operator.inputs[:count] if t is not None)
    if len(tensors) < count:
        raise UnsupportedError(f"{len(operator.inputs)} inputs")
    return tensors


def _quantized(operator: Operator, count: int) -> tuple[Tensor, ...]:
    tensors = _inputs(operator, count)
    for tensor in tensors:
        if not tensor.is_quantized:
            raise UnsupportedError(f"{tensor.name} is {tensor.dtype}")
    return tensors
