"""From a sum to a result, in every profile: both engines against the formulas of docs/numerics.md.

One channel at a time, in plain integers and single float32 operations. What a sum begins with is
here, too: the bias on its scale, and the zero term.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import attrs
import numba
import numpy as np
import pytest
from rescale_oracle import (
    ACCUMULATOR,
    BIAS,
    F32,
    INT8,
    INT16,
    INT32,
    INT48,
    LAYER_INDEX,
    MAX_MAGNITUDE,
    SaturationOracle,
    apply_integer_form,
    decode_float32,
    encode_float32,
    encode_float64,
    new_counters,
    round_half_away,
)
from sum_layers import (
    CASES,
    COUNT,
    FBGEMM,
    GLOW_FLOAT,
    GLOW_FLOAT_LATE,
    GLOW_INT,
    INDEX,
    INTEGER,
    NMP,
    NMP_PARAMETERS,
    ONEDNN,
    PIXELS,
    PROFILES,
    Q31,
    Q31_ONCE,
    Channel,
    Layer,
    Three,
    build_channel_table,
    build_scratchpad,
    compute_result,
    make_quantizer,
    put_entry,
)

from nmpsim.core.reference import arithmetic
from nmpsim.core.reference import requantize as reference
from nmpsim.core.reference.operands import ELEMENTS, Scale
from nmpsim.core.reference.profiles import BIASES, FORMULAS
from nmpsim.core.reference.saturation import LayerCounters, ResultPositions
from nmpsim.kernels import channel_tables, channels, requantize
from nmpsim.kernels.movement import ScratchpadViews
from nmpsim.kernels.operands import OutputPosition
from nmpsim.kernels.profiles import SUM_NUMBERS
from nmpsim.kernels.workspace_size import TABLE_ROWS

starts_entry: Any = numba.njit(
    lambda spm, at, q, first, integers, pixels, place, counters: channel_tables.fill_initial_sums(
        spm, at, q, first, integers, pixels, place, counters
    )
)
requantize_entry: Any = numba.njit(
    lambda run, table, q, index, counters: requantize.requantize(run, table, q, index, counters)
)


def compute_bias(layer: Layer, c: Channel, index: int, oracle: SaturationOracle, times: int) -> int:
    """Compute the bias on the scale of the sum, or 0 if the profile adds it after the sum."""
    if layer.profile in (NMP, FBGEMM, ONEDNN):
        return 0
    bias = c.bias
    if layer.profile in (GLOW_FLOAT, GLOW_FLOAT_LATE):
        with np.errstate(all="ignore"):
            bias = round_half_away(F32(bias) * decode_float32(c.bias_scale[1]))
    bias = oracle.clamp(bias, *layer.accumulator, (BIAS,) * 2, index, times)
    if layer.profile == GLOW_INT:
        bias = apply_integer_form(bias, c.bias_scale, layer.element, BIAS, index, oracle, times)
    return bias


def compute_start(layer: Layer, c: Channel, index: int, oracle: SaturationOracle) -> int:
    """Compute the initial value of a sum, counted once for each pixel."""
    zero_term = min(max(c.zero_term, -MAX_MAGNITUDE), MAX_MAGNITUDE)
    total = compute_bias(layer, c, index, oracle, PIXELS) + zero_term
    return oracle.clamp(total, *layer.accumulator, (ACCUMULATOR,) * 2, index, PIXELS)


# --- layers at random, with what is special among them ------------------------------------------


def draw_integer_scale(random: Random) -> Three:
    mul = random.choice([0, 1, -1, 255, random.randint(1, 300), INT32[1], INT32[0]])
    return random.choice([0, 0, 3, 31]), mul, random.choice([0, 1, 5, 12, 31])


def draw_fixed_point_scale(random: Random, element: int) -> Three:
    pre, post = random.choice([0, 0, 1, 9, 31]), random.choice([0, 1, 6, 31])
    if element == INT16:
        pre = min(pre, 14 + post)
    muls = [1 << 30, INT32[1], 0x7FFF0000, 0x7FFEFFFF, 0x40008000, 0x40007FFF]
    return pre, random.choice([*muls, random.randint(1 << 30, INT32[1]), -5]), post


def draw_float_scale(random: Random) -> Three:
    factor = random.choice([0.0, 1.0, 0.5, 0.25, 1e-45, 3e38, random.uniform(1e-4, 2)])
    return 0, encode_float32(factor), 0


def draw_scale(random: Random, profile: int, element: int) -> Three:
    if profile in INTEGER:
        return draw_integer_scale(random)
    if profile == Q31_ONCE:
        pre, mul, post = draw_fixed_point_scale(random, INT8)
        return pre, abs(mul), post
    return draw_fixed_point_scale(random, element) if profile == Q31 else draw_float_scale(random)


def draw_record(random: Random, profile: int) -> int:
    if profile in (FBGEMM, ONEDNN):
        return encode_float64(random.choice([0.0, -0.5, 1e300, -77.25, random.uniform(-1e6, 1e6)]))
    edges = [0, -1, *INT32, INT32[1] + 1, *INT48, INT48[1] + 1, 1 << 62, -(1 << 63), (1 << 61) + 5]
    return random.choice([*edges, random.randint(-(1 << 16), 1 << 16), random.randint(-99, 99)])


def draw_layer(profile: int, element: int, seed: int) -> Layer:
    random = Random(1000 * profile + 100 * element + seed)
    most = 127 if element == INT8 else 32767
    shared_scales = draw_scale(random, profile, element), draw_scale(random, profile, element)
    has_table, calm = seed % 2 == 0, seed % 3 == 0
    found = []
    for _ in range(COUNT):
        own = draw_scale(random, profile, element), draw_scale(random, profile, element)
        bias_scale, out = own if has_table else shared_scales
        bias = random.randint(-999, 999) if calm else draw_record(random, profile)
        if calm and profile in (FBGEMM, ONEDNN):
            bias = encode_float64(bias / 8)
        zero_term = random.randint(-999, 999) if calm else draw_record(random, GLOW_INT)
        offset = random.randint(-most - 1, most) if has_table else 5
        found.append(Channel(offset, bias, zero_term, bias_scale, out))
    leaky = draw_integer_scale(random) if profile in INTEGER and seed % 4 < 2 else None
    low, high = sorted((random.randint(-most - 1, most), random.randint(-most - 1, most)))
    return Layer(
        element, profile, encode_float32(random.choice([1.0, 0.5, 31.25, 3e38])),
        random.randint(-most - 1, most), leaky, (low, high, seed % 4), has_table, tuple(found),
    )  # fmt: skip


def draw_sums(layer: Layer, seed: int) -> list[int]:
    random, (low, high) = Random(seed), layer.accumulator
    edges = [0, 1, -1, 2, -2, 3, -3, low, high, 127, -128, 1 << 24, (1 << 24) + 1]
    return [random.choice([*edges, random.randint(-9999, 9999), random.randint(low, high)])
            for _ in range(COUNT)]  # fmt: skip


def list_profile_params() -> Iterator[Any]:
    for profile in PROFILES:
        for element in (INT8, INT16):
            yield pytest.param(profile, element, id=f"{profile}-{'int16' if element else 'int8'}")


# --- the compiled engine's kernels --------------------------------------------------------------


@pytest.mark.parametrize(("profile", "element"), [*list_profile_params()])
def test_results_of_the_kernels(profile: int, element: int) -> None:
    for seed in range(CASES):
        layer = draw_layer(profile, element, seed)
        table = build_channel_table(layer)
        assert table[channels.OFFSET].tolist() == [c.weight_offset for c in layer.channels]
        sums, counters, oracle = draw_sums(layer, seed), new_counters(), SaturationOracle()
        run = np.array(sums, np.int64)
        at = (np.int64(INDEX),)
        with np.errstate(all="ignore"):
            requantize_entry(run, table, make_quantizer(layer), *at, counters)
        expected = [
            compute_result(total, layer, c, INDEX + i, oracle)
            for i, (total, c) in enumerate(zip(sums, layer.channels, strict=True))
        ]
        assert run.tolist() == expected, seed
        oracle.assert_equal(counters)


@pytest.mark.parametrize(("profile", "element"), [*list_profile_params()])
def test_starts_of_the_kernels(profile: int, element: int) -> None:
    for seed in range(CASES):
        layer = draw_layer(profile, element, seed)
        spm, at = build_scratchpad(layer)
        integers = np.full((TABLE_ROWS, COUNT), -77, np.int64)
        place = OutputPosition(*map(np.int64, (INDEX, 100, 10)))
        counters, oracle = new_counters(), SaturationOracle()
        with np.errstate(all="ignore"):
            plain = starts_entry(
                spm,
                at,
                make_quantizer(layer),
                np.int64(1),
                integers,
                np.int64(PIXELS),
                place,
                counters,
            )
        expected = [
            compute_start(layer, c, INDEX + 1 + i, oracle) for i, c in enumerate(layer.channels)
        ]
        assert integers[channels.START].tolist() == expected, seed
        oracle.assert_equal(counters)
        assert not (plain and oracle.expected.channel_saturated.any())


def test_without_records_there_is_neither_bias_nor_zero_term() -> None:
    layer = draw_layer(NMP, INT8, 0)
    spm, at = build_scratchpad(layer)
    at = at._replace(channels=np.int64(-1))
    integers = np.full((TABLE_ROWS, COUNT), -77, np.int64)
    put_entry(spm, at, make_quantizer(layer), np.int64(1), integers)
    addends = integers[channels.FIRST_PARAMETER + NMP_PARAMETERS.index("addend")]
    assert addends.tolist() == [layer.offset] * COUNT
    place = OutputPosition(*map(np.int64, (INDEX, 100, 10)))
    arguments = make_quantizer(layer), np.int64(1), integers, np.int64(PIXELS), place
    assert starts_entry(spm, at, *arguments, new_counters())
    assert integers[channels.START].tolist() == [0] * COUNT


@pytest.mark.parametrize("first", [1, 2, 3])
def test_plain_starts_have_each_channel_s_own_scale(first: int) -> None:
    """Nothing saturates: bias 1000 + n by 3 + n over 2^(2 + n % 3), plus zero terms."""
    own = [(n % 2, 3 + n, 2 + n % 3) for n in range(COUNT)]
    found = [Channel(0, 1000 + n, 7 * n, own[n], (0, 1, 0)) for n in range(COUNT)]
    layer = Layer(INT8, GLOW_INT, 0, 0, None, (-9, 9, 0), True, tuple(found))
    spm, at = build_scratchpad(layer)
    integers = np.full((TABLE_ROWS, COUNT + 1 - first), -77, np.int64)
    place = OutputPosition(*map(np.int64, (INDEX, 100, 10)))
    arguments = np.int64(first), integers, np.int64(PIXELS), place
    assert starts_entry(spm, at, make_quantizer(layer), *arguments, new_counters())
    expected = [compute_start(layer, c, 0, SaturationOracle()) for c in found[first - 1 :]]
    assert integers[channels.START].tolist() == expected
    assert len(set(expected)) == len(expected)


@pytest.mark.parametrize("records", [0, 8])
@pytest.mark.parametrize("table", [0, 4])
def test_records_at_the_begin_of_the_scratchpad(records: int, table: int) -> None:
    """A table may lie at offset 0; none is said by a negative one."""
    memory = np.zeros(256, np.int8)
    spm = ScratchpadViews(memory, *(memory.view(f"i{size}") for size in (2, 4, 8)))
    none = np.int64(0)
    at = channels.OperandOffsets(none, none, np.int64(records), np.int64(table), none, none)
    q = make_quantizer(draw_layer(NMP, INT8, 1))
    integers = np.zeros((TABLE_ROWS, 1), np.int64)
    spm.i32[table // 4 :][:7] = 11, 0, 1, 0, 3, 99, 5
    put_entry(spm, at._replace(channels=np.int64(-1)), q, none, integers)
    assert integers[channels.OFFSET, 0] == 11
    parameters = dict(zip(NMP_PARAMETERS, integers[channels.FIRST_PARAMETER :, 0], strict=False))
    assert parameters == {"pre": 3, "mul": 99, "half": 16, "post": 5, "addend": q.out_offset}
    memory[:] = 0
    spm.i64[records // 8 :][:2] = 1000, 77
    put_entry(spm, at._replace(scales=np.int64(-1)), q, none, integers)
    addend = channels.FIRST_PARAMETER + NMP_PARAMETERS.index("addend")
    assert integers[addend, 0] == 1000 + q.out_offset
    place = OutputPosition(*map(np.int64, (INDEX, 100, 10)))
    starts_entry(
        spm, at._replace(scales=np.int64(-1)), q, none, integers, np.int64(1), place, new_counters()
    )
    assert integers[channels.START, 0] == 77


@pytest.mark.parametrize("bias", [INT32[1], INT32[0], 5])
@pytest.mark.parametrize("past", [0, 1])
def test_starts_that_surely_fit(bias: int, past: int) -> None:
    """At 32 bits' ends a start is plain; one beyond is not."""
    beyond = past if bias >= 0 else -past
    for own, zero_term, is_plain in ((bias + beyond, 0, past == 0 or bias == 5),
                                     (0, bias + beyond, past == 0 or bias == 5)):  # fmt: skip
        one = Channel(0, own, zero_term, (0, 1, 0), (0, 1, 0))
        fine = Channel(0, 3, 4, (0, 1, 0), (0, 1, 0))
        layer = Layer(INT8, GLOW_INT, 0, 0, None, (-9, 9, 0), True, (fine, one, fine))
        spm, at = build_scratchpad(layer)
        integers = np.zeros((TABLE_ROWS, 3), np.int64)
        place = OutputPosition(*map(np.int64, (INDEX, 100, 10)))
        arguments = make_quantizer(layer), np.int64(1), integers, np.int64(PIXELS), place
        assert starts_entry(spm, at, *arguments, new_counters()) == is_plain
        other = attrs.evolve(layer, profile=Q31)
        assert (
            starts_entry(spm, at, make_quantizer(other), *arguments[1:], new_counters()) == is_plain
        )
        wide = attrs.evolve(layer, element=INT16)
        assert not starts_entry(spm, at, make_quantizer(wide), *arguments[1:], new_counters())


