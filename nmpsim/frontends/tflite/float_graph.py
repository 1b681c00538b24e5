"""Conversion of a float TFLite model to a graph of ONNX operators.

Float networks of both formats are then lowered and quantized by the same code. TFLite has channels
last, so Transpose nodes surround operators on images; the lowering turns them into views.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import ONNX_DTYPES, OPSET, Array, Graph, Node
from nmpsim.frontends.graph.problems import INVALID_NODE_ERRORS
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.tflite.graph import build_graph, to_snake_case
from nmpsim.frontends.tflite.model import TFLiteModel, TFLiteOperator, TFLiteTensor

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Permutations from channels last to channels second, and back."""
MAX_ELEMENTS = 1 << 28
"""Limit for the elements of all constants of a model that DEQUANTIZE computes."""
_ONNX_TYPES = {dtype: number for number, dtype in ONNX_DTYPES.items()}


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
    builder = _GraphBuilder(names, dict(plain.constants))
    for operator in model.operators:
        builder.add_operator(operator)
    graph = Graph(
        tuple(builder.nodes),
        builder.constants,
        plain.inputs,
        plain.outputs,
        OPSET,
        layers=builder.layers,
    )
    return graph, names


class _GraphBuilder:
    """Builder of the nodes and constants that TFLite operators are converted to."""

    def __init__(self, names: Mapping[int, str], constants: dict[str, Array]) -> None:
        self.nodes: list[Node] = []
        self.constants = constants
        self.layers: dict[str, str] = {}
        """New tensor -> name of the layers that compute it."""
        self._names = names
        self._numbers = itertools.count()
        self._elements = 0
        self._operator: TFLiteOperator

    def add_operator(self, operator: TFLiteOperator) -> None:
        """Add the nodes of an operator; one that cannot be converted keeps its name."""
        self._operator = operator
        names, count = [self._names[one.index] for one in operator.outputs], len(self.nodes)
        try:
            results = self._convert(operator)
        except (UnsupportedError, *INVALID_NODE_ERRORS) as error:
            del self.nodes[count:]
            self._append(f"{operator.name} with {error}", _get_inputs(self, operator), *names)
            return
        if results is None:
            self._append(operator.name, _get_inputs(self, operator), *names)
            return
        for name, result in zip(names, results, strict=True):
            if result in self.constants:
                self.constants[name] = self.constants[result]
            self._append("Identity", [result], name)

    def _convert(self, operator: TFLiteOperator) -> list[str] | None:
        """Return the results of an operator's nodes; None if it has no conversion."""
        if operator.name not in _OPERATORS:
            return None
        found = _OPERATORS[operator.name](self, operator)
        results = [found] if isinstance(found, str) else found
        return [self._add_activation(one) for one in results]

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result; return the name of the result."""
        result = self._make_name()
        self._append(op, inputs, result, **attributes)
        return result

    def add_constant(self, values: Any) -> str:
        """Add a constant; return its name."""
        name = self._make_name()
        self.constants[name] = np.asarray(values)
        return name

    def _make_name(self) -> str:
        """Return a new name for a tensor whose layers are named as the operator's result."""
        result = self._names[self._operator.outputs[0].index]
        name = f"{result} {next(self._numbers)}"
        self.layers[name] = result
        return name

    def add_integers(self, *numbers: int) -> str:
        """Add a constant of int64 with one dimension; return its name."""
        return self.add_constant(np.array(numbers, np.int64))

    def add_image_operator(self, op: str, tensor: TFLiteTensor, *more: str, **words: Any) -> str:
        """Add an operator on an image with channels second, and convert its input and result."""
        image = self.add("Transpose", self.get_name(tensor), perm=FIRST)
        return self.add("Transpose", self.add(op, image, *more, **words), perm=LAST)

    def add_reshape(self, name: str, shape: Sequence[int]) -> str:
        """Add a Reshape to a constant shape."""
        return self.add("Reshape", name, self.add_integers(*shape))

    def get_name(self, tensor: TFLiteTensor | None) -> str:
        """Return the name of a tensor; of a constant of 16 bits, that of its float32 values."""
        assert tensor is not None
        return self._names[tensor.index]

    def get_values(self, tensor: TFLiteTensor | None) -> Array:
        """Return the values of a constant; raise UnsupportedError if it is not one."""
        name = "" if tensor is None else self.get_name(tensor)
        require(name in self.constants, f"{name or 'an input'} is not a constant", "a constant")
        return self.constants[name]

    def count_elements(self, count: int) -> None:
        """Count elements of constants that are computed; refuse more than MAX_ELEMENTS in all."""
        self._elements += count
        found = f"{self._elements:,} elements in all computed constants"
        require(self._elements <= MAX_ELEMENTS, found, f"at most {MAX_ELEMENTS:,} elements")

    def get_option(self, name: str, default: Any = None) -> Any:
        """Return an option of the present operator by its name in snake case."""
        return to_snake_case(self._operator.options).get(name, default)

    def _append(self, op: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> None:
        operator = self._operator
        title = f"{operator.index} {operator.name} {self._names[operator.outputs[0].index]}"
        self.nodes.append(Node(operator.index, op, tuple(inputs), outputs, attributes, title))

    def _add_activation(self, name: str) -> str:
        """Add the fused activation of the present operator."""
        number = self.get_option("fused_activation_function", 0)
        if number == 1:
            return self.add("Relu", name)
        if number in _FUSED_BOUNDS:
            return _add_clip(self, name, *_FUSED_BOUNDS[number])
        require(number == 0, f"fused activation number {number}", "NONE, RELU, RELU6, RELU_N1_TO_1")
        return name


_FUSED_BOUNDS = {2: (-1.0, 1.0), 3: (0.0, 6.0)}
_Result = str | Sequence[str]
_Converter = Callable[[_GraphBuilder, TFLiteOperator], _Result]


def _add_clip(b: _GraphBuilder, name: str, low: float, high: float) -> str:
    bounds = (b.add_constant(np.float32(bound)) for bound in (low, high))
    return b.add("Clip", name, *bounds)


def _get_inputs(b: _GraphBuilder, operator: TFLiteOperator) -> list[str]:
    return [b.get_name(one) for one in operator.inputs if one is not None]


def _make_renamed(op: str, **attributes: Any) -> _Converter:
    """Return the converter of an operator that ONNX has with the same inputs."""
    return lambda b, operator: b.add(op, *_get_inputs(b, operator), **attributes)


def _make_clip(low: float, high: float) -> _Converter:
    return lambda b, operator: _add_clip(b, b.get_name(operator.inputs[0]), low, high)


# --- weights ---------------------------------------------------------------------------------


def _get_window_words(b: _GraphBuilder) -> dict[str, Any]:
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


def _convert_convolution(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
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


def _convert_transposed_convolution(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
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


def _convert_fully_connected(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    source, weights, *bias = operator.inputs
    values = b.get_values(weights)
    rows = b.add_reshape(b.get_name(source), (-1, values.shape[1]))
    more = [b.get_name(one) for one in bias if one is not None]
    product = b.add("Gemm", rows, b.add_constant(values.T), *more)
    return b.add_reshape(product, operator.outputs[0].shape)


def _convert_batch_matmul(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    names = []
    for tensor, flag in zip(operator.inputs, ("adj_x", "adj_y"), strict=True):
        assert tensor is not None
        rank, name = len(tensor.shape), b.get_name(tensor)
        if b.get_option(flag):
            name = b.add("Transpose", name, perm=(*range(rank - 2), rank - 1, rank - 2))
        names.append(name)
    return b.add("MatMul", *names)


# --- images ----------------------------------------------------------------------------------


def _make_pool(op: str) -> _Converter:
    def convert(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
        (source,) = operator.inputs
        assert source is not None
        return b.add_image_operator(op, source, **_get_window_words(b))

    return convert


def _make_resize(mode: str) -> _Converter:
    def convert(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
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


def _make_space_to_depth(op: str) -> _Converter:
    def convert(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
        (source,) = operator.inputs
        assert source is not None
        return b.add_image_operator(op, source, blocksize=b.get_option("block_size"))

    return convert


def _convert_pad(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    source, paddings, *value = operator.inputs
    pairs = b.get_values(paddings)
    pads = b.add_integers(*pairs[:, 0].tolist(), *pairs[:, 1].tolist())
    mode = "constant"
    if operator.name == "MIRROR_PAD":
        require(b.get_option("mode") == 0, "mode SYMMETRIC", "mode REFLECT")
        mode = "reflect"
    more = [b.get_name(one) for one in value if one is not None]
    return b.add("Pad", b.get_name(source), pads, *more, mode=mode)


def _make_reduction(op: str) -> _Converter:
    def convert(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
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


def _convert_reshape(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    return b.add_reshape(b.get_name(operator.inputs[0]), operator.outputs[0].shape)


def _convert_transpose(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    source, order = operator.inputs
    return b.add("Transpose", b.get_name(source), perm=tuple(b.get_values(order).tolist()))


def _convert_concatenation(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    return b.add("Concat", *_get_inputs(b, operator), axis=b.get_option("axis"))


def _convert_pack(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    shape, axis = operator.outputs[0].shape, b.get_option("axis") % len(operator.outputs[0].shape)
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    names = [b.add_reshape(name, one) for name in _get_inputs(b, operator)]
    return b.add("Concat", *names, axis=axis)


def _add_slice(
    b: _GraphBuilder, name: str, begin: Sequence[int], end: Sequence[int], steps: Sequence[int]
) -> str:
    rows = begin, end, range(len(begin)), steps
    return b.add("Slice", name, *(b.add_integers(*map(int, row)) for row in rows))


def _convert_unpack(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    (source,) = operator.inputs
    assert source is not None
    axis, results = b.get_option("axis") % len(source.shape), []
    for index, target in enumerate(operator.outputs):
        begin, end = [0] * len(source.shape), list(source.shape)
        begin[axis], end[axis] = index, index + 1
        one = _add_slice(b, b.get_name(source), begin, end, [1] * len(begin))
        results.append(b.add_reshape(one, target.shape))
    return results


def _convert_slice(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    source, begins, sizes = operator.inputs
    assert source is not None
    begin = b.get_values(begins).tolist()
    end = [
        first + size if size >= 0 else own
        for first, size, own in zip(begin, b.get_values(sizes).tolist(), source.shape, strict=True)
    ]
    return _add_slice(b, b.get_name(source), begin, end, [1] * len(begin))


def _convert_strided_slice(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
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


def _convert_split(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
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


def _convert_dequantize(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
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


def _convert_cast(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    dtype = operator.outputs[0].dtype
    require(dtype in _ONNX_TYPES, f"a cast to {dtype}", "a type of ONNX")
    return b.add("Cast", b.get_name(operator.inputs[0]), to=_ONNX_TYPES[dtype])


def _convert_softmax(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    name, beta = b.get_name(operator.inputs[0]), b.get_option("beta")
    if beta != 1:
        name = b.add("Mul", name, b.add_constant(np.float32(beta)))
    return b.add("Softmax", name, axis=-1)


def _convert_leaky_relu(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    return b.add("LeakyRelu", b.get_name(operator.inputs[0]), alpha=b.get_option("alpha"))


def _convert_square(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    name = b.get_name(operator.inputs[0])
    return b.add("Mul", name, name)


def _convert_rsqrt(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    return b.add("Reciprocal", b.add("Sqrt", b.get_name(operator.inputs[0])))


def _convert_squared_difference(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    difference = b.add("Sub", *_get_inputs(b, operator))
    return b.add("Mul", difference, difference)


def _convert_arg_max(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    source, axes = operator.inputs
    axis = int(b.get_values(axes).reshape(()))
    op = {"ARG_MAX": "ArgMax", "ARG_MIN": "ArgMin"}[operator.name]
    return b.add(op, b.get_name(source), axis=axis, keepdims=0)


def _convert_shape(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    (source,) = operator.inputs
    assert source is not None
    return b.add_constant(np.array(source.shape, operator.outputs[0].dtype))


def _convert_gather(b: _GraphBuilder, operator: TFLiteOperator) -> _Result:
    require(not b.get_option("batch_dims"), "batch_dims", "batch_dims 0")
    return b.add("Gather", *_get_inputs(b, operator), axis=b.get_option("axis"))


_OPERATORS: Mapping[str, _Converter] = {
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
