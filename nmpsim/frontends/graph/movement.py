"""Lowering of operators that move elements, such as Reshape, Slice, Pad and Transpose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.constant_folding import IS_CONSTANT
from nmpsim.frontends.graph.conversions import get_value_kind
from nmpsim.frontends.graph.lowering import (
    CHANNELS_LAST,
    PLAIN,
    VIEW_ONLY,
    move_channels_last,
    move_channels_second,
)
from nmpsim.frontends.graph.nodes import Array, Node, QuantizedTensor, Shape
from nmpsim.frontends.graph.operation import (
    GraphLowering,
    Integers,
    LoweringResult,
    normalize_axis,
)
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import BuilderTensor
from nmpsim.lir.printer import format_type

Indices = Mapping[int, npt.NDArray[np.int64]]
"""Axis -> the index in the source for each index of the result."""
_CONVOLUTIONS = ("Conv", "CONV_2D", "DEPTHWISE_CONV_2D")


def emit_gather(op: GraphLowering, indices: Indices) -> BuilderTensor:
    """Emit gathers of constant indices along axes of the model file; return the result."""
    value, rank = op.read_unchecked_operand(), len(op.get_shape())
    return emit_stored_gather(
        op, value, {op.find_stored_axis(axis, rank): at for axis, at in indices.items()}
    )


def emit_stored_gather(op: GraphLowering, value: BuilderTensor, indices: Indices) -> BuilderTensor:
    """Emit gathers of constant indices along axes of the stored layout; return the result."""
    for axis, index in indices.items():
        shape = (*value.shape[:axis], *index.shape, *value.shape[axis + 1 :])
        type = op.make_tensor_type(str(index.dtype), index.shape)
        constant = op.builder.add_constant(f"{op.name}_places", index, type)
        value = op.emit("gather", value, constant, shape=shape, BatchDims=axis)
    return value if indices else op.emit("copy", value)


def lower_view(op: GraphLowering) -> LoweringResult:
    """Lower an operator that only changes the shape: define a view with the declared shape."""
    name = op.names[0]
    if op.is_constant(name):
        values = op.get_constant(name).reshape(op.declared_shape)
        op.define_constant(op.name, values)
        return IS_CONSTANT
    return op.define_view(op.declared_shape)


def lower_identity(op: GraphLowering) -> LoweringResult:
    """Lower Identity to an alias of its input."""
    return op.define_view(op.get_shape())


def lower_dropout(
    op: GraphLowering, ratio: object = None, training_mode: Array | None = None
) -> LoweringResult:
    """Lower Dropout in inference mode to an alias of its input."""
    is_inference = training_mode is None or not training_mode.any()
    require(is_inference, "training_mode true", "training_mode false")
    return lower_identity(op)


def lower_reshape(op: GraphLowering, shape: Integers, *, allowzero: int = 0) -> LoweringResult:
    """Lower Reshape to a view; in ``shape``, -1 is inferred and 0 copies the input's dimension."""
    own = op.get_shape()
    dims = [own[i] if d == 0 and not allowzero else d for i, d in enumerate(shape)]
    known = math.prod(d for d in dims if d != -1)
    if dims.count(-1) == 1 and known > 0:
        dims[dims.index(-1)] = math.prod(own) // known
    return op.define_view(tuple(dims))


def lower_flatten(op: GraphLowering, *, axis: int = 1) -> LoweringResult:
    """Lower Flatten, which reshapes to two dimensions."""
    own = op.get_shape()
    require(
        -len(own) <= axis <= len(own),
        f"axis {axis} for shape {list(own)}",
        f"an axis from {-len(own)} to {len(own)}",
    )
    axis = axis + len(own) if axis < 0 else axis
    return op.define_view((math.prod(own[:axis]), math.prod(own[axis:])))


def lower_squeeze(op: GraphLowering, axes: Integers | None = None) -> LoweringResult:
    """Lower Squeeze, which removes dimensions of size 1."""
    axis = None if axes is None else tuple(axes)
    return op.define_view(np.squeeze(np.broadcast_to(0, op.get_shape()), axis).shape)


