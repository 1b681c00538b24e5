"""Operators that work element by element, products of activations, pools and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.tflite.lowering import (
    Lowering,
    Result,
    quantized_inputs,
    same_parameters,
    some_inputs,
)
from nmpsim.frontends.tflite.model import Operator, Tensor
from nmpsim.frontends.tflite.tables import TABLES, WIDE_TABLES, Table, leaky, rounding_shift
from nmpsim.frontends.tflite.weighted import check_rescaled, paddings
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType

Lower = Callable[[Lowering, Operator], Result]


def pair(opcode: str) -> Lower:
    """Two tensors of the result's shape, or broadcast to it."""

    def lower(graph: Lowering, operator: Operator) -> Result:
        lhs, rhs = quantized_inputs(operator, 2)
        shape = operator.outputs[0].shape
        _check_broadcast(lhs.shape, rhs.shape, shape)
        sides = tuple(graph.broadcast(operator, side, shape) for side in (lhs, rhs))
        if opcode in ("elementmax", "elementmin"):
            target = graph.target(operator.outputs[0])
            if not same_parameters(target, *sides):
                raise UnsupportedError("inputs and result of different scales or zero points")
            graph.add(opcode, operator, (target, *sides))
            return Result()
        if lhs.dtype == rhs.dtype == "int16" and operator.options.get("PotScaleInt16", False):
            sides = _on_powers_of_two(graph, operator, (lhs, rhs), sides)
        made, target = graph.before_activation(operator)
        graph.add(opcode, operator, (made, *sides))
        graph.activate(operator, made, target)
        return Result()

    return lower


def _check_broadcast(
    left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]
) -> None:
    """Refuse a result of another shape than TFLite computes from that of the operands."""
    try:
        expected = np.broadcast_shapes(left, right)
    except ValueError:
        expected = None
    if expected != result:
        raise UnsupportedError(f"{list(left)} and {list(right)} for a result {list(result)}")


def _on_powers_of_two(
    graph: Lowering, operator: Operator, tensors: Sequence[Tensor], sides: tuple[Value, ...]
) -> tuple[Value, ...]:
    """Int16 sides of a sum; where all scales are powers of two, the finer one shifted at once.

    Then they are on the result's scale, where a sum is exact. Sources: ``Prepare`` (add.cc) and
    ``Add`` of Int16 (internal/reference/add.h): the shift rounds halves away from zero.
    """
    result = operator.outputs[0]
    powers = [math.log2(graph.scale(tensor)) for tensor in (*tensors, result)]
    if any(abs(power - round(power)) >= 1e-3 for power in powers):
        return sides
    *shifts, _ = (round(powers[2]) - round(power) for power in powers)
    is_broadcast = operator.name == "ADD" and tensors[0].shape != tensors[1].shape
    if min(shifts) != 0 or is_broadcast:
        raise UnsupportedError(f"Int16 on scales of 2^{[round(p) for p in powers]}, or broadcast")
    if max(shifts) == 0:
        return sides
    finer = shifts.index(max(shifts))
    values = rounding_shift(np.arange(-32768, 32768), max(shifts))
    shifted = graph.looked_up_wide(operator, sides[finer], graph.type_of(result), values, "shifted")
    return tuple(shifted if place == finer else side for place, side in enumerate(sides))


def activation(opcode: str) -> Lower:
    """Relu and its kin on their own; between two scales they rescale first and clip then.

    The factor is a float32 quotient (``ReluPrepare``, activations.cc), as of a leaky one.
    """

    def lower(graph: Lowering, operator: Operator) -> Result:
        (source,) = quantized_inputs(operator, 1)
        result = operator.outputs[0]
        if result.dtype != source.dtype:
            raise UnsupportedError(f"{source.dtype} to {result.dtype}")
        value, target = graph.value(source), graph.target(result)
        if not same_parameters(value, target) and source.dtype == "int16":
            numbers = np.arange(-32768, 32768)
            rescaled = leaky(numbers, source.scales[0], result.scales[0], 1.0)
            value = graph.looked_up_wide(operator, value, target.type, rescaled, "rescaled")
        elif not same_parameters(value, target):
            between = graph.temporary(result, "rescaled")
            graph.add("leakyrelu", operator, (between, value), Alpha=1.0)
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
    (source,) = quantized_inputs(operator, 1)
    alpha = float(operator.options["Alpha"])
    if not math.isfinite(alpha):
        raise UnsupportedError(f"alpha {alpha:g}")
    if operator.outputs[0].dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {operator.outputs[0].dtype}")
    if source.dtype == "int16":
        result = operator.outputs[0]
        target = graph.target(result)
        values = leaky(np.arange(-32768, 32768), source.scales[0], result.scales[0], alpha)
        graph.look_up_wide(operator, graph.value(source), target, values)
        return Result()
    if alpha <= 0:  # the device's factors are above zero
        return _look_up(graph, operator, lambda x, scale, out: leaky(x, scale, out, alpha))
    graph.add(
        "leakyrelu", operator, (graph.target(operator.outputs[0]), graph.value(source)), Alpha=alpha
    )
    return Result()


