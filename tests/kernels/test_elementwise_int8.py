"""Test 16-bit Int8 elementwise kernels against plain integers."""

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
from nmpsim.isa.profiles import GLOW_INT, Q31
from nmpsim.isa.words import OP_ADD, OP_MAX, OP_SUB
from nmpsim.kernels.elementwise_int8 import (
    CLIPS,
    PARAMETERS,
    RESCALE,
    RESCALE_UNCLIPPED,
    ROWS,
    RUN_BYTES,
    SUM,
    add_or_rescale_values,
    can_use_blocks,
    choose_rescale,
    encode_rescale,
    encode_sum,
)
from nmpsim.kernels.movement import ScratchpadViews
from nmpsim.kernels.operands import (
    BinaryScales,
    BinaryShape,
    Clip,
    IntegerScaleRecord,
    RescaleParameters,
)
from nmpsim.kernels.saturation_stages import ACTIVATION, RESULT

CHANNELS, BASE = 80, 7
"""Channels of the layer, and the place of its first one in the account."""
LHS, RHS, OUT, BYTES = 0, 4096, 8192, 16384

run_entry: Any = numba.njit(
    lambda spm, operation, sides, count, numbers, table, buffer, clip, index, counters: (
        add_or_rescale_values(
            spm, operation, sides, count, numbers, table, buffer, clip, index, counters
        )
    )
)
sum_entry: Any = numba.njit(lambda t, q, numbers: encode_sum(t, q, numbers))
rescale_entry: Any = numba.njit(lambda u, numbers: encode_rescale(u, numbers))
operation_entry: Any = numba.njit(lambda u: choose_rescale(u))
regular_entry: Any = numba.njit(lambda *asked: can_use_blocks(*asked))


class SaturationCounters(NamedTuple):
    """Arrays that count saturated values."""

    layers: Any
    channel_saturated: Any
    layer: Any


def new_counters() -> SaturationCounters:
    layers = np.zeros(1, LAYER).view(np.recarray)
    layers.channels[:], layers.channel_base[:], layers.first[:] = CHANNELS, BASE, NEVER
    by_channel = np.zeros((STAGES, 2, BASE + CHANNELS + 3), np.int64)
    return SaturationCounters(layers, by_channel, np.int64(0))


def make_buffer() -> Any:
    return np.full(2 * RUN_BYTES, 77, np.int8)


def draw_scratchpad(seed: int) -> ScratchpadViews:
    memory = np.random.default_rng(seed).integers(-128, 128, BYTES, dtype=np.int8)
    return ScratchpadViews(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))


def make_scale(pre: int, mul: int, post: int) -> IntegerScaleRecord:
    return IntegerScaleRecord(np.int64(pre), np.int64(mul), np.int64(post))


def rescale(x: int, scale: IntegerScaleRecord) -> int:
    return ((x >> int(scale.pre)) * int(scale.mul) + (1 << int(scale.post) >> 1)) >> int(scale.post)


def make_pair_shape(operation: int = OP_ADD) -> BinaryShape:
    return BinaryShape(*map(np.int64, (operation, 0, 0, LHS, RHS, OUT, 1, CHANNELS, 0, 0, 0)))


def make_pair_scales(**changed: Any) -> BinaryScales:
    clip = Clip(np.int64(-90), np.int64(100), np.int64(1))
    one, other = make_scale(0, 181, 7), make_scale(1, 77, 5)
    numbers = (np.int64(0), np.int64(11))
    q = BinaryScales(np.int64(GLOW_INT), np.int64(-5), np.int64(9), one, other, one, *numbers, clip)
    return q._replace(**changed)


def make_rescale_parameters(**changed: Any) -> RescaleParameters:
    clip = Clip(np.int64(-128), np.int64(127), np.int64(0))
    one = make_scale(0, 120, 7)
    limits = map(np.int64, (0, GLOW_INT, -4, 100, -4))
    zero = np.int64(0)
    return RescaleParameters(*limits, one, zero, one, zero, np.int64(3), clip)._replace(**changed)


