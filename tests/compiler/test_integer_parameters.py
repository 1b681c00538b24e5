"""Test ratios of scales as integers, and real values in units of a tensor's scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmpsim.compiler.numerics import PROFILES
from nmpsim.compiler.numerics.ratios import (
    ZERO_SCALE,
    divide_float32,
    make_shift_scale,
    multiply_float32,
)
from nmpsim.compiler.operations import Buffer, BufferView
from nmpsim.diagnostics import Place, UserError
from nmpsim.kernels.hostops import HostTensor
from nmpsim.kernels.hostops.rounding import quantize_value as quantize_by_host
from nmpsim.kernels.scale import IntegerScale, apply_integer_scale
from nmpsim.lir.nodes import Quantization, TensorType

HERE = Place("net.lir", 7, 3)
quantize_value = PROFILES["glow-int"].quantize


def grid(scale: float, offset: int) -> BufferView:
    quant = Quantization(scale, offset, 0.0, 0.0)
    return BufferView("t", Buffer("t", 1, constant=False), 0, TensorType("i8", (1,), quant))


@pytest.mark.parametrize(
    ("ratio", "pre", "mul", "post"),
    [
        (1.0, 0, 1, 0),
        (0.5, 0, 1, 1),
        (2.0**-31, 0, 1, 31),
        (4.0, 0, 4, 0),
        (3.0, 0, 384, 7),
        (0.75, 0, 384, 9),
        (300.0, 0, 300, 0),
        (0.01, 0, 328, 15),
    ],
)
def test_ratios_have_integer_parameters(ratio: float, pre: int, mul: int, post: int) -> None:
    assert make_shift_scale(ratio, HERE) == IntegerScale(pre, post, mul)


def test_a_ratio_of_one_changes_nothing() -> None:
    assert make_shift_scale(1.0, HERE) == IntegerScale(0, 0, 1)


@pytest.mark.parametrize("ratio", [2.0**-32, 2.0**-40, 1e-12])
def test_a_vanishing_ratio_gives_zero(ratio: float) -> None:
    """As the exact form gives for every 32-bit value."""
    assert make_shift_scale(ratio, HERE) == ZERO_SCALE


@pytest.mark.parametrize("value", [-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 1])
def test_shifts_of_more_than_31_bits_give_zero(value: int) -> None:
    for post in (32, 33, 40):
        assert apply_integer_scale(np.array([value]), IntegerScale(0, post, 1)).tolist() == [0]


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("inf"), float("nan")])
def test_a_ratio_without_integer_form_is_refused(ratio: float) -> None:
    with pytest.raises(UserError) as caught:
        make_shift_scale(ratio, HERE)
    (finding,) = caught.value.diagnostics
    assert finding.code == "COMP001"
    assert finding.place == HERE
    assert finding.found == str(ratio)


def test_products_and_quotients_are_float32() -> None:
    a, b = float(np.float32(0.1)), float(np.float32(0.3))
    assert multiply_float32(a, b) == float(np.float32(0.1) * np.float32(0.3)) != a * b
    assert divide_float32(a, b) == float(np.float32(0.1) / np.float32(0.3)) != a / b


def test_ratios_beyond_float32_are_refused() -> None:
    """No warning; what follows finds the ratio unusable."""
    assert multiply_float32(1e38, 1e38) == float("inf")
    assert multiply_float32(1e-38, 1e-38) == 0.0
    assert divide_float32(1e38, 1e-38) == float("inf")


@pytest.mark.parametrize(
    ("value", "scale", "offset", "expected"),
    [
        (1.0, 0.5, 3, 5),
        (0.25, 0.5, 0, 0),
        (0.75, 0.5, 0, 2),
        (0.25, 0.5, 1, 2),
        (-0.25, 0.5, 0, 0),
        (1e30, 0.5, 0, 2**31 - 1),
        (float("inf"), 0.5, 0, 2**31 - 1),
        (float("-inf"), 0.5, 0, -(2**31)),
        (float("nan"), 0.5, 9, 9),
    ],
)
def test_values_are_quantized_to_the_grid(
    value: float, scale: float, offset: int, expected: int
) -> None:
    assert quantize_value(value, grid(scale, offset)) == expected


@given(
    st.floats(width=32),
    st.floats(2.0**-20, 2.0**20, width=32),
    st.integers(-128, 127),
)
def test_values_are_quantized_like_on_the_host(value: float, scale: float, offset: int) -> None:
    view, host = (
        grid(scale, offset),
        HostTensor(np.zeros(1, np.int8), scale, offset, quantized=True),
    )
    with np.errstate(over="ignore"):
        assert view.clamp(quantize_value(value, view)) == quantize_by_host(value, host)
