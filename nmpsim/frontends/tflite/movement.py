"""Operators that move values: views, padding, slices, concatenation, transposition."""

from __future__ import annotations

import attrs
import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.builder import Value
from nmpsim.frontends.tflite.lowering import Lowering, Result, activation_of, same_parameters
from nmpsim.frontends.tflite.model import Operator, Tensor
from nmpsim.frontends.tflite.tables import rescaled_part
from nmpsim.frontends.tflite.weighted import VALID
from nmpsim.frontends.unsupported import UnsupportedError

_PADDED_BY = ("CONV_2D", "DEPTHWISE_CONV_2D")


def reshape(graph: Lowering, operator: Operator) -> Result:
    """The same values in the same order."""
    source, result = _first(operator), operator.outputs[0]
    graph.check_moved(source, result)
    value = graph.view(graph.value(source), result.shape)
    if result.index in graph.outputs:
        graph.add("copy", operator, (graph.target(result), value))
        return Result()
    graph.set(result, value)
    return Result("a view of its input, nothing moves")


def pad(graph: Lowering, operator: Operator) -> Result:
    """Zeros, or the given value, around a tensor."""
    source, result = _first(operator), operator.outputs[0]
    graph.check_moved(source, result)
    given = graph.integers(operator, 1)
    if len(given) != 2 * len(source.shape) or min(given, default=0) < 0:
        raise UnsupportedError(f"paddings {given}")
    amounts = list(zip(given[::2], given[1::2], strict=True))
    filler = operator.inputs[2] if len(operator.inputs) > 2 else None
    real = 0.0
    if filler is not None:
        (value,) = graph.integers(operator, 2)[:1] or (0,)
        real = float(np.float32(graph.scale(result)) * (value - int(result.zero_points[0])))
    if real == 0.0 and _is_folded(graph, operator, amounts):
        graph.set(result, graph.value(source))
        (top, bottom), (left, right) = amounts[1:3]
        graph.padding[result.index] = (top, left, bottom, right)
        return Result("padding of the convolution that reads it")
    inner, target = graph.value(source), graph.target(result)
    graph.add("splat", operator, (target,), Value=real)
    _insert(graph, operator, target, inner, [before for before, _ in amounts])
    return Result()


def _is_folded(graph: Lowering, operator: Operator, amounts: list[tuple[int, int]]) -> bool:
    """Whether only convolutions without padding of their own read the result."""
    result = operator.outputs[0]
    readers = graph.readers.get(result.index, [])
    return (
        bool(readers)
        and result.index not in graph.outputs
        and len(amounts) == 4
        and amounts[0] == amounts[3] == (0, 0)
        and all(
            reader.name in _PADDED_BY
            and reader.inputs[0] is result
            and reader.options["Padding"] == VALID
            for reader in readers
        )
    )


def concatenation(graph: Lowering, operator: Operator) -> Result:
    """Parts one behind the other; TFLite's Int8 has them all on one scale."""
    result = operator.outputs[0]
    axis = int(operator.options["Axis"]) % max(len(result.shape), 1)
    if activation_of(operator) != "NONE":
        raise UnsupportedError(f"a fused {activation_of(operator)}")
    target = graph.target(result)
    graph.touch(operator, target)
    begin = 0
    for tensor in operator.inputs:
        part = _on_the_scale_of(graph, operator, tensor, target)
        offsets = [0] * len(result.shape)
        offsets[axis] = begin
        _insert(graph, operator, target, part, offsets)
        begin += part.shape[axis]
    return Result()


def _on_the_scale_of(
    graph: Lowering, operator: Operator, tensor: Tensor | None, target: Value
) -> Value:
    """A part of a concatenation; one of uint8 may come from another scale, by a table."""
    part, result = graph.value(tensor), operator.outputs[0]
    if same_parameters(target, part):
        return part
    if tensor is None or tensor.dtype != "uint8":
        raise UnsupportedError("inputs and result of other scales")
    values = rescaled_part(
        np.arange(256),
        tensor.scales[0],
        int(tensor.zero_points[0]),
        result.scales[0],
        int(result.zero_points[0]),
    )
    table = (np.clip(values, 0, 255) - UNSIGNED).astype(np.int8)
    kind = attrs.evolve(target.type, shape=(256,))
    mapping = graph.builder.constant(f"{tensor.name}_table", table, kind)
    moved = graph.builder.buffer(f"{tensor.name}_part", attrs.evolve(target.type, shape=part.shape))
    graph.add("intlookuptable", operator, (moved, part, mapping))
    return moved


