"""Results of Int8 sums in 32 bits against plain integers, number by number."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from nmpsim.isa.profiles import GLOW_INT, NMP, Q31
from nmpsim.kernels.channels import ADDEND, HALF, MUL, OFFSET, POST, PRE, START
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.requantize_int32 import (
    BEYOND,
    complete_sums,
    finish_sums,
    put_int32_tables,
    scale_sums,
    take_back,
)
from nmpsim.kernels.workspace_size import INTEGERS, ROWS

LANES, PIXELS, COUNT = 16, 9, 20
LANE = 4
"""The first channel's lane: what is before it and behind the last one belongs to nobody."""


class Quantizer(NamedTuple):
    """What a table depends on."""

    profile: Any
    leaky: Any


PLAIN = Quantizer(np.int64(GLOW_INT), np.int64(0))
put_entry: Any = numba.njit(
    lambda integers, begins, lane, q, table: put_int32_tables(integers, begins, lane, q, table)
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
    lambda sums, pixels, table, clip, results: finish_sums(
        sums, pixels, table, clip, results.reshape(-1), np.int64(0), results.shape[1]
    )
)
take_back_entry: Any = numba.njit(lambda table: take_back(table))


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


def table_of(integers: Any, q: Quantizer = PLAIN) -> Any:
    table = np.full((2, ROWS, LANES), 77, np.int32)
    put_entry(integers, True, np.int64(LANE), q, table)
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
        assert finish_entry(sums, PIXELS, table, clip, results[1]) == said
        np.testing.assert_array_equal(sums, before)
        if not over:
            np.testing.assert_array_equal(results[0], results[1])
            np.testing.assert_array_equal(table[:, :12], expected[:, :12])
    take_back_entry(table)
    np.testing.assert_array_equal(table[:, 8:12], accounts)