# --- the reference engine -----------------------------------------------------------------------


def make_descriptor_words(layer: Layer) -> dict[str, int]:
    low, high, wanted = layer.clip
    pre, mul, post = layer.leaky or (0, 0, 0)
    return {
        "element": layer.element, "profile": layer.profile, "result_scale": layer.result_scale,
        "out_offset": layer.offset, "activation": int(layer.leaky is not None), "leaky_pre": pre,
        "leaky_mul": mul, "leaky_post": post, "clip_low": low, "clip_high": high,
        "clip_wanted": wanted,
    }  # fmt: skip


def make_requantizer(layer: Layer) -> reference.RequantizationParameters:
    columns = np.array([[*c.bias_scale, *c.out] for c in layer.channels], np.int64).T
    bias = np.array([c.bias for c in layer.channels], np.int64)
    return reference.make_requantization_parameters(
        make_descriptor_words(layer),
        FORMULAS[layer.profile],
        bias,
        Scale(*columns[:3]),
        Scale(*columns[3:]),
    )


def make_result_positions(counters: Any, times: int) -> ResultPositions:
    return ResultPositions(
        LayerCounters(counters, LAYER_INDEX), np.arange(INDEX, INDEX + COUNT), times
    )


@pytest.mark.parametrize(("profile", "element"), [*list_profile_params()])
def test_results_of_the_reference(profile: int, element: int) -> None:
    for seed in range(CASES):
        layer = draw_layer(profile, element, seed)
        sums, counters, oracle = draw_sums(layer, seed), new_counters(), SaturationOracle()
        q = make_requantizer(layer)
        assert q.element == ELEMENTS[element]
        steps = reference.finish_sums(
            np.array(sums, np.int64),
            make_descriptor_words(layer),
            q,
            make_result_positions(counters, 1),
        )
        found = arithmetic.evaluate(steps)
        expected = [
            compute_result(total, layer, c, INDEX + i, oracle)
            for i, (total, c) in enumerate(zip(sums, layer.channels, strict=True))
        ]
        assert found.tolist() == expected, seed
        oracle.assert_equal(counters)


