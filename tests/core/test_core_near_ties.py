"""PyTorch and ONNX Runtime on near-ties, by instructions on both engines.

ONNX Runtime's elementwise operations and its average of dequantized taps are in
``tests/conformance/test_torch_near_ties.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from core_layers import Weights, Window, convolution, fully_connected, pair, pool
from core_tensors import Array, scale_records
from core_words import (
    F32,
    UNSIGNED,
    Words,
    float_columns,
    float_words,
    qnnpack_sum,
    reciprocal,
    torch_layer,
    torch_sum,
)
from test_core_golden_torch import int8
from vectors import near_ties

ENGINES = ("fbgemm", "qnnpack", "onednn")
POINTWISE = Window(kernels=(1, 1))


def select_cases(kinds: tuple[str, ...], engine: str) -> Iterator[dict[str, Any]]:
    found = [case for case in near_ties() if case["kind"] in kinds and case["engine"] == engine]
    assert found
    return iter(found)


def channels_last(values: Array) -> Array:
    return np.moveaxis(values, 1, -1)


def layer(case: dict[str, Any], words: Words, bias: Array, scales: Array) -> Array:
    """Run a layer as a convolution, or as a fully connected layer if its input is 2-D."""
    w = case["w"].reshape(bias.size, 1, 1, -1)
    weights = Weights(values=w, bias=bias, scales=scales)
    words = {**words, "out_offset": int(case["y_zp"]) - UNSIGNED}
    x, zero = int8(case["x"]), int(case["x_zp"]) - UNSIGNED
    if x.ndim == 2:
        return fully_connected(x, weights, words, zero)
    y = convolution(channels_last(x), weights, POINTWISE, words, zero)
    return np.moveaxis(y, -1, 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_layers_equal_pytorch(engine: str) -> None:
    for case in select_cases(("layer", "one_scale"), engine):
        types = case["x_scale"], case["w_scale"], case["bias"], case["y_scale"]
        words, bias, scales = torch_layer(engine, *types, connected=case["x"].ndim == 2)
        result = layer(case, words, bias, scales)
        np.testing.assert_array_equal(result, int8(case["y"]))


def test_layers_equal_onnx_runtime() -> None:
    for case in select_cases(("layer",), "onnx"):
        factors = case["x_scale"] * case["w_scale"] / case["y_scale"]
        out = float_columns(factors.astype(F32))
        scales = scale_records(np.zeros(factors.size, np.int64), out, out)
        result = layer(case, {"profile": "float"}, case["bias"], scales)
        np.testing.assert_array_equal(result, int8(case["y"]))


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_equal_recorded_results(engine: str) -> None:
    """But for the last elements, which PyTorch does in another way where a vector is not full."""
    for case in select_cases(("add",), engine):
        sides = ((case[f"{side}_scale"], int(case[f"{side}_zp"])) for side in ("a", "b"))
        words = (qnnpack_sum if engine == "qnnpack" else torch_sum)(*sides, case["y_scale"])
        words |= {"operation": "add", "out_offset": int(case["y_zp"]) - UNSIGNED}
        whole = case["a"].size // 64 * 64
        result = pair(int8(case["a"]), int8(case["b"]), words)
        np.testing.assert_array_equal(result[:whole], int8(case["y"])[:whole])


@pytest.mark.parametrize("engine", ENGINES)
def test_products_equal_recorded_results(engine: str) -> None:
    for case in select_cases(("mul",), engine):
        factor = case["a_scale"] * case["b_scale"] * reciprocal(case["y_scale"])
        words = {
            "profile": "float",
            "operation": "mul",
            **{f"{side}_offset": int(case[f"{name}_zp"]) - UNSIGNED for side, name in SIDES},
            **float_words("out", factor),
        }
        result = pair(int8(case["a"]), int8(case["b"]), words)
        np.testing.assert_array_equal(result, int8(case["y"]))


SIDES = (("lhs", "a"), ("rhs", "b"), ("out", "y"))


@pytest.mark.parametrize("engine", [*ENGINES, "onnx"])
def test_averages_equal_recorded_results(engine: str) -> None:
    """Windows without padding that tile the input."""
    for case in select_cases(("adaptive", "blocks", "QLinearGlobalAveragePool"), engine):
        late = case["kind"] != "adaptive" or engine == "qnnpack"
        x, zero = channels_last(int8(case["x"])), int(case["x_zp"]) - UNSIGNED
        size = x.shape[1] // case["y"].shape[2]
        ratio = F32(case["x_scale"] / case.get("y_scale", case["x_scale"]))
        words = {
            "profile": "float" if late else "fbgemm",
            "in_offset": zero,
            "out_offset": int(case["y_zp"]) - UNSIGNED if "y_zp" in case else zero,
            **float_words("out", ratio / F32(size * size)),
        }
        y = pool("nmp.avgpool", x, Window(kernels=(size, size), strides=(size, size)), words)
        np.testing.assert_array_equal(np.moveaxis(y, -1, 1), int8(case["y"]))
