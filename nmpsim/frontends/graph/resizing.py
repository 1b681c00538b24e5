"""Lowering of Resize and Upsample.

Linear and cubic resizing of floats is a product with the weights of each index; linear resizing of
integers by whole factors is a transposed convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.convolution import emit_transposed_convolution
from nmpsim.frontends.graph.lowering import CHANNELS_LAST, PLAIN
from nmpsim.frontends.graph.matmul import emit_fully_connected
from nmpsim.frontends.graph.movement import emit_gather
from nmpsim.frontends.graph.nodes import Array, QuantizedTensor, Shape
from nmpsim.frontends.graph.operation import GraphLowering, LoweringResult, normalize_axis
from nmpsim.frontends.graph.windows import Window
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.module_builder import BuilderTensor

_MAX_WEIGHT = 127
_MAX_SIZE = 1 << 16


def lower_resize(
    op: GraphLowering,
    *,
    axes: Sequence[int] | None = None,
    scales: Sequence[float] | None = None,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    keep_aspect_ratio_policy: str = "stretch",
    antialias: int = 0,
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
) -> LoweringResult:
    """Lower Resize or Upsample of floats, or of any type in mode nearest."""
    own, transformation = op.get_shape(), coordinate_transformation_mode
    sizes, factors = _sizes_and_scales(op, own, axes, scales)
    if _is_old(op):
        transformation, nearest_mode = "asymmetric", "floor"
        expected = "scales of 1 or more, or opset 11"
        require(min(factors) >= 1, f"scales {list(factors)}", expected)
    _check_options(antialias, keep_aspect_ratio_policy)
    require(max(sizes) <= _MAX_SIZE, f"sizes {list(sizes)}", f"sizes up to {_MAX_SIZE}")
    coordinates = {
        axis: _coordinates(transformation, own[axis], sizes[axis], factors[axis])
        for axis in range(len(own))
        if sizes[axis] != own[axis] or factors[axis] != 1
    }
    if mode == "nearest":
        is_known = nearest_mode in _ROUNDING
        require(
            is_known, f"nearest_mode {nearest_mode}", f"nearest_mode {list_alternatives(_ROUNDING)}"
        )
        rounded = {a: _ROUNDING[nearest_mode](x).astype(np.int64) for a, x in coordinates.items()}
        places = {axis: np.clip(x, 0, own[axis] - 1) for axis, x in rounded.items()}
        counts = {axis: find_repetition(own[axis], x) for axis, x in places.items()}
        if not counts or 1 in counts.values():
            return emit_gather(op, places)
        value = op.read_unchecked_operand(0, CHANNELS_LAST)
        return emit_repetition(op, value, op.to_layout([counts.get(a, 1) for a in range(len(own))]))
    require(mode in ("linear", "cubic"), f"mode {mode}", "mode nearest, linear or cubic")
    value, excludes_outside = op.read_operand(0, PLAIN), exclude_outside and mode == "cubic"
    for axis, x in coordinates.items():
        weights = _tap_weights(x, own[axis], mode, cubic_coeff_a, excludes_outside)
        swapped = op.swap_with_last(value, axis)
        matrix = op.add_result_constant("weights", weights)
        zeros = op.add_result_constant("nothing", np.zeros(sizes[axis], np.float32))
        value = op.swap_with_last(emit_fully_connected(op, swapped, matrix, zeros), axis)
    return op.emit("copy", value)


def _check_options(antialias: int, policy: str) -> None:
    require(not antialias, f"antialias {antialias}", "antialias 0")
    require(
        policy == "stretch",
        f"keep_aspect_ratio_policy {policy}",
        "keep_aspect_ratio_policy stretch",
    )


def _is_old(op: GraphLowering) -> bool:
    return op.node.op == "Upsample" or op.opset < 11


def _sizes_and_scales(
    op: GraphLowering, own: Shape, axes: Sequence[int] | None, scales: Sequence[float] | None
) -> tuple[Shape, tuple[float, ...]]:
    """Return sizes and scales of all axes; the file gives only one of them."""
    axes = [normalize_axis(axis, own) for axis in axes or range(len(own))]
    has_sizes = bool(op.node.get_input(3))
    given: Any = op.get_integers(3) if has_sizes else scales
    if given is None:
        given = op.get_constant(1 if _is_old(op) else 2).reshape(-1)
    sizes, factors = list(own), [1.0] * len(own)
    noun = "size" if has_sizes else "scale"
    for axis, number in zip(axes, map(float, given), strict=True):
        found = f"{noun} {number:g}"
        require(0 < number < 1 << 20, found, f"a positive {noun} below 1,048,576")
        sizes[axis], factors[axis] = int(np.floor(own[axis] * number)), number
        if has_sizes:
            sizes[axis] = int(number)
            factors[axis] = float(np.float32(number) / np.float32(own[axis]))
    require(min(sizes, default=1) > 0, f"sizes {sizes} for shape {list(own)}", "positive sizes")
    return tuple(sizes), tuple(factors)


def find_repetition(size: int, places: Array) -> int:
    """Return how often each of ``size`` indices is repeated in their order in ``places``, or 1."""
    count = max(len(places) // size, 1)
    return count if np.array_equal(places, np.arange(size).repeat(count)) else 1


def emit_repetition(op: GraphLowering, value: BuilderTensor, counts: Shape) -> BuilderTensor:
    """Emit copies that repeat each element ``counts[axis]`` times; return their result."""
    for axis in reversed(range(len(counts))):
        if counts[axis] > 1:
            shape, outer = list(value.shape), math.prod(value.shape[: axis + 1])
            shape[axis] *= counts[axis]
            wide = op.allocate(value.type, tuple(shape))
            op.emit_touch(wide)
            rows = op.make_view(value, (outer, 1, math.prod(value.shape) // outer))
            target = op.make_view(wide, (outer, counts[axis], rows.shape[2]))
            op.emit_insertion(target, rows, (0, 0, 0), counts[axis], 1)
            value = wide
    return value


def _coordinates(transformation: str, own: int, size: int, scale: float) -> Array:
    """Return the source coordinate of each index of the result, float32 as in ONNX Runtime."""
    x = np.arange(size, dtype=np.float32)
    half, factor = np.float32(0.5), np.float32(scale)
    if transformation == "asymmetric":
        return x / factor
    if transformation == "align_corners":
        # ONNX and its Runtime differ in what the length is
        require(
            np.float32(own) * factor == size,
            f"align_corners with a result size of {own} * {scale:g} = {own * scale:g}",
            "a whole result size",
        )
        return x * np.float32(own - 1) / np.float32(size - 1) if size > 1 else x * 0
    if transformation == "tf_half_pixel_for_nn":
        return (x + half) / factor
    if transformation == "pytorch_half_pixel" and size == 1:
        return x * 0
    if transformation in ("half_pixel", "pytorch_half_pixel"):
        return (x + half) / factor - half
    if transformation == "half_pixel_symmetric":
        adjustment = np.float32(size) / (factor * np.float32(own))
        offset = np.float32(own) / 2 * (1 - adjustment)
        return offset + (x + half) / factor - half
    raise UnsupportedError(
        f"coordinate_transformation_mode {transformation}",
        "coordinate_transformation_mode asymmetric, align_corners, half_pixel,"
        " half_pixel_symmetric, pytorch_half_pixel or tf_half_pixel_for_nn",
    )


def _half_away(x: Array) -> Array:
    """Round halves away from zero, as C's round."""
    return np.floor(np.abs(x) + 0.5) * np.sign(x)


