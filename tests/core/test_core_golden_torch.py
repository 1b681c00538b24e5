"""PyTorch's results, engine by engine, each computed by an instruction on both engines of ours.

PyTorch's activations are unsigned; as Int8 they and their zero points are less by 128. Factors are
float32, every operation rounded on its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from core_layers import Weights, Window, convolution, depthwise, fully_connected, pair
from core_tensors import Array
from core_words import (
    F32,
    UNSIGNED,
    float_words,
    qnnpack_sum,
    reciprocal,
    torch_layer,
    torch_sum,
)
from vectors import Case, torch_files
from vectors import pair as both

ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")


def int8(values: Array) -> Array:
    return (values.astype(np.int16) - UNSIGNED).astype(np.int8)


def out_words(case: Case) -> Case:
    """Return the words for the result's zero point and the clip of a fused ReLU."""
    offset = int(case["y_zp"]) - UNSIGNED
    is_relu = case["meta"].get("relu") or case["meta"]["kind"].endswith("_relu")
    return {"out_offset": offset, **({"clip_low": offset, "clip_wanted": 1} if is_relu else {})}


def make_layer_words(case: Case, engine: str) -> tuple[Case, Array, Array]:
    """Return the words, bias records and scale records of a layer with weights."""
    bias = case["bias"] if case["bias"].size else np.zeros(case["w"].shape[0], F32)
    words, records, scales = torch_layer(
        choose_profile(engine, case["meta"]["kind"]),
        case["x_scale"],
        case["w_scale"],
        bias,
        case["y_scale"],
        connected=case["meta"]["kind"] == "linear",
    )
    return {**words, **out_words(case)}, records, scales


def choose_profile(engine: str, kind: str) -> str:
    """Return the engine whose arithmetic a layer uses; x86 uses onednn or fbgemm."""
    return {"conv": "onednn", "linear": "fbgemm"}[kind] if engine == "x86" else engine


def make_window(case: Case) -> Window:
    pads = both(case["meta"]["pad"])
    return Window(
        kernels=case["w"].shape[2:],
        strides=both(case["meta"]["stride"]),
        pads=(*pads, *pads),
        dilation=both(case["meta"]["dil"]),
        group=case["meta"]["groups"],
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_convolutions_equal_recorded_results(shared: Path, engine: str) -> None:
    """Depthwise ones by both instructions that can."""
    ran = 0
    for case in torch_files(shared, engine, {"conv"}):
        words, bias, scales = make_layer_words(case, engine)
        weights = Weights(values=case["w"].transpose(0, 2, 3, 1), bias=bias, scales=scales)
        x, expected = (int8(case[key]).transpose(0, 2, 3, 1) for key in ("x", "y"))
        layer = x, weights, make_window(case), words, int(case["x_zp"]) - UNSIGNED
        np.testing.assert_array_equal(convolution(*layer), expected, err_msg=case["name"])
        if case["meta"]["groups"] == x.shape[3] == bias.size:
            np.testing.assert_array_equal(depthwise(*layer), expected, err_msg=case["name"])
        ran += 1
    assert ran == 14


@pytest.mark.parametrize("engine", ENGINES)
def test_linear_layers_equal_recorded_results(shared: Path, engine: str) -> None:
    ran = 0
    for case in torch_files(shared, engine, {"linear"}):
        words, bias, scales = make_layer_words(case, engine)
        weights = Weights(values=case["w"][:, None, None], bias=bias, scales=scales)
        y = fully_connected(int8(case["x"]), weights, words, int(case["x_zp"]) - UNSIGNED)
        np.testing.assert_array_equal(y, int8(case["y"]), err_msg=case["name"])
        ran += 1
    assert ran == 4


def sum_words(case: Case, engine: str) -> Case:
    sides = ((case[f"{side}_scale"], int(case[f"{side}_zp"])) for side in ("a", "b"))
    return (qnnpack_sum if engine == "qnnpack" else torch_sum)(*sides, case["y_scale"])


@pytest.mark.parametrize("engine", ENGINES)
def test_additions_equal_recorded_results(shared: Path, engine: str) -> None:
    ran = 0
    for case in torch_files(shared, engine, {"add", "add_relu"}):
        words = {"operation": "add", **sum_words(case, engine), **out_words(case)}
        y = pair(int8(case["a"]), int8(case["b"]), words)
        np.testing.assert_array_equal(y, int8(case["y"]), err_msg=case["name"])
        ran += 1
    assert ran == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_products_equal_recorded_results(shared: Path, engine: str) -> None:
    ran = 0
    for case in torch_files(shared, engine, {"mul"}):
        product = F32(case["a_scale"]) * F32(case["b_scale"])
        words = {
            "profile": "float",
            "operation": "mul",
            "lhs_offset": int(case["a_zp"]) - UNSIGNED,
            "rhs_offset": int(case["b_zp"]) - UNSIGNED,
            **float_words("out", product * reciprocal(case["y_scale"])),
            **out_words(case),
        }
        y = pair(int8(case["a"]), int8(case["b"]), words)
        np.testing.assert_array_equal(y, int8(case["y"]), err_msg=case["name"])
        ran += 1
    assert ran == 1
