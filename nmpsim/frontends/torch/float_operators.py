"""Translation of the operations of float PyTorch models to ONNX operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.nodes import Shape
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, Translation
from nmpsim.frontends.torch.movement import MOVEMENTS, translate_identity, translate_pad
from nmpsim.frontends.torch.recording import RecordedTensor


def _check(has_operator: object) -> None:
    require(has_operator, "a form without an ONNX operator")


def _tensors(builder: TorchGraphBuilder, *arguments: str) -> list[str]:
    """Return the names of arguments that are tensors."""
    given = [builder.arguments[argument] for argument in arguments]
    _check(all(isinstance(one, RecordedTensor) for one in given))
    return [builder.get_name(one) for one in given]


def _local_name(builder: TorchGraphBuilder, suffix: str) -> str:
    return f"{builder.call.name}.{suffix}".strip(".")


def _temporary(builder: TorchGraphBuilder, suffix: str) -> str:
    """Return a new name for a tensor between two nodes."""
    return builder.unique_name(_local_name(builder, suffix))


def _number(builder: TorchGraphBuilder, name: str, value: float) -> str:
    return builder.add_constant(name, np.array(value, np.float32))


def _operator(op: str, *arguments: str, **attributes: Any) -> Translation:
    """Return the translation to one operator of some arguments, by default ``self``."""

    def translate(builder: TorchGraphBuilder) -> None:
        builder.add_node(op, _tensors(builder, *(arguments or ("self",))), **attributes)

    return translate


def _convolution(builder: TorchGraphBuilder) -> None:
    given = builder.arguments
    is_transposed = given["transposed"]
    builder.add_node(
        "ConvTranspose" if is_transposed else "Conv",
        _tensors(builder, "input", "weight", *(("bias",) if given["bias"] is not None else ())),
        strides=tuple(given["stride"]),
        pads=tuple(given["padding"]) * 2,
        dilations=tuple(given["dilation"]),
        group=given["groups"],
        output_padding=tuple(given["output_padding"]) if is_transposed else None,
    )


def _batch_norm(builder: TorchGraphBuilder) -> None:
    given = builder.arguments
    mean, variance = given["running_mean"], given["running_var"]
    _check(not given.get("training") and mean is not None and variance is not None)
    names = _tensors(builder, "input")
    for part, number in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
        if given[part] is None:
            values = np.full(mean.shape[0], number, np.float32)
            names.append(builder.add_constant(f"{builder.call.name}.{part}", values))
        else:
            names.append(builder.get_name(given[part]))
    builder.add_node("BatchNormalization", names, epsilon=float(given["eps"]))


def _clip(low: str, high: str) -> Translation:
    def translate(builder: TorchGraphBuilder) -> None:
        limits = [builder.arguments.get(name) for name in (low, high)]
        _check(not any(isinstance(limit, RecordedTensor) for limit in limits))
        least, most = (None if limit is None else float(limit) for limit in limits)
        builder.add_node("Clip", _tensors(builder, "self"), min=least, max=most)

    return translate


def as_pair(value: Any) -> tuple[int, int]:
    """Return an argument for rows and columns as two integers; a single number stands for both."""
    sizes = value if isinstance(value, tuple) else (value,)
    return int(sizes[0]), int(sizes[-1])


def make_pool_translation(op: str) -> Translation:
    """Return a function that translates a PyTorch pool to an ONNX pool."""

    def translate(builder: TorchGraphBuilder) -> None:
        given = builder.arguments
        _check(given.get("divisor_override") is None)
        counts = given.get("count_include_pad")
        builder.add_node(
            op,
            _tensors(builder, "self"),
            kernel_shape=as_pair(given["kernel_size"]),
            strides=as_pair(given.get("stride") or given["kernel_size"]),
            pads=as_pair(given.get("padding") or 0) * 2,
            dilations=as_pair(given.get("dilation") or 1),
            ceil_mode=int(given.get("ceil_mode", 0)),
            count_include_pad=None if counts is None else int(counts),
        )

    return translate


def _adaptive_pool(op: str) -> Translation:
    """Return the translation of a pool whose windows have one size and do not overlap."""

    def translate(builder: TorchGraphBuilder) -> None:
        source = builder.get_source()
        sizes = list(zip(source.shape[-2:], builder.result.shape[-2:], strict=True))
        _check(len(source.shape) == 4 and not any(own % size for own, size in sizes))
        window = tuple(own // size for own, size in sizes)
        builder.add_node(op, [source], kernel_shape=window, strides=window)

    return translate


def _binary(op: str, is_reversed: bool = False) -> Translation:
    """Return the translation of an operator on two tensors, or a tensor and a number.

    The second operand, or the first one if the operands are reversed, is multiplied by ``alpha``.
    """

    def translate(builder: TorchGraphBuilder) -> None:
        given = builder.arguments
        _check(given.get("rounding_mode") is None)
        factor = given.get("alpha")
        factor = 1.0 if factor is None else float(factor)
        names = []
        for is_second, side in enumerate((given["self"], given["other"])):
            alpha = factor if is_second != is_reversed else 1.0
            if not isinstance(side, RecordedTensor):
                name = _local_name(builder, "number")
                names.append(_number(builder, name, float(side) * alpha))
                continue
            _check(side.dtype == "float32")
            names.append(builder.get_name(side))
            if alpha != 1:
                multiplier = _number(builder, _local_name(builder, "alpha"), alpha)
                scaled = _temporary(builder, "scaled")
                names[-1] = builder.add_node("Mul", [names[-1], multiplier], scaled)
        builder.add_node(op, names[::-1] if is_reversed else names)

    return translate


def _addmm(builder: TorchGraphBuilder) -> None:
    given = builder.arguments
    alpha, beta = float(given["alpha"]), float(given["beta"])
    builder.add_node("Gemm", _tensors(builder, "mat1", "mat2", "self"), alpha=alpha, beta=beta)


def _linear(builder: TorchGraphBuilder) -> None:
    given = builder.arguments
    weights = given["weight"]
    _check(weights.values is not None)
    name = weights.name or f"{builder.call.name}.weight"
    source = _tensors(builder, "input")
    names = [*source, builder.add_constant(name, np.asarray(weights.values).T)]
    if given["bias"] is None:
        builder.add_node("MatMul", names)
        return
    product = builder.add_node("MatMul", names, _temporary(builder, "product"))
    builder.add_node("Add", [product, builder.get_name(given["bias"])])


def _reshape(builder: TorchGraphBuilder, source: str, shape: Shape, *result: str) -> str:
    return builder.add_node("Reshape", [source, builder.add_integers(shape)], *result)


def _select(builder: TorchGraphBuilder) -> None:
    given, source = builder.arguments, builder.get_source()
    axis = given["dim"] % len(source.shape)
    start = given["index"] % source.shape[axis]
    numbers = [builder.add_integers([one]) for one in (start, start + 1, axis)]
    part = builder.add_node("Slice", [source, *numbers], _temporary(builder, "part"))
    _reshape(builder, part, builder.result.shape)


def _concatenation(builder: TorchGraphBuilder) -> None:
    given = builder.arguments
    names = [builder.get_name(part) for part in given["tensors"] if part.shape != (0,)]
    builder.add_node("Concat", names, axis=given["dim"])


def _stack(builder: TorchGraphBuilder) -> None:
    shape, axis = builder.result.shape, builder.arguments["dim"]
    axis %= len(shape)
    single = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [
        _reshape(builder, builder.get_name(part), single, _temporary(builder, "part"))
        for part in builder.arguments["tensors"]
    ]
    builder.add_node("Concat", parts, axis=axis)


def _expand(builder: TorchGraphBuilder) -> None:
    _check(builder.get_source().shape == builder.result.shape)
    translate_identity(builder)


def _channel_shuffle(builder: TorchGraphBuilder) -> None:
    shape, groups = builder.result.shape, builder.arguments["groups"]
    images, channels, *rest = shape
    split = (images, groups, channels // groups, *rest)
    (source,) = _tensors(builder, "self")
    grouped = _reshape(builder, source, split, _temporary(builder, "apart"))
    order = (0, 2, 1, *range(3, 3 + len(rest)))
    swapped = builder.add_node("Transpose", [grouped], _temporary(builder, "turned"), perm=order)
    _reshape(builder, swapped, shape)


def _power(builder: TorchGraphBuilder) -> None:
    exponent = builder.arguments["exponent"]
    _check(not isinstance(exponent, RecordedTensor))
    number = _number(builder, "exponent", float(exponent))
    builder.add_node("Pow", [*_tensors(builder, "self"), number])


def _with_argument(
    op: str, argument: str, attribute: str, read: Callable[[Any], Any] = float
) -> Translation:
    """Return the translation to an operator with one attribute that is an argument."""

    def translate(builder: TorchGraphBuilder) -> None:
        value = read(builder.arguments[argument])
        builder.add_node(op, _tensors(builder, "self"), **{attribute: value})

    return translate


def _mean(builder: TorchGraphBuilder) -> None:
    given = builder.arguments
    axes = given.get("dim") or tuple(range(len(given["self"].shape)))
    numbers = builder.add_integers(axes if isinstance(axes, tuple) else (axes,))
    keepdims = int(bool(given.get("keepdim")))
    builder.add_node("ReduceMean", [*_tensors(builder, "self"), numbers], keepdims=keepdims)


def _prelu(builder: TorchGraphBuilder) -> None:
    source, slopes = (builder.arguments[name] for name in ("self", "weight"))
    _check(slopes.values is not None)
    shape = [1] * len(source.shape)
    if len(shape) > 1:
        shape[1] = slopes.values.size
    values = np.asarray(slopes.values).reshape(shape)
    name = builder.add_constant(slopes.name or f"{builder.call.name}.weight", values)
    builder.add_node("PRelu", [source, name])


def _upsample_nearest(builder: TorchGraphBuilder) -> None:
    sizes = builder.add_integers(builder.result.shape)
    builder.add_node(
        "Resize",
        [builder.get_source(), "", "", sizes],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _pixel_shuffle(builder: TorchGraphBuilder) -> None:
    block = builder.arguments["upscale_factor"]
    builder.add_node("DepthToSpace", _tensors(builder, "self"), blocksize=block, mode="CRD")


# --- formulas of several operators -----------------------------------------------------------


class _FormulaWriter:
    """Writer of nested operators; numbers become constants."""

    def __init__(self, builder: TorchGraphBuilder) -> None:
        self._builder = builder
        self.call = builder.call

    def __call__(self, op: str, *operands: str | float) -> str:
        """Add an operator; return the name of its result."""
        names = [
            one if isinstance(one, str) else _number(self._builder, "number", one)
            for one in operands
        ]
        return self._builder.add_node(op, names, self._builder.unique_name(op.lower()))

    def argument(self, name: str) -> float:
        """Return a number argument, by default 1."""
        return float(self.call.arguments.get(name, 1))

    def softplus(self, x: str) -> str:
        """Add ``log(1 + exp(x))``, computed without an exponential of more than 0."""
        small = self("Exp", self("Neg", self("Abs", x)))
        return self("Add", self("Relu", x), self("Log", self("Add", small, 1.0)))


def _formula(write: Callable[[_FormulaWriter, str], str]) -> Translation:
    """Return the translation of a function of each value to several operators."""

    def translate(builder: TorchGraphBuilder) -> None:
        write(_FormulaWriter(builder), builder.get_name(builder.arguments["self"]))
        builder.steps[-1] = attrs.evolve(builder.steps[-1], outputs=(builder.get_first_output(),))

    return translate


def _gelu(write: _FormulaWriter, x: str) -> str:
    """Add ``x * (1 + erf(x / sqrt(2))) / 2``, or its approximation by tanh."""
    if write.call.arguments.get("approximate") == "tanh":
        cube = write("Mul", write("Mul", write("Mul", x, x), x), 0.044715)
        inner = write("Mul", write("Add", x, cube), math.sqrt(2 / math.pi))
        share = write("Tanh", inner)
    else:
        share = write("Erf", write("Mul", x, math.sqrt(0.5)))
    return write("Mul", write("Mul", x, write("Add", share, 1.0)), 0.5)


def _elu(write: _FormulaWriter, x: str) -> str:
    """Add ELU, CELU or SELU: ``scale * (max(x, 0) + alpha * (exp(inner * min(x, 0)) - 1))``."""
    alpha, scale, inner = map(write.argument, ("alpha", "scale", "input_scale"))
    if write.call.operation == "aten.celu":
        inner = 1 / alpha
    below = write("Mul", write("Neg", write("Relu", write("Neg", x))), inner)
    bent = write("Mul", write("Sub", write("Exp", below), 1.0), alpha)
    return write("Mul", write("Add", write("Relu", x), bent), scale)


def _softplus(write: _FormulaWriter, x: str) -> str:
    """Add ``log(1 + exp(beta * x)) / beta``."""
    beta = write.argument("beta")
    return write("Div", write.softplus(write("Mul", x, beta)), beta)


FLOAT_OPERATIONS: dict[str, Translation] = {
    **MOVEMENTS,
    "aten._adaptive_avg_pool2d": _adaptive_pool("AveragePool"),
    "aten._log_softmax": _with_argument("LogSoftmax", "dim", "axis", int),
    "aten._native_batch_norm_legit_no_training": _batch_norm,
    "aten._prelu_kernel": _prelu,
    "aten._softmax": _with_argument("Softmax", "dim", "axis", int),
    "aten._to_copy": translate_identity,
    "aten.abs": _operator("Abs"),
    "aten.adaptive_max_pool2d": _adaptive_pool("MaxPool"),
    "aten.add": _binary("Add"),
    "aten.addmm": _addmm,
    "aten.avg_pool2d": make_pool_translation("AveragePool"),
    "aten.bmm": _operator("MatMul", "self", "mat2"),
    "aten.cat": _concatenation,
    "aten.celu": _formula(_elu),
    "aten.channel_shuffle": _channel_shuffle,
    "aten.clamp": _clip("min", "max"),
    "aten.clamp_max": _clip("", "max"),
    "aten.clamp_min": _clip("min", ""),
    "aten.constant_pad_nd": translate_pad,
    "aten.convolution": _convolution,
    "aten.div": _binary("Div"),
    "aten.elu": _formula(_elu),
    "aten.erf": _operator("Erf"),
    "aten.exp": _operator("Exp"),
    "aten.expand": _expand,
    "aten.gelu": _formula(_gelu),
    "aten.hardsigmoid": _operator("HardSigmoid", alpha=1 / 6, beta=0.5),
    "aten.hardswish": _operator("HardSwish"),
    "aten.hardtanh": _clip("min_val", "max_val"),
    "aten.leaky_relu": _with_argument("LeakyRelu", "negative_slope", "alpha"),
    "aten.linear": _linear,
    "aten.log": _operator("Log"),
    "aten.max_pool2d_with_indices": make_pool_translation("MaxPool"),
    "aten.maximum": _operator("Max", "self", "other"),
    "aten.mean": _mean,
    "aten.minimum": _operator("Min", "self", "other"),
    "aten.mish": _formula(lambda write, x: write("Mul", x, write("Tanh", write.softplus(x)))),
    "aten.mm": _operator("MatMul", "self", "mat2"),
    "aten.mul": _binary("Mul"),
    "aten.native_batch_norm": _batch_norm,
    "aten.neg": _operator("Neg"),
    "aten.pixel_shuffle": _pixel_shuffle,
    "aten.pow": _power,
    "aten.reciprocal": _operator("Reciprocal"),
    "aten.relu": _operator("Relu"),
    "aten.rsqrt": _formula(lambda write, x: write("Reciprocal", write("Sqrt", x))),
    "aten.rsub": _binary("Sub", is_reversed=True),
    "aten.select": _select,
    "aten.sigmoid": _operator("Sigmoid"),
    "aten.silu": _formula(lambda write, x: write("Mul", x, write("Sigmoid", x))),
    "aten.softplus": _formula(_softplus),
    "aten.sqrt": _operator("Sqrt"),
    "aten.stack": _stack,
    "aten.sub": _binary("Sub"),
    "aten.tanh": _operator("Tanh"),
    "aten.upsample_nearest2d": _upsample_nearest,
}
"""Operation of PyTorch -> translation."""
