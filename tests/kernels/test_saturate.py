"""Test saturation and its counters against counters updated value by value."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from rescale_oracle import (
    ACCUMULATOR,
    ACTIVATION,
    BIAS,
    CHANNELS,
    HIGH,
    INT8,
    INT16,
    INT32,
    LAYER_INDEX,
    LOW,
    RESCALE,
    RESULT,
    SaturationCounters,
    SaturationOracle,
    apply_fixed_point_form,
    apply_integer_form,
    new_counters,
)

from nmpsim.core.reference import arithmetic, operands, saturation
from nmpsim.kernels import accumulate, channel_tables, saturate
from nmpsim.kernels.operands import OutputPosition

limit_entry: Any = numba.njit(
    lambda value, low, high, stage, times, index, counters: saturate.clamp_value(
        value, low, high, stage, times, index, counters
    )
)
saturate_entry: Any = numba.njit(
    lambda values, count, stage, index, counters: saturate.saturate_elements(
        values[:count], stage, index, counters
    )
)
clip_entry: Any = numba.njit(
    lambda values, count, clip, index, counters: saturate.clip_elements(
        values[:count], clip, index, counters
    )
)
sum_entry: Any = numba.njit(
    lambda value, element, index, counters: accumulate.saturate_sum(value, element, index, counters)
)
starts_entry: Any = numba.njit(
    lambda place, counters: channel_tables.get_saturation_count(place, counters)
)
REST = [1 << 40, -(1 << 40)]
"""Behind what is limited: nobody's."""


def make_int64_array(values: list[int]) -> Any:
    return np.array(values, np.int64)


def make_result_positions(
    counters: SaturationCounters, index: int, count: int, times: int = 1
) -> saturation.ResultPositions:
    machine: Any = counters
    return saturation.ResultPositions(
        saturation.LayerCounters(machine, LAYER_INDEX), np.arange(index, index + count), times
    )


def test_where_a_value_is_counted() -> None:
    """By hand: the layer has 5 channels, the first one's place is 3; index 12 is channel 2."""
    counters = new_counters()
    for value, result in ((11, 10), (15, 10), (10, 10), (-4, -4), (-7, -4)):
        arguments = map(np.int64, (value, -4, 10, RESCALE, 3, 12))
        assert limit_entry(*arguments, counters) == result
    layer = counters.layers[LAYER_INDEX]
    assert layer["saturated"].tolist() == [[0, 0], [0, 0], [3, 6], [0, 0], [0, 0]]
    assert layer["worst"][RESCALE].tolist() == [3, 5]
    assert layer["first"][RESCALE].tolist() == [12, 12]
    assert counters.channel_saturated[RESCALE, LOW].tolist() == [0] * 5 + [3] + [0] * 6
    assert counters.channel_saturated[RESCALE, HIGH].tolist() == [0] * 5 + [6] + [0] * 6
    assert counters.channel_saturated.sum() == 9
    for other in (0, 2):
        assert not counters.layers[other]["saturated"].any()


@pytest.mark.parametrize("stage", range(5))
def test_single_values(stage: int) -> None:
    rng = np.random.default_rng(stage)
    counters, oracle = new_counters(), SaturationOracle()
    for _ in range(80):
        value, times = int(rng.integers(-60, 60)), int(rng.integers(1, 9))
        index = int(rng.integers(0, 3 * CHANNELS))
        expected = oracle.clamp(value, -40, 40, (stage, stage), index, times)
        numbers = map(np.int64, (value, -40, 40, stage, times, index))
        assert limit_entry(*numbers, counters) == expected
    oracle.assert_equal(counters)


@pytest.mark.parametrize(("element", "bits"), [(0, 32), (1, 48)])
def test_a_sum_saturates_to_the_accumulator_and_counts_once(element: int, bits: int) -> None:
    high = 2 ** (bits - 1) - 1
    counters, oracle = new_counters(), SaturationOracle()
    for value in (high - 1, high, high + 1, high + 7, -high, -high - 1, -high - 2):
        expected = oracle.clamp(value, -high - 1, high, (ACCUMULATOR, ACCUMULATOR), 3)
        assert sum_entry(np.int64(value), np.int64(element), np.int64(3), counters) == expected
    oracle.assert_equal(counters)