def look_up(graph: Lowering, operator: Operator) -> Result:
    """A function of one 8-bit value as the table of its 256 results."""
    (source,) = quantized_inputs(operator, 1)
    result = operator.outputs[0]
    if source.dtype == result.dtype == "int16" and operator.name in WIDE_TABLES:
        return _look_up_wide(graph, operator, source)
    return _look_up(graph, operator, TABLES[operator.name])


def _look_up(graph: Lowering, operator: Operator, function: Table) -> Result:
    (source,), result = quantized_inputs(operator, 1), operator.outputs[0]
    if source.dtype not in ("int8", "uint8") or result.dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    target, value = graph.target(result), graph.value(source)
    numbers = np.arange(-128, 128, dtype=np.int64) - graph.zero_point(source)
    values = function(numbers, source.scales[0], result.scales[0]) + graph.zero_point(result)
    table = np.clip(values, -128, 127).astype(np.int8)
    kind = TensorType("i8", (256,), target.type.quant)
    mapping = graph.builder.constant(f"{result.name}_table", table, kind)
    graph.add("intlookuptable", operator, (target, value, mapping))
    return Result()


def _look_up_wide(graph: Lowering, operator: Operator, source: Tensor) -> Result:
    """The same with 65,536 results; the host looks them up."""
    result = operator.outputs[0]
    target = graph.target(result)
    if graph.scale(result) != 1 / 32768 or graph.zero_point(result) or graph.zero_point(source):
        raise UnsupportedError("zero points, or a result that is not on 1/32768")
    if graph.scale(source) * 3 * 4096 > 32767:
        raise UnsupportedError(f"a scale of {graph.scale(source):g}")
    values = WIDE_TABLES[operator.name](np.arange(-32768, 32768), graph.scale(source))
    graph.look_up_wide(operator, graph.value(source), target, values)
    return Result()


def prelu(graph: Lowering, operator: Operator) -> Result:
    """A slope for each channel: what is above zero rescaled, plus what is below times its slope.

    One of the two is always zero, so their sum is exact. The factor of the first is a float32
    quotient, as a leaky activation has it. Source: ``Prelu`` (internal/reference/prelu.h).
    """
    source, slopes = quantized_inputs(operator, 2)
    result = operator.outputs[0]
    _check_broadcast(source.shape, slopes.shape, result.shape)
    if result.dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    if slopes.dtype != source.dtype.replace("int16", "int8"):
        raise UnsupportedError(f"{source.dtype} with slopes of {slopes.dtype}")
    value = graph.value(source)
    below, second = graph.temporary(source, "below"), graph.temporary(result, "below")
    if source.dtype == "int16":
        numbers = np.arange(-32768, 32768)
        rescaled = leaky(numbers, source.scales[0], result.scales[0], 0.0)
        first = graph.looked_up_wide(operator, value, graph.type_of(result), rescaled, "above")
    else:
        above, first = graph.temporary(source, "above"), graph.temporary(result, "above")
        graph.add("relu", operator, (above, value))
        graph.add("leakyrelu", operator, (first, above), Alpha=1.0)
    lowest = graph.scale(source) * (np.iinfo(source.dtype).min - int(source.zero_points[0]))
    graph.add("clip", operator, (below, value), Min=min(2 * lowest, 0.0), Max=0.0)
    if source.dtype == "int16":  # the slopes are Int8
        held = graph.constant_of(slopes).astype(np.int16)
        slopes = attrs.evolve(slopes, dtype="int16", values=held)
    wide = graph.broadcast(operator, slopes, source.shape)
    graph.add("elementmul", operator, (second, below, wide))
    graph.add("elementadd", operator, (graph.target(result), first, second))
    return Result()


