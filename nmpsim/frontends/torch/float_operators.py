"""Translation of the operations of float PyTorch models to ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.nodes import (
    INTEGER_RANGES,
    Array,
    IntegerOperation,
    QuantizedTensor,
    Shape,
)
from nmpsim.frontends.graph.operators import read_operators
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.torch.graph_builder import (
    TorchGraphBuilder,
    Translation,
    find_adaptive_window,
    find_paddings,
    find_permutation,
    make_pair,
)
from nmpsim.frontends.torch.recording import TABLE, RecordedTensor


def _name_tensors(builder: TorchGraphBuilder, *arguments: str) -> list[str]:
    """Return the names of arguments that are tensors."""
    given: list[Any] = [builder.arguments.get(argument) for argument in arguments]
    for argument, one in zip(arguments, given, strict=True):
        require(isinstance(one, RecordedTensor), f"{argument} {one}", f"a tensor as {argument}")
    return [builder.resolve_name(one) for one in given]


def _name_temporary(builder: TorchGraphBuilder, suffix: str) -> str:
    """Return a new name for a tensor between two nodes."""
    return builder.make_unique(f"{builder.call.name}.{suffix}".strip("."))


def _read_argument(builder: TorchGraphBuilder, name: str, kind: str) -> Any:
    """Return a number of the current operation as int or float, None if it has none."""
    value = builder.arguments.get(name)
    require(not isinstance(value, RecordedTensor), f"a tensor as {name}", f"a number as {name}")
    return None if value is None else int(value) if kind == "int" else float(value)


def translate_operator(
    builder: TorchGraphBuilder,
    *,
    op: str,
    operands: Sequence[str] = ("self",),
    reads: Mapping[str, str] = MappingProxyType({}),
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Translate an operation to the ONNX operator ``op`` on the arguments in ``operands``."""
    given = dict(attributes)
    for attribute, words in reads.items():
        kind, name = words.split()
        given[attribute] = _read_argument(builder, name, kind)
    builder.add_node(op, _name_tensors(builder, *operands), **given)


def add_number_constant(builder: TorchGraphBuilder, name: str, value: float) -> str:
    """Add a float32 constant with one number; return the constant's name."""
    return builder.add_constant(name, np.array(value, np.float32))


@attrs.frozen
class _FormulaTensor:
    """Tensor in a formula; each operation on it adds a node to the graph."""

    builder: TorchGraphBuilder
    name: str

    def add(self, op: str, *others: _FormulaTensor | float) -> _FormulaTensor:
        """Add an operator of this tensor and other operands; return its result."""
        names = [
            one.name
            if isinstance(one, _FormulaTensor)
            else add_number_constant(self.builder, "number", one)
            for one in (self, *others)
        ]
        result = self.builder.add_node(op, names, self.builder.make_unique(op.lower()))
        return _FormulaTensor(self.builder, result)

    def __add__(self, other: _FormulaTensor | float) -> _FormulaTensor:
        return self.add("Add", other)

    def __sub__(self, other: _FormulaTensor | float) -> _FormulaTensor:
        return self.add("Sub", other)

    def __mul__(self, other: _FormulaTensor | float) -> _FormulaTensor:
        return self.add("Mul", other)

    def __truediv__(self, other: _FormulaTensor | float) -> _FormulaTensor:
        return self.add("Div", other)

    def __neg__(self) -> _FormulaTensor:
        return self.add("Neg")


class _FormulaNames(dict[str, Any]):
    """Names in a formula; a name without a value is an operator."""

    def __missing__(self, op: str) -> Callable[[_FormulaTensor], _FormulaTensor]:
        return lambda operand: operand.add(op)


