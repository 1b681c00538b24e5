"""Lowering of pools and reductions: means, sums, extremes, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.integer_ops import get_unsigned_attribute
from nmpsim.frontends.graph.lowering import CHANNELS_LAST, PLAIN
from nmpsim.frontends.graph.movement import emit_stored_gather, normalize_axes
from nmpsim.frontends.graph.nodes import Shape
from nmpsim.frontends.graph.operation import (
    LoweringResult,
    OperatorContext,
    as_image,
    bind_attributes,
    normalize_axis,
)
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import Value

_MAX_SIZE = 1 << 20


@attrs.frozen
class Window:
    """Window of a convolution or pool: kernel, strides, dilation, padding and output size."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    out: tuple[int, int]
    """Rows and columns of the result."""
    counts_padding: bool = False
    is_extended: bool = False
    """Whether ``ceil_mode`` has added padding at the end."""


def read_window(
    spatial: Shape,
    kernel: Shape | None = None,
    extra_pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    dilations: Any = None,
    pads: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: bool = False,
) -> Window:
    """Return the window that ONNX attributes describe for an input size.

    Parameters
    ----------
    spatial : tuple of int
        Rows and columns of the input, or the length of a sequence.
    kernel : tuple of int, optional
        Rows and columns of the weights.
    extra_pads : tuple of int
        Padding by a node before, added on top, left, bottom and right.
    kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, count_include_pad
        Attributes of ONNX; auto_pad may be SAME, TFLite's padding for strides of any size.

    Raises
    ------
    UnsupportedError
        For attributes that do not fit the input, or are out of range.
    """
    dims = len(spatial)
    require(dims in (1, 2), f"windows of {dims} dimensions")
    ones = (1,) * dims
    sizes = _numbers(kernel if kernel_shape is None else kernel_shape, dims, "kernel_shape")
    if kernel is not None:
        require(sizes == tuple(kernel), f"kernel_shape {list(sizes)} for weights of {list(kernel)}")
    steps = _numbers(ones if strides is None else strides, dims, "strides")
    dilation = _numbers(ones if dilations is None else dilations, dims, "dilations")
    extents = [(k - 1) * d + 1 for k, d in zip(sizes, dilation, strict=True)]
    begins, ends = _padding(spatial, extents, steps, auto_pad, pads)
    begins = [b + m for b, m in zip(begins, extra_pads[2 - dims : 2], strict=True)]
    ends = [e + m for e, m in zip(ends, extra_pads[4 - dims :], strict=True)]
    out, is_extended = [], False
    for d in range(dims):
        free = spatial[d] + begins[d] + ends[d] - extents[d]
        require(free >= 0, f"a window {list(sizes)} for an input of shape {list(spatial)}")
        count, rest = free // steps[d] + 1, free % steps[d]
        # A window that would begin behind the input does not count.
        begins_inside = count * steps[d] < spatial[d] + begins[d]
        if ceil_mode and rest and begins_inside:
            ends[d] += steps[d] - rest
            count, is_extended = count + 1, True
        out.append(count)
    rows = 2 - dims  # a sequence is an image of one row
    (kh, kw), (sh, sw), (dh, dw) = ((1, *n)[-2:] for n in (sizes, steps, dilation))
    (top, left), (bottom, right) = ((0, *n)[-2:] for n in (begins, ends))
    height, width = (*(1,) * rows, *out)
    return Window(
        (kh, kw),
        (sh, sw),
        (dh, dw),
        (top, left, bottom, right),
        (height, width),
        count_include_pad,
        is_extended,
    )


def _numbers(value: Any, dims: int, name: str) -> tuple[int, ...]:
    require(
        isinstance(value, tuple) and len(value) == dims and min(value) > 0,
        f"{name} {value} for {dims} dimensions",
    )
    require(max(value) < _MAX_SIZE, f"{name} {value}")
    return tuple(int(one) for one in value)


