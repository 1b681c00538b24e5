"""Every operation of a float PyTorch model that can be compiled, and what draws it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import Shape
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.torch.float_formulas import elu, formula, gelu, softplus
from nmpsim.frontends.torch.graph_builder import Draw, TorchGraphBuilder
from nmpsim.frontends.torch.movement import order_of, paddings
from nmpsim.frontends.torch.pointwise import pair_of
from nmpsim.frontends.torch.recording import Tensor


class NoOperatorError(UnsupportedError):
    """An operation has a form that there is no operator for."""


def _check(has_operator: bool) -> None:
    if not has_operator:
        raise NoOperatorError


def _tensors(builder: TorchGraphBuilder, *arguments: str) -> list[str]:
    """Names of arguments that are tensors."""
    given = [builder.call.arguments[argument] for argument in arguments]
    _check(all(isinstance(one, Tensor) for one in given))
    return [builder.name(one) for one in given]


def _part(builder: TorchGraphBuilder, what: str) -> str:
    """A name for what lies between two operators."""
    return builder.unique_name(f"{builder.call.name}.{what}".strip("."))


def _number(builder: TorchGraphBuilder, what: str, value: float) -> str:
    name = f"{builder.call.name}.{what}".strip(".")
    return builder.add_constant(name, np.array(value, np.float32))


def _plain(op: str, *arguments: str, **attributes: Any) -> Draw:
    """An operator of the same meaning, of these arguments; ``self`` by itself."""
    return lambda builder: _ignore(
        builder.add(op, _tensors(builder, *(arguments or ("self",))), **attributes)
    )


def _ignore(made: str) -> None:
    """What was drawn needs no name."""


def _convolution(builder: TorchGraphBuilder) -> None:
    given = builder.call.arguments
    arguments = ("input", "weight", *(("bias",) if given["bias"] is not None else ()))
    is_transposed = given["transposed"]
    builder.add(
        "ConvTranspose" if is_transposed else "Conv",
        _tensors(builder, *arguments),
        strides=tuple(given["stride"]),
        pads=tuple(given["padding"]) * 2,
        dilations=tuple(given["dilation"]),
        group=given["groups"],
        output_padding=tuple(given["output_padding"]) if is_transposed else None,
    )


def _batch_norm(builder: TorchGraphBuilder) -> None:
    given = builder.call.arguments
    mean, variance = given["running_mean"], given["running_var"]
    _check(not given.get("training") and mean is not None and variance is not None)
    names = _tensors(builder, "input")
    for part, number in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
        if given[part] is None:
            values = np.full(mean.shape[0], number, np.float32)
            names.append(builder.add_constant(f"{builder.call.name}.{part}", values))
        else:
            names.append(builder.name(given[part]))
    builder.add("BatchNormalization", names, epsilon=float(given["eps"]))


def _limits(low: str, high: str) -> Draw:
    def draw(builder: TorchGraphBuilder) -> None:
        limits = [builder.call.arguments.get(name) for name in (low, high)]
        _check(not any(isinstance(limit, Tensor) for limit in limits))
        least, most = (None if limit is None else float(limit) for limit in limits)
        builder.add("Clip", _tensors(builder, "self"), min=least, max=most)

    return draw


def _pool(op: str) -> Draw:
    """A window over rows and columns."""

    def draw(builder: TorchGraphBuilder) -> None:
        given = builder.call.arguments
        _check(given.get("divisor_override") is None)
        counts = given.get("count_include_pad")
        builder.add(
            op,
            _tensors(builder, "self"),
            kernel_shape=pair_of(given["kernel_size"]),
            strides=pair_of(given["stride"] or given["kernel_size"]),
            pads=pair_of(given["padding"]) * 2,
            dilations=pair_of(given["dilation"]) if "dilation" in given else None,
            ceil_mode=int(given["ceil_mode"]),
            count_include_pad=None if counts is None else int(counts),
        )

    return draw


def _adaptive(op: str) -> Draw:
    """A pool whose windows all have one size, and do not overlap."""

    def draw(builder: TorchGraphBuilder) -> None:
        source, result = builder.source(), builder.call.results[0]
        rows = list(zip(source.shape[-2:], result.shape[-2:], strict=True))
        _check(len(source.shape) == 4 and not any(own % made for own, made in rows))
        window = tuple(own // made for own, made in rows)
        builder.add(op, [builder.name(source)], kernel_shape=window, strides=window)

    return draw


def _pair(op: str, is_reversed: bool = False) -> Draw:
    """Two tensors, or a tensor and a number, the second times ``alpha``."""

    def draw(builder: TorchGraphBuilder) -> None:
        given = builder.call.arguments
        _check(given.get("rounding_mode") is None)
        names = []
        for place, side in enumerate((given["self"], given["other"])):
            alpha = float(given.get("alpha") or 1) if place == (0 if is_reversed else 1) else 1.0
            if not isinstance(side, Tensor):
                names.append(_number(builder, "number", float(side) * alpha))
                continue
            _check(side.dtype == "float32")
            names.append(builder.name(side))
            if alpha != 1:
                factor = _number(builder, "alpha", alpha)
                names[-1] = builder.add("Mul", [names[-1], factor], _part(builder, "scaled"))
        builder.add(op, names[::-1] if is_reversed else names)

    return draw


def _product_and_sum(builder: TorchGraphBuilder) -> None:
    given = builder.call.arguments
    alpha, beta = float(given["alpha"]), float(given["beta"])
    builder.add("Gemm", _tensors(builder, "mat1", "mat2", "self"), alpha=alpha, beta=beta)


def _linear(builder: TorchGraphBuilder) -> None:
    given = builder.call.arguments
    weights = given["weight"]
    _check(weights.values is not None)
    name = weights.name or f"{builder.call.name}.weight"
    names = [*_tensors(builder, "input"), builder.add_constant(name, np.asarray(weights.values).T)]
    if given["bias"] is None:
        builder.add("MatMul", names)
        return
    product = builder.add("MatMul", names, _part(builder, "product"))
    builder.add("Add", [product, builder.name(given["bias"])])


def _reshaped(builder: TorchGraphBuilder, source: str, shape: Shape, *result: str) -> str:
    return builder.add("Reshape", [source, builder.integers(shape)], *result)


def _view(builder: TorchGraphBuilder) -> None:
    (source,) = _tensors(builder, "self")
    _reshaped(builder, source, builder.call.results[0].shape)


def _same(builder: TorchGraphBuilder) -> None:
    source = builder.source()
    _check(source.dtype == builder.call.results[0].dtype)
    builder.add("Identity", [builder.name(source)])


def _turn(builder: TorchGraphBuilder) -> None:
    perm = order_of(builder, len(builder.call.results[0].shape))
    builder.add("Transpose", _tensors(builder, "self"), perm=perm)


def _slice(builder: TorchGraphBuilder) -> None:
    given, source = builder.call.arguments, builder.source()
    axis = given["dim"] % len(source.shape)
    size = source.shape[axis]
    start = 0 if given["start"] is None else given["start"]
    end = size if given["end"] is None else min(given["end"], size)
    numbers = [builder.integers([one]) for one in (start, end, axis, given["step"])]
    builder.add("Slice", [builder.name(source), *numbers])


def _select(builder: TorchGraphBuilder) -> None:
    given, source = builder.call.arguments, builder.source()
    axis = given["dim"] % len(source.shape)
    start = given["index"] % source.shape[axis]
    numbers = [builder.integers([one]) for one in (start, start + 1, axis)]
    part = builder.add("Slice", [builder.name(source), *numbers], _part(builder, "part"))
    _reshaped(builder, part, builder.call.results[0].shape)


def _split(builder: TorchGraphBuilder) -> None:
    results = builder.call.results
    axis = builder.call.arguments["dim"] % len(results[0].shape)
    sizes = builder.integers([result.shape[axis] for result in results])
    builder.add("Split", [*_tensors(builder, "self"), sizes], *builder.outputs(), axis=axis)


def _concatenation(builder: TorchGraphBuilder) -> None:
    given = builder.call.arguments
    names = [builder.name(part) for part in given["tensors"] if part.shape != (0,)]
    builder.add("Concat", names, axis=given["dim"])


def _stack(builder: TorchGraphBuilder) -> None:
    shape, axis = builder.call.results[0].shape, builder.call.arguments["dim"]
    axis %= len(shape)
    single = (*shape[:axis], 1, *shape[axis + 1 :])
    wide = [
        _reshaped(builder, builder.name(part), single, _part(builder, "part"))
        for part in builder.call.arguments["tensors"]
    ]
    builder.add("Concat", wide, axis=axis)


def _expand(builder: TorchGraphBuilder) -> None:
    _check(builder.source().shape == builder.call.results[0].shape)
    _same(builder)


def _channel_shuffle(builder: TorchGraphBuilder) -> None:
    shape, groups = builder.call.results[0].shape, builder.call.arguments["groups"]
    images, channels, *rest = shape
    split = (images, groups, channels // groups, *rest)
    (source,) = _tensors(builder, "self")
    apart = _reshaped(builder, source, split, _part(builder, "apart"))
    order = (0, 2, 1, *range(3, 3 + len(rest)))
    turned = builder.add("Transpose", [apart], _part(builder, "turned"), perm=order)
    _reshaped(builder, turned, shape)


def _power(builder: TorchGraphBuilder) -> None:
    exponent = builder.call.arguments["exponent"]
    _check(not isinstance(exponent, Tensor))
    number = builder.add_constant("exponent", np.array(float(exponent), np.float32))
    builder.add("Pow", [*_tensors(builder, "self"), number])


def _softmax(op: str) -> Draw:
    def draw(builder: TorchGraphBuilder) -> None:
        builder.add(op, _tensors(builder, "self"), axis=builder.call.arguments["dim"])

    return draw


def _mean(builder: TorchGraphBuilder) -> None:
    given = builder.call.arguments
    axes = given.get("dim") or tuple(range(len(given["self"].shape)))
    numbers = builder.integers(axes if isinstance(axes, tuple) else (axes,))
    keeps = int(bool(given.get("keepdim")))
    builder.add("ReduceMean", [*_tensors(builder, "self"), numbers], keepdims=keeps)


def _with_number(op: str, argument: str, attribute: str) -> Draw:
    def draw(builder: TorchGraphBuilder) -> None:
        number = float(builder.call.arguments[argument])
        builder.add(op, _tensors(builder, "self"), **{attribute: number})

    return draw


def _prelu(builder: TorchGraphBuilder) -> None:
    source, slopes = (builder.call.arguments[name] for name in ("self", "weight"))
    _check(slopes.values is not None)
    spread = [1] * len(source.shape)
    if len(spread) > 1:
        spread[1] = slopes.values.size
    values = np.asarray(slopes.values).reshape(spread)
    name = builder.add_constant(slopes.name or f"{builder.call.name}.weight", values)
    builder.add("PRelu", [builder.name(source), name])


def _pad(builder: TorchGraphBuilder) -> None:
    given = builder.call.arguments
    pads = builder.integers(paddings(given["pad"], len(builder.call.results[0].shape)))
    value = builder.add_constant("value", np.array(float(given.get("value") or 0), np.float32))
    builder.add("Pad", [*_tensors(builder, "self"), pads, value])


def _nearest(builder: TorchGraphBuilder) -> None:
    sizes = builder.integers(builder.call.results[0].shape)
    builder.add(
        "Resize",
        [builder.name(builder.source()), "", "", sizes],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _pixel_shuffle(builder: TorchGraphBuilder) -> None:
    block = builder.call.arguments["upscale_factor"]
    builder.add("DepthToSpace", _tensors(builder, "self"), blocksize=block, mode="CRD")


FLOAT_OPERATIONS: dict[str, Draw] = {
    "aten._adaptive_avg_pool2d": _adaptive("AveragePool"),
    "aten._log_softmax": _softmax("LogSoftmax"),
    "aten._native_batch_norm_legit_no_training": _batch_norm,
    "aten._prelu_kernel": _prelu,
    "aten._reshape_alias": _view,
    "aten._softmax": _softmax("Softmax"),
    "aten._to_copy": _same,
    "aten._unsafe_view": _view,
    "aten.abs": _plain("Abs"),
    "aten.adaptive_max_pool2d": _adaptive("MaxPool"),
    "aten.add": _pair("Add"),
    "aten.addmm": _product_and_sum,
    "aten.alias": _same,
    "aten.avg_pool2d": _pool("AveragePool"),
    "aten.bmm": _plain("MatMul", "self", "mat2"),
    "aten.cat": _concatenation,
    "aten.celu": formula(elu),
    "aten.channel_shuffle": _channel_shuffle,
    "aten.clamp": _limits("min", "max"),
    "aten.clamp_max": _limits("", "max"),
    "aten.clamp_min": _limits("min", ""),
    "aten.clone": _same,
    "aten.constant_pad_nd": _pad,
    "aten.contiguous": _same,
    "aten.convolution": _convolution,
    "aten.detach": _same,
    "aten.div": _pair("Div"),
    "aten.elu": formula(elu),
    "aten.erf": _plain("Erf"),
    "aten.exp": _plain("Exp"),
    "aten.expand": _expand,
    "aten.gelu": formula(gelu),
    "aten.hardsigmoid": _plain("HardSigmoid", alpha=1 / 6, beta=0.5),
    "aten.hardswish": _plain("HardSwish"),
    "aten.hardtanh": _limits("min_val", "max_val"),
    "aten.leaky_relu": _with_number("LeakyRelu", "negative_slope", "alpha"),
    "aten.linear": _linear,
    "aten.log": _plain("Log"),
    "aten.max_pool2d_with_indices": _pool("MaxPool"),
    "aten.maximum": _plain("Max", "self", "other"),
    "aten.mean": _mean,
    "aten.minimum": _plain("Min", "self", "other"),
    "aten.mish": formula(lambda write, x: write("Mul", x, write("Tanh", write.softplus(x)))),
    "aten.mm": _plain("MatMul", "self", "mat2"),
    "aten.mul": _pair("Mul"),
    "aten.native_batch_norm": _batch_norm,
    "aten.neg": _plain("Neg"),
    "aten.permute": _turn,
    "aten.pixel_shuffle": _pixel_shuffle,
    "aten.pow": _power,
    "aten.reciprocal": _plain("Reciprocal"),
    "aten.relu": _plain("Relu"),
    "aten.rsub": _pair("Sub", is_reversed=True),
    "aten.select": _select,
    "aten.sigmoid": _plain("Sigmoid"),
    "aten.rsqrt": formula(lambda write, x: write("Reciprocal", write("Sqrt", x))),
    "aten.silu": formula(lambda write, x: write("Mul", x, write("Sigmoid", x))),
    "aten.slice": _slice,
    "aten.split": _split,
    "aten.split_with_sizes": _split,
    "aten.sqrt": _plain("Sqrt"),
    "aten.softplus": formula(softplus),
    "aten.squeeze": _view,
    "aten.stack": _stack,
    "aten.sub": _pair("Sub"),
    "aten.t": _turn,
    "aten.tanh": _plain("Tanh"),
    "aten.transpose": _turn,
    "aten.unsqueeze": _view,
    "aten.upsample_nearest2d": _nearest,
    "aten.view": _view,
}
"""Operation of PyTorch -> what draws it."""
