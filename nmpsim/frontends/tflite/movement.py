"""Lowering of TFLite operators that move elements, such as RESHAPE, PAD and SLICE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.frontends.graph import movement
from nmpsim.frontends.graph.movement import emit_pad, emit_stored_gather
from nmpsim.frontends.graph.operation import GraphLowering, LoweringResult, normalize_axis
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.module_builder import BuilderTensor
from nmpsim.frontends.tflite.tables import rescale_concat_input
from nmpsim.lir.printer import format_type


def lower_pad(op: GraphLowering, *, mode: int = 0) -> LoweringResult:
    """Lower PAD, PADV2, or MIRROR_PAD with ``mode`` 0 (reflect) or 1 (symmetric)."""
    given, kind = op.get_integers(1), op.result
    before, after = given[::2], given[1::2]
    if op.kind == "MIRROR_PAD":
        limits = [size - 1 + mode for size in op.get_shape() for _ in range(2)]
        is_small = all(pad <= limit for pad, limit in zip(given, limits, strict=True))
        require(mode in (0, 1), f"mode {mode}", "mode 0 (REFLECT) or 1 (SYMMETRIC)")
        require(is_small, f"paddings {given}", f"paddings of at most {limits}")
        return emit_pad(op, before, after, ("reflect", "symmetric")[mode])
    value = 0 if isinstance(kind, str) else kind.zero_point
    if op.node.get_input(2) and not isinstance(kind, str):
        value = (op.get_integers(2) or [0])[0]
    return emit_pad(op, before, after, value=value)


def lower_concatenation(op: GraphLowering, *, axis: int) -> LoweringResult:
    """Lower CONCATENATION; rescale uint8 inputs to the scale of the result."""
    require(op.limits is None, f"a fused clip to {op.limits}", "the fused activation NONE")
    parts = [_read_part(op, index) for index in range(len(op.names))]
    return op.emit_concatenation(op.result, parts, normalize_axis(axis, op.declared_shape))


def _read_part(op: GraphLowering, index: int) -> BuilderTensor:
    """Return an input of a concatenation on the scale of the result; for uint8 by a table."""
    value, source = op.read_unchecked_operand(index), op.get_quantization(op.names[index])
    if value.type == op.make_tensor_type(op.result, value.shape):
        return value
    if source is None or source.dtype != "uint8":
        type = op.make_tensor_type(op.result, value.shape)
        raise UnsupportedError(
            f"input {op.names[index]} of type {format_type(value.type)}",
            f"an input of type {format_type(type)}, as the result",
        )
    numbers = [(kind.scales[0], kind.zero_point) for kind in (source, op.quantized_result)]
    values = rescale_concat_input(np.arange(256), *numbers[0], *numbers[1])
    return op.emit_table_lookup(value, values)


def lower_pack(op: GraphLowering, *, axis: int) -> LoweringResult:
    """Lower PACK, which concatenates along a new dimension."""
    axis = normalize_axis(axis, op.declared_shape)
    values = [op.read_unchecked_operand(index) for index in range(len(op.names))]
    parts = [op.make_view(one, (*one.shape[:axis], 1, *one.shape[axis:])) for one in values]
    return op.emit_concatenation(op.result, parts, axis)


def lower_transpose(op: GraphLowering) -> LoweringResult:
    """Lower TRANSPOSE with a constant permutation."""
    value, order = op.read_unchecked_operand(), op.get_integers(1)
    return op.emit_transpose(value, tuple(normalize_axis(axis, value.shape) for axis in order))


def lower_slice(op: GraphLowering) -> LoweringResult:
    """Lower SLICE, which extracts a box with the shape of the result."""
    return _extract(op, op.read_unchecked_operand(), op.get_integers(1), op.declared_shape)


def lower_strided_slice(
    op: GraphLowering,
    *,
    begin_mask: int = 0,
    end_mask: int = 0,
    shrink_axis_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    offset: bool = False,
) -> LoweringResult:
    """Lower STRIDED_SLICE to an extraction, after a gather along each axis with a step."""
    require(not ellipsis_mask, f"ellipsis_mask {ellipsis_mask}", "ellipsis_mask 0")
    require(not new_axis_mask, f"new_axis_mask {new_axis_mask}", "new_axis_mask 0")
    require(not offset, "offset true, with which ends are relative to starts", "offset false")
    value, limits = op.read_unchecked_operand(), zip(*map(op.get_integers, (1, 2, 3)), strict=True)
    taken = []
    for axis, (size, (begin, end, step)) in enumerate(zip(value.shape, limits, strict=True)):
        first = None if begin_mask >> axis & 1 else begin
        if shrink_axis_mask >> axis & 1:
            only = first or 0
            taken.append(range(size)[only : only + 1 or None])
        else:
            taken.append(range(size)[first : None if end_mask >> axis & 1 else end : step])
    sizes = [len(indices) for indices in taken]
    require(all(sizes), f"a result of shape {sizes}", "dimensions of 1 or more")
    for axis, indices in enumerate(taken):
        if len(indices) > 1 and indices.step != 1:
            value = emit_stored_gather(op, value, {axis: np.array(indices, np.int32)})
            taken[axis] = range(len(indices))
    return _extract(op, value, [one[0] for one in taken], [len(one) for one in taken])


def _extract(
    op: GraphLowering, value: BuilderTensor, offsets: Sequence[int], shape: Sequence[int]
) -> BuilderTensor:
    part = op.emit_result("extracttensor", value, shape=tuple(shape), Offsets=tuple(offsets))
    return op.make_view(part, op.declared_shape)


def lower_split(op: GraphLowering, *, axis: int | None = None) -> LoweringResult:
    """Lower SPLIT, SPLIT_V or UNPACK, which also removes the axis."""
    if axis is None:
        (axis,) = op.get_integers(0 if op.kind == "SPLIT" else 2)
    axis, is_unpack = normalize_axis(axis, op.get_shape()), op.kind == "UNPACK"
    shapes = [op.graph.declarations[name].shape for name in op.node.outputs]
    return movement.lower_split(
        op, [1 if is_unpack else shape[axis] for shape in shapes], axis=axis
    )


def lower_gather(op: GraphLowering, *, axis: int, batch_dims: int = 0) -> LoweringResult:
    """Lower GATHER of constant indices along an axis."""
    value, indices = op.read_unchecked_operand(), op.get_constant(1)
    axis = normalize_axis(axis, value.shape)
    size = value.shape[axis]
    require(not batch_dims, f"batch_dims {batch_dims}", "batch_dims 0")
    require(
        indices.dtype.kind in "iu", f"indices of type {indices.dtype}", "indices of an integer type"
    )
    if indices.size:
        found = f"indices from {indices.min()} to {indices.max()}"
        require(indices.min() >= 0 and indices.max() < size, found, f"indices from 0 to {size - 1}")
    return emit_stored_gather(op, value, {axis: indices.astype(np.int32)})


def lower_space_to_depth(
    op: GraphLowering, *, block_size: int, into_channels: bool = False
) -> LoweringResult:
    """Lower SPACE_TO_DEPTH, which moves blocks of pixels to channels, or its inverse."""
    images, rows, columns, channels = op.declared_shape if into_channels else op.get_shape()
    depth = channels // (block_size * block_size)
    blocks = (images, rows, columns, block_size, block_size, depth)
    pixels = (images, rows, block_size, columns, block_size, depth)
    source = op.make_view(op.read_unchecked_operand(), pixels if into_channels else blocks)
    return op.make_view(op.emit_transpose(source, (0, 1, 3, 2, 4, 5)), op.declared_shape)
