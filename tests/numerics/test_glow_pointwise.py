"""Glow's elementwise operations, pools, changes of type, softmax and LRN, both oracles."""

from pathlib import Path

import numpy as np
from oracles import page
from tally import Tally
from vectors import Case, glow_cases

PLAIN = {"add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum}


def sides(case: Case) -> tuple[object, ...]:
    """Return both sides minus their zero points, and the scales."""
    left = case["lhs"].astype(np.int64) - case["lhs_offset"]
    right = case["rhs"].astype(np.int64) - case["rhs_offset"]
    scales = (case["lhs_scale"], case["rhs_scale"], case["out_scale"], case["out_offset"])
    return left, right, *scales


def test_elementwise_operations_equal_glow(shared: Path) -> None:
    tally = Tally()
    for case in glow_cases(shared, "elementwise_i8.npz"):
        operation, operands = str(case["op"]), sides(case)
        if operation == "mul":
            y, real = page.glow_int_mul(*operands), page.glow_float_mul(*operands)
        else:
            y = page.glow_int_pair(PLAIN[operation], *operands)
            real = {
                "add": lambda *o: page.glow_float_add(*o),
                "sub": lambda *o: page.glow_float_sub(*o),
                "max": lambda *o: page.glow_float_select(np.maximum, *o),
                "min": lambda *o: page.glow_float_select(np.minimum, *o),
            }[operation](*operands)
        tally.assert_equal(
            "elementwise_i8, libjit", page.clip(y), case["expected_libjit"], operation
        )
        interpreted = page.clip(real)
        tally.assert_equal(
            "elementwise_i8, Interpreter", interpreted, case["expected_interp"], operation
        )
    tally.assert_matches_page()


def test_conversions_equal_glow(shared: Path) -> None:
    tally = Tally()
    for case in glow_cases(shared, "rescale_quantize_dequantize.npz"):
        element = str(case["elem"])
        name, to = "rescale_quantize_dequantize", (case["dst_scale"], case["dst_offset"])
        types = (case["src_scale"], case["src_offset"], *to)
        y = page.clip(page.glow_int_rescale(case["src"], *types), element)
        tally.assert_equal(f"{name}, rescale, libjit", y, case["rescale_libjit"])
        # interpreter-int16-rescale: the Interpreter clips Int16 to the range of Int8.
        y = page.clip(page.glow_float_rescale(case["src"], *types), "i8")
        tally.assert_equal(f"{name}, rescale, Interpreter", y, case["rescale_interp"])

        x = case["float_in"]
        y = page.clip(page.quantize(x, *to), element)
        tally.assert_equal(f"{name}, quantize, Interpreter", y, case["quantize_interp"])
        # quantize-beyond-int32: libjit's cast is undefined there.
        defined = np.abs(np.float64(x) / np.float64(to[0])) < 2**31
        y = (y[defined], case["quantize_libjit"][defined])
        tally.assert_equal(f"{name}, quantize, libjit", *y)
        y = page.dequantize(case["src"].astype(np.int64), *types[:2])
        tally.assert_equal(f"{name}, dequantize", y, case["dequantize"])
        y = page.clip(page.quantize(case["bias_float"], case["bias_i32_scale"], 0), "i32")
        tally.assert_equal(f"{name}, bias", y, case["bias_i32"])
    tally.assert_matches_page()


def test_max_pool_equals_glow(shared: Path) -> None:
    tally = Tally()
    for name in ("pool_relu_i8", "pool_i16_interp"):
        for case in glow_cases(shared, f"{name}.npz"):
            window = (case["kernels"], case["strides"], case["pads_tlbr"])
            y = page.max_pool(case["input"], case["in_offset"], *window)
            tally.assert_equal(f"{name}, maximum", y, case["expected_maxpool"])
    tally.assert_matches_page()


def test_average_pool_equals_glow(shared: Path) -> None:
    tally = Tally()
    for case in glow_cases(shared, "pool_relu_i8.npz"):
        window = (case["kernels"], case["strides"], case["pads_tlbr"])
        scales = (case["in_scale"], case["avg_out_scale"], case["avg_out_offset"])
        for counted in (0, 1):
            s, n = page.average_pool_sum(case["input"], case["in_offset"], *window, counted)
            y = page.clip(page.glow_int_average(s, n, *scales, counted))
            name = f"expected_avgpool_cip{counted}"
            tally.assert_equal("pool_relu_i8, average, libjit", y, case[f"{name}_libjit"], counted)
            y = page.clip(page.glow_float_average(s, n, *scales))
            tally.assert_equal(
                "pool_relu_i8, average, Interpreter", y, case[f"{name}_interp"], counted
            )
    tally.assert_matches_page()


def test_relu_clip_and_splat_equal_glow(shared: Path) -> None:
    tally = Tally()
    for case in glow_cases(shared, "pool_relu_i8.npz"):
        x, zero = case["input"], case["in_offset"]
        types = (case["in_scale"], zero, case["avg_out_scale"], case["avg_out_offset"])
        y = page.clip(page.glow_int_rescale(x, *types, low=zero))
        tally.assert_equal("pool_relu_i8, ReLU, libjit", y, case["expected_relu_libjit"])
        bounds = [
            page.clip(page.quantize(case[f"clip_{end}_f"], *types[:2])) for end in ("min", "max")
        ]
        assert bounds == [case["clip_min_q"], case["clip_max_q"]]
        y = page.clip(page.glow_int_rescale(x, *types, *bounds))
        tally.assert_equal("pool_relu_i8, Clip, libjit", y, case["expected_clip_libjit"])
        splat = page.clip(page.quantize(page.f32(0), *types[:2]))
        tally.assert_equal(
            "pool_relu_i8, CPUMaxSplat", np.maximum(x, splat), case["expected_maxsplat0"]
        )
        # The Interpreter: both sides of the maximum brought to the result's type.
        shifted, zeros = x.astype(np.int64) - zero, np.zeros(x.shape, np.int64)
        y = page.glow_float_select(np.maximum, shifted, zeros, types[0], types[0], *types[2:])
        tally.assert_equal("pool_relu_i8, ReLU, Interpreter", y, case["expected_relu_interp"])
    tally.assert_matches_page()


def test_softmax_and_lrn_equal_glow(shared: Path) -> None:
    tally = Tally()
    for case in glow_cases(shared, "softmax_lrn_f32.npz"):
        for oracle in ("libjit", "interp"):
            y = page.softmax(case["softmax_in"])
            tally.assert_equal("softmax_lrn_f32, softmax", y, case[f"softmax_{oracle}"])
            numbers = (case["lrn_half_window"], case["lrn_alpha"], case["lrn_beta"], case["lrn_k"])
            y, scale = page.local_response_normalization(case["lrn_in"], *numbers)
            # lrn-power: glibc's powf is not always the nearest float32.
            units = np.abs(y.view(np.int32) - case[f"lrn_{oracle}"].view(np.int32))
            assert units.max() <= 1
            tally.assert_equal(
                "softmax_lrn_f32, LRN", y[units == 0], case[f"lrn_{oracle}"][units == 0]
            )
            tally.assert_equal(
                "softmax_lrn_f32, LRN's scale", scale, case["lrn_scale_cache_libjit"]
            )
    tally.assert_matches_page()
