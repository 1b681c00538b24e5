"""Operators that move values: views, padding, slices, concatenation, transposition."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.graph.nodes import Array
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.tflite.graph_builder import (
    TFLiteGraphBuilder,
    check_alike,
    check_moved,
    dimension,
    values_of,
)
from nmpsim.frontends.tflite.model import Tensor
from nmpsim.frontends.tflite.tables import rescaled_part

Draw = Callable[[TFLiteGraphBuilder], None]


def reshape(builder: TFLiteGraphBuilder) -> None:
    """The same values in the same order."""
    (source,) = builder.inputs(1)
    check_moved(source, builder.result)
    builder.add("Reshape", [builder.name(source)], shape=builder.result.shape, allowzero=1)


def pad(builder: TFLiteGraphBuilder) -> None:
    """Zeros, or the given value, around a tensor."""
    (source,), result = builder.inputs(1), builder.result
    check_moved(source, result)
    given = builder.integers(1)
    if len(given) != 2 * len(source.shape) or min(given, default=0) < 0:
        raise UnsupportedError(f"paddings {given}")
    inputs = [builder.name(source)]
    if result.is_quantized:
        value = int(builder.parameters(result).zero_point)
        if len(builder.operator.inputs) > 2 and builder.operator.inputs[2] is not None:
            value = (builder.integers(2) or [0])[0]
        inputs += ["", builder.add_constant(f"{result.name}_value", np.array(value), "int64")]
    builder.add("Pad", inputs, pads=(*given[::2], *given[1::2]))


def mirror_pad(builder: TFLiteGraphBuilder) -> None:
    """The values around a tensor are its own, as in a mirror in or at its edge."""
    (source,) = builder.inputs(1)
    check_moved(source, builder.result)
    given, edge = builder.integers(1), 1 - int(builder.operator.options["Mode"])
    if len(given) != 2 * len(source.shape) or edge not in (0, 1):
        raise UnsupportedError(f"paddings {given}")
    sizes = (size for size in source.shape for _ in range(2))
    if any(not 0 <= amount <= size - edge for amount, size in zip(given, sizes, strict=True)):
        raise UnsupportedError(f"paddings {given}")
    mode = ("symmetric", "reflect")[edge]
    builder.add("Pad", [builder.name(source)], pads=(*given[::2], *given[1::2]), mode=mode)


def concatenation(builder: TFLiteGraphBuilder) -> None:
    """Parts one behind the other; TFLite's Int8 has them all on one scale."""
    if builder.limits is not None:
        raise UnsupportedError("a fused activation")
    rank = len(builder.result.shape)
    axis = dimension([builder.operator.options["Axis"]], rank)
    for part in builder.operator.inputs:
        if part is not None and len(part.shape) != rank:
            whole = list(builder.result.shape)
            raise UnsupportedError(f"{list(part.shape)} as a part of {whole}")
    parts = [_on_the_scale_of(builder, part) for part in builder.operator.inputs]
    builder.add("Concat", parts, axis=axis)


def _on_the_scale_of(builder: TFLiteGraphBuilder, tensor: Tensor | None) -> str:
    """A part of a concatenation; one of uint8 may come from another scale, by a table."""
    part, result = builder.name(tensor), builder.result
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
    moved = builder.temporary(result, "part", tensor.shape)
    return builder.add_table(part, np.clip(values, 0, 255) - UNSIGNED, moved)


def pack(builder: TFLiteGraphBuilder) -> None:
    """Tensors of one shape along a new dimension."""
    result = builder.result
    axis = dimension([builder.operator.options["Axis"]], len(result.shape))
    parts = []
    for tensor in builder.inputs(len(builder.operator.inputs)):
        check_alike(tensor, result)
        shape = (*tensor.shape[:axis], 1, *tensor.shape[axis:])
        wide = builder.temporary(tensor, "wide", shape)
        parts.append(builder.add("Reshape", [builder.name(tensor)], wide, shape=shape))
    builder.add("Concat", parts, axis=axis)


def transpose(builder: TFLiteGraphBuilder) -> None:
    """Dimensions in another order."""
    (source,) = builder.inputs(1)
    check_moved(source, builder.result)
    order = tuple(axis % max(len(source.shape), 1) for axis in builder.integers(1))
    builder.add_instruction("transpose", [builder.name(source)], Shuffle=order)


def slice_(builder: TFLiteGraphBuilder) -> None:
    """A box of a tensor, from constant places."""
    (source,) = builder.inputs(1)
    check_alike(source, builder.result)
    _extract(builder, builder.name(source), builder.result, builder.integers(1))


