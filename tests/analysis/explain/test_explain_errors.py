"""Errors of integer forms, against every single input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.analysis.explain import Factor, make_factor, measure_error_band, measure_rounding_errors
from nmpsim.compiler.numerics.ratios import find_overflow
from nmpsim.kernels.scale import IntegerScale, InvalidScaleError

ACCUMULATORS = {"int8": 32, "int16": 48}


def every_input(
    factor: Factor, precision: str, offset: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all unclipped inputs without overflow, with results and errors."""
    form, bits = factor.integer, int(precision[3:])
    half = 1 << form.post >> 1
    reach = int((2**bits + 4) / factor.real) + 2 ** (form.pre + 1)
    limit = 1 << (ACCUMULATORS[precision] - 1)
    inputs, results = [], []
    for x in range(max(-reach, -limit), min(reach, limit - 1) + 1):
        product = (x >> form.pre) * form.mul + half
        result = product >> form.post
        inside = -(1 << (bits - 1)) <= result + offset < 1 << (bits - 1)
        if inside and -(2**31) <= product < 2**31:
            inputs.append(x)
            results.append(result)
    x, y = np.array(inputs), np.array(results)
    return x, y, y - factor.real * x


def check_against_every_input(scale: float, precision: str, offset: int) -> None:
    factor = make_factor(scale)
    errors = measure_rounding_errors(factor, precision, offset)
    x, y, wrong = every_input(factor, precision, offset)
    assert (errors.input_low, errors.input_high, errors.inputs) == (x[0], x[-1], x.size)
    assert abs(errors.worst) == pytest.approx(np.abs(wrong).max(), rel=1e-9)
    assert wrong[errors.worst_input - x[0]] == pytest.approx(errors.worst, rel=1e-9)
    assert y[errors.worst_input - x[0]] == errors.worst_product
    assert errors.mean == pytest.approx(np.abs(wrong).mean(), rel=1e-6, abs=1e-12)
    nearest = np.floor(factor.real * x + 0.5)
    assert errors.differing == pytest.approx((nearest != y).mean(), abs=1e-9)


@examples(60)
@given(st.floats(2.0**-7, 300.0, width=32), st.integers(-128, 127))
def test_errors_of_int8_factors_are_exact(scale: float, offset: int) -> None:
    check_against_every_input(scale, "int8", offset)


@pytest.mark.parametrize("exponent", range(-9, 9))
def test_powers_of_two_are_as_near_as_integers_can_be(exponent: int) -> None:
    check_against_every_input(2.0**exponent, "int8", 3)
    errors = measure_rounding_errors(make_factor(2.0**exponent), "int8")
    assert abs(errors.worst) <= 0.5
    assert errors.differing == 0.0


@pytest.mark.parametrize(("scale", "offset"), [(0.37, -5), (1.5, 20000), (70.0, -32768)])
def test_errors_of_int16_factors_are_exact(scale: float, offset: int) -> None:
    check_against_every_input(scale, "int16", offset)


def test_nine_bits_are_too_few_for_int16() -> None:
    """Glow's multiplier errs by up to 2^-9; of 2^15 steps that is many."""
    assert abs(measure_rounding_errors(make_factor(0.00123), "int16").worst) > 40


@pytest.mark.parametrize("scale", [2.0**-31, 2.0**-30, 1e-9, 1e-8, 3e-6, 0.01, 1.0, 200.0])
def test_overflow_begins_at_the_reported_input(scale: float) -> None:
    form = make_factor(scale).integer
    for bits in (32, 48):
        overflow, limit = find_overflow(form, bits), 1 << (bits - 1)
        for end, step in ((overflow.low, -1), (overflow.high, 1)):
            if end is not None:
                assert overflows(form, end) and not overflows(form, end - step)
            elif bits == 32:
                assert not overflows(form, limit - 1 if step > 0 else -limit)


def overflows(form: IntegerScale, x: int) -> bool:
    product = (x >> form.pre) * form.mul + (1 << form.post >> 1)
    return not -(2**31) <= product < 2**31


def test_a_vanishing_factor_is_reported() -> None:
    assert make_factor(2.0**-32).is_zero
    assert not make_factor(2.0**-31).is_zero


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 1e39, 1e-46])
def test_invalid_factors_are_refused(scale: float) -> None:
    with np.errstate(over="ignore"), pytest.raises(InvalidScaleError):
        make_factor(scale)


def test_a_power_of_two_shows_its_exponent() -> None:
    assert [make_factor(s).exponent for s in (1.0, 0.25, 1024.0, 0.3)] == [0, -2, 10, None]


@examples(30)
@given(st.floats(2.0**-7, 300.0, width=32), st.integers(-128, 127), st.integers(1, 50))
def test_the_band_holds_every_error(scale: float, offset: int, parts: int) -> None:
    factor = make_factor(scale)
    band = measure_error_band(factor, "int8", offset, parts)
    x, _, wrong = every_input(factor, "int8", offset)
    assert len(band.low) == len(band.high) == len(band.edges) - 1 == min(parts, x.size)
    for low, high, begin, end in zip(
        band.low, band.high, band.edges[:-1], band.edges[1:], strict=True
    ):
        part = wrong[begin - x[0] : end - x[0]]
        assert (low, high) == (pytest.approx(part.min()), pytest.approx(part.max()))
