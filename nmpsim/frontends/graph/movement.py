"""Lowering of operators that move elements: views, slices, padding, transposition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.frontends.graph.conversions import get_value_kind
from nmpsim.frontends.graph.lowering import (
    CHANNELS_LAST,
    PLAIN,
    VIEW_ONLY,
    move_channels_last,
    move_channels_second,
)
from nmpsim.frontends.graph.nodes import Node, QuantizedTensor, Shape
from nmpsim.frontends.graph.operation import LoweringResult, OperatorContext, normalize_axis
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import Value

Indices = Mapping[int, npt.NDArray[np.int64]]
"""Axis -> the index in the source for each index of the result."""
Integers = Sequence[int]
_CONVOLUTIONS = ("Conv", "CONV_2D", "DEPTHWISE_CONV_2D")


def emit_gather(op: OperatorContext, indices: Indices) -> Value:
    """Emit gathers of constant indices along axes in the dimension order of the file."""
    value, rank = op.read_any_type(), len(op.get_shape())
    return emit_stored_gather(
        op, value, {op.find_stored_axis(axis, rank): at for axis, at in indices.items()}
    )


def emit_stored_gather(op: OperatorContext, value: Value, indices: Indices) -> Value:
    """Emit gathers of constant indices along axes of the stored layout."""
    for axis, index in indices.items():
        shape = (*value.shape[:axis], *index.shape, *value.shape[axis + 1 :])
        type = op.lowering.make_tensor_type(str(index.dtype), index.shape)
        constant = op.lowering.builder.add_constant(f"{op.name}_places", index, type)
        value = op.emit("gather", value, constant, shape=shape, BatchDims=axis)
    return value if indices else op.emit("copy", value)


def lower_identity(op: OperatorContext) -> LoweringResult:
    """Lower Identity to an alias."""
    return op.define_view(op.get_shape())


def lower_dropout(op: OperatorContext) -> LoweringResult:
    """Lower Dropout in inference mode to an alias."""
    require(not op.node.get_input(2) or not op.get_constant(2).any(), "training mode")
    return lower_identity(op)


def lower_reshape(
    op: OperatorContext, *, shape: Integers | None = None, allowzero: int = 0
) -> LoweringResult:
    """Lower Reshape to a constant shape, in which -1 is inferred and 0 keeps a dimension."""
    if shape is None or (not shape and op.node.get_input(1)):
        shape = op.get_integers(1)
    own = op.get_shape()
    message = f"shape {list(shape)} for {list(own)}"
    require(allowzero or all(d != 0 or i < len(own) for i, d in enumerate(shape)), message)
    dims = [own[i] if d == 0 and not allowzero else int(d) for i, d in enumerate(shape)]
    known = math.prod(d for d in dims if d != -1)
    if dims.count(-1) == 1 and known > 0:
        dims[dims.index(-1)] = math.prod(own) // known
    require(min(dims, default=1) > 0 and math.prod(dims) == math.prod(own), message)
    return op.define_view(tuple(dims))


def lower_flatten(op: OperatorContext, *, axis: int = 1) -> LoweringResult:
    """Lower Flatten, which reshapes to two dimensions."""
    own = op.get_shape()
    require(-len(own) <= axis <= len(own), f"dimension {axis} of {list(own)}")
    axis = axis + len(own) if axis < 0 else axis
    return op.define_view((math.prod(own[:axis]), math.prod(own[axis:])))


def normalize_axes(
    op: OperatorContext, axes: Integers | None, rank: int, index: int = 1
) -> list[int] | None:
    """Return the axes of a node as non-negative numbers, or None if the node has none."""
    if axes is None:
        if not op.node.get_input(index):
            return None
        axes = op.get_integers(index)
    require(all(-rank <= axis < rank for axis in axes), f"dimensions {list(axes)} of {rank}")
    return [int(axis) % rank for axis in axes]


def lower_squeeze(op: OperatorContext, *, axes: Integers | None = None) -> LoweringResult:
    """Lower Squeeze, which removes dimensions of size 1."""
    own = op.get_shape()
    given = normalize_axes(op, axes, len(own))
    removed = [i for i, d in enumerate(own) if d == 1] if given is None else given
    require(all(own[axis] == 1 for axis in removed), f"dimensions {removed} of {list(own)}")
    return op.define_view(tuple(d for i, d in enumerate(own) if i not in removed))


def lower_unsqueeze(op: OperatorContext, *, axes: Integers | None = None) -> LoweringResult:
    """Lower Unsqueeze, which inserts dimensions of size 1."""
    own = op.get_shape()
    rank = len(own) + len(axes or op.get_integers(1))
    added = normalize_axes(op, axes, rank) or []
    require(len(set(added)) == len(added), f"dimensions {added}")
    rest = iter(own)
    return op.define_view(tuple(1 if i in added else next(rest) for i in range(rank)))


def lower_transpose(op: OperatorContext, *, perm: Integers | None = None) -> LoweringResult:
    """Lower Transpose; a conversion between the layouts NCHW and NHWC becomes an alias."""
    own = op.get_shape()
    rank = len(own)
    order = tuple(perm or range(rank - 1, -1, -1))
    require(sorted(order) == list(range(rank)), f"order {list(order)} of {rank} dimensions")
    shape = tuple(own[axis] for axis in order)
    value = op.read_any_type()
    if rank > 2:
        is_second = order == move_channels_second(range(rank))
        if is_second and op.layout == PLAIN and not op.lowering.graph.channels_last:
            op.layout = CHANNELS_LAST
            op.define_alias(value)
            return VIEW_ONLY
        if order == move_channels_last(range(rank)) and op.layout == CHANNELS_LAST:
            op.layout = PLAIN
            return op.define_alias(value)
    moving = [axis for axis in order if own[axis] > 1]
    if moving == sorted(moving):
        return op.define_view(shape)
    return op.emit("transpose", op.read_any_type(0, PLAIN), shape=shape, Shuffle=order)


def lower_slice(
    op: OperatorContext,
    *,
    starts: Integers | None = None,
    ends: Integers = (),
    axes: Integers | None = None,
) -> LoweringResult:
    """Lower Slice with constant bounds and steps."""
    own = op.get_shape()
    steps: Integers | None = None
    if starts is None:
        starts, ends = op.get_integers(1), op.get_integers(2)
        axes = op.get_integers(3) if op.node.get_input(3) else range(len(starts))
        steps = op.get_integers(4) if op.node.get_input(4) else None
    else:
        axes = axes or range(len(starts))
    steps = [1] * len(starts) if steps is None else steps
    require(
        len({len(starts), len(ends), len(axes), len(steps)}) == 1 and 0 not in steps,
        f"steps {list(steps)}, {len(starts)} starts",
    )
    require(
        all(-len(own) <= axis < len(own) for axis in axes),
        f"dimensions {list(axes)} of {list(own)}",
    )
    axes = [axis % len(own) for axis in axes]
    if any(step != 1 for step in steps):
        boxes = zip(axes, starts, ends, steps, strict=True)
        return emit_gather(op, {axis: _strided(own[axis], *limits) for axis, *limits in boxes})
    offsets, shape = [0] * len(own), list(own)
    for begin, end, axis in zip(starts, ends, axes, strict=True):
        low, high, _ = slice(int(begin), int(end)).indices(own[axis])
        offsets[axis], shape[axis] = low, high - low
    return _extract(op, offsets, shape)


def _strided(size: int, begin: int, end: int, step: int) -> npt.NDArray[np.int64]:
    indices = np.arange(size)[max(begin, -size - 1) : None if end < -size else end : step]
    require(indices.size, f"an empty slice from {begin} to {end} of {size}")
    return indices


def lower_split(
    op: OperatorContext, *, axis: int = 0, split: Integers | None = None
) -> LoweringResult:
    """Lower Split along an axis."""
    own, outputs = op.get_shape(), op.node.outputs
    axis, count = normalize_axis(axis, own), len(outputs)
    if split is None and op.node.get_input(1):
        split = op.get_integers(1, 1 << 10)
    if split is None:
        each = -(-own[axis] // count)
        split = [min(each, own[axis] - i * each) for i in range(count)]
    require(len(split) == count and sum(split) == own[axis], f"parts {list(split)} of {own[axis]}")
    begin = 0
    for size, result in zip(split, outputs, strict=True):
        if result:
            offsets = [begin * (d == axis) for d in range(len(own))]
            shape = (*own[:axis], int(size), *own[axis + 1 :])
            op.define(result, _extract(op, offsets, shape, result))
        begin += int(size)
    return ""


def _extract(op: OperatorContext, offsets: Integers, shape: Integers, name: str = "") -> Value:
    value = op.read_any_type()
    first = op.to_layout(offsets)
    return op.emit("extracttensor", value, shape=op.to_layout(shape), name=name, Offsets=first)


def lower_gather(op: OperatorContext, *, axis: int = 0) -> LoweringResult:
    """Lower Gather of constant indices, a vector or a scalar, along an axis."""
    own, index = op.get_shape(), op.get_constant(1)
    require(
        -len(own) <= axis < len(own) and index.dtype.kind == "i" and index.ndim <= 1,
        f"indices {list(index.shape)} of {index.dtype} in {list(own)}",
    )
    axis %= len(own)
    size = own[axis]
    require(index.size and index.min() >= -size and index.max() < size, f"indices beyond {size}")
    flat = index.reshape(-1).astype(np.int64) % size
    if index.ndim == 1:
        return emit_gather(op, {axis: flat})
    offsets = tuple(int(flat[0]) * (d == axis) for d in range(len(own)))
    shape = (*own[:axis], 1, *own[axis + 1 :])
    part = op.emit("extracttensor", op.read_any_type(0, PLAIN), shape=shape, Offsets=offsets)
    return op.view(part, (*own[:axis], *own[axis + 1 :]))


def lower_tile(op: OperatorContext) -> LoweringResult:
    """Lower Tile, which repeats a tensor along its axes."""
    own, counts = op.get_shape(), op.get_integers(1)
    require(
        len(counts) == len(own) and all(1 <= count <= 1 << 16 for count in counts),
        f"{counts} times {list(own)}",
    )
    pairs = enumerate(zip(own, counts, strict=True))
    return emit_gather(op, {a: np.tile(np.arange(d), n) for a, (d, n) in pairs if n > 1})


def lower_concatenation(op: OperatorContext, *, axis: int = 0) -> LoweringResult:
    """Lower Concat of tensors with equal element types and scales."""
    indices = [index for index, name in enumerate(op.names) if name]
    axis = normalize_concat_axis(op, indices, axis)
    layout = op.lowering.choose_layout(*(op.names[index] for index in indices))
    parts = [op.read_any_type(index, layout) for index in indices]
    kinds = {str((part.type.elem, part.type.quant)) for part in parts}
    require(len(kinds) == 1, "inputs of different element types or scales")
    return op.concatenate(parts[0].type, parts, op.find_stored_axis(axis, len(parts[0].shape)))


def normalize_concat_axis(op: OperatorContext, indices: Integers, axis: int) -> int:
    """Return a concatenation's non-negative axis; raise UnsupportedError if shapes differ."""
    shapes = [op.get_shape(index) for index in indices]
    axis = normalize_axis(axis, shapes[0])
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    require(len(others) == 1, f"input shapes {[list(shape) for shape in shapes]}")
    return axis