def translate_formula(
    builder: TorchGraphBuilder,
    self: RecordedTensor,
    *,
    formula: str,
    numbers: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Translate an elementwise function to the ONNX operators in ``formula``."""
    names = _FormulaNames(x=_FormulaTensor(builder, builder.resolve_name(self)))
    for name, default in numbers.items():
        names[name] = type(default)(builder.arguments.get(name, default))
    exec(formula, {}, names)
    builder.steps[-1] = attrs.evolve(builder.steps[-1], outputs=(builder.get_first_output(),))


def translate_convolution(
    builder: TorchGraphBuilder,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    output_padding: Sequence[int] = (),
    bias: Any = None,
) -> None:
    """Translate a convolution to Conv, or a transposed one to ConvTranspose."""
    builder.add_node(
        "ConvTranspose" if transposed else "Conv",
        _name_tensors(builder, "input", "weight", *(() if bias is None else ("bias",))),
        strides=tuple(stride),
        pads=tuple(padding) * 2,
        dilations=tuple(dilation),
        group=groups,
        output_padding=tuple(output_padding) if transposed else None,
    )


def translate_batch_norm(
    builder: TorchGraphBuilder,
    eps: float,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
) -> None:
    """Translate a batch normalization in evaluation mode to BatchNormalization."""
    require(
        not training,
        "a batch normalization in training mode",
        "a model in evaluation mode: call model.eval() first",
    )
    require(
        running_mean is not None and running_var is not None,
        "a batch normalization without running statistics",
        "running statistics: build the layer with track_running_stats=True",
    )
    names = _name_tensors(builder, "input")
    for part, number in (("weight", 1), ("bias", 0)):
        if part in builder.arguments:
            names.append(builder.resolve_name(builder.arguments[part]))
        else:
            values = np.full(running_mean.shape[0], number, np.float32)
            names.append(builder.add_constant(f"{builder.call.name}.{part}", values))
    inputs = [*names, running_mean, running_var]
    builder.add_node("BatchNormalization", inputs, epsilon=float(eps))


def translate_pool(
    builder: TorchGraphBuilder,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = None,
    dilation: Any = None,
    ceil_mode: bool = False,
    divisor_override: Any = None,
    *,
    op: str,
) -> None:
    """Translate a max or average pool to the ONNX operator ``op``."""
    require(
        divisor_override is None, f"divisor_override {divisor_override}", "divisor_override None"
    )
    builder.add_node(
        op,
        _name_tensors(builder, "self"),
        kernel_shape=make_pair(kernel_size),
        strides=make_pair(stride or kernel_size),
        pads=make_pair(padding or 0) * 2,
        dilations=make_pair(dilation or 1),
        ceil_mode=int(ceil_mode),
        count_include_pad=_read_argument(builder, "count_include_pad", "int"),
    )


def translate_adaptive_pool(builder: TorchGraphBuilder, *, op: str) -> None:
    """Translate an adaptive pool to the ONNX pool ``op`` with equal windows without overlap."""
    window = find_adaptive_window(builder.get_first_tensor().shape, builder.result.shape)
    builder.add_node(op, [builder.get_first_tensor()], kernel_shape=window, strides=window)


def translate_binary(
    builder: TorchGraphBuilder,
    self: Any,
    other: Any,
    alpha: float = 1.0,
    rounding_mode: Any = None,
    *,
    op: str,
    is_reversed: bool = False,
) -> None:
    """Translate an operation on two tensors, or a tensor and a number, to the ONNX operator ``op``.

    The second operand, or the first one if the operands are reversed, is multiplied by ``alpha``.
    """
    require(rounding_mode is None, f"rounding_mode {rounding_mode}", "rounding_mode None")
    names, factors = [], (alpha, 1.0) if is_reversed else (1.0, alpha)
    for side, factor in zip((self, other), factors, strict=True):
        if not isinstance(side, RecordedTensor):
            name = f"{builder.call.name}.number".strip(".")
            names.append(add_number_constant(builder, name, float(side) * factor))
            continue
        require(side.dtype == "float32", f"an operand of {side.dtype}", "an operand of float32")
        names.append(builder.resolve_name(side))
        if factor != 1:
            multiplier = add_number_constant(
                builder, f"{builder.call.name}.alpha".strip("."), factor
            )
            scaled = _name_temporary(builder, "scaled")
            names[-1] = builder.add_node("Mul", [names[-1], multiplier], scaled)
    builder.add_node(op, names[::-1] if is_reversed else names)


def translate_linear(builder: TorchGraphBuilder, weight: RecordedTensor, bias: Any = None) -> None:
    """Translate a fully connected layer to MatMul and Add."""
    require(weight.values is not None, "a computed weight", "a constant weight")
    name = weight.name or f"{builder.call.name}.weight"
    source = _name_tensors(builder, "input")
    names = [*source, builder.add_constant(name, np.asarray(weight.values).T)]
    if bias is None:
        builder.add_node("MatMul", names)
        return
    product = builder.add_node("MatMul", names, _name_temporary(builder, "product"))
    builder.add_node("Add", [product, bias])


def _add_reshape(builder: TorchGraphBuilder, source: Any, shape: Shape, *result: str) -> str:
    return builder.add_node("Reshape", [source, builder.add_integer_constant(shape)], *result)


def translate_view(builder: TorchGraphBuilder) -> None:
    """Translate a reshaping operation, such as ``view``, to the ONNX operator Reshape."""
    shape = builder.result.shape
    builder.add_node("Reshape", [builder.get_first_tensor()], shape=shape, allowzero=1)


def translate_identity(builder: TorchGraphBuilder) -> None:
    """Translate a change of memory layout, such as ``contiguous``, to Identity."""
    source, result = builder.get_first_tensor(), builder.result
    require(
        source.dtype == result.dtype,
        f"a conversion from {source.dtype} to {result.dtype}",
        f"a result of the input's type, {source.dtype}",
    )
    builder.add_node("Identity", [source])


def translate_permutation(
    builder: TorchGraphBuilder, dims: Sequence[int] | None = None, dim0: Any = 0, dim1: Any = 1
) -> None:
    """Translate a permutation to Transpose, or permute the integers of constant PT2E weights."""
    source = builder.get_first_tensor()
    order, name = (
        find_permutation(len(source.shape), dims, dim0, dim1),
        builder.resolve_name(source),
    )
    before = next((step for step in reversed(builder.steps) if name in step.outputs), None)
    if before is None or before.inputs[0] not in builder.constants:
        builder.add_node("Transpose", [name], perm=order)
        return
    # Weights of PT2E: their integers are transposed instead.
    stored, *parameters = before.inputs
    values = builder.constants[stored].transpose(order)
    turned = builder.add_constant(f"{stored}_transposed", values)
    builder.add_node(before.op, [turned, *parameters], axis=order.index(before.attributes["axis"]))


def _add_conversion(
    builder: TorchGraphBuilder,
    op: str,
    source: RecordedTensor,
    scale: Any,
    zero_point: Array,
    *outputs: str,
    axis: int = 0,
) -> None:
    name = builder.resolve_name(source)
    parameters = {"scale": np.asarray(scale, np.float32), "zero_point": zero_point}
    constants = [builder.add_constant(f"{name}_{key}", one) for key, one in parameters.items()]
    builder.add_node(op, [name, *constants], *outputs, axis=axis)


def translate_quantize(
    builder: TorchGraphBuilder,
    input: RecordedTensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: str,
) -> None:
    """Translate PT2E's quantization to QuantizeLinear, and to Clip if the range is narrower."""
    require(dtype in ("int8", "uint8"), f"quantization to {dtype}", "quantization to int8 or uint8")
    result, zeros = builder.get_first_output(), np.array(zero_point, dtype)
    if (quant_min, quant_max) == INTEGER_RANGES[dtype]:
        _add_conversion(builder, "QuantizeLinear", input, scale, zeros)
        return
    stored = _name_temporary(builder, "unclipped")
    _add_conversion(builder, "QuantizeLinear", input, scale, zeros, stored)
    source, target = (
        QuantizedTensor(name, dtype, np.array([scale], np.float32), np.array([zero_point]))
        for name in (stored, result)
    )
    limits = (scale * (quant_min - zero_point), scale * (quant_max - zero_point))
    builder.add_node("Clip", [stored])
    operation = IntegerOperation("Clip", (source,), target, limits=limits)
    builder.steps[-1] = attrs.evolve(builder.steps[-1], integers=operation)


def translate_table(
    builder: TorchGraphBuilder, input: RecordedTensor, scale: float, zero_point: int, dtype: str
) -> None:
    """Translate a function of one quantized tensor of PT2E to a look-up table."""
    result = QuantizedTensor(
        builder.get_first_output(), dtype, np.array([scale], np.float32), np.array([zero_point])
    )
    builder.add_node(TABLE, [input], table=builder.call.tables[0], result=result)


def translate_dequantize(
    builder: TorchGraphBuilder, input: RecordedTensor, scale: Any, zero_point: int
) -> None:
    """Translate PT2E's dequantization with one scale to DequantizeLinear."""
    zero = np.array(zero_point, input.dtype)
    _add_conversion(builder, "DequantizeLinear", input, scale, zero)


def translate_dequantize_channels(
    builder: TorchGraphBuilder,
    input: RecordedTensor,
    scales: RecordedTensor,
    zero_points: RecordedTensor,
    axis: int,
) -> None:
    """Translate PT2E's dequantization with channel scales to DequantizeLinear."""
    require(scales.values is not None, "computed scales", "constant scales")
    require(zero_points.values is not None, "computed zero points", "constant zero points")
    zeros = np.asarray(zero_points.values, input.dtype)
    _add_conversion(builder, "DequantizeLinear", input, scales.values, zeros, axis=axis)


def translate_slice(
    builder: TorchGraphBuilder, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> None:
    """Translate a slice along one dimension to the ONNX operator Slice."""
    source = builder.get_first_tensor()
    axis = dim % len(source.shape)
    start, end, _ = slice(start, end).indices(source.shape[axis])
    builder.add_node("Slice", [source], starts=(start,), ends=(end,), axes=(axis,), steps=(step,))


def translate_split(builder: TorchGraphBuilder, dim: int = 0) -> None:
    """Translate a split along one dimension to the ONNX operator Split."""
    source = builder.get_first_tensor()
    axis = dim % len(source.shape)
    sizes = tuple(result.shape[axis] for result in builder.call.results)
    builder.add_node("Split", [source], *builder.iterate_output_names(), axis=axis, split=sizes)


def translate_pad(builder: TorchGraphBuilder, pad: Sequence[int], value: float = 0.0) -> None:
    """Translate padding with a constant value to the ONNX operator Pad."""
    before, after = find_paddings(len(builder.result.shape), pad)
    builder.add_node("Pad", [builder.get_first_tensor()], pads=(*before, *after), value=value)


def translate_select(builder: TorchGraphBuilder, dim: int, index: int) -> None:
    """Translate the selection of one index along a dimension to Slice and Reshape nodes."""
    source = builder.get_first_tensor()
    axis = dim % len(source.shape)
    start = index % source.shape[axis]
    numbers = [builder.add_integer_constant([one]) for one in (start, start + 1, axis)]
    part = builder.add_node("Slice", [source, *numbers], _name_temporary(builder, "part"))
    _add_reshape(builder, part, builder.result.shape)


def translate_concatenation(
    builder: TorchGraphBuilder, tensors: Sequence[RecordedTensor], dim: int = 0
) -> None:
    """Translate a concatenation to Concat, without tensors of shape (0,)."""
    builder.add_node("Concat", [part for part in tensors if part.shape != (0,)], axis=dim)


def translate_stack(
    builder: TorchGraphBuilder, tensors: Sequence[RecordedTensor], dim: int
) -> None:
    """Translate a concatenation along a new dimension to Reshape and Concat nodes."""
    shape = builder.result.shape
    axis = dim % len(shape)
    single = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [
        _add_reshape(builder, part, single, _name_temporary(builder, "part")) for part in tensors
    ]
    builder.add_node("Concat", parts, axis=axis)


def translate_expand(builder: TorchGraphBuilder) -> None:
    """Translate an expansion to Identity; raise UnsupportedError if it changes the shape."""
    own, shape = builder.get_first_tensor().shape, builder.result.shape
    require(
        own == shape,
        f"an expansion from {list(own)} to {list(shape)}",
        "an expansion to the same shape",
    )
    translate_identity(builder)


def translate_channel_shuffle(builder: TorchGraphBuilder, groups: int) -> None:
    """Translate a channel shuffle to Reshape, Transpose and Reshape."""
    shape = builder.result.shape
    images, channels, *rest = shape
    split = (images, groups, channels // groups, *rest)
    (source,) = _name_tensors(builder, "self")
    grouped = _add_reshape(builder, source, split, _name_temporary(builder, "apart"))
    order = (0, 2, 1, *range(3, 3 + len(rest)))
    swapped = _name_temporary(builder, "turned")
    _add_reshape(builder, builder.add_node("Transpose", [grouped], swapped, perm=order), shape)


def translate_power(builder: TorchGraphBuilder, exponent: Any) -> None:
    """Translate a power with a constant exponent to the ONNX operator Pow."""
    require(
        not isinstance(exponent, RecordedTensor), "a tensor as exponent", "a number as exponent"
    )
    number = add_number_constant(builder, "exponent", float(exponent))
    builder.add_node("Pow", [*_name_tensors(builder, "self"), number])


def translate_mean(builder: TorchGraphBuilder, dim: Any = None, keepdim: bool = False) -> None:
    """Translate a mean over the dimensions ``dim``, by default over all, to ReduceMean."""
    source = builder.get_first_tensor()
    numbers = builder.add_integer_constant(np.ravel(dim or range(len(source.shape))))
    builder.add_node("ReduceMean", [source, numbers], keepdims=int(keepdim))


def translate_prelu(
    builder: TorchGraphBuilder, self: RecordedTensor, weight: RecordedTensor
) -> None:
    """Translate a PReLU with constant slopes to the ONNX operator PRelu."""
    require(weight.values is not None, "a computed weight", "a constant weight")
    slopes = np.asarray(weight.values)
    shape = [1] * len(self.shape)
    if len(shape) > 1:
        shape[1] = slopes.size
    name = weight.name or f"{builder.call.name}.weight"
    builder.add_node("PRelu", [self, builder.add_constant(name, slopes.reshape(shape))])


def translate_upsample(builder: TorchGraphBuilder) -> None:
    """Translate nearest-neighbor upsampling to the ONNX operator Resize."""
    builder.add_node(
        "Resize",
        [builder.get_first_tensor(), "", "", builder.add_integer_constant(builder.result.shape)],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@attrs.frozen
class _TranslationRow:
    translate: Translation


_ROWS = read_operators(Path(__file__).with_name("float_operations.toml"), _TranslationRow)
FLOAT_OPERATIONS = {operation: row.translate for operation, row in _ROWS.items()}
"""Operation of PyTorch -> translation."""
