"""Every operation of a float PyTorch model that can be compiled, and what draws it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import Shape
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.torch.drawing import Draw, Drawing
from nmpsim.frontends.torch.float_formulas import elu, formula, gelu, softplus
from nmpsim.frontends.torch.movement import order_of, paddings
from nmpsim.frontends.torch.pointwise import pair_of
from nmpsim.frontends.torch.record import Tensor


class NoOperatorError(UnsupportedError):
    """An operation has a form that there is no operator for."""


def _check(has_operator: bool) -> None:
    if not has_operator:
        raise NoOperatorError


def _tensors(drawing: Drawing, *arguments: str) -> list[str]:
    """Names of arguments that are tensors."""
    given = [drawing.call.arguments[argument] for argument in arguments]
    _check(all(isinstance(one, Tensor) for one in given))
    return [drawing.name(one) for one in given]


def _part(drawing: Drawing, what: str) -> str:
    """A name for what lies between two operators."""
    return drawing.fresh(f"{drawing.call.name}.{what}".strip("."))


def _number(drawing: Drawing, what: str, value: float) -> str:
    name = f"{drawing.call.name}.{what}".strip(".")
    return drawing.constant(name, np.array(value, np.float32))


def _plain(op: str, *arguments: str, **attributes: Any) -> Draw:
    """An operator of the same meaning, of these arguments; ``self`` by itself."""
    return lambda drawing: _ignore(
        drawing.add(op, _tensors(drawing, *(arguments or ("self",))), **attributes)
    )


def _ignore(made: str) -> None:
    """What was drawn needs no name."""


def _convolution(drawing: Drawing) -> None:
    given = drawing.call.arguments
    arguments = ("input", "weight", *(("bias",) if given["bias"] is not None else ()))
    is_transposed = given["transposed"]
    drawing.add(
        "ConvTranspose" if is_transposed else "Conv",
        _tensors(drawing, *arguments),
        strides=tuple(given["stride"]),
        pads=tuple(given["padding"]) * 2,
        dilations=tuple(given["dilation"]),
        group=given["groups"],
        output_padding=tuple(given["output_padding"]) if is_transposed else None,
    )


def _batch_norm(drawing: Drawing) -> None:
    given = drawing.call.arguments
    mean, variance = given["running_mean"], given["running_var"]
    _check(not given.get("training") and mean is not None and variance is not None)
    names = _tensors(drawing, "input")
    for part, number in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
        if given[part] is None:
            values = np.full(mean.shape[0], number, np.float32)
            names.append(drawing.constant(f"{drawing.call.name}.{part}", values))
        else:
            names.append(drawing.name(given[part]))
    drawing.add("BatchNormalization", names, epsilon=float(given["eps"]))


def _limits(low: str, high: str) -> Draw:
    def draw(drawing: Drawing) -> None:
        limits = [drawing.call.arguments.get(name) for name in (low, high)]
        _check(not any(isinstance(limit, Tensor) for limit in limits))
        least, most = (None if limit is None else float(limit) for limit in limits)
        drawing.add("Clip", _tensors(drawing, "self"), min=least, max=most)

    return draw


def _pool(op: str) -> Draw:
    """A window over rows and columns."""

    def draw(drawing: Drawing) -> None:
        given = drawing.call.arguments
        _check(given.get("divisor_override") is None)
        counts = given.get("count_include_pad")
        drawing.add(
            op,
            _tensors(drawing, "self"),
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

    def draw(drawing: Drawing) -> None:
        source, result = drawing.source(), drawing.call.results[0]
        rows = list(zip(source.shape[-2:], result.shape[-2:], strict=True))
        _check(len(source.shape) == 4 and not any(own % made for own, made in rows))
        window = tuple(own // made for own, made in rows)
        drawing.add(op, [drawing.name(source)], kernel_shape=window, strides=window)

    return draw


def _pair(op: str, is_reversed: bool = False) -> Draw:
    """Two tensors, or a tensor and a number, the second times ``alpha``."""

    def draw(drawing: Drawing) -> None:
        given = drawing.call.arguments
        _check(given.get("rounding_mode") is None)
        names = []
        for place, side in enumerate((given["self"], given["other"])):
            alpha = float(given.get("alpha") or 1) if place == (0 if is_reversed else 1) else 1.0
            if not isinstance(side, Tensor):
                names.append(_number(drawing, "number", float(side) * alpha))
                continue
            _check(side.dtype == "float32")
            names.append(drawing.name(side))
            if alpha != 1:
                factor = _number(drawing, "alpha", alpha)
                names[-1] = drawing.add("Mul", [names[-1], factor], _part(drawing, "scaled"))
        drawing.add(op, names[::-1] if is_reversed else names)

    return draw


def _product_and_sum(drawing: Drawing) -> None:
    given = drawing.call.arguments
    alpha, beta = float(given["alpha"]), float(given["beta"])
    drawing.add("Gemm", _tensors(drawing, "mat1", "mat2", "self"), alpha=alpha, beta=beta)


def _linear(drawing: Drawing) -> None:
    given = drawing.call.arguments
    weights = given["weight"]
    _check(weights.values is not None)
    name = weights.name or f"{drawing.call.name}.weight"
    names = [*_tensors(drawing, "input"), drawing.constant(name, np.asarray(weights.values).T)]
    if given["bias"] is None:
        drawing.add("MatMul", names)
        return
    product = drawing.add("MatMul", names, _part(drawing, "product"))
    drawing.add("Add", [product, drawing.name(given["bias"])])


def _reshaped(drawing: Drawing, source: str, shape: Shape, *result: str) -> str:
    return drawing.add("Reshape", [source, drawing.integers(shape)], *result)


def _view(drawing: Drawing) -> None:
    (source,) = _tensors(drawing, "self")
    _reshaped(drawing, source, drawing.call.results[0].shape)


def _same(drawing: Drawing) -> None:
    source = drawing.source()
    _check(source.dtype == drawing.call.results[0].dtype)
    drawing.add("Identity", [drawing.name(source)])


def _turn(drawing: Drawing) -> None:
    perm = order_of(drawing, len(drawing.call.results[0].shape))
    drawing.add("Transpose", _tensors(drawing, "self"), perm=perm)


def _slice(drawing: Drawing) -> None:
    given, source = drawing.call.arguments, drawing.source()
    axis = given["dim"] % len(source.shape)
    size = source.shape[axis]
    start = 0 if given["start"] is None else given["start"]
    end = size if given["end"] is None else min(given["end"], size)
    numbers = [drawing.integers([one]) for one in (start, end, axis, given["step"])]
    drawing.add("Slice", [drawing.name(source), *numbers])


def _select(drawing: Drawing) -> None:
    given, source = drawing.call.arguments, drawing.source()
    axis = given["dim"] % len(source.shape)
    start = given["index"] % source.shape[axis]
    numbers = [drawing.integers([one]) for one in (start, start + 1, axis)]
    part = drawing.add("Slice", [drawing.name(source), *numbers], _part(drawing, "part"))
    _reshaped(drawing, part, drawing.call.results[0].shape)


def _split(drawing: Drawing) -> None:
    results = drawing.call.results
    axis = drawing.call.arguments["dim"] % len(results[0].shape)
    sizes = drawing.integers([result.shape[axis] for result in results])
    drawing.add("Split", [*_tensors(drawing, "self"), sizes], *drawing.outputs(), axis=axis)


def _concatenation(drawing: Drawing) -> None:
    given = drawing.call.arguments
    names = [drawing.name(part) for part in given["tensors"] if part.shape != (0,)]
    drawing.add("Concat", names, axis=given["dim"])


def _stack(drawing: Drawing) -> None:
    shape, axis = drawing.call.results[0].shape, drawing.call.arguments["dim"]
    axis %= len(shape)
    single = (*shape[:axis], 1, *shape[axis + 1 :])
    wide = [
        _reshaped(drawing, drawing.name(part), single, _part(drawing, "part"))
        for part in drawing.call.arguments["tensors"]
    ]
    drawing.add("Concat", wide, axis=axis)


def _expand(drawing: Drawing) -> None:
    _check(drawing.source().shape == drawing.call.results[0].shape)
    _same(drawing)


def _channel_shuffle(drawing: Drawing) -> None:
    shape, groups = drawing.call.results[0].shape, drawing.call.arguments["groups"]
    images, channels, *rest = shape
    split = (images, groups, channels // groups, *rest)
    (source,) = _tensors(drawing, "self")
    apart = _reshaped(drawing, source, split, _part(drawing, "apart"))
    order = (0, 2, 1, *range(3, 3 + len(rest)))
    turned = drawing.add("Transpose", [apart], _part(drawing, "turned"), perm=order)
    _reshaped(drawing, turned, shape)


def _power(drawing: Drawing) -> None:
    exponent = drawing.call.arguments["exponent"]
    _check(not isinstance(exponent, Tensor))
    number = drawing.constant("exponent", np.array(float(exponent), np.float32))
    drawing.add("Pow", [*_tensors(drawing, "self"), number])


def _softmax(op: str) -> Draw:
    def draw(drawing: Drawing) -> None:
        drawing.add(op, _tensors(drawing, "self"), axis=drawing.call.arguments["dim"])

    return draw


def _mean(drawing: Drawing) -> None:
    given = drawing.call.arguments
    axes = given.get("dim") or tuple(range(len(given["self"].shape)))
    numbers = drawing.integers(axes if isinstance(axes, tuple) else (axes,))
    keeps = int(bool(given.get("keepdim")))
    drawing.add("ReduceMean", [*_tensors(drawing, "self"), numbers], keepdims=keeps)


def _with_number(op: str, argument: str, attribute: str) -> Draw:
    def draw(drawing: Drawing) -> None:
        number = float(drawing.call.arguments[argument])
        drawing.add(op, _tensors(drawing, "self"), **{attribute: number})

    return draw


def _prelu(drawing: Drawing) -> None:
    source, slopes = (drawing.call.arguments[name] for name in ("self", "weight"))
    _check(slopes.values is not None)
    spread = [1] * len(source.shape)
    if len(spread) > 1:
        spread[1] = slopes.values.size
    values = np.asarray(slopes.values).reshape(spread)
    name = drawing.constant(slopes.name or f"{drawing.call.name}.weight", values)
    drawing.add("PRelu", [drawing.name(source), name])


def _pad(drawing: Drawing) -> None:
    given = drawing.call.arguments
    pads = drawing.integers(paddings(given["pad"], len(drawing.call.results[0].shape)))
    value = drawing.constant("value", np.array(float(given.get("value") or 0), np.float32))
    drawing.add("Pad", [*_tensors(drawing, "self"), pads, value])


def _nearest(drawing: Drawing) -> None:
    sizes = drawing.integers(drawing.call.results[0].shape)
    drawing.add(
        "Resize",
        [drawing.name(drawing.source()), "", "", sizes],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _pixel_shuffle(drawing: Drawing) -> None:
    block = drawing.call.arguments["upscale_factor"]
    drawing.add("DepthToSpace", _tensors(drawing, "self"), blocksize=block, mode="CRD")


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
