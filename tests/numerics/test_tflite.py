"""Test TFLite's Int16 operations one by one, and Int8 networks layer by layer."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from oracles import page
from tally import Tally
from vectors import Array, Case, TfliteModel, csv_numbers

RELU = {tflite.ActivationFunctionType.RELU, tflite.ActivationFunctionType.RELU6}


def one_operation(path: Path) -> tuple[Any, list[Case], Case, Array]:
    """Return options, inputs with data, output and golden result of a one-operation model."""
    model = TfliteModel(path)
    ((_, options, inputs, output),) = model.operators()
    tensors, result = [model.tensor(number) for number in inputs], model.tensor(output)
    given = iter(sorted(path.parent.glob(f"{path.stem}_input*.csv")))
    for tensor in tensors:
        if tensor["data"] is None:
            tensor["data"] = csv_numbers(next(given)).reshape(tensor["shape"])
    (golden,) = path.parent.glob(f"{path.stem}_golden_*.csv")
    return options, tensors, result, csv_numbers(golden).reshape(result["shape"])


def models(shared: Path, operation: str) -> Iterator[Path]:
    yield from sorted((shared / "golden" / "tflite_int16" / operation).glob("*.tflite"))


def padding(options: Any, x: Array, w: Array, y_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return top, left, bottom and right padding; SAME puts the odd one at the end."""
    if options.Padding() == tflite.Padding.VALID:
        return (0, 0, 0, 0)
    strides, kernel = (options.StrideH(), options.StrideW()), w.shape[1:3]
    total = [
        max((y - 1) * s + k - n, 0)
        for y, s, k, n in zip(y_shape[1:3], strides, kernel, x.shape[1:3], strict=True)
    ]
    return (total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2)


def convolution(options: Any, x: Case, w: Case, b: Case, y: Case, wide: bool) -> Array:
    """Compute CONV_2D or DEPTHWISE_CONV_2D (weights [1, kh, kw, out]) before the clip."""
    weights, groups = w["data"], 1
    if isinstance(options, tflite.DepthwiseConv2DOptions):
        weights, groups = np.moveaxis(weights, (0, 3), (3, 0)), x["data"].shape[3]
    strides = (options.StrideH(), options.StrideW())
    pads = padding(options, x["data"], weights, y["shape"])
    acc = page.convolution_sum(
        x["data"], weights, x["zero"], w["zero"], strides, pads, groups=groups
    )
    factor = page.quantized_multiplier(page.q31_factor(x["scale"], w["scale"], y["scale"]))
    rescale = page.q31_wide if wide else page.q31
    return rescale(acc + b["data"], *factor) + y["zero"]


def test_int16_convolution_equals_tflite(shared: Path) -> None:
    tally = Tally()
    for path in models(shared, "conv"):
        options, (x, w, b), y, golden = one_operation(path)
        result = convolution(options, x, w, b, y, wide=True)
        tally.assert_equal("tflite_int16, conv", page.clip(result, "i16"), golden, path.name)
    tally.assert_matches_page()


@pytest.mark.parametrize(("operation", "function"), [("add", np.add), ("sub", np.subtract)])
def test_int16_sum_equals_tflite(shared: Path, operation: str, function: Any) -> None:
    tally = Tally()
    for path in models(shared, operation):
        _, (left, right), y, golden = one_operation(path)
        operands = (left["data"].astype(np.int64), right["data"].astype(np.int64))
        scales = (left["scale"], right["scale"], y["scale"], y["zero"])
        result = page.q31_pair(function, *operands, *scales, left=15)
        tally.assert_equal(
            f"tflite_int16, {operation}", page.clip(result, "i16"), golden, path.name
        )
    tally.assert_matches_page()


