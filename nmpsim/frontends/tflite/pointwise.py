"""Operators that work element by element, products of activations, pools and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.nodes import LIMITS
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.tflite.drawing import (
    Drawing,
    check_alike,
    values_of,
)
from nmpsim.frontends.tflite.model import Tensor
from nmpsim.frontends.tflite.tables import TABLES, WIDE_TABLES, Table, leaky, rounding_shift
from nmpsim.frontends.tflite.weighted import check_rescaled, paddings

Draw = Callable[[Drawing], None]
_WIDE = np.arange(-32768, 32768)


def pair(opcode: str) -> Draw:
    """Two tensors of the result's shape, or broadcast to it."""

    def draw(drawing: Drawing) -> None:
        tensors, result = drawing.quantized(2), drawing.result
        _check_broadcast(tensors[0].shape, tensors[1].shape, result.shape)
        limits = None
        if opcode in ("elementmax", "elementmin"):
            check_alike(*tensors, result)
        else:
            limits = drawing.limits
        sides = [drawing.name(tensor) for tensor in tensors]
        is_wide = tensors[0].dtype == tensors[1].dtype == "int16"
        if is_wide and drawing.operator.options.get("PotScaleInt16", False):
            sides = _on_powers_of_two(drawing, tensors, sides)
        drawing.instruction(opcode, sides, repeated=True, limits=limits)

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


def _on_powers_of_two(drawing: Drawing, tensors: Sequence[Tensor], sides: list[str]) -> list[str]:
    """Int16 sides of a sum; where all scales are powers of two, the finer one shifted at once.

    Then they are on the result's scale, where a sum is exact. Sources: ``Prepare`` (add.cc) and
    ``Add`` of Int16 (internal/reference/add.h): the shift rounds halves away from zero.
    """
    result = drawing.result
    powers = [math.log2(drawing.parameters(tensor).scale) for tensor in (*tensors, result)]
    if any(abs(power - round(power)) >= 1e-3 for power in powers):
        return sides
    *shifts, _ = (round(powers[2]) - round(power) for power in powers)
    is_broadcast = drawing.operator.name == "ADD" and tensors[0].shape != tensors[1].shape
    if min(shifts) != 0 or is_broadcast:
        raise UnsupportedError(f"Int16 on scales of 2^{[round(p) for p in powers]}, or broadcast")
    if max(shifts) == 0:
        return sides
    finer = shifts.index(max(shifts))
    shifted = drawing.temporary(result, "shifted", tensors[finer].shape)
    drawing.look_up(sides[finer], rounding_shift(_WIDE, max(shifts)), shifted)
    return [shifted if place == finer else side for place, side in enumerate(sides)]


def activation(low: float, high: float | None) -> Draw:
    """Relu and its kin on their own; between two scales they rescale first and clip then.

    The factor is a float32 quotient (``ReluPrepare``, activations.cc), as of a leaky one.
    """

    def draw(drawing: Drawing) -> None:
        source = _of_one_type(drawing)
        name, result = drawing.name(source), drawing.result
        try:
            check_alike(source, result)
        except UnsupportedError:
            between = drawing.temporary(result, "rescaled")
            if source.dtype == "int16":
                rescaled = leaky(_WIDE, source.scales[0], result.scales[0], 1.0)
                drawing.look_up(name, rescaled, between)
            else:
                drawing.instruction("leakyrelu", [name], between, Alpha=1.0)
            name = between
        if high is None:
            drawing.instruction("relu", [name])
        else:
            drawing.instruction("clip", [name], Min=low, Max=high)

    return draw


def _of_one_type(drawing: Drawing) -> Tensor:
    """The one input, which is of the result's type."""
    (source,), result = drawing.quantized(1), drawing.result
    if result.dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    return source


