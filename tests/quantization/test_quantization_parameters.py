"""Scales, offsets and integers: Glow's own, to the bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nmpsim.quantization.parameters import (
    SCHEMAS,
    Parameters,
    choose_bias_parameters,
    choose_bias_weights_parameters,
    choose_parameters,
    count_saturated,
    quantize,
)

RECORDED_SCHEMAS = (
    "asymmetric",
    "symmetric",
    "symmetric-with-uint8",
    "symmetric-with-power2-scale",
)
"""Schemas by their numbers in the recordings."""
ELEMS = ("i8", "i16", "i32")
FLOATS = st.floats(-(2.0**20), 2.0**20, width=32)


def load_golden(shared, name: str) -> dict[str, np.ndarray]:
    with np.load(shared / "golden" / "glow" / f"{name}.npz") as archive:
        return dict(archive)


def test_schemas_have_their_names():
    assert SCHEMAS == RECORDED_SCHEMAS


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("number", range(4))
def test_parameters_equal_glow(shared, number, elem):
    vectors = load_golden(shared, "choose_qparams")
    cases = (vectors["schema"] == number) & (vectors["elem"] == elem)
    assert cases.sum() > 50
    chosen = choose_parameters(
        vectors["min"][cases], vectors["max"][cases], RECORDED_SCHEMAS[number], elem
    )
    np.testing.assert_array_equal(chosen.scale, vectors["scale"][cases])
    np.testing.assert_array_equal(chosen.offset, vectors["offset"][cases])
    assert (chosen.scale.dtype, chosen.offset.dtype) == (np.float32, np.int32)


@pytest.mark.parametrize("elem", ELEMS)
def test_bias_parameters_equal_glow(shared, elem):
    vectors = load_golden(shared, "bias_qparams")
    cases = {key: array[vectors["bias_elem"] == elem] for key, array in vectors.items()}
    own = Parameters(cases["bias_scale"], cases["bias_offset"])
    weights = Parameters(cases["weights_scale"], np.zeros_like(own.offset))
    is_zero = cases["bias_is_zero"] == 1
    bias = choose_bias_parameters(own, cases["in_scale"], weights.scale, elem, is_zero)
    np.testing.assert_array_equal(bias.scale, cases["spec_bias_scale"])
    np.testing.assert_array_equal(bias.offset, cases["spec_bias_offset"])
    bias, weights = choose_bias_weights_parameters(own, cases["in_scale"], weights, elem, is_zero)
    np.testing.assert_array_equal(bias.scale, cases["spec2_bias_scale"])
    np.testing.assert_array_equal(bias.offset, cases["spec2_bias_offset"])
    np.testing.assert_array_equal(weights.scale, cases["spec2_weights_scale"])


def test_quantized_integers_equal_glow(shared):
    vectors = load_golden(shared, "rescale_quantize_dequantize")
    compared = 0
    for number in range(int(vectors["ncases"])):
        case = {k[5:]: v for k, v in vectors.items() if k.startswith(f"{number:04d}.")}
        elem = str(case["elem"])
        parameters = Parameters(case["dst_scale"], case["dst_offset"])
        actual = quantize(case["float_in"], parameters, elem)
        np.testing.assert_array_equal(actual, case["quantize_interp"])
        parameters = Parameters(case["bias_i32_scale"], np.int32(0))
        np.testing.assert_array_equal(
            quantize(case["bias_float"], parameters, "i32"), case["bias_i32"]
        )
        compared += 1
    assert compared


@given(FLOATS, FLOATS, st.sampled_from(SCHEMAS), st.sampled_from(ELEMS))
def test_the_range_is_representable_and_zero_is_exact(a, b, schema, elem):
    low, high = sorted((a, b))
    assume(low == high == 0 or max(abs(low), abs(high)) > 1e-6)  # below, Glow centres the range
    chosen = choose_parameters(low, high, schema, elem)
    scale, offset = float(chosen.scale), int(chosen.offset)
    bits = {"i8": 8, "i16": 16, "i32": 30}[elem]
    bottom, top = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    assert scale > 0
    assert bottom <= offset <= top
    if schema in ("symmetric", "symmetric-with-power2-scale"):
        assert offset == 0
    if schema == "symmetric-with-power2-scale":
        assert math.frexp(scale)[0] == 0.5
    # A step, and what the scale's own rounding to float32 adds up to over the range.
    slack = 1.001 * scale + 2.0**-23 * (max(high, 0) - min(low, 0))
    assert scale * (bottom - offset) <= min(low, 0) + slack
    assert scale * (top - offset) >= max(high, 0) - slack


@pytest.mark.parametrize("high", [0.0, 1e-45, 1e-40])
@pytest.mark.parametrize("schema", SCHEMAS)
def test_tiny_ranges_have_a_usable_scale(schema, high):
    chosen = choose_parameters(0.0, high, schema, "i16")
    expected = 0.125 if schema == "symmetric-with-power2-scale" else 0.1
    assert chosen.scale == np.float32(expected)


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_largest_numbers_have_a_usable_scale(schema, elem):
    limits = np.finfo(np.float32)
    for low, high in ((limits.min, limits.max), (0.0, limits.max), (limits.min, 0.0)):
        chosen = choose_parameters(low, high, schema, elem)
        assert 0 < chosen.scale < np.inf
        assert quantize([low, high], chosen, elem).dtype == np.dtype(f"int{elem[1:]}")


def test_values_that_do_not_fit_are_counted():
    parameters = Parameters(np.float32(0.5), np.int32(10))
    values = np.array([-70.0, -69.0, 0.0, 58.5, 59.0, 59.5, 1e30], np.float32)
    assert quantize(values, parameters, "i8").tolist() == [-128, -128, 10, 127, 127, 127, 127]
    assert count_saturated(values, parameters, "i8") == 3  # 59.0 is one step beyond
