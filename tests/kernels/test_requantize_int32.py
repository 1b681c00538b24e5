"""Results of Int8 sums in 32 bits against plain integers, number by number."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from nmpsim.isa.profiles import FLOAT, GLOW_FLOAT, GLOW_INT, NMP, ONEDNN, Q31, Q31_ONCE
from nmpsim.kernels.channels import (
    ADDEND,
    AFTER,
    AHEAD,
    BIAS_REAL,
    FACTOR,
    HALF,
    MUL,
    OFFSET,
    POST,
    PRE,
    START,
)
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.requantize_int32 import (
    complete_sums,
    finish_sums,
    put_result_tables,
    scale_sums,
)
from nmpsim.kernels.result_blocks import AWAY, BEYOND, EVEN, FIXED, INTEGER, take_back, way_of
from nmpsim.kernels.result_rows import BELOW
from nmpsim.kernels.workspace_size import INTEGERS, REALS, ROWS

LANES, PIXELS, COUNT = 16, 9, 20
LANE = 4
"""The first channel's lane: what is before it and behind the last one belongs to nobody."""


class Quantizer(NamedTuple):
    """What a table depends on."""

    profile: Any
    leaky: Any


PLAIN = Quantizer(np.int64(GLOW_INT), np.int64(0))
put_entry: Any = numba.njit(
    lambda integers, reals, begins, lane, q, table: put_result_tables(
        integers, reals, begins, lane, q, table
    )
)
complete_entry: Any = numba.njit(
    lambda sums, pixels, windows, table: complete_sums(sums, pixels, windows, table)
)
scale_entry: Any = numba.njit(
    lambda sums, pixels, table, clip, results: scale_sums(
        sums, pixels, table, clip, results.reshape(-1), np.int64(0), results.shape[1]
    )
)
finish_entry: Any = numba.njit(
    lambda sums, pixels, table, way, zero, clip, results: finish_sums(
        sums, pixels, table, way, zero, clip, results.reshape(-1), np.int64(0), results.shape[1]
    )
)
take_back_entry: Any = numba.njit(lambda table: take_back(table, BELOW))
way_entry: Any = numba.njit(lambda q: way_of(q))


def channels(rng: np.random.Generator, post: int) -> Any:
    integers = np.zeros((INTEGERS, COUNT), np.int64)
    integers[START] = rng.integers(-100_000, 100_000, COUNT)
    integers[OFFSET] = rng.integers(-128, 128, COUNT)
    integers[PRE] = rng.integers(0, 8, COUNT)
    integers[MUL] = rng.integers(-200, 200, COUNT)
    integers[POST] = post
    integers[HALF] = (1 << post) >> 1
    integers[ADDEND] = rng.integers(-128, 128, COUNT)
    return integers


def table_of(integers: Any, q: Quantizer = PLAIN, reals: Any = None) -> Any:
    table = np.full((2, ROWS, LANES), 77, np.int32)
    reals = np.zeros((REALS, COUNT)) if reals is None else reals
    put_entry(integers, reals, True, np.int64(LANE), q, table)
    return table


@pytest.mark.parametrize("post", [0, 1, 12])
def test_results_and_accounts(post: int) -> None:
    rng = np.random.default_rng(post)
    integers = channels(rng, post)
    table = table_of(integers)
    before = rng.integers(-100_000, 100_000, (PIXELS + 1, 2 * LANES)).astype(np.int32)
    windows = rng.integers(-1000, 1000, PIXELS + 1).astype(np.int32)
    sums, results = before.copy(), np.zeros((PIXELS + 1, 2 * LANES), np.int8)
    assert not complete_entry(sums, PIXELS, windows, table)
    clip = Clip(np.int64(-100), np.int64(90), np.int64(0))
    cut = scale_entry(sums, PIXELS, table, clip, results)
    below, above = 0, 0
    for c in range(COUNT):
        offset, start, pre, mul, half, shift, _, addend = map(int, integers[:, c])
        for p in range(PIXELS):
            total = int(before[p, LANE + c]) + start
            total -= offset * int(windows[p])
            assert sums[p, LANE + c] == total
            value = (((total >> pre) * mul + half) >> shift) + addend
            below, above = below + (value < -100), above + (value > 90)
            assert results[p, LANE + c] == min(max(value, -100), 90)
    assert cut == (below > 0) + 2 * (above > 0)
    by_lane = table.transpose(1, 0, 2).reshape(ROWS, -1)[:, LANE : LANE + COUNT]
    assert (by_lane[8].sum(), by_lane[9].sum()) == (below, above)


