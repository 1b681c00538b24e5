"""Sums of Int16 in 32 bits against fractions, number by number."""

from __future__ import annotations

import itertools
from typing import Any

import numba
import numpy as np
import pytest
from rescale_oracle import F32, bits_of, round_half_away

from nmpsim.core.state import LAYER, NEVER, STAGES
from nmpsim.isa.profiles import GLOW_FLOAT, ONNX
from nmpsim.isa.words import INT8, INT16, OP_ADD, OP_MAX
from nmpsim.kernels.elementwise import compute_sum_vectors
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.operands import BinaryScales, BinaryShape, Clip, IntegerScale, OutputPosition
from nmpsim.kernels.saturate import SaturationCounters

CHANNELS, COUNT = 16, 96
LOW, HIGH = -32768, 32767
tile_entry: Any = numba.njit(
    lambda spm, t, q, place, counters: compute_sum_vectors(spm, t, q, place, counters)
)


def factor(value: float) -> IntegerScale:
    return IntegerScale(np.int64(0), np.int64(bits_of(F32(value))), np.int64(0))


def pair(**changed: int) -> BinaryShape:
    words = dict.fromkeys(BinaryShape._fields, np.int64(0))
    given = {"operation": OP_ADD, "element": INT16, "rhs_size": INT16, "rows": 1, "columns": COUNT}
    given |= {"rhs": 2 * COUNT, "output": 4 * COUNT, **changed}
    return BinaryShape(**{**words, **{name: np.int64(value) for name, value in given.items()}})


def scales(
    lhs: float, rhs: float, out: float, offsets: tuple[int, int, int], profile: int = GLOW_FLOAT
) -> BinaryScales:
    left, right, result = map(np.int64, offsets)
    sides = left, right, factor(lhs), factor(rhs), factor(out)
    clip = Clip(np.int64(LOW), np.int64(HIGH), np.int64(0))
    return BinaryScales(np.int64(profile), *sides, np.int64(0), result, clip)


def run(t: BinaryShape, q: BinaryScales, pairs: Any) -> tuple[Any, SaturationCounters] | None:
    """Return results and counters of pairs of values, or None if there is no vector code."""
    memory = np.zeros(3 * COUNT, np.int16)
    memory[: 2 * COUNT] = np.array(pairs).T.reshape(-1)
    spm = Scratchpad(memory.view("i1"), memory, memory.view("i4"), memory.view("i8"))
    layers = np.zeros(1, LAYER).view(np.recarray)
    layers.channels[:], layers.first[:] = CHANNELS, NEVER
    counters = SaturationCounters(layers, np.zeros((STAGES, 2, CHANNELS), np.int64), np.int64(0))
    done = tile_entry(spm, t, q, OutputPosition(*[np.int64(0)] * 3), counters)
    return (memory[2 * COUNT :].tolist(), counters) if done else None


EDGES = [-32768, -32767, -1, 0, 1, 32767]
SCALES = [
    (32.0, 64.0, 1 / 32, (0, 0, 0)),
    (0.3, 1.7, 0.9, (5, -9, 77)),
    (0.5, 0.5, 0.5, (0, 0, 0)),
    (-700.0, 900.0, 3.3, (-32768, 32767, -32768)),
    (3999.0, 3999.0, 1.0, (32767, -32768, 1)),
]


@pytest.mark.parametrize(("lhs", "rhs", "out", "offsets"), SCALES)
def test_int16_sums_equal_the_reference(
    lhs: float, rhs: float, out: float, offsets: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(1)
    pairs = [*itertools.product(EDGES, EDGES), *rng.integers(LOW, HIGH + 1, (60, 2)).tolist()]
    done = run(pair(), scales(lhs, rhs, out, offsets), pairs)
    assert done
    expected = []
    for left, right in pairs:
        one = round_half_away(F32(left - offsets[0]) * F32(lhs))
        other = round_half_away(F32(right - offsets[1]) * F32(rhs))
        expected.append(round_half_away(F32(one + other) * F32(out) + F32(offsets[2])))
    results, counters = done
    assert results == [min(max(value, LOW), HIGH) for value in expected]
    over = [[LOW - value for value in expected], [value - HIGH for value in expected]]
    account = counters.layers[0]
    for side, beyond in enumerate(over):
        cut = [i for i, value in enumerate(beyond) if value > 0]
        assert account.saturated[:, side].sum() == len(cut)
        assert account.worst[:, side].max() == max([0, *beyond])
        assert account.first[:, side].min() == (cut[0] if cut else NEVER)
        by_channel = np.bincount([i % CHANNELS for i in cut], minlength=CHANNELS)
        assert (counters.channel_saturated[:, side].sum(axis=0) == by_channel).all()


def test_results_beyond_32_bits_are_left_to_other_code() -> None:
    """Vector code rounds numbers up to 2^30."""
    fine = (100.0, 100.0, 10.0, (0, 0, 0))
    pairs = [(0, 0)] * COUNT
    assert run(pair(), scales(*fine), pairs)
    for changed in ({"rhs_size": INT8}, {"rhs_size": 2}, {"operation": OP_MAX}):
        assert not run(pair(**changed), scales(*fine), pairs)
    assert not run(pair(), scales(*fine, profile=ONNX), pairs)
    assert run(pair(), scales(8000.0, 8000.0, 1.0, (0, 0, 0)), pairs)
    for index, wrong in itertools.product(range(3), (33_000.0, -33_000.0, np.inf, np.nan)):
        numbers = list(fine[:3])
        numbers[index] = wrong
        assert not run(pair(), scales(*numbers, (0, 0, 0)), pairs), (index, wrong)
        offsets = [0, 0, 0]
        offsets[index] = (1 << 31) - 1
        assert not run(pair(), scales(0.0, 0.0, 0.0, tuple(offsets)), pairs)
    assert not run(pair(), scales(9000.0, 9000.0, 9.0, (0, 0, 0)), pairs)
