"""Lowering of pools, reductions, ArgMax, ArgMin and softmax."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.integer_ops import make_unsigned_attribute
from nmpsim.frontends.graph.lowering import CHANNELS_LAST, PLAIN
from nmpsim.frontends.graph.movement import emit_stored_gather, is_reordering
from nmpsim.frontends.graph.operation import (
    GraphLowering,
    Integers,
    LoweringResult,
    as_image,
    bind_attributes,
    normalize_axis,
)
from nmpsim.frontends.graph.windows import Window, read_window
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import BuilderTensor


def lower_pool(
    op: GraphLowering,
    *,
    opcode: str,
    is_global: bool = False,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
) -> LoweringResult:
    """Lower AveragePool, MaxPool and their global forms."""
    is_max, is_integer = opcode == "maxpool", bool(op.sources)
    layout = PLAIN if is_integer and channels_last else CHANNELS_LAST
    value = op.read_unchecked_operand(0, layout) if is_max else op.read_operand(0, layout)
    images, *sizes, channels = value.shape
    attributes = op.node.attributes
    if is_global:
        attributes, auto_pad = {"kernel_shape": tuple(sizes)}, "NOTSET"
    window = read_window(sizes, **bind_attributes(read_window, attributes))
    image, has_gaps, words = as_image(op, value), window.dilation != (1, 1), {}
    if is_max:
        more = [name for name in op.node.outputs[1:] if name]
        require(not more, f"output Indices {', '.join(more)}", "only the output Y")
        # ONNX Runtime pads as for a window without gaps, other than ONNX says.
        is_defined = not (has_gaps and auto_pad.startswith("SAME"))
        require(
            is_defined,
            f"dilations {list(window.dilation)} with auto_pad {auto_pad}",
            "auto_pad NOTSET",
        )
        if has_gaps:
            image = _gather_taps(op, image, window)
            window = attrs.evolve(window, strides=window.kernel, pads=(0, 0, 0, 0))
    else:
        require(not has_gaps, f"dilations {list(window.dilation)}", "dilations of 1")
        require(
            not (window.is_extended and window.counts_padding),
            "ceil_mode 1 with count_include_pad 1",
            "ceil_mode 0 or count_include_pad 0",
        )
        is_padded = any(window.pads)
        counts = window.counts_padding or (is_integer and not is_padded)
        words = {"CountIncludePads": int(counts), **make_unsigned_attribute(op)}
        # ONNX Runtime takes one window over all as GlobalAveragePool, which rounds otherwise.
        if is_integer and not is_padded and window.kernel[-len(sizes) :] == tuple(sizes):
            words = {"CountIncludePads": 1, "Global": 1}
    result = emit_pool(op, opcode, image, window, **words)
    return op.emit_fused_clip(op.make_view(result, (images, *window.out[-len(sizes) :], channels)))


def emit_pool(
    op: GraphLowering, opcode: str, image: BuilderTensor, window: Window, **words: Any
) -> BuilderTensor:
    """Emit a pool of an image and return its result; a max pool keeps the type of the image."""
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


def _gather_taps(op: GraphLowering, image: BuilderTensor, window: Window) -> BuilderTensor:
    """Return an image whose dilated windows are dense and adjacent.

    Padding is replaced by another element of the window, which does not change the largest.
    """
    indices = {}
    for d in range(2):
        begins = np.arange(window.out[d]) * window.strides[d] - window.pads[d]
        taps = begins[:, None] + np.arange(window.kernel[d]) * window.dilation[d]
        is_inside = (taps >= 0) & (taps < image.shape[1 + d])
        is_empty = ~is_inside.any(axis=1)
        require(
            not is_empty.any(),
            f"only padding in window {is_empty.argmax()} along the {('height', 'width')[d]}",
            "windows that contain an input element",
        )
        first = taps[np.arange(len(taps)), is_inside.argmax(axis=1)]
        indices[1 + d] = np.where(is_inside, taps, first[:, None]).reshape(-1)
    return emit_stored_gather(op, image, indices)


# --- reductions ------------------------------------------------------------------------------


def lower_reduction(
    op: GraphLowering,
    axes: Integers | None = None,
    *,
    opcode: str,
    keepdims: bool = True,
    noop_with_empty_axes: bool = False,
) -> LoweringResult:
    """Lower ReduceMean, ReduceSum, ReduceMax or ReduceMin."""
    shape = op.get_shape()
    is_noop = not axes and noop_with_empty_axes
    if op.sources:
        expected = "a quantized reduction without a clip"
        require(op.limits is None, f"a fused clip to {op.limits}", expected)
        require(not is_noop, "no axes with noop_with_empty_axes 1", "at least one axis")
    if is_noop:
        return op.define_view(shape)
    reduced = sorted({normalize_axis(axis, shape) for axis in axes or range(len(shape))})
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    left = tuple(
        1 if axis in reduced else d for axis, d in enumerate(shape) if keepdims or axis in kept
    )
    if opcode == "avgpool" and len(shape) == 4 and reduced == [2, 3]:
        # The device has it for each channel, where channels come last.
        image = op.read_operand(0, CHANNELS_LAST)
        op.layout, window = CHANNELS_LAST if keepdims else PLAIN, Window((shape[2], shape[3]))
        mean = emit_pool(op, opcode, image, window, CountIncludePads=1)
        return op.make_view(mean, op.to_layout(left))
    value, order = op.read_operand(0, PLAIN), (*kept, *reduced)
    if is_reordering(order, shape):
        value = op.emit_transpose(value, order)
    outer, inner = (math.prod(shape[axis] for axis in part) for part in (kept, reduced))
    if opcode == "avgpool":
        image = op.make_view(value, (outer, inner, 1, 1))
        return op.make_view(
            emit_pool(op, opcode, image, Window((inner, 1)), CountIncludePads=1), left
        )
    along = {"Axis": 1} if opcode == "batchedreduceadd" else {"Axes": (1,)}
    rows = op.make_view(value, (outer, inner))
    return op.make_view(op.emit_result(opcode, rows, shape=(outer,), **along), left)


def lower_arg_max(
    op: GraphLowering,
    *,
    opcode: str,
    axis: int = 0,
    keepdims: bool = True,
    select_last_index: bool = False,
) -> LoweringResult:
    """Lower ArgMax or ArgMin, which return the first index among equal values."""
    shape = op.get_shape()
    axis = normalize_axis(axis, shape)
    require(not select_last_index, "select_last_index 1", "select_last_index 0")
    reduced = (*shape[:axis], *(1,) * keepdims, *shape[axis + 1 :])
    return op.emit(
        opcode,
        op.read_unchecked_operand(0, PLAIN),
        shape=reduced,
        kind="int64",
        Axis=axis,
        KeepDims=int(keepdims),
    )


def lower_softmax(
    op: GraphLowering,
    *,
    opcode: str = "softmax",
    axis: int | None = None,
    opset: int | None = None,
) -> LoweringResult:
    """Lower Softmax or LogSoftmax along an axis, and along all later axes before opset 13."""
    require(op.limits is None, f"a fused clip to {op.limits}", "a softmax without a clip")
    shape = op.get_shape()
    is_old = int(op.opset if opset is None else opset) < 13
    default = 1 if is_old else -1
    axis = normalize_axis(default if axis is None else int(axis), shape)
    value = op.read_operand(0, PLAIN)
    if is_old or math.prod(shape[axis + 1 :]) == 1:
        rows = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        return op.make_view(op.emit_result(opcode, op.make_view(value, rows)), shape)
    swapped = op.swap_with_last(value, axis)
    rows = (math.prod(swapped.shape[:-1]), swapped.shape[-1])
    result = op.emit_result(opcode, op.make_view(swapped, rows))
    return op.swap_with_last(op.make_view(result, swapped.shape), axis)