@pytest.mark.parametrize("over", [0, 1])
def test_the_largest_sum_that_32_bits_can_scale(over: int) -> None:
    rng = np.random.default_rng(1)
    integers = channels(rng, 4)
    integers[[START, OFFSET, PRE]] = 0
    integers[MUL] = 1000
    table = table_of(integers)
    sums = np.zeros((PIXELS, 2 * LANES), np.int32)
    sums[PIXELS - 1, LANE + COUNT - 1] = -((2**31 - 1 - 8) // 1000) - over
    assert complete_entry(sums, PIXELS, np.zeros(PIXELS, np.int32), table) == bool(over)


@pytest.mark.parametrize(
    ("profile", "leaky", "row", "value"),
    [
        (Q31, 0, PRE, 0),
        (GLOW_INT, 1, PRE, 0),
        (GLOW_INT, 0, MUL, 1 << 31),
        (NMP, 0, ADDEND, 1 << 40),
        (NMP, 0, ADDEND, (1 << 14) + 1),
        (NMP, 0, PRE, 32),
    ],
)
def test_what_needs_64_bits(profile: Any, leaky: int, row: int, value: int) -> None:
    integers = channels(np.random.default_rng(2), 3)
    integers[row, 5] = value
    q = Quantizer(np.int64(profile), np.int64(leaky))
    table = table_of(integers, q)
    sums = np.zeros((PIXELS, 2 * LANES), np.int32)
    assert complete_entry(sums, PIXELS, np.zeros(PIXELS, np.int32), table)


@pytest.mark.parametrize("post", [0, 12])
@pytest.mark.parametrize("over", [0, 1])
def test_both_in_one_pass(post: int, over: int) -> None:
    """The same results, accounts and answer; the sums stay, and accounts can be taken back."""
    rng = np.random.default_rng(post)
    integers = channels(rng, post)
    integers[OFFSET] = 0
    integers[ADDEND, :2] = 1 << 14, -(1 << 14)
    table = table_of(integers)
    sums = rng.integers(-100_000, 100_000, (PIXELS, 2 * LANES)).astype(np.int32)
    sums[3, LANE + 2] = over * 2**31 - 1
    clip = Clip(np.int64(-100), np.int64(90), np.int64(0))
    for _ in range(2):
        expected, known, before = table.copy(), sums.copy(), sums.copy()
        results, said = np.zeros((2, PIXELS, 2 * LANES), np.int8), BEYOND * over
        assert complete_entry(known, PIXELS, np.zeros(PIXELS, np.int32), expected) == bool(over)
        said |= scale_entry(known, PIXELS, expected, clip, results[0])
        accounts = table[:, 8:12].copy()
        assert finish_entry(sums, PIXELS, table, INTEGER, np.float32(0), clip, results[1]) == said
        np.testing.assert_array_equal(sums, before)
        if not over:
            np.testing.assert_array_equal(results[0], results[1])
            np.testing.assert_array_equal(table[:, :12], expected[:, :12])
    take_back_entry(table)
    np.testing.assert_array_equal(table[:, 8:12], accounts)


def doubling_high(x: int, mul: int, post: int) -> int:
    """TFLite's product of fixed points: halves up, then halves away from zero."""
    high = (x * mul + (1 << 30)) >> 31
    size = (abs(high) + (1 << post >> 1)) >> post
    return size if high >= 0 else -size


def value_of(way: int, total: int, integers: Any, reals: Any, zero: float) -> int:
    """A result before the clip."""
    pre, mul, post, addend = (int(integers[row]) for row in (PRE, MUL, POST, ADDEND))
    if way == FIXED:
        return doubling_high(total << pre, mul, post) + addend
    ahead, factor, after = (np.float32(reals[row]) for row in (AHEAD, FACTOR, AFTER))
    shifted = np.float32(np.float64(np.float32(total) * ahead * factor) + reals[BIAS_REAL])
    real = float(shifted * after + np.float32(zero))
    whole = math.floor(abs(real) + 0.5)
    return addend + (round(real) if way == EVEN else whole if real >= 0 else -whole)


OTHERS = [(Q31, FIXED), (GLOW_FLOAT, AWAY), (FLOAT, EVEN), (ONEDNN, EVEN)]


def other_tables(profile: int, way: int) -> tuple[Any, Any]:
    """Channels whose results are mostly some bytes; of some, many are halves."""
    rng = np.random.default_rng(profile)
    integers, reals = channels(rng, 5), np.ones((REALS, COUNT))
    integers[OFFSET], integers[PRE] = 0, rng.integers(0, 3, COUNT)
    integers[MUL] = rng.integers(1 << 24, 1 << 26, COUNT)
    integers[MUL, :2] = 1 << 25, -(1 << 25)
    reals[FACTOR] = np.float32(rng.uniform(-1, 1, COUNT) * 2.0**-10)
    reals[FACTOR, :2] = 2.0**-11, -(2.0**-11)
    reals[BIAS_REAL] = 0
    if profile == ONEDNN:
        reals[AHEAD], reals[AFTER] = np.float32(rng.uniform(0.5, 2, (2, COUNT)))
        reals[BIAS_REAL] = rng.normal(0, 10, COUNT)
    return integers, reals


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="then these results take the other path")
@pytest.mark.parametrize(("profile", "way"), OTHERS)
def test_other_ways(profile: int, way: int) -> None:
    """Results, accounts and answer of a fixed point and of reals."""
    integers, reals = other_tables(profile, way)
    q, zero = Quantizer(np.int64(profile), np.int64(0)), 2.0 if way == AWAY else 0.0
    assert way_entry(q) == way
    assert way_entry(Quantizer(np.int64(profile), np.int64(1))) == -1
    table, rng = table_of(integers, q, reals), np.random.default_rng(3)
    sums = rng.integers(-200_000, 200_000, (PIXELS, 2 * LANES)).astype(np.int32)
    sums[:, LANE : LANE + 2] = -integers[START, :2] + 1024 * rng.integers(-90, 90, (PIXELS, 2))
    results = np.zeros((PIXELS, 2 * LANES), np.int8)
    clip = Clip(np.int64(-100), np.int64(90), np.int64(0))
    given = way, np.float32(zero), clip, results
    found = finish_entry(sums, PIXELS, table, *given)
    totals = sums[:, LANE : LANE + COUNT].astype(np.int64) + integers[START]
    values = np.array(
        [
            [
                value_of(way, total, integers[:, c], reals[:, c], zero)
                for c, total in enumerate(pixel)
            ]
            for pixel in totals.tolist()
        ]
    )
    assert found == 3
    np.testing.assert_array_equal(results[:, LANE : LANE + COUNT], np.clip(values, -100, 90))
    accounts = table.transpose(1, 0, 2).reshape(ROWS, -1)[8:12, LANE : LANE + COUNT]
    np.testing.assert_array_equal(accounts[0], (values < -100).sum(axis=0))
    np.testing.assert_array_equal(accounts[1], (values > 90).sum(axis=0))
    np.testing.assert_array_equal(accounts[2:], [values.min(axis=0), values.max(axis=0)])
    assert complete_entry(sums, PIXELS, np.zeros(PIXELS, np.int32), table)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="then these results take the other path")