def test_saturated_biases_and_initial_sums_are_added() -> None:
    counters = new_counters()
    saturated = counters.layers[LAYER_INDEX]["saturated"]
    saturated[:] = np.arange(10).reshape(5, 2) * 100
    saturated[BIAS], saturated[ACCUMULATOR] = (1, 2), (4, 8)
    place = OutputPosition(*map(np.int64, range(len(OutputPosition._fields))))
    assert starts_entry(place, counters) == 1 + 2 + 4 + 8


RUNS = [
    ([1, 2, 3], 0),
    ([-41, 2, 3], 0),
    ([1, 2, 41], 4),
    ([-40, 40, 0, -40], 2),
    ([-41, 41, -43, 44, 0, 45, -50, 60, 41, -41, 41], 3),
    ([0] * 9 + [41] + [0] * 4, 7),
    ([50] * 16, 1),
    ([-50] * 16, 0),
    ([], 0),
    ([41], 4),
    ([-41], 5),
    # At the limit, then beyond it.
    ([40, -40, 40, 41, -41], 6),
    ([-40, 40, -41, 41], 5),
]
"""Values, and the index of the first one in the layer's output."""


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("wanted", range(4))
@pytest.mark.parametrize(("values", "index"), RUNS)
def test_runs_are_clipped(values: list[int], index: int, wanted: int, dtype: Any) -> None:
    """What the network asks for is activation, the rest saturation of the result."""
    stages = ACTIVATION if wanted & 1 else RESULT, ACTIVATION if wanted & 2 else RESULT
    oracle, counters, other = SaturationOracle(), new_counters(), new_counters()
    clip = saturate.Clip(np.int64(-40), np.int64(40), np.int64(wanted))
    # Twice, the second time an earlier one or a later one: the account goes on.
    for first in (index + CHANNELS, index, index + 3 * CHANNELS):
        rest = [min(max(value, INT32[0]), INT32[1]) for value in REST]
        run = np.array([*values, *rest], dtype)
        clip_entry(run, np.int64(len(values)), clip, np.int64(first), counters)
        expected = [
            oracle.clamp(value, -40, 40, stages, first + i) for i, value in enumerate(values)
        ]
        assert run.tolist() == [*expected, *rest]
        place = make_result_positions(other, first, len(values))
        assert (
            saturation.clamp(make_int64_array(values), -40, 40, stages, place).tolist() == expected
        )
    oracle.assert_equal(counters)
    oracle.assert_equal(other)


def test_runs_of_every_length() -> None:
    rng = np.random.default_rng(5)
    counters, oracle = new_counters(), SaturationOracle()
    clip = saturate.Clip(np.int64(-3), np.int64(5), np.int64(1))
    for count in range(1, 18):
        for index in range(7):
            values = rng.integers(-6, 9, count).tolist()
            run = make_int64_array(values)
            clip_entry(run, np.int64(count), clip, np.int64(index), counters)
            expected = [
                oracle.clamp(value, -3, 5, (ACTIVATION, RESULT), index + i)
                for i, value in enumerate(values)
            ]
            assert run.tolist() == expected
    oracle.assert_equal(counters)


@pytest.mark.parametrize("stage", [BIAS, RESCALE])
def test_runs_are_saturated_to_32_bits(stage: int) -> None:
    values = [INT32[0] - 1, INT32[0], INT32[1], INT32[1] + 1, 0, 1 << 60, -(1 << 60)]
    oracle, counters, other = SaturationOracle(), new_counters(), new_counters()
    run = make_int64_array([*values, *REST])
    saturate_entry(run, np.int64(len(values)), np.int64(stage), np.int64(6), counters)
    expected = [oracle.clamp(v, *INT32, (stage, stage), 6 + i) for i, v in enumerate(values)]
    assert run.tolist() == [*expected, *REST]
    oracle.assert_equal(counters)
    place = make_result_positions(other, 6, len(values))
    assert saturation.saturate(make_int64_array(values), 32, stage, place).tolist() == expected
    oracle.assert_equal(other)