@pytest.mark.parametrize(("profile", "element"), [*list_profile_params()])
def test_biases_of_the_reference(profile: int, element: int) -> None:
    for seed in range(CASES):
        layer = draw_layer(profile, element, seed)
        counters, oracle = new_counters(), SaturationOracle()
        steps = BIASES[profile](make_requantizer(layer), make_result_positions(counters, PIXELS))
        found = arithmetic.evaluate(steps)
        expected = [
            compute_bias(layer, c, INDEX + i, oracle, PIXELS) for i, c in enumerate(layer.channels)
        ]
        assert found.tolist() == expected, seed
        oracle.assert_equal(counters)


@pytest.mark.parametrize(("profile", "element"), [*list_profile_params()])
def test_what_a_sum_of_the_reference_begins_with(profile: int, element: int) -> None:
    """Bias plus zero term, in as many bits as a sum has."""
    largest = (1 << (47 if element else 31)) - 1
    for seed in range(CASES):
        layer = draw_layer(profile, element, seed)
        q, place = make_requantizer(layer), make_result_positions(new_counters(), PIXELS)
        biases = arithmetic.evaluate(BIASES[profile](q, place)).tolist()
        zero_terms = [7, -3, largest, -largest, *range(100, 100 + COUNT)][:COUNT]
        steps = reference.compute_initial_sums(
            make_descriptor_words(layer),
            np.array(zero_terms, np.int64),
            make_requantizer(layer),
            place,
        )
        expected = [
            min(max(bias + term, -largest - 1), largest)
            for bias, term in zip(biases, zero_terms, strict=True)
        ]
        assert arithmetic.evaluate(steps).tolist() == expected, seed


formula_entry: Any = numba.njit(lambda q: requantize.get_sum_formula(q))
vector_entry: Any = numba.njit(lambda q: requantize.has_vector_code(q))


def test_formulas_of_a_program_have_neither_a_number_nor_vector_code() -> None:
    def entries(profile: int, leaky: int) -> tuple[int, bool]:
        q = make_quantizer(draw_layer(GLOW_INT, INT8, 0))
        q = q._replace(profile=np.int64(profile), leaky=np.int64(leaky))
        return int(formula_entry(q)), bool(vector_entry(q))

    address = 0x1234 << 4
    for number in (GLOW_INT, Q31):
        assert entries(number, 0) == (SUM_NUMBERS[number, INT8], True)
        assert entries(number, 1) == (SUM_NUMBERS[number, INT8], False)
        assert entries(address | number, 0) == (-1, False)
        assert entries(address | number, 1) == (-1, False)
