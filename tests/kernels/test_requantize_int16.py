"""Int16 results sixteen channels at a time against plain numbers, one by one."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from nmpsim.kernels.channels import (
    ADDEND,
    FACTOR,
    FLOAT_BIAS,
    HALF,
    MOST,
    MUL,
    POST,
    POST_FACTOR,
    PRE,
    PRE_FACTOR,
    START,
)
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.requantize_blocks import requantize_blocks
from nmpsim.kernels.result_table import (
    COUNT_ROWS,
    FLOAT_AWAY,
    FLOAT_EVEN,
    INTEGER,
    TOO_LARGE,
    clear_counts,
    undo_counts,
)
from nmpsim.kernels.workspace_size import INTEGERS, LANES, REALS

Array = npt.NDArray[Any]
PIXELS, COUNT = 7, 2 * LANES
# Kernels have no entry from Python.
finish: Any = numba.njit(
    lambda sums, pixels, integers, reals, mode, zero, counts, clip, results, start, step: (
        requantize_blocks(
            sums, pixels, counts, mode, zero, clip, results, start, step, integers, reals
        )
    )
)
clear: Any = numba.njit(lambda counts: clear_counts(counts))
undo: Any = numba.njit(lambda counts: undo_counts(counts))
CLIP = Clip(np.int64(-20_000), np.int64(19_000), np.int64(0))


def tables(rng: np.random.Generator, mode: int = FLOAT_EVEN) -> tuple[Array, Array]:
    """Of channels whose results are some 16 bits."""
    integers, reals = np.zeros((INTEGERS, COUNT), np.int64), np.zeros((REALS, COUNT))
    integers[START] = rng.integers(-(1 << 40), 1 << 40, COUNT)
    integers[PRE] = rng.integers(0, 8, COUNT)
    integers[MUL] = rng.integers(-300, 300, COUNT)
    integers[POST] = 27 + rng.integers(0, 4, COUNT)
    integers[HALF] = (1 << integers[POST]) >> 1
    integers[MOST] = 1 << 52
    integers[ADDEND] = rng.integers(-200, 200, COUNT)
    if mode == FLOAT_AWAY:
        reals[[PRE_FACTOR, POST_FACTOR]] = 1
        reals[FACTOR] = np.float32(rng.uniform(-1, 1, COUNT) * 2.0**-25)
        return integers, reals
    reals[PRE_FACTOR] = np.float32(rng.uniform(0.5, 2, COUNT))
    reals[FACTOR] = np.float32(rng.uniform(-1, 1, COUNT) * 2.0**-25)
    reals[FLOAT_BIAS] = rng.normal(0, 100, COUNT)
    reals[POST_FACTOR] = np.float32(rng.uniform(0.5, 2, COUNT))
    return integers, reals


def result(mode: int, total: int, integers: Array, reals: Array, zero: float) -> int:
    """Of a channel's sum, before the clip."""
    if mode == INTEGER:
        scaled = (total >> int(integers[PRE])) * int(integers[MUL]) + int(integers[HALF])
        return (scaled >> int(integers[POST])) + int(integers[ADDEND])
    ahead, factor, after = (np.float32(reals[row]) for row in (PRE_FACTOR, FACTOR, POST_FACTOR))
    scaled32 = np.float32(total) * ahead * factor
    shifted = np.float32(np.float64(scaled32) + reals[FLOAT_BIAS])
    real = float(shifted * after + np.float32(zero))
    if mode == FLOAT_EVEN:
        return round(real) + int(integers[ADDEND])
    whole = math.floor(abs(real) + 0.5)
    return (whole if real >= 0 else -whole) + int(integers[ADDEND])


