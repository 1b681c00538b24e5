"""Operations that ONNX Runtime computes in float32, on integers: at most one step off.

Each has one rounding, of an exact sum or of a function of one value. What has no such form raises
before it makes anything, and stays float32.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.frontends.builder import Value
from nmpsim.frontends.graph.gathering import sizes_and_scales
from nmpsim.frontends.graph.lowering import LAST, Lowering, Result
from nmpsim.frontends.graph.movement import axes_of
from nmpsim.frontends.graph.pointwise import as_image, join, tabulated
from nmpsim.frontends.graph.products import transposed_window
from nmpsim.frontends.graph.reductions import reduce
from nmpsim.frontends.graph.steps import Array, IntegerOperation, Quantized
from nmpsim.frontends.graph.weighted import convolve
from nmpsim.frontends.graph.windows import Window
from nmpsim.frontends.unsupported import UnsupportedError

_MAX_WEIGHT = 127


def division(graph: Lowering, step: IntegerOperation) -> Result:
    """By one constant number: a function of one value."""
    if len(step.sources) == 2:
        other = step.sources[1]
        divisor = graph.constant(other.name).astype(np.float32) - np.float32(other.zero_point)
        divisor = divisor * np.float32(other.scale)
    else:
        divisor = graph.constant(step.node.input(1))
    rank = len(graph.shape(step.sources[0].name))
    if divisor.size != 1 or divisor.ndim > rank or not divisor.any():
        raise UnsupportedError(f"a division by {divisor.size} numbers")
    return tabulated(graph, step, lambda x: x / divisor.astype(np.float32).reshape(()))


# --- means -----------------------------------------------------------------------------------


def mean(graph: Lowering, step: IntegerOperation) -> Result:
    """``ReduceMean`` as an average pool."""
    (source,) = step.sources
    rank = len(graph.shape(source.name))
    axes = axes_of(graph, step.node, rank)
    if step.limits is not None or (not axes and step.attributes.get("noop_with_empty_axes")):
        raise UnsupportedError("a clip of a mean, or no dimensions")
    gone = sorted(set(axes or range(rank)))
    return reduce(graph, "avgpool", step.node, gone, (source, step.result))


# --- weights ---------------------------------------------------------------------------------


def transposed_convolution(graph: Lowering, step: IntegerOperation) -> Result:
    """A convolution of the input with zeros between its pixels, by the filter turned around."""
    source, weights = step.sources
    shape, filters = graph.image(source.name), graph.held_values(graph.constant(weights.name))
    window, size = transposed_window(step.attributes, shape, filters.shape)
    groups = int(step.attributes.get("group", 1))
    extents = [(k - 1) * d for k, d in zip(window.kernel, window.dilation, strict=True)]
    before = (extents[0] - window.pads[0], extents[1] - window.pads[1])
    if min(before) < 0:
        raise UnsupportedError(f"a window {list(window.kernel)} smaller than its padding")
    by_group = filters.reshape(groups, -1, filters.shape[1], *window.kernel)
    turned = np.moveaxis(by_group, 1, -1)[:, :, ::-1, ::-1]  # [group, O / group, h, w, I / group]
    held = turned.reshape(-1, *turned.shape[2:])
    image = as_image(graph, graph.value(source.name, LAST, source))
    made = graph.from_nchw((shape[0], len(held), *size[4 - len(shape) :]))
    target = as_image(graph, graph.target(step.result.name, made, step.result, LAST))
    _convolve_spread(graph, step, (target, image), held, window, before, groups)
    return Result()


def _convolve_spread(
    graph: Lowering,
    step: IntegerOperation,
    sides: tuple[Value, Value],
    filters: Array,
    window: Window,
    before: tuple[int, int],
    groups: int,
) -> None:
    """A convolution of an image with ``stride - 1`` zeros behind each row and column.

    ``filters`` are OHWI; ``before`` is the padding above and to the left. What it makes more than
    the result's size is left out.
    """
    (target, image), name = sides, step.result.name
    spread = _spread(graph, name, image, window.strides)
    pads, out = [*before, 0, 0], [0, 0]
    for d in range(2):
        extent = (window.kernel[d] - 1) * window.dilation[d]
        behind = target.shape[1 + d] + extent - spread.shape[1 + d] - before[d]
        pads[2 + d], out[d] = max(behind, 0), target.shape[1 + d] - min(behind, 0)
    shape = (target.shape[0], *out, target.shape[3])
    made = target
    if shape != target.shape:
        made = graph.temporary(f"{name}_whole", attrs.evolve(target.type, shape=shape))
    around = (pads[0], pads[1], pads[2], pads[3])
    plain = attrs.evolve(window, strides=(1, 1), pads=around, out=(out[0], out[1]))
    convolve(graph, step, (made, spread), filters, plain, groups)
    if made is not target:
        graph.add("extracttensor", name, (target, made), Offsets=(0, 0, 0, 0))


def _spread(graph: Lowering, name: str, value: Value, strides: tuple[int, int]) -> Value:
    if strides == (1, 1):
        return value
    (images, rows, columns, channels), (down, across) = value.shape, strides
    shape = (images, rows * down, columns * across, channels)
    wide = graph.temporary(f"{name}_spread", attrs.evolve(value.type, shape=shape))
    graph.add("splat", name, (wide,), Value=0.0)
    apart = graph.view(wide, (images * rows, down, columns, across, channels))
    pixels = graph.view(value, (images * rows, 1, columns, 1, channels))
    graph.add("inserttensor", name, (apart, pixels), Offsets=(0,) * 5, Count=1, Axis=0)
    return wide


# --- linear resizing -------------------------------------------------------------------------


_CENTRED = {
    "asymmetric": False,
    "half_pixel": True,
    "half_pixel_symmetric": True,
    "pytorch_half_pixel": True,
}
"""Where a result lies -> whether factors are from the centre of pixels, if they are whole."""


def resize(graph: Lowering, step: IntegerOperation) -> Result:
    """Linear, to a whole number of times as many rows and columns.

    That is a convolution of each channel, with repeated edges: a pixel counts as much as a tent
    around it is high, in whole numbers.
    """
    (source,) = step.sources
    own, given = graph.shape(source.name), step.attributes
    sizes, scales = sizes_and_scales(graph, step.node, own)
    places = given.get("coordinate_transformation_mode", "half_pixel")
    if graph.opset < 11 or step.node.op == "Upsample":
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
    value = graph.value(source.name, LAST, source)
    target = graph.target(step.result.name, sizes, step.result, LAST)
    for axis, factor in enumerate(factors, 1):
        if factor > 1:
            value = _with_edges(graph, step.result.name, value, axis, is_centred)
    one = np.float32(1 / (weights.sum() // math.prod(factors)))
    tent = Quantized(f"{step.result.name}_tent", "int8", np.array([one]), np.zeros(1, np.int64))
    kernel = (len(tents[0]), len(tents[1]))
    before = (_before(factors[0], is_centred), _before(factors[1], is_centred))
    window = Window(kernel, factors, (1, 1), (0, 0, 0, 0), (0, 0), False, False)
    filters = np.broadcast_to(weights.astype(np.int8)[None, :, :, None], (own[1], *kernel, 1))
    product = attrs.evolve(step, sources=(source, tent))
    _convolve_spread(graph, product, (target, value), filters, window, before, own[1])
    return Result()


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


def _with_edges(graph: Lowering, name: str, value: Value, axis: int, both: bool) -> Value:
    """With the last row or column once more, and ``both`` also the first."""
    size = value.shape[axis]
    edge = tuple(1 if d == axis else dim for d, dim in enumerate(value.shape))
    parts = [value]
    for place in (0, size - 1)[0 if both else 1 :]:
        part = graph.temporary(f"{name}_edge", attrs.evolve(value.type, shape=edge))
        offsets = tuple(place * (d == axis) for d in range(len(edge)))
        graph.add("extracttensor", name, (part, value), Offsets=offsets)
        parts.append(part)
    if both:
        parts = [parts[1], value, parts[2]]
    shape = tuple(dim + (len(parts) - 1) * (d == axis) for d, dim in enumerate(value.shape))
    wide = graph.temporary(f"{name}_edges", attrs.evolve(value.type, shape=shape))
    join(graph, name, wide, parts, axis)
    return wide
