"""Resizing: by the nearest place, which the host looks up, or by the weights of neighbours.

Linear and cubic resizing is a product with the weights of each place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST, PLAIN
from nmpsim.frontends.graph.movement import take
from nmpsim.frontends.graph.nodes import Array, Shape
from nmpsim.frontends.graph.operation import Made, Operation
from nmpsim.frontends.imported_model import UnsupportedError


def resize(op: Operation) -> Made:
    """To any size."""
    attributes, own = dict(op.attributes), op.shape()
    sizes, scales = sizes_and_scales(op, own)
    if op.kind == "Upsample" or op.graph.opset < 11:
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if min(scales) < 1:
            raise UnsupportedError(f"scales {list(scales)}")
    mode = attributes.get("mode", "nearest")
    if mode == "nearest" and _is_repeated(attributes, own, sizes):
        value, shape = op.read_any(0, LAST), op.held(sizes)
        factors = tuple(float(o) / float(i) for o, i in zip(shape, value.shape, strict=True))
        return op.emit("resizenearest", value, shape=shape, Scale=factors)
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
            op, {a: np.clip(rounded(x).astype(np.int64), 0, own[a] - 1) for a, x in where.items()}
        )
    if mode not in ("linear", "cubic"):
        raise UnsupportedError(f"mode {mode}")
    value = op.read(0, PLAIN)
    for axis, x in where.items():
        is_linear = mode == "linear"
        weights = _linear(x, own[axis]) if is_linear else _cubic(x, own[axis], attributes)
        value = op.swapped(_product(op, op.swapped(value, axis), weights), axis)
    return op.emit("copy", value)


def _product(op: Operation, value: Value, weights: Array) -> Value:
    """The last dimension times weights [last, new]."""
    rows, count = math.prod(value.shape[:-1]), weights.shape[1]
    constants = op.real("weights", weights), op.real("nothing", np.zeros(count, np.float32))
    flat = op.view(value, (rows, len(weights)))
    made = op.make("fullyconnected", flat, *constants, shape=(rows, count))
    return op.view(made, (*value.shape[:-1], count))


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


def _is_repeated(attributes: Mapping[str, Any], own: Shape, sizes: Shape) -> bool:
    """Whether each pixel becomes a block of as many, in any of these modes."""
    whole = all(big % small == 0 for big, small in zip(sizes, own, strict=True))
    places = attributes.get("coordinate_transformation_mode", "half_pixel")
    nearest = attributes.get("nearest_mode", "round_prefer_floor")
    # At whole factors the others may be a pixel beside the one that lies there.
    fits = nearest == "floor" if places == "asymmetric" else nearest.startswith("round_prefer")
    is_image = len(own) == 4 and sizes[:2] == own[:2]
    return is_image and whole and fits and places in ("asymmetric", "half_pixel")


def sizes_and_scales(op: Operation, own: Shape) -> tuple[Shape, tuple[float, ...]]:
    """Sizes and scales; what the file does not name of both follows from the other."""
    axes = op.attributes.get("axes") or range(len(own))
    if any(not -len(own) <= axis < len(own) for axis in axes):
        raise UnsupportedError(f"dimensions {list(axes)} of {list(own)}")
    sizes, scales = list(own), [1.0] * len(own)
    at = 1 if op.node.op == "Upsample" or op.graph.opset < 11 else 2
    given: Any = op.attributes.get("scales")
    if op.node.input(3):
        given = op.integers(3)
    elif given is None:
        given = op.values(at).reshape(-1)
    if len(given) != len(axes) or not all(0 < float(one) < 1 << 20 for one in given):
        raise UnsupportedError(f"{len(given)} sizes or scales for {list(own)}")
    for axis, one in zip(axes, given, strict=True):
        if op.node.input(3):
            sizes[axis], scales[axis] = (
                int(one),
                float(np.float32(int(one)) / np.float32(own[axis])),
            )
        else:
            sizes[axis], scales[axis] = int(np.floor(own[axis] * float(one))), float(one)
    if min(sizes, default=1) < 1:
        raise UnsupportedError(f"sizes {sizes} for {list(own)}")
    return tuple(sizes), tuple(scales)