def leaky_relu(drawing: Drawing) -> None:
    """The slope below zero is the file's float32."""
    alpha = float(drawing.operator.options["Alpha"])
    if not math.isfinite(alpha):
        raise UnsupportedError(f"alpha {alpha:g}")
    source = _of_one_type(drawing)
    if source.dtype == "int16":
        values = leaky(_WIDE, source.scales[0], drawing.result.scales[0], alpha)
        drawing.look_up(drawing.name(source), values)
    elif alpha <= 0:  # the device's factors are above zero
        _narrow_table(drawing, source, lambda x, scale, out: leaky(x, scale, out, alpha))
    else:
        drawing.instruction("leakyrelu", [drawing.name(source)], Alpha=alpha)


def look_up(drawing: Drawing) -> None:
    """A function of one value as the table of its results; of Int16 the host looks it up."""
    (source,), name = drawing.quantized(1), drawing.operator.name
    if source.dtype != "int16" or name not in WIDE_TABLES or drawing.result.dtype != "int16":
        _narrow_table(drawing, source, TABLES[name])
        return
    own, made = drawing.parameters(source), drawing.parameters(drawing.result)
    if made.scale != 1 / 32768 or made.zero_point or own.zero_point:
        raise UnsupportedError("zero points, or a result that is not on 1/32768")
    if own.scale * 3 * 4096 > 32767:
        raise UnsupportedError(f"a scale of {own.scale:g}")
    drawing.look_up(drawing.name(source), WIDE_TABLES[name](_WIDE, own.scale))


def _narrow_table(drawing: Drawing, source: Tensor, function: Table) -> None:
    result = drawing.result
    if source.dtype not in ("int8", "uint8") or result.dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    least = int(np.iinfo(source.dtype).min)
    numbers = np.arange(least, least + 256) - drawing.parameters(source).zero_point
    values = function(numbers, source.scales[0], result.scales[0])
    moved = drawing.parameters(result).zero_point - (least + 128)
    drawing.look_up(drawing.name(source), values + moved)


def prelu(drawing: Drawing) -> None:
    """A slope for each channel: what is above zero rescaled, plus what is below times its slope.

    One of the two is always zero, so their sum is exact. The factor of the first is a float32
    quotient, as a leaky activation has it. Source: ``Prelu`` (internal/reference/prelu.h).
    """
    slopes, result = drawing.quantized(2)[1], drawing.result
    source = drawing.quantized(1)[0]
    _check_broadcast(source.shape, slopes.shape, result.shape)
    _of_one_type(drawing)
    if slopes.dtype != source.dtype.replace("int16", "int8"):
        raise UnsupportedError(f"{source.dtype} with slopes of {slopes.dtype}")
    name, wide = drawing.name(source), drawing.name(slopes)
    below, second = (drawing.temporary(one, "below") for one in (source, result))
    first = drawing.temporary(result, "above")
    if source.dtype == "int16":
        drawing.look_up(name, leaky(_WIDE, source.scales[0], result.scales[0], 0.0), first)
        held = attrs.evolve(drawing.parameters(slopes), dtype="int16")  # they are Int8
        wide = drawing.constant(slopes.name, values_of(slopes).astype(np.int16), held)
    else:
        above = drawing.temporary(source, "above")
        drawing.instruction("relu", [name], above)
        drawing.instruction("leakyrelu", [above], first, Alpha=1.0)
    own = drawing.parameters(source)
    lowest = own.scale * (LIMITS[own.dtype][0] - own.zero_point)
    drawing.instruction("clip", [name], below, Min=min(2 * lowest, 0.0), Max=0.0)
    drawing.instruction("elementmul", [below, wide], second, repeated=True)
    drawing.instruction("elementadd", [first, second])


