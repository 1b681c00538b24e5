"""Operators that work element by element, products of activations, pools and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.nodes import INTEGER_RANGES
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.tflite.graph_builder import (
    TFLiteGraphBuilder,
    check_alike,
    values_of,
)
from nmpsim.frontends.tflite.model import Tensor
from nmpsim.frontends.tflite.tables import TABLES, WIDE_TABLES, Table, leaky, rounding_shift
from nmpsim.frontends.tflite.weighted import check_rescaled, paddings

Draw = Callable[[TFLiteGraphBuilder], None]
_WIDE = np.arange(-32768, 32768)


def pair(opcode: str) -> Draw:
    """Two tensors of the result's shape, or broadcast to it."""

    def draw(builder: TFLiteGraphBuilder) -> None:
        tensors, result = builder.quantized(2), builder.result
        _check_broadcast(tensors[0].shape, tensors[1].shape, result.shape)
        limits = None
        if opcode in ("elementmax", "elementmin"):
            check_alike(*tensors, result)
        else:
            limits = builder.limits
        sides = [builder.name(tensor) for tensor in tensors]
        is_wide = tensors[0].dtype == tensors[1].dtype == "int16"
        if is_wide and builder.operator.options.get("PotScaleInt16", False):
            sides = _on_powers_of_two(builder, tensors, sides)
        builder.add_instruction(opcode, sides, is_broadcast=True, limits=limits)

    return draw


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
    builder: TFLiteGraphBuilder, tensors: Sequence[Tensor], sides: list[str]
) -> list[str]:
    """Int16 sides of a sum; where all scales are powers of two, the finer one shifted at once.

    Then they are on the result's scale, where a sum is exact. Sources: ``Prepare`` (add.cc) and
    ``Add`` of Int16 (internal/reference/add.h): the shift rounds halves away from zero.
    """
    result = builder.result
    powers = [math.log2(builder.parameters(tensor).scale) for tensor in (*tensors, result)]
    if any(abs(power - round(power)) >= 1e-3 for power in powers):
        return sides
    *shifts, _ = (round(powers[2]) - round(power) for power in powers)
    is_broadcast = builder.operator.name == "ADD" and tensors[0].shape != tensors[1].shape
    if min(shifts) != 0 or is_broadcast:
        raise UnsupportedError(f"Int16 on scales of 2^{[round(p) for p in powers]}, or broadcast")
    if max(shifts) == 0:
        return sides
    finer = shifts.index(max(shifts))
    shifted = builder.temporary(result, "shifted", tensors[finer].shape)
    builder.add_table(sides[finer], rounding_shift(_WIDE, max(shifts)), shifted)
    return [shifted if place == finer else side for place, side in enumerate(sides)]


def activation(low: float, high: float | None) -> Draw:
    """Relu and its kin on their own; between two scales they rescale first and clip then.

    The factor is a float32 quotient (``ReluPrepare``, activations.cc), as of a leaky one.
    """

    def draw(builder: TFLiteGraphBuilder) -> None:
        source = _of_one_type(builder)
        name, result = builder.name(source), builder.result
        try:
            check_alike(source, result)
        except UnsupportedError:
            between = builder.temporary(result, "rescaled")
            if source.dtype == "int16":
                rescaled = leaky(_WIDE, source.scales[0], result.scales[0], 1.0)
                builder.add_table(name, rescaled, between)
            else:
                builder.add_instruction("leakyrelu", [name], between, Alpha=1.0)
            name = between
        if high is None:
            builder.add_instruction("relu", [name])
        else:
            builder.add_instruction("clip", [name], Min=low, Max=high)

    return draw


def _of_one_type(builder: TFLiteGraphBuilder) -> Tensor:
    """The one input, which is of the result's type."""
    (source,), result = builder.quantized(1), builder.result
    if result.dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    return source


