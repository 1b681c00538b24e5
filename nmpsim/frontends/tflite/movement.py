"""Translation of TFLite operators that move elements: views, slices, padding, transposition."""

from __future__ import annotations

import math

import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.graph.nodes import Array, Shape
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.tflite.graph_builder import (
    TFLiteGraphBuilder,
    Translation,
    check_equal_kinds,
    check_equal_scales,
    get_constant_values,
    has_equal_scales,
    normalize_single_axis,
)
from nmpsim.frontends.tflite.model import TFLiteTensor
from nmpsim.frontends.tflite.tables import rescale_concat_input


def _reshape(builder: TFLiteGraphBuilder) -> None:
    check_equal_kinds(builder.source, builder.result)
    builder.add_node("Reshape", [builder.source], shape=builder.result.shape, allowzero=1)


def _pad(builder: TFLiteGraphBuilder) -> None:
    source, result = builder.source, builder.result
    check_equal_kinds(source, result)
    given = builder.get_integers(1)
    require(len(given) == 2 * len(source.shape) and min(given, default=0) >= 0, f"paddings {given}")
    inputs = [builder.get_name(source)]
    if result.is_quantized:
        value = builder.get_tensor_quantization(result).zero_point
        if len(builder.operator.inputs) > 2 and builder.operator.inputs[2] is not None:
            value = (builder.get_integers(2) or [0])[0]
        inputs += ["", builder.add_constant(f"{result.name}_value", np.array(value), "int64")]
    builder.add_node("Pad", inputs, pads=(*given[::2], *given[1::2]))


def _mirror_pad(builder: TFLiteGraphBuilder) -> None:
    source = builder.source
    check_equal_kinds(source, builder.result)
    given, edge = builder.get_integers(1), 1 - int(builder.options["Mode"])
    sizes = [size - edge for size in source.shape for _ in range(2)]
    is_known = len(given) == len(sizes) and edge in (0, 1)
    require(
        is_known and all(0 <= n <= most for n, most in zip(given, sizes, strict=True)),
        f"paddings {given}",
    )
    mode = ("symmetric", "reflect")[edge]
    builder.add_node("Pad", [source], pads=(*given[::2], *given[1::2]), mode=mode)


def _concatenation(builder: TFLiteGraphBuilder) -> None:
    require(builder.limits is None, "a fused activation")
    whole = builder.result.shape
    axis = normalize_single_axis([builder.options["Axis"]], len(whole))
    for part in builder.operator.inputs:
        if part is not None:
            require(len(part.shape) == len(whole), f"{list(part.shape)} as a part of {list(whole)}")
    parts = [_rescaled_part(builder, part) for part in builder.operator.inputs]
    builder.add_node("Concat", parts, axis=axis)


def _rescaled_part(builder: TFLiteGraphBuilder, part: TFLiteTensor | None) -> str:
    """Return an input of a concatenation on the scale of the result; for uint8 by a table."""
    name, result = builder.get_name(part), builder.result
    assert part is not None
    if has_equal_scales(part, result):
        return name
    if part.dtype != "uint8":
        check_equal_scales(part, result)
    numbers = [(one.scales[0], int(one.zero_points[0])) for one in (part, result)]
    values = rescale_concat_input(np.arange(256), *numbers[0], *numbers[1])
    moved = builder.add_temporary(result, "part", part.shape)
    return builder.add_table(name, np.clip(values, 0, 255) - UNSIGNED, moved)


def _pack(builder: TFLiteGraphBuilder) -> None:
    result = builder.result
    axis = normalize_single_axis([builder.options["Axis"]], len(result.shape))
    parts = []
    for tensor in builder.get_inputs(len(builder.operator.inputs)):
        check_equal_scales(tensor, result)
        shape = (*tensor.shape[:axis], 1, *tensor.shape[axis:])
        wide = builder.add_temporary(tensor, "wide", shape)
        parts.append(builder.add_node("Reshape", [tensor], wide, shape=shape))
    builder.add_node("Concat", parts, axis=axis)


def _transpose(builder: TFLiteGraphBuilder) -> None:
    source = builder.source
    check_equal_kinds(source, builder.result)
    order = tuple(axis % max(len(source.shape), 1) for axis in builder.get_integers(1))
    builder.add_instruction("transpose", [source], Shuffle=order)


def _slice(builder: TFLiteGraphBuilder) -> None:
    check_equal_scales(builder.source, builder.result)
    _extract(builder, builder.get_name(builder.source), builder.result, builder.get_integers(1))


def _strided_slice(builder: TFLiteGraphBuilder) -> None:
    source, options = builder.source, builder.options
    begins, ends, steps = (builder.get_integers(index) for index in (1, 2, 3))
    has_new_axes = options["EllipsisMask"] or options["NewAxisMask"]
    require(not has_new_axes, "a mask of an ellipsis or new dimensions")
    require(not options.get("Offset"), "ends that are relative to the starts")
    shape = source.shape
    require(
        len(begins) == len(ends) == len(steps) == len(shape) and 0 not in steps,
        f"{len(begins)} starts for {len(shape)} dimensions",
    )
    taken = []
    for d, size in enumerate(shape):
        begin = None if options["BeginMask"] >> d & 1 else begins[d]
        if options["ShrinkAxisMask"] >> d & 1:
            only = begin or 0
            taken.append(range(size)[only : only + 1 or None])
            continue
        end = None if options["EndMask"] >> d & 1 else ends[d]
        taken.append(range(size)[begin : end : steps[d]])
    require(all(taken), "a result without elements")
    check_equal_scales(source, builder.result)
    name = builder.get_name(source)
    for d, indices in enumerate(taken):
        if len(indices) > 1 and indices.step != 1:
            shape = (*shape[:d], len(indices), *shape[d + 1 :])
            part = builder.add_temporary(source, "part", shape)
            name = _add_gather(builder, name, d, np.array(indices), part)
            taken[d] = range(len(indices))
    offsets = [indices[0] for indices in taken]
    _extract(builder, name, builder.result, offsets, tuple(map(len, taken)))


