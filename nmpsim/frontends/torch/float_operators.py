"""Translation of the operations of float PyTorch models to ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.torch.arguments import (
    VIEWS,
    find_adaptive_window,
    find_paddings,
    find_permutation,
    make_pair,
)
from nmpsim.frontends.torch.float_formulas import FORMULAS, add_number
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, Translation
from nmpsim.frontends.torch.recording import RecordedTensor


def _name_tensors(builder: TorchGraphBuilder, *arguments: str) -> list[str]:
    """Return the names of arguments that are tensors."""
    given: list[Any] = [builder.arguments.get(argument) for argument in arguments]
    for argument, one in zip(arguments, given, strict=True):
        require(isinstance(one, RecordedTensor), f"{argument} {one}", "a tensor")
    return [builder.get_name(one) for one in given]


def _name_temporary(builder: TorchGraphBuilder, suffix: str) -> str:
    """Return a new name for a tensor between two nodes."""
    return builder.make_unique(f"{builder.call.name}.{suffix}".strip("."))


@attrs.frozen
class _Argument:
    """Attribute of an operator that is an argument of the PyTorch operation, or left out."""

    name: str
    convert: Callable[[Any], Any] = float

    def read(self, builder: TorchGraphBuilder) -> Any:
        """Return the converted argument of the current operation, None if it has none."""
        value = builder.arguments.get(self.name)
        require(not isinstance(value, RecordedTensor), f"a tensor as {self.name}", "a number")
        return None if value is None else self.convert(value)


def _operator(op: str, *arguments: str, **attributes: Any) -> Translation:
    """Return the translation to one operator of some arguments, by default ``self``."""

    def translate(builder: TorchGraphBuilder) -> None:
        given = {
            name: value.read(builder) if isinstance(value, _Argument) else value
            for name, value in attributes.items()
        }
        builder.add_node(op, _name_tensors(builder, *(arguments or ("self",))), **given)

    return translate


def _translate_convolution(
    builder: TorchGraphBuilder,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    output_padding: Sequence[int] = (),
    bias: Any = None,
) -> None:
    builder.add_node(
        "ConvTranspose" if transposed else "Conv",
        _name_tensors(builder, "input", "weight", *(() if bias is None else ("bias",))),
        strides=tuple(stride),
        pads=tuple(padding) * 2,
        dilations=tuple(dilation),
        group=groups,
        output_padding=tuple(output_padding) if transposed else None,
    )


def _translate_batch_norm(
    builder: TorchGraphBuilder,
    eps: float,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
) -> None:
    require(not training, "training True", "training False")
    require(running_mean is not None, "running_mean None", "a running mean")
    require(running_var is not None, "running_var None", "a running variance")
    names = _name_tensors(builder, "input")
    for part, number in (("weight", 1), ("bias", 0)):
        if part in builder.arguments:
            names.append(builder.get_name(builder.arguments[part]))
        else:
            values = np.full(running_mean.shape[0], number, np.float32)
            names.append(builder.add_constant(f"{builder.call.name}.{part}", values))
    inputs = [*names, running_mean, running_var]
    builder.add_node("BatchNormalization", inputs, epsilon=float(eps))


def _pool(op: str) -> Translation:
    """Return a function that translates a PyTorch pool to an ONNX pool."""

    def translate(
        builder: TorchGraphBuilder,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = None,
        dilation: Any = None,
        ceil_mode: bool = False,
        divisor_override: Any = None,
    ) -> None:
        require(divisor_override is None, f"divisor_override {divisor_override}", "None")
        builder.add_node(
            op,
            _name_tensors(builder, "self"),
            kernel_shape=make_pair(kernel_size),
            strides=make_pair(stride or kernel_size),
            pads=make_pair(padding or 0) * 2,
            dilations=make_pair(dilation or 1),
            ceil_mode=int(ceil_mode),
            count_include_pad=_Argument("count_include_pad", int).read(builder),
        )

    return translate


def _adaptive_pool(op: str) -> Translation:
    def translate(builder: TorchGraphBuilder) -> None:
        window = find_adaptive_window(builder.get_first_tensor().shape, builder.result.shape)
        builder.add_node(op, [builder.get_first_tensor()], kernel_shape=window, strides=window)

    return translate


def _binary(op: str, is_reversed: bool = False) -> Translation:
    """Return the translation of an operator on two tensors, or a tensor and a number.

    The second operand, or the first one if the operands are reversed, is multiplied by ``alpha``.
    """

    def translate(
        builder: TorchGraphBuilder,
        self: Any,
        other: Any,
        alpha: float = 1.0,
        rounding_mode: Any = None,
    ) -> None:
        require(rounding_mode is None, f"rounding_mode {rounding_mode}", "None")
        names, factors = [], (alpha, 1.0) if is_reversed else (1.0, alpha)
        for side, factor in zip((self, other), factors, strict=True):
            if not isinstance(side, RecordedTensor):
                name = f"{builder.call.name}.number".strip(".")
                names.append(add_number(builder, name, float(side) * factor))
                continue
            require(side.dtype == "float32", f"an operand of {side.dtype}", "float32")
            names.append(builder.get_name(side))
            if factor != 1:
                multiplier = add_number(builder, f"{builder.call.name}.alpha".strip("."), factor)
                scaled = _name_temporary(builder, "scaled")
                names[-1] = builder.add_node("Mul", [names[-1], multiplier], scaled)
        builder.add_node(op, names[::-1] if is_reversed else names)

    return translate


def _translate_linear(builder: TorchGraphBuilder, weight: RecordedTensor, bias: Any = None) -> None:
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
    return builder.add_node("Reshape", [source, builder.add_integers(shape)], *result)


def _translate_view(builder: TorchGraphBuilder) -> None:
    shape = builder.result.shape
    builder.add_node("Reshape", [builder.get_first_tensor()], shape=shape, allowzero=1)


def _translate_identity(builder: TorchGraphBuilder) -> None:
    """Translate an operation that only changes the memory layout in PyTorch."""
    source, result = builder.get_first_tensor(), builder.result
    require(source.dtype == result.dtype, f"{source.dtype} to {result.dtype}", "equal types")
    builder.add_node("Identity", [source])


def _translate_permutation(
    builder: TorchGraphBuilder, dims: Sequence[int] | None = None, dim0: Any = 0, dim1: Any = 1
) -> None:
    source = builder.get_first_tensor()
    order, name = find_permutation(len(source.shape), dims, dim0, dim1), builder.get_name(source)
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
    name = builder.get_name(source)
    parameters = {"scale": np.asarray(scale, np.float32), "zero_point": zero_point}
    constants = [builder.add_constant(f"{name}_{key}", one) for key, one in parameters.items()]
    builder.add_node(op, [name, *constants], *outputs, axis=axis)


def _translate_quantize(
    builder: TorchGraphBuilder,
    input: RecordedTensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: str,
) -> None:
    """Translate PT2E's quantization, whose range may be narrower than that of its type."""
    require(dtype in ("int8", "uint8"), f"quantization to {dtype}", "int8 or uint8")
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


