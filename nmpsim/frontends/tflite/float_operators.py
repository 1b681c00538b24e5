"""Conversion of a float TFLite model to a graph of ONNX operators.

The lowering and quantization of float ONNX networks then also applies to TFLite networks. TFLite
has channels last, so Transpose nodes surround operators on images; the lowering turns them into
views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from nmpsim.frontends.graph.nodes import ONNX_DTYPES, OPSET, Array, Graph, NodeBuilder, Shape
from nmpsim.frontends.graph.operation import bind_attributes
from nmpsim.frontends.graph.problems import INVALID_NODE_ERRORS
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.tflite.graph import build_graph, to_snake_case
from nmpsim.frontends.tflite.model_data import TFLiteModel, TFLiteOperator, TFLiteTensor

MAX_ELEMENTS = 1 << 28
"""Limit for the elements of all constants of a model that DEQUANTIZE computes."""
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Permutations from channels last to channels second, and back."""
Names: TypeAlias = str | Sequence[str]
"""Name of the only result of an operator, or the names of all results."""
Converter: TypeAlias = Callable[..., Names]
"""Adds the nodes of an operator, and returns the names of its results. It takes the builder, the
inputs and, as keyword arguments, the options with these names in snake case."""
_ONNX_TYPES = {dtype: number for number, dtype in ONNX_DTYPES.items()}
_PADDINGS = {0: "SAME_UPPER", 1: "VALID"}
_FUSED_BOUNDS = {2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Fused activation -> its bounds."""


class FloatGraphBuilder(NodeBuilder):
    """Builder of the nodes and constants that TFLite operators are converted to."""

    operator: TFLiteOperator
    """The operator that is converted."""

    def __init__(self, names: Mapping[int, str], constants: dict[str, Array]) -> None:
        super().__init__(constants)
        self._names = names
        self._elements = 0

    @property
    def shape(self) -> Shape:
        """Shape of the first result."""
        return self.operator.outputs[0].shape

    def add_operator(self, operator: TFLiteOperator) -> None:
        """Add the nodes of an operator; one that cannot be converted keeps its name."""
        self.operator = operator
        names, count = self.get_names(operator.outputs), len(self.nodes)
        self.begin_operator(
            operator.index, f"{operator.index} {operator.name} {names[0]}", names[0]
        )
        inputs = [one for one in operator.inputs if one is not None]
        try:
            results = self._convert(operator)
        except (UnsupportedError, *INVALID_NODE_ERRORS) as error:
            del self.nodes[count:]
            self.append_node(f"{operator.name} with {error}", self.get_names(inputs), *names)
            return
        if results is None:
            self.append_node(operator.name, self.get_names(inputs), *names)
            return
        for name, result in zip(names, results, strict=True):
            if result in self.constants:
                self.constants[name] = self.constants[result]
            self.append_node("Identity", [result], name)

    def _convert(self, operator: TFLiteOperator) -> list[str] | None:
        """Return the results of an operator's nodes; None if it has no conversion."""
        convert, inputs = CONVERTERS.get(operator.name), list(operator.inputs)
        if convert is None:
            return None
        while inputs and inputs[-1] is None:
            inputs.pop()
        require(None not in inputs, "an omitted input", "all inputs that the operator requires")
        options = to_snake_case(operator.options)
        found = convert(self, *inputs, **bind_attributes(convert, options))
        activation = options.get("fused_activation_function", 0)
        results = [found] if isinstance(found, str) else found
        return [self._add_activation(one, activation) for one in results]

    def add_image_operator(self, op: str, tensor: TFLiteTensor, *more: str, **words: Any) -> str:
        """Add an operator on an image with channels second, and convert its input and result."""
        image = self.add("Transpose", self.get_name(tensor), perm=FIRST)
        return self.add("Transpose", self.add(op, image, *more, **words), perm=LAST)

    def get_name(self, tensor: TFLiteTensor) -> str:
        """Return the name of a tensor in the graph."""
        return self._names[tensor.index]

    def get_names(self, tensors: Iterable[TFLiteTensor]) -> list[str]:
        """Return the names of tensors in the graph."""
        return [self.get_name(one) for one in tensors]

    def get_values(self, tensor: TFLiteTensor) -> Array:
        """Return the values of a constant; raise UnsupportedError if it is not one."""
        name = self.get_name(tensor)
        require(name in self.constants, f"{name} is not a constant", "a constant")
        return self.constants[name]

    def count_elements(self, count: int) -> None:
        """Count elements of constants that are computed; refuse more than MAX_ELEMENTS in all."""
        self._elements += count
        found = f"{self._elements:,} elements in all computed constants"
        require(self._elements <= MAX_ELEMENTS, found, f"at most {MAX_ELEMENTS:,} elements")

    def _add_activation(self, name: str, number: int) -> str:
        """Add the fused activation with a number of the schema."""
        if number == 1:
            return self.add("Relu", name)
        if number in _FUSED_BOUNDS:
            return self.add_clip(name, *_FUSED_BOUNDS[number])
        require(number == 0, f"fused activation number {number}", "NONE, RELU, RELU6, RELU_N1_TO_1")
        return name


def _convert_renamed(
    b: FloatGraphBuilder, *inputs: TFLiteTensor, op: str, words: Mapping[str, Any]
) -> str:
    return b.add(op, *b.get_names(inputs), **words)


def _make_renamed(op: str, **words: Any) -> Converter:
    """Return the converter of an operator that ONNX has with the same inputs."""
    return partial(_convert_renamed, op=op, words=words)


def _make_clip(low: float, high: float) -> Converter:
    return lambda b, source: b.add_clip(b.get_name(source), low, high)


# --- weights ---------------------------------------------------------------------------------


def _check_padding(number: int) -> str:
    require(number in _PADDINGS, f"padding {number}", "padding SAME or VALID")
    return _PADDINGS[number]


def _convert_convolution(
    b: FloatGraphBuilder,
    source: TFLiteTensor,
    weights: TFLiteTensor,
    *bias: TFLiteTensor,
    is_depthwise: bool,
    padding: int,
    stride_h: int,
    stride_w: int,
    dilation_h_factor: int = 1,
    dilation_w_factor: int = 1,
) -> Names:
    values, channels = b.get_values(weights), source.shape[3]
    filters = values.transpose(3, 0, 1, 2) if is_depthwise else values.transpose(0, 3, 1, 2)
    return b.add_image_operator(
        "Conv",
        source,
        b.add_constant(filters),
        *b.get_names(bias),
        group=channels if is_depthwise else channels // values.shape[3],
        kernel_shape=filters.shape[2:],
        auto_pad=_check_padding(padding).replace("VALID", "NOTSET"),
        strides=(stride_h, stride_w),
        dilations=(dilation_h_factor, dilation_w_factor),
    )


def _convert_transposed_convolution(
    b: FloatGraphBuilder,
    shape: TFLiteTensor,
    weights: TFLiteTensor,
    source: TFLiteTensor,
    *bias: TFLiteTensor,
    stride_h: int,
    stride_w: int,
) -> Names:
    filters, strides = b.get_values(weights).transpose(3, 0, 1, 2), (stride_h, stride_w)
    sizes = zip(source.shape[1:3], b.shape[1:3], filters.shape[2:], strides, strict=True)
    excess = [(own - 1) * step + taps - out for own, out, taps, step in sizes]
    cut = [max(one, 0) for one in excess]
    begin = [one // 2 for one in cut]
    end = [one - first for one, first in zip(cut, begin, strict=True)]
    return b.add_image_operator(
        "ConvTranspose",
        source,
        b.add_constant(filters),
        *b.get_names(bias),
        strides=strides,
        pads=(*begin, *end),
        output_padding=tuple(max(-one, 0) for one in excess),
    )


def _convert_fully_connected(
    b: FloatGraphBuilder, source: TFLiteTensor, weights: TFLiteTensor, *bias: TFLiteTensor
) -> Names:
    values = b.get_values(weights)
    rows = b.add_reshape(b.get_name(source), (-1, values.shape[1]))
    product = b.add("Gemm", rows, b.add_constant(values.T), *b.get_names(bias))
    return b.add_reshape(product, b.shape)


def _convert_batch_matmul(
    b: FloatGraphBuilder,
    left: TFLiteTensor,
    right: TFLiteTensor,
    *,
    adj_x: bool = False,
    adj_y: bool = False,
) -> Names:
    names = []
    for tensor, is_transposed in ((left, adj_x), (right, adj_y)):
        rank, name = len(tensor.shape), b.get_name(tensor)
        if is_transposed:
            name = b.add("Transpose", name, perm=(*range(rank - 2), rank - 1, rank - 2))
        names.append(name)
    return b.add("MatMul", *names)


# --- images ----------------------------------------------------------------------------------


def _convert_pool(
    b: FloatGraphBuilder,
    source: TFLiteTensor,
    *,
    op: str,
    padding: int,
    stride_h: int,
    stride_w: int,
    filter_height: int,
    filter_width: int,
) -> Names:
    return b.add_image_operator(
        op,
        source,
        auto_pad=_check_padding(padding),
        strides=(stride_h, stride_w),
        kernel_shape=(filter_height, filter_width),
    )


def _convert_resize(
    b: FloatGraphBuilder,
    source: TFLiteTensor,
    sizes: TFLiteTensor,
    *,
    mode: str,
    half_pixel_centers: bool = False,
    align_corners: bool = False,
) -> Names:
    rows, columns = b.get_values(sizes).tolist()
    shape = b.add_integers(source.shape[0], source.shape[3], rows, columns)
    transformation, rounding = "asymmetric", "floor"
    if align_corners:
        transformation, rounding = "align_corners", "round_prefer_ceil"
    elif half_pixel_centers:
        transformation = "tf_half_pixel_for_nn" if mode == "nearest" else "half_pixel"
    return b.add_image_operator(
        "Resize",
        source,
        "",
        "",
        shape,
        mode=mode,
        coordinate_transformation_mode=transformation,
        nearest_mode=rounding,
    )


def _convert_space_to_depth(
    b: FloatGraphBuilder, source: TFLiteTensor, *, op: str, block_size: int
) -> Names:
    return b.add_image_operator(op, source, blocksize=block_size)


def _convert_pad(
    b: FloatGraphBuilder, source: TFLiteTensor, paddings: TFLiteTensor, *value: TFLiteTensor
) -> Names:
    pads = b.add_integers(*b.get_values(paddings).T.reshape(-1).tolist())
    return b.add("Pad", b.get_name(source), pads, *b.get_names(value), mode="constant")


def _convert_mirror_pad(
    b: FloatGraphBuilder, source: TFLiteTensor, paddings: TFLiteTensor, *, mode: int
) -> Names:
    require(mode == 0, "mode SYMMETRIC", "mode REFLECT")
    pads = b.add_integers(*b.get_values(paddings).T.reshape(-1).tolist())
    return b.add("Pad", b.get_name(source), pads, mode="reflect")


def _convert_reduction(
    b: FloatGraphBuilder, source: TFLiteTensor, axes: TFLiteTensor, *, op: str
) -> Names:
    rank, name = len(source.shape), b.get_name(source)
    reduced = sorted({int(axis) % rank for axis in b.get_values(axes).reshape(-1)})
    if rank == 4 and reduced == [1, 2]:  # the mean of an image is a pool
        name = b.add_image_operator(op, source, b.add_integers(2, 3), keepdims=1)
    else:
        name = b.add(op, name, b.add_integers(*reduced), keepdims=1)
    return b.add_reshape(name, b.shape)


# --- movements -------------------------------------------------------------------------------


def _convert_reshape(b: FloatGraphBuilder, source: TFLiteTensor, *_: TFLiteTensor) -> Names:
    return b.add_reshape(b.get_name(source), b.shape)


def _convert_transpose(b: FloatGraphBuilder, source: TFLiteTensor, order: TFLiteTensor) -> Names:
    return b.add("Transpose", b.get_name(source), perm=tuple(b.get_values(order).tolist()))


def _convert_concatenation(b: FloatGraphBuilder, *inputs: TFLiteTensor, axis: int) -> Names:
    return b.add("Concat", *b.get_names(inputs), axis=axis)


def _convert_pack(b: FloatGraphBuilder, *inputs: TFLiteTensor, axis: int) -> Names:
    axis %= len(b.shape)
    one = (*b.shape[:axis], 1, *b.shape[axis + 1 :])
    return b.add("Concat", *(b.add_reshape(name, one) for name in b.get_names(inputs)), axis=axis)


def _add_slice(
    b: FloatGraphBuilder,
    source: TFLiteTensor,
    begin: Sequence[int],
    end: Sequence[int],
    steps: Sequence[int] | None = None,
) -> str:
    rows = begin, end, range(len(begin)), steps or [1] * len(begin)
    return b.add("Slice", b.get_name(source), *(b.add_integers(*map(int, row)) for row in rows))


def _convert_unpack(b: FloatGraphBuilder, source: TFLiteTensor, *, axis: int) -> Names:
    axis, results = axis % len(source.shape), []
    for index, target in enumerate(b.operator.outputs):
        begin, end = [0] * len(source.shape), list(source.shape)
        begin[axis], end[axis] = index, index + 1
        results.append(b.add_reshape(_add_slice(b, source, begin, end), target.shape))
    return results


def _convert_slice(
    b: FloatGraphBuilder, source: TFLiteTensor, begins: TFLiteTensor, sizes: TFLiteTensor
) -> Names:
    begin = b.get_values(begins).tolist()
    end = [
        first + size if size >= 0 else own
        for first, size, own in zip(begin, b.get_values(sizes).tolist(), source.shape, strict=True)
    ]
    return _add_slice(b, source, begin, end)


def _convert_strided_slice(
    b: FloatGraphBuilder,
    source: TFLiteTensor,
    *rows: TFLiteTensor,
    begin_mask: int = 0,
    end_mask: int = 0,
    shrink_axis_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
) -> Names:
    require(not ellipsis_mask, f"ellipsis_mask {ellipsis_mask}", "ellipsis_mask 0")
    require(not new_axis_mask, f"new_axis_mask {new_axis_mask}", "new_axis_mask 0")
    begin, end, steps = (b.get_values(row).tolist() for row in rows)
    for axis, step in enumerate(steps):
        if begin_mask >> axis & 1:
            begin[axis] = 0 if step > 0 else source.shape[axis] - 1
        if end_mask >> axis & 1:
            end[axis] = source.shape[axis] if step > 0 else -(1 << 62)
        if shrink_axis_mask >> axis & 1:
            begin[axis] %= source.shape[axis]
            end[axis] = begin[axis] + 1
    return b.add_reshape(_add_slice(b, source, begin, end, steps), b.shape)


def _convert_split_v(
    b: FloatGraphBuilder, source: TFLiteTensor, sizes: TFLiteTensor | None, axes: TFLiteTensor
) -> Names:
    axis, at, results = int(b.get_values(axes).reshape(())) % len(source.shape), 0, []
    for target in b.operator.outputs:
        begin, end = [0] * len(source.shape), list(source.shape)
        begin[axis], end[axis] = at, at + target.shape[axis]
        at = end[axis]
        results.append(_add_slice(b, source, begin, end))
    return results


def _convert_split(b: FloatGraphBuilder, axes: TFLiteTensor, source: TFLiteTensor) -> Names:
    return _convert_split_v(b, source, None, axes)


# --- other operators -------------------------------------------------------------------------


def _convert_dequantize(b: FloatGraphBuilder, source: TFLiteTensor) -> Names:
    """Compute the float32 values of a constant."""
    values = b.get_values(source)
    b.count_elements(values.size)
    if not source.is_quantized:
        return b.add_constant(values.astype(np.float32))
    shape = [1] * len(source.shape)
    if source.scales.size > 1:
        shape[source.axis] = -1
    steps = values.astype(np.float32) - source.zero_points.reshape(shape).astype(np.float32)
    return b.add_constant(steps * source.scales.reshape(shape))


def _convert_cast(b: FloatGraphBuilder, source: TFLiteTensor) -> Names:
    dtype = b.operator.outputs[0].dtype
    require(dtype in _ONNX_TYPES, f"a cast to {dtype}", "a type of ONNX")
    return b.add("Cast", b.get_name(source), to=_ONNX_TYPES[dtype])


def _convert_softmax(b: FloatGraphBuilder, source: TFLiteTensor, *, beta: float) -> Names:
    name = b.get_name(source)
    if beta != 1:
        name = b.add("Mul", name, b.add_constant(np.float32(beta)))
    return b.add("Softmax", name, axis=-1)


def _convert_leaky_relu(b: FloatGraphBuilder, source: TFLiteTensor, *, alpha: float) -> Names:
    return b.add("LeakyRelu", b.get_name(source), alpha=alpha)


def _convert_square(b: FloatGraphBuilder, source: TFLiteTensor) -> Names:
    return b.add("Mul", b.get_name(source), b.get_name(source))


def _convert_rsqrt(b: FloatGraphBuilder, source: TFLiteTensor) -> Names:
    return b.add("Reciprocal", b.add("Sqrt", b.get_name(source)))


def _convert_squared_difference(b: FloatGraphBuilder, *inputs: TFLiteTensor) -> Names:
    difference = b.add("Sub", *b.get_names(inputs))
    return b.add("Mul", difference, difference)


def _convert_arg_max(
    b: FloatGraphBuilder, source: TFLiteTensor, axes: TFLiteTensor, *, op: str
) -> Names:
    axis = int(b.get_values(axes).reshape(()))
    return b.add(op, b.get_name(source), axis=axis, keepdims=0)


def _convert_shape(b: FloatGraphBuilder, source: TFLiteTensor) -> Names:
    return b.add_constant(np.array(source.shape, b.operator.outputs[0].dtype))


def _convert_gather(
    b: FloatGraphBuilder, *inputs: TFLiteTensor, axis: int, batch_dims: int = 0
) -> Names:
    require(not batch_dims, "batch_dims", "batch_dims 0")
    return b.add("Gather", *b.get_names(inputs), axis=axis)


CONVERTERS: Mapping[str, Converter] = {
    "ABS": _make_renamed("Abs"),
    "ADD": _make_renamed("Add"),
    "ADD_N": _make_renamed("Sum"),
    "ARG_MAX": partial(_convert_arg_max, op="ArgMax"),
    "ARG_MIN": partial(_convert_arg_max, op="ArgMin"),
    "AVERAGE_POOL_2D": partial(_convert_pool, op="AveragePool"),
    "BATCH_MATMUL": _convert_batch_matmul,
    "BROADCAST_TO": _make_renamed("Expand"),
    "CAST": _convert_cast,
    "CEIL": _make_renamed("Ceil"),
    "CONCATENATION": _convert_concatenation,
    "CONV_2D": partial(_convert_convolution, is_depthwise=False),
    "COS": _make_renamed("Cos"),
    "DENSIFY": FloatGraphBuilder.get_name,
    "DEPTHWISE_CONV_2D": partial(_convert_convolution, is_depthwise=True),
    "DEPTH_TO_SPACE": partial(_convert_space_to_depth, op="DepthToSpace"),
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
    "MAX_POOL_2D": partial(_convert_pool, op="MaxPool"),
    "MEAN": partial(_convert_reduction, op="ReduceMean"),
    "MINIMUM": _make_renamed("Min"),
    "MIRROR_PAD": _convert_mirror_pad,
    "MUL": _make_renamed("Mul"),
    "NEG": _make_renamed("Neg"),
    "PACK": _convert_pack,
    "PAD": _convert_pad,
    "PADV2": _convert_pad,
    "POW": _make_renamed("Pow"),
    "PRELU": _make_renamed("PRelu"),
    "REDUCE_MAX": partial(_convert_reduction, op="ReduceMax"),
    "REDUCE_MIN": partial(_convert_reduction, op="ReduceMin"),
    "RELU": _make_renamed("Relu"),
    "RELU6": _make_clip(0.0, 6.0),
    "RELU_0_TO_1": _make_clip(0.0, 1.0),
    "RELU_N1_TO_1": _make_clip(-1.0, 1.0),
    "RESHAPE": _convert_reshape,
    "RESIZE_BILINEAR": partial(_convert_resize, mode="linear"),
    "RESIZE_NEAREST_NEIGHBOR": partial(_convert_resize, mode="nearest"),
    "ROUND": _make_renamed("Round"),
    "RSQRT": _convert_rsqrt,
    "SELECT": _make_renamed("Where"),
    "SELECT_V2": _make_renamed("Where"),
    "SHAPE": _convert_shape,
    "SIGN": _make_renamed("Sign"),
    "SIN": _make_renamed("Sin"),
    "SLICE": _convert_slice,
    "SOFTMAX": _convert_softmax,
    "SPACE_TO_DEPTH": partial(_convert_space_to_depth, op="SpaceToDepth"),
    "SPLIT": _convert_split,
    "SPLIT_V": _convert_split_v,
    "SQRT": _make_renamed("Sqrt"),
    "SQUARE": _convert_square,
    "SQUARED_DIFFERENCE": _convert_squared_difference,
    "SQUEEZE": _convert_reshape,
    "STRIDED_SLICE": _convert_strided_slice,
    "SUB": _make_renamed("Sub"),
    "SUM": partial(_convert_reduction, op="ReduceSum"),
    "TANH": _make_renamed("Tanh"),
    "TILE": _make_renamed("Tile"),
    "TRANSPOSE": _convert_transpose,
    "TRANSPOSE_CONV": _convert_transposed_convolution,
    "UNPACK": _convert_unpack,
}
"""Operator in TFLite's schema -> function that converts it to ONNX operators."""


def is_float_model(model: TFLiteModel) -> bool:
    """Return whether a model computes floats: no operator reads or computes quantized values.

    Constants may be quantized or of 16 bits, if DEQUANTIZE converts them.
    """
    return not any(
        tensor.is_quantized and tensor.values is None
        for operator in model.operators
        for tensor in (*filter(None, operator.inputs), *operator.outputs)
    )


def build_float_graph(model: TFLiteModel) -> tuple[Graph, dict[int, str]]:
    """Convert a float TFLite model to ONNX operators; return the graph and tensor names by index.

    An operator without a conversion keeps its name, which the lowering then refuses.
    """
    plain, names = build_graph(model)
    builder = FloatGraphBuilder(names, dict(plain.constants))
    for operator in model.operators:
        builder.add_operator(operator)
    nodes, layers = tuple(builder.nodes), builder.layers
    graph = Graph(nodes, builder.constants, plain.inputs, plain.outputs, OPSET, layers=layers)
    return graph, names