def run_kernel(
    operation: Any, sides: Any, count: int, index: int, numbers: Any, clip: Any, seed: int
) -> Any:
    """Run the kernel on a random scratchpad and return the scratchpad bytes and the counters."""
    spm, counters = draw_scratchpad(seed), new_counters()
    table = np.full((CLIPS, ROWS, CHANNELS), 77, np.int16)  # what is there is no matter
    given = (np.int64(count), numbers, table, make_buffer(), clip, np.int64(index), counters)
    run_entry(spm, operation, tuple(map(np.int64, sides)), *given)
    return spm.i8, counters


def check_counters(counters: SaturationCounters, index: int, *clips: Any) -> None:
    """Assert that the counters match each clip, given as (values, low, high, stages)."""
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
        layer_counters = counters.layers[0]
        assert counters.channel_saturated[stage, side].tolist() == by_channel
        assert layer_counters.saturated[stage, side] == len(cut)
        assert layer_counters.worst[stage, side] == max([0, *over])
        assert layer_counters.first[stage, side] == (index + cut[0] if cut else NEVER)
    total = sum(beyond > 0 for over in expected.values() for beyond in over)
    assert counters.layers[0].saturated.sum() == total


RUNS = [(48, 0), (96, 48), (16, 16), (32, 32), (80, 32), (240, 16), (208, 96)]
"""Values and the place of the first one: parts of pixels, whole ones, and both."""


@pytest.mark.parametrize(("count", "index"), RUNS)
@pytest.mark.parametrize(
    ("operation", "out"), [(OP_ADD, OUT), (OP_SUB, OUT), (OP_ADD, LHS), (OP_SUB, RHS)]
)
def test_int8_sums_equal_the_reference(operation: int, out: int, count: int, index: int) -> None:
    q, numbers = make_pair_scales(), np.zeros(PARAMETERS, np.int16)
    assert sum_entry(make_pair_shape(operation), q, numbers)
    before = draw_scratchpad(count).i8.tolist()
    after, counters = run_kernel(SUM, (LHS, RHS, out), count, index, numbers, q.clip, count)
    sign = 1 if operation == OP_ADD else -1
    values = [
        rescale(before[LHS + i] + 5, q.lhs_scale) + sign * rescale(before[RHS + i] - 9, q.rhs_scale)
        for i in range(count)
    ]
    values = [value + 11 for value in values]
    expected = before.copy()
    expected[out : out + count] = [min(max(value, -90), 100) for value in values]
    assert after.tolist() == expected
    check_counters(counters, index, (values, -90, 100, (ACTIVATION, RESULT)))


@pytest.mark.parametrize("mul", [120, 250, -250])
@pytest.mark.parametrize(("count", "index"), RUNS)
def test_int8_rescales_equal_the_reference(count: int, index: int, mul: int) -> None:
    """Values are clamped, scaled and clipped; both are counted, here on different sides."""
    clip = Clip(np.int64(-100), np.int64(110), np.int64(0))
    u = make_rescale_parameters(scale=make_scale(0, mul, 7), clip=clip, in_low=np.int64(-80))
    numbers = np.zeros(PARAMETERS, np.int16)
    assert rescale_entry(u, numbers)
    before = draw_scratchpad(count).i8.tolist()
    after, counters = run_kernel(RESCALE, (LHS, LHS, OUT), count, index, numbers, clip, count)
    results = [rescale(min(max(v, -80), 100) + 4, u.scale) + 3 for v in before[:count]]
    expected = before.copy()
    expected[OUT : OUT + count] = [min(max(result, -100), 110) for result in results]
    assert after.tolist() == expected
    clamp = before[:count], -80, 100, (ACTIVATION, ACTIVATION)
    check_counters(counters, index, clamp, (results, -100, 110, (RESULT, RESULT)))