_ROUNDING: Mapping[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_ceil": _half_away,
    "round_prefer_floor": lambda x: np.where(x == np.trunc(x) + 0.5, np.floor(x), _half_away(x)),
}


def _tap_weights(x: Array, own: int, mode: str, a: float, excludes_outside: bool) -> Array:
    """Return weights [source, result] of two or four neighbors; outside is the edge, or nothing."""
    is_linear = mode == "linear"
    x = np.clip(x, 0, own - 1) if is_linear else x
    weights = np.zeros((own, len(x)), np.float32)
    first = np.floor(x).astype(np.int64)
    part = x.astype(np.float64) - first
    for tap in range(2) if is_linear else range(-1, 3):
        d, index = np.abs(part - tap), first + tap
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weight = 1 - d if is_linear else np.where(d <= 1, near, far)
        if excludes_outside:
            weight = np.where((index >= 0) & (index < own), weight, 0)
        np.add.at(weights, (np.clip(index, 0, own - 1), np.arange(len(x))), weight)
    return weights / weights.sum(0) if excludes_outside else weights


# --- linear resizing of integers -------------------------------------------------------------


_IS_CENTERED = {
    "asymmetric": False,
    "half_pixel": True,
    "half_pixel_symmetric": True,
    "pytorch_half_pixel": True,
}
"""Coordinate transformation -> whether whole factors are from the center of pixels."""


