"""Operators that move values: views, padding, slices, concatenation, transposition."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.graph.nodes import Array
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.tflite.drawing import (
    Drawing,
    check_alike,
    check_moved,
    dimension,
    values_of,
)
from nmpsim.frontends.tflite.model import Tensor
from nmpsim.frontends.tflite.tables import rescaled_part

Draw = Callable[[Drawing], None]


def reshape(drawing: Drawing) -> None:
    """The same values in the same order."""
    (source,) = drawing.inputs(1)
    check_moved(source, drawing.result)
    drawing.add("Reshape", [drawing.name(source)], shape=drawing.result.shape, allowzero=1)


def pad(drawing: Drawing) -> None:
    """Zeros, or the given value, around a tensor."""
    (source,), result = drawing.inputs(1), drawing.result
    check_moved(source, result)
    given = drawing.integers(1)
    if len(given) != 2 * len(source.shape) or min(given, default=0) < 0:
        raise UnsupportedError(f"paddings {given}")
    inputs = [drawing.name(source)]
    if result.is_quantized:
        value = int(drawing.parameters(result).zero_point)
        if len(drawing.operator.inputs) > 2 and drawing.operator.inputs[2] is not None:
            value = (drawing.integers(2) or [0])[0]
        inputs += ["", drawing.constant(f"{result.name}_value", np.array(value), "int64")]
    drawing.add("Pad", inputs, pads=(*given[::2], *given[1::2]))


def mirror_pad(drawing: Drawing) -> None:
    """The values around a tensor are its own, as in a mirror in or at its edge."""
    (source,) = drawing.inputs(1)
    check_moved(source, drawing.result)
    given, edge = drawing.integers(1), 1 - int(drawing.operator.options["Mode"])
    if len(given) != 2 * len(source.shape) or edge not in (0, 1):
        raise UnsupportedError(f"paddings {given}")
    sizes = (size for size in source.shape for _ in range(2))
    if any(not 0 <= amount <= size - edge for amount, size in zip(given, sizes, strict=True)):
        raise UnsupportedError(f"paddings {given}")
    mode = ("symmetric", "reflect")[edge]
    drawing.add("Pad", [drawing.name(source)], pads=(*given[::2], *given[1::2]), mode=mode)


def concatenation(drawing: Drawing) -> None:
    """Parts one behind the other; TFLite's Int8 has them all on one scale."""
    if drawing.limits is not None:
        raise UnsupportedError("a fused activation")
    rank = len(drawing.result.shape)
    axis = dimension([drawing.operator.options["Axis"]], rank)
    for part in drawing.operator.inputs:
        if part is not None and len(part.shape) != rank:
            whole = list(drawing.result.shape)
            raise UnsupportedError(f"{list(part.shape)} as a part of {whole}")
    parts = [_on_the_scale_of(drawing, part) for part in drawing.operator.inputs]
    drawing.add("Concat", parts, axis=axis)


def _on_the_scale_of(drawing: Drawing, tensor: Tensor | None) -> str:
    """A part of a concatenation; one of uint8 may come from another scale, by a table."""
    part, result = drawing.name(tensor), drawing.result
    assert tensor is not None
    try:
        check_alike(tensor, result)
        return part
    except UnsupportedError:
        if tensor.dtype != "uint8":
            raise
    values = rescaled_part(
        np.arange(256),
        tensor.scales[0],
        int(tensor.zero_points[0]),
        result.scales[0],
        int(result.zero_points[0]),
    )
    moved = drawing.temporary(result, "part", tensor.shape)
    return drawing.look_up(part, np.clip(values, 0, 255) - UNSIGNED, moved)


def pack(drawing: Drawing) -> None:
    """Tensors of one shape along a new dimension."""
    result = drawing.result
    axis = dimension([drawing.operator.options["Axis"]], len(result.shape))
    parts = []
    for tensor in drawing.inputs(len(drawing.operator.inputs)):
        check_alike(tensor, result)
        shape = (*tensor.shape[:axis], 1, *tensor.shape[axis:])
        wide = drawing.temporary(tensor, "wide", shape)
        parts.append(drawing.add("Reshape", [drawing.name(tensor)], wide, shape=shape))
    drawing.add("Concat", parts, axis=axis)


def transpose(drawing: Drawing) -> None:
    """Dimensions in another order."""
    (source,) = drawing.inputs(1)
    check_moved(source, drawing.result)
    order = tuple(axis % max(len(source.shape), 1) for axis in drawing.integers(1))
    drawing.instruction("transpose", [drawing.name(source)], Shuffle=order)


def slice_(drawing: Drawing) -> None:
    """A box of a tensor, from constant places."""
    (source,) = drawing.inputs(1)
    check_alike(source, drawing.result)
    _extract(drawing, drawing.name(source), drawing.result, drawing.integers(1))


