"""Glow's own Int8 results (libjit), each computed by an instruction on both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from core_layers import (
    Weights,
    Window,
    convolution,
    fully_connected,
    matrix_product,
    pair,
    pool,
    unary,
)
from core_tensors import Array, scale, scale_records
from core_words import Columns, integer_columns, integer_words
from vectors import Case, glow_cases

F32 = np.float32


def checked_scale(case: Case, prefix: str, factor: Any, words: str) -> dict[str, int]:
    """Return a real factor as words and assert that they equal the recorded ones."""
    found = integer_words(words, factor)
    recorded = (int(case[f"{prefix}{part}"]) for part in ("pre", "mul", "post"))
    assert found == scale(words, *recorded)
    return found


def checked_scales(case: Case, prefix: str, factors: Array) -> Columns:
    """Return real factors as columns and assert that they equal the recorded ones."""
    found = integer_columns(factors)
    for part, values in zip(("pre", "mul", "post"), found, strict=True):
        np.testing.assert_array_equal(values, case[prefix + part])
    return found


def window(case: Case) -> Window:
    shape = {name: case[name] for name in ("kernels", "strides", "dilation") if name in case}
    return Window(pads=case["pads_tlbr"], group=int(case.get("group", 1)), **shape)


def relu(case: Case) -> Case:
    return {"clip_low": int(case["out_offset"]), "clip_wanted": 1}


def test_convolution_equals_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "conv_i8.npz")):
        product = F32(case["in_scale"] * case["filter_scale"])
        bias = case["bias"].astype(np.int64) - int(case["bias_offset"])
        weights = Weights(values=case["filter"], bias=bias, offsets=case["filter_offset"])
        words = {
            "out_offset": int(case["out_offset"]),
            **checked_scale(case, "bias_", case["bias_scale"] / product, "bias"),
            **checked_scale(case, "out_", product / case["out_scale"], "out"),
        }
        layer = case["input"], weights, window(case)
        y = convolution(*layer, words, int(case["in_offset"]))
        np.testing.assert_array_equal(y, case["expected_libjit"], err_msg=name)
        if "expected_libjit_relu" in case:
            y = convolution(*layer, {**words, **relu(case)}, int(case["in_offset"]))
            np.testing.assert_array_equal(y, case["expected_libjit_relu"], err_msg=name)
        ran += 1
    assert ran == 90


def test_channelwise_convolution_equals_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "conv_channelwise_i8.npz")):
        product = (case["in_scale"] * case["filter_scales"]).astype(F32)
        scales = scale_records(
            case["filter_offsets"],
            checked_scales(case, "bias_", case["bias_scales"] / product),
            checked_scales(case, "out_", product / case["out_scale"]),
        )
        weights = Weights(
            values=case["filter"],
            bias=case["bias"].astype(np.int64) - case["bias_offsets"],
            offsets=case["filter_offsets"],
            scales=scales,
        )
        words = {"out_offset": int(case["out_offset"])}
        y = convolution(case["input"], weights, window(case), words, int(case["in_offset"]))
        np.testing.assert_array_equal(y, case["expected_libjit"], err_msg=name)
        ran += 1
    assert ran == 24


def test_fully_connected_and_matrix_product_equal_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "fc_i8.npz")):
        product = F32(case["in_scale"] * case["weights_scale"])
        offsets = {
            "in": int(case["in_offset"]),
            "weights": int(case["weights_offset"]),
            "out": int(case["out_offset"]),
        }
        words = {
            "out_offset": offsets["out"],
            **checked_scale(case, "bias_", case["bias_scale"] / product, "bias"),
            **checked_scale(case, "out_", product / case["out_scale"], "out"),
        }
        weights = Weights(
            values=case["weights"].T[:, None, None],
            bias=case["bias"].astype(np.int64) - int(case["bias_offset"]),
            offsets=offsets["weights"],
        )
        y = fully_connected(case["input"], weights, words, offsets["in"])
        np.testing.assert_array_equal(y, case["expected_libjit"], err_msg=name)
        words = {
            "lhs_offset": offsets["in"],
            "rhs_offset": offsets["weights"],
            "out_offset": offsets["out"],
            **checked_scale(case, "matmul_", product / case["out_scale"], "out"),
        }
        y = matrix_product(case["input"], case["weights"], words)
        np.testing.assert_array_equal(y, case["expected_matmul_libjit"], err_msg=name)
        ran += 1
    assert ran == 40


def test_rowwise_fully_connected_equals_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "fc_rowwise_i8.npz")):
        product = (case["in_scale"] * case["weights_scales"]).astype(F32)
        scales = scale_records(
            case["weights_offsets"],
            checked_scales(case, "bias_", case["bias_scale"] / product),
            checked_scales(case, "out_", product / case["out_scale"]),
        )
        weights = Weights(
            values=case["weights"][:, None, None],
            bias=case["bias"].astype(np.int64) - int(case["bias_offset"]),
            offsets=case["weights_offsets"],
            scales=scales,
        )
        words = {"out_offset": int(case["out_offset"])}
        y = fully_connected(case["input"], weights, words, int(case["in_offset"]))
        np.testing.assert_array_equal(y, case["expected_libjit"], err_msg=name)
        ran += 1
    assert ran == 10


def test_elementwise_operations_equal_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "elementwise_i8.npz")):
        operation = str(case["op"])
        words: dict[str, int | str] = {
            "operation": operation,
            **{f"{side}_offset": int(case[f"{side}_offset"]) for side in ("lhs", "rhs", "out")},
        }
        if operation == "mul":
            ratio = F32(case["lhs_scale"] * case["rhs_scale"]) / case["out_scale"]
            words |= checked_scale(case, "", ratio, "out")
        else:
            for side in ("lhs", "rhs"):
                ratio = case[f"{side}_scale"] / case["out_scale"]
                words |= checked_scale(case, f"{side}_", ratio, side)
        y = pair(case["lhs"], case["rhs"], words)
        np.testing.assert_array_equal(y, case["expected_libjit"], err_msg=name)
        ran += 1
    assert ran == 100


def test_rescale_equals_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "rescale_quantize_dequantize.npz")):
        words = {
            "in_offset": int(case["src_offset"]),
            "out_offset": int(case["dst_offset"]),
            **checked_scale(case, "", case["src_scale"] / case["dst_scale"], "out"),
        }
        y = unary(case["src"], words)
        np.testing.assert_array_equal(y, case["rescale_libjit"], err_msg=name)
        ran += 1
    assert ran == 40


def test_pools_equal_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "pool_relu_i8.npz")):
        x, taps = case["input"], F32(int(np.prod(case["kernels"])))
        y = pool("nmp.maxpool", x, window(case), {"empty_value": int(case["in_offset"])})
        np.testing.assert_array_equal(y, case["expected_maxpool"], err_msg=name)
        ratio = case["in_scale"] / case["avg_out_scale"]
        words = {
            "in_offset": int(case["in_offset"]),
            "out_offset": int(case["avg_out_offset"]),
        }
        by_taps = {**words, **checked_scale(case, "avg_cip0_", ratio, "out"), "divide": 1}
        y = pool("nmp.avgpool", x, window(case), by_taps)
        np.testing.assert_array_equal(y, case["expected_avgpool_cip0_libjit"], err_msg=name)
        scaled = {**words, **checked_scale(case, "avg_cip1_", ratio / taps, "out")}
        y = pool("nmp.avgpool", x, window(case), scaled)
        np.testing.assert_array_equal(y, case["expected_avgpool_cip1_libjit"], err_msg=name)
        ran += 1
    assert ran == 36


def test_int16_pools_equal_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "pool_i16_interp.npz")):
        words = {"empty_value": int(case["in_offset"])}
        y = pool("nmp.maxpool", case["input"], window(case), words)
        np.testing.assert_array_equal(y, case["expected_maxpool"], err_msg=name)
        ran += 1
    assert ran == 9


def test_activations_equal_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "pool_relu_i8.npz")):
        x, in_offset = case["input"], int(case["in_offset"])
        words = {
            "in_offset": in_offset,
            "out_offset": int(case["avg_out_offset"]),
            **checked_scale(case, "relu_", case["in_scale"] / case["avg_out_scale"], "out"),
        }
        y = unary(x, {**words, "in_low": in_offset})
        np.testing.assert_array_equal(y, case["expected_relu_libjit"], err_msg=name)
        bounds = {"in_low": int(case["clip_min_q"]), "in_high": int(case["clip_max_q"])}
        y = unary(x, {**words, **bounds})
        np.testing.assert_array_equal(y, case["expected_clip_libjit"], err_msg=name)
        splat = {"in_low": int(case["maxsplat0_value"]), **scale("out")}
        np.testing.assert_array_equal(unary(x, splat), case["expected_maxsplat0"], err_msg=name)
        ran += 1
    assert ran == 36