def test_each_value_in_its_own_range_several_times() -> None:
    """The reference engine's account of a bias: one for every pixel."""
    oracle, counters = SaturationOracle(), new_counters()
    values, lows, highs = [5, -5, 9, -9], [-1, -2, -3, -4], [4, 5, 6, 7]
    place = make_result_positions(counters, 4, 4, times=6)
    found = saturation.clamp(
        make_int64_array(values),
        make_int64_array(lows),
        make_int64_array(highs),
        (BIAS, RESULT),
        place,
    ).tolist()
    assert found == [
        oracle.clamp(value, low, high, (BIAS, RESULT), 4 + i, 6)
        for i, (value, low, high) in enumerate(zip(values, lows, highs, strict=True))
    ]
    assert saturation.ResultPositions(place.account, place.index).times == 1, (
        "unless told otherwise"
    )
    chosen = place.select(np.array([False, True, False, True]))
    saturation.clamp(make_int64_array([8, -8]), -1, 1, (RESULT, RESULT), chosen)
    for value, index in ((8, 5), (-8, 7)):
        oracle.clamp(value, -1, 1, (RESULT, RESULT), index, 6)
    oracle.assert_equal(counters)
    saturation.LayerCounters(counters, LAYER_INDEX).add_elements(12)  # type: ignore[arg-type]
    saturation.LayerCounters(counters, LAYER_INDEX).add_elements(3)  # type: ignore[arg-type]
    assert counters.layers.elements.tolist() == [0, 15, 0]


def test_the_account_keeps_its_first_and_worst() -> None:
    """By hand: 44 at index 12, then 41 at 7, then 50 at 9."""
    counters = new_counters()
    clip = saturate.Clip(np.int64(-40), np.int64(40), np.int64(0))
    for values, index in (([0, 44], 11), ([41, 0], 7), ([0, 50], 8), ([-99, 0], 20)):
        clip_entry(make_int64_array(values), np.int64(2), clip, np.int64(index), counters)
    layer = counters.layers[LAYER_INDEX]
    assert layer["first"][RESULT].tolist() == [20, 7]
    assert layer["worst"][RESULT].tolist() == [59, 10]
    assert layer["saturated"][RESULT].tolist() == [1, 3]
    # Index 7 is channel 2, 9 is channel 4, 12 is channel 2, 20 is channel 0.
    assert counters.channel_saturated[RESULT, HIGH].tolist() == [0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0]
    assert counters.channel_saturated[RESULT, LOW].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]


SCALES = [
    (0, 1, 0), (3, 181, 7), (0, 1, 31), (31, 1, 0), (0, INT32[1], 0), (0, INT32[0], 31), (5, 0, 4),
    (0, -77, 5), (1, 255, 1), (0, 0, 31),
]  # fmt: skip
XS = [0, 1, -1, 7, -8, 127, -128, 12345, -54321, INT32[1], INT32[0]]
WIDE_XS = [*XS, 1 << 40, -(1 << 40), (1 << 47) - 1, -(1 << 47), 1 << 61, -(1 << 61), (1 << 61) + 9]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("element", [INT8, INT16])
def test_an_integer_scale_of_the_reference(element: int, scale: tuple[int, int, int]) -> None:
    xs = XS if element == INT8 else WIDE_XS
    counters, oracle = new_counters(), SaturationOracle()
    place = make_result_positions(counters, 0, len(xs), times=4)
    steps = arithmetic.rescale_integer(
        make_int64_array(xs), operands.Scale(*scale), operands.ELEMENTS[element], place, BIAS
    )
    found = arithmetic.evaluate(steps)
    assert found.tolist() == [
        apply_integer_form(x, scale, element, BIAS, i, oracle, times=4) for i, x in enumerate(xs)
    ]
    oracle.assert_equal(counters)


@pytest.mark.parametrize("scale", [(0, 1 << 30, 0), (31, INT32[1], 31), (9, 1518500250, 4)])
def test_a_fixed_point_scale_of_the_reference(scale: tuple[int, int, int]) -> None:
    """Beyond 32 bits, too: what 64 bits hold after the shift to the left."""
    xs = [*XS, 1 << 40, -(1 << 40), 1 << 62, -(1 << 62)]
    counters, oracle = new_counters(), SaturationOracle()
    place = make_result_positions(counters, 0, len(xs))
    found = arithmetic.evaluate(
        arithmetic.rescale_fixed_point(make_int64_array(xs), operands.Scale(*scale), place)
    )
    assert found.tolist() == [apply_fixed_point_form(x, scale, i, oracle) for i, x in enumerate(xs)]
    oracle.assert_equal(counters)