def _split(builder: TFLiteGraphBuilder) -> None:
    _add_parts(builder, builder.get_inputs(2)[1], builder.get_integers(0))


def _split_v(builder: TFLiteGraphBuilder) -> None:
    _add_parts(builder, builder.source, builder.get_integers(2))


def _add_parts(builder: TFLiteGraphBuilder, source: TFLiteTensor, given: list[int]) -> None:
    axis = normalize_single_axis(given, len(source.shape))
    begin = 0
    for result in builder.operator.outputs:
        require(
            len(result.shape) == len(source.shape),
            f"{list(result.shape)} as a part of {list(source.shape)}",
        )
        _add_part(builder, source, result, axis, begin)
        begin += result.shape[axis]


def _unpack(builder: TFLiteGraphBuilder) -> None:
    source, results = builder.source, builder.operator.outputs
    axis = normalize_single_axis([builder.options["Axis"]], len(source.shape))
    require(len(results) == source.shape[axis], f"{len(results)} results of {source.shape[axis]}")
    shape = (*source.shape[:axis], 1, *source.shape[axis + 1 :])
    for index, result in enumerate(results):
        _add_part(builder, source, result, axis, index, shape)


def _gather(builder: TFLiteGraphBuilder) -> None:
    source, options = builder.source, builder.options
    check_equal_kinds(source, builder.result)
    axis = normalize_single_axis([options["Axis"]], len(source.shape))
    indices = get_constant_values((*builder.operator.inputs, None)[1])
    require(
        not options["BatchDims"] and indices.dtype.kind in "iu",
        f"batch dimensions, or indices of {indices.dtype}",
    )
    size = source.shape[axis]
    require(
        not indices.size or (indices.min() >= 0 and indices.max() < size),
        f"an index outside of {size}",
    )
    _add_gather(builder, builder.get_name(source), axis, indices)


def _block_translation(into_channels: bool) -> Translation:
    """Return the translation of squares of pixels to channels, or of channels to squares."""

    def translate(builder: TFLiteGraphBuilder) -> None:
        source, result = builder.source, builder.result
        check_equal_kinds(source, result)
        size = builder.options["BlockSize"]
        require(
            len(source.shape) == len(result.shape) == 4 and size > 0,
            f"blocks of {size} in {list(source.shape)}",
        )
        images, rows, columns, channels = (result if into_channels else source).shape
        channels //= size * size
        pixels = (images, rows, size, columns, size, channels)
        blocks = (images, rows, columns, size, size, channels)
        views = (blocks, pixels) if into_channels else (pixels, blocks)
        order = (0, 1, 3, 2, 4, 5)
        builder.add_instruction("transpose", [source], views=views, Shuffle=order)

    return translate


def _add_gather(
    builder: TFLiteGraphBuilder, source: str, axis: int, indices: Array, *result: str
) -> str:
    """Add the gather of constant indices of a dimension, which the host executes."""
    name = f"{builder.result.name}_places"
    constant = builder.add_constant(name, indices.astype(np.int32), "int32")
    return builder.add_instruction("gather", [source, constant], *result, BatchDims=axis)


def _add_part(
    builder: TFLiteGraphBuilder,
    source: TFLiteTensor,
    result: TFLiteTensor,
    axis: int,
    begin: int,
    shape: Shape = (),
) -> None:
    check_equal_scales(source, result)
    offsets = [begin * (d == axis) for d in range(len(source.shape))]
    _extract(builder, builder.get_name(source), result, offsets, shape)


def _extract(
    builder: TFLiteGraphBuilder,
    source: str,
    result: TFLiteTensor,
    offsets: list[int],
    shape: Shape = (),
) -> None:
    """Add the extraction of a box; ``shape`` is that of the box if the result has another one."""
    require(
        not shape or math.prod(shape) == math.prod(result.shape),
        f"shape {list(result.shape)} cannot be reshaped to {list(shape)}",
    )
    name, views = builder.get_name(result), (shape,) if shape else ()
    builder.add_instruction("extracttensor", [source], name, views=views, Offsets=tuple(offsets))


OPERATORS: dict[str, Translation] = {
    "CONCATENATION": _concatenation,
    "DEPTH_TO_SPACE": _block_translation(into_channels=False),
    "EXPAND_DIMS": _reshape,
    "GATHER": _gather,
    "MIRROR_PAD": _mirror_pad,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "RESHAPE": _reshape,
    "SLICE": _slice,
    "SPACE_TO_DEPTH": _block_translation(into_channels=True),
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQUEEZE": _reshape,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
    "UNPACK": _unpack,
}
