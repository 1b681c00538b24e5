"""Nodes that move values, integers or real numbers: views, slices, padding, transposition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN, VIEW, Lowering, Result, turned
from nmpsim.frontends.graph.pointwise import as_image, join, joined, place_of
from nmpsim.frontends.graph.steps import Array, IntegerOperation, Node, Quantized, Shape
from nmpsim.frontends.graph.windows import Window, window_of
from nmpsim.frontends.unsupported import UnsupportedError
from nmpsim.lir.nodes import TensorType


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


Places = Mapping[int, npt.NDArray[np.int64]]
"""Dimension of the file -> the index that each index of the result has in the source."""


def take(graph: Lowering, node: Node, places: Places) -> Result:
    """Look up the places of each dimension; the others stay."""
    name, result = node.inputs[0], node.outputs[0]
    shape, layout = graph.shape(name), graph.layout(name)
    made = tuple(len(places.get(axis, range(size))) for axis, size in enumerate(shape))
    value = graph.value(name, layout)
    target = graph.target(result, made, kind_of(graph, name, value), layout)
    held = {place_of(axis, len(shape), layout): index for axis, index in places.items()}
    _take(graph, result, target, value, held)
    return Result()


def _take(graph: Lowering, result: str, target: Value, value: Value, places: Places) -> None:
    """The same of dimensions as they are held."""
    for left, (own, index) in zip(reversed(range(len(places))), places.items(), strict=True):
        dims = (*value.shape[:own], len(index), *value.shape[own + 1 :])
        kind = attrs.evolve(value.type, shape=dims)
        part = graph.temporary(f"{result}_part", kind) if left else target
        number = TensorType("index64", index.shape)
        held = graph.builder.constant(f"{result}_places", index, number)
        graph.add("gather", result, (part, value, held), BatchDims=own)
        value = part
    if not places:
        graph.add("copy", result, (target, value))


def identity(graph: Lowering, node: Node) -> Result:
    """The same tensor under another name."""
    return _viewed(graph, node, graph.shape(node.inputs[0]))


def dropout(graph: Lowering, node: Node) -> Result:
    """Nothing is dropped, but in training, which is another operation."""
    if node.input(2) and graph.constant(node.input(2)).any():
        raise UnsupportedError("training")
    return identity(graph, node)


def _viewed(graph: Lowering, node: Node, shape: Shape) -> Result:
    name, result = node.inputs[0], node.outputs[0]
    if graph.shape(name) == shape:
        layout = graph.layout(name)
        graph.same_as(result, shape, graph.value(name, layout), layout)
    else:
        graph.same_as(result, shape, graph.view(graph.value(name), shape))
    return Result() if graph.is_output(result) else Result(VIEW)


def reshape(graph: Lowering, node: Node) -> Result:
    """A constant shape; 0 keeps a dimension, -1 is what is left."""
    given = node.attributes.get("shape") or graph.integers(node.input(1))
    own = graph.shape(node.inputs[0])
    keeps = not node.attributes.get("allowzero", 0)
    if keeps and any(d == 0 and i >= len(own) for i, d in enumerate(given)):
        raise UnsupportedError(f"shape {list(given)} for {list(own)}")
    dims = [own[i] if d == 0 and keeps else int(d) for i, d in enumerate(given)]
    known = math.prod(d for d in dims if d != -1)
    if dims.count(-1) == 1 and known > 0:
        dims[dims.index(-1)] = math.prod(own) // known
    if min(dims, default=1) < 1 or math.prod(dims) != math.prod(own):
        raise UnsupportedError(f"shape {list(given)} for {list(own)}")
    return _viewed(graph, node, tuple(dims))


def flatten(graph: Lowering, node: Node) -> Result:
    """To two dimensions."""
    own = graph.shape(node.inputs[0])
    axis = int(node.attributes.get("axis", 1))
    if not -len(own) <= axis <= len(own):
        raise UnsupportedError(f"dimension {axis} of {list(own)}")
    axis = axis + len(own) if axis < 0 else axis
    return _viewed(graph, node, (math.prod(own[:axis]), math.prod(own[axis:])))


def axes_of(graph: Lowering, node: Node, rank: int, place: int = 1) -> list[int] | None:
    """Dimensions given as an attribute, or as an input; None if they are not given."""
    given = node.attributes.get("axes")
    if given is None:
        if not node.input(place):
            return None
        given = graph.integers(node.input(place))
    if any(not -rank <= axis < rank for axis in given):
        raise UnsupportedError(f"dimensions {list(given)} of {rank}")
    return [int(axis) % rank for axis in given]


def squeeze(graph: Lowering, node: Node) -> Result:
    """Without dimensions of 1."""
    own = graph.shape(node.inputs[0])
    axes = axes_of(graph, node, len(own))
    gone = [i for i, d in enumerate(own) if d == 1] if axes is None else axes
    if any(own[axis] != 1 for axis in gone):
        raise UnsupportedError(f"dimensions {gone} of {list(own)}")
    return _viewed(graph, node, tuple(d for i, d in enumerate(own) if i not in gone))


def unsqueeze(graph: Lowering, node: Node) -> Result:
    """With more dimensions of 1."""
    own = graph.shape(node.inputs[0])
    given = node.attributes.get("axes") or graph.integers(node.input(1))
    rank = len(own) + len(given)
    axes = axes_of(graph, node, rank) or []
    if len(set(axes)) != len(axes):
        raise UnsupportedError(f"dimensions {axes}")
    rest = iter(own)
    return _viewed(graph, node, tuple(1 if i in axes else next(rest) for i in range(rank)))


def transpose(graph: Lowering, node: Node) -> Result:
    """Dimensions in another order; between the two layouts nothing moves."""
    name, result = node.inputs[0], node.outputs[0]
    own = graph.shape(name)
    rank = len(own)
    order = tuple(node.attributes.get("perm") or range(rank - 1, -1, -1))
    if sorted(order) != list(range(rank)):
        raise UnsupportedError(f"order {list(order)} of {rank} dimensions")
    shape = tuple(own[axis] for axis in order)
    last_first, first_last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    layout = graph.layout(name)
    value = graph.value(name, layout)
    if rank > 2 and order == last_first and layout == PLAIN:
        graph.same_as(result, shape, value, LAST)
        return Result(VIEW)
    if rank > 2 and order == first_last and layout == LAST:
        graph.same_as(result, shape, value, PLAIN)
        return Result() if graph.is_output(result) else Result(VIEW)
    value = graph.value(name)
    moving = [axis for axis in order if own[axis] > 1]
    if moving == sorted(moving):
        return _viewed(graph, node, shape)
    target = graph.target(result, shape, kind_of(graph, name, value))
    graph.add("transpose", result, (target, value), Shuffle=order)
    return Result()


def slice_(graph: Lowering, node: Node) -> Result:
    """A box of a tensor, with steps of 1."""
    name = node.inputs[0]
    own = graph.shape(name)
    if "starts" in node.attributes:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes = list(node.attributes.get("axes") or range(len(starts)))
        steps = [1] * len(starts)
    else:
        starts, ends = graph.integers(node.input(1)), graph.integers(node.input(2))
        axes = graph.integers(node.input(3)) if node.input(3) else list(range(len(starts)))
        steps = graph.integers(node.input(4)) if node.input(4) else [1] * len(starts)
    sizes = {len(starts), len(ends), len(axes), len(steps)}
    if len(sizes) != 1 or 0 in steps:
        raise UnsupportedError(f"steps {list(steps)}, {len(starts)} beginnings")
    if any(not -len(own) <= axis < len(own) for axis in axes):
        raise UnsupportedError(f"dimensions {list(axes)} of {list(own)}")
    if any(step != 1 for step in steps):
        boxes = zip(starts, ends, axes, steps, strict=True)
        return take(graph, node, {a % len(own): _every(b, e, s, own[a]) for b, e, a, s in boxes})
    first, shape = [0] * len(own), list(own)
    for begin, end, axis in zip(starts, ends, axes, strict=True):
        size = own[axis % len(own)]
        low, high, _ = slice(int(begin), int(end)).indices(size)
        first[axis % len(own)], shape[axis % len(own)] = low, high - low
    _extract(graph, name, node.outputs[0], first, tuple(shape))
    return Result()


def _every(begin: int, end: int, step: int, size: int) -> Array:
    places = np.arange(size)[max(begin, -size - 1) : None if end < -size else end : step]
    if not places.size:
        raise UnsupportedError(f"nothing from {begin} to {end} of {size}")
    return places


def split(graph: Lowering, node: Node) -> Result:
    """Parts along a dimension."""
    name = node.inputs[0]
    own = graph.shape(name)
    axis = int(node.attributes.get("axis", 0))
    if not -len(own) <= axis < len(own):
        raise UnsupportedError(f"dimension {axis} of {list(own)}")
    axis %= len(own)
    count = len(node.outputs)
    given = node.attributes.get("split")
    if given is None and node.input(1):
        given = graph.integers(node.input(1), 1 << 10)
    if given is None:
        each = -(-own[axis] // count)
        given = [min(each, own[axis] - i * each) for i in range(count)]
    if len(given) != count or sum(given) != own[axis]:
        raise UnsupportedError(f"parts {list(given)} of {own[axis]}")
    begin = 0
    for size, result in zip(given, node.outputs, strict=True):
        first = [0] * len(own)
        first[axis] = begin
        if result:
            _extract(graph, name, result, first, (*own[:axis], int(size), *own[axis + 1 :]))
        begin += int(size)
    return Result()


def _extract(graph: Lowering, name: str, result: str, first: list[int], shape: Shape) -> None:
    layout = graph.layout(name)
    value = graph.value(name, layout)
    target = graph.target(result, shape, kind_of(graph, name, value), layout)
    offsets = turned(tuple(first)) if layout == LAST else tuple(first)
    graph.add("extracttensor", result, (target, value), Offsets=offsets)


def concatenation(graph: Lowering, node: Node) -> Result:
    """Parts one behind the other, all of one kind."""
    names = [name for name in node.inputs if name]
    shapes = [graph.shape(name) for name in names]
    shape = joined(shapes, axis := int(node.attributes.get("axis", 0)))
    layout = graph.layout(*names)
    parts = [graph.value(name, layout) for name in names]
    if any(attrs.evolve(p.type, shape=()) != attrs.evolve(parts[0].type, shape=()) for p in parts):
        raise UnsupportedError("parts of other kinds or scales")
    result = node.outputs[0]
    target = graph.target(result, shape, kind_of(graph, names[0], parts[0]), layout)
    join(graph, result, target, parts, place_of(axis, len(shape), layout))
    return Result()


def pad(graph: Lowering, node: Node) -> Result:
    """A value around a tensor; real zero may become the padding of convolutions."""
    name, result = node.inputs[0], node.outputs[0]
    own = graph.shape(name)
    given = node.attributes.get("pads") or node.attributes.get("paddings")
    if given is None:
        given = graph.integers(node.input(1))
    axes = graph.integers(node.input(3)) if node.input(3) else list(range(len(own)))
    mode = node.attributes.get("mode", "constant")
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
    if mode != "constant":
        sides = enumerate(zip(own, before, behind, strict=True))
        return take(
            graph,
            node,
            {a: np.pad(np.arange(d), (b, e), mode) for a, (d, b, e) in sides if b or e},
        )
    shape = tuple(b + s + e for b, s, e in zip(before, own, behind, strict=True))
    filler = node.attributes.get("value", 0.0)
    layout = graph.layout(name)
    value = graph.value(name, layout)
    if node.input(2):
        held = graph.constant(node.input(2))
        if held.size != 1:
            raise UnsupportedError(f"{held.size} values to pad with")
        filler = held.reshape(-1)[0]
    kind = kind_of(graph, name, value)
    real = float(filler)
    if isinstance(kind, Quantized):
        zero = kind.zero_point
        real = float(np.float32(kind.scale) * np.float32(int(filler) - zero))
    if real == 0.0 and _is_folded(graph, result, before, behind):
        graph.same_as(result, own, value, layout)
        graph.padding[result] = _around(graph.nchw(before), graph.nchw(behind))
        return Result("padding of the convolution that reads it")
    target = graph.target(result, shape, kind, layout)
    graph.add("splat", result, (target,), Value=real)
    offsets = turned(tuple(before)) if layout == LAST else tuple(before)
    graph.add("inserttensor", result, (target, value), Offsets=offsets, Count=1, Axis=0)
    return Result()


def _around(before: Shape, behind: Shape) -> tuple[int, int, int, int]:
    if len(before) == 3:
        return 0, before[2], 0, behind[2]
    return before[2], before[3], behind[2], behind[3]


def _is_folded(graph: Lowering, result: str, before: list[int], behind: list[int]) -> bool:
    """Whether only convolutions that can pad as much themselves read the result."""
    readers = graph.readers.get(result, [])
    return (
        bool(readers)
        and not graph.is_output(result)
        and 3 <= len(before) <= 4
        and not any((*graph.nchw(before)[:2], *graph.nchw(behind)[:2]))
        and all(
            (reader.kind if isinstance(reader, IntegerOperation) else reader.op) == "Conv"
            and reader.attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
            and _first_of(reader) == result
            for reader in readers
        )
    )


def _first_of(step: Node | IntegerOperation) -> str:
    return step.sources[0].name if isinstance(step, IntegerOperation) else step.inputs[0]


def max_pool(graph: Lowering, node: Node) -> Result:
    """The largest value of each window, or of each whole channel."""
    name, result = node.inputs[0], node.outputs[0]
    shape = graph.shape(name)
    if not 3 <= len(shape) <= 4 or any(node.outputs[1:]):
        raise UnsupportedError(f"an input {list(shape)}, or places of the largest values")
    attributes: dict[str, Any] = dict(node.attributes)
    if node.op == "GlobalMaxPool":
        attributes = {"kernel_shape": tuple(shape[2:])}
    window = window_of(attributes, shape[2:])
    auto = str(attributes.get("auto_pad", "NOTSET"))
    if window.dilation != (1, 1) and auto.startswith("SAME"):
        # ONNX Runtime pads as for a window without gaps, other than ONNX says.
        raise UnsupportedError(f"dilations {list(window.dilation)} and {auto}")
    value = graph.value(name, LAST)
    made = (*shape[:2], *window.out[4 - len(shape) :])
    target = graph.target(result, made, kind_of(graph, name, value), LAST)
    sides = [as_image(graph, target), as_image(graph, value)]
    strides, pads = window.strides, window.pads
    if window.dilation != (1, 1):
        sides[1] = _apart(graph, result, sides[1], window)
        strides, pads = window.kernel, (0, 0, 0, 0)
    graph.add("maxpool", result, sides, Kernels=window.kernel, Strides=strides, Pads=pads)
    return Result()


def _apart(graph: Lowering, result: str, image: Value, window: Window) -> Value:
    """An image whose windows with gaps lie one behind the other; padding takes a neighbour's place.

    A value that is there twice does not change a window's largest.
    """
    places = {}
    for d in range(2):
        begins = np.arange(window.out[d]) * window.strides[d] - window.pads[d]
        taps = begins[:, None] + np.arange(window.kernel[d]) * window.dilation[d]
        is_inside = (taps >= 0) & (taps < image.shape[1 + d])
        if not is_inside.any(axis=1).all():
            raise UnsupportedError("a window of padding alone")
        first = taps[np.arange(len(taps)), is_inside.argmax(axis=1)]
        places[1 + d] = np.where(is_inside, taps, first[:, None]).reshape(-1)
    images, _, _, channels = image.shape
    shape = (images, len(places[1]), len(places[2]), channels)
    apart = graph.temporary(f"{result}_apart", attrs.evolve(image.type, shape=shape))
    _take(graph, result, apart, image, places)
    return apart


def depth_to_space(graph: Lowering, node: Node) -> Result:
    """Channels of a pixel to the pixels of a block."""
    name, result = node.inputs[0], node.outputs[0]
    own, block = graph.shape(name), int(node.attributes.get("blocksize", 0))
    if len(own) != 4 or block < 1 or own[1] % (block * block):
        raise UnsupportedError(f"blocks of {block} for {list(own)}")
    images, channels, rows, columns = own
    depth = channels // (block * block)
    value = graph.value(name)
    is_crd = node.attributes.get("mode", "DCR") == "CRD"
    inner = (depth, block, block) if is_crd else (block, block, depth)
    order = (0, 1, 4, 2, 5, 3) if is_crd else (0, 3, 4, 1, 5, 2)
    apart = graph.view(value, (images, *inner, rows, columns))
    shape = (images, depth, rows * block, columns * block)
    target = graph.target(result, shape, kind_of(graph, name, value))
    wide = graph.view(target, tuple(apart.shape[axis] for axis in order))
    graph.add("transpose", result, (wide, apart), Shuffle=order)
    return Result()


def space_to_depth(graph: Lowering, node: Node) -> Result:
    """The pixels of a block to channels of one pixel."""
    name, result = node.inputs[0], node.outputs[0]
    own, block = graph.shape(name), int(node.attributes.get("blocksize", 0))
    if len(own) != 4 or block < 1 or own[2] % block or own[3] % block:
        raise UnsupportedError(f"blocks of {block} for {list(own)}")
    images, channels, rows, columns = own[0], own[1], own[2] // block, own[3] // block
    value = graph.value(name)
    apart = graph.view(value, (images, channels, rows, block, columns, block))
    made = (images, channels * block * block, rows, columns)
    target = graph.target(result, made, kind_of(graph, name, value))
    is_crd = node.attributes.get("mode", "DCR") == "CRD"
    order = (0, 1, 3, 5, 2, 4) if is_crd else (0, 3, 5, 1, 2, 4)
    wide = graph.view(target, tuple(apart.shape[axis] for axis in order))
    graph.add("transpose", result, (wide, apart), Shuffle=order)
    return Result()