@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_result_of_a_fixed_point(sign: int, over: int) -> None:
    """32 bits hold it with the zero point, too: what is worst is told right, or left."""
    integers, reals = other_tables(Q31, FIXED)
    integers[START], integers[PRE], integers[POST] = 0, 2, 0
    integers[MUL], integers[ADDEND] = 2**31 - 1, sign * (1 << 14)
    table = table_of(integers, Quantizer(np.int64(Q31), np.int64(0)), reals)
    sums, results = np.zeros((2, PIXELS, 2 * LANES), np.int32), np.zeros((PIXELS, 32), np.int8)
    total = sign * ((2**30 - 1 >> 2) + over)
    sums[0, 3, LANE + 5] = total
    given = FIXED, np.float32(0), Clip(np.int64(-128), np.int64(127), np.int64(0)), results
    assert finish_entry(sums[0], PIXELS, table, *given) & BEYOND == BEYOND * over
    if not over:
        value = doubling_high(total << 2, 2**31 - 1, 0) + sign * (1 << 14)
        assert value in table[:, 10:12, (LANE + 5) % LANES]


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="then these results take the other path")
@pytest.mark.parametrize(("profile", "way"), OTHERS)
@pytest.mark.parametrize("what", ["sum", "factor", "addend"])
def test_what_other_ways_leave(profile: int, way: int, what: str) -> None:
    """A sum, a factor, or a zero point that is too much for 32 or 16 bits."""
    integers, reals = other_tables(profile, way)
    integers[START], sums = 0, np.zeros((PIXELS, 2 * LANES), np.int32)
    if what == "sum":
        integers[PRE, 9], reals[[AHEAD, FACTOR, AFTER], 9], reals[BIAS_REAL, 9] = 3, 1, 0
        sums[4, LANE + 9] = -(1 << 28) if way == FIXED else -(1 << 30) - 100
    elif what == "factor":
        integers[MUL, 9], reals[FACTOR, 9] = -(1 << 31), np.nan
    else:
        integers[ADDEND, 9] = (1 << 14) + 1
    table = table_of(integers, Quantizer(np.int64(profile), np.int64(0)), reals)
    results = np.zeros((PIXELS, 2 * LANES), np.int8)
    clip = Clip(np.int64(-128), np.int64(127), np.int64(0))
    given = way, np.float32(0), clip, results
    assert finish_entry(sums, PIXELS, table, *given) & BEYOND
    sums[4, LANE + 9] += 1 << 20
    assert finish_entry(sums, PIXELS, table, *given) & BEYOND == BEYOND * (what != "sum")
    assert way_entry(Quantizer(np.int64(Q31_ONCE), np.int64(0))) == -1
