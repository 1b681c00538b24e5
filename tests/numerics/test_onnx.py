"""ONNX Runtime: every integer operation of recorded networks made of them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from oracles import page
from tally import Tally
from vectors import Array

MODELS = [
    f"{network}/qoperator_{kind}8s8_perchannel"
    for network in ("mnist_cntk", "resnet8_float_ortq")
    for kind in "us"
]


def padding(options: dict[str, Any], size: tuple[int, ...]) -> list[int]:
    """Return top, left, bottom and right padding; SAME_UPPER puts the odd one at the end."""
    if options.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID"):
        return list(options.get("pads", (0, 0, 0, 0)))
    assert options["auto_pad"] == b"SAME_UPPER"
    strides, kernel = options["strides"], options["kernel_shape"]
    total = [
        max((-(-n // s) - 1) * s + k - n, 0) for n, s, k in zip(size, strides, kernel, strict=True)
    ]
    before = [t // 2 for t in total]
    return before + [t - b for t, b in zip(total, before, strict=True)]


def conv(options: dict[str, Any], x: Array, types: list[Any]) -> Array:
    """Compute QLinearConv; ``types`` are the operands after x."""
    x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = types
    strides, pads = options.get("strides", (1, 1)), padding(options, x.shape[2:])
    acc = page.convolution_sum(
        np.moveaxis(x, 1, -1),
        np.moveaxis(w, 1, -1),
        int(x_zero),
        w_zero,
        strides,
        pads,
        options.get("dilations", (1, 1)),
        options.get("group", 1),
    )
    acc = acc + (bias[0] if bias else 0)
    y = page.float_product(acc, page.float_factor(x_scale, w_scale, y_scale), int(y_zero))
    return np.moveaxis(y, -1, 1)


def gemm(options: dict[str, Any], x: Array, types: list[Any]) -> Array:
    """Compute QGemm with weights [out, in] or [in, out]."""
    x_scale, x_zero, w, w_scale, w_zero, bias, y_scale, y_zero = types
    w = w.astype(np.int64) - w_zero.astype(np.int64)
    if options.get("transB"):
        w = w.T
    acc = (x.astype(np.int64) - int(x_zero)) @ w + bias
    return page.float_product(acc, page.float_factor(x_scale, w_scale, y_scale), int(y_zero))


def add(_: dict[str, Any], x: Array, types: list[Any]) -> Array:
    """Compute QLinearAdd."""
    x_scale, x_zero, other, other_scale, other_zero, y_scale, y_zero = types
    scales = (x_scale, int(x_zero), other_scale, int(other_zero), y_scale, int(y_zero))
    return page.onnx_add(x.astype(np.int64), other.astype(np.int64), *scales)


def max_pool(options: dict[str, Any], x: Array, _: list[Any]) -> Array:
    window = (options["kernel_shape"], options["strides"], padding(options, x.shape[2:]))
    return np.moveaxis(page.max_pool(np.moveaxis(x, 1, -1), 0, *window), -1, 1)


def average_pool(options: dict[str, Any], x: Array, types: list[Any]) -> Array:
    """Compute QLinearAveragePool without padding."""
    x_scale, x_zero, y_scale, y_zero = types
    window = (options["kernel_shape"], options["strides"], (0, 0, 0, 0))
    taps = page.window_taps(np.moveaxis(x, 1, -1), *window, 0)
    y = page.onnx_average(taps, x_scale, int(x_zero), y_scale, int(y_zero))
    return np.moveaxis(y, -1, 1)


def quantize(_: dict[str, Any], x: Array, types: list[Any]) -> Array:
    return page.quantize_onnx(x, types[0], int(types[1]))


OPERATIONS = {
    "QLinearConv": conv,
    "QGemm": gemm,
    "QLinearAdd": add,
    "MaxPool": max_pool,
    "QLinearAveragePool": average_pool,
    "QuantizeLinear": quantize,
}


@pytest.mark.parametrize("name", MODELS)
def test_networks_equal_onnx_runtime(shared: Path, name: str) -> None:
    network, variant = name.split("/")
    folder, tally = shared / "models" / network, Tally()
    graph = onnx.load(folder / f"model_{variant}.onnx").graph
    values: dict[str, Array] = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    recorded = np.load(folder / f"intermediates_ort_{variant}.npz")
    results = {key.replace("|", "/"): recorded[key] for key in recorded.files}
    values |= results
    count = len(recorded[recorded.files[0]])
    values.setdefault(graph.input[0].name, np.load(folder / "inputs.npy")[:count])
    for node in graph.node:
        if node.op_type not in OPERATIONS:
            continue
        x, *types = (values[operand] for operand in node.input)
        options = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        y, expected = OPERATIONS[node.op_type](options, x, types), results[node.output[0]]
        limits = np.iinfo(expected.dtype)
        clipped = np.clip(y, limits.min, limits.max)
        tally.assert_equal(name, clipped, expected, (node.op_type, node.name))
    tally.assert_matches_page()


def test_softmax_equals_onnx_runtime(shared: Path) -> None:
    tally = Tally()
    with np.load(shared / "golden" / "frontends" / "ort_ops.npz") as archive:
        for kind in ("int8", "uint8"):
            for number in range(6):
                key = f"QLinearSoftmax_{kind}/{number:02}"
                model = onnx.load_model_from_string(archive[f"{key}/model"].tobytes())
                types = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
                x = archive[f"{key}/in0"].astype(np.int64)
                y = page.onnx_softmax(x, types["s"], types["os"], int(types["oz"]))
                limits = np.iinfo(kind)
                expected = archive[f"{key}/out0"]
                y = np.clip(y, limits.min, limits.max)
                tally.assert_equal(f"ONNX Runtime softmax, {kind}", y, expected)
    tally.assert_matches_page()