def _padding(
    spatial: Shape, extents: list[int], strides: Shape, auto_pad: str, pads: Any
) -> tuple[list[int], list[int]]:
    """Return the padding before and after each dimension."""
    dims = len(spatial)
    if auto_pad in ("SAME", "SAME_UPPER", "SAME_LOWER"):
        is_upper = auto_pad != "SAME_LOWER"
        less, more = [], []
        for size, extent, stride in zip(spatial, extents, strides, strict=True):
            total = (-(-size // stride) - 1) * stride + extent - size
            # ONNX Runtime leaves out as much in front as behind, where it computes it at all.
            require(
                auto_pad == "SAME" or total >= (-1 if is_upper else -2),
                f"{auto_pad} at strides {list(strides)} larger than the window",
            )
            total = max(total, 0)
            less.append(total // 2)
            more.append(total - total // 2)
        return (less, more) if is_upper else (more, less)
    if auto_pad != "NOTSET" or pads is None:
        pads = (0,) * (2 * dims)
    require(
        auto_pad in ("NOTSET", "VALID") and isinstance(pads, tuple) and len(pads) == 2 * dims,
        f"pads {pads}, auto_pad {auto_pad}",
    )
    require(min(pads) >= 0 and max(pads) < _MAX_SIZE, f"pads {list(pads)}")
    return [int(pad) for pad in pads[:dims]], [int(pad) for pad in pads[dims:]]


def lower_average_pool(op: OperatorContext) -> LoweringResult:
    """Lower AveragePool or GlobalAveragePool."""
    shape, attributes, is_integer = op.get_shape(), op.node.attributes, bool(op.sources)
    require(3 <= len(shape) <= 4, f"an input of shape {list(shape)}")
    is_last = is_integer and bool(int(attributes.get("channels_last", 0)))
    value = op.read(0, PLAIN if is_last else CHANNELS_LAST)
    images, *sizes, channels = value.shape
    spatial = tuple(sizes)
    if op.kind == "GlobalAveragePool":
        attributes = {"kernel_shape": spatial}
    window = read_window(spatial, **bind_attributes(read_window, attributes))
    require(
        window.dilation == (1, 1) and not (window.is_extended and window.counts_padding),
        f"dilations {window.dilation}, or ceil_mode with counted padding",
    )
    counts, words = window.counts_padding, get_unsigned_attribute(op)
    if is_integer:
        counts = counts or not any(window.pads)
        # ONNX Runtime takes one window over all as GlobalAveragePool, which rounds otherwise.
        if window.kernel[2 - len(spatial) :] == spatial and not any(window.pads):
            words = {"Global": 1}
    words["CountIncludePads"] = int(counts)
    result = emit_pool(op, "avgpool", as_image(op, value), window, **words)
    return op.apply_limits(op.view(result, (images, *window.out[2 - len(spatial) :], channels)))


def lower_max_pool(op: OperatorContext, *, auto_pad: str = "NOTSET") -> LoweringResult:
    """Lower MaxPool or GlobalMaxPool."""
    shape, attributes = op.get_image_shape(), op.node.attributes
    require(
        3 <= len(shape) <= 4 and not any(op.node.outputs[1:]),
        f"an input of shape {list(shape)}, or indices of the maxima",
    )
    if op.kind == "GlobalMaxPool":
        attributes, auto_pad = {"kernel_shape": shape[2:]}, "NOTSET"
    window = read_window(shape[2:], **bind_attributes(read_window, attributes))
    has_gaps = window.dilation != (1, 1)
    # ONNX Runtime pads as for a window without gaps, other than ONNX says.
    require(
        not (has_gaps and str(auto_pad).startswith("SAME")),
        f"dilations {list(window.dilation)} and {auto_pad}",
    )
    value = as_image(op, op.read_any_type(0, CHANNELS_LAST))
    if has_gaps:
        value = _gather_taps(op, value, window)
        window = attrs.evolve(window, strides=window.kernel, pads=(0, 0, 0, 0))
    result = emit_pool(op, "maxpool", value, window)
    return op.view(result, (shape[0], *window.out[4 - len(shape) :], shape[1]))


def emit_pool(
    op: OperatorContext, opcode: str, image: Value, window: Window, **words: Any
) -> Value:
    """Emit a pool of an image; a maximum has the element type of the image."""
    return op.emit(
        opcode,
        image,
        shape=(image.shape[0], *window.out, image.shape[3]),
        kind=None if opcode == "maxpool" else op.result,
        Kernels=window.kernel,
        Strides=window.strides,
        Pads=window.pads,
        **words,
    )


def _gather_taps(op: OperatorContext, image: Value, window: Window) -> Value:
    """Return an image whose dilated windows are dense and adjacent.

    Padding is replaced by another element of the window, which does not change the largest.
    """
    indices = {}
    for d in range(2):
        begins = np.arange(window.out[d]) * window.strides[d] - window.pads[d]
        taps = begins[:, None] + np.arange(window.kernel[d]) * window.dilation[d]
        is_inside = (taps >= 0) & (taps < image.shape[1 + d])
        require(is_inside.any(axis=1).all(), "a window of padding only")
        first = taps[np.arange(len(taps)), is_inside.argmax(axis=1)]
        indices[1 + d] = np.where(is_inside, taps, first[:, None]).reshape(-1)
    return emit_stored_gather(op, image, indices)


# --- reductions ------------------------------------------------------------------------------


_REDUCTION_OPCODES = {
    "ReduceMax": "batchedreducemax",
    "ReduceMean": "avgpool",
    "ReduceMin": "batchedreducemin",
    "ReduceSum": "batchedreduceadd",
}


def lower_reduction(
    op: OperatorContext,
    *,
    axes: Sequence[int] | None = None,
    keepdims: bool = True,
    noop_with_empty_axes: bool = False,
) -> LoweringResult:
    """Lower ReduceMean, ReduceSum, ReduceMax or ReduceMin."""
    shape, opcode = op.get_shape(), _REDUCTION_OPCODES[op.kind]
    axes = normalize_axes(op, axes, len(shape))
    is_noop = not axes and noop_with_empty_axes
    require(
        not op.sources or (op.limits is None and not is_noop),
        "a clip fused into a reduction, or no axes",
    )
    if is_noop:
        return op.define_view(shape)
    op.read()
    reduced = sorted(set(axes or range(len(shape))))
    left = tuple(
        1 if axis in reduced else d
        for axis, d in enumerate(shape)
        if keepdims or axis not in reduced
    )
    if opcode == "avgpool" and len(shape) == 4 and reduced == [2, 3]:
        # The device has it for each channel, where channels come last.
        result = _average(op, op.read(0, CHANNELS_LAST), shape[2:])
        op.layout = CHANNELS_LAST if keepdims else PLAIN
        return op.view(result, op.to_layout(left))
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    value, order = op.read(0, PLAIN), (*kept, *reduced)
    moving = [axis for axis in order if shape[axis] > 1]
    if moving != sorted(moving):
        value = op.transpose(value, order)
    outer, inner = (math.prod(shape[axis] for axis in part) for part in (kept, reduced))
    if opcode == "avgpool":
        result = _average(op, op.view(value, (outer, inner, 1, 1)), (inner, 1))
    else:
        along = {"Axis": 1} if opcode == "batchedreduceadd" else {"Axes": (1,)}
        result = op.emit_result(opcode, op.view(value, (outer, inner)), shape=(outer,), **along)
    return op.view(result, left)


def _average(op: OperatorContext, source: Value, window: Sequence[int]) -> Value:
    """Emit the average over the whole of an image."""
    words = {"Kernels": tuple(window), "Strides": (1, 1), "Pads": (0, 0, 0, 0)}
    shape = (source.shape[0], 1, 1, source.shape[3])
    return op.emit_result("avgpool", source, shape=shape, **words, CountIncludePads=1)


def lower_arg_extreme(
    op: OperatorContext, *, axis: int = 0, keepdims: bool = True, select_last_index: bool = False
) -> LoweringResult:
    """Lower ArgMax or ArgMin, which return the first index of equal values."""
    shape = op.get_shape()
    axis = normalize_axis(axis, shape)
    require(not select_last_index, "select_last_index")
    reduced = (*shape[:axis], *(1,) * keepdims, *shape[axis + 1 :])
    return op.emit(
        op.kind.lower(),
        op.read_any_type(0, PLAIN),
        shape=reduced,
        kind="int64",
        Axis=axis,
        KeepDims=int(keepdims),
    )


def lower_softmax(
    op: OperatorContext, *, axis: int | None = None, opset: int | None = None
) -> LoweringResult:
    """Lower Softmax or LogSoftmax along an axis, or along it and all later axes before opset 13."""
    require(op.limits is None, "a clip fused into a softmax")
    shape, opcode = op.get_shape(), op.kind.lower()
    is_old = int(op.lowering.opset if opset is None else opset) < 13
    default = 1 if is_old else -1
    axis = normalize_axis(default if axis is None else int(axis), shape)
    value = op.read(0, PLAIN)
    if is_old or math.prod(shape[axis + 1 :]) == 1:
        rows = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        return op.view(op.emit_result(opcode, op.view(value, rows)), shape)
    swapped = op.swap_with_last(value, axis)
    rows = (math.prod(swapped.shape[:-1]), swapped.shape[-1])
    result = op.emit_result(opcode, op.view(swapped, rows))
    return op.swap_with_last(op.view(result, swapped.shape), axis)
