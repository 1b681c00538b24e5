"""Test vectorized requantization of sixteen channels against plain numbers."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs
import numba
import numpy as np
import numpy.typing as npt
import pytest
from rescale_oracle import (
    F32,
    INT8,
    INT16,
    INT32,
    LAYER_INDEX,
    RESULT,
    SaturationOracle,
    encode_float32,
    encode_float64,
    new_counters,
)
from sum_layers import (
    COUNT,
    FBGEMM,
    FLOAT,
    GLOW_FLOAT,
    GLOW_FLOAT_LATE,
    GLOW_INT,
    NMP,
    ONEDNN,
    PROFILES,
    Q31,
    Q31_ONCE,
    Channel,
    Layer,
    Three,
    build_channel_table,
    make_quantizer,
    rescale_sum,
)

from nmpsim.kernels.channels import START
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.requantize import get_sum_formula
from nmpsim.kernels.requantize_blocks import requantize_blocks
from nmpsim.kernels.result_table import (
    ABOVE,
    BELOW,
    LEAST,
    MOST,
    PARAMETER_ROWS,
    TOO_LARGE,
    clear_counts,
    copy_parameters_to_blocks,
    record_first_saturation,
    restore_counts,
)
from nmpsim.kernels.workspace_size import COUNT_ROWS, LANES

Array = npt.NDArray[Any]
PIXELS, BLOCKS, LANE = 9, 2, 4
"""The first channel's lane: what is before it and behind the last one belongs to nobody."""
CLIP = Clip(np.int64(-100), np.int64(90), np.int64(0))
MARGIN = 3
"""Results between two pixels, which are not written."""

fill_entry: Any = numba.njit(
    lambda table, begins, parameters: copy_parameters_to_blocks(
        table, begins, np.int64(LANE), parameters
    )
)
formula_entry: Any = numba.njit(lambda q: get_sum_formula(q))
finish_entry: Any = numba.njit(
    lambda sums, pixels, parameters, counts, formula, clip, results, start, step: requantize_blocks(
        sums, pixels, parameters, counts, formula, clip, results, start, step
    )
)
clear_entry: Any = numba.njit(lambda counts: clear_counts(counts))
undo_entry: Any = numba.njit(lambda counts: restore_counts(counts))
record_entry: Any = numba.njit(
    lambda counts, lane, count, clip, index, counters: record_first_saturation(
        counts, lane, count, clip, index, counters
    )
)


class Blocks:
    """Channels of a layer in blocks, with their counts."""

    def __init__(self, layer: Layer, starts: list[int] | None = None) -> None:
        table = build_channel_table(layer)
        table[START] = starts or 0
        self.layer, q = layer, make_quantizer(layer)
        self.formula = np.int64(formula_entry(q))
        self.parameters = np.full((BLOCKS, PARAMETER_ROWS, LANES), 77, np.int64)
        fill_entry(table, starts is not None, self.parameters)
        self.counts = np.full((BLOCKS, COUNT_ROWS, LANES), 77, np.int32)
        clear_entry(self.counts)

    def finish(
        self, sums: Array, clip: Clip = CLIP, pixels: int | None = None
    ) -> tuple[int, Array]:
        """Run the vector code and return its flags and results; assert that sums are unchanged."""
        is_int16 = self.layer.element == INT16
        all_sums = np.zeros((len(sums), BLOCKS * LANES), np.int64 if is_int16 else np.int32)
        all_sums[:, LANE : LANE + COUNT] = sums
        results = np.zeros((len(sums), BLOCKS * LANES + MARGIN), np.int16 if is_int16 else np.int8)
        before = all_sums.copy()
        found = finish_entry(
            all_sums, np.int64(len(sums) if pixels is None else pixels), self.parameters,
            self.counts, self.formula, CLIP, results.reshape(-1), np.int64(results.itemsize),
            np.int64(results.strides[0]),
        )  # fmt: skip
        np.testing.assert_array_equal(all_sums, before)
        assert not results[:, 0].any() and not results[:, BLOCKS * LANES + 1 :].any()
        return int(found), results[:, LANE + 1 : LANE + 1 + COUNT]

    def get_channel_counts(self) -> Array:
        """Return the rows of counts [4, channels]."""
        rows = self.counts.transpose(1, 0, 2).reshape(COUNT_ROWS, -1)
        return rows[:4, LANE : LANE + COUNT].copy()