@pytest.mark.parametrize("mul", [110, -110])
@pytest.mark.parametrize("last", [0, 1])
def test_unclipped_results_are_exact(mul: int, last: int) -> None:
    """The clamp's ends tell; without the clip results are the same."""
    ends = sorted(rescale(value + 4, make_scale(0, mul, 7)) + 3 for value in (-80, 100))
    clip = Clip(np.int64(ends[0]), np.int64(ends[1] - last), np.int64(0))
    u = make_rescale_parameters(scale=make_scale(0, mul, 7), clip=clip, in_low=np.int64(-80))
    numbers = np.zeros(PARAMETERS, np.int16)
    assert rescale_entry(u, numbers)
    assert operation_entry(u) == (RESCALE if last else RESCALE_UNCLIPPED)
    given = (LHS, LHS, OUT), 240, 16, numbers, clip, 7
    with_clip, without = (
        run_kernel(operation, *given) for operation in (RESCALE, RESCALE_UNCLIPPED)
    )
    assert np.array_equal(with_clip[0], without[0]) != last
    assert (with_clip[1].layers == without[1].layers).all() != last


def test_two_clips_of_a_rescale_count_as_one_stage() -> None:
    """The first place is that of the first one, whichever clip limits it."""
    clip = Clip(np.int64(-100), np.int64(127), np.int64(1))
    u = make_rescale_parameters(
        scale=make_scale(0, -128, 7), clip=clip, in_low=np.int64(-80), in_high=np.int64(127)
    )
    numbers = np.zeros(PARAMETERS, np.int16)
    assert rescale_entry(u, numbers)
    for values in ([0, 120, -90], [0, -90, 120], [0, 0, 120]):
        counters, memory = new_counters(), np.zeros(CHANNELS, np.int8)
        memory[: len(values)] = values
        spm = ScratchpadViews(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))
        table, zero = np.zeros((CLIPS, ROWS, CHANNELS), np.int16), np.int64(0)
        given = (zero, zero, zero), np.int64(CHANNELS), numbers, table, make_buffer(), clip, zero
        run_entry(spm, RESCALE, *given, counters)
        limited = [i for i, value in enumerate(values) if value in (120, -90)]
        assert counters.layers[0].first[ACTIVATION, 0] == limited[0]
        assert counters.layers[0].saturated[ACTIVATION, 0] == len(limited)


def test_long_runs_are_exact() -> None:
    """Counts are added up piece by piece; the first place is in a later piece."""
    q, numbers = make_pair_scales(), np.zeros(PARAMETERS, np.int16)
    assert sum_entry(make_pair_shape(), q, numbers)
    counters, memory = new_counters(), np.zeros(CHANNELS * 600, np.int8)
    memory[CHANNELS * 400 :] = 127
    spm = ScratchpadViews(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))
    table, zero = np.zeros((CLIPS, ROWS, CHANNELS), np.int16), np.int64(0)
    sides, count = (zero, zero, zero), np.int64(memory.size)
    run_entry(spm, SUM, sides, count, numbers, table, make_buffer(), q.clip, zero, counters)
    of_zero = rescale(5, q.lhs_scale) + rescale(-9, q.rhs_scale) + 11
    of_most = rescale(132, q.lhs_scale) + rescale(118, q.rhs_scale) + 11
    values = [of_zero] * CHANNELS * 400 + [of_most] * CHANNELS * 200
    assert memory.tolist() == [min(value, 100) for value in values]
    check_counters(counters, 0, (values, -90, 100, (ACTIVATION, RESULT)))


def test_results_without_saturation_count_nothing() -> None:
    q = make_pair_scales(lhs_scale=make_scale(3, 1, 0), rhs_scale=make_scale(3, 1, 0))
    numbers = np.zeros(PARAMETERS, np.int16)
    assert sum_entry(make_pair_shape(), q, numbers)
    _, counters = run_kernel(SUM, (LHS, RHS, OUT), 96, 0, numbers, q.clip, 5)
    check_counters(counters, 0, ([0] * 96, -90, 100, (ACTIVATION, RESULT)))


