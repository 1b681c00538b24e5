"""Operators that move values: views, padding, slices, concatenation, transposition."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.builder import Value
from nmpsim.frontends.tflite.lowering import (
    Lowering,
    Result,
    activation_of,
    dimension,
    same_parameters,
)
from nmpsim.frontends.tflite.model import Operator, Tensor
from nmpsim.frontends.tflite.tables import rescaled_part
from nmpsim.frontends.tflite.weighted import VALID
from nmpsim.frontends.unsupported import UnsupportedError

Lower = Callable[[Lowering, Operator], Result]
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
    axis = dimension([operator.options["Axis"]], len(result.shape))
    if activation_of(operator) != "NONE":
        raise UnsupportedError(f"a fused {activation_of(operator)}")
    target = graph.target(result)
    graph.touch(operator, target)
    begin = 0
    for tensor in operator.inputs:
        part = _on_the_scale_of(graph, operator, tensor, target)
        if len(part.shape) != len(result.shape):
            raise UnsupportedError(f"{list(part.shape)} as a part of {list(result.shape)}")
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
        raise UnsupportedError("inputs and result of different scales or zero points")
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
    axis = dimension([operator.options["Axis"]], len(result.shape))
    target = graph.target(result)
    graph.touch(operator, target)
    for index, tensor in enumerate(operator.inputs):
        part = graph.value(tensor)
        if not same_parameters(target, part):
            raise UnsupportedError("inputs and result of different scales or zero points")
        shape = (*part.shape[:axis], 1, *part.shape[axis:])
        offsets = [0] * len(result.shape)
        offsets[axis] = index
        _insert(graph, operator, target, graph.view(part, shape), offsets)
    return Result()


def transpose(graph: Lowering, operator: Operator) -> Result:
    """Dimensions in another order."""
    source, result = _first(operator), operator.outputs[0]
    graph.check_moved(source, result)
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
    """A box; dimensions may be dropped from the result, and steps other than 1 are gathered."""
    source, result = _first(operator), operator.outputs[0]
    begins, ends, steps = (graph.integers(operator, place) for place in (1, 2, 3))
    options, sizes = operator.options, source.shape
    if options["EllipsisMask"] or options["NewAxisMask"]:
        raise UnsupportedError("a mask of new dimensions")
    if not len(begins) == len(ends) == len(steps) == len(sizes) or 0 in steps:
        raise UnsupportedError(f"{len(begins)} beginnings for {len(sizes)} dimensions")
    taken = []
    for d, size in enumerate(sizes):
        begin = None if options["BeginMask"] >> d & 1 else begins[d]
        if options["ShrinkAxisMask"] >> d & 1:
            one = begin or 0
            taken.append(range(size)[one : one + 1 or None])
            continue
        end = None if options["EndMask"] >> d & 1 else ends[d]
        taken.append(range(size)[begin : end : steps[d]])
    value = graph.value(source)
    for d, places in enumerate(taken):
        if len(places) > 1 and places.step != 1:
            value = graph.gathered(operator, value, d, np.array(places), None)
            taken[d] = range(len(places))
    if not all(taken):
        raise UnsupportedError("a result without elements")
    shape = tuple(map(len, taken))
    return _extract(graph, operator, value, result, [places[0] for places in taken], shape)


def split(graph: Lowering, operator: Operator) -> Result:
    """Equal parts along a dimension."""
    if len(operator.inputs) < 2:
        raise UnsupportedError(f"{len(operator.inputs)} inputs")
    return _split(graph, operator, operator.inputs[1], graph.integers(operator, 0))


def split_v(graph: Lowering, operator: Operator) -> Result:
    """Parts of given sizes, which the results have."""
    return _split(graph, operator, _first(operator), graph.integers(operator, 2))


def _split(graph: Lowering, operator: Operator, source: Tensor | None, given: list[int]) -> Result:
    if source is None:
        raise UnsupportedError("an input is left out")
    axis = dimension(given, len(source.shape))
    begin = 0
    for result in operator.outputs:
        first = [0] * len(source.shape)
        first[axis] = begin
        if len(result.shape) != len(source.shape):
            raise UnsupportedError(f"{list(result.shape)} as a part of {list(source.shape)}")
        _extract(graph, operator, graph.value(source), result, first)
        begin += result.shape[axis]
    return Result()


def unpack(graph: Lowering, operator: Operator) -> Result:
    """Slices along a dimension, without it."""
    source = _first(operator)
    axis = dimension([operator.options["Axis"]], len(source.shape))
    if len(operator.outputs) != source.shape[axis]:
        raise UnsupportedError(f"{len(operator.outputs)} results of {source.shape[axis]}")
    shape = (*source.shape[:axis], 1, *source.shape[axis + 1 :])
    for index, result in enumerate(operator.outputs):
        first = [0] * len(source.shape)
        first[axis] = index
        _extract(graph, operator, graph.value(source), result, first, shape)
    return Result()


def gather(graph: Lowering, operator: Operator) -> Result:
    """Slices along a dimension at constant places."""
    source, result = _first(operator), operator.outputs[0]
    graph.check_moved(source, result)
    axis = dimension([operator.options["Axis"]], len(source.shape))
    places = graph.constant_of(operator.inputs[1] if len(operator.inputs) > 1 else None)
    if operator.options["BatchDims"] or places.dtype.kind not in "iu":
        raise UnsupportedError(f"batches, or places of {places.dtype}")
    if places.size and not (places.min() >= 0 and places.max() < source.shape[axis]):
        raise UnsupportedError(f"a place outside of {source.shape[axis]}")
    graph.gathered(operator, graph.value(source), axis, places, graph.target(result))
    return Result()


def mirror_pad(graph: Lowering, operator: Operator) -> Result:
    """The values around a tensor are its own, as in a mirror in or at its edge."""
    source, result = _first(operator), operator.outputs[0]
    graph.check_moved(source, result)
    given, edge = graph.integers(operator, 1), 1 - int(operator.options["Mode"])
    if len(given) != 2 * len(source.shape) or edge not in (0, 1):
        raise UnsupportedError(f"paddings {given}")
    value = graph.value(source)
    for axis, (before, behind) in enumerate(zip(given[::2], given[1::2], strict=True)):
        size = source.shape[axis]
        if not (0 <= before <= size - edge and 0 <= behind <= size - edge):
            raise UnsupportedError(f"paddings {given}")
        own = list(range(size))
        front = own[edge : edge + before][::-1]
        back = own[size - edge - behind : size - edge][::-1]
        if before or behind:
            value = graph.gathered(operator, value, axis, np.array(front + own + back), None)
    graph.add("copy", operator, (graph.target(result), value))
    return Result()


def blocks(into_channels: bool) -> Lower:
    """Squares of pixels become channels, or channels squares of pixels."""

    def lower(graph: Lowering, operator: Operator) -> Result:
        source, result = _first(operator), operator.outputs[0]
        graph.check_moved(source, result)
        size = operator.options["BlockSize"]
        if len(source.shape) != 4 or len(result.shape) != 4 or size < 1:
            raise UnsupportedError(f"blocks of {size} in {list(source.shape)}")
        images, rows, columns, channels = (result if into_channels else source).shape
        channels //= size * size
        apart = (images, rows, size, columns, size, channels)
        together = (images, rows, columns, size, size, channels)
        before, after = (apart, together) if into_channels else (together, apart)
        target = graph.target(result, after)
        value = graph.view(graph.value(source), before)
        graph.add("transpose", operator, (target, value), Shuffle=(0, 1, 3, 2, 4, 5))
        return Result()

    return lower


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
        raise UnsupportedError("input and result of different scales or zero points")
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