def new_counts() -> Array:
    counts = np.full((COUNT // LANES, COUNT_ROWS, LANES), 77, np.int32)
    clear(counts)
    return counts


@pytest.mark.parametrize("mode", [INTEGER, FLOAT_AWAY, FLOAT_EVEN])
def test_results_and_counts(mode: int) -> None:
    rng = np.random.default_rng(mode)
    integers, reals = tables(rng, mode)
    counts, results = new_counts(), np.zeros((PIXELS, COUNT + 3), np.int16)
    sums = rng.integers(-(1 << 41), 1 << 41, (PIXELS, COUNT))
    step, before = 2 * (COUNT + 3), sums.copy()
    given = (integers, reals, mode, np.float32(3.5), counts, CLIP, results.reshape(-1), 4, step)
    found = finish(sums, PIXELS, *given)
    values = np.array(
        [
            [
                result(mode, int(integers[START, c] + s), integers[:, c], reals[:, c], 3.5)
                for c, s in enumerate(row)
            ]
            for row in sums.tolist()
        ]
    )
    assert found == 3
    np.testing.assert_array_equal(sums, before)
    np.testing.assert_array_equal(results[:, 2:-1], np.clip(values, CLIP.low, CLIP.high))
    assert not results[:, :2].any() and not results[:, -1].any()
    seen = counts.transpose(1, 0, 2).reshape(COUNT_ROWS, -1)
    np.testing.assert_array_equal(seen[0], (values < CLIP.low).sum(axis=0))
    np.testing.assert_array_equal(seen[1], (values > CLIP.high).sum(axis=0))
    np.testing.assert_array_equal(seen[2], values.min(axis=0))
    np.testing.assert_array_equal(seen[3], values.max(axis=0))
    kept = counts.copy()
    finish(sums, 2, *given)
    assert (counts[:, 0] != kept[:, 0]).any()
    undo(counts)
    np.testing.assert_array_equal(counts[:, :4], kept[:, :4])


@pytest.mark.parametrize("mode", [FLOAT_AWAY, FLOAT_EVEN])
def test_halves(mode: int) -> None:
    """Rounded away from zero, or to even; and the largest float32 below a half."""
    integers, reals = (np.zeros_like(table) for table in tables(np.random.default_rng(0)))
    reals[[PRE_FACTOR, POST_FACTOR]], reals[FACTOR] = 1, 0.5
    counts, results = new_counts(), np.zeros((1, COUNT), np.int16)
    sums = np.arange(-16, 16).reshape(1, COUNT)
    clip = Clip(np.int64(-100), np.int64(100), np.int64(0))
    given = (reals, mode, np.float32(0), counts, clip, results.reshape(-1), 0, 2 * COUNT)
    assert finish(sums, 1, integers, *given) == 0
    expected = [result(mode, s, integers[:, 0], reals[:, 0], 0) for s in range(-16, 16)]
    assert results[0].tolist() == expected
    reals[FACTOR] = np.nextafter(np.float32(0.5), np.float32(0))
    assert finish(np.ones((1, COUNT), np.int64), 1, integers, *given) == 0
    assert not results.any()


@pytest.mark.parametrize("value", [1 << 30, -(1 << 30), 1 << 46])
@pytest.mark.parametrize("mode", [INTEGER, FLOAT_AWAY, FLOAT_EVEN])
def test_what_is_beyond(mode: int, value: int) -> None:
    """A result that 32 bits might not hold, of one channel of one pixel; or no number at all."""
    integers, reals = (np.zeros_like(table) for table in tables(np.random.default_rng(0)))
    integers[MUL], integers[MOST] = 1, 1 << 62
    reals[[PRE_FACTOR, FACTOR, POST_FACTOR]] = 1
    results = np.zeros((PIXELS, COUNT), np.int16)
    sums = np.zeros((PIXELS, COUNT), np.int64)
    clip = Clip(np.int64(-100), np.int64(100), np.int64(0))
    given = (mode, np.float32(0), new_counts(), clip, results.reshape(-1), 0, 2 * COUNT)
    assert finish(sums, PIXELS, integers, reals, *given) == 0
    sums[5, 20] = value - (value > 0)
    assert (
        finish(sums, PIXELS, integers, reals, *given) & TOO_LARGE == (value > 1 << 40) * TOO_LARGE
    )
    sums[5, 20] = 2 * value
    assert finish(sums, PIXELS, integers, reals, *given) & TOO_LARGE
    sums[5, 20] = 0
    if mode == INTEGER:
        integers[MOST], sums[5, 20] = 10, -11
    else:
        reals[FACTOR, 20] = np.nan
    assert finish(sums, PIXELS, integers, reals, *given) & TOO_LARGE
