"""Translation of the operations of float PyTorch models to ONNX operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.nodes import Shape
from nmpsim.frontends.graph.operation import bind_attributes
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, Translation
from nmpsim.frontends.torch.movement import MOVEMENTS, translate_identity, translate_pad
from nmpsim.frontends.torch.recording import RecordedTensor


def _name_tensors(builder: TorchGraphBuilder, *arguments: str) -> list[str]:
    """Return the names of arguments that are tensors."""
    given: list[Any] = [builder.arguments.get(argument) for argument in arguments]
    for argument, one in zip(arguments, given, strict=True):
        require(isinstance(one, RecordedTensor), f"{argument} {one}", "a tensor")
    return [builder.get_name(one) for one in given]


def _name_temporary(builder: TorchGraphBuilder, suffix: str) -> str:
    """Return a new name for a tensor between two nodes."""
    return builder.unique_name(f"{builder.call.name}.{suffix}".strip("."))


def _add_number(builder: TorchGraphBuilder, name: str, value: float) -> str:
    return builder.add_constant(name, np.array(value, np.float32))


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
    output_padding: Sequence[int],
    groups: int,
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


def make_pair(value: Any) -> tuple[int, int]:
    """Return the values for rows and columns from a tuple, or one number for both."""
    sizes = value if isinstance(value, tuple) else (value,)
    return int(sizes[0]), int(sizes[-1])


def make_pool_translation(op: str) -> Translation:
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


def find_adaptive_window(builder: TorchGraphBuilder) -> Shape:
    """Return the window of an adaptive pool whose windows have one size and do not overlap."""
    shape, out = builder.get_first_tensor().shape, builder.result.shape[2:]
    require(len(shape) == 4, f"an input of shape {list(shape)}", "4 dimensions")
    pairs = list(zip(shape[2:], out, strict=True))
    require(
        all(size and own % size == 0 for own, size in pairs),
        f"{list(shape[2:])} pooled to {list(out)}",
        "windows of one size",
    )
    return tuple(own // size for own, size in pairs)


def _adaptive_pool(op: str) -> Translation:
    def translate(builder: TorchGraphBuilder) -> None:
        window = find_adaptive_window(builder)
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
                names.append(_add_number(builder, name, float(side) * factor))
                continue
            require(side.dtype == "float32", f"an operand of {side.dtype}", "float32")
            names.append(builder.get_name(side))
            if factor != 1:
                multiplier = _add_number(builder, f"{builder.call.name}.alpha".strip("."), factor)
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
    translate_identity(builder)


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
    number = _add_number(builder, "exponent", float(exponent))
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


# --- formulas of several operators -----------------------------------------------------------


_Writer = Callable[..., str]
"""Adds an operator on tensor names and numbers, and returns the name of its result."""


def _write_operator(builder: TorchGraphBuilder, op: str, *operands: str | float) -> str:
    names = [
        one if isinstance(one, str) else _add_number(builder, "number", one) for one in operands
    ]
    return builder.add_node(op, names, builder.unique_name(op.lower()))


def _formula(write: Callable[..., str]) -> Translation:
    """Return the translation of a function of each value to several operators.

    ``write`` takes a :data:`_Writer`, the name of the operand, and arguments of the operation.
    """

    def translate(builder: TorchGraphBuilder, self: RecordedTensor) -> None:
        given = bind_attributes(write, builder.arguments)
        write(functools.partial(_write_operator, builder), builder.get_name(self), **given)
        builder.steps[-1] = attrs.evolve(builder.steps[-1], outputs=(builder.get_first_output(),))

    return translate


def _write_gelu(write: _Writer, x: str, approximate: str = "none") -> str:
    """Add ``x * (1 + erf(x / sqrt(2))) / 2``, or its approximation by tanh."""
    if approximate == "tanh":
        cube = write("Mul", write("Mul", write("Mul", x, x), x), 0.044715)
        inner = write("Mul", write("Add", x, cube), math.sqrt(2 / math.pi))
        share = write("Tanh", inner)
    else:
        share = write("Erf", write("Mul", x, math.sqrt(0.5)))
    return write("Mul", write("Mul", x, write("Add", share, 1.0)), 0.5)


def _write_elu(
    write: _Writer, x: str, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> str:
    """Add ``scale * (max(x, 0) + alpha * (exp(input_scale * min(x, 0)) - 1))``."""
    below = write("Mul", write("Neg", write("Relu", write("Neg", x))), input_scale)
    bent = write("Mul", write("Sub", write("Exp", below), 1.0), alpha)
    return write("Mul", write("Add", write("Relu", x), bent), scale)


def _write_softplus(write: _Writer, x: str) -> str:
    """Add ``log(1 + exp(x))``, computed without an exponential of more than 0."""
    small = write("Exp", write("Neg", write("Abs", x)))
    return write("Add", write("Relu", x), write("Log", write("Add", small, 1.0)))


def _write_scaled_softplus(write: _Writer, x: str, beta: float = 1.0) -> str:
    """Add ``log(1 + exp(beta * x)) / beta``."""
    return write("Div", _write_softplus(write, write("Mul", x, beta)), beta)


FLOAT_OPERATIONS: dict[str, Translation] = {
    **MOVEMENTS,
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
    "aten._to_copy": translate_identity,
    "aten.adaptive_max_pool2d": _adaptive_pool("MaxPool"),
    "aten.add": _binary("Add"),
    "aten.addmm": _operator(
        "Gemm", "mat1", "mat2", "self", alpha=_Argument("alpha"), beta=_Argument("beta")
    ),
    "aten.avg_pool2d": make_pool_translation("AveragePool"),
    "aten.bmm": _operator("MatMul", "self", "mat2"),
    "aten.cat": _translate_concatenation,
    "aten.celu": _formula(
        lambda write, x, alpha=1.0: _write_elu(write, x, alpha, input_scale=1 / alpha)
    ),
    "aten.channel_shuffle": _translate_channel_shuffle,
    "aten.clamp": _operator("Clip", min=_Argument("min"), max=_Argument("max")),
    "aten.clamp_max": _operator("Clip", max=_Argument("max")),
    "aten.clamp_min": _operator("Clip", min=_Argument("min")),
    "aten.constant_pad_nd": translate_pad,
    "aten.convolution": _translate_convolution,
    "aten.div": _binary("Div"),
    "aten.elu": _formula(_write_elu),
    "aten.expand": _translate_expand,
    "aten.gelu": _formula(_write_gelu),
    "aten.hardsigmoid": _operator("HardSigmoid", alpha=1 / 6, beta=0.5),
    "aten.hardtanh": _operator("Clip", min=_Argument("min_val"), max=_Argument("max_val")),
    "aten.leaky_relu": _operator("LeakyRelu", alpha=_Argument("negative_slope")),
    "aten.linear": _translate_linear,
    "aten.max_pool2d_with_indices": make_pool_translation("MaxPool"),
    "aten.maximum": _operator("Max", "self", "other"),
    "aten.mean": _translate_mean,
    "aten.minimum": _operator("Min", "self", "other"),
    "aten.mish": _formula(
        lambda write, x: write("Mul", x, write("Tanh", _write_softplus(write, x)))
    ),
    "aten.mm": _operator("MatMul", "self", "mat2"),
    "aten.mul": _binary("Mul"),
    "aten.native_batch_norm": _translate_batch_norm,
    "aten.pixel_shuffle": _operator(
        "DepthToSpace", blocksize=_Argument("upscale_factor", int), mode="CRD"
    ),
    "aten.pow": _translate_power,
    "aten.rsqrt": _formula(lambda write, x: write("Reciprocal", write("Sqrt", x))),
    "aten.rsub": _binary("Sub", is_reversed=True),
    "aten.select": _translate_select,
    "aten.silu": _formula(lambda write, x: write("Mul", x, write("Sigmoid", x))),
    "aten.softplus": _formula(_write_scaled_softplus),
    "aten.stack": _translate_stack,
    "aten.sub": _binary("Sub"),
    "aten.upsample_nearest2d": _translate_upsample,
}
"""Operation of PyTorch -> translation."""
