"""Int16 dot products of weight blocks against NumPy."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from nmpsim.kernels.dot import PATCHES, dot_int16
from nmpsim.kernels.vector_code import LANES

Array = npt.NDArray[Any]
entry: Any = numba.njit(lambda weights, patches, sums: dot_int16(weights, patches, sums))
"""Kernels have no entry from Python."""
SHARED = 256
"""Int16 inputs that 32 bits can hold the sums of."""


def expected(weights: Array, patches: Array, lanes: int) -> Array:
    """Products of each patch with each lane, from the packed blocks, number by number."""
    side = 4 // weights.itemsize
    depth = patches.shape[1]
    result = np.zeros((PATCHES, lanes), np.int64)
    for lane in range(lanes):
        block = weights[lane // LANES * depth * LANES :][: depth * LANES]
        at = [k // side * LANES * side + lane % LANES * side + k % side for k in range(depth)]
        result[:, lane] = patches.astype(np.int64) @ block[at].astype(np.int64)
    return result


def check(weights: Array, patches: Array, lanes: int) -> None:
    sums = np.full((PATCHES, lanes), 77, np.int64)  # what is there before is no matter
    entry(weights, patches, sums)
    np.testing.assert_array_equal(sums, expected(weights, patches, lanes))


@pytest.mark.parametrize("depth", [4, 8, SHARED - 4, SHARED, SHARED + 4, 3 * SHARED + 8])
@pytest.mark.parametrize("lanes", [16, 48])
def test_random_numbers(depth: int, lanes: int) -> None:
    rng = np.random.default_rng(depth + lanes)
    kind = np.int16
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    weights = rng.integers(low, high, depth * lanes, kind, endpoint=True)
    patches = rng.integers(low, high, (PATCHES, depth), kind, endpoint=True).astype(np.int16)
    check(weights, patches, lanes)


@pytest.mark.parametrize("x", ["min", "max", -1])
@pytest.mark.parametrize("w", ["min", "max", -1, 255, -256])
@pytest.mark.parametrize("depth", [SHARED, 2 * SHARED])
def test_extremes(x: Any, w: Any, depth: int) -> None:
    """Where all products are as large as they can be, in either byte of an Int16 weight."""
    kind = np.int16
    info = np.iinfo(kind)
    ends = {"min": int(info.min), "max": int(info.max)}
    weight = min(max(ends.get(w, w), ends["min"]), ends["max"])
    weights = np.full(depth * LANES, weight, kind)
    patches = np.full((PATCHES, depth), ends.get(x, x), np.int16)
    check(weights, patches, LANES)


def test_an_odd_pair_of_int16() -> None:
    """The depth of Int16 is a multiple of two only."""
    weights = np.arange(-48, 48, dtype=np.int16)
    patches = np.arange(6 * PATCHES, dtype=np.int16).reshape(PATCHES, 6)
    check(weights, patches, LANES)


def test_each_patch_has_its_own_sums() -> None:
    patches = np.diag([1, 2, 3, 4]).astype(np.int16)
    weights = np.ones(4 * LANES, np.int16)
    sums = np.zeros((PATCHES, LANES), np.int64)
    entry(weights, patches, sums)
    assert sums.tolist() == [[p] * LANES for p in (1, 2, 3, 4)]
