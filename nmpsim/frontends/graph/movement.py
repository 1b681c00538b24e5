"""Nodes that move values, integers or real numbers: views, slices, padding, transposition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN, VIEW, Lowering
from nmpsim.frontends.graph.nodes import Array, Node, Quantized, Shape
from nmpsim.frontends.graph.operation import Made, Operation
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.lir.nodes import TensorType

Places = Mapping[int, npt.NDArray[np.int64]]
"""Dimension -> the index that each index of the result has in the source."""


def kind_of(graph: Lowering, name: str, value: Value) -> Quantized | str:
    """What a tensor of a value's kind is made of."""
    if value.type.quant is None:
        return str({"float": "float32"}.get(value.type.elem, np.dtype(value.type.dtype).name))
    parameters = graph.parameters(name)
    if parameters is None or graph.type_of(parameters, value.shape) != value.type:
        quant = value.type.quant
        dtype = np.dtype(value.type.dtype).name
        scales = np.array([quant.scale], np.float32)
        return Quantized(name, dtype, scales, np.array([quant.offset], np.int64))
    return parameters


def take(op: Operation, places: Places) -> Value:
    """Look up the places of each dimension of the file; the others stay."""
    value, rank = op.read_any(), len(op.shape())
    return take_held(op, value, {op.place(axis, rank): at for axis, at in places.items()})


def take_held(op: Operation, value: Value, places: Places) -> Value:
    """The same of dimensions as they are held."""
    for axis, index in places.items():
        shape = (*value.shape[:axis], len(index), *value.shape[axis + 1 :])
        number = TensorType("index64", index.shape)
        held = op.graph.builder.constant(f"{op.name}_places", index, number)
        value = op.emit("gather", value, held, shape=shape, BatchDims=axis)
    return value if places else op.emit("copy", value)


def identity(op: Operation) -> Made:
    """The same tensor under another name."""
    return op.viewed(op.shape())


def dropout(op: Operation) -> Made:
    """Nothing is dropped, but in training, which is another operation."""
    if op.node.input(2) and op.values(2).any():
        raise UnsupportedError("training")
    return identity(op)


def reshape(op: Operation) -> Made:
    """A constant shape; 0 keeps a dimension, -1 is what is left."""
    given = op.attributes.get("shape")
    if given is None or (not given and op.node.input(1)):
        given = op.integers(1)
    own = op.shape()
    keeps = not op.integer("allowzero")
    if keeps and any(d == 0 and i >= len(own) for i, d in enumerate(given)):
        raise UnsupportedError(f"shape {list(given)} for {list(own)}")
    dims = [own[i] if d == 0 and keeps else int(d) for i, d in enumerate(given)]
    known = math.prod(d for d in dims if d != -1)
    if dims.count(-1) == 1 and known > 0:
        dims[dims.index(-1)] = math.prod(own) // known
    if min(dims, default=1) < 1 or math.prod(dims) != math.prod(own):
        raise UnsupportedError(f"shape {list(given)} for {list(own)}")
    return op.viewed(tuple(dims))


def flatten(op: Operation) -> Made:
    """To two dimensions."""
    own, axis = op.shape(), op.integer("axis", 1)
    if not -len(own) <= axis <= len(own):
        raise UnsupportedError(f"dimension {axis} of {list(own)}")
    axis = axis + len(own) if axis < 0 else axis
    return op.viewed((math.prod(own[:axis]), math.prod(own[axis:])))


def axes_of(op: Operation, rank: int, place: int = 1) -> list[int] | None:
    """Dimensions given as an attribute, or as an input; None if they are not given."""
    given = op.attributes.get("axes")
    if given is None:
        if not op.node.input(place):
            return None
        given = op.integers(place)
    if any(not -rank <= axis < rank for axis in given):
        raise UnsupportedError(f"dimensions {list(given)} of {rank}")
    return [int(axis) % rank for axis in given]


def squeeze(op: Operation) -> Made:
    """Without dimensions of 1."""
    own = op.shape()
    axes = axes_of(op, len(own))
    gone = [i for i, d in enumerate(own) if d == 1] if axes is None else axes
    if any(own[axis] != 1 for axis in gone):
        raise UnsupportedError(f"dimensions {gone} of {list(own)}")
    return op.viewed(tuple(d for i, d in enumerate(own) if i not in gone))


def unsqueeze(op: Operation) -> Made:
    """With more dimensions of 1."""
    own = op.shape()
    rank = len(own) + len(op.attributes.get("axes") or op.integers(1))
    axes = axes_of(op, rank) or []
    if len(set(axes)) != len(axes):
        raise UnsupportedError(f"dimensions {axes}")
    rest = iter(own)
    return op.viewed(tuple(1 if i in axes else next(rest) for i in range(rank)))