def leaky_relu(builder: TFLiteGraphBuilder) -> None:
    """The slope below zero is the file's float32."""
    alpha = float(builder.operator.options["Alpha"])
    if not math.isfinite(alpha):
        raise UnsupportedError(f"alpha {alpha:g}")
    source = _of_one_type(builder)
    if source.dtype == "int16":
        values = leaky(_WIDE, source.scales[0], builder.result.scales[0], alpha)
        builder.add_table(builder.name(source), values)
    elif alpha <= 0:  # the device's factors are above zero
        _narrow_table(builder, source, lambda x, scale, out: leaky(x, scale, out, alpha))
    else:
        builder.add_instruction("leakyrelu", [builder.name(source)], Alpha=alpha)


def look_up(builder: TFLiteGraphBuilder) -> None:
    """A function of one value as the table of its results; of Int16 the host looks it up."""
    (source,), name = builder.quantized(1), builder.operator.name
    if source.dtype != "int16" or name not in WIDE_TABLES or builder.result.dtype != "int16":
        _narrow_table(builder, source, TABLES[name])
        return
    own, made = builder.parameters(source), builder.parameters(builder.result)
    if made.scale != 1 / 32768 or made.zero_point or own.zero_point:
        raise UnsupportedError("zero points, or a result that is not on 1/32768")
    if own.scale * 3 * 4096 > 32767:
        raise UnsupportedError(f"a scale of {own.scale:g}")
    builder.add_table(builder.name(source), WIDE_TABLES[name](_WIDE, own.scale))


def _narrow_table(builder: TFLiteGraphBuilder, source: Tensor, function: Table) -> None:
    result = builder.result
    if source.dtype not in ("int8", "uint8") or result.dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    least = int(np.iinfo(source.dtype).min)
    numbers = np.arange(least, least + 256) - builder.parameters(source).zero_point
    values = function(numbers, source.scales[0], result.scales[0])
    moved = builder.parameters(result).zero_point - (least + 128)
    builder.add_table(builder.name(source), values + moved)


def prelu(builder: TFLiteGraphBuilder) -> None:
    """A slope for each channel: what is above zero rescaled, plus what is below times its slope.

    One of the two is always zero, so their sum is exact. The factor of the first is a float32
    quotient, as a leaky activation has it. Source: ``Prelu`` (internal/reference/prelu.h).
    """
    slopes, result = builder.quantized(2)[1], builder.result
    source = builder.quantized(1)[0]
    _check_broadcast(source.shape, slopes.shape, result.shape)
    _of_one_type(builder)
    if slopes.dtype != source.dtype.replace("int16", "int8"):
        raise UnsupportedError(f"{source.dtype} with slopes of {slopes.dtype}")
    name, wide = builder.name(source), builder.name(slopes)
    below, second = (builder.temporary(one, "below") for one in (source, result))
    first = builder.temporary(result, "above")
    if source.dtype == "int16":
        builder.add_table(name, leaky(_WIDE, source.scales[0], result.scales[0], 0.0), first)
        held = attrs.evolve(builder.parameters(slopes), dtype="int16")  # they are Int8
        wide = builder.add_constant(slopes.name, values_of(slopes).astype(np.int16), held)
    else:
        above = builder.temporary(source, "above")
        builder.add_instruction("relu", [name], above)
        builder.add_instruction("leakyrelu", [above], first, Alpha=1.0)
    own = builder.parameters(source)
    lowest = own.scale * (INTEGER_RANGES[own.dtype][0] - own.zero_point)
    builder.add_instruction("clip", [name], below, Min=min(2 * lowest, 0.0), Max=0.0)
    builder.add_instruction("elementmul", [below, wide], second, is_broadcast=True)
    builder.add_instruction("elementadd", [first, second])


