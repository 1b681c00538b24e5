"""Test 32-bit Int16 addition kernels against a scalar formula."""

from __future__ import annotations

import itertools
from typing import Any

import numba
import numpy as np
import pytest
from rescale_oracle import F32, encode_float32, round_half_away

from nmpsim.isa.profiles import FLOAT, GLOW_FLOAT
from nmpsim.isa.words import INT8, INT16, OP_ADD, OP_SUB
from nmpsim.kernels.elementwise import add_int16, can_add_int16
from nmpsim.kernels.operands import BinaryScales, BinaryShape, Clip, IntegerScaleRecord

sums_entry: Any = numba.njit(lambda left, right, q, values: add_int16(left, right, q, values))
fits_entry: Any = numba.njit(lambda t, q: can_add_int16(t, q))


def make_factor_scale(value: float) -> IntegerScaleRecord:
    return IntegerScaleRecord(np.int64(0), np.int64(encode_float32(F32(value))), np.int64(0))


def make_pair_shape(**changed: int) -> BinaryShape:
    words = dict.fromkeys(BinaryShape._fields, np.int64(0))
    given = {"operation": OP_ADD, "element": INT16, "rhs_size": INT16, **changed}
    return BinaryShape(**{**words, **{name: np.int64(value) for name, value in given.items()}})


def make_pair_scales(
    lhs: float, rhs: float, out: float, offsets: tuple[int, int, int], profile: int = GLOW_FLOAT
) -> BinaryScales:
    left, right, result = map(np.int64, offsets)
    sides = left, right, make_factor_scale(lhs), make_factor_scale(rhs), make_factor_scale(out)
    clip = Clip(np.int64(-32768), np.int64(32767), np.int64(0))
    return BinaryScales(np.int64(profile), *sides, np.int64(0), result, clip)


EDGES = [-32768, -32767, -1, 0, 1, 32767]
SCALES = [
    (32.0, 64.0, 1 / 32, (0, 0, 0)),
    (0.3, 1.7, 0.9, (5, -9, 77)),
    (0.5, 0.5, 0.5, (0, 0, 0)),
    (-700.0, 900.0, 3.3, (-32768, 32767, -32768)),
    (3999.0, 3999.0, 1.0, (32767, -32768, 1)),
    (1e-30, 0.0, 1e30, (1, 1, 1)),
]


@pytest.mark.parametrize(("lhs", "rhs", "out", "offsets"), SCALES)
def test_int16_sums_equal_the_reference(
    lhs: float, rhs: float, out: float, offsets: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(1)
    drawn = rng.integers(-32768, 32768, (2, 60)).T.tolist()
    pairs = np.array([*itertools.product(EDGES, EDGES), *drawn], np.int16)
    q, values = make_pair_scales(lhs, rhs, out, offsets), np.full(len(pairs), 77, np.int32)
    if (lhs, out) != (1e-30, 1e30):
        assert fits_entry(make_pair_shape(), q)
    sums_entry(pairs[:, 0].copy(), pairs[:, 1].copy(), q, values)
    expected = []
    for left, right in pairs.tolist():
        one = round_half_away(F32(left - offsets[0]) * F32(lhs))
        other = round_half_away(F32(right - offsets[1]) * F32(rhs))
        expected.append(round_half_away(F32(one + other) * F32(out) + F32(offsets[2])))
    assert values.tolist() == expected


def test_results_within_32_bits_are_exact() -> None:
    """Sides and results up to 2^29; the zero points, too."""
    fine = (100.0, 100.0, 10.0, (0, 0, 0))
    assert fits_entry(make_pair_shape(), make_pair_scales(*fine))
    for changed in ({"element": INT8}, {"rhs_size": INT8}, {"rhs_size": 2}, {"operation": OP_SUB}):
        assert not fits_entry(make_pair_shape(**changed), make_pair_scales(*fine))
    assert not fits_entry(make_pair_shape(), make_pair_scales(*fine, profile=FLOAT))
    assert fits_entry(make_pair_shape(), make_pair_scales(8000.0, 8000.0, 1.0, (0, 0, 0)))
    for index, wrong in itertools.product(range(3), (17_000.0, -17_000.0, np.inf, np.nan)):
        numbers = list(fine[:3])
        numbers[index] = wrong
        assert not fits_entry(make_pair_shape(), make_pair_scales(*numbers, (0, 0, 0))), (
            index,
            wrong,
        )
        offsets = [0, 0, 0]
        offsets[index] = 1 << 30
        assert not fits_entry(make_pair_shape(), make_pair_scales(0.0, 0.0, 0.0, tuple(offsets)))
    assert not fits_entry(make_pair_shape(), make_pair_scales(1000.0, 1000.0, 9.0, (0, 0, 0)))
