"""Lowering of convolutions and transposed convolutions of floats and integers."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.lowering import CHANNELS_LAST
from nmpsim.frontends.graph.nodes import UNSIGNED_OFFSETS, Array, QuantizedTensor, Shape
from nmpsim.frontends.graph.operation import FLOAT, GraphLowering, LoweringResult, as_image
from nmpsim.frontends.graph.operation import bind_attributes as bind
from nmpsim.frontends.graph.windows import Window, read_window
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.module_builder import BuilderTensor
from nmpsim.lir.nodes import TensorType, make_quantized_type


def lower_convolution(op: GraphLowering) -> LoweringResult:
    """Lower Conv of floats or integers with constant filters [O, I / groups, ...]."""
    window, groups, filters = read_convolution(op, _get_weights(op))
    image = as_image(op, op.read_operand(0, CHANNELS_LAST))
    if op.sources:
        is_by_channel = op.bias_dtype == "int32" or op.sources[1].scales.size > 1
        return restore_rank(
            op, emit_integer_convolution(op, image, filters, window, groups, is_by_channel)
        )
    bias = get_float_bias(op, len(filters))
    return restore_rank(op, emit_float_convolution(op, image, filters, bias, window, groups))


def _get_weights(op: GraphLowering) -> Array:
    """Return the constant weights of a node, as signed integers or as float32."""
    return get_signed_weights(op) if op.sources else get_float_weights(op, 1)


def read_convolution(op: GraphLowering, filters: Array) -> tuple[Window, int, Array]:
    """Read the window, group count and filters [O, H, W, I / groups] of a convolution node."""
    attributes, channels = op.node.attributes, op.get_image_shape()[1]
    groups = int(attributes.get("group", 1))
    window = read_padded_window(op, filters.shape[2:], **bind(read_window, attributes))
    require(
        filters.shape[1] * groups == channels,
        f"{groups} groups and filters of shape {list(filters.shape)} for {channels} channels",
        f"filters whose dimension 1 is {channels} channels divided by {groups} groups",
    )
    return window, groups, np.moveaxis(filters, 1, -1).reshape(len(filters), *window.kernel, -1)


def read_padded_window(op: GraphLowering, kernel: Shape, **attributes: Any) -> Window:
    """Read the window of a convolution, including the padding of a Pad before it."""
    extra = op.padding.get(op.names[0], (0, 0, 0, 0))
    return read_window(op.get_image_shape()[2:], kernel, extra, **attributes)


def restore_rank(op: GraphLowering, image: BuilderTensor) -> BuilderTensor:
    """Return an image unchanged if the operand is 2-D, or a view [N, L, C] for a sequence."""
    return (
        image
        if len(op.get_shape()) == 4
        else op.make_view(image, (image.shape[0], *image.shape[2:]))
    )


def _window_words(window: Window, groups: int) -> dict[str, Any]:
    return {
        "Kernels": window.kernel,
        "Strides": window.strides,
        "Pads": window.pads,
        "Group": groups,
        "Dilation": window.dilation,
    }


# --- floats ----------------------------------------------------------------------------------


def emit_float_convolution(
    op: GraphLowering,
    value: BuilderTensor,
    filters: Array,
    bias: Array,
    window: Window,
    groups: int,
) -> BuilderTensor:
    """Emit a float32 convolution with filters [O, H, W, I / groups] and return its result."""
    image = as_image(op, value)
    constants = (
        op.add_float_constant(op.node.get_input(1), filters),
        op.add_float_constant(op.node.get_input(2) or f"{op.name}_bias", bias),
    )
    shape = (image.shape[0], *window.out, len(filters))
    words = _window_words(window, groups)
    return op.emit("convolution", image, *constants, shape=shape, kind=FLOAT, **words)


def get_float_weights(op: GraphLowering, index: int) -> Array:
    """Return the values of input ``index``; the input must be a float32 constant."""
    values = op.get_constant(index)
    require(
        values.dtype == np.float32,
        f"constant {op.node.get_input(index)} of type {values.dtype}",
        "a constant of type float32",
    )
    return values


def get_float_bias(op: GraphLowering, outs: int) -> Array:
    """Return the constant float32 bias [outs], or zeros if the node has no bias."""
    if not op.node.get_input(2):
        return np.zeros(outs, np.float32)
    given = get_float_weights(op, 2)
    require(
        given.size in (1, outs) and given.size == math.prod(given.shape[-1:]),
        f"a bias of shape {list(given.shape)}",
        f"a bias of shape [{outs}], one value per output channel",
    )
    return np.broadcast_to(given.reshape(-1), (outs,))


def lower_transposed_convolution(op: GraphLowering, *, group: int = 1) -> LoweringResult:
    """Lower ConvTranspose of floats or integers with constant filters [I, O / groups, ...].

    On integers it is a convolution of the input with zeros inserted.
    """
    filters = _get_weights(op)
    window, outs = _transposed_window(op, filters.shape[2:]), filters.shape[1] * group
    image = as_image(op, op.read_operand(0, CHANNELS_LAST))
    if op.sources:
        by_group = filters.reshape(group, -1, filters.shape[1], *window.kernel)
        flipped = np.moveaxis(by_group, 1, -1)[
            :, :, ::-1, ::-1
        ]  # [group, O / group, h, w, I / group]
        ordered = flipped.reshape(-1, *flipped.shape[2:])
        return restore_rank(op, emit_transposed_convolution(op, image, ordered, window, group))
    last = np.moveaxis(filters, 0, -1).reshape(filters.shape[1], *window.kernel, -1)
    result = op.emit_result(
        "convtranspose",
        image,
        op.add_float_constant(op.node.get_input(1), last),
        op.add_result_constant("bias", get_float_bias(op, outs)),
        shape=(image.shape[0], *window.out, outs),
        **_window_words(window, group),
    )
    return restore_rank(op, result)


def _transposed_window(op: GraphLowering, kernel: Shape) -> Window:
    """Return the window of a transposed convolution, with rows and columns of its result."""
    attributes, spatial = op.node.attributes, op.get_image_shape()[2:]
    auto_pad = attributes.get("auto_pad", "NOTSET")
    require(auto_pad in ("NOTSET", "VALID"), f"auto_pad {auto_pad}", "auto_pad NOTSET or VALID")
    output_shape = attributes.get("output_shape")
    require(output_shape is None, f"output_shape {output_shape}", "pads instead of output_shape")
    # A window over an input that is large enough: only its attributes are of interest.
    given = bind(read_window, {**attributes, "ceil_mode": 0})
    window = read_window((1 << 19,) * len(spatial), kernel, **given)
    extra = attributes.get("output_padding", (0,) * len(spatial))
    found = f"output_padding {list(extra)}"
    require(len(extra) == len(spatial), found, f"output_padding with {len(spatial)} numbers")
    require(min(extra) >= 0, found, "output_padding of 0 or more")
    sizes, more = (1, *spatial)[-2:], (0, *extra)[-2:]
    steps = (window.strides, window.kernel, window.dilation)
    dims = (sizes, *steps, more, window.pads[:2], window.pads[2:])
    rows, columns = (
        (size - 1) * step + (taps - 1) * gap + 1 + more - before - after
        for size, step, taps, gap, more, before, after in zip(*dims, strict=True)
    )
    return attrs.evolve(window, out=(rows, columns))


# --- integers --------------------------------------------------------------------------------


def get_signed_weights(op: GraphLowering) -> Array:
    """Return a node's constant weights, with unsigned integers shifted to the signed type."""
    return op.to_signed(op.get_constant(op.names[1]))