def batch_matmul(graph: Lowering, operator: Operator) -> Result:
    """One product after the other, each of two activations."""
    lhs, rhs = quantized_inputs(operator, 2)
    result = operator.outputs[0]
    shapes = (lhs.shape, rhs.shape, result.shape)
    if lhs.dtype != rhs.dtype or min(map(len, shapes)) < 2:
        raise UnsupportedError(f"{lhs.dtype} {list(lhs.shape)} times {rhs.dtype} {list(rhs.shape)}")
    _check_broadcast(lhs.shape[:-2], rhs.shape[:-2], result.shape[:-2])
    if lhs.dtype == "int16":
        ones = np.full(1, 32768.0**2 * lhs.shape[-2 if operator.options["AdjX"] else -1])
        check_rescaled(ones, (lhs.scales[:1] * rhs.scales[:1]) / result.scales[:1])
    sides = tuple(
        _turned(graph, operator, tensor) if operator.options[flag] else graph.value(tensor)
        for tensor, flag in ((lhs, "AdjX"), (rhs, "AdjY"))
    )
    target = graph.target(result)
    for index in np.ndindex(*result.shape[:-2]):
        parts = [graph.part(side, _item(index, side.shape[:-2])) for side in sides]
        graph.add("matmul", operator, [graph.part(target, index), *parts])
    return Result()


def _turned(graph: Lowering, operator: Operator, tensor: Tensor) -> Value:
    """With the last two dimensions exchanged."""
    rank = len(tensor.shape)
    order = (*range(rank - 2), rank - 1, rank - 2)
    turned = graph.temporary(tensor, "turned", tuple(tensor.shape[axis] for axis in order))
    graph.add("transpose", operator, (turned, graph.value(tensor)), Shuffle=order)
    return turned


def _item(index: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, ...]:
    """Which item of an operand makes this one of the result."""
    last = index[len(index) - len(own) :]
    return tuple(0 if n == 1 else at for at, n in zip(last, own, strict=True))


def resize(opcode: str) -> Lower:
    """To another height and width, on the host."""

    def lower(graph: Lowering, operator: Operator) -> Result:
        (source,) = quantized_inputs(operator, 1)
        result = operator.outputs[0]
        target, value = graph.target(result), graph.value(source)
        shapes = (source.shape, result.shape)
        if any(len(s) != 4 for s in shapes) or not same_parameters(value, target):
            raise UnsupportedError(
                "input and result of different scales or zero points, or not of four dimensions"
            )
        scale = tuple(float(o) / float(i) for o, i in zip(*reversed(shapes), strict=True))
        flags = {name: 1 for name in ("AlignCorners", "HalfPixelCenters") if operator.options[name]}
        if source.dtype == "uint8" and opcode == "resizebilinear":
            flags["Unsigned"] = 1
        graph.add(opcode, operator, (target, value), Scale=scale, **flags)
        return Result()

    return lower


def pool(opcode: str) -> Lower:
    """A window over rows and columns; an average counts the taps that exist."""

    def lower(graph: Lowering, operator: Operator) -> Result:
        (source,) = quantized_inputs(operator, 1)
        options = operator.options
        kernel = (options["FilterHeight"], options["FilterWidth"])
        strides = (options["StrideH"], options["StrideW"])
        if len(source.shape) != 4:
            raise UnsupportedError(f"an input {list(source.shape)}")
        made, target = graph.before_activation(operator)
        value = graph.value(source)
        if not same_parameters(value, made):
            raise UnsupportedError("input and result of different scales or zero points")
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


def softmax(graph: Lowering, operator: Operator) -> Result:
    """Along the last dimension."""
    (source,) = quantized_inputs(operator, 1)
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
    (source,) = some_inputs(operator, 1)
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
    (source,) = quantized_inputs(operator, 1)
    graph.add("dequantize", operator, (graph.target(operator.outputs[0]), graph.value(source)))
    return Result()
