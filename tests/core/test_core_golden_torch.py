"""PyTorch's results, engine by engine, each computed by an instruction on both engines of ours.

PyTorch's activations are unsigned; as Int8 they and their zero points are less by 128. Factors are
float32, every operation rounded on its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_golden_cases import Case
from core_layers import (
    Weights,
    Window,
    bits,
    convolution,
    depthwise,
    doubles,
    float_scale,
    float_scales,
    fully_connected,
    pair,
)
from core_tensors import Array, scale, scale_records

F32 = np.float32
ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")
UNSIGNED = 128


def torch_cases(shared: Path, engine: str, *kinds: str) -> Iterator[tuple[str, Case]]:
    """Recorded cases of some kinds: array name -> array, and the words of ``meta``."""
    files = sorted((shared / "golden" / "torch").glob(f"{engine}_*.npz"))
    assert len(files) == 22
    for file in files:
        with np.load(file) as z:
            case = {key: z[key] for key in z.files if key != "meta"}
            meta = json.loads(str(z["meta"]))
        if meta["kind"] in kinds:
            yield file.name, {**meta, **case}


def int8(values: Array) -> Array:
    return (values.astype(np.int16) - UNSIGNED).astype(np.int8)


def reciprocal(value: Any) -> F32:
    return F32(1) / F32(value)


def out_words(case: Case) -> Case:
    """The result's zero point, and the clip of a fused relu."""
    offset = int(case["y_zp"]) - UNSIGNED
    is_relu = case.get("relu") or case["kind"].endswith("_relu")
    return {"out_offset": offset, **({"clip_low": offset, "clip_wanted": 1} if is_relu else {})}


def requantized(case: Case, profile: str) -> tuple[Case, Array, Array]:
    """Words of a layer with weights, its bias records and its scale records."""
    channels = case["w"].shape[0]
    weight_scales = np.broadcast_to(case["w_scale"].astype(F32), channels)
    bias = case["bias"] if case["bias"].size else np.zeros(channels, F32)
    products = F32(case["x_scale"]) * weight_scales
    result = reciprocal(case["y_scale"])
    none = float_scales(np.zeros(channels, F32))
    words = {"profile": profile, **out_words(case)}
    if profile == "float":
        integers = np.rint(bias * (F32(1) / products)).astype(np.int64)
        out = float_scales(products * result)
        return words, integers, scale_records(np.zeros(channels, "i4"), none, out)
    if profile == "fbgemm":
        out = float_scales(products / F32(case["y_scale"]))
        return words, doubles(bias / products), scale_records(np.zeros(channels, "i4"), none, out)
    if case["kind"] == "linear":
        weight_scales = F32(1) / (F32(1) / weight_scales)
    source = np.full(channels, reciprocal(reciprocal(case["x_scale"])))
    tables = float_scales(source), float_scales(weight_scales)
    words["result_scale"] = bits(result)
    return words, doubles(bias), scale_records(np.zeros(channels, "i4"), *tables)


def profile_of(engine: str, kind: str) -> str:
    """x86 has no arithmetic of its own."""
    x86 = {"conv": "onednn", "linear": "fbgemm"}
    return {"qnnpack": "float", "x86": x86[kind]}.get(engine, engine)


def window_of(case: Case) -> Window:
    def both(value: Any) -> tuple[int, int]:
        return tuple(value) if isinstance(value, list) else (value, value)

    pads = both(case["pad"])
    return Window(
        kernels=case["w"].shape[2:],
        strides=both(case["stride"]),
        pads=(*pads, *pads),
        dilation=both(case["dil"]),
        group=case["groups"],
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_convolutions(shared: Path, engine: str) -> None:
    """Depthwise ones by both instructions that can."""
    ran = 0
    for name, case in torch_cases(shared, engine, "conv"):
        words, bias, scales = requantized(case, profile_of(engine, "conv"))
        weights = Weights(values=case["w"].transpose(0, 2, 3, 1), bias=bias, scales=scales)
        x, expected = (int8(case[key]).transpose(0, 2, 3, 1) for key in ("x", "y"))
        layer = x, weights, window_of(case), words, int(case["x_zp"]) - UNSIGNED
        np.testing.assert_array_equal(convolution(*layer), expected, err_msg=name)
        if case["groups"] == x.shape[3] == bias.size:
            np.testing.assert_array_equal(depthwise(*layer), expected, err_msg=name)
        ran += 1
    assert ran == 14


@pytest.mark.parametrize("engine", ENGINES)
def test_linear(shared: Path, engine: str) -> None:
    ran = 0
    for name, case in torch_cases(shared, engine, "linear"):
        words, bias, scales = requantized(case, profile_of(engine, "linear"))
        weights = Weights(values=case["w"][:, None, None], bias=bias, scales=scales)
        y = fully_connected(int8(case["x"]), weights, words, int(case["x_zp"]) - UNSIGNED)
        np.testing.assert_array_equal(y, int8(case["y"]), err_msg=name)
        ran += 1
    assert ran == 4


def sum_words(case: Case, engine: str) -> Case:
    """The words of an addition."""
    if engine != "qnnpack":
        words: Case = {"profile": "float", "result_scale": bits(reciprocal(case["y_scale"]))}
        for side, name in (("lhs", "a"), ("rhs", "b")):
            factor, zero_point = F32(case[f"{name}_scale"]), F32(case[f"{name}_zp"])
            words |= scale(side, mul=bits(factor), post=bits(-zero_point * factor))
            words[f"{side}_offset"] = -UNSIGNED
        return words
    ratios = {side: F32(case[f"{side}_scale"]) / F32(case["y_scale"]) for side in ("a", "b")}
    shift = 22 - math.frexp(max(ratios.values()))[1]
    words = {"profile": "qnnpack", "out_post": shift}
    for side, name in (("lhs", "a"), ("rhs", "b")):
        words |= scale(side, mul=round(math.ldexp(ratios[name], shift)))
        words[f"{side}_offset"] = int(case[f"{name}_zp"]) - UNSIGNED
    return words


@pytest.mark.parametrize("engine", ENGINES)
def test_additions(shared: Path, engine: str) -> None:
    ran = 0
    for name, case in torch_cases(shared, engine, "add", "add_relu"):
        words = {"operation": "add", **sum_words(case, engine), **out_words(case)}
        y = pair(int8(case["a"]), int8(case["b"]), words)
        np.testing.assert_array_equal(y, int8(case["y"]), err_msg=name)
        ran += 1
    assert ran == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_products(shared: Path, engine: str) -> None:
    ran = 0
    for name, case in torch_cases(shared, engine, "mul"):
        product = F32(case["a_scale"]) * F32(case["b_scale"])
        words = {
            "profile": "float",
            "operation": "mul",
            "lhs_offset": int(case["a_zp"]) - UNSIGNED,
            "rhs_offset": int(case["b_zp"]) - UNSIGNED,
            **float_scale("out", product * reciprocal(case["y_scale"])),
            **out_words(case),
        }
        y = pair(int8(case["a"]), int8(case["b"]), words)
        np.testing.assert_array_equal(y, int8(case["y"]), err_msg=name)
        ran += 1
    assert ran == 1