def emit_integer_convolution(
    op: GraphLowering,
    image: BuilderTensor,
    filters: Array,
    window: Window,
    groups: int,
    is_by_channel: bool = True,
) -> BuilderTensor:
    """Emit an integer convolution with filters [O, H, W, I / groups] and return its result.

    Without ``is_by_channel`` the filters have one scale, as in PyTorch's arithmetic.
    """
    source, weights = op.sources[:2]
    outs = len(filters)
    scales, zeros = get_channel_parameters(weights, outs)
    words = _window_words(window, groups)
    if op.limits is not None:
        words["FusedActivation"] = "RELU" if op.limits[1] is None else "CLIP"
        if op.limits[1] is not None:
            words["FusedActivationArgs"] = op.limits
    parameters = (1.0, 0) if is_by_channel else (float(scales[0]), int(zeros[0]))
    type = make_quantized_type("i8", filters.shape, *parameters)
    constant = op.builder.add_constant(weights.name, filters, type)
    opcode, operands = "convolution", [image, constant, add_bias_constant(op, outs, 0.0)]
    if is_by_channel:
        opcode, bias_scales = "channelwisequantizedconvolution", np.float32(source.scale) * scales
        operands += op.add_channel_constants(op.name, scales, zeros)
        operands += op.add_channel_constants(f"{op.name}_bias", bias_scales, 0 * zeros)
    shape = (image.shape[0], *window.out, outs)
    return op.emit_result(opcode, *operands, shape=shape, **words)


