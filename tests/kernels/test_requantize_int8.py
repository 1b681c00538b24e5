"""Results of Int8 sums in 32 bits against plain integers, number by number."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from rescale_oracle import LAYER_INDEX, RESULT, new_counters

from nmpsim.isa.profiles import FLOAT, GLOW_FLOAT, GLOW_INT, NMP, ONEDNN, Q31, Q31_ONCE
from nmpsim.kernels.channels import (
    ADDEND,
    FACTOR,
    FLOAT_BIAS,
    HALF,
    MUL,
    OFFSET,
    POST,
    POST_FACTOR,
    PRE,
    PRE_FACTOR,
    START,
)
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.requantize_blocks import requantize_blocks
from nmpsim.kernels.result_table import (
    ABOVE,
    BELOW,
    FIXED_POINT,
    FLOAT_AWAY,
    FLOAT_EVEN,
    INTEGER,
    LEAST,
    MOST,
    TOO_LARGE,
    choose_scaling_mode,
    fill_result_table,
    record_first,
    undo_counts,
)
from nmpsim.kernels.workspace_size import INTEGERS, REALS, ROWS

LANES, PIXELS, COUNT = 16, 9, 20
LANE = 4
"""The first channel's lane: what is before it and behind the last one belongs to nobody."""


class Quantizer(NamedTuple):
    """What a table depends on."""

    profile: Any
    leaky: Any


PLAIN = Quantizer(np.int64(GLOW_INT), np.int64(0))
fill_entry: Any = numba.njit(
    lambda integers, reals, begins, lane, q, table: fill_result_table(
        integers, reals, begins, lane, q, table
    )
)
finish_entry: Any = numba.njit(
    lambda sums, pixels, table, mode, zero, clip, results, tables: requantize_blocks(
        sums,
        pixels,
        table,
        mode,
        zero,
        clip,
        results.reshape(-1),
        np.int64(0),
        results.shape[1],
        tables[0],
        tables[1],
    )
)
undo_entry: Any = numba.njit(lambda table: undo_counts(table))
mode_entry: Any = numba.njit(lambda q: choose_scaling_mode(q))
record_entry: Any = numba.njit(
    lambda table, lane, count, clip, index, counters: record_first(
        table, lane, count, clip, index, counters
    )
)


def finish(sums: Any, pixels: int, table: Any, *given: Any) -> int:
    """The vector code's answer; Int8 results need no tables of channels."""
    tables = np.zeros((INTEGERS, COUNT), np.int64), np.zeros((REALS, COUNT))
    return int(finish_entry(sums, pixels, table, *given, tables))


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
    fill_entry(integers, reals, True, np.int64(LANE), q, table)
    return table


@pytest.mark.parametrize("post", [0, 1, 12])
def test_results_and_counts(post: int) -> None:
    """Results, counts and answer of two calls; the sums stay, and counts can be restored."""
    rng = np.random.default_rng(post)
    integers = channels(rng, post)
    integers[ADDEND, :2] = 1 << 14, -(1 << 14)
    table, sums = table_of(integers), rng.integers(-100_000, 100_000, (PIXELS + 1, 2 * LANES))
    sums = sums.astype(np.int32)
    before, clip = sums.copy(), Clip(np.int64(-100), np.int64(90), np.int64(0))
    values = np.array(
        [
            [integer_result(int(before[p, LANE + c]), integers[:, c]) for c in range(COUNT)]
            for p in range(PIXELS)
        ]
    )
    for times in (1, 2):
        results, counts = np.zeros((PIXELS + 1, 2 * LANES), np.int8), counts_of(table)
        found = finish(sums, PIXELS, table, INTEGER, np.float32(0), clip, results)
        assert found == (values < -100).any() + 2 * (values > 90).any()
        np.testing.assert_array_equal(sums, before)
        got = results[:PIXELS, LANE : LANE + COUNT]
        np.testing.assert_array_equal(got, np.clip(values, -100, 90))
        assert not results[PIXELS].any()
        after = counts_of(table)
        np.testing.assert_array_equal(after[BELOW], times * (values < -100).sum(axis=0))
        np.testing.assert_array_equal(after[ABOVE], times * (values > 90).sum(axis=0))
        np.testing.assert_array_equal(after[LEAST], values.min(axis=0))
        np.testing.assert_array_equal(after[MOST], values.max(axis=0))
    undo_entry(table)
    np.testing.assert_array_equal(counts_of(table)[:2], counts[:2])


def counts_of(table: Any) -> Any:
    """Rows of counts [4, channels]."""
    return table.transpose(1, 0, 2).reshape(ROWS, -1)[:4, LANE : LANE + COUNT].copy()


def integer_result(total: int, integers: Any) -> int:
    """A result before the clip, on an integer scale."""
    start, pre, mul, half, post, addend = (
        int(integers[row]) for row in (START, PRE, MUL, HALF, POST, ADDEND)
    )
    return (((total + start >> pre) * mul + half) >> post) + addend