def lower_pad(
    op: OperatorContext,
    *,
    pads: Integers | None = None,
    paddings: Integers | None = None,
    mode: str = "constant",
    value: float = 0.0,
) -> LoweringResult:
    """Lower Pad; zeros around an image may become the padding of the next convolutions."""
    own = op.get_shape()
    pads = pads or paddings
    if pads is None:
        pads = op.get_integers(1)
    axes = op.get_integers(3) if op.node.get_input(3) else range(len(own))
    count = len(axes)
    require(
        len(pads) == 2 * count and all(-len(own) <= axis < len(own) for axis in axes),
        f"pads {list(pads)} for {list(own)}",
    )
    before, after = [0] * len(own), [0] * len(own)
    for i, axis in enumerate(axes):
        before[axis], after[axis] = int(pads[i]), int(pads[count + i])
    if mode == "constant" and op.node.get_input(2):
        given = op.get_constant(2)
        require(given.size == 1, f"{given.size} padding values")
        value = given.reshape(-1)[0]
    return emit_pad(op, before, after, mode, value)


def emit_pad(
    op: OperatorContext, before: Integers, after: Integers, mode: str = "constant", value: float = 0
) -> LoweringResult:
    """Emit padding of the first operand; a quantized ``value`` is an integer of its type.

    Zeros around an image may become the padding of the next convolutions.
    """
    require(mode in ("constant", "edge", "reflect", "symmetric", "wrap"), f"mode {mode}")
    pads, lowering = [*before, *after], op.lowering
    require(all(0 <= pad < 1 << 20 for pad in pads), f"pads {pads}")
    sides = list(zip(op.get_shape(), before, after, strict=True))
    if mode != "constant":
        return emit_gather(
            op,
            {a: _padded_indices(d, s, mode) for a, (d, *s) in enumerate(sides) if any(s)},
        )
    source = op.read_any_type()
    kind = get_value_kind(lowering, op.names[0], source)
    real = float(value)
    if isinstance(kind, QuantizedTensor):
        real = float(np.float32(kind.scale) * np.float32(int(value) - kind.zero_point))
    if real == 0.0:
        image_pads = lowering.to_nchw(before), lowering.to_nchw(after)
        if _is_padding_of_convolutions(op, *image_pads):
            op.define_alias(source)
            (top, left), (bottom, right) = ((0, *one[2:])[-2:] for one in image_pads)
            lowering.padding[op.name] = (top, left, bottom, right)
            return "padding of the convolution that reads it"
    whole = op.allocate(source.type, op.to_layout([sum(side) for side in sides]))
    lowering.add_instruction("splat", op.name, (whole,), Value=real)
    op.insert(whole, source, op.to_layout(before))
    return whole


