"""Results of Glow's Interpreter, Int8 and Int16, each computed by an instruction on both engines.

Factors are float32, every operation rounded on its own, as the Interpreter has them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from core_layers import (
    Weights,
    convolution,
    fully_connected,
    matrix_product,
    pair,
    pool,
    unary,
)
from core_tensors import scale_records
from core_words import bits, float_columns, float_words, glow_float_pair
from test_core_golden import window
from vectors import Case, glow_cases

F32 = np.float32


def get_weights(case: Case, name: str) -> Weights:
    """Return the weights of a recorded convolution or fully connected layer."""
    values = case[name] if name == "filter" else case[name].T[:, None, None]
    bias = case["bias"].astype(np.int64) - int(case["bias_offset"])
    return Weights(values=values, bias=bias, offsets=case[f"{name}_offset"])


def sum_words(case: Case, name: str, profile: str) -> Case:
    product = F32(case["in_scale"] * case[f"{name}_scale"])
    return {
        "profile": profile,
        "out_offset": int(case["out_offset"]),
        **float_words("bias", case["bias_scale"] / product),
        **float_words("out", product / case["out_scale"]),
    }


@pytest.mark.parametrize(("file", "count"), [("conv_i8.npz", 90), ("conv_i16_interp.npz", 40)])
def test_convolution_equals_recorded_results(shared: Path, file: str, count: int) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, file)):
        weights, words = get_weights(case, "filter"), sum_words(case, "filter", "glow_float")
        y = convolution(case["input"], weights, window(case), words, int(case["in_offset"]))
        np.testing.assert_array_equal(y, case["expected_interp"], err_msg=name)
        ran += 1
    assert ran == count


def test_channelwise_convolution_equals_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "conv_channelwise_i8.npz")):
        product = (case["in_scale"] * case["filter_scales"]).astype(F32)
        scales = scale_records(
            case["filter_offsets"],
            float_columns(case["bias_scales"] / product),
            float_columns(product / case["out_scale"]),
        )
        weights = Weights(
            values=case["filter"],
            bias=case["bias"].astype(np.int64) - case["bias_offsets"],
            offsets=case["filter_offsets"],
            scales=scales,
        )
        words = {"profile": "glow_float", "out_offset": int(case["out_offset"])}
        y = convolution(case["input"], weights, window(case), words, int(case["in_offset"]))
        np.testing.assert_array_equal(y, case["expected_interp"], err_msg=name)
        ran += 1
    assert ran == 24


@pytest.mark.parametrize(("file", "count"), [("fc_i8.npz", 40), ("fc_i16_interp.npz", 24)])
def test_fully_connected_and_matrix_product_equal_recorded_results(
    shared: Path, file: str, count: int
) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, file)):
        weights, words = get_weights(case, "weights"), sum_words(case, "weights", "glow_float_late")
        y = fully_connected(case["input"], weights, words, int(case["in_offset"]))
        np.testing.assert_array_equal(y, case["expected_interp"], err_msg=name)
        product = F32(case["in_scale"] * case["weights_scale"])
        words = {
            "profile": "glow_float",
            "lhs_offset": int(case["in_offset"]),
            "rhs_offset": int(case["weights_offset"]),
            "out_offset": int(case["out_offset"]),
            **float_words("out", product / case["out_scale"]),
        }
        y = matrix_product(case["input"], case["weights"], words)
        np.testing.assert_array_equal(y, case["expected_matmul_interp"], err_msg=name)
        ran += 1
    assert ran == count


def test_elementwise_operations_equal_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "elementwise_i8.npz")):
        operation = str(case["op"])
        scales = (F32(case[f"{side}_scale"]) for side in ("lhs", "rhs", "out"))
        words = {
            "profile": "glow_float",
            "operation": operation,
            **{f"{side}_offset": int(case[f"{side}_offset"]) for side in ("lhs", "rhs", "out")},
            **glow_float_pair(operation, *scales),
        }
        y = pair(case["lhs"], case["rhs"], words)
        np.testing.assert_array_equal(y, case["expected_interp"], err_msg=name)
        ran += 1
    assert ran == 100


def list_rescale_words(in_scale: F32, in_offset: int, out_scale: F32, out_offset: int) -> Case:
    return {
        "profile": "glow_float",
        "in_offset": int(in_offset),
        "out_offset": int(out_offset),
        **float_words("out", in_scale),
        "result_scale": bits(out_scale),
    }


def test_rescale_equals_recorded_results(shared: Path) -> None:
    """The Interpreter clips Int16 to the range of Int8, by mistake: inside it, it is right."""
    ran = 0
    for name, case in enumerate(glow_cases(shared, "rescale_quantize_dequantize.npz")):
        source, target = (case[f"{side}_scale"] for side in ("src", "dst"))
        words = list_rescale_words(source, case["src_offset"], target, case["dst_offset"])
        y = unary(case["src"], words)
        y = np.clip(y, -128, 127) if y.dtype == np.int16 else y
        np.testing.assert_array_equal(y, case["rescale_interp"], err_msg=name)
        ran += 1
    assert ran == 40


def test_relu_equals_recorded_results(shared: Path) -> None:
    """``max`` with a splat of zero on the result's scale."""
    ran = 0
    for name, case in enumerate(glow_cases(shared, "pool_relu_i8.npz")):
        out_offset = int(case["avg_out_offset"])
        words = list_rescale_words(
            case["in_scale"], case["in_offset"], case["avg_out_scale"], out_offset
        )
        y = unary(case["input"], {**words, "clip_low": out_offset, "clip_wanted": 1})
        np.testing.assert_array_equal(y, case["expected_relu_interp"], err_msg=name)
        ran += 1
    assert ran == 36


def test_average_pools_equal_recorded_results(shared: Path) -> None:
    ran = 0
    for name, case in enumerate(glow_cases(shared, "pool_relu_i8.npz")):
        ratio, taps = case["in_scale"] / case["avg_out_scale"], F32(np.prod(case["kernels"]))
        words = {
            "profile": "glow_float",
            "in_offset": int(case["in_offset"]),
            "out_offset": int(case["avg_out_offset"]),
        }
        by_taps = {**words, **float_words("out", ratio), "divide": "by_valid_taps"}
        y = pool("nmp.avgpool", case["input"], window(case), by_taps)
        np.testing.assert_array_equal(y, case["expected_avgpool_cip0_interp"], err_msg=name)
        scaled = {**words, **float_words("out", ratio / taps)}
        y = pool("nmp.avgpool", case["input"], window(case), scaled)
        np.testing.assert_array_equal(y, case["expected_avgpool_cip1_interp"], err_msg=name)
        ran += 1
    assert ran == 36
