"""Operations that ONNX Runtime computes in float32, on integers: at most one step off.

Each has one rounding, of an exact sum or of a function of one value. What has no such form raises
before it makes anything, and stays float32.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.lowering import LAST
from nmpsim.frontends.graph.nodes import Array, Quantized
from nmpsim.frontends.graph.operation import Made, Operation, as_image
from nmpsim.frontends.graph.pointwise import tabulated
from nmpsim.frontends.graph.products import image_result, transposed_window
from nmpsim.frontends.graph.resizing import sizes_and_scales
from nmpsim.frontends.graph.weighted import convolve, held_weights
from nmpsim.frontends.graph.windows import Window
from nmpsim.frontends.imported_model import UnsupportedError

_MAX_WEIGHT = 127


def division(op: Operation) -> Made:
    """By one constant number: a function of one value."""
    if len(op.sources) == 2:
        other = op.sources[1]
        divisor = op.graph.constant(other.name).astype(np.float32) - np.float32(other.zero_point)
        divisor = divisor * np.float32(other.scale)
    else:
        divisor = op.values(1)
    if divisor.size != 1 or divisor.ndim > len(op.shape()) or not divisor.any():
        raise UnsupportedError(f"a division by {divisor.size} numbers")
    return tabulated(op, lambda x: x / divisor.astype(np.float32).reshape(()))


def transposed_convolution(op: Operation) -> Made:
    """A convolution of the input with zeros between its pixels, by the filter turned around."""
    shape, filters = op.image(), held_weights(op)
    window, size = transposed_window(op.attributes, shape, filters.shape)
    groups = op.integer("group", 1)
    extents = [(k - 1) * d for k, d in zip(window.kernel, window.dilation, strict=True)]
    before = (extents[0] - window.pads[0], extents[1] - window.pads[1])
    if min(before) < 0:
        raise UnsupportedError(f"a window {list(window.kernel)} smaller than its padding")
    by_group = filters.reshape(groups, -1, filters.shape[1], *window.kernel)
    turned = np.moveaxis(by_group, 1, -1)[:, :, ::-1, ::-1]  # [group, O / group, h, w, I / group]
    held = turned.reshape(-1, *turned.shape[2:])
    image = as_image(op.graph, op.read(0, LAST))
    window = attrs.evolve(window, out=size)
    return image_result(op, _convolve_spread(op, image, held, window, before, groups))


def _convolve_spread(
    op: Operation,
    image: Value,
    filters: Array,
    window: Window,
    before: tuple[int, int],
    groups: int,
) -> Value:
    """A convolution of an image with ``stride - 1`` zeros behind each row and column.

    ``filters`` are OHWI; ``before`` is the padding above and to the left. What it makes more than
    the result's size is left out.
    """
    spread = _spread(op, image, window.strides)
    pads, out = [*before, 0, 0], [0, 0]
    for d in range(2):
        extent = (window.kernel[d] - 1) * window.dilation[d]
        behind = window.out[d] + extent - spread.shape[1 + d] - before[d]
        pads[2 + d], out[d] = max(behind, 0), window.out[d] - min(behind, 0)
    around = (pads[0], pads[1], pads[2], pads[3])
    plain = attrs.evolve(window, strides=(1, 1), pads=around, out=(out[0], out[1]))
    made = convolve(op, spread, filters, plain, groups)
    if window.out == plain.out:
        return made
    shape = (made.shape[0], *window.out, made.shape[3])
    return op.emit("extracttensor", made, shape=shape, Offsets=(0, 0, 0, 0))


def _spread(op: Operation, value: Value, strides: tuple[int, int]) -> Value:
    if strides == (1, 1):
        return value
    (images, rows, columns, channels), (down, across) = value.shape, strides
    wide = op.room(value.type, (images, rows * down, columns * across, channels))
    op.graph.add("splat", op.name, (wide,), Value=0.0)
    apart = op.view(wide, (images * rows, down, columns, across, channels))
    op.insert(apart, op.view(value, (images * rows, 1, columns, 1, channels)), (0,) * 5)
    return wide


# --- linear resizing -------------------------------------------------------------------------


_CENTRED = {
    "asymmetric": False,
    "half_pixel": True,
    "half_pixel_symmetric": True,
    "pytorch_half_pixel": True,
}
"""Where a result lies -> whether factors are from the centre of pixels, if they are whole."""


def resize(op: Operation) -> Made:
    """Linear, to a whole number of times as many rows and columns.

    That is a convolution of each channel, with repeated edges: a pixel counts as much as a tent
    around it is high, in whole numbers.
    """
    own, given = op.shape(), op.attributes
    sizes, scales = sizes_and_scales(op, own)
    places = given.get("coordinate_transformation_mode", "half_pixel")
    if op.graph.opset < 11 or op.node.op == "Upsample":
        places = "asymmetric"
    whole = [size == scale * dim for size, scale, dim in zip(sizes, scales, own, strict=True)]
    is_plain = given.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    if not (all(whole) and is_plain and places in _CENTRED) or given.get("antialias"):
        raise UnsupportedError(f"{places} from {list(own)} to {list(sizes)}")
    if len(own) != 4 or sizes[:2] != own[:2] or not all(scale.is_integer() for scale in scales):
        raise UnsupportedError(f"scales {list(scales)}")
    factors, is_centred = (int(scales[2]), int(scales[3])), _CENTRED[places]
    tents = [_tent(factor, is_centred) for factor in factors]
    weights = np.multiply.outer(tents[0], tents[1])
    if weights.max() > _MAX_WEIGHT or given.get("mode") != "linear":
        raise UnsupportedError(f"mode {given.get('mode')}, {factors} times as many")
    value = op.read(0, LAST)
    for axis, factor in enumerate(factors, 1):
        if factor > 1:
            value = _with_edges(op, value, axis, is_centred)
    one = np.float32(1 / (weights.sum() // math.prod(factors)))
    tent = Quantized(f"{op.name}_tent", "int8", np.array([one]), np.zeros(1, np.int64))
    op.sources = (op.sources[0], tent)
    kernel = (len(tents[0]), len(tents[1]))
    before = (_before(factors[0], is_centred), _before(factors[1], is_centred))
    size = (sizes[2], sizes[3])
    window = Window(kernel, factors, (1, 1), (0, 0, 0, 0), size, False, False)
    filters = np.broadcast_to(weights.astype(np.int8)[None, :, :, None], (own[1], *kernel, 1))
    return _convolve_spread(op, value, filters, window, before, own[1])


def _tent(factor: int, is_centred: bool) -> Array:
    """What a pixel counts for the results around it; even factors put results between places."""
    if is_centred and factor % 2 == 0:
        return 2 * factor - np.abs(2 * np.arange(2 * factor) + 1 - 2 * factor)
    return factor - np.abs(np.arange(2 * factor - 1) - (factor - 1))


def _before(factor: int, is_centred: bool) -> int:
    """Padding before an image that is spread, from which the first result's tent hangs over."""
    if factor == 1:
        return 0
    return (factor - 2 - factor % 2) // 2 if is_centred else factor - 1


def _with_edges(op: Operation, value: Value, axis: int, both: bool) -> Value:
    """With the last row or column once more, and ``both`` also the first."""
    shape = tuple(1 if d == axis else dim for d, dim in enumerate(value.shape))

    def edge(place: int) -> Value:
        offsets = tuple(place * (d == axis) for d in range(len(shape)))
        return op.emit("extracttensor", value, shape=shape, Offsets=offsets)

    first = [edge(0)] if both else []
    return op.join(value.type, [*first, value, edge(value.shape[axis] - 1)], axis)