def lower_integer_resize(
    op: GraphLowering,
    *,
    axes: Sequence[int] | None = None,
    scales: Sequence[float] | None = None,
    mode: str | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    keep_aspect_ratio_policy: str = "stretch",
    antialias: int = 0,
) -> LoweringResult:
    """Lower a linear Resize of quantized tensors by integer factors.

    It is a convolution of each channel, with repeated edges: the weight of a pixel is the height of
    a tent around it, a whole number.
    """
    own, transformation = op.get_shape(), coordinate_transformation_mode
    sizes, given = _sizes_and_scales(op, own, axes, scales)
    transformation = "asymmetric" if _is_old(op) else transformation
    is_exact = all(size == scale * dim for size, scale, dim in zip(sizes, given, own, strict=True))
    is_exact = is_exact and all(scale.is_integer() for scale in given)
    _check_options(antialias, keep_aspect_ratio_policy)
    require(
        is_exact, f"a resize from shape {list(own)} to {list(sizes)}", "a resize by whole factors"
    )
    require(
        transformation in _IS_CENTERED,
        f"coordinate_transformation_mode {transformation}",
        f"coordinate_transformation_mode {list_alternatives(_IS_CENTERED)}",
    )
    require(len(own) == 4, f"an input of shape {list(own)}", "an input with 4 dimensions")
    expected = "scales [1, 1, height, width]"
    require(sizes[:2] == own[:2], f"scales {list(given)}", expected)
    factors, is_centered = (int(given[2]), int(given[3])), _IS_CENTERED[transformation]
    tents = [_tent(factor, is_centered) for factor in factors]
    weights = np.multiply.outer(tents[0], tents[1])
    require(mode == "linear", f"mode {mode}", "mode linear")
    found = f"factors {list(factors)}, which need the weight {weights.max()}"
    require(weights.max() <= _MAX_WEIGHT, found, f"weights of at most {_MAX_WEIGHT}")
    value = op.read_operand(0, CHANNELS_LAST)
    for axis, factor in enumerate(factors, 1):
        if factor > 1:
            value = _repeat_edges(op, value, axis, is_centered)
    unit = np.float32(1 / (weights.sum() // math.prod(factors)))
    tent = QuantizedTensor(f"{op.name}_tent", "int8", np.array([unit]), np.zeros(1, np.int64))
    op.sources = (op.sources[0], tent)
    kernel = (len(tents[0]), len(tents[1]))
    top, left = (
        size - 1 - _padding(factor, is_centered)
        for size, factor in zip(kernel, factors, strict=True)
    )
    window = Window(kernel, factors, pads=(top, left, 0, 0), out=(sizes[2], sizes[3]))
    filters = np.broadcast_to(weights.astype(np.int8)[None, :, :, None], (own[1], *kernel, 1))
    return emit_transposed_convolution(op, value, filters, window, own[1])


def _tent(factor: int, is_centered: bool) -> Array:
    """Return the weights of a pixel for the results around it."""
    if is_centered and factor % 2 == 0:  # results lie between pixels
        return 2 * factor - np.abs(2 * np.arange(2 * factor) + 1 - 2 * factor)
    return factor - np.abs(np.arange(2 * factor - 1) - (factor - 1))


def _padding(factor: int, is_centered: bool) -> int:
    """Return the padding before a spread image from which the first tent extends over it."""
    if factor == 1:
        return 0
    return (factor - 2 - factor % 2) // 2 if is_centered else factor - 1


def _repeat_edges(
    op: GraphLowering, value: BuilderTensor, axis: int, has_first: bool
) -> BuilderTensor:
    """Repeat the last row or column, and with ``has_first`` also the first one."""
    first = [op.emit_extraction(value, axis, 0, 1)] if has_first else []
    last = op.emit_extraction(value, axis, value.shape[axis] - 1, 1)
    return op.emit_concatenation(value.type, [*first, value, last], axis)