def test_every_fitting_scale_is_exact() -> None:
    """The rounded product of 16 bits is the scale, for each byte."""
    random, fitting = np.random.default_rng(3), 0
    for _ in range(300):
        scale = make_scale(
            random.integers(0, 4), random.integers(-600, 600), random.integers(0, 17)
        )
        offset, clip = random.integers(-128, 128), Clip(np.int64(-128), np.int64(127), np.int64(0))
        limits = {"in_low": np.int64(-128), "in_high": np.int64(127), "in_offset": offset}
        numbers = np.zeros(PARAMETERS, np.int16)
        if not rescale_entry(make_rescale_parameters(scale=scale, clip=clip, **limits), numbers):
            continue
        fitting += 1
        memory = np.tile(np.arange(-128, 128).astype(np.int8), 3)
        spm = ScratchpadViews(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))
        table, zero = np.zeros((CLIPS, ROWS, CHANNELS), np.int16), np.int64(0)
        given = (zero, zero, zero), np.int64(memory.size), numbers, table, make_buffer(), clip, zero
        run_entry(spm, RESCALE, *given, new_counters())
        results = [rescale(x - int(offset), scale) + 3 for x in range(-128, 128)]
        assert memory.tolist() == [min(max(result, -128), 127) for result in results] * 3
    assert fitting > 200


@pytest.mark.parametrize(
    "changed",
    [
        {"profile": np.int64(Q31)},
        {"lhs_scale": make_scale(0, 1 << 30, 7)},
        {"rhs_scale": make_scale(32, 1, 0)},
        {"rhs_offset": np.int64(1 << 30)},
        {"out_offset": np.int64(-(1 << 31))},
        {"clip": Clip(np.int64(-129), np.int64(100), np.int64(0))},
    ],
)
def test_sums_of_64_bits_are_exact(changed: dict[str, Any]) -> None:
    assert not sum_entry(
        make_pair_shape(), make_pair_scales(**changed), np.zeros(PARAMETERS, np.int16)
    )


def test_other_operations_are_exact() -> None:
    numbers = np.zeros(PARAMETERS, np.int16)
    assert not sum_entry(make_pair_shape(OP_MAX), make_pair_scales(), numbers)
    assert not sum_entry(
        make_pair_shape()._replace(rhs_size=np.int64(2)), make_pair_scales(), numbers
    )
    assert not sum_entry(
        make_pair_shape()._replace(element=np.int64(1)), make_pair_scales(), numbers
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"profile": np.int64(Q31)},
        {"leaky": np.int64(1)},
        {"in_low": np.int64(-200)},
        {"in_low": np.int64(101)},
        {"scale": make_scale(0, 1 << 30, 0)},
        {"scale": make_scale(0, 300, 16)},
        {"clip": Clip(np.int64(-129), np.int64(127), np.int64(0))},
        {"out_offset": np.int64(1 << 14)},
    ],
)
def test_rescales_of_64_bits_are_exact(changed: dict[str, Any]) -> None:
    assert not rescale_entry(make_rescale_parameters(**changed), np.zeros(PARAMETERS, np.int16))


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
    given = tuple(map(np.int64, sides)), np.int64(index), np.int64(count), np.int64(channels)
    assert regular_entry(*given) == expected


def compute_digest() -> str:
    """Compute a string of sums over the bytes and counters of several runs."""
    numbers = np.zeros(PARAMETERS, np.int16)
    assert sum_entry(make_pair_shape(), make_pair_scales(), numbers)
    made = [
        run_kernel(SUM, (LHS, RHS, OUT), *run, numbers, make_pair_scales().clip, 1) for run in RUNS
    ]
    assert rescale_entry(make_rescale_parameters(), numbers)
    for operation in (RESCALE, RESCALE_UNCLIPPED):
        given = numbers, make_rescale_parameters().clip, 1
        made += [run_kernel(operation, (LHS, LHS, OUT), *run, *given) for run in RUNS]
    totals = [
        int(part.astype(np.int64).sum())
        for memory, counters in made
        for part in (
            memory,
            counters.layers.first,
            counters.layers.worst,
            counters.channel_saturated,
        )
    ]
    return str(totals)


def test_kernels_are_exact_without_compiler() -> None:
    code = "import test_elementwise_int8 as t; print(t.compute_digest())"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        cwd=Path(__file__).parent,
    )
    assert (run.returncode, run.stdout) == (0, compute_digest() + "\n"), run.stderr