def draw_scales(random: Random, profile: int, element: int) -> tuple[Three, Three]:
    """Draw the bias scale and the scale of a channel so that most results fit Int8."""
    if profile in (GLOW_INT, NMP):
        post = random.choice([1, 5, 12]) if element == INT8 else random.choice([28, 31])
        return (0, 1, 0), (random.randint(0, 7), random.randint(-200, 200), post)
    if profile == Q31:
        mul = random.choice([1 << 30, -(1 << 30), random.randint(1 << 30, INT32[1])])
        return (0, 1, 0), (random.randint(0, 3), mul, 12 if element == INT8 else 31)
    if profile == Q31_ONCE:
        return (0, random.randrange(1 << 22), 0), (
            0,
            random.randint(1 << 30, INT32[1]),
            10 if element == INT8 else 31,
        )
    size = 2.0**-10 if element == INT8 else 2.0**-25
    factor = random.choice([size, -size, random.uniform(-size, size)])
    return (0, encode_float32(random.uniform(0.5, 2)), 0), (0, encode_float32(factor), 0)


def draw_layer(profile: int, element: int, seed: int) -> Layer:
    random = Random(1000 * profile + 100 * element + seed)
    found = []
    for _ in range(COUNT):
        bias = random.randint(-99, 99)
        if profile in (FBGEMM, ONEDNN):
            bias = encode_float64(random.uniform(-100, 100))
        found.append(Channel(0, bias, 0, *draw_scales(random, profile, element)))
    offset, result_scale = random.randint(-100, 100), encode_float32(random.uniform(0.5, 2))
    return Layer(element, profile, result_scale, offset, None, (0, 0, 0), True, tuple(found))


def draw_sums(layer: Layer, seed: int) -> Array:
    """Draw the sums of some pixels, with many halves and some clipped results."""
    random, most = Random(seed), 200_000 if layer.element == INT8 else 1 << 41
    step = most >> 8
    return np.array(
        [
            [random.choice([random.randint(-most, most), step * random.randint(-90, 90), 0, 1, -1])
             for _ in range(COUNT)]
            for _ in range(PIXELS)
        ]
    )  # fmt: skip


def compute_expected_results(layer: Layer, totals: Array) -> Array:
    """Compute unclipped results [pixels, channels] and assert that nothing saturates."""
    oracle = SaturationOracle()
    values = [
        [
            rescale_sum(int(total), layer, c, 0, oracle)
            for total, c in zip(row, layer.channels, strict=True)
        ]
        for row in totals
    ]
    oracle.assert_equal(new_counters())
    return np.array(values)


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("profile", PROFILES)
def test_results_and_counts(profile: int, element: int, begins: bool) -> None:
    """Results, counts and answers of two calls; counts can be restored."""
    for seed in range(4):
        layer, random = draw_layer(profile, element, seed), Random(seed)
        most = 100_000 if element == INT8 else 1 << 40
        starts = [random.randint(-most, most) for _ in range(COUNT)] if begins else None
        blocks, sums = Blocks(layer, starts), draw_sums(layer, seed)
        values = compute_expected_results(layer, sums + np.array(starts or [0] * COUNT))
        for times in (1, 2):
            before = blocks.get_channel_counts()
            found, results = blocks.finish(sums)
            assert found == (values < -100).any() + 2 * (values > 90).any()
            np.testing.assert_array_equal(results, np.clip(values, -100, 90))
            expected = [times * (values < -100).sum(axis=0), times * (values > 90).sum(axis=0)]
            expected += [values.min(axis=0), values.max(axis=0)]
            np.testing.assert_array_equal(blocks.get_channel_counts(), expected)
        undo_entry(blocks.counts)
        np.testing.assert_array_equal(blocks.get_channel_counts(), before)
        found, results = blocks.finish(sums, pixels=2)
        np.testing.assert_array_equal(results[:2], np.clip(values, -100, 90)[:2])
        assert not results[2:].any()


# --- sums that are left to 64-bit code ------------------------------------------------------------


def make_uniform_layer(
    profile: int, element: int, out: Three, bias: int = 0, **words: Any
) -> Layer:
    """Make a layer with identical channels."""
    channel = Channel(0, bias, 0, (0, encode_float32(1.0), 0), out)
    layer = Layer(
        element, profile, encode_float32(1.0), 0, None, (0, 0, 0), True, (channel,) * COUNT
    )
    return attrs.evolve(layer, **words)