def batch_matmul(drawing: Drawing) -> None:
    """One product after the other, each of two activations."""
    (lhs, rhs), result, options = drawing.quantized(2), drawing.result, drawing.operator.options
    if lhs.dtype != rhs.dtype or min(len(t.shape) for t in (lhs, rhs, result)) < 2:
        raise UnsupportedError(f"{lhs.dtype} {list(lhs.shape)} times {rhs.dtype} {list(rhs.shape)}")
    _check_broadcast(lhs.shape[:-2], rhs.shape[:-2], result.shape[:-2])
    if lhs.dtype == "int16":
        ones = np.full(1, 32768.0**2 * lhs.shape[-2 if options["AdjX"] else -1])
        check_rescaled(ones, (lhs.scales[:1] * rhs.scales[:1]) / result.scales[:1])
    sides = tuple(
        _turned(drawing, tensor, options[flag]) for tensor, flag in ((lhs, "AdjX"), (rhs, "AdjY"))
    )
    drawing.computed("BatchMatMul", sides)


def _turned(drawing: Drawing, tensor: Tensor, is_turned: bool) -> str:
    """With the last two dimensions exchanged, if ``is_turned``."""
    name, rank = drawing.name(tensor), len(tensor.shape)
    if not is_turned:
        return name
    order = (*range(rank - 2), rank - 1, rank - 2)
    turned = drawing.temporary(tensor, "turned", tuple(tensor.shape[axis] for axis in order))
    return drawing.instruction("transpose", [name], turned, Shuffle=order)


def resize(opcode: str) -> Draw:
    """To another height and width, on the host."""

    def draw(drawing: Drawing) -> None:
        (source,), result = drawing.quantized(1), drawing.result
        check_alike(source, result)
        if len(source.shape) != 4 or len(result.shape) != 4:
            raise UnsupportedError(f"{list(source.shape)} to {list(result.shape)}")
        sizes = zip(result.shape, source.shape, strict=True)
        words: dict[str, Any] = {"Scale": tuple(float(o) / float(i) for o, i in sizes)}
        options = drawing.operator.options
        words |= {name: 1 for name in ("AlignCorners", "HalfPixelCenters") if options[name]}
        if source.dtype == "uint8" and opcode == "resizebilinear":
            words["Unsigned"] = 1
        drawing.instruction(opcode, [drawing.name(source)], **words)

    return draw


def pool(opcode: str) -> Draw:
    """A window over rows and columns; an average counts the taps that exist."""

    def draw(drawing: Drawing) -> None:
        (source,), options = drawing.quantized(1), drawing.operator.options
        kernel = (options["FilterHeight"], options["FilterWidth"])
        strides = (options["StrideH"], options["StrideW"])
        if len(source.shape) != 4:
            raise UnsupportedError(f"an input {list(source.shape)}")
        check_alike(source, drawing.result)
        pads = paddings(drawing.operator, source.shape, kernel, strides)
        words: dict[str, Any] = {"Kernels": kernel, "Strides": strides, "Pads": pads}
        if opcode == "avgpool":
            words["CountIncludePads"] = 0
            words |= {"Unsigned": 1} if source.dtype == "uint8" else {}
        drawing.instruction(opcode, [drawing.name(source)], limits=drawing.limits, **words)

    return draw


def softmax(drawing: Drawing) -> None:
    """Along the last dimension."""
    (source,) = drawing.quantized(1)
    if not source.shape:
        raise UnsupportedError("an input without dimensions")
    beta = float(drawing.operator.options["Beta"])
    if not 0 < beta < math.inf:
        raise UnsupportedError(f"beta {beta:g}")
    rows = (math.prod(source.shape[:-1]), source.shape[-1])
    words: dict[str, Any] = {} if beta == 1 else {"Beta": beta}
    drawing.instruction("softmax", [drawing.name(source)], views=(rows, rows), **words)


def quantize(drawing: Drawing) -> None:
    """From float, or from one scale, zero point or width to another."""
    (source,) = drawing.inputs(1)
    is_real = source.dtype == "float32"
    if not is_real and not source.is_quantized:
        raise UnsupportedError(f"{source.name} is {source.dtype}")
    opcode = "quantize" if is_real else "rescalequantized"
    drawing.instruction(opcode, [drawing.name(source)])


def dequantize(drawing: Drawing) -> None:
    """To float32, on the host."""
    (source,) = drawing.quantized(1)
    drawing.instruction("dequantize", [drawing.name(source)])
