"""Operations on integers without weights: pairs, pools, functions of one value, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.functions import FUNCTIONS, Reals
from nmpsim.frontends.graph.lowering import LAST, PLAIN, Layout, Lowering, Result
from nmpsim.frontends.graph.steps import LIMITS, MOVED, IntegerOperation, Quantized
from nmpsim.frontends.graph.windows import window_of
from nmpsim.frontends.unsupported import UnsupportedError

Lower = Callable[[Lowering, IntegerOperation], Result]


def is_unsigned(kind: Quantized) -> dict[str, int]:
    """The attribute of operations that round the zero point as a float32."""
    return {"Unsigned": 1} if kind.dtype == "uint8" else {}


def pair(opcode: str) -> Lower:
    """Two tensors, either broadcast."""

    def lower(graph: Lowering, step: IntegerOperation) -> Result:
        left, right = step.sources
        names = (left.name, right.name)
        try:
            shape = tuple(np.broadcast_shapes(*(graph.shape(name) for name in names)))
        except ValueError:
            raise UnsupportedError(" and ".join(str(graph.shape(n)) for n in names)) from None
        layout = graph.layout(*names)
        sides = [graph.broadcast(one.name, layout, shape, one) for one in step.sources]
        target = graph.target(step.result.name, shape, step.result, layout)
        made = target
        if step.limits is not None:
            made = graph.temporary(f"{step.result.name}_sum", target.type)
        more = {} if opcode == "elementsub" else is_unsigned(step.result)
        graph.add(opcode, step.result.name, (made, *sides), **more)
        clip(graph, step.result.name, made, target, step.limits)
        return Result()

    return lower


def limited(graph: Lowering, step: IntegerOperation) -> Result:
    """A ReLU or clip of its own, between any two scales."""
    (source,) = step.sources
    layout = graph.layout(source.name)
    value = graph.value(source.name, layout, source)
    target = graph.target(step.result.name, graph.shape(source.name), step.result, layout)
    clip(graph, step.result.name, value, target, step.limits or (0.0, None))
    return Result()


def clip(
    graph: Lowering,
    name: str,
    made: Value,
    target: Value,
    limits: tuple[float, float | None] | None,
) -> None:
    """The limits of an operation that has no fused ones, as an instruction; None: no limits."""
    if limits is None:
        return
    low, high = limits
    if high is None:
        graph.add("relu", name, (target, made))
    else:
        graph.add("clip", name, (target, made), Min=low, Max=high)


# --- pools -----------------------------------------------------------------------------------


def average_pool(graph: Lowering, step: IntegerOperation) -> Result:
    """A window over rows and columns; or over all of them."""
    (source,) = step.sources
    shape = graph.shape(source.name)
    is_last = bool(step.attributes.get("channels_last", 0))
    if not 3 <= len(shape) <= 4:
        raise UnsupportedError(f"an input {list(shape)}")
    layout: Layout = PLAIN if is_last else LAST
    value = graph.value(source.name, layout, source)
    images, *spatial, channels = value.shape
    whole = {"kernel_shape": tuple(spatial)}
    attributes = whole if step.kind == "GlobalAveragePool" else step.attributes
    window = window_of(attributes, tuple(spatial))
    # ONNX Runtime takes one window over all as GlobalAveragePool, which rounds otherwise.
    is_global = window.kernel[2 - len(spatial) :] == tuple(spatial) and not any(window.pads)
    if window.dilation != (1, 1) or (window.is_extended and window.counts_padding):
        raise UnsupportedError(f"dilations {window.dilation}, or ceil_mode with counted padding")
    held = (images, *window.out[2 - len(spatial) :], channels)
    result = held if is_last else (held[0], held[-1], *held[1:-1])
    target = graph.target(step.result.name, result, step.result, layout)
    made = target
    if step.limits is not None:
        made = graph.temporary(f"{step.result.name}_mean", target.type)
    graph.add(
        "avgpool",
        step.result.name,
        (as_image(graph, made), as_image(graph, value)),
        Kernels=window.kernel,
        Strides=window.strides,
        Pads=window.pads,
        CountIncludePads=int(window.counts_padding or not any(window.pads)),
        **({"Global": 1} if is_global else is_unsigned(step.result)),
    )
    clip(graph, step.result.name, made, target, step.limits)
    return Result()


def as_image(graph: Lowering, value: Value) -> Value:
    """A sequence [N, L, C] as an image of one row."""
    if len(value.shape) == 4:
        return value
    return graph.view(value, (value.shape[0], 1, *value.shape[1:]))


# --- functions of one value ------------------------------------------------------------------


def table_of(
    source: Quantized, result: Quantized, function: Callable[[Reals], Reals]
) -> npt.NDArray[np.int64]:
    """``rint(f(S * (q - Z)) / So) + Zo`` for all 256 integers that are held, less what is moved.

    Source: ``QLinearLookupBase`` (onnxruntime/contrib_ops/cpu/quantization/qlinear_lookup_table.cc)
    and MLAS's ``QuantizeLinear``: float32, the zero point after rounding.
    """
    if source.dtype not in ("int8", "uint8") or result.dtype != source.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    low, high = LIMITS[source.dtype]
    integers = np.arange(low, high + 1) - source.zero_point
    reals = integers.astype(np.float32) * np.float32(source.scale)
    with np.errstate(all="ignore"):
        steps = np.rint(function(reals).astype(np.float32) / np.float32(result.scale))
    if np.isnan(steps).any():
        raise UnsupportedError("a function that is no number somewhere")
    wide = np.clip(steps.astype(np.float64), -(2.0**31), 2.0**31) + result.zero_point
    clipped: npt.NDArray[np.int64] = np.clip(wide, low, high).astype(np.int64)
    return clipped - MOVED.get(result.dtype, 0)


def look_up(graph: Lowering, step: IntegerOperation) -> Result:
    """A function of one 8-bit value."""
    return tabulated(graph, step, lambda x: FUNCTIONS[step.kind](x, step.attributes))


def tabulated(
    graph: Lowering, step: IntegerOperation, function: Callable[[Reals], Reals]
) -> Result:
    """A function of one 8-bit value, and what clips it, as the table of its 256 results."""
    source, low, high = step.sources[0], -np.inf, np.inf
    if step.limits is not None:
        low, high = step.limits[0], np.inf if step.limits[1] is None else step.limits[1]
    table = table_of(source, step.result, lambda x: np.clip(function(x), low, high))
    layout = graph.layout(source.name)
    value = graph.value(source.name, layout, source)
    target = graph.target(step.result.name, graph.shape(source.name), step.result, layout)
    graph.look_up(step.result.name, target, value, table)
    return Result()


def softmax(graph: Lowering, step: IntegerOperation) -> Result:
    """Along one dimension; before opset 13 along all from one on."""
    (source,) = step.sources
    if step.limits is not None:
        raise UnsupportedError("a clip of a softmax")
    shape = graph.shape(source.name)
    opset = int(step.attributes.get("opset", graph.opset))
    axis = int(step.attributes.get("axis", -1 if opset >= 13 else 1))
    if not shape or not -len(shape) <= axis < len(shape):
        raise UnsupportedError(f"dimension {axis} of {list(shape)}")
    axis %= len(shape)
    value = graph.value(source.name, PLAIN, source)
    target = graph.target(step.result.name, shape, step.result)
    along(graph, "softmax", step.result.name, (target, value), axis, whole=opset < 13)
    return Result()


def along(
    graph: Lowering, opcode: str, name: str, sides: tuple[Value, Value], axis: int, whole: bool
) -> None:
    """A function of rows along one dimension, or, ``whole``, along all from it on."""
    target, value = sides
    shape = value.shape
    if whole or math.prod(shape[axis + 1 :]) == 1:
        rows = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        graph.add(opcode, name, [graph.view(side, rows) for side in sides])
        return
    turned = swapped(graph, name, value, axis)
    rows = (math.prod(turned.shape[:-1]), turned.shape[-1])
    made = graph.temporary(f"{name}_rows", attrs.evolve(target.type, shape=turned.shape))
    graph.add(opcode, name, (graph.view(made, rows), graph.view(turned, rows)))
    graph.add("transpose", name, (target, made), Shuffle=exchange(len(shape), axis))


def exchange(rank: int, axis: int) -> tuple[int, ...]:
    """The order of dimensions that exchanges one and the last."""
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return tuple(order)


def swapped(graph: Lowering, name: str, value: Value, axis: int) -> Value:
    """A dimension and the last one exchanged."""
    order = exchange(len(value.shape), axis)
    if axis == len(order) - 1:
        return value
    type = attrs.evolve(value.type, shape=tuple(value.shape[i] for i in order))
    made = graph.temporary(f"{name}_swapped", type)
    graph.add("transpose", name, (made, value), Shuffle=order)
    return made


# --- concatenation ---------------------------------------------------------------------------


def concatenation(graph: Lowering, step: IntegerOperation) -> Result:
    """Parts one behind the other; those on another scale go through a table."""
    if step.limits is not None:
        raise UnsupportedError("a clip of parts")
    shapes = [graph.shape(one.name) for one in step.sources]
    rank, axis = len(shapes[0]), int(step.attributes.get("axis", 0))
    shape = joined(shapes, axis)
    layout = graph.layout(*(one.name for one in step.sources))
    target = graph.target(step.result.name, shape, step.result, layout)
    parts = []
    for source in step.sources:
        value = graph.value(source.name, layout, source)
        if value.type.quant != target.type.quant:
            kind = attrs.evolve(target.type, shape=value.shape)
            moved = graph.temporary(f"{source.name}_part", kind)
            if target.type.elem == "i16":  # an island: ONNX Runtime has it in float32
                graph.add("rescalequantized", step.result.name, (moved, value))
            else:
                own = attrs.evolve(source, dtype=source.dtype or step.result.dtype)
                table = table_of(own, step.result, lambda x: x)
                graph.look_up(step.result.name, moved, value, table)
            value = moved
        parts.append(value)
    join(graph, step.result.name, target, parts, place_of(axis, rank, layout))
    return Result()


def joined(shapes: list[tuple[int, ...]], axis: int) -> tuple[int, ...]:
    """The shape of tensors one behind the other."""
    first = shapes[0]
    rank = len(first)
    if not -rank <= axis < rank:
        raise UnsupportedError(f"dimension {axis} of {list(first)}")
    axis %= rank
    if any((*s[:axis], *s[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]) for s in shapes):
        raise UnsupportedError(f"parts {[list(shape) for shape in shapes]}")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def place_of(axis: int, rank: int, layout: Layout) -> int:
    """Where a dimension of the file is in a layout."""
    axis %= max(rank, 1)
    if layout == PLAIN or rank < 3 or axis == 0:
        return axis
    return rank - 1 if axis == 1 else axis - 1


def join(graph: Lowering, name: str, target: Value, parts: list[Value], axis: int) -> None:
    """Put parts one behind the other."""
    graph.builder.add("touch", f"{name}_touch", (target,))
    begin = 0
    for part in parts:
        offsets = [0] * len(target.shape)
        offsets[axis] = begin
        graph.add("inserttensor", name, (target, part), Offsets=tuple(offsets), Count=1, Axis=0)
        begin += part.shape[axis]
