"""Rounding and fixed-point products of both engines against fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
from rescale_oracle import (
    BIAS,
    F32,
    INT32,
    MAX_MAGNITUDE,
    SaturationOracle,
    decode_float32,
    encode_float32,
    encode_float64,
    multiply_high,
    new_counters,
    round_half_away,
    round_half_even,
    round_to_float32,
    shift_away,
)

from nmpsim.core.reference import arithmetic as reference
from nmpsim.core.reference import operands
from nmpsim.isa.words import OP_ADD, OP_MAX, OP_MIN, OP_SUB
from nmpsim.kernels import rounding as kernels

float_entry: Any = numba.njit(lambda word: kernels.real(word))
away_entry: Any = numba.njit(lambda value: kernels.round_away(value))
even_entry: Any = numba.njit(lambda value: kernels.round_even(value))
word_entry: Any = numba.njit(lambda value: kernels.round_to_int32(value))
held_entry: Any = numba.njit(lambda value, limit: kernels.hold(value, limit))
fused_entry: Any = numba.njit(lambda x, factor, addend: kernels.fma(x, factor, addend))
divide_entry: Any = numba.njit(lambda x, by: kernels.divide_away(x, by))
real64_entry: Any = numba.njit(lambda word: kernels.real64(word))
bits_entry: Any = numba.njit(lambda value: kernels.get_bits(value))
bits64_entry: Any = numba.njit(lambda value: kernels.get_bits64(value))
exp2_entry: Any = numba.njit(lambda exponent: kernels.exp2(exponent))
combine_entry: Any = numba.njit(lambda operation, x, y: kernels.combine(operation, x, y))
limit_entry: Any = numba.njit(
    lambda stage, times, index, counters, x, most: kernels.limit(
        stage, times, index, counters, x, most
    )
)
saturate_entry: Any = numba.njit(
    lambda stage, times, index, counters, x, bits: kernels.saturate(
        stage, times, index, counters, x, bits
    )
)
shift_entry: Any = numba.njit(lambda x, shift: kernels.shift_away(x, shift))

REALS = [
    0.0, -0.0, 0.25, 0.49999997, 0.5, 0.50000006, 0.75, 1.0, 1.5, 2.5, 3.5, 4.4999995, 126.5, 127.5,
    8388607.5, 8388608.0, 8388609.0, 16777215.0, 16777216.0, 2.0**31, 2.0**61, 2.0**62, 2.0**63,
    3.0e38, np.inf, 1e-30,
]  # fmt: skip
PAIRS = [(value, -value) for value in REALS]
EDGES = [0, 1, 2, 3, 5, 1 << 30, (1 << 30) - 1, (1 << 30) + 1, INT32[1], INT32[1] - 1, -1, -2, -3,
         -(1 << 30), -(1 << 30) - 1, -(1 << 30) + 1, INT32[0], INT32[0] + 1]  # fmt: skip


@pytest.mark.parametrize("value", [F32(v) for pair in PAIRS for v in pair] + [F32(np.nan)])
def test_nearest_integers(value: Any) -> None:
    with np.errstate(invalid="ignore"):  # without the JIT NumPy warns of differences of infinities
        assert away_entry(value) == round_half_away(value)
    assert even_entry(value) == round_half_even(value)
    if abs(value) < 2.0**30:
        assert word_entry(value) == round_half_away(value)
    several = np.array([1.0, value, -7.5, value], F32)
    away, even = round_half_away(value), round_half_even(value)
    assert reference.round_away(several).tolist() == [1, away, -8, away]
    assert reference.round_even(several).tolist() == [1, even, -8, even]


def test_halves_by_hand() -> None:
    """Away from zero, and to even."""
    halves = [-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5]
    away, even = [-4, -3, -2, -1, 1, 2, 3, 4], [-4, -2, -2, 0, 0, 2, 2, 4]
    assert [away_entry(F32(half)) for half in halves] == away
    assert [even_entry(F32(half)) for half in halves] == even
    assert reference.round_away(np.array(halves, F32)).tolist() == away
    assert reference.round_even(np.array(halves, F32)).tolist() == even


def test_the_bits_of_a_float32() -> None:
    for value in (0.0, 1.0, -1.0, 0.1, 3e38, 1e-45):
        bits = encode_float32(value)
        assert float_entry(np.int64(bits)) == F32(value) == decode_float32(bits)
        assert operands.bits_to_float32(bits) == F32(value)
        assert operands.bits_to_float32(bits & 0xFFFF_FFFF) == F32(value)
        assert operands.bits_to_float32([bits, 0]).tolist() == [F32(value), 0]


def test_integers_as_float32() -> None:
    """The nearest one, halves to even: 2^24 + 1 and 2^24 + 3 are halves."""
    integers = np.array([0, -5, (1 << 24) + 1, (1 << 24) + 3, (1 << 62) + 1], np.int64)
    reals = reference.to_float32(integers)
    assert reals.dtype == F32
    assert reals.tolist() == [0, -5, 1 << 24, (1 << 24) + 4, 1 << 62]


def test_values_are_held() -> None:
    assert kernels.MAX_MAGNITUDE == MAX_MAGNITUDE
    for value in (-101, -100, -99, 0, 99, 100, 101):
        expected = min(max(value, -100), 100)
        assert held_entry(np.int64(value), np.int64(100)) == expected
    values = np.array([-MAX_MAGNITUDE, -9, -8, -7, 0, 7, 8, 9, MAX_MAGNITUDE], np.int64)
    assert reference.clamp_bits(values, 3).tolist() == [-8, -8, -8, -7, 0, 7, 8, 8, 8]
    assert reference.clamp_bits(values, 62).tolist() == values.tolist()


def test_whole_numbers() -> None:
    values = np.array([0.0, -3.0, 2.0**61, 2.0**62, 2.0**63, np.inf, -np.inf, -(2.0**63), np.nan])
    expected = [
        0,
        -3,
        1 << 61,
        MAX_MAGNITUDE,
        MAX_MAGNITUDE,
        MAX_MAGNITUDE,
        -MAX_MAGNITUDE,
        -MAX_MAGNITUDE,
        0,
    ]
    assert reference.to_integers(values).tolist() == expected


@pytest.mark.parametrize("mul", [*EDGES, 1518500250, 1103515245])
def test_products_of_32_bits(mul: int) -> None:
    xs = [*EDGES, 12345, -12345, 987654321, -987654321]
    expected = [multiply_high(x, mul) for x in xs]
    assert reference.compute_doubling_high(np.array(xs, np.int64), mul).tolist() == expected
    several = np.full(len(xs), mul, np.int64)
    assert reference.compute_doubling_high(np.array(xs, np.int64), several).tolist() == expected


def test_products_by_hand() -> None:
    """A half goes up: 1 * 2^30 / 2^31 is 1, -1 * 2^30 / 2^31 is 0."""
    one, half = 1, 1 << 30
    for x, mul, product in (
        (one, half, 1), (-one, half, 0), (one, half - 1, 0), (-one, half + 1, -1), (3, half, 2),
        (-3, half, -1), (INT32[0], INT32[0], INT32[1]), (INT32[0], INT32[1], -INT32[1]),
    ):  # fmt: skip
        assert reference.compute_doubling_high(np.array([x], np.int64), mul).tolist() == [product]


@pytest.mark.parametrize("shift", [0, 1, 2, 5, 30, 31])
def test_shifts_that_round(shift: int) -> None:
    half = (1 << shift) >> 1
    xs = [sign * (times * (1 << shift) + half + past) for times in (0, 1, 2, 7)
          for past in (-1, 0, 1) for sign in (1, -1)] + EDGES  # fmt: skip
    expected = [shift_away(x, shift) for x in xs]
    assert [shift_entry(np.int64(x), np.int64(shift)) for x in xs] == expected
    assert reference.shift_away(np.array(xs, np.int64), shift).tolist() == expected
    shifts = np.full(len(xs), shift, np.int64)
    assert reference.shift_away(np.array(xs, np.int64), shifts).tolist() == expected


@pytest.mark.parametrize(
    "value", [0.5, 1.5, 0.49999999999999994, 2.0**52 + 1, 2.0**61 + 512, 1e300]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_nearest_integers_of_float64(value: float, sign: int) -> None:
    assert away_entry(np.float64(sign * value)) == round_half_away(sign * value)
    assert even_entry(np.float64(sign * value)) == round_half_even(sign * value)


@pytest.mark.parametrize("by", [1, 2, 3, 4, 7, 49])
def test_quotients_that_round(by: int) -> None:
    for value in range(-120, 121):
        nearest = int(Fraction(abs(value), by) + Fraction(1, 2))
        assert divide_entry(value, by) == (nearest if value >= 0 else -nearest)


def test_bits_and_powers() -> None:
    for value in (0.0, 1.0, -0.1, 1e300):
        assert real64_entry(np.int64(encode_float64(value))) == value
        assert bits64_entry(np.float64(value)) == encode_float64(value)
        assert bits_entry(F32(value / 1e290)) == encode_float32(value / 1e290)
    for exponent in (-115, -53, -1, 0, 1, 31):
        assert exp2_entry(np.int64(exponent)) == 2.0**exponent


@pytest.mark.parametrize("bits", [32, 48])
def test_limits_are_counted(bits: int) -> None:
    counters, oracle, half = new_counters(), SaturationOracle(), 1 << (bits - 1)
    values = [0, half - 1, half, -half, -half - 1, 1 << 60, -(1 << 60)]
    for index, value in enumerate(values):
        where = (np.int64(BIAS), np.int64(3), np.int64(index), counters)
        low_high = (-half, half - 1), (-half, half)
        for entry, last, (low, high) in zip(
            (saturate_entry, limit_entry), (bits, half), low_high, strict=True
        ):
            expected = oracle.clamp(value, low, high, (BIAS, BIAS), index, times=3)
            assert entry(*where, np.int64(value), np.int64(last)) == expected
    oracle.assert_equal(counters)


@pytest.mark.parametrize(
    ("operation", "expected"), [(OP_ADD, 6), (OP_SUB, 10), (OP_MAX, 8), (OP_MIN, -2)]
)
def test_operations_of_two_values(operation: int, expected: int) -> None:
    assert combine_entry(np.int64(operation), np.int64(8), np.int64(-2)) == expected
    assert combine_entry(np.int64(operation), F32(4), F32(-1)) == expected / 2


def test_shifts_by_hand() -> None:
    xs, halved = [-5, -3, -2, -1, 0, 1, 2, 3, 5], [-3, -2, -1, -1, 0, 1, 1, 2, 3]
    assert [shift_entry(np.int64(x), np.int64(1)) for x in xs] == halved
    assert reference.shift_away(np.array(xs, np.int64), 1).tolist() == halved


def test_a_product_and_a_sum_rounded_once() -> None:
    """Products near a half of the sum's last place; what float64 loses decides about some."""
    rng = np.random.default_rng(24)
    twice = 0
    for x in rng.integers(1, 1 << 15, 300).tolist():
        for sign, addend_sign in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            power = int(rng.integers(-10, 10))
            factor = F32(sign * 2.0**power / x)
            odd = 2 * int(rng.integers(1 << 22, 1 << 23)) + 1
            addend = F32(addend_sign * odd * 2.0 ** (power + 1))
            exact = Fraction(x) * Fraction(float(factor)) + Fraction(float(addend))
            expected = round_to_float32(exact)
            twice += F32(np.float64(x) * np.float64(factor) + np.float64(addend)) != expected
            assert fused_entry(np.float64(x), np.float64(factor), np.float64(addend)) == expected
            got = reference.fused_multiply_add(np.array([x, 0]), factor, addend)
            assert got.tolist() == [expected, addend]
    assert twice > 30, "rounding twice shows"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", [0, -30])