def lower_unsqueeze(op: GraphLowering, axes: Integers) -> LoweringResult:
    """Lower Unsqueeze, which inserts dimensions of size 1."""
    return op.define_view(np.expand_dims(np.broadcast_to(0, op.get_shape()), tuple(axes)).shape)


def is_reordering(order: Integers, shape: Shape) -> bool:
    """Return whether transposing ``shape`` by ``order`` changes the order of elements in memory."""
    moving = [axis for axis in order if shape[axis] > 1]
    return moving != sorted(moving)


def lower_transpose(op: GraphLowering, *, perm: Integers | None = None) -> LoweringResult:
    """Lower Transpose; a conversion between NCHW and NHWC becomes an alias."""
    own = op.get_shape()
    rank = len(own)
    order = tuple(perm or range(rank - 1, -1, -1))
    require(
        sorted(order) == list(range(rank)),
        f"perm {list(order)}",
        f"a permutation of 0 to {rank - 1}",
    )
    shape = tuple(own[axis] for axis in order)
    value = op.read_unchecked_operand()
    if rank > 2:
        is_second = order == move_channels_second(range(rank))
        if is_second and op.layout == PLAIN and not op.graph.channels_last:
            op.layout = CHANNELS_LAST
            op.define_alias(value)
            return VIEW_ONLY
        if order == move_channels_last(range(rank)) and op.layout == CHANNELS_LAST:
            op.layout = PLAIN
            return op.define_alias(value)
    if not is_reordering(order, own):
        return op.define_view(shape)
    return op.emit("transpose", op.read_unchecked_operand(0, PLAIN), shape=shape, Shuffle=order)


def lower_slice(
    op: GraphLowering,
    starts: Integers,
    ends: Integers,
    axes: Integers | None = None,
    steps: Integers | None = None,
) -> LoweringResult:
    """Lower Slice with constant bounds and steps."""
    own, steps = op.get_shape(), steps or [1] * len(starts)
    indices: dict[int, npt.NDArray[np.int64]] = {}
    for start, end, axis, step in zip(starts, ends, axes or range(len(starts)), steps, strict=True):
        axis = normalize_axis(axis, own)
        last = None if step < 0 and end < -own[axis] else end
        indices[axis] = np.arange(own[axis])[start:last:step]
        require(
            indices[axis].size,
            f"slice {start}:{end}:{step} of an axis of size {own[axis]}",
            "a slice with at least one element",
        )
    if any(step != 1 for step in steps):
        return emit_gather(op, indices)
    offsets = [int(indices[axis][0]) if axis in indices else 0 for axis in range(len(own))]
    shape = [len(indices.get(axis, range(dim))) for axis, dim in enumerate(own)]
    return _extract(op, offsets, shape)


