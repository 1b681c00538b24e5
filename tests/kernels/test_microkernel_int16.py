"""Test Int16 sums of products against NumPy."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from nmpsim.kernels.microkernel_int16 import (
    GRANULE,
    MAX_PRODUCTS,
    CarrySearch,
    bound_energy,
    compute_products_int16,
    find_carry_steps,
)
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.vector_code import LANES
from nmpsim.kernels.workspace_size import LEVELS

Array = npt.NDArray[Any]
# Kernels have no entry from Python.
products: Any = numba.njit(
    lambda inputs, base, offsets, window, steps, weights, start, pixels, out: (
        compute_products_int16(inputs, base, offsets, window, steps, weights, start, pixels, out)
    )
)
steps_entry: Any = numba.njit(lambda search, energy: find_carry_steps(search, energy))
energy_entry: Any = numba.njit(
    lambda inputs, start, granules, known: bound_energy(inputs, start, granules, known)
)
LOW, HIGH = -(1 << 15), (1 << 15) - 1
WINDOWS = {
    "1x1": InputWindow(1, 0, 1, 0, 64),
    "two inputs": InputWindow(1, 0, 1, 0, 2),
    "3x3": InputWindow(3, 700, 1, 0, 42),
    "3x3 in runs": InputWindow(3, 700, 3, 40, 6),
    "deep": InputWindow(1, 0, 1, 0, 1026),
}


def unpack_lanes(weights: Array, blocks: int) -> Array:
    """Return the weights [lanes, inputs] of packed blocks."""
    return weights.reshape(blocks, -1, LANES, 2).transpose(0, 2, 1, 3).reshape(blocks * LANES, -1)


def gather_windows(inputs: Array, base: int, offsets: Array, window: InputWindow) -> Array:
    """Return the inputs [pixels, inputs] of the windows at some offsets."""
    rows, runs = np.ogrid[: window.rows, : window.runs]
    starts = (rows * window.row_stride + runs * window.run_stride).reshape(-1, 1) // 2
    at = (base + offsets[:, None, None]) // 2 + starts + np.arange(window.length)
    return inputs[at].reshape(len(offsets), -1)


def compute_carry_steps(
    weights: Array, window: InputWindow, blocks: int, inputs: Array, squares: bool = False
) -> int:
    """Compute the number of steps between carries as the kernel does."""
    low, high = min(int(inputs.min()), 0), max(int(inputs.max()), 0)
    run_steps, runs = (window.length + 1) // 2, window.rows * window.runs * blocks
    bounds, workspace = np.full(2 * LEVELS, -1), np.empty(3 * LANES, np.int32)
    energy = energy_entry(inputs, 0, len(inputs) // GRANULE, 0) if squares else -1
    search = CarrySearch(weights, 0, runs, run_steps, low, high, True, bounds, workspace)
    return int(steps_entry(search, energy))


def check(inputs: Array, window: InputWindow, weights: Array, blocks: int, pixels: int) -> int:
    """Assert that sums of windows 10 bytes apart equal NumPy; return the steps between carries."""
    offsets, base = 10 * np.arange(pixels), 4
    steps = compute_carry_steps(weights, window, blocks, inputs)
    assert steps > 0
    out = np.full((pixels + 1, blocks * LANES), 77, np.int64)
    products(inputs, base, offsets, window, steps, weights, 0, pixels, out)
    taken = gather_windows(inputs, base, offsets, window).astype(np.int64)
    expected = taken @ unpack_lanes(weights, blocks).T.astype(np.int64)
    np.testing.assert_array_equal(out[:pixels], expected)
    assert (out[pixels:] == 77).all()
    return steps


@pytest.mark.parametrize("spread", [1, 40, 700, 9000, 40_000])
@pytest.mark.parametrize(
    ("name", "blocks", "pixels"),
    list(zip(WINDOWS, [3, 2, 1, 2, 3], [24, 1, 13, 7, 6], strict=True)),
)
def test_random_sums_are_exact(name: str, blocks: int, pixels: int, spread: int) -> None:
    """Of any size: the larger the weights, the fewer steps between carries."""
    rng, window = np.random.default_rng(spread), WINDOWS[name]
    depth = window.rows * window.runs * window.length
    weights = np.clip(rng.normal(0, spread, blocks * depth * LANES), LOW + 1, HIGH).astype(np.int16)
    inputs = rng.integers(LOW, HIGH, 4000, np.int16, endpoint=True)
    check(inputs, window, weights, blocks, pixels)


@pytest.mark.parametrize("x", [LOW, HIGH, -1])
@pytest.mark.parametrize("w", [LOW + 1, HIGH, -1, 255, -256])
def test_extreme_values_are_exact(x: int, w: int) -> None:
    """Where all products are as large as they can be."""
    window = InputWindow(1, 0, 1, 0, 512)
    inputs, weights = np.full(600, x, np.int16), np.full(512 * LANES, w, np.int16)
    steps = check(inputs, window, weights, 1, 2)
    assert steps == (64 if abs(x * w) * 128 <= MAX_PRODUCTS else 1)


def test_pairs_of_products_may_overflow() -> None:
    """2^31 in one step; not so if no input is that small."""
    window, weights = InputWindow(1, 0, 1, 0, 2), np.full(2 * LANES, LOW, np.int16)
    assert compute_carry_steps(weights, window, 1, np.full(2, LOW, np.int16)) == 0
    assert compute_carry_steps(weights, window, 1, np.full(2, LOW + 1, np.int16)) > 0


@pytest.mark.parametrize("steps", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_number_of_steps_is_maximal(steps: int, sign: int) -> None:
    """Up to the last product that 32 bits hold; from all lanes, of runs that are no multiple."""
    depth = 2 * (3 * steps + 1)
    inputs = np.zeros(depth + 10, np.int16)
    inputs[2 : 2 + depth] = sign * HIGH
    weights = np.zeros((depth // 2, LANES, 2), np.int16)
    share = MAX_PRODUCTS // HIGH // (2 * steps)
    weights[:, 5] = sign * share
    assert check(inputs, InputWindow(1, 0, 1, 0, depth), weights.reshape(-1), 1, 1) >= steps
    weights[steps, 5, 1] += sign * (MAX_PRODUCTS // HIGH - 2 * steps * share + 1)
    assert check(inputs, InputWindow(1, 0, 1, 0, depth), weights.reshape(-1), 1, 1) < steps


def test_signs_matter() -> None:
    """Of positive inputs, weights of both signs never add up."""
    weights = np.tile(np.array([HIGH, -HIGH], np.int16), 8 * LANES)
    window = InputWindow(1, 0, 1, 0, 16)
    assert compute_carry_steps(weights, window, 1, np.array([0, HIGH])) == 2
    assert compute_carry_steps(weights, window, 1, np.array([-HIGH, HIGH])) == 1


def test_squares_know_more_than_extremes() -> None:
    """Of one large input among small ones, and one large weight."""
    rng, window = np.random.default_rng(0), InputWindow(1, 0, 1, 0, 96)
    weights = rng.integers(-8000, 8000, 96 * LANES).astype(np.int16)
    inputs = rng.integers(-900, 900, 480).astype(np.int16)
    weights[[5, 300]], inputs[[7, 40]] = HIGH, [LOW, HIGH]
    steps = [compute_carry_steps(weights, window, 1, inputs, squares) for squares in (False, True)]
    assert steps[0] < steps[1]
    offsets, out = 32 * np.arange(20), np.zeros((20, LANES), np.int64)
    for some in steps:
        products(inputs, 0, offsets, window, some, weights, 0, 20, out)
        taken = gather_windows(inputs, 0, offsets, window).astype(np.int64)
        np.testing.assert_array_equal(out, taken @ unpack_lanes(weights, 1).T.astype(np.int64))


@pytest.mark.parametrize("steps", [8, 16, 32, 64])
def test_squares_of_equal_operands_are_bounded(steps: int) -> None:
    """The bound is the sum itself, below and above MAX_PRODUCTS; one input is much larger."""
    window = InputWindow(1, 0, 1, 0, 128)
    for size, expected in ((0.99, steps), (1.01, steps // 2)):
        number = round(size * (MAX_PRODUCTS / (2 * steps)) ** 0.5)
        weights, inputs = np.zeros((64, LANES, 2), np.int16), np.full(128, number, np.int16)
        weights[:, 3], inputs[:GRANULE] = number, 0
        inputs[5] = min(HIGH, round(3.9 * number))
        assert compute_carry_steps(weights.reshape(-1), window, 1, inputs, True) == expected
        assert compute_carry_steps(weights.reshape(-1), window, 1, inputs) < steps


def test_energy_bounds_sums() -> None:
    """The 256th part of the squares of the largest granule, rounded up at each pair."""
    inputs = np.zeros(5 * GRANULE, np.int16)
    assert energy_entry(inputs, 0, 5, 0) == 8
    inputs[3 * GRANULE : 4 * GRANULE] = LOW
    assert energy_entry(inputs, 0, 5, 0) == GRANULE * (LOW * LOW // 256) + 8
    assert energy_entry(inputs, GRANULE, 2, 100) == 100


def test_bounds_are_simple_without_a_cache() -> None:
    weights, workspace = np.ones(64 * LANES, np.int16), np.empty(3 * LANES, np.int32)
    bounds = np.full(2 * LEVELS, -1)
    search = CarrySearch(weights, 0, 1, 32, 0, 9, False, bounds, workspace)
    assert steps_entry(search, -1) == 8
    assert (bounds[:LEVELS] >= 0).sum() == 1
