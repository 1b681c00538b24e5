"""Vector code for sums and rescaled values of Int8 against plain integers, number by number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from nmpsim.core.state import LAYER, NEVER, STAGES
from nmpsim.isa.profiles import GLOW_INT, ONNX
from nmpsim.isa.words import OP_ADD, OP_MAX, OP_SUB
from nmpsim.kernels.elementwise import (
    RUN_BYTES,
    can_use_blocks,
    compute_rescale_vectors,
    compute_sum_vectors,
)
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.operands import (
    BinaryScales,
    BinaryShape,
    Clip,
    IntegerScale,
    OutputPosition,
    RescaleParameters,
)
from nmpsim.kernels.saturation_stages import ACTIVATION, RESULT

CHANNELS, BASE = 80, 7
"""Channels of the layer, and index of its first counter."""
LHS, RHS, OUT, BYTES = 0, 4096, 8192, 16384

sum_entry: Any = numba.njit(
    lambda spm, t, q, place, counters: compute_sum_vectors(spm, t, q, place, counters)
)
rescale_entry: Any = numba.njit(
    lambda spm, source, target, count, u, place, counters: compute_rescale_vectors(
        spm, source, target, count, u, place, counters
    )
)
regular_entry: Any = numba.njit(lambda *asked: can_use_blocks(*asked))


class SaturationCounters(NamedTuple):
    """Counters of saturated values."""

    layers: Any
    channel_saturated: Any
    layer: Any


def new_counters() -> SaturationCounters:
    layers = np.zeros(1, LAYER).view(np.recarray)
    layers.channels[:], layers.channel_base[:], layers.first[:] = CHANNELS, BASE, NEVER
    by_channel = np.zeros((STAGES, 2, BASE + CHANNELS + 3), np.int64)
    return SaturationCounters(layers, by_channel, np.int64(0))


def random_scratchpad(seed: int) -> Scratchpad:
    memory = np.random.default_rng(seed).integers(-128, 128, BYTES, dtype=np.int8)
    return Scratchpad(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))


def scale_of(pre: int, mul: int, post: int) -> IntegerScale:
    return IntegerScale(np.int64(pre), np.int64(mul), np.int64(post))


def scale_value(x: int, scale: IntegerScale) -> int:
    return ((x >> int(scale.pre)) * int(scale.mul) + (1 << int(scale.post) >> 1)) >> int(scale.post)


def pair(operation: int = OP_ADD) -> BinaryShape:
    return BinaryShape(*map(np.int64, (operation, 0, 0, LHS, RHS, OUT, 1, CHANNELS, 0, 0, 0)))


def pair_scales(**changed: Any) -> BinaryScales:
    clip = Clip(np.int64(-90), np.int64(100), np.int64(1))
    one, other = scale_of(0, 181, 7), scale_of(1, 77, 5)
    numbers = (np.int64(0), np.int64(11))
    q = BinaryScales(np.int64(GLOW_INT), np.int64(-5), np.int64(9), one, other, one, *numbers, clip)
    return q._replace(**changed)


def unary(**changed: Any) -> RescaleParameters:
    clip = Clip(np.int64(-128), np.int64(127), np.int64(0))
    one = scale_of(0, 120, 7)
    limits = map(np.int64, (0, GLOW_INT, -4, 100, -4))
    zero = np.int64(0)
    return RescaleParameters(*limits, one, zero, one, zero, np.int64(3), clip)._replace(**changed)


def place_at(index: int) -> OutputPosition:
    return OutputPosition(np.int64(index), np.int64(0), np.int64(0))


def run_sum(
    t: BinaryShape, q: BinaryScales, count: int, index: int, memory: Any
) -> SaturationCounters | None:
    """Add two runs in memory; return the counters, or None if there is no vector code."""
    spm = Scratchpad(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))
    counters = new_counters()
    done = sum_entry(spm, t._replace(columns=np.int64(count)), q, place_at(index), counters)
    return counters if done else None


def run_rescale(
    u: RescaleParameters, target: int, count: int, index: int, memory: Any
) -> SaturationCounters | None:
    """Rescale a run in memory; return the counters, or None if there is no vector code."""
    spm = Scratchpad(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))
    counters, sides = new_counters(), map(np.int64, (0, target, count))
    return counters if rescale_entry(spm, *sides, u, place_at(index), counters) else None


def check_accounts(counters: SaturationCounters, index: int, *clips: Any) -> None:
    """Compare counters with values before clips: (values, low, high, stages of both sides)."""
    expected: dict[tuple[int, int], list[int]] = {}
    for values, low, high, stages in clips:
        for side, over in enumerate(([low - v for v in values], [v - high for v in values])):
            before = expected.get((stages[side], side), [0] * len(values))
            expected[stages[side], side] = [max(*two) for two in zip(before, over, strict=True)]
    for (stage, side), over in expected.items():
        cut = [i for i, beyond in enumerate(over) if beyond > 0]
        by_channel = [0] * counters.channel_saturated.shape[2]
        for i in cut:
            by_channel[BASE + (index + i) % CHANNELS] += 1
        account = counters.layers[0]
        assert counters.channel_saturated[stage, side].tolist() == by_channel
        assert account.saturated[stage, side] == len(cut)
        assert account.worst[stage, side] == max([0, *over])
        assert account.first[stage, side] == (index + cut[0] if cut else NEVER)
    total = sum(beyond > 0 for over in expected.values() for beyond in over)
    assert counters.layers[0].saturated.sum() == total


RUNS = [(48, 0), (96, 48), (16, 16), (32, 32), (80, 32), (240, 16), (208, 96)]
"""Values and the place of the first one: parts of pixels, whole ones, and both."""


@pytest.mark.parametrize(("count", "index"), RUNS)
@pytest.mark.parametrize(
    ("operation", "out"), [(OP_ADD, OUT), (OP_SUB, OUT), (OP_ADD, LHS), (OP_SUB, RHS)]
)
def test_int8_sums_equal_the_reference(operation: int, out: int, count: int, index: int) -> None:
    q, t = pair_scales(), pair(operation)._replace(output=np.int64(out))
    memory = random_scratchpad(count).i8
    before = memory.tolist()
    counters = run_sum(t, q, count, index, memory)
    assert counters
    sign = 1 if operation == OP_ADD else -1
    values = [
        scale_value(before[LHS + i] + 5, q.lhs_scale)
        + sign * scale_value(before[RHS + i] - 9, q.rhs_scale)
        for i in range(count)
    ]
    values = [value + 11 for value in values]
    expected = before.copy()
    expected[out : out + count] = [min(max(value, -90), 100) for value in values]
    assert memory.tolist() == expected
    check_accounts(counters, index, (values, -90, 100, (ACTIVATION, RESULT)))


@pytest.mark.parametrize("mul", [120, 250, -250])
@pytest.mark.parametrize("target", [LHS, OUT])
@pytest.mark.parametrize(("count", "index"), RUNS)
def test_int8_rescales_equal_the_reference(count: int, index: int, target: int, mul: int) -> None:
    """Values are clamped, scaled and clipped; both are counted, here on different sides."""
    clip = Clip(np.int64(-100), np.int64(110), np.int64(0))
    u = unary(scale=scale_of(0, mul, 7), clip=clip, in_low=np.int64(-80))
    memory = random_scratchpad(count).i8
    before = memory.tolist()
    counters = run_rescale(u, target, count, index, memory)
    assert counters
    results = [scale_value(min(max(v, -80), 100) + 4, u.scale) + 3 for v in before[:count]]
    expected = before.copy()
    expected[target : target + count] = [min(max(result, -100), 110) for result in results]
    assert memory.tolist() == expected
    clamp = before[:count], -80, 100, (ACTIVATION, ACTIVATION)
    check_accounts(counters, index, clamp, (results, -100, 110, (RESULT, RESULT)))


def test_a_clamp_that_limits_nothing_does_not_change_the_overshoot() -> None:
    """Values before the scale are larger than the results."""
    clip = Clip(np.int64(-10), np.int64(10), np.int64(0))
    limits = {"in_low": np.int64(-127), "in_high": np.int64(126), "in_offset": np.int64(0)}
    u = unary(scale=scale_of(0, 32, 7), clip=clip, **limits)
    memory = np.clip(random_scratchpad(3).i8, -100, 100)
    before = memory[:240].tolist()
    counters = run_rescale(u, OUT, 240, 0, memory)
    assert counters
    results = [scale_value(value, u.scale) + 3 for value in before]
    check_accounts(counters, 0, (results, -10, 10, (RESULT, RESULT)))


def test_two_clips_of_a_rescale_count_as_one_stage() -> None:
    """The first place is that of the first one, whichever clip limits it."""
    clip = Clip(np.int64(-100), np.int64(127), np.int64(1))
    u = unary(scale=scale_of(0, -128, 7), clip=clip, in_low=np.int64(-80), in_high=np.int64(127))
    for values in ([0, 120, -90], [0, -90, 120], [0, 0, 120]):
        memory = np.zeros(CHANNELS, np.int8)
        memory[: len(values)] = values
        counters = run_rescale(u, 0, CHANNELS, 0, memory)
        assert counters
        limited = [i for i, value in enumerate(values) if value in (120, -90)]
        assert counters.layers[0].first[ACTIVATION, 0] == limited[0]
        assert counters.layers[0].saturated[ACTIVATION, 0] == len(limited)


def test_long_runs_are_exact() -> None:
    """Counts are added up piece by piece; the first place is in a later piece."""
    q, memory = pair_scales(), np.zeros(CHANNELS * 600, np.int8)
    assert memory.size > 5 * RUN_BYTES
    memory[CHANNELS * 400 :] = 127
    zero = np.int64(0)
    t = pair()._replace(lhs=zero, rhs=zero, output=zero)
    counters = run_sum(t, q, memory.size, 0, memory)
    assert counters
    of_zero = scale_value(5, q.lhs_scale) + scale_value(-9, q.rhs_scale) + 11
    of_most = scale_value(132, q.lhs_scale) + scale_value(118, q.rhs_scale) + 11
    values = [of_zero] * CHANNELS * 400 + [of_most] * CHANNELS * 200
    assert memory.tolist() == [min(value, 100) for value in values]
    check_accounts(counters, 0, (values, -90, 100, (ACTIVATION, RESULT)))


def test_results_without_saturation_count_nothing() -> None:
    q = pair_scales(lhs_scale=scale_of(3, 1, 0), rhs_scale=scale_of(3, 1, 0))
    counters = run_sum(pair(), q, 96, 0, random_scratchpad(5).i8)
    assert counters
    check_accounts(counters, 0, ([0] * 96, -90, 100, (ACTIVATION, RESULT)))


def test_every_fitting_scale_is_exact() -> None:
    """Vector code of 16 bits computes the scale, for each byte."""
    random, fitting = np.random.default_rng(3), 0
    for _ in range(300):
        scale = scale_of(random.integers(0, 4), random.integers(-600, 600), random.integers(0, 17))
        offset, clip = random.integers(-128, 128), Clip(np.int64(-128), np.int64(127), np.int64(0))
        limits = {"in_low": np.int64(-128), "in_high": np.int64(127), "in_offset": offset}
        memory = np.tile(np.arange(-128, 128).astype(np.int8), 5)
        if run_rescale(unary(scale=scale, clip=clip, **limits), 0, 1280, 0, memory) is None:
            continue
        fitting += 1
        results = [scale_value(x - int(offset), scale) + 3 for x in range(-128, 128)]
        assert memory.tolist() == [min(max(result, -128), 127) for result in results] * 5
    assert fitting > 200


@pytest.mark.parametrize(
    "changed",
    [
        {"lhs_scale": scale_of(0, 1 << 30, 7)},
        {"rhs_offset": np.int64(1 << 30)},
        {"out_offset": np.int64(-(1 << 31))},
        {"clip": Clip(np.int64(-129), np.int64(100), np.int64(0))},
        {"profile": np.int64(ONNX)},
    ],
)
def test_sums_of_64_bits_are_left_to_other_code(changed: dict[str, Any]) -> None:
    memory = random_scratchpad(1).i8
    before = memory.copy()
    assert run_sum(pair(), pair_scales(**changed), CHANNELS, 0, memory) is None
    assert (memory == before).all()


def test_other_operations_are_left_to_other_code() -> None:
    memory = random_scratchpad(1).i8
    for t in (pair(OP_MAX), pair()._replace(rhs_size=np.int64(2))):
        assert run_sum(t, pair_scales(), CHANNELS, 0, memory) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"leaky": np.int64(1)},
        {"in_low": np.int64(-200)},
        {"scale": scale_of(0, 1 << 30, 0)},
        {"clip": Clip(np.int64(-129), np.int64(127), np.int64(0))},
        {"out_offset": np.int64(1 << 31)},
    ],
)
def test_rescales_of_64_bits_are_left_to_other_code(changed: dict[str, Any]) -> None:
    memory = random_scratchpad(1).i8
    before = memory.copy()
    assert run_rescale(unary(**changed), OUT, CHANNELS, 0, memory) is None
    assert (memory == before).all()


@pytest.mark.parametrize(
    ("sides", "index", "count", "channels", "expected"),
    [
        ((0, 64, 128), 16, 32, 48, True),
        ((0, 64, 0), 16, 32, 48, True),
        ((0, 64, 128), 8, 32, 48, False),
        ((0, 64, 128), 16, 24, 48, False),
        ((0, 64, 128), 16, 32, 40, False),
        ((0, 64, 16), 16, 32, 48, False),
        ((0, 64, 48), 16, 32, 48, False),
    ],
)
def test_regular_runs_are_exact(
    sides: tuple[int, int, int], index: int, count: int, channels: int, expected: bool
) -> None:
    counters = new_counters()
    counters.layers.channels[:] = channels
    given = tuple(map(np.int64, sides)), np.int64(index), np.int64(count), np.int64(0)
    assert regular_entry(*given, counters) == expected


def digest_of_runs() -> str:
    """Return a text of the results and counters of some runs."""
    made = []
    for count, index in RUNS:
        memory = random_scratchpad(1).i8
        made.append((memory, run_sum(pair(), pair_scales(), count, index, memory)))
        memory = random_scratchpad(1).i8
        made.append((memory, run_rescale(unary(), OUT, count, index, memory)))
    assert all(counters for _, counters in made)
    totals = [
        int(part.astype(np.int64).sum())
        for memory, counters in made
        if counters
        for part in (
            memory,
            counters.layers.first,
            counters.layers.worst,
            counters.channel_saturated,
        )
    ]
    return str(totals)


def test_kernels_are_exact_without_compiler() -> None:
    code = "import test_elementwise_int8 as t; print(t.digest_of_runs())"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        cwd=Path(__file__).parent,
    )
    assert (run.returncode, run.stdout) == (0, digest_of_runs() + "\n"), run.stderr
