"""Cases of image, matrix, volume and normalization operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import operation_oracles as oracles
from one_instruction import Array, OneInstruction, plain_type, quantized_type
from operation_case import LIMITS, Case, Rng, case, grid, kind, shape, values

from nmpsim.lir.nodes import TensorType


def resize_bilinear(rng: Rng) -> Case:
    elem = rng.choice(["float", "i8", "i16", "index32"])
    n, h, w, c = (int(i) for i in rng.integers(1, 5, 4))
    scale = (1.0, *rng.choice([0.5, 1.0, 1.5, 2.0, 3.0], 2).tolist(), 1.0)
    out = (n, max(1, int(h * scale[1])), max(1, int(w * scale[2])), c)
    scale = (1.0, *(s if int(k * s) else 1.0 for k, s in ((h, scale[1]), (w, scale[2]))), 1.0)
    x, results = values(rng, elem, (n, h, w, c)), [kind(elem, out, (0.25, 3))]
    return case(oracles.resize_bilinear, "resizebilinear", {"Src": x}, results, elem, Scale=scale)


def batch_matmul(rng: Rng) -> Case:
    b, m, k, n = (int(i) for i in rng.integers(1, 5, 4))
    read = {"LHS": values(rng, "float", (b, m, k)), "RHS": values(rng, "float", (b, k, n))}
    return case(oracles.batch_matmul, "batchmatmul", read, [TensorType("float", (b, m, n))])


def _parameters(rng: Rng, count: int) -> dict[str, Array]:
    names = ("Scale", "Bias", "Mean")
    read = {name: values(rng, "float", (count,)) for name in names}
    return {**read, "Var": np.abs(values(rng, "float", (count,)))}


def batch_normalization(rng: Rng) -> Case:
    of = shape(rng, 2, 5, 4)
    along = int(rng.choice([1, len(of) - 1]))
    read = {"Src": values(rng, "float", of), **_parameters(rng, of[along])}
    results = [TensorType("float", of)]
    attributes = {"ChannelIdx": along, "Epsilon": 1e-5, "Momentum": 0.9}
    return case(oracles.batch_normalization, "batchnormalization", read, results, **attributes)


def batch_normalization_int8(rng: Rng) -> Case:
    of, at, to = shape(rng, 3, 5, 4), grid(rng), grid(rng)
    along = int(rng.choice([1, len(of) - 1]))
    read = {"Src": values(rng, "i8", of), **_parameters(rng, of[along])}

    def oracle(v, shapes, **a):
        return oracles.batch_normalization(v, shapes, **a, grids=(at, to))

    attributes = {"ChannelIdx": along, "Epsilon": 1e-3, "Momentum": 0.9}
    results = [kind("i8", of, to)]
    return case(oracle, "batchnormalization", read, results, "i8", at, **attributes)


def layer_normalization(rng: Rng) -> Case:
    of = shape(rng, 2, 4)
    last = of[-int(rng.integers(1, len(of))) :]
    read = {
        "Src": values(rng, "float", of),
        "Scale": values(rng, "float", last),
        "Bias": values(rng, "float", last),
    }
    results = [TensorType("float", of)]
    return case(oracles.layer_normalization, "layernormalization", read, results, Epsilon=1e-5)


def adaptive_avg_pool(rng: Rng) -> Case:
    elem, at, to = rng.choice(["float", "i8"]), grid(rng), grid(rng)
    n, h, w, c = (int(i) for i in rng.integers(1, 8, 4))
    out = (n, int(rng.integers(1, h + 1)), int(rng.integers(1, w + 1)), c)

    def oracle(v, shapes):
        return oracles.adaptive_avg_pool(v, shapes, (at, to) if elem == "i8" else None)

    read = {"Src": values(rng, elem, (n, h, w, c))}
    return case(oracle, "adaptiveavgpool", read, [kind(elem, out, to)], elem, at)


def _volume(rng: Rng) -> tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]:
    kernels = tuple(int(k) for k in rng.integers(1, 3, 3))
    strides = tuple(int(k) for k in rng.integers(1, 3, 3))
    pads = tuple(int(rng.integers(0, kernels[i // 2])) for i in range(6))
    source = tuple(int(rng.integers(k, k + 3)) for k in kernels)
    outs = tuple(
        (n + pads[2 * d] + pads[2 * d + 1] - kernels[d]) // strides[d] + 1
        for d, n in enumerate(source)
    )
    return {"Kernels": kernels, "Strides": strides, "Pads": pads}, source, outs


def convolution_3d(rng: Rng) -> Case:
    elem = str(rng.choice(["float", "i8", "i16"]))
    attributes, source, outs = _volume(rng)
    group, depth, per_group = (int(i) for i in rng.integers(1, 3, 3))
    grids = [grid(rng, elem), grid(rng, elem), (2.0**-9, 5), grid(rng, elem)]
    filters = values(rng, elem, (group * per_group, *attributes["Kernels"], depth))
    if elem == "float":
        bias = values(rng, "float", (group * per_group,))
        bias_type = plain_type(bias)
    else:
        bias = rng.integers(-9999, 9999, group * per_group).astype(np.int32)
        bias_type = quantized_type("i32", bias.shape, *grids[2])
    x = values(rng, elem, (2, *source, group * depth))
    types = (
        kind(elem, (2, *outs, group * per_group), grids[3]),
        kind(elem, x.shape, grids[0]),
        kind(elem, filters.shape, grids[1]),
        bias_type,
    )
    read = {"Src": x, "Filter": filters, "Bias": bias}
    attributes["Group"] = group
    it = OneInstruction("convolution3d", types, read, attributes)
    more = {} if elem == "float" else {"grids": grids, "limits": LIMITS[elem]}
    return Case(it, oracles.convolution_3d(read, [types[0].shape], **attributes, **more))


def avg_pool_3d(rng: Rng) -> Case:
    elem, at, to = rng.choice(["float", "i8"]), grid(rng), grid(rng)
    attributes, source, outs = _volume(rng)
    attributes |= {"Layout": 2, "CountIncludePads": int(rng.integers(2))}
    x = values(rng, elem, (2, *source, 2))

    def oracle(v, shapes, **a):
        return oracles.avg_pool_3d(v, shapes, **a, grids=(at, to) if elem == "i8" else None)

    results = [kind(elem, (2, *outs, 2), to)]
    return case(oracle, "avgpool", {"Src": x}, results, elem, at, **attributes)


def conv_transpose(rng: Rng) -> Case:
    group, per_group, depth = (int(i) for i in rng.integers(1, 3, 3))
    kernels = tuple(int(k) for k in rng.integers(1, 4, 2))
    strides = tuple(int(rng.integers(1, k + 1)) for k in kernels)
    dilation = tuple(int(k) for k in rng.integers(1, 3, 2))
    pads = tuple(int(k) for k in rng.integers(0, 2, 4))
    size = tuple(int(k) for k in rng.integers(3, 6, 2))
    least = [
        (n - 1) * s + (k - 1) * d + 1 - p - q
        for n, s, k, d, p, q in zip(
            size, strides, kernels, dilation, pads[:2], pads[2:], strict=True
        )
    ]
    out = (2, *(n + int(rng.integers(2)) for n in least), group * per_group)
    read = {
        "Src": values(rng, "float", (2, *size, group * depth)),
        "Filter": values(rng, "float", (per_group, *kernels, group * depth)),
        "Bias": values(rng, "float", (group * per_group,)),
    }
    attributes = {
        "Kernels": kernels, "Strides": strides, "Pads": pads, "Group": group, "Dilation": dilation
    }  # fmt: skip
    results = [TensorType("float", out)]
    return case(oracles.conv_transpose, "convtranspose", read, results, **attributes)


def log_softmax(rng: Rng) -> Case:
    x = values(rng, "float", shape(rng, 2, 2, 6))

    def oracle(v, shapes):
        rows = v["Src"].astype(float)
        lower = rows - rows.max(axis=1, keepdims=True)
        return [lower - np.log(np.exp(lower).sum(axis=1, keepdims=True))]

    return case(oracle, "logsoftmax", {"Src": x}, [plain_type(x)], near=2e-6)


CASES: dict[str, Callable[[Rng], Case]] = {
    "resizebilinear": resize_bilinear,
    "batchmatmul": batch_matmul,
    "logsoftmax": log_softmax,
    "batchnormalization": batch_normalization,
    "batchnormalization i8": batch_normalization_int8,
    "layernormalization": layer_normalization,
    "adaptiveavgpool": adaptive_avg_pool,
    "convolution3d": convolution_3d,
    "avgpool": avg_pool_3d,
    "convtranspose": conv_transpose,
}