@pytest.mark.parametrize("over", [0, 1])
def test_the_largest_sum_that_32_bits_can_scale(over: int) -> None:
    integers = channels(np.random.default_rng(1), 4)
    integers[[START, OFFSET, PRE]] = 0
    integers[MUL] = 1000
    table, results = table_of(integers), np.zeros((PIXELS, 2 * LANES), np.int8)
    sums = np.zeros((PIXELS, 2 * LANES), np.int32)
    sums[PIXELS - 1, LANE + COUNT - 1] = -((2**31 - 1 - 8) // 1000) - over
    clip = Clip(np.int64(-128), np.int64(127), np.int64(0))
    found = finish(sums, PIXELS, table, INTEGER, np.float32(0), clip, results)
    assert found & TOO_LARGE == TOO_LARGE * over


@pytest.mark.parametrize(
    ("profile", "leaky", "row", "value"),
    [
        (GLOW_INT, 0, MUL, 1 << 31),
        (NMP, 0, ADDEND, 1 << 40),
        (NMP, 0, ADDEND, (1 << 14) + 1),
        (NMP, 0, PRE, 32),
    ],
)
def test_what_needs_64_bits(profile: Any, leaky: int, row: int, value: int) -> None:
    integers = channels(np.random.default_rng(2), 3)
    integers[row, 5] = value
    table = table_of(integers, Quantizer(np.int64(profile), np.int64(leaky)))
    sums, results = (np.zeros((PIXELS, 2 * LANES), kind) for kind in (np.int32, np.int8))
    clip = Clip(np.int64(-128), np.int64(127), np.int64(0))
    found = finish(sums, PIXELS, table, INTEGER, np.float32(0), clip, results)
    assert found & TOO_LARGE


def test_the_first_limited_results_of_a_pixel() -> None:
    """Of the lanes that were limited last the first one, on each side, unless one came before."""
    integers = channels(np.random.default_rng(4), 0)
    integers[[START, PRE, HALF, ADDEND]], integers[MUL] = 0, 1
    table, results = table_of(integers), np.zeros((1, 2 * LANES), np.int8)
    clip, limits = Clip(np.int64(-100), np.int64(90), np.int64(0)), new_counters()
    first = limits.layers[LAYER_INDEX]["first"]
    for index, low, high in ((1000, (7, 9), (8, 12)), (900, (), (3,)), (950, (0,), ())):
        sums = np.zeros((1, 2 * LANES), np.int32)
        sums[0, [LANE + c for c in low]], sums[0, [LANE + c for c in high]] = -101, 91
        finish(sums, 1, table, INTEGER, np.float32(0), clip, results)
        record_entry(table, LANE, COUNT, clip, index, limits)
    assert first[RESULT].tolist() == [950, 903]


def doubling_high(x: int, mul: int, post: int) -> int:
    """TFLite's product of fixed points: halves up, then halves away from zero."""
    high = (x * mul + (1 << 30)) >> 31
    size = (abs(high) + (1 << post >> 1)) >> post
    return size if high >= 0 else -size


def value_of(mode: int, total: int, integers: Any, reals: Any, zero: float) -> int:
    """A result before the clip."""
    pre, mul, post, addend = (int(integers[row]) for row in (PRE, MUL, POST, ADDEND))
    if mode == FIXED_POINT:
        return doubling_high(total << pre, mul, post) + addend
    ahead, factor, after = (np.float32(reals[row]) for row in (PRE_FACTOR, FACTOR, POST_FACTOR))
    shifted = np.float32(np.float64(np.float32(total) * ahead * factor) + reals[FLOAT_BIAS])
    real = float(shifted * after + np.float32(zero))
    whole = math.floor(abs(real) + 0.5)
    return addend + (round(real) if mode == FLOAT_EVEN else whole if real >= 0 else -whole)


OTHERS = [(Q31, FIXED_POINT), (GLOW_FLOAT, FLOAT_AWAY), (FLOAT, FLOAT_EVEN), (ONEDNN, FLOAT_EVEN)]


def other_tables(profile: int, mode: int) -> tuple[Any, Any]:
    """Channels whose results are mostly some bytes; of some, many are halves."""
    rng = np.random.default_rng(profile)
    integers, reals = channels(rng, 5), np.ones((REALS, COUNT))
    integers[OFFSET], integers[PRE] = 0, rng.integers(0, 3, COUNT)
    integers[MUL] = rng.integers(1 << 24, 1 << 26, COUNT)
    integers[MUL, :2] = 1 << 25, -(1 << 25)
    reals[FACTOR] = np.float32(rng.uniform(-1, 1, COUNT) * 2.0**-10)
    reals[FACTOR, :2] = 2.0**-11, -(2.0**-11)
    reals[FLOAT_BIAS] = 0
    if profile == ONEDNN:
        reals[PRE_FACTOR], reals[POST_FACTOR] = np.float32(rng.uniform(0.5, 2, (2, COUNT)))
        reals[FLOAT_BIAS] = rng.normal(0, 10, COUNT)
    return integers, reals


@pytest.mark.parametrize(("profile", "mode"), OTHERS)
def test_other_ways(profile: int, mode: int) -> None:
    """Results, accounts and answer of a fixed point and of reals."""
    integers, reals = other_tables(profile, mode)
    q, zero = Quantizer(np.int64(profile), np.int64(0)), 2.0 if mode == FLOAT_AWAY else 0.0
    assert mode_entry(q) == mode
    assert mode_entry(Quantizer(np.int64(profile), np.int64(1))) == -1
    table, rng = table_of(integers, q, reals), np.random.default_rng(3)
    sums = rng.integers(-200_000, 200_000, (PIXELS, 2 * LANES)).astype(np.int32)
    sums[:, LANE : LANE + 2] = -integers[START, :2] + 1024 * rng.integers(-90, 90, (PIXELS, 2))
    results = np.zeros((PIXELS, 2 * LANES), np.int8)
    clip = Clip(np.int64(-100), np.int64(90), np.int64(0))
    given = mode, np.float32(zero), clip, results
    found = finish(sums, PIXELS, table, *given)
    totals = sums[:, LANE : LANE + COUNT].astype(np.int64) + integers[START]
    values = np.array(
        [
            [
                value_of(mode, total, integers[:, c], reals[:, c], zero)
                for c, total in enumerate(pixel)
            ]
            for pixel in totals.tolist()
        ]
    )
    assert found == 3
    np.testing.assert_array_equal(results[:, LANE : LANE + COUNT], np.clip(values, -100, 90))
    counts = counts_of(table)
    np.testing.assert_array_equal(counts[BELOW], (values < -100).sum(axis=0))
    np.testing.assert_array_equal(counts[ABOVE], (values > 90).sum(axis=0))
    np.testing.assert_array_equal(counts[2:], [values.min(axis=0), values.max(axis=0)])


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_result_of_a_fixed_point(sign: int, over: int) -> None:
    """32 bits hold it with the zero point, too: what is worst is told right, or left."""
    integers, reals = other_tables(Q31, FIXED_POINT)
    integers[START], integers[PRE], integers[POST] = 0, 2, 0
    integers[MUL], integers[ADDEND] = 2**31 - 1, sign * (1 << 14)
    table = table_of(integers, Quantizer(np.int64(Q31), np.int64(0)), reals)
    sums, results = np.zeros((2, PIXELS, 2 * LANES), np.int32), np.zeros((PIXELS, 32), np.int8)
    total = sign * ((2**30 - 1 >> 2) + over)
    sums[0, 3, LANE + 5] = total
    given = FIXED_POINT, np.float32(0), Clip(np.int64(-128), np.int64(127), np.int64(0)), results
    assert finish(sums[0], PIXELS, table, *given) & TOO_LARGE == TOO_LARGE * over
    if not over:
        value = doubling_high(total << 2, 2**31 - 1, 0) + sign * (1 << 14)
        assert value in table[:, 2:4, (LANE + 5) % LANES]


@pytest.mark.parametrize(("profile", "mode"), OTHERS)
@pytest.mark.parametrize("what", ["sum", "factor", "addend"])
def test_what_other_ways_leave(profile: int, mode: int, what: str) -> None:
    """A sum, a factor, or a zero point that is too much for 32 or 16 bits."""
    integers, reals = other_tables(profile, mode)
    integers[START], sums = 0, np.zeros((PIXELS, 2 * LANES), np.int32)
    if what == "sum":
        integers[PRE, 9], reals[[PRE_FACTOR, FACTOR, POST_FACTOR], 9], reals[FLOAT_BIAS, 9] = (
            3,
            1,
            0,
        )
        sums[4, LANE + 9] = -(1 << 28) if mode == FIXED_POINT else -(1 << 30) - 100
    elif what == "factor":
        integers[MUL, 9], reals[FACTOR, 9] = -(1 << 31), np.nan
    else:
        integers[ADDEND, 9] = (1 << 14) + 1
    table = table_of(integers, Quantizer(np.int64(profile), np.int64(0)), reals)
    results = np.zeros((PIXELS, 2 * LANES), np.int8)
    clip = Clip(np.int64(-128), np.int64(127), np.int64(0))
    given = mode, np.float32(0), clip, results
    assert finish(sums, PIXELS, table, *given) & TOO_LARGE
    sums[4, LANE + 9] += 1 << 20
    assert finish(sums, PIXELS, table, *given) & TOO_LARGE == TOO_LARGE * (what != "sum")
    assert mode_entry(Quantizer(np.int64(Q31_ONCE), np.int64(0))) == -1