def get_channel_parameters(
    weights: QuantizedTensor, outs: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the scales [outs] and signed zero points [outs] of a layer's weights."""
    count = weights.scales.size
    require(
        count in (1, outs),
        f"{count} weight scales for {outs} output channels",
        f"1 or {outs} scales",
    )
    zeros = weights.zero_points - UNSIGNED_OFFSETS.get(weights.dtype, 0)
    return np.broadcast_to(weights.scales, (outs,)), np.broadcast_to(zeros, (outs,))


def add_bias_constant(op: GraphLowering, outs: int, scale: float) -> BuilderTensor:
    """Add a node's bias [outs] to the module, or zeros if it has none; return the constant."""
    values = np.zeros(outs, op.bias_dtype)
    if op.bias:
        values = op.get_constant(op.bias)
        # One for each row is no bias of the columns, as many as there may be.
        is_row = values.size in (1, outs) and values.size == math.prod(values.shape[-1:])
        wide = ("int64",) if op.sources[0].dtype == "int16" else ()
        require(is_row, f"a bias of shape {list(values.shape)}", f"a bias of shape [{outs}]")
        dtypes = (op.bias_dtype, *wide)
        is_known = str(values.dtype) in dtypes
        require(
            is_known,
            f"a bias of type {values.dtype}",
            f"a bias of type {list_alternatives(dtypes)}",
        )
        values = np.broadcast_to(values.reshape(-1), (outs,))
    type = TensorType("float", (outs,))
    if values.dtype != np.float32:
        type = make_quantized_type(f"i{8 * values.itemsize}", (outs,), scale, 0)
    return op.builder.add_constant(op.bias or f"{op.name}_bias", values, type)


def emit_transposed_convolution(
    op: GraphLowering, image: BuilderTensor, filters: Array, window: Window, groups: int
) -> BuilderTensor:
    """Emit a transposed integer convolution with flipped filters OHWI and return its result.

    It is a convolution of the image with ``stride - 1`` zeros between its pixels. The window's
    padding is removed from the full result, whose size is cropped to ``window.out``.
    """
    spread = _spread(op, image, window.strides)
    pads, out = [0] * 4, [0, 0]
    for d in range(2):
        pads[d] = (window.kernel[d] - 1) * window.dilation[d] - window.pads[d]
        after = window.out[d] + window.pads[d] - spread.shape[1 + d]
        pads[2 + d], out[d] = max(after, 0), window.out[d] - min(after, 0)
    extents = [(window.kernel[d] - 1) * window.dilation[d] for d in range(2)]
    require(
        min(pads) >= 0,
        f"pads {list(window.pads)}",
        f"pads of at most {extents[0]} rows and {extents[1]} columns, one less than the window",
    )
    around = (pads[0], pads[1], pads[2], pads[3])
    dense = attrs.evolve(window, strides=(1, 1), pads=around, out=(out[0], out[1]))
    result = emit_integer_convolution(op, spread, filters, dense, groups)
    if window.out == dense.out:
        return result
    shape = (result.shape[0], *window.out, result.shape[3])
    return op.emit("extracttensor", result, shape=shape, Offsets=(0, 0, 0, 0))


def _spread(op: GraphLowering, value: BuilderTensor, strides: tuple[int, int]) -> BuilderTensor:
    if strides == (1, 1):
        return value
    (images, rows, columns, channels), (down, across) = value.shape, strides
    wide = op.allocate(value.type, (images, rows * down, columns * across, channels))
    op.add_instruction("splat", op.layer, (wide,), Value=0.0)
    cells = op.make_view(wide, (images * rows, down, columns, across, channels))
    op.emit_insertion(
        cells, op.make_view(value, (images * rows, 1, columns, 1, channels)), (0,) * 5
    )
    return wide