def strided_slice(builder: TFLiteGraphBuilder) -> None:
    """A box; dimensions may be dropped from the result, and steps other than 1 are gathered."""
    (source,) = builder.inputs(1)
    begins, ends, steps = (builder.integers(place) for place in (1, 2, 3))
    options, sizes = builder.operator.options, source.shape
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
    check_alike(source, builder.result)
    name, shape = builder.name(source), sizes
    for d, places in enumerate(taken):
        if len(places) > 1 and places.step != 1:
            shape = (*shape[:d], len(places), *shape[d + 1 :])
            part = builder.temporary(source, "part", shape)
            name = _gathered(builder, name, d, np.array(places), part)
            taken[d] = range(len(places))
    shape = tuple(map(len, taken))
    _extract(builder, name, builder.result, [places[0] for places in taken], shape)


def split(builder: TFLiteGraphBuilder) -> None:
    """Equal parts along a dimension."""
    _split(builder, builder.inputs(2)[1], builder.integers(0))


def split_v(builder: TFLiteGraphBuilder) -> None:
    """Parts of given sizes, which the results have."""
    _split(builder, builder.inputs(1)[0], builder.integers(2))


def _split(builder: TFLiteGraphBuilder, source: Tensor, given: list[int]) -> None:
    axis = dimension(given, len(source.shape))
    begin = 0
    for result in builder.operator.outputs:
        if len(result.shape) != len(source.shape):
            raise UnsupportedError(f"{list(result.shape)} as a part of {list(source.shape)}")
        _part(builder, source, result, axis, begin)
        begin += result.shape[axis]


def unpack(builder: TFLiteGraphBuilder) -> None:
    """Slices along a dimension, without it."""
    (source,), results = builder.inputs(1), builder.operator.outputs
    axis = dimension([builder.operator.options["Axis"]], len(source.shape))
    if len(results) != source.shape[axis]:
        raise UnsupportedError(f"{len(results)} results of {source.shape[axis]}")
    shape = (*source.shape[:axis], 1, *source.shape[axis + 1 :])
    for index, result in enumerate(results):
        _part(builder, source, result, axis, index, shape)


def gather(builder: TFLiteGraphBuilder) -> None:
    """Slices along a dimension at constant places."""
    (source,), operator = builder.inputs(1), builder.operator
    check_moved(source, builder.result)
    axis = dimension([operator.options["Axis"]], len(source.shape))
    places = values_of((*operator.inputs, None)[1])
    if operator.options["BatchDims"] or places.dtype.kind not in "iu":
        raise UnsupportedError(f"batches, or places of {places.dtype}")
    if places.size and not (places.min() >= 0 and places.max() < source.shape[axis]):
        raise UnsupportedError(f"a place outside of {source.shape[axis]}")
    _gathered(builder, builder.name(source), axis, places)


def blocks(into_channels: bool) -> Draw:
    """Squares of pixels become channels, or channels squares of pixels."""

    def draw(builder: TFLiteGraphBuilder) -> None:
        (source,), result = builder.inputs(1), builder.result
        check_moved(source, result)
        size = builder.operator.options["BlockSize"]
        if len(source.shape) != 4 or len(result.shape) != 4 or size < 1:
            raise UnsupportedError(f"blocks of {size} in {list(source.shape)}")
        images, rows, columns, channels = (result if into_channels else source).shape
        channels //= size * size
        apart = (images, rows, size, columns, size, channels)
        together = (images, rows, columns, size, size, channels)
        views = (together, apart) if into_channels else (apart, together)
        order = (0, 1, 3, 2, 4, 5)
        builder.add_instruction("transpose", [builder.name(source)], views=views, Shuffle=order)

    return draw


def _gathered(
    builder: TFLiteGraphBuilder, source: str, axis: int, places: Array, *result: str
) -> str:
    """Slices of a tensor along a dimension, at constant places; on the host."""
    name = f"{builder.result.name}_places"
    indices = builder.add_constant(name, places.astype(np.int32), "int32")
    return builder.add_instruction("gather", [source, indices], *result, BatchDims=axis)


def _part(
    builder: TFLiteGraphBuilder,
    source: Tensor,
    result: Tensor,
    axis: int,
    begin: int,
    shape: tuple[int, ...] = (),
) -> None:
    check_alike(source, result)
    first = [begin * (d == axis) for d in range(len(source.shape))]
    _extract(builder, builder.name(source), result, first, shape)


def _extract(
    builder: TFLiteGraphBuilder,
    source: str,
    result: Tensor,
    first: list[int],
    shape: tuple[int, ...] = (),
) -> None:
    """A box of a tensor; ``shape`` is that of the box, if the result's is another."""
    if shape and math.prod(shape) != math.prod(result.shape):
        raise UnsupportedError(f"shape {list(result.shape)} cannot be {list(shape)}")
    name = builder.name(result)
    views = (shape,) if shape else ()
    builder.add_instruction("extracttensor", [source], name, views=views, Offsets=tuple(first))