def pack(graph: Lowering, operator: Operator) -> Result:
    """Tensors of one shape along a new dimension."""
    result = operator.outputs[0]
    axis = int(operator.options["Axis"]) % max(len(result.shape), 1)
    target = graph.target(result)
    graph.touch(operator, target)
    for index, tensor in enumerate(operator.inputs):
        part = graph.value(tensor)
        if not same_parameters(target, part):
            raise UnsupportedError("inputs and result of other scales")
        shape = (*part.shape[:axis], 1, *part.shape[axis:])
        offsets = [0] * len(result.shape)
        offsets[axis] = index
        _insert(graph, operator, target, graph.view(part, shape), offsets)
    return Result()


def transpose(graph: Lowering, operator: Operator) -> Result:
    """Dimensions in another order."""
    source, result = _first(operator), operator.outputs[0]
    order = graph.integers(operator, 1)
    rank = len(source.shape)
    graph.add(
        "transpose",
        operator,
        (graph.target(result), graph.value(source)),
        Shuffle=tuple(axis % max(rank, 1) for axis in order),
    )
    return Result()


def slice_(graph: Lowering, operator: Operator) -> Result:
    """A box of a tensor, from constant places."""
    source, result = _first(operator), operator.outputs[0]
    begin = graph.integers(operator, 1)
    return _extract(graph, operator, graph.value(source), result, begin)


def strided_slice(graph: Lowering, operator: Operator) -> Result:
    """A box with steps of 1; dimensions may be dropped from the result."""
    source, result = _first(operator), operator.outputs[0]
    begin, strides = graph.integers(operator, 1), graph.integers(operator, 3)
    options = operator.options
    if options["EllipsisMask"] or options["NewAxisMask"] or any(step != 1 for step in strides):
        raise UnsupportedError(f"steps {strides}, or a mask of new dimensions")
    sizes = source.shape
    if len(begin) != len(sizes):
        raise UnsupportedError(f"{len(begin)} beginnings for {len(sizes)} dimensions")
    first = [
        0 if options["BeginMask"] >> d & 1 else max(0, b + size if b < 0 else b)
        for d, (b, size) in enumerate(zip(begin, sizes, strict=True))
    ]
    dropped = [d for d in range(len(sizes)) if options["ShrinkAxisMask"] >> d & 1]
    shape = list(result.shape)
    for d in dropped:
        shape.insert(d, 1)
    return _extract(graph, operator, graph.value(source), result, first, tuple(shape))


def split(graph: Lowering, operator: Operator) -> Result:
    """Equal parts along a dimension."""
    if len(operator.inputs) < 2:
        raise UnsupportedError(f"{len(operator.inputs)} inputs")
    source = operator.inputs[1]
    if source is None:
        raise UnsupportedError("an input is left out")
    axis = (graph.integers(operator, 0)[:1] or [0])[0] % max(len(source.shape), 1)
    begin = 0
    for result in operator.outputs:
        first = [0] * len(source.shape)
        first[axis] = begin
        _extract(graph, operator, graph.value(source), result, first)
        begin += result.shape[axis]
    return Result()


def _extract(
    graph: Lowering,
    operator: Operator,
    source: Value,
    result: Tensor,
    first: list[int],
    shape: tuple[int, ...] | None = None,
) -> Result:
    target = graph.target(result, shape)
    if not same_parameters(source, target):
        raise UnsupportedError("input and result of other scales")
    graph.builder.add(
        "extracttensor", result.name, (target, source), Offsets=tuple(int(f) for f in first)
    )
    return Result()


def _insert(
    graph: Lowering, operator: Operator, target: Value, part: Value, offsets: list[int]
) -> None:
    graph.add(
        "inserttensor",
        operator,
        (target, part),
        Offsets=tuple(int(o) for o in offsets),
        Count=1,
        Axis=0,
    )


def _first(operator: Operator) -> Tensor:
    source = operator.inputs[0] if operator.inputs else None
    if source is None:
        raise UnsupportedError("no input")
    return source
