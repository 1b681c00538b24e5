"""Conversion of float TFLite operators to ONNX operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import ONNX_DTYPES
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.tflite.float_builder import (
    FIRST,
    LAST,
    Converter,
    FloatGraphBuilder,
    Names,
)
from nmpsim.frontends.tflite.model_data import TFLiteOperator

_ONNX_TYPES = {dtype: number for number, dtype in ONNX_DTYPES.items()}


def _make_renamed(op: str, **attributes: Any) -> Converter:
    """Return the converter of an operator that ONNX has with the same inputs."""
    return lambda b, operator: b.add(op, *b.get_inputs(), **attributes)


def _make_clip(low: float, high: float) -> Converter:
    return lambda b, operator: b.add_clip(b.get_name(operator.inputs[0]), low, high)


# --- weights ---------------------------------------------------------------------------------


def _get_window_words(b: FloatGraphBuilder) -> dict[str, Any]:
    """Return the attributes of the window of the present operator."""
    padding = {0: "SAME_UPPER", 1: "VALID"}.get(b.get_option("padding"))
    require(padding, f"padding {b.get_option('padding')}", "padding SAME or VALID")
    words = {
        "auto_pad": padding,
        "strides": (b.get_option("stride_h"), b.get_option("stride_w")),
    }
    if b.get_option("filter_height") is not None:
        words["kernel_shape"] = (b.get_option("filter_height"), b.get_option("filter_width"))
    if b.get_option("dilation_h_factor") is not None:
        words["dilations"] = (b.get_option("dilation_h_factor"), b.get_option("dilation_w_factor"))
    return words


def _convert_convolution(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    source, weights, *bias = operator.inputs
    assert source is not None
    values = b.get_values(weights)
    if operator.name == "CONV_2D":
        filters, group = values.transpose(0, 3, 1, 2), source.shape[3] // values.shape[3]
    else:
        filters, group = values.transpose(3, 0, 1, 2), source.shape[3]
    words = _get_window_words(b)
    if words["auto_pad"] == "VALID":
        words["auto_pad"] = "NOTSET"
    more = [b.add_constant(filters), *(b.get_name(one) for one in bias if one is not None)]
    kernel = filters.shape[2:]
    return b.add_image_operator("Conv", source, *more, group=group, kernel_shape=kernel, **words)


def _convert_transposed_convolution(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    _, weights, source, *bias = operator.inputs
    assert source is not None
    filters = b.get_values(weights).transpose(3, 0, 1, 2)
    strides = b.get_option("stride_h"), b.get_option("stride_w")
    sizes = zip(source.shape[1:3], operator.outputs[0].shape[1:3], filters.shape[2:], strides,
                strict=True)  # fmt: skip
    cut, more = [], []
    for own, out, taps, step in sizes:
        excess = (own - 1) * step + taps - out
        cut.append(max(excess, 0))
        more.append(max(-excess, 0))
    begin = [one // 2 for one in cut]
    end = [one - first for one, first in zip(cut, begin, strict=True)]
    return b.add_image_operator(
        "ConvTranspose",
        source,
        b.add_constant(filters),
        *(b.get_name(one) for one in bias if one is not None),
        strides=strides,
        pads=(*begin, *end),
        output_padding=tuple(more),
    )


def _convert_fully_connected(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    source, weights, *bias = operator.inputs
    values = b.get_values(weights)
    rows = b.add_reshape(b.get_name(source), (-1, values.shape[1]))
    more = [b.get_name(one) for one in bias if one is not None]
    product = b.add("Gemm", rows, b.add_constant(values.T), *more)
    return b.add_reshape(product, operator.outputs[0].shape)


def _convert_batch_matmul(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    names = []
    for tensor, flag in zip(operator.inputs, ("adj_x", "adj_y"), strict=True):
        assert tensor is not None
        rank, name = len(tensor.shape), b.get_name(tensor)
        if b.get_option(flag):
            name = b.add("Transpose", name, perm=(*range(rank - 2), rank - 1, rank - 2))
        names.append(name)
    return b.add("MatMul", *names)


# --- images ----------------------------------------------------------------------------------


def _make_pool(op: str) -> Converter:
    def convert(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
        (source,) = operator.inputs
        assert source is not None
        return b.add_image_operator(op, source, **_get_window_words(b))

    return convert


def _make_resize(mode: str) -> Converter:
    def convert(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
        source, sizes = operator.inputs
        assert source is not None
        rows, columns = b.get_values(sizes).tolist()
        shape = b.add_integers(source.shape[0], source.shape[3], rows, columns)
        is_centered, has_corners = b.get_option("half_pixel_centers"), b.get_option("align_corners")
        words = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if has_corners:
            words = {
                "coordinate_transformation_mode": "align_corners",
                "nearest_mode": "round_prefer_ceil",
            }
        elif is_centered:
            nearest = "tf_half_pixel_for_nn" if mode == "nearest" else "half_pixel"
            words["coordinate_transformation_mode"] = nearest
        return b.add_image_operator("Resize", source, "", "", shape, mode=mode, **words)

    return convert


def _make_space_to_depth(op: str) -> Converter:
    def convert(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
        (source,) = operator.inputs
        assert source is not None
        return b.add_image_operator(op, source, blocksize=b.get_option("block_size"))

    return convert


def _convert_pad(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    source, paddings, *value = operator.inputs
    pairs = b.get_values(paddings)
    pads = b.add_integers(*pairs[:, 0].tolist(), *pairs[:, 1].tolist())
    mode = "constant"
    if operator.name == "MIRROR_PAD":
        require(b.get_option("mode") == 0, "mode SYMMETRIC", "mode REFLECT")
        mode = "reflect"
    more = [b.get_name(one) for one in value if one is not None]
    return b.add("Pad", b.get_name(source), pads, *more, mode=mode)


def _make_reduction(op: str) -> Converter:
    def convert(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
        source, axes = operator.inputs
        assert source is not None
        rank, name = len(source.shape), b.get_name(source)
        reduced = sorted({int(axis) % rank for axis in b.get_values(axes).reshape(-1)})
        if rank == 4 and reduced == [1, 2]:  # the mean of an image is a pool
            name = b.add("Transpose", name, perm=FIRST)
            name = b.add(op, name, b.add_integers(2, 3), keepdims=1)
            name = b.add("Transpose", name, perm=LAST)
        else:
            name = b.add(op, name, b.add_integers(*reduced), keepdims=1)
        return b.add_reshape(name, operator.outputs[0].shape)

    return convert


# --- movements -------------------------------------------------------------------------------


def _convert_reshape(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    return b.add_reshape(b.get_name(operator.inputs[0]), operator.outputs[0].shape)


def _convert_transpose(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    source, order = operator.inputs
    return b.add("Transpose", b.get_name(source), perm=tuple(b.get_values(order).tolist()))


def _convert_concatenation(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    return b.add("Concat", *b.get_inputs(), axis=b.get_option("axis"))


def _convert_pack(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    shape, axis = operator.outputs[0].shape, b.get_option("axis") % len(operator.outputs[0].shape)
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    names = [b.add_reshape(name, one) for name in b.get_inputs()]
    return b.add("Concat", *names, axis=axis)


def _add_slice(
    b: FloatGraphBuilder, name: str, begin: Sequence[int], end: Sequence[int], steps: Sequence[int]
) -> str:
    rows = begin, end, range(len(begin)), steps
    return b.add("Slice", name, *(b.add_integers(*map(int, row)) for row in rows))


def _convert_unpack(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    (source,) = operator.inputs
    assert source is not None
    axis, results = b.get_option("axis") % len(source.shape), []
    for index, target in enumerate(operator.outputs):
        begin, end = [0] * len(source.shape), list(source.shape)
        begin[axis], end[axis] = index, index + 1
        one = _add_slice(b, b.get_name(source), begin, end, [1] * len(begin))
        results.append(b.add_reshape(one, target.shape))
    return results


def _convert_slice(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    source, begins, sizes = operator.inputs
    assert source is not None
    begin = b.get_values(begins).tolist()
    end = [
        first + size if size >= 0 else own
        for first, size, own in zip(begin, b.get_values(sizes).tolist(), source.shape, strict=True)
    ]
    return _add_slice(b, b.get_name(source), begin, end, [1] * len(begin))


def _convert_strided_slice(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    source, *rows = operator.inputs
    assert source is not None
    begins, ends, steps = (b.get_values(row).tolist() for row in rows)
    for mask in ("ellipsis_mask", "new_axis_mask"):
        require(not b.get_option(mask), f"{mask} {b.get_option(mask)}", f"{mask} 0")
    begin, end = list(begins), list(ends)
    for axis, step in enumerate(steps):
        if b.get_option("begin_mask", 0) >> axis & 1:
            begin[axis] = 0 if step > 0 else source.shape[axis] - 1
        if b.get_option("end_mask", 0) >> axis & 1:
            end[axis] = source.shape[axis] if step > 0 else -(1 << 62)
        if b.get_option("shrink_axis_mask", 0) >> axis & 1:
            begin[axis] %= source.shape[axis]
            end[axis] = begin[axis] + 1
    found = _add_slice(b, b.get_name(source), begin, end, steps)
    return b.add_reshape(found, operator.outputs[0].shape)


def _convert_split(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    places = {"SPLIT": (1, 0), "SPLIT_V": (0, 2)}[operator.name]
    source, axes = (operator.inputs[place] for place in places)
    assert source is not None
    axis, at, results = int(b.get_values(axes).reshape(())) % len(source.shape), 0, []
    for target in operator.outputs:
        begin, end = [0] * len(source.shape), list(source.shape)
        begin[axis], end[axis] = at, at + target.shape[axis]
        at = end[axis]
        results.append(_add_slice(b, b.get_name(source), begin, end, [1] * len(begin)))
    return results


# --- other operators -------------------------------------------------------------------------


def _convert_dequantize(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    """Compute the float32 values of a constant."""
    (source,) = operator.inputs
    assert source is not None
    values = b.get_values(source)
    b.count_elements(values.size)
    if source.is_quantized:
        shape = [1] * len(source.shape)
        if source.scales.size > 1:
            shape[source.axis] = -1
        steps = values.astype(np.float32) - source.zero_points.reshape(shape).astype(np.float32)
        return b.add_constant(steps * source.scales.reshape(shape))
    return b.add_constant(values.astype(np.float32))


def _convert_cast(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    dtype = operator.outputs[0].dtype
    require(dtype in _ONNX_TYPES, f"a cast to {dtype}", "a type of ONNX")
    return b.add("Cast", b.get_name(operator.inputs[0]), to=_ONNX_TYPES[dtype])


def _convert_softmax(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    name, beta = b.get_name(operator.inputs[0]), b.get_option("beta")
    if beta != 1:
        name = b.add("Mul", name, b.add_constant(np.float32(beta)))
    return b.add("Softmax", name, axis=-1)


def _convert_leaky_relu(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    return b.add("LeakyRelu", b.get_name(operator.inputs[0]), alpha=b.get_option("alpha"))


def _convert_square(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    name = b.get_name(operator.inputs[0])
    return b.add("Mul", name, name)


def _convert_rsqrt(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    return b.add("Reciprocal", b.add("Sqrt", b.get_name(operator.inputs[0])))


def _convert_squared_difference(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    difference = b.add("Sub", *b.get_inputs())
    return b.add("Mul", difference, difference)


def _convert_arg_max(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    source, axes = operator.inputs
    axis = int(b.get_values(axes).reshape(()))
    op = {"ARG_MAX": "ArgMax", "ARG_MIN": "ArgMin"}[operator.name]
    return b.add(op, b.get_name(source), axis=axis, keepdims=0)


def _convert_shape(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    (source,) = operator.inputs
    assert source is not None
    return b.add_constant(np.array(source.shape, operator.outputs[0].dtype))


def _convert_gather(b: FloatGraphBuilder, operator: TFLiteOperator) -> Names:
    require(not b.get_option("batch_dims"), "batch_dims", "batch_dims 0")
    return b.add("Gather", *b.get_inputs(), axis=b.get_option("axis"))


CONVERTERS: Mapping[str, Converter] = {
    "ABS": _make_renamed("Abs"),
    "ADD": _make_renamed("Add"),
    "ADD_N": _make_renamed("Sum"),
    "ARG_MAX": _convert_arg_max,
    "ARG_MIN": _convert_arg_max,
    "AVERAGE_POOL_2D": _make_pool("AveragePool"),
    "BATCH_MATMUL": _convert_batch_matmul,
    "BROADCAST_TO": _make_renamed("Expand"),
    "CAST": _convert_cast,
    "CEIL": _make_renamed("Ceil"),
    "CONCATENATION": _convert_concatenation,
    "CONV_2D": _convert_convolution,
    "COS": _make_renamed("Cos"),
    "DENSIFY": lambda b, operator: b.get_name(operator.inputs[0]),
    "DEPTHWISE_CONV_2D": _convert_convolution,
    "DEPTH_TO_SPACE": _make_space_to_depth("DepthToSpace"),
    "DEQUANTIZE": _convert_dequantize,
    "DIV": _make_renamed("Div"),
    "ELU": _make_renamed("Elu", alpha=1.0),
    "EQUAL": _make_renamed("Equal"),
    "EXP": _make_renamed("Exp"),
    "EXPAND_DIMS": _convert_reshape,
    "FLOOR": _make_renamed("Floor"),
    "FULLY_CONNECTED": _convert_fully_connected,
    "GATHER": _convert_gather,
    "GREATER": _make_renamed("Greater"),
    "GREATER_EQUAL": _make_renamed("GreaterOrEqual"),
    "HARD_SWISH": _make_renamed("HardSwish"),
    "LEAKY_RELU": _convert_leaky_relu,
    "LESS": _make_renamed("Less"),
    "LESS_EQUAL": _make_renamed("LessOrEqual"),
    "LOG": _make_renamed("Log"),
    "LOGICAL_AND": _make_renamed("And"),
    "LOGICAL_NOT": _make_renamed("Not"),
    "LOGICAL_OR": _make_renamed("Or"),
    "LOGISTIC": _make_renamed("Sigmoid"),
    "LOG_SOFTMAX": _make_renamed("LogSoftmax", axis=-1),
    "MAXIMUM": _make_renamed("Max"),
    "MAX_POOL_2D": _make_pool("MaxPool"),
    "MEAN": _make_reduction("ReduceMean"),
    "MINIMUM": _make_renamed("Min"),
    "MIRROR_PAD": _convert_pad,
    "MUL": _make_renamed("Mul"),
    "NEG": _make_renamed("Neg"),
    "PACK": _convert_pack,
    "PAD": _convert_pad,
    "PADV2": _convert_pad,
    "POW": _make_renamed("Pow"),
    "PRELU": _make_renamed("PRelu"),
    "REDUCE_MAX": _make_reduction("ReduceMax"),
    "REDUCE_MIN": _make_reduction("ReduceMin"),
    "RELU": _make_renamed("Relu"),
    "RELU6": _make_clip(0.0, 6.0),
    "RELU_0_TO_1": _make_clip(0.0, 1.0),
    "RELU_N1_TO_1": _make_clip(-1.0, 1.0),
    "RESHAPE": _convert_reshape,
    "RESIZE_BILINEAR": _make_resize("linear"),
    "RESIZE_NEAREST_NEIGHBOR": _make_resize("nearest"),
    "ROUND": _make_renamed("Round"),
    "RSQRT": _convert_rsqrt,
    "SELECT": _make_renamed("Where"),
    "SELECT_V2": _make_renamed("Where"),
    "SHAPE": _convert_shape,
    "SIGN": _make_renamed("Sign"),
    "SIN": _make_renamed("Sin"),
    "SLICE": _convert_slice,
    "SOFTMAX": _convert_softmax,
    "SPACE_TO_DEPTH": _make_space_to_depth("SpaceToDepth"),
    "SPLIT": _convert_split,
    "SPLIT_V": _convert_split,
    "SQRT": _make_renamed("Sqrt"),
    "SQUARE": _convert_square,
    "SQUARED_DIFFERENCE": _convert_squared_difference,
    "SQUEEZE": _convert_reshape,
    "STRIDED_SLICE": _convert_strided_slice,
    "SUB": _make_renamed("Sub"),
    "SUM": _make_reduction("ReduceSum"),
    "TANH": _make_renamed("Tanh"),
    "TILE": _make_renamed("Tile"),
    "TRANSPOSE": _convert_transpose,
    "TRANSPOSE_CONV": _convert_transposed_convolution,
    "UNPACK": _convert_unpack,
}
"""Operator in TFLite's schema -> function that converts it to ONNX operators."""