def batch_matmul(builder: TFLiteGraphBuilder) -> None:
    """One product after the other, each of two activations."""
    (lhs, rhs), result, options = builder.quantized(2), builder.result, builder.operator.options
    if lhs.dtype != rhs.dtype or min(len(t.shape) for t in (lhs, rhs, result)) < 2:
        raise UnsupportedError(f"{lhs.dtype} {list(lhs.shape)} times {rhs.dtype} {list(rhs.shape)}")
    _check_broadcast(lhs.shape[:-2], rhs.shape[:-2], result.shape[:-2])
    if lhs.dtype == "int16":
        ones = np.full(1, 32768.0**2 * lhs.shape[-2 if options["AdjX"] else -1])
        check_rescaled(ones, (lhs.scales[:1] * rhs.scales[:1]) / result.scales[:1])
    sides = tuple(
        _turned(builder, tensor, options[flag]) for tensor, flag in ((lhs, "AdjX"), (rhs, "AdjY"))
    )
    builder.add_integer_operation("BatchMatMul", sides)


def _turned(builder: TFLiteGraphBuilder, tensor: Tensor, is_turned: bool) -> str:
    """With the last two dimensions exchanged, if ``is_turned``."""
    name, rank = builder.name(tensor), len(tensor.shape)
    if not is_turned:
        return name
    order = (*range(rank - 2), rank - 1, rank - 2)
    turned = builder.temporary(tensor, "turned", tuple(tensor.shape[axis] for axis in order))
    return builder.add_instruction("transpose", [name], turned, Shuffle=order)


def resize(opcode: str) -> Draw:
    """To another height and width, on the host."""

    def draw(builder: TFLiteGraphBuilder) -> None:
        (source,), result = builder.quantized(1), builder.result
        check_alike(source, result)
        if len(source.shape) != 4 or len(result.shape) != 4:
            raise UnsupportedError(f"{list(source.shape)} to {list(result.shape)}")
        sizes = zip(result.shape, source.shape, strict=True)
        words: dict[str, Any] = {"Scale": tuple(float(o) / float(i) for o, i in sizes)}
        options = builder.operator.options
        words |= {name: 1 for name in ("AlignCorners", "HalfPixelCenters") if options[name]}
        if source.dtype == "uint8" and opcode == "resizebilinear":
            words["Unsigned"] = 1
        builder.add_instruction(opcode, [builder.name(source)], **words)

    return draw


def pool(opcode: str) -> Draw:
    """A window over rows and columns; an average counts the taps that exist."""

    def draw(builder: TFLiteGraphBuilder) -> None:
        (source,), options = builder.quantized(1), builder.operator.options
        kernel = (options["FilterHeight"], options["FilterWidth"])
        strides = (options["StrideH"], options["StrideW"])
        if len(source.shape) != 4:
            raise UnsupportedError(f"an input {list(source.shape)}")
        check_alike(source, builder.result)
        pads = paddings(builder.operator, source.shape, kernel, strides)
        words: dict[str, Any] = {"Kernels": kernel, "Strides": strides, "Pads": pads}
        if opcode == "avgpool":
            words["CountIncludePads"] = 0
            words |= {"Unsigned": 1} if source.dtype == "uint8" else {}
        builder.add_instruction(opcode, [builder.name(source)], limits=builder.limits, **words)

    return draw


def softmax(builder: TFLiteGraphBuilder) -> None:
    """Along the last dimension."""
    (source,) = builder.quantized(1)
    if not source.shape:
        raise UnsupportedError("an input without dimensions")
    beta = float(builder.operator.options["Beta"])
    if not 0 < beta < math.inf:
        raise UnsupportedError(f"beta {beta:g}")
    rows = (math.prod(source.shape[:-1]), source.shape[-1])
    words: dict[str, Any] = {} if beta == 1 else {"Beta": beta}
    builder.add_instruction("softmax", [builder.name(source)], views=(rows, rows), **words)


def quantize(builder: TFLiteGraphBuilder) -> None:
    """From float, or from one scale, zero point or width to another."""
    (source,) = builder.inputs(1)
    is_real = source.dtype == "float32"
    if not is_real and not source.is_quantized:
        raise UnsupportedError(f"{source.name} is {source.dtype}")
    opcode = "quantize" if is_real else "rescalequantized"
    builder.add_instruction(opcode, [builder.name(source)])


def dequantize(builder: TFLiteGraphBuilder) -> None:
    """To float32, on the host."""
    (source,) = builder.quantized(1)
    builder.add_instruction("dequantize", [builder.name(source)])