def strided_slice(drawing: Drawing) -> None:
    """A box; dimensions may be dropped from the result, and steps other than 1 are gathered."""
    (source,) = drawing.inputs(1)
    begins, ends, steps = (drawing.integers(place) for place in (1, 2, 3))
    options, sizes = drawing.operator.options, source.shape
    if options["EllipsisMask"] or options["NewAxisMask"]:
        raise UnsupportedError("a mask of new dimensions")
    if options.get("Offset"):
        raise UnsupportedError("ends that are counted from the beginnings")
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
    if not all(taken):
        raise UnsupportedError("a result without elements")
    check_alike(source, drawing.result)
    name, shape = drawing.name(source), sizes
    for d, places in enumerate(taken):
        if len(places) > 1 and places.step != 1:
            shape = (*shape[:d], len(places), *shape[d + 1 :])
            part = drawing.temporary(source, "part", shape)
            name = _gathered(drawing, name, d, np.array(places), part)
            taken[d] = range(len(places))
    shape = tuple(map(len, taken))
    _extract(drawing, name, drawing.result, [places[0] for places in taken], shape)


def split(drawing: Drawing) -> None:
    """Equal parts along a dimension."""
    _split(drawing, drawing.inputs(2)[1], drawing.integers(0))


def split_v(drawing: Drawing) -> None:
    """Parts of given sizes, which the results have."""
    _split(drawing, drawing.inputs(1)[0], drawing.integers(2))


def _split(drawing: Drawing, source: Tensor, given: list[int]) -> None:
    axis = dimension(given, len(source.shape))
    begin = 0
    for result in drawing.operator.outputs:
        if len(result.shape) != len(source.shape):
            raise UnsupportedError(f"{list(result.shape)} as a part of {list(source.shape)}")
        _part(drawing, source, result, axis, begin)
        begin += result.shape[axis]


def unpack(drawing: Drawing) -> None:
    """Slices along a dimension, without it."""
    (source,), results = drawing.inputs(1), drawing.operator.outputs
    axis = dimension([drawing.operator.options["Axis"]], len(source.shape))
    if len(results) != source.shape[axis]:
        raise UnsupportedError(f"{len(results)} results of {source.shape[axis]}")
    shape = (*source.shape[:axis], 1, *source.shape[axis + 1 :])
    for index, result in enumerate(results):
        _part(drawing, source, result, axis, index, shape)


def gather(drawing: Drawing) -> None:
    """Slices along a dimension at constant places."""
    (source,), operator = drawing.inputs(1), drawing.operator
    check_moved(source, drawing.result)
    axis = dimension([operator.options["Axis"]], len(source.shape))
    places = values_of((*operator.inputs, None)[1])
    if operator.options["BatchDims"] or places.dtype.kind not in "iu":
        raise UnsupportedError(f"batches, or places of {places.dtype}")
    if places.size and not (places.min() >= 0 and places.max() < source.shape[axis]):
        raise UnsupportedError(f"a place outside of {source.shape[axis]}")
    _gathered(drawing, drawing.name(source), axis, places)


def blocks(into_channels: bool) -> Draw:
    """Squares of pixels become channels, or channels squares of pixels."""

    def draw(drawing: Drawing) -> None:
        (source,), result = drawing.inputs(1), drawing.result
        check_moved(source, result)
        size = drawing.operator.options["BlockSize"]
        if len(source.shape) != 4 or len(result.shape) != 4 or size < 1:
            raise UnsupportedError(f"blocks of {size} in {list(source.shape)}")
        images, rows, columns, channels = (result if into_channels else source).shape
        channels //= size * size
        apart = (images, rows, size, columns, size, channels)
        together = (images, rows, columns, size, size, channels)
        views = (together, apart) if into_channels else (apart, together)
        order = (0, 1, 3, 2, 4, 5)
        drawing.instruction("transpose", [drawing.name(source)], views=views, Shuffle=order)

    return draw


def _gathered(drawing: Drawing, source: str, axis: int, places: Array, *result: str) -> str:
    """Slices of a tensor along a dimension, at constant places; on the host."""
    name = f"{drawing.result.name}_places"
    indices = drawing.constant(name, places.astype(np.int32), "int32")
    return drawing.instruction("gather", [source, indices], *result, BatchDims=axis)


def _part(
    drawing: Drawing,
    source: Tensor,
    result: Tensor,
    axis: int,
    begin: int,
    shape: tuple[int, ...] = (),
) -> None:
    check_alike(source, result)
    first = [begin * (d == axis) for d in range(len(source.shape))]
    _extract(drawing, drawing.name(source), result, first, shape)


def _extract(
    drawing: Drawing, source: str, result: Tensor, first: list[int], shape: tuple[int, ...] = ()
) -> None:
    """A box of a tensor; ``shape`` is that of the box, if the result's is another."""
    if shape and math.prod(shape) != math.prod(result.shape):
        raise UnsupportedError(f"shape {list(result.shape)} cannot be {list(shape)}")
    name = drawing.name(result)
    views = (shape,) if shape else ()
    drawing.instruction("extracttensor", [source], name, views=views, Offsets=tuple(first))
