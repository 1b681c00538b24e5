"""Glow's convolutions, fully connected layers and matrix products, both oracles."""

from pathlib import Path

import numpy as np
from oracles import page
from tally import Tally
from vectors import Array, Case, glow_cases


def compute_sum(case: Case) -> Array:
    zero = case.get("filter_offsets", case.get("filter_offset"))
    return page.convolution_sum(
        case["input"],
        case["filter"],
        case["in_offset"],
        zero,
        case["strides"],
        case["pads_tlbr"],
        case["dilation"],
        int(case["group"]),
    )


def get_scales(case: Case, weights_scale: Array) -> dict[str, Array]:
    """Return the arguments that follow the sum."""
    return {
        "bias": case["bias"],
        "bias_zero": case.get("bias_offsets", case.get("bias_offset")),
        "bias_scale": case.get("bias_scales", case.get("bias_scale")),
        "product_scale": page.f32(case["in_scale"] * weights_scale),
        "out_scale": case["out_scale"],
        "out_zero": case["out_offset"],
    }


def check_integers(case: Case, prefix: str, factor: Array) -> None:
    """Assert that the integer form of a factor equals Glow's."""
    for part, value in zip(("pre", "mul", "post"), page.integer_scale(factor), strict=True):
        np.testing.assert_array_equal(value, case[prefix + part])


def test_convolution_int8_equals_glow(shared: Path) -> None:
    tally = Tally()
    for case in glow_cases(shared, "conv_i8.npz"):
        acc, scales = compute_sum(case), get_scales(case, case["filter_scale"])
        check_integers(case, "bias_", scales["bias_scale"] / scales["product_scale"])
        check_integers(case, "out_", scales["product_scale"] / scales["out_scale"])
        y, zero = page.glow_int(acc, **scales), case["out_offset"]
        tally.assert_equal("conv_i8, libjit", page.clip(y), case["expected_libjit"])
        if "expected_libjit_relu" in case:
            relu = page.clip(y, low=zero)
            tally.assert_equal("conv_i8, libjit with ReLU", relu, case["expected_libjit_relu"])
        y = page.clip(page.glow_float(acc, **scales))
        tally.assert_equal("conv_i8, Interpreter", y, case["expected_interp"])
    tally.assert_matches_page()


def test_channelwise_convolution_equals_glow(shared: Path) -> None:
    tally = Tally()
    for case in glow_cases(shared, "conv_channelwise_i8.npz"):
        acc, scales = compute_sum(case), get_scales(case, case["filter_scales"])
        y, zero = page.glow_int(acc, **scales), case["out_offset"]
        tally.assert_equal("conv_channelwise_i8, libjit", page.clip(y), case["expected_libjit"])
        if "expected_libjit_relu" in case:
            relu = page.clip(y, low=zero)
            row = "conv_channelwise_i8, libjit with ReLU"
            tally.assert_equal(row, relu, case["expected_libjit_relu"])
        y = page.clip(page.glow_float(acc, **scales))
        tally.assert_equal("conv_channelwise_i8, Interpreter", y, case["expected_interp"])
    tally.assert_matches_page()


def test_convolution_int16_equals_glow(shared: Path) -> None:
    tally = Tally()
    for case in glow_cases(shared, "conv_i16_interp.npz"):
        y = page.glow_float(compute_sum(case), **get_scales(case, case["filter_scale"]))
        tally.assert_equal("conv_i16_interp", page.clip(y, "i16"), case["expected_interp"])
    tally.assert_matches_page()


def connected_sum(case: Case) -> Array:
    """Return the sums of a fully connected layer with weights [K, N]."""
    x = case["input"].astype(np.int64) - case["in_offset"]
    return x @ (case["weights"].astype(np.int64) - case["weights_offset"])


def test_fully_connected_and_matrix_product_equal_glow(shared: Path) -> None:
    tally = Tally()
    for element in ("i8", "i16"):
        name = {"i8": "fc_i8", "i16": "fc_i16_interp"}[element]
        for case in glow_cases(shared, f"{name}.npz"):
            acc, scales = connected_sum(case), get_scales(case, case["weights_scale"])
            last = {k: scales[k] for k in ("product_scale", "out_scale", "out_zero")}
            y = page.clip(page.glow_float_connected(acc, **scales), element)
            tally.assert_equal(f"{name}, Interpreter", y, case["expected_interp"])
            y = page.clip(page.glow_float_matmul(acc, **last), element)
            tally.assert_equal(
                f"{name} without bias, Interpreter", y, case["expected_matmul_interp"]
            )
            if element == "i8":
                y = page.clip(page.glow_int(acc, **scales))
                tally.assert_equal("fc_i8, libjit", y, case["expected_libjit"])
                y = page.clip(page.glow_int_matmul(acc, **last))
                tally.assert_equal("fc_i8 without bias, libjit", y, case["expected_matmul_libjit"])
    tally.assert_matches_page()


def test_rowwise_fully_connected_equals_glow(shared: Path) -> None:
    tally = Tally()
    for case in glow_cases(shared, "fc_rowwise_i8.npz"):
        x = case["input"].astype(np.int64) - case["in_offset"]
        w = case["weights"].astype(np.int64) - case["weights_offsets"][:, None]
        y = page.clip(page.glow_int(x @ w.T, **get_scales(case, case["weights_scales"])))
        tally.assert_equal("fc_rowwise_i8", y, case["expected_libjit"])
    tally.assert_matches_page()
