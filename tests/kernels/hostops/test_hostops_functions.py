"""Test float32 functions and rounding at their edges against plain Python."""

from __future__ import annotations

import hashlib
import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmpsim.isa.profiles import NUMERICS_NAMES
from nmpsim.kernels.hostops import HostTensor, rounding
from nmpsim.kernels.hostops.functions import _LN_2, _root, exp32, power32, tanh32
from nmpsim.kernels.hostops.rounding import round_half_away, round_half_even
from nmpsim.lir.host_execution import execute_operation

F32 = np.float32


def make_float_tensor(value: float) -> HostTensor:
    return HostTensor(np.array([value], dtype=F32))


@given(st.floats(-100, 88, width=32))
def test_exp_is_within_one_unit_in_the_last_place(x: float) -> None:
    exact = math.exp(x)
    assert abs(float(exp32(F32([x]))[0]) - exact) <= float(np.spacing(F32(exact))) * 0.51


@pytest.mark.parametrize(
    ("function", "low", "high", "digest"),
    [
        (exp32, -87.0, 88.0, "89fe818b3202cb09"),
        (tanh32, -10.0, 10.0, "c275d357339612a8"),
        (lambda x: power32(x, -0.75), 0.1, 100.0, "b2c726617d1f9d12"),
    ],
    ids=["exp", "tanh", "power"],
)
def test_functions_are_the_same_on_every_host(
    function: Any, low: float, high: float, digest: str
) -> None:
    """The digest of ``exp`` was made with glibc's expf, the others with correct rounding."""
    values = function(np.linspace(low, high, 10_001, dtype=F32))
    assert hashlib.sha256(values.astype("<f4").tobytes()).hexdigest().startswith(digest)


@given(st.floats(-20, 20, width=32))
def test_tanh_is_correctly_rounded(x: float) -> None:
    assert tanh32(F32([x]))[0] == F32(math.tanh(x))


@given(st.floats(2.0**-20, 2.0**20, width=32), st.sampled_from([-0.75, -0.5, 0.25, 2.0]))
def test_power_is_correctly_rounded(x: float, exponent: float) -> None:
    assert power32(F32([x]), exponent)[0] == F32(x**exponent)


def test_tanh_and_power_at_the_ends() -> None:
    odd = np.array([0.0, np.inf, np.nan, -1.0], F32)
    np.testing.assert_array_equal(power32(odd, -0.75), F32([np.inf, 0.0, np.nan, np.nan]))
    tiny = np.array([-np.inf, np.inf, np.nan, -0.0, 1e-40], F32)
    np.testing.assert_array_equal(tanh32(tiny), F32([-1, 1, np.nan, -0.0, 1e-40]))


def test_exp_at_the_ends() -> None:
    with np.errstate(all="ignore"):
        ends = exp32(np.array([-np.inf, -104.0, 0.0, 89.0, np.inf, np.nan], dtype=F32))
    np.testing.assert_array_equal(ends, [0.0, 0.0, 1.0, np.inf, np.inf, np.nan])


@given(st.floats(-(2.0**24), 2.0**24, width=32))
def test_rounding_of_halves(x: float) -> None:
    away = math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1)
    assert round_half_away(F32([x]))[0] == away
    assert round_half_even(F32([x]))[0] == round(x)


def test_largest_float_below_a_half_rounds_to_zero() -> None:
    assert round_half_away(np.nextafter(F32([0.5]), F32(0)))[0] == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [(math.inf, 127), (-math.inf, -128), (3e38, 127), (-3e38, -128), (math.nan, 5), (0.75, 6)],
)
def test_quantize_saturates_and_takes_nan_as_zero(value: float, expected: int) -> None:
    dest = HostTensor(np.zeros(1, dtype=np.int8), 0.5, 5, quantized=True)
    result = execute_operation("quantize", [dest, make_float_tensor(value)], {})
    assert result.outputs[0][0] == expected
    assert (result.unclipped[0][0] > 127) == (value > 1e3)


@pytest.mark.parametrize("numerics", NUMERICS_NAMES)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_quantize_in_parts(monkeypatch: pytest.MonkeyPatch, dtype: Any, numerics: str) -> None:
    """Each value as it is alone, whatever is saturated or no number in its part."""
    limits = np.iinfo(dtype)
    values = [0.25, -0.25, 7.75, math.nan, limits.max, 1.0, limits.min, math.inf, -3e38, 2.0, 0.5]
    reals = np.array(values, F32).reshape(11, 1)
    dest = HostTensor(np.zeros((11, 1), dtype), 0.5, 5, quantized=True)
    scalar = HostTensor(np.zeros((), dtype), 0.5, 5, quantized=True)
    alone = [
        execute_operation("quantize", [scalar, HostTensor(x)], {}, numerics) for x in reals.ravel()
    ]
    monkeypatch.setattr(rounding, "_PART", 3)
    found = execute_operation("quantize", [dest, HostTensor(reals)], {}, numerics)
    assert found.outputs[0].ravel().tolist() == [one.outputs[0].item() for one in alone]
    assert found.unclipped[0].ravel().tolist() == [one.unclipped[0].item() for one in alone]
    assert found.clipped[0].indices.tolist() == [4, 6, 7, 8]
    assert found.outputs[0].shape == (11, 1)


def test_sigmoid_and_tanh() -> None:
    x = HostTensor(np.array([-200.0, -1.0, 0.0, 1.0, 200.0], dtype=F32))
    dest = HostTensor(np.zeros(5, dtype=F32))
    sigmoid = execute_operation("sigmoid", [dest, x], {}).outputs[0]
    tanh = execute_operation("tanh", [dest, x], {}).outputs[0]
    np.testing.assert_allclose(sigmoid, [0, 0.26894142, 0.5, 0.7310586, 1], rtol=2e-7)
    np.testing.assert_allclose(tanh, [-1, -0.7615942, 0, 0.7615942, 1], rtol=2e-7)


def test_softmax_flattens_what_follows_axis_0() -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(F32)
    flat = execute_operation(
        "softmax", [HostTensor(np.zeros((2, 12), F32)), HostTensor(x.reshape(2, 12))], {}
    )
    deep = execute_operation("softmax", [HostTensor(np.zeros_like(x)), HostTensor(x)], {})
    np.testing.assert_array_equal(deep.outputs[0].reshape(2, 12), flat.outputs[0])


def test_powers_of_two_that_exp_is_made_of_are_correctly_rounded() -> None:
    exactly = Context(prec=40)
    assert float(exactly.ln(2)) == _LN_2
    for k in range(32):
        assert _root(k) == float(exactly.power(2, Decimal(k) / 32))