def is_too_large(layer: Layer, total: int) -> bool:
    """Return whether vector code leaves a sum to 64-bit code; assert the result if it does not."""
    sums = np.zeros((PIXELS, COUNT), np.int64)
    sums[5, 7] = total
    blocks = Blocks(layer)
    found, results = blocks.finish(sums)
    if found & TOO_LARGE:
        return True
    value = rescale_sum(total, layer, layer.channels[0], 0, SaturationOracle())
    assert results[5, 7] == min(max(value, -100), 90)
    assert value in blocks.get_channel_counts()[[LEAST, MOST], 7]
    return False


INT48_MAX = (1 << 47) - 1
LARGEST = [
    # The product, with its half, has 32 bits.
    (make_uniform_layer(GLOW_INT, INT8, (0, 1000, 4)), (INT32[1] - 8) // 1000, -2147483),
    (make_uniform_layer(GLOW_INT, INT8, (3, 1, 0)), INT32[1], INT32[0]),
    (make_uniform_layer(GLOW_INT, INT8, (0, 1, 0), offset=100), INT32[1] - 100, INT32[0]),
    (make_uniform_layer(NMP, INT8, (0, 1, 0), bias=-(1 << 31)), INT32[1], 0),
    # What is shifted to the left has 32 bits.
    (make_uniform_layer(Q31, INT8, (2, 1 << 30, 0)), INT32[1] >> 2, INT32[0] >> 2),
    (make_uniform_layer(Q31, INT8, (0, INT32[1], 0), offset=-9), INT32[1], INT32[0] + 8),
    # The product is within +-2^61, and the result has 32 bits.
    (make_uniform_layer(GLOW_INT, INT16, (0, INT32[1], 31)), 1 << 30, -(1 << 30)),
    (make_uniform_layer(GLOW_INT, INT16, (0, 1, 0)), INT32[1], INT32[0]),
    (make_uniform_layer(Q31, INT16, (14, 1 << 30, 0)), INT32[1] >> 13, INT32[0] >> 13),
    # A float that is rounded is within +-2^30.
    *(
        (make_uniform_layer(profile, element, (0, encode_float32(1.0), 0), offset=offset),
         1 << 30, -(1 << 30))
        for profile in (GLOW_FLOAT_LATE, FLOAT, FBGEMM)
        for element in (INT8, INT16)
        for offset in (0, 7)
    ),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "most", "least"), LARGEST)
def test_the_largest_sums(layer: Layer, most: int, least: int) -> None:
    ends = INT32 if layer.element == INT8 else (-INT48_MAX - 1, INT48_MAX)
    is_float = layer.profile in (GLOW_FLOAT_LATE, FLOAT, FBGEMM)
    step = 128 if is_float else 1  # the next float32
    for last, beyond in ((most, most + step), (least, least - step)):
        assert not is_too_large(layer, last)
        if ends[0] <= beyond <= ends[1]:
            assert is_too_large(layer, beyond)


@pytest.mark.parametrize("bias", [1 << 31, -(1 << 31) - 1, 1 << 40, -(1 << 63)])
def test_a_bias_that_32_bits_do_not_hold(bias: int) -> None:
    layer = make_uniform_layer(NMP, INT8, (0, 1, 0), bias=bias)
    assert is_too_large(layer, 0)
    assert is_too_large(attrs.evolve(layer, element=INT16), 0)


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("profile", [GLOW_FLOAT, GLOW_FLOAT_LATE, FLOAT, FBGEMM, ONEDNN])
def test_factors_that_are_no_numbers(profile: int, element: int) -> None:
    for factor in (np.inf, -np.inf, np.nan):
        layer = make_uniform_layer(profile, element, (0, encode_float32(F32(factor)), 0))
        assert is_too_large(layer, 1)


def test_the_first_limited_results_of_a_pixel() -> None:
    """Of the lanes that were limited last the first one, on each side, unless one came before."""
    blocks, counters = Blocks(make_uniform_layer(GLOW_INT, INT8, (0, 1, 0))), new_counters()
    first = counters.layers[LAYER_INDEX]["first"]
    for index, low, high in ((1000, (7, 9), (8, 12)), (900, (), (3,)), (950, (0,), ())):
        sums = np.zeros((1, COUNT), np.int64)
        sums[0, list(low)], sums[0, list(high)] = -101, 91
        blocks.finish(sums)
        record_entry(blocks.counts, LANE, COUNT, CLIP, index, counters)
    assert first[RESULT].tolist() == [950, 903]
    assert blocks.get_channel_counts()[[BELOW, ABOVE]].sum() == 6