def transpose(op: Operation) -> Made:
    """Dimensions in another order; between the two layouts nothing moves."""
    graph, own = op.graph, op.shape()
    rank = len(own)
    order = tuple(op.attributes.get("perm") or range(rank - 1, -1, -1))
    if sorted(order) != list(range(rank)):
        raise UnsupportedError(f"order {list(order)} of {rank} dimensions")
    shape = tuple(own[axis] for axis in order)
    last_first, first_last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    value = op.read_any()
    if rank > 2 and order == last_first and op.layout == PLAIN and not graph.graph.channels_last:
        op.layout = LAST
        op.same(value)
        return VIEW
    if rank > 2 and order == first_last and op.layout == LAST:
        op.layout = PLAIN
        return op.same(value)
    moving = [axis for axis in order if own[axis] > 1]
    if moving == sorted(moving):
        return op.viewed(shape)
    return op.emit("transpose", op.read_any(0, PLAIN), shape=shape, Shuffle=order)


def slice_(op: Operation) -> Made:
    """A box of a tensor; steps other than 1 are looked up."""
    own = op.shape()
    if "starts" in op.attributes:
        starts, ends = op.attributes["starts"], op.attributes["ends"]
        axes = list(op.attributes.get("axes") or range(len(starts)))
        steps = [1] * len(starts)
    else:
        starts, ends = op.integers(1), op.integers(2)
        axes = op.integers(3) if op.node.input(3) else list(range(len(starts)))
        steps = op.integers(4) if op.node.input(4) else [1] * len(starts)
    sizes = {len(starts), len(ends), len(axes), len(steps)}
    if len(sizes) != 1 or 0 in steps:
        raise UnsupportedError(f"steps {list(steps)}, {len(starts)} beginnings")
    if any(not -len(own) <= axis < len(own) for axis in axes):
        raise UnsupportedError(f"dimensions {list(axes)} of {list(own)}")
    if any(step != 1 for step in steps):
        boxes = zip(starts, ends, axes, steps, strict=True)
        return take(op, {a % len(own): _every(b, e, s, own[a]) for b, e, a, s in boxes})
    first, shape = [0] * len(own), list(own)
    for begin, end, axis in zip(starts, ends, axes, strict=True):
        size = own[axis % len(own)]
        low, high, _ = slice(int(begin), int(end)).indices(size)
        first[axis % len(own)], shape[axis % len(own)] = low, high - low
    return _extract(op, first, shape)


def _every(begin: int, end: int, step: int, size: int) -> Array:
    places = np.arange(size)[max(begin, -size - 1) : None if end < -size else end : step]
    if not places.size:
        raise UnsupportedError(f"nothing from {begin} to {end} of {size}")
    return places