def test_what_float64_loses_decides_halves(power: int, sign: int) -> None:
    """97 times 172961 is 2^24 + 1, half way between two float32 numbers."""
    factor, unit = F32(sign * 172961 * 2.0**power), sign * 2.0**power
    for addend, steps in ((1e-30, 2), (0.0, 0), (-1e-30, 0)):
        addend *= sign
        expected = F32(((1 << 24) + steps) * unit)
        assert fused_entry(np.float64(97), np.float64(factor), np.float64(addend)) == expected
        found = reference.fused_multiply_add(np.array([97]), factor, F32(addend))
        assert found.tolist() == [expected]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_float32_is_infinite(sign: int) -> None:
    infinite = F32(sign * np.inf)
    with np.errstate(all="ignore"):  # where nothing is compiled, NumPy would say so
        assert fused_entry(np.float64(sign), np.float64(3e38), np.float64(infinite)) == infinite
        assert fused_entry(np.float64(100 * sign), np.float64(3e38), np.float64(1)) == infinite
    assert reference.fused_multiply_add(np.array([sign]), F32(3e38), infinite).tolist() == [
        infinite
    ]


@pytest.mark.parametrize("rounded", [reference.round_away, reference.round_even])
def test_a_signaling_nan_rounds_to_zero_without_a_warning(rounded: Any) -> None:
    assert rounded(np.array([0x7F80_0001], np.uint32).view(np.float32)).tolist() == [0]


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 9, 49])
def test_reference_quotients_are_rounded_half_away_from_zero(divisor: int) -> None:
    values = [*range(-60, 61), 4711, -99_999, 2**40 + 7]
    expected = [
        (-1 if x < 0 else 1) * int(Fraction(abs(x), divisor) + Fraction(1, 2)) for x in values
    ]
    assert reference.divide_round_away(np.array(values), divisor).tolist() == expected


def test_steps_of_an_operand_have_its_name_as_a_prefix() -> None:
    one, two = (reference.make_step(name, np.int64(7), "x") for name in ("a", "b"))
    prefixed = reference.prefix_steps("lhs", iter([one, two]))
    assert [step.name for step in prefixed] == ["lhs a", "lhs b"]
    assert reference.evaluate(reference.prefix_steps("rhs", iter([one]))) == 7