def _translate_dequantize(
    builder: TorchGraphBuilder, input: RecordedTensor, scale: Any, zero_point: int
) -> None:
    zero = np.array(zero_point, input.dtype)
    _add_conversion(builder, "DequantizeLinear", input, scale, zero)


def _translate_dequantize_channels(
    builder: TorchGraphBuilder,
    input: RecordedTensor,
    scales: RecordedTensor,
    zero_points: RecordedTensor,
    axis: int,
) -> None:
    require(
        scales.values is not None and zero_points.values is not None,
        "scales that are not constants",
        "constants",
    )
    zeros = np.asarray(zero_points.values, input.dtype)
    _add_conversion(builder, "DequantizeLinear", input, scales.values, zeros, axis=axis)


def _translate_slice(
    builder: TorchGraphBuilder, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> None:
    source = builder.get_first_tensor()
    axis = dim % len(source.shape)
    start, end, _ = slice(start, end).indices(source.shape[axis])
    builder.add_node("Slice", [source], starts=(start,), ends=(end,), axes=(axis,), steps=(step,))


def _translate_split(builder: TorchGraphBuilder, dim: int = 0) -> None:
    source = builder.get_first_tensor()
    axis = dim % len(source.shape)
    sizes = tuple(result.shape[axis] for result in builder.call.results)
    builder.add_node("Split", [source], *builder.get_output_names(), axis=axis, split=sizes)


def _translate_pad(builder: TorchGraphBuilder, pad: Sequence[int], value: float = 0.0) -> None:
    before, after = find_paddings(len(builder.result.shape), pad)
    builder.add_node("Pad", [builder.get_first_tensor()], pads=(*before, *after), value=value)


def _translate_select(builder: TorchGraphBuilder, dim: int, index: int) -> None:
    source = builder.get_first_tensor()
    axis = dim % len(source.shape)
    start = index % source.shape[axis]
    numbers = [builder.add_integers([one]) for one in (start, start + 1, axis)]
    part = builder.add_node("Slice", [source, *numbers], _name_temporary(builder, "part"))
    _add_reshape(builder, part, builder.result.shape)


def _translate_concatenation(
    builder: TorchGraphBuilder, tensors: Sequence[RecordedTensor], dim: int = 0
) -> None:
    builder.add_node("Concat", [part for part in tensors if part.shape != (0,)], axis=dim)


def _translate_stack(
    builder: TorchGraphBuilder, tensors: Sequence[RecordedTensor], dim: int
) -> None:
    shape = builder.result.shape
    axis = dim % len(shape)
    single = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [
        _add_reshape(builder, part, single, _name_temporary(builder, "part")) for part in tensors
    ]
    builder.add_node("Concat", parts, axis=axis)


def _translate_expand(builder: TorchGraphBuilder) -> None:
    own, shape = builder.get_first_tensor().shape, builder.result.shape
    require(own == shape, f"an expansion from {list(own)} to {list(shape)}", "equal shapes")
    _translate_identity(builder)


def _translate_channel_shuffle(builder: TorchGraphBuilder, groups: int) -> None:
    shape = builder.result.shape
    images, channels, *rest = shape
    split = (images, groups, channels // groups, *rest)
    (source,) = _name_tensors(builder, "self")
    grouped = _add_reshape(builder, source, split, _name_temporary(builder, "apart"))
    order = (0, 2, 1, *range(3, 3 + len(rest)))
    swapped = _name_temporary(builder, "turned")
    _add_reshape(builder, builder.add_node("Transpose", [grouped], swapped, perm=order), shape)


def _translate_power(builder: TorchGraphBuilder, exponent: Any) -> None:
    require(not isinstance(exponent, RecordedTensor), "a tensor as exponent", "a number")
    number = add_number(builder, "exponent", float(exponent))
    builder.add_node("Pow", [*_name_tensors(builder, "self"), number])


def _translate_mean(builder: TorchGraphBuilder, dim: Any = None, keepdim: bool = False) -> None:
    source = builder.get_first_tensor()
    numbers = builder.add_integers(np.ravel(dim or range(len(source.shape))))
    builder.add_node("ReduceMean", [source, numbers], keepdims=int(keepdim))


def _translate_prelu(
    builder: TorchGraphBuilder, self: RecordedTensor, weight: RecordedTensor
) -> None:
    require(weight.values is not None, "a computed weight", "a constant weight")
    slopes = np.asarray(weight.values)
    shape = [1] * len(self.shape)
    if len(shape) > 1:
        shape[1] = slopes.size
    name = weight.name or f"{builder.call.name}.weight"
    builder.add_node("PRelu", [self, builder.add_constant(name, slopes.reshape(shape))])


def _translate_upsample(builder: TorchGraphBuilder) -> None:
    builder.add_node(
        "Resize",
        [builder.get_first_tensor(), "", "", builder.add_integers(builder.result.shape)],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


FLOAT_OPERATIONS: dict[str, Translation] = {
    **FORMULAS,
    **{f"aten.{name}": _translate_identity for name in ("alias", "clone", "contiguous", "detach")},
    **{f"aten.{name}": _translate_view for name in VIEWS},
    **{
        f"aten.{name}": _operator(op)
        for name, op in {
            "abs": "Abs",
            "erf": "Erf",
            "exp": "Exp",
            "hardswish": "HardSwish",
            "log": "Log",
            "neg": "Neg",
            "reciprocal": "Reciprocal",
            "relu": "Relu",
            "sigmoid": "Sigmoid",
            "sqrt": "Sqrt",
            "tanh": "Tanh",
        }.items()
    },
    "aten._adaptive_avg_pool2d": _adaptive_pool("AveragePool"),
    "aten._log_softmax": _operator("LogSoftmax", axis=_Argument("dim", int)),
    "aten._native_batch_norm_legit_no_training": _translate_batch_norm,
    "aten._prelu_kernel": _translate_prelu,
    "aten._softmax": _operator("Softmax", axis=_Argument("dim", int)),
    "aten._to_copy": _translate_identity,
    "aten.adaptive_max_pool2d": _adaptive_pool("MaxPool"),
    "aten.add": _binary("Add"),
    "aten.addmm": _operator(
        "Gemm", "mat1", "mat2", "self", alpha=_Argument("alpha"), beta=_Argument("beta")
    ),
    "aten.avg_pool2d": _pool("AveragePool"),
    "aten.bmm": _operator("MatMul", "self", "mat2"),
    "aten.cat": _translate_concatenation,
    "aten.channel_shuffle": _translate_channel_shuffle,
    "aten.clamp": _operator("Clip", min=_Argument("min"), max=_Argument("max")),
    "aten.clamp_max": _operator("Clip", max=_Argument("max")),
    "aten.clamp_min": _operator("Clip", min=_Argument("min")),
    "aten.constant_pad_nd": _translate_pad,
    "aten.convolution": _translate_convolution,
    "aten.div": _binary("Div"),
    "aten.expand": _translate_expand,
    "aten.hardsigmoid": _operator("HardSigmoid", alpha=1 / 6, beta=0.5),
    "aten.hardtanh": _operator("Clip", min=_Argument("min_val"), max=_Argument("max_val")),
    "aten.leaky_relu": _operator("LeakyRelu", alpha=_Argument("negative_slope")),
    "aten.linear": _translate_linear,
    "aten.max_pool2d_with_indices": _pool("MaxPool"),
    "aten.maximum": _operator("Max", "self", "other"),
    "aten.mean": _translate_mean,
    "aten.minimum": _operator("Min", "self", "other"),
    "aten.mm": _operator("MatMul", "self", "mat2"),
    "aten.mul": _binary("Mul"),
    "aten.native_batch_norm": _translate_batch_norm,
    "aten.permute": _translate_permutation,
    "aten.pixel_shuffle": _operator(
        "DepthToSpace", blocksize=_Argument("upscale_factor", int), mode="CRD"
    ),
    "aten.pow": _translate_power,
    "aten.rsub": _binary("Sub", is_reversed=True),
    "aten.select": _translate_select,
    "aten.slice": _translate_slice,
    "aten.split": _translate_split,
    "aten.split_with_sizes": _translate_split,
    "aten.stack": _translate_stack,
    "aten.sub": _binary("Sub"),
    "aten.t": _translate_permutation,
    "aten.transpose": _translate_permutation,
    "quantized_decomposed.dequantize_per_channel": _translate_dequantize_channels,
    "quantized_decomposed.dequantize_per_tensor": _translate_dequantize,
    "quantized_decomposed.quantize_per_tensor": _translate_quantize,
    "aten.upsample_nearest2d": _translate_upsample,
}
"""Operation of PyTorch -> translation."""