def test_int16_leaky_relu_and_quantize_equal_tflite(shared: Path) -> None:
    tally = Tally()
    for operation in ("leaky_relu", "quantize"):
        for path in models(shared, operation):
            options, (x,), y, golden = one_operation(path)
            types = (x["scale"], x["zero"], y["scale"], y["zero"])
            if operation == "quantize":
                result = page.q31_rescale(x["data"], *types)
            else:
                result = page.q31_leaky(x["data"], *types, options.Alpha())
            element = {"int16": "i16", "int32": "i32"}[y["dtype"].name]
            clipped = page.clip(result, element)
            tally.assert_equal(f"tflite_int16, {operation}", clipped, golden, path.name)
    tally.assert_matches_page()


def layer(name: str, options: Any, inputs: list[Case], y: Case) -> Array:
    """Compute the result of an Int8 layer before the clip."""
    x = inputs[0]
    if name in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        return convolution(options, *inputs, y, wide=False)
    if name == "ADD":
        sides = [i["data"].astype(np.int64) - i["zero"] for i in inputs]
        scales = (inputs[0]["scale"], inputs[1]["scale"], y["scale"], y["zero"])
        return page.q31_pair(np.add, *sides, *scales)
    if name == "AVERAGE_POOL_2D":
        kernels = (options.FilterHeight(), options.FilterWidth())
        window = (kernels, (options.StrideH(), options.StrideW()), (0, 0, 0, 0))
        return page.q31_average(*page.average_pool_sum(x["data"], 0, *window, True))
    assert name == "FULLY_CONNECTED"
    w, b = inputs[1:]
    acc = (x["data"].astype(np.int64) - x["zero"]) @ w["data"].T.astype(np.int64) + b["data"]
    return page.q31_connected(acc, page.q31_factor(x["scale"], w["scale"], y["scale"])) + y["zero"]


RECORDED_ROWS = {"resnet8_int8": [0, 1, 2], "dscnn_kws_int8": [0, 1, 3], "vww96_int8": [0, 1]}
"""Rows of inputs.npy with recorded intermediate results."""


@pytest.mark.parametrize("network", RECORDED_ROWS)
def test_int8_networks_equal_tflite(shared: Path, network: str) -> None:
    folder, tally = shared / "models" / network, Tally()
    recorded = np.load(folder / "intermediates_litert_ref.npz")
    results = {int(re.findall(r"_t(\d+)$", k)[0]): recorded[k] for k in recorded.files}
    model = TfliteModel(folder / "model.tflite")
    for name, options, inputs, output in model.operators():
        if name in ("RESHAPE", "SOFTMAX") or output not in results:
            continue
        tensors, y = [model.tensor(n) for n in inputs], model.tensor(output)
        for number, tensor in zip(inputs, tensors, strict=True):
            if tensor["data"] is None:
                first = np.load(folder / "inputs.npy")[RECORDED_ROWS[network]]
                tensor["data"] = results.get(number, first)
        relu = getattr(options, "FusedActivationFunction", lambda: 0)() in RELU
        result = page.clip(layer(name, options, tensors, y), low=y["zero"] if relu else None)
        tally.assert_equal(f"{network}, LiteRT", result, results[output], (name, output))
    tally.assert_matches_page()


@pytest.mark.parametrize("kernels", ["ref", "builtin"])
def test_int8_fully_connected_layers_equal_tflite(shared: Path, kernels: str) -> None:
    folder, tally = shared / "models" / "ad01_int8", Tally()
    rescale = {"ref": page.q31_connected, "builtin": page.ruy_connected}[kernels]
    model, x = TfliteModel(folder / "model.tflite"), np.load(folder / "inputs.npy")
    for _, options, inputs, output in model.operators():
        (given, w, b), y = [model.tensor(n) for n in inputs], model.tensor(output)
        acc = (x.astype(np.int64) - given["zero"]) @ w["data"].T.astype(np.int64) + b["data"]
        factor = page.q31_product_factor(given["scale"], w["scale"], y["scale"])
        relu = options.FusedActivationFunction() in RELU
        x = page.clip(rescale(acc, factor) + y["zero"], low=y["zero"] if relu else None)
    expected = np.load(folder / "expected.npz")[f"expected_litert_{kernels}"]
    tally.assert_equal(f"ad01_int8, LiteRT {kernels}", x, expected)
    tally.assert_matches_page()
