"""Every operation of a float PyTorch model that can be compiled, and what draws it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.frontends.torch.drawing import Drawing, Operation
from nmpsim.frontends.torch.float_formulas import elu, formula, gelu, softplus
from nmpsim.frontends.torch.record import Call, Tensor


def _pair_of(value: Any) -> tuple[int, ...]:
    """Two numbers for rows and columns; one may stand for both."""
    numbers = tuple(int(one) for one in value) if isinstance(value, tuple) else (int(value),)
    return numbers * 2 if len(numbers) == 1 else numbers


def _plain(op: str, *names: str, **attributes: Any) -> Operation:
    """An operator of the same meaning; ``names`` are those of its inputs, ``self`` by itself."""

    def draw(drawing: Drawing, call: Call) -> bool:
        sources = [call.arguments[name] for name in names or ("self",)]
        if not all(isinstance(one, Tensor) for one in sources):
            return False
        made = drawing.results(call)[:1]
        return drawing.add(op, [drawing.name(one) for one in sources], made, **attributes)

    return draw


def _convolution(drawing: Drawing, call: Call) -> bool:
    given = call.arguments
    sources = [drawing.name(given[name]) for name in ("input", "weight")]
    if given["bias"] is not None:
        sources.append(drawing.name(given["bias"]))
    pads = tuple(given["padding"])
    attributes = {
        "strides": tuple(given["stride"]),
        "pads": pads * 2,
        "dilations": tuple(given["dilation"]),
        "group": given["groups"],
    }
    if given["transposed"]:
        attributes["output_padding"] = tuple(given["output_padding"])
    op = "ConvTranspose" if given["transposed"] else "Conv"
    return drawing.add(op, sources, drawing.results(call), **attributes)


def _batch_norm(drawing: Drawing, call: Call) -> bool:
    given = call.arguments
    mean, variance = given["running_mean"], given["running_var"]
    if given.get("training") or mean is None or variance is None:
        return False
    channels = mean.shape[0]
    parts = [given["input"], given["weight"], given["bias"], mean, variance]
    names = [
        drawing.constant(f"{call.name}.{what}", np.full(channels, number, np.float32))
        if part is None
        else drawing.name(part)
        for part, what, number in zip(
            parts, ("input", "weight", "bias", "mean", "variance"), (0, 1, 0, 0, 1), strict=True
        )
    ]
    made = drawing.results(call)[:1]
    return drawing.add("BatchNormalization", names, made, epsilon=float(given["eps"]))


def _limits(low: str, high: str) -> Operation:
    def draw(drawing: Drawing, call: Call) -> bool:
        limits = [call.arguments.get(name) for name in (low, high)]
        if any(isinstance(limit, Tensor) for limit in limits):
            return False
        least, most = (None if limit is None else float(limit) for limit in limits)
        source = drawing.name(call.arguments["self"])
        return drawing.add("Clip", [source], drawing.results(call), min=least, max=most)

    return draw


def _max_pool(drawing: Drawing, call: Call) -> bool:
    given = call.arguments
    kernel = _pair_of(given["kernel_size"])
    return drawing.add(
        "MaxPool",
        [drawing.name(given["self"])],
        drawing.results(call)[:1],
        kernel_shape=kernel,
        strides=_pair_of(given["stride"]) if given["stride"] else kernel,
        pads=_pair_of(given["padding"]) * 2,
        dilations=_pair_of(given["dilation"]),
        ceil_mode=int(given["ceil_mode"]),
    )


def _average_pool(drawing: Drawing, call: Call) -> bool:
    given = call.arguments
    kernel = _pair_of(given["kernel_size"])
    if given["divisor_override"] is not None:
        return False
    return drawing.add(
        "AveragePool",
        [drawing.name(given["self"])],
        drawing.results(call),
        kernel_shape=kernel,
        strides=_pair_of(given["stride"]) if given["stride"] else kernel,
        pads=_pair_of(given["padding"]) * 2,
        ceil_mode=int(given["ceil_mode"]),
        count_include_pad=int(given["count_include_pad"]),
    )


def _adaptive(op: str) -> Operation:
    """A pool whose windows all have one size, and do not overlap."""

    def draw(drawing: Drawing, call: Call) -> bool:
        source, result = call.arguments["self"], call.results[0]
        rows = list(zip(source.shape[-2:], result.shape[-2:], strict=True))
        if len(source.shape) != 4 or any(own % made for own, made in rows):
            return False
        window = tuple(own // made for own, made in rows)
        made = drawing.results(call)[:1]
        return drawing.add(op, [drawing.name(source)], made, kernel_shape=window, strides=window)

    return draw


def _pair(op: str, is_reversed: bool = False) -> Operation:
    """Two tensors, or a tensor and a number, the second times ``alpha``."""

    def draw(drawing: Drawing, call: Call) -> bool:
        given = call.arguments
        if given.get("rounding_mode") is not None:
            return False
        sides = [given["self"], given["other"]]
        names = []
        for place, side in enumerate(sides):
            alpha = float(given.get("alpha") or 1) if place == (0 if is_reversed else 1) else 1.0
            if not isinstance(side, Tensor):
                number = np.array(float(side) * alpha, np.float32)
                names.append(drawing.constant(f"{call.name}.number".strip("."), number))
            elif side.dtype != "float32":
                return False
            elif alpha == 1:
                names.append(drawing.name(side))
            else:
                scaled = drawing.fresh(f"{call.name}.scaled".strip("."))
                number = np.array(alpha, np.float32)
                factor = drawing.constant(f"{call.name}.alpha".strip("."), number)
                drawing.add("Mul", [drawing.name(side), factor], [scaled])
                names.append(scaled)
        return drawing.add(op, names[::-1] if is_reversed else names, drawing.results(call))

    return draw


def _product_and_sum(drawing: Drawing, call: Call) -> bool:
    given = call.arguments
    names = [drawing.name(given[name]) for name in ("mat1", "mat2", "self")]
    alpha, beta = float(given["alpha"]), float(given["beta"])
    return drawing.add("Gemm", names, drawing.results(call), alpha=alpha, beta=beta)


def _linear(drawing: Drawing, call: Call) -> bool:
    given = call.arguments
    weights = given["weight"]
    if weights.values is None:
        return False
    turned = drawing.constant(weights.name or f"{call.name}.weight", np.asarray(weights.values).T)
    names = [drawing.name(given["input"]), turned]
    if given["bias"] is None:
        return drawing.add("MatMul", names, drawing.results(call))
    product = drawing.fresh(f"{call.name}.product")
    drawing.add("MatMul", names, [product])
    return drawing.add("Add", [product, drawing.name(given["bias"])], drawing.results(call))


def _view(drawing: Drawing, call: Call) -> bool:
    names = [drawing.name(call.arguments["self"]), drawing.integers(call.results[0].shape)]
    return drawing.add("Reshape", names, drawing.results(call))


def _same(drawing: Drawing, call: Call) -> bool:
    source = call.arguments.get("self", call.arguments.get("input"))
    if not isinstance(source, Tensor) or source.dtype != call.results[0].dtype:
        return False
    return drawing.add("Identity", [drawing.name(source)], drawing.results(call)[:1])


def _turn(drawing: Drawing, call: Call) -> bool:
    given, rank = call.arguments, len(call.results[0].shape)
    order = list(range(rank))
    if "dims" in given:
        order = [axis % rank for axis in given["dims"]]
    elif rank >= 2:
        first, second = (given.get(name, at) % rank for at, name in enumerate(("dim0", "dim1")))
        order[first], order[second] = order[second], order[first]
    source = drawing.name(given["self"])
    return drawing.add("Transpose", [source], drawing.results(call), perm=tuple(order))


def _slice(drawing: Drawing, call: Call) -> bool:
    given = call.arguments
    source = given["self"]
    axis = given["dim"] % len(source.shape)
    start = 0 if given["start"] is None else given["start"]
    end = source.shape[axis] if given["end"] is None else min(given["end"], source.shape[axis])
    numbers = [drawing.integers([one]) for one in (start, end, axis, given["step"])]
    return drawing.add("Slice", [drawing.name(source), *numbers], drawing.results(call))


def _select(drawing: Drawing, call: Call) -> bool:
    given = call.arguments
    source = given["self"]
    axis = given["dim"] % len(source.shape)
    start = given["index"] % source.shape[axis]
    part = drawing.fresh(f"{call.name}.part")
    numbers = [drawing.integers([one]) for one in (start, start + 1, axis)]
    drawing.add("Slice", [drawing.name(source), *numbers], [part])
    shape = drawing.integers(call.results[0].shape)
    return drawing.add("Reshape", [part, shape], drawing.results(call))


def _split(drawing: Drawing, call: Call) -> bool:
    source, axis = call.arguments["self"], call.arguments["dim"] % len(call.results[0].shape)
    sizes = drawing.integers([result.shape[axis] for result in call.results])
    made = drawing.results(call)
    return drawing.add("Split", [drawing.name(source), sizes], made, axis=axis)


def _concatenation(drawing: Drawing, call: Call) -> bool:
    parts = [part for part in call.arguments["tensors"] if part.shape != (0,)]
    names = [drawing.name(part) for part in parts]
    return drawing.add("Concat", names, drawing.results(call), axis=call.arguments["dim"])


def _stack(drawing: Drawing, call: Call) -> bool:
    shape, axis = list(call.results[0].shape), call.arguments["dim"]
    shape[axis] = 1
    wide = []
    for part in call.arguments["tensors"]:
        wide.append(drawing.fresh(f"{call.name}.part"))
        drawing.add("Reshape", [drawing.name(part), drawing.integers(shape)], [wide[-1]])
    return drawing.add("Concat", wide, drawing.results(call), axis=axis % len(shape))


def _expand(drawing: Drawing, call: Call) -> bool:
    return call.arguments["self"].shape == call.results[0].shape and _same(drawing, call)


def _channel_shuffle(drawing: Drawing, call: Call) -> bool:
    images, channels, *rest = call.results[0].shape
    groups = call.arguments["groups"]
    apart, turned = (drawing.fresh(f"{call.name}.{what}") for what in ("apart", "turned"))
    shape = drawing.integers([images, groups, channels // groups, *rest])
    drawing.add("Reshape", [drawing.name(call.arguments["self"]), shape], [apart])
    order = (0, 2, 1, *range(3, 3 + len(rest)))
    drawing.add("Transpose", [apart], [turned], perm=order)
    whole = drawing.integers(call.results[0].shape)
    return drawing.add("Reshape", [turned, whole], drawing.results(call))


def _power(drawing: Drawing, call: Call) -> bool:
    exponent = call.arguments["exponent"]
    if isinstance(exponent, Tensor) or not isinstance(call.arguments["self"], Tensor):
        return False
    number = drawing.constant("exponent", np.array(float(exponent), np.float32))
    source = drawing.name(call.arguments["self"])
    return drawing.add("Pow", [source, number], drawing.results(call))


def _softmax(op: str) -> Operation:
    def draw(drawing: Drawing, call: Call) -> bool:
        source = drawing.name(call.arguments["self"])
        return drawing.add(op, [source], drawing.results(call), axis=call.arguments["dim"])

    return draw


def _mean(drawing: Drawing, call: Call) -> bool:
    given = call.arguments
    axes = given.get("dim") or tuple(range(len(given["self"].shape)))
    numbers = drawing.integers(axes if isinstance(axes, tuple) else (axes,))
    keeps = int(bool(given.get("keepdim")))
    names = [drawing.name(given["self"]), numbers]
    return drawing.add("ReduceMean", names, drawing.results(call), keepdims=keeps)


def _with_number(op: str, argument: str, attribute: str) -> Operation:
    def draw(drawing: Drawing, call: Call) -> bool:
        number, source = float(call.arguments[argument]), drawing.name(call.arguments["self"])
        return drawing.add(op, [source], drawing.results(call), **{attribute: number})

    return draw


def _prelu(drawing: Drawing, call: Call) -> bool:
    source, slopes = (call.arguments[name] for name in ("self", "weight"))
    if slopes.values is None:
        return False
    spread = [1] * len(source.shape)
    if len(spread) > 1:
        spread[1] = slopes.values.size
    values = np.asarray(slopes.values).reshape(spread)
    slopes_name = drawing.constant(slopes.name or f"{call.name}.weight", values)
    return drawing.add("PRelu", [drawing.name(source), slopes_name], drawing.results(call))


def _pad(drawing: Drawing, call: Call) -> bool:
    given, rank = call.arguments, len(call.results[0].shape)
    before, behind = [0] * rank, [0] * rank
    pads = given["pad"]
    for place in range(len(pads) // 2):  # from the last dimension on
        before[rank - 1 - place], behind[rank - 1 - place] = pads[2 * place : 2 * place + 2]
    value = drawing.constant("value", np.array(float(given.get("value") or 0), np.float32))
    names = [drawing.name(given["self"]), drawing.integers([*before, *behind]), value]
    return drawing.add("Pad", names, drawing.results(call))


def _nearest(drawing: Drawing, call: Call) -> bool:
    source = call.arguments.get("self", call.arguments.get("input"))
    names = [drawing.name(source), "", "", drawing.integers(call.results[0].shape)]
    return drawing.add(
        "Resize",
        names,
        drawing.results(call),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _pixel_shuffle(drawing: Drawing, call: Call) -> bool:
    source, block = drawing.name(call.arguments["self"]), call.arguments["upscale_factor"]
    return drawing.add("DepthToSpace", [source], drawing.results(call), blocksize=block, mode="CRD")


FLOAT_OPERATIONS: dict[str, Operation] = {
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
    "aten.avg_pool2d": _average_pool,
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
    "aten.max_pool2d_with_indices": _max_pool,
    "aten.maximum": _plain("Max", "self", "other"),
    "aten.mean": _mean,
    "aten.minimum": _plain("Min", "self", "other"),
    "aten.mish": formula(lambda write, x, call: write("Mul", x, write("Tanh", write.softplus(x)))),
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
    "aten.rsqrt": formula(lambda write, x, call: write("Reciprocal", write("Sqrt", x))),
    "aten.silu": formula(lambda write, x, call: write("Mul", x, write("Sigmoid", x))),
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