def _padded_indices(size: int, pads: Integers, mode: Any) -> npt.NDArray[np.int64]:
    return np.pad(np.arange(size), pads, mode)


def _is_padding_of_convolutions(op: OperatorContext, before: Shape, after: Shape) -> bool:
    """Return whether only convolutions that can pad as much themselves read the result."""
    readers = op.lowering.readers.get(op.name, [])
    return (
        bool(readers)
        and not op.lowering.is_output(op.name)
        and 3 <= len(before) <= 4
        and not any((*before[:2], *after[:2]))
        and all(_can_pad(reader, op.name) for reader in readers)
    )


def _can_pad(reader: Node, name: str) -> bool:
    is_open = reader.attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return reader.kind in _CONVOLUTIONS and is_open and reader.operands[0] == name


def lower_depth_to_space(
    op: OperatorContext, *, blocksize: int = 0, mode: str = "DCR"
) -> LoweringResult:
    """Lower DepthToSpace, which moves channels to blocks of pixels."""
    own = op.get_shape()
    require(
        len(own) == 4 and blocksize > 0 and own[1] % (blocksize * blocksize) == 0,
        f"blocks of {blocksize} for {list(own)}",
    )
    images, channels, rows, columns = own
    depth = channels // (blocksize * blocksize)
    block = (blocksize, blocksize)
    split, order = ((*block, depth), (0, 3, 4, 1, 5, 2))
    if mode == "CRD":
        split, order = ((depth, *block), (0, 1, 4, 2, 5, 3))
    blocks = op.view(op.read_any_type(0, PLAIN), (images, *split, rows, columns))
    shape = (images, depth, rows * blocksize, columns * blocksize)
    return op.view(op.transpose(blocks, order), shape)


def lower_space_to_depth(
    op: OperatorContext, *, blocksize: int = 0, mode: str = "DCR"
) -> LoweringResult:
    """Lower SpaceToDepth, which moves blocks of pixels to channels."""
    own = op.get_shape()
    require(
        len(own) == 4 and blocksize > 0 and not any(d % blocksize for d in own[2:]),
        f"blocks of {blocksize} for {list(own)}",
    )
    images, channels, rows, columns = own
    rows, columns = rows // blocksize, columns // blocksize
    order = (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)
    split = (images, channels, rows, blocksize, columns, blocksize)
    blocks = op.view(op.read_any_type(0, PLAIN), split)
    shape = (images, channels * blocksize * blocksize, rows, columns)
    return op.view(op.transpose(blocks, order), shape)
