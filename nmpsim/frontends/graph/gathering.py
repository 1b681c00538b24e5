"""Nodes that take what lies at certain places of each dimension: resizing, tiles, steps, mirrors.

The host looks the places up, of integers as they are. Linear and cubic resizing is a product with
the weights of each place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN, Lowering, Result
from nmpsim.frontends.graph.movement import kind_of, take
from nmpsim.frontends.graph.pointwise import swapped
from nmpsim.frontends.graph.real import REAL, real
from nmpsim.frontends.graph.steps import Array, Node, Shape
from nmpsim.frontends.unsupported import UnsupportedError


def gather(graph: Lowering, node: Node) -> Result:
    """Constant indices, of one dimension or none."""
    name, result = node.inputs[0], node.outputs[0]
    own, index = graph.shape(name), graph.constant(node.input(1))
    axis = int(node.attributes.get("axis", 0))
    if not -len(own) <= axis < len(own) or index.dtype.kind != "i" or index.ndim > 1:
        raise UnsupportedError(f"indices {list(index.shape)} of {index.dtype} in {list(own)}")
    axis %= len(own)
    size = own[axis]
    if index.size == 0 or index.min() < -size or index.max() >= size:
        raise UnsupportedError(f"indices beyond {size}")
    flat = index.reshape(-1).astype(np.int64) % size
    if index.ndim == 1:
        return take(graph, node, {axis: flat})
    value = graph.value(name)
    made = (*own[:axis], *own[axis + 1 :])
    target = graph.target(result, made, kind_of(graph, name, value))
    first = [0] * len(own)
    first[axis] = int(flat[0])
    whole = graph.view(target, (*own[:axis], 1, *own[axis + 1 :]))
    graph.add("extracttensor", result, (whole, value), Offsets=tuple(first))
    return Result()


def tile(graph: Lowering, node: Node) -> Result:
    """A tensor several times one behind the other."""
    own = graph.shape(node.inputs[0])
    counts = graph.integers(node.input(1))
    if len(counts) != len(own) or min(counts, default=1) < 1 or max(counts, default=1) > 1 << 16:
        raise UnsupportedError(f"{counts} times {list(own)}")
    pairs = enumerate(zip(own, counts, strict=True))
    return take(graph, node, {a: np.tile(np.arange(d), n) for a, (d, n) in pairs if n > 1})


def resize(graph: Lowering, node: Node) -> Result:
    """To any size, by the nearest place, or by weights of neighbours."""
    attributes, own = dict(node.attributes), graph.shape(node.inputs[0])
    sizes, scales = sizes_and_scales(graph, node, own)
    if node.op == "Upsample" or graph.opset < 11:
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if min(scales) < 1:
            raise UnsupportedError(f"scales {list(scales)}")
    mode = attributes.get("mode", "nearest")
    if mode == "nearest" and _is_repeated(attributes, own, sizes):
        return _repeated(graph, node, sizes)
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    if attributes.get("antialias") or policy != "stretch" or max(sizes) > 1 << 16:
        raise UnsupportedError(f"antialias, {policy}, or sizes {list(sizes)}")
    where = {
        axis: _coordinates(attributes, own[axis], sizes[axis], scales[axis])
        for axis in range(len(own))
        if sizes[axis] != own[axis] or scales[axis] != 1
    }
    if mode == "nearest":
        rounded = _ROUND.get(attributes.get("nearest_mode", "round_prefer_floor"))
        if rounded is None:
            raise UnsupportedError(f"{attributes.get('nearest_mode')}")
        return take(
            graph,
            node,
            {a: np.clip(rounded(x).astype(np.int64), 0, own[a] - 1) for a, x in where.items()},
        )
    if mode not in ("linear", "cubic"):
        raise UnsupportedError(f"mode {mode}")
    weights = {
        axis: _linear(x, own[axis]) if mode == "linear" else _cubic(x, own[axis], attributes)
        for axis, x in where.items()
    }
    return _weighted(graph, node, sizes, weights)


def _coordinates(attributes: Mapping[str, Any], own: int, size: int, scale: float) -> Array:
    """Where each index of the result lies in the source, float32 as in ONNX Runtime."""
    kind = attributes.get("coordinate_transformation_mode", "half_pixel")
    x = np.arange(size, dtype=np.float32)
    half, factor = np.float32(0.5), np.float32(scale)
    if kind == "asymmetric":
        return x / factor
    if kind == "align_corners":
        if np.float32(own) * factor != size:  # ONNX and its Runtime differ in what the length is
            raise UnsupportedError(f"align_corners from {own} to {own * scale:g}")
        return x * np.float32(own - 1) / np.float32(size - 1) if size > 1 else x * 0
    if kind == "pytorch_half_pixel" and size == 1:
        return x * 0
    if kind in ("half_pixel", "pytorch_half_pixel"):
        return (x + half) / factor - half
    if kind == "half_pixel_symmetric":
        adjustment = np.float32(size) / (factor * np.float32(own))
        offset = np.float32(own) / 2 * (1 - adjustment)
        return offset + (x + half) / factor - half
    raise UnsupportedError(f"{kind}")


def _half_up(x: Array) -> Array:
    return np.floor(np.abs(x) + 0.5) * np.sign(x)  # halves away from zero, as C's round


_ROUND: Mapping[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_ceil": _half_up,
    "round_prefer_floor": lambda x: np.where(x == np.trunc(x) + 0.5, np.floor(x), _half_up(x)),
}


def _linear(x: Array, own: int) -> Array:
    """Weights [source, result] of the two neighbours."""
    x = np.clip(x, 0, own - 1)
    low = x.astype(np.int64)
    high = np.minimum(low + 1, own - 1)
    part = x - low.astype(np.float32)
    weights = np.zeros((own, len(x)), np.float32)
    np.add.at(weights, (low, np.arange(len(x))), 1 - part)
    np.add.at(weights, (high, np.arange(len(x))), part)
    return weights


def _cubic(x: Array, own: int, attributes: Mapping[str, Any]) -> Array:
    """Weights [source, result] of four neighbours; beyond the edge lies the edge, or nothing."""
    a = float(attributes.get("cubic_coeff_a", -0.75))
    weights = np.zeros((own, len(x)), np.float32)
    first = np.floor(x).astype(np.int64)
    part = x.astype(np.float64) - first
    for tap in range(-1, 3):
        d = np.abs(part - tap)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weight = np.where(d <= 1, near, far)
        place = first + tap
        if attributes.get("exclude_outside"):
            weight = np.where((place >= 0) & (place < own), weight, 0)
        np.add.at(weights, (np.clip(place, 0, own - 1), np.arange(len(x))), weight)
    return weights / weights.sum(0) if attributes.get("exclude_outside") else weights


def _weighted(graph: Lowering, node: Node, sizes: Shape, weights: Mapping[int, Array]) -> Result:
    """One product for each dimension, which lies last for it."""
    name, result = node.inputs[0], node.outputs[0]
    value = real(graph, name, PLAIN)
    target = graph.target(result, sizes, REAL)
    for axis, held in weights.items():
        value = _product(graph, result, swapped(graph, result, value, axis), held)
        value = swapped(graph, result, value, axis)
    graph.add("copy", result, (target, value))
    return Result()


def _product(graph: Lowering, name: str, value: Value, weights: Array) -> Value:
    """The last dimension times weights [last, new]."""
    rows, count = math.prod(value.shape[:-1]), weights.shape[1]
    type = attrs.evolve(value.type, shape=(*value.shape[:-1], count))
    made = graph.temporary(f"{name}_product", type)
    operands = (
        graph.view(made, (rows, count)),
        graph.view(value, (rows, len(weights))),
        graph.real_constant(f"{name}_weights", weights),
        graph.real_constant(f"{name}_nothing", np.zeros(count, np.float32)),
    )
    graph.add("fullyconnected", name, operands)
    return made


def _is_repeated(attributes: Mapping[str, Any], own: Shape, sizes: Shape) -> bool:
    """Whether each pixel becomes a block of as many, in any of these modes."""
    whole = all(big % small == 0 for big, small in zip(sizes, own, strict=True))
    places = attributes.get("coordinate_transformation_mode", "half_pixel")
    nearest = attributes.get("nearest_mode", "round_prefer_floor")
    # At whole factors the others may be a pixel beside the one that lies there.
    fits = nearest == "floor" if places == "asymmetric" else nearest.startswith("round_prefer")
    is_image = len(own) == 4 and sizes[:2] == own[:2]
    return is_image and whole and fits and places in ("asymmetric", "half_pixel")


def _repeated(graph: Lowering, node: Node, sizes: Shape) -> Result:
    name, result = node.inputs[0], node.outputs[0]
    value = graph.value(name, LAST)
    target = graph.target(result, sizes, kind_of(graph, name, value), LAST)
    scale = tuple(float(o) / float(i) for o, i in zip(target.shape, value.shape, strict=True))
    graph.add("resizenearest", result, (target, value), Scale=scale)
    return Result()


def sizes_and_scales(graph: Lowering, node: Node, own: Shape) -> tuple[Shape, tuple[float, ...]]:
    """Sizes and scales; what the file does not name of both follows from the other."""
    axes = node.attributes.get("axes") or range(len(own))
    if any(not -len(own) <= axis < len(own) for axis in axes):
        raise UnsupportedError(f"dimensions {list(axes)} of {list(own)}")
    sizes, scales = list(own), [1.0] * len(own)
    at = 1 if node.op == "Upsample" or graph.opset < 11 else 2
    given: Any = node.attributes.get("scales")
    if node.input(3):
        given = graph.integers(node.input(3))
    elif given is None:
        given = graph.constant(node.input(at)).reshape(-1)
    if len(given) != len(axes) or not all(0 < float(one) < 1 << 20 for one in given):
        raise UnsupportedError(f"{len(given)} sizes or scales for {list(own)}")
    for axis, one in zip(axes, given, strict=True):
        if node.input(3):
            sizes[axis], scales[axis] = (
                int(one),
                float(np.float32(int(one)) / np.float32(own[axis])),
            )
        else:
            sizes[axis], scales[axis] = int(np.floor(own[axis] * float(one))), float(one)
    if min(sizes, default=1) < 1:
        raise UnsupportedError(f"sizes {sizes} for {list(own)}")
    return tuple(sizes), tuple(scales)