def split(op: Operation) -> Made:
    """Parts along a dimension."""
    own, outputs = op.shape(), op.node.outputs
    axis, count = op.axis(0, own), len(op.node.outputs)
    given = op.attributes.get("split")
    if given is None and op.node.input(1):
        given = op.integers(1, 1 << 10)
    if given is None:
        each = -(-own[axis] // count)
        given = [min(each, own[axis] - i * each) for i in range(count)]
    if len(given) != count or sum(given) != own[axis]:
        raise UnsupportedError(f"parts {list(given)} of {own[axis]}")
    begin = 0
    for size, result in zip(given, outputs, strict=True):
        first = [begin * (d == axis) for d in range(len(own))]
        if result:
            shape = (*own[:axis], int(size), *own[axis + 1 :])
            op.give(result, _extract(op, first, shape, result))
        begin += int(size)
    return ""


def _extract(op: Operation, first: list[int], shape: Any, name: str = "") -> Value:
    value = op.read_any()
    offsets = op.held(first)
    return op.emit("extracttensor", value, shape=op.held(shape), name=name, Offsets=offsets)


def gather(op: Operation) -> Made:
    """Constant indices, of one dimension or none."""
    own, index = op.shape(), op.values(1)
    axis = op.integer("axis")
    if not -len(own) <= axis < len(own) or index.dtype.kind != "i" or index.ndim > 1:
        raise UnsupportedError(f"indices {list(index.shape)} of {index.dtype} in {list(own)}")
    axis %= len(own)
    size = own[axis]
    if index.size == 0 or index.min() < -size or index.max() >= size:
        raise UnsupportedError(f"indices beyond {size}")
    flat = index.reshape(-1).astype(np.int64) % size
    if index.ndim == 1:
        return take(op, {axis: flat})
    first = tuple(int(flat[0]) * (d == axis) for d in range(len(own)))
    shape = (*own[:axis], 1, *own[axis + 1 :])
    part = op.emit("extracttensor", op.read_any(0, PLAIN), shape=shape, Offsets=first)
    return op.view(part, (*own[:axis], *own[axis + 1 :]))


def tile(op: Operation) -> Made:
    """A tensor several times one behind the other."""
    own, counts = op.shape(), op.integers(1)
    if len(counts) != len(own) or min(counts, default=1) < 1 or max(counts, default=1) > 1 << 16:
        raise UnsupportedError(f"{counts} times {list(own)}")
    pairs = enumerate(zip(own, counts, strict=True))
    return take(op, {a: np.tile(np.arange(d), n) for a, (d, n) in pairs if n > 1})


def concatenation(op: Operation) -> Made:
    """Parts one behind the other, all of one kind."""
    names = [place for place, name in enumerate(op.names) if name]
    axis = joined_axis(op, names)
    layout = op.graph.layout(*(op.names[place] for place in names))
    parts = [op.read_any(place, layout) for place in names]
    kinds = {str((p.type.elem, p.type.quant)) for p in parts}
    if len(kinds) > 1:
        raise UnsupportedError("parts of other kinds or scales")
    return op.join(parts[0].type, parts, op.place(axis, len(parts[0].shape)))


def joined_axis(op: Operation, places: list[int]) -> int:
    """The dimension along which tensors are one behind the other; they agree in all others."""
    shapes = [op.shape(place) for place in places]
    first, axis = shapes[0], op.axis(0, shapes[0])
    if any((*s[:axis], *s[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]) for s in shapes):
        raise UnsupportedError(f"parts {[list(shape) for shape in shapes]}")
    return axis


def pad(op: Operation) -> Made:
    """A value around a tensor; real zero may become the padding of convolutions."""
    graph, own = op.graph, op.shape()
    given = op.attributes.get("pads") or op.attributes.get("paddings")
    if given is None:
        given = op.integers(1)
    axes = op.integers(3) if op.node.input(3) else list(range(len(own)))
    mode = op.attributes.get("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        raise UnsupportedError(f"mode {mode}")
    count = len(axes)
    if len(given) != 2 * count or any(not -len(own) <= a < len(own) for a in axes):
        raise UnsupportedError(f"pads {list(given)} for {list(own)}")
    if min(given, default=0) < 0 or max(given, default=0) >= 1 << 20:
        raise UnsupportedError(f"pads {list(given)}")
    before, behind = [0] * len(own), [0] * len(own)
    for i, axis in enumerate(axes):
        before[axis % len(own)], behind[axis % len(own)] = int(given[i]), int(given[count + i])
    sides = list(enumerate(zip(own, before, behind, strict=True)))
    if mode != "constant":
        return take(op, {a: np.pad(np.arange(d), s, mode) for a, (d, *s) in sides if any(s)})
    filler = op.attributes.get("value", 0.0)
    value = op.read_any()
    if op.node.input(2):
        held = op.values(2)
        if held.size != 1:
            raise UnsupportedError(f"{held.size} values to pad with")
        filler = held.reshape(-1)[0]
    kind = kind_of(graph, op.names[0], value)
    real = float(filler)
    if isinstance(kind, Quantized):
        real = float(np.float32(kind.scale) * np.float32(int(filler) - kind.zero_point))
    if real == 0.0 and _is_folded(op, graph.nchw(before), graph.nchw(behind)):
        op.same(value)
        (top, left), (bottom, right) = ((0, *graph.nchw(one)[2:])[-2:] for one in (before, behind))
        graph.padding[op.name] = (top, left, bottom, right)
        return "padding of the convolution that reads it"
    whole = op.room(value.type, op.held([b + s + e for _, (s, b, e) in sides]))
    graph.add("splat", op.name, (whole,), Value=real)
    op.insert(whole, value, op.held(before))
    return whole


def _is_folded(op: Operation, before: Shape, behind: Shape) -> bool:
    """Whether only convolutions that can pad as much themselves read the result."""
    readers = op.graph.readers.get(op.name, [])
    return (
        bool(readers)
        and not op.graph.is_output(op.name)
        and 3 <= len(before) <= 4
        and not any((*before[:2], *behind[:2]))
        and all(_pads_itself(reader, op.name) for reader in readers)
    )


def _pads_itself(reader: Node, name: str) -> bool:
    is_open = reader.attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return reader.kind == "Conv" and is_open and reader.reads[0] == name


def depth_to_space(op: Operation) -> Made:
    """Channels of a pixel to the pixels of a block."""
    own, block = op.shape(), op.integer("blocksize")
    if len(own) != 4 or block < 1 or own[1] % (block * block):
        raise UnsupportedError(f"blocks of {block} for {list(own)}")
    images, channels, rows, columns = own
    depth = channels // (block * block)
    is_crd = op.attributes.get("mode", "DCR") == "CRD"
    inner = (depth, block, block) if is_crd else (block, block, depth)
    order = (0, 1, 4, 2, 5, 3) if is_crd else (0, 3, 4, 1, 5, 2)
    apart = op.view(op.read_any(0, PLAIN), (images, *inner, rows, columns))
    return op.view(op.transposed(apart, order), (images, depth, rows * block, columns * block))


def space_to_depth(op: Operation) -> Made:
    """The pixels of a block to channels of one pixel."""
    own, block = op.shape(), op.integer("blocksize")
    if len(own) != 4 or block < 1 or own[2] % block or own[3] % block:
        raise UnsupportedError(f"blocks of {block} for {list(own)}")
    images, channels, rows, columns = own[0], own[1], own[2] // block, own[3] // block
    is_crd = op.attributes.get("mode", "DCR") == "CRD"
    order = (0, 1, 3, 5, 2, 4) if is_crd else (0, 3, 5, 1, 2, 4)
    apart = op.view(op.read_any(0, PLAIN), (images, channels, rows, block, columns, block))
    return op.view(op.transposed(apart, order), (images, channels * block * block, rows, columns))