def lower_split(
    op: GraphLowering, split: Integers | None = None, *, axis: int = 0
) -> LoweringResult:
    """Lower Split into parts of the sizes ``split`` along an axis."""
    own, outputs = op.get_shape(), op.node.outputs
    axis, begin = normalize_axis(axis, own), 0
    if split is None:
        each = -(-own[axis] // len(outputs))
        split = [min(each, own[axis] - i * each) for i in range(len(outputs))]
    require(
        sum(split) == own[axis],
        f"sizes {list(split)}, which sum to {sum(split)}",
        f"sizes that sum to {own[axis]}, the size of axis {axis}",
    )
    for size, result in zip(split, outputs, strict=True):
        if result:
            offsets = [begin * (d == axis) for d in range(len(own))]
            shape = (*own[:axis], size, *own[axis + 1 :])
            part = _extract(op, offsets, shape, result)
            declared = op.graph.declarations.get(result)
            if declared is not None and len(declared.shape) < len(shape):
                part = op.make_view(part, declared.shape)  # UNPACK also removes the axis
            op.define_result(result, part)
        begin += size
    return ""


def _extract(
    op: GraphLowering, offsets: Integers, shape: Integers, name: str = ""
) -> BuilderTensor:
    value = op.read_unchecked_operand()
    first = op.to_layout(offsets)
    return op.emit("extracttensor", value, shape=op.to_layout(shape), name=name, Offsets=first)


def lower_gather(op: GraphLowering, indices: Array, *, axis: int = 0) -> LoweringResult:
    """Lower Gather of constant indices along an axis."""
    own = op.get_shape()
    axis = normalize_axis(axis, own)
    require(
        indices.dtype.kind == "i",
        f"indices of type {indices.dtype}",
        "indices of type int32 or int64",
    )
    places = np.arange(own[axis])[indices.astype(np.int64)]
    if indices.ndim == 1:
        return emit_gather(op, {axis: places})
    if indices.ndim > 1:
        value = op.read_unchecked_operand(0, PLAIN)
        rows = emit_stored_gather(op, value, {axis: places.reshape(-1)})
        return op.make_view(rows, (*own[:axis], *indices.shape, *own[axis + 1 :]))
    offsets = tuple(int(places) * (d == axis) for d in range(len(own)))
    shape = (*own[:axis], 1, *own[axis + 1 :])
    part = op.emit(
        "extracttensor", op.read_unchecked_operand(0, PLAIN), shape=shape, Offsets=offsets
    )
    return op.make_view(part, (*own[:axis], *own[axis + 1 :]))


def lower_gather_nd(op: GraphLowering, indices: Array, *, batch_dims: int = 0) -> LoweringResult:
    """Lower GatherND of constant indices."""
    own = op.get_shape()
    require(
        indices.dtype.kind == "i" and indices.ndim > batch_dims,
        f"indices of {indices.dtype} {list(indices.shape)} with batch_dims {batch_dims}",
        "indices of int64 with more dimensions than batch_dims",
    )
    batches = np.indices(indices.shape[:-1])[:batch_dims]
    depth = batch_dims + indices.shape[-1]
    require(depth <= len(own), f"{depth} indices for shape {list(own)}", "one for each dimension")
    sizes = own[:depth]
    rows = [*batches, *np.moveaxis(indices, -1, 0)]
    places = [np.arange(size)[row] for size, row in zip(sizes, rows, strict=True)]
    flat = np.ravel_multi_index(tuple(places), sizes).reshape(-1)
    value = op.make_view(op.read_unchecked_operand(0, PLAIN), (math.prod(sizes), *own[depth:]))
    found = emit_stored_gather(op, value, {0: flat})
    return op.make_view(found, (*indices.shape[:-1], *own[depth:]))


def lower_tile(op: GraphLowering, repeats: Integers) -> LoweringResult:
    """Lower Tile, which repeats a tensor along its axes."""
    own = op.get_shape()
    found = f"repeats {list(repeats)} for shape {list(own)}"
    require(len(repeats) == len(own), found, "repeats with one number per dimension")
    require(all(1 <= count <= 1 << 16 for count in repeats), found, "repeats from 1 to 65,536")
    pairs = enumerate(zip(own, repeats, strict=True))
    return emit_gather(op, {a: np.tile(np.arange(d), n) for a, (d, n) in pairs if n > 1})


def lower_concatenation(op: GraphLowering, *, axis: int = 0) -> LoweringResult:
    """Lower Concat of tensors with equal element types and scales."""
    indices = [index for index, name in enumerate(op.names) if name]
    layout = op.choose_layout(*(op.names[index] for index in indices))
    parts = [op.read_unchecked_operand(index, layout) for index in indices]
    for part in parts[1:]:
        require(
            part.type.elem == parts[0].type.elem,
            f"input {part.name} of type {part.type.elem}",
            f"type {parts[0].type.elem}, as input {parts[0].name}",
        )
        require(
            part.type.quant == parts[0].type.quant,
            f"input {part.name} of type {format_type(part.type)}",
            f"type {format_type(parts[0].type)}, as input {parts[0].name}",
        )
    axis = normalize_axis(axis, op.get_shape(indices[0]))
    return op.emit_concatenation(
        parts[0].type, parts, op.find_stored_axis(axis, len(parts[0].shape))
    )


def lower_pad(
    op: GraphLowering,
    pads: Integers = (),
    value: float = 0.0,
    axes: Integers | None = None,
    *,
    paddings: Integers = (),
    mode: str = "constant",
) -> LoweringResult:
    """Lower Pad; ``pads`` contains the paddings before all axes, then those after all axes."""
    own, pads = op.get_shape(), pads or paddings
    axes = range(len(own)) if axes is None else axes
    before, after = [0] * len(own), [0] * len(own)
    for axis, first, last in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[normalize_axis(axis, own)], after[normalize_axis(axis, own)] = first, last
    return emit_pad(op, before, after, mode, value)


def emit_pad(
    op: GraphLowering, before: Integers, after: Integers, mode: str = "constant", value: float = 0
) -> LoweringResult:
    """Emit padding of the first operand; return its result, or why no layer is needed.

    Zeros around an image may become the padding of the next convolutions.
    """
    modes = ("constant", "edge", "reflect", "symmetric", "wrap")
    require(mode in modes, f"mode {mode}", f"mode {list_alternatives(modes)}")
    pads = [*before, *after]
    require(all(0 <= pad < 1 << 20 for pad in pads), f"pads {pads}", "pads from 0 to 1,048,575")
    sides = list(zip(op.get_shape(), before, after, strict=True))
    if mode != "constant":
        return emit_gather(
            op,
            {a: _padded_indices(d, s, mode) for a, (d, *s) in enumerate(sides) if any(s)},
        )
    source = op.read_unchecked_operand()
    kind = get_value_kind(op, op.names[0], source)
    real = float(value)
    if isinstance(kind, QuantizedTensor):
        real = float(np.float32(kind.scale) * np.float32(int(value) - kind.zero_point))
    if real == 0.0:
        image_pads = op.to_nchw(before), op.to_nchw(after)
        if _is_padding_of_convolutions(op, *image_pads):
            op.define_alias(source)
            (top, left), (bottom, right) = ((0, *one[2:])[-2:] for one in image_pads)
            op.padding[op.name] = (top, left, bottom, right)
            return "padding of the convolution that reads it"
    whole = op.allocate(source.type, op.to_layout([sum(side) for side in sides]))
    op.add_instruction("splat", op.layer, (whole,), Value=real)
    op.emit_insertion(whole, source, op.to_layout(before))
    return whole


def _padded_indices(size: int, pads: Integers, mode: Any) -> npt.NDArray[np.int64]:
    return np.pad(np.arange(size), pads, mode)


def _is_padding_of_convolutions(op: GraphLowering, before: Shape, after: Shape) -> bool:
    """Return whether only convolutions that can pad as much themselves read the result."""
    readers = op.readers.get(op.name, [])
    return (
        bool(readers)
        and not op.is_output(op.name)
        and 3 <= len(before) <= 4
        and not any((*before[:2], *after[:2]))
        and all(_can_pad(reader, op.name) for reader in readers)
    )


def _can_pad(reader: Node, name: str) -> bool:
    is_open = reader.attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return reader.kind in _CONVOLUTIONS and is_open and reader.operands[0] == name


def lower_space_to_depth(
    op: GraphLowering, *, into_channels: bool = False, blocksize: int = 0, mode: str = "DCR"
) -> LoweringResult:
    """Lower SpaceToDepth or its inverse, DepthToSpace."""
    images, channels, rows, columns = op.get_shape()
    area = blocksize * blocksize
    if into_channels:
        channels, rows, columns = channels * area, rows // blocksize, columns // blocksize
    pixels = (images, channels // area, rows, blocksize, columns, blocksize)
    order = (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)
    source = op.read_unchecked_operand(0, PLAIN)
    if into_channels:
        blocks = op.emit_transpose(op.make_view(source, pixels), order)
        return op.make_view(blocks, (images, channels, rows, columns))
    blocks = op.make_view(source, tuple(pixels[axis] for axis in order))
    inverse = tuple(order.index(axis) for axis in range(6))
    shape = (images, channels // area, rows * blocksize, columns * blocksize)
    return op.make_view(op.emit_transpose(blocks, inverse), shape)
