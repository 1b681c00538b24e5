"""Runs of values on one scale, number by number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
from rescale_oracle import (
    F32,
    INT8,
    INT16,
    INT32,
    RESCALE,
    Ledger,
    fixed_form,
    integer_form,
    new_counters,
    rounded_away,
    rounded_even,
)

from nmpsim.kernels import channels, scaling
from nmpsim.kernels.operands import IntegerScale

PROFILES = {"glow_int": 0, "nmp": 3, "q31": 4}
scale_entry: Any = numba.njit(
    lambda values, count, scale, profile, element, index, counters: scaling.scale_integers(
        values[:count], scale, profile, element, index, counters
    )
)
multiply_entry: Any = numba.njit(
    lambda values, count, factor, reals: scaling.multiply_to_floats(values[:count], factor, reals)
)
real_entry: Any = numba.njit(
    lambda reals, count, value: scaling.add_to_floats(reals[:count], value)
)
away_entry: Any = numba.njit(
    lambda reals, count, values: scaling.round_run_away(reals, values[:count])
)
even_entry: Any = numba.njit(
    lambda reals, count, values: scaling.round_run_even(reals, values[:count])
)
integer_entry: Any = numba.njit(
    lambda values, count, value: scaling.add_to_run(values[:count], value)
)
INTEGER_SCALES = [(0, 1, 0), (3, 181, 7), (0, 77, 31), (31, 1, 0), (0, INT32[1], 0), (2, -9, 3),
                  (0, 0, 5)]  # fmt: skip
FIXED_SCALES = [(0, 1 << 30, 0), (7, 1518500250, 4), (31, INT32[1], 31), (0, INT32[1], 1),
                (20, 1 << 30, 0), (1, -(1 << 30), 2)]  # fmt: skip
XS = [0, 1, -1, 2, -3, 100, -129, 65535, -65536, INT32[1], INT32[0]]
WIDE_XS = [*XS, 1 << 33, -(1 << 33), (1 << 47) - 1, -(1 << 47), (1 << 61) + 9, -(1 << 61) - 9]
BEHIND = 1 << 50


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("profile", PROFILES)
def test_integers(profile: str, element: int) -> None:
    for scale in FIXED_SCALES if profile == "q31" else INTEGER_SCALES:
        counters, ledger = new_counters(), Ledger()
        xs = XS if element == INT8 and profile != "q31" else WIDE_XS
        run = np.array([*xs, BEHIND], np.int64)
        numbers = map(np.int64, (PROFILES[profile], element, 7))
        factors = IntegerScale(*map(np.int64, scale))
        scale_entry(run, np.int64(len(xs)), factors, *numbers, counters)
        expected = [
            fixed_form(x, scale, 7 + i, ledger)
            if profile == "q31"
            else integer_form(x, scale, element, RESCALE, 7 + i, ledger)
            for i, x in enumerate(xs)
        ]
        assert run.tolist() == [*expected, BEHIND], scale
        ledger.assert_equal(counters)


fixed_entry: Any = numba.njit(
    lambda run, integers, index, counters: scaling.scale_fixed_point(
        run, scaling.get_channel_scales(integers), scaling.get_element, index, counters
    )
)


@pytest.mark.parametrize("scale", FIXED_SCALES)
def test_fixed_points_of_channels(scale: tuple[int, int, int]) -> None:
    counters, ledger = new_counters(), Ledger()
    run = np.array(WIDE_XS, np.int64)
    integers = np.zeros((channels.INTEGERS, run.size), np.int64)
    for row, number in zip((channels.PRE, channels.MUL, channels.POST), scale, strict=True):
        integers[row] = number
    fixed_entry(run, integers, np.int64(7), counters)
    assert run.tolist() == [fixed_form(x, scale, 7 + i, ledger) for i, x in enumerate(WIDE_XS)]
    ledger.assert_equal(counters)


def test_reals() -> None:
    xs = [0, 1, -7, (1 << 24) + 1, 1 << 40]
    reals = np.full(len(xs) + 1, 5, F32)
    multiply_entry(np.array([*xs, 3], np.int64), np.int64(len(xs)), F32(0.3), reals)
    expected = [F32(x) * F32(0.3) for x in xs]
    assert reals.tolist() == [*expected, 5]
    real_entry(reals, np.int64(len(xs)), np.int64((1 << 24) + 1))
    expected = [real + F32((1 << 24) + 1) for real in expected]
    assert reals.tolist() == [*expected, 5]


def test_rounded_runs() -> None:
    reals = np.array([0.5, 1.5, -0.5, -1.5, 2.4, -2.6, 7.5, np.inf, np.nan, 9.9], F32)
    count = len(reals) - 1
    for entry, rounded in ((away_entry, rounded_away), (even_entry, rounded_even)):
        values = np.full(len(reals), BEHIND, np.int64)
        entry(reals, np.int64(count), values)
        assert values.tolist() == [*(rounded(real) for real in reals[:count]), BEHIND]
        integer_entry(values, np.int64(count), np.int64(-11))
        assert values.tolist() == [*(rounded(real) - 11 for real in reals[:count]), BEHIND]


def test_the_zero_point_of_an_unsigned_tensor() -> None:
    """docs/numerics.md: 128 more than the Int8 tensor's."""
    assert scaling.UNSIGNED == 128


divide_entry: Any = numba.njit(lambda values, count, by: scaling.divide_run(values[:count], by))
once_entry: Any = numba.njit(lambda run, integers: scaling.scale_once(run, integers))
MOST = 1 << 61


@pytest.mark.parametrize("by", [1, 2, 3, 4, 7, 49])
def test_quotients_round_halves_away_from_zero(by: int) -> None:
    values = np.arange(-120, 121)
    divided = values.copy()
    divide_entry(divided, values.size - 1, by)
    for value, found in zip(values[:-1].tolist(), divided.tolist(), strict=False):
        nearest = int(Fraction(abs(value), by) + Fraction(1, 2))
        assert found == (nearest if value >= 0 else -nearest)
    assert divided[-1] == values[-1]


@pytest.mark.parametrize(
    "factor",
    [0.0, 0.5, 1.0, 1 / 3, 0.7071067811865476, 2.0**-40, 0.49999999999999994, 1e9, 2.0**30],
)
def test_sums_are_rounded_once(factor: float) -> None:
    edges = (0, 1, 2, 3, 12_345, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 47) - 1)
    sums = [value for edge in edges for value in (edge, -edge)]
    run = np.array(sums, np.int64)
    integers = np.zeros((channels.INTEGERS, run.size), np.int64)
    integers[channels.MUL] = np.float64(factor).view(np.int64)
    once_entry(run, integers)
    for value, found in zip(sums, run.tolist(), strict=True):
        exact = min(int(Fraction(abs(value) * factor) + Fraction(1, 2)), MOST)
        assert found == (exact if value >= 0 else -exact), value
