"""Pairs, averages and single values in every profile of the compiled engine, number by number.

The expectations are plain integers, single float32 operations and exact fractions, by the formulas
of docs/numerics.md. Sums are in ``test_requantize.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
from rescale_oracle import (
    F32,
    INT8,
    INT16,
    INT32,
    RESCALE,
    SaturationOracle,
    apply_fixed_point_form,
    apply_integer_form,
    decode_float32,
    encode_float32,
    new_counters,
    round_half_away,
    round_half_even,
    round_to_float32,
    shift_away,
)

from nmpsim.kernels import profiles
from nmpsim.kernels.formulas import read_formulas
from nmpsim.kernels.operands import (
    AverageParameters,
    BinaryScales,
    BinaryShape,
    Clip,
    IntegerScaleRecord,
    RescaleParameters,
)

pair_entry: Any = numba.njit(
    lambda left, right, count, t, q, index, counters: profiles.compute_binary(
        left[:count], right[:count], t, q, index, counters
    )
)
average_entry: Any = numba.njit(
    lambda sums, totals, count, divisor, a, index, counters: profiles.compute_averages(
        sums[:count], totals[:count], divisor, a, index, counters
    )
)
rescale_entry: Any = numba.njit(
    lambda values, count, u, index, counters: profiles.rescale_values(
        values[:count], u, index, counters
    )
)

GLOW_INT, GLOW_FLOAT, NMP, Q31, FLOAT, FBGEMM, QNNPACK, ONNX = 0, 1, 3, 4, 5, 6, 8, 10
INTEGER = (GLOW_INT, NMP, Q31)
PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "max": max,
    "min": min,
}
OPERATIONS = (*PLAIN, "mul")
"""By number."""
OPERATIONS_OF = {
    GLOW_INT: OPERATIONS,
    GLOW_FLOAT: OPERATIONS,
    NMP: OPERATIONS,
    Q31: OPERATIONS,
    FLOAT: OPERATIONS,
    QNNPACK: ("add", "sub"),
    ONNX: ("add", "mul"),
}
INDEX, BEHIND, OFFSET = 7, 1 << 50, -11
"""Index of the first value in the layer's output, what lies behind a run, a result's zero point."""
NONE = (0, 0, 0)
EDGES = (0, 1, -1, 2, -7, 100, 255, -255)
PAIRS = [(x, y) for x in EDGES for y in EDGES]
WIDE_PAIRS = [*PAIRS, (255, INT32[1]), (-255, INT32[1]), (0, INT32[0]), (3, 1 << 24), (1, 1 << 30)]
"""The right side of Int8 may be Int32."""
SUMS = [0, 1, -1, 2, -2, 3, -5, 8, -12, 99, -1000, 12_345, (1 << 24) + 1, INT32[1], INT32[0]]

Three = tuple[int, int, int]

SCALES: dict[str, list[Three]] = {
    "integers": [(0, 1, 0), (1, 181, 7), (0, 77, 5), (0, INT32[1], 3), (2, -9, 1)],
    "fixed point": [(0, 1 << 30, 0), (20, 1518500250, 1), (0, INT32[1], 2), (9, 1 << 30, 4)],
    "more integers": [(0, 77, 31), (31, 1, 0), (0, INT32[1], 0), (0, 0, 5), (0, INT32[0], 31)],
    "more fixed point": [(31, INT32[1], 31), (0, INT32[1], 1), (1, -(1 << 30), 2)],
}
REALS = [1.0, 0.5, 0.37, 1.75, 3e38, 1e-30]
"""Factors of float32; with one half many results are halves."""
ADDENDS = [0.0, -0.25, 3.5, -3e38]


def make_float_scale(profile: int, factor: float, addend: float = 0.0) -> Three:
    """Encode a float32 factor and addend as a scale; ``pre`` is ignored."""
    return 5, encode_float32(factor), encode_float32(addend)


def list_scales(profile: int) -> list[Three]:
    if profile in INTEGER:
        return SCALES["fixed point" if profile == Q31 else "integers"]
    return [make_float_scale(profile, factor) for factor in REALS]


def make_scale_record(scale: Three) -> IntegerScaleRecord:
    return IntegerScaleRecord(*map(np.int64, scale))


CLIP = Clip(np.int64(-128), np.int64(127), np.int64(0))
AT = (np.int64(INDEX),)


def rescale(
    x: int, scale: Three, profile: int, element: int, i: int, oracle: SaturationOracle
) -> int:
    """Rescale a value in an integer profile."""
    if profile == Q31:
        return apply_fixed_point_form(x, scale, INDEX + i, oracle)
    return apply_integer_form(x, scale, element, RESCALE, INDEX + i, oracle)


def divide_half_away(x: int, by: int) -> int:
    """Divide ``x`` by ``by`` and round half away from zero."""
    size = int(Fraction(abs(x), by) + Fraction(1, 2))
    return size if x > 0 else -size


def multiply_add(x: int, factor: Any, addend: Any) -> Any:
    """Compute ``x * factor + addend`` with one rounding to float32."""
    if np.isinf(addend):
        return addend
    return round_to_float32(Fraction(x) * Fraction(float(factor)) + Fraction(float(addend)))


# --- two tensors ----------------------------------------------------------------------------------


class PairWords:
    """Descriptor words of an operation on two tensors; scales are (pre, mul, post)."""

    def __init__(
        self, profile: int, element: int, lhs: Three, rhs: Three, out: Three, last: float = 1.0
    ) -> None:
        self.profile, self.element = profile, element
        self.lhs, self.rhs, self.out, self.last = lhs, rhs, out, F32(last)


def compute_pair(name: str, x: int, y: int, w: PairWords, i: int, oracle: SaturationOracle) -> int:
    """Compute the unclipped result of two values from which zero points are subtracted."""
    if w.profile in INTEGER:
        return compute_integer_pair(name, x, y, w, i, oracle) + OFFSET
    if w.profile == QNNPACK:
        return shift_away(PLAIN[name](x * w.lhs[1], y * w.rhs[1]), w.out[2]) + OFFSET
    lhs, rhs, out = (decode_float32(scale[1]) for scale in (w.lhs, w.rhs, w.out))
    if w.profile == ONNX:
        addend = decode_float32(w.rhs[2])
        if name == "mul":
            return round_half_even(F32(x * y) * out + addend) + OFFSET
        return round_half_even(multiply_add(x, lhs, multiply_add(y, rhs, addend))) + OFFSET
    if name == "mul":
        rounded = round_half_away if w.profile == GLOW_FLOAT else round_half_even
        return rounded(F32(x * y) * out) + OFFSET
    if w.profile == FLOAT:
        left, right = (
            multiply_add(x, lhs, decode_float32(w.lhs[2])),
            multiply_add(y, rhs, decode_float32(w.rhs[2])),
        )
        return round_half_even(F32(PLAIN[name](left, right)) * w.last) + OFFSET
    left, right, zero_point = F32(x) * lhs, F32(y) * rhs, F32(OFFSET)
    if name == "add":
        most = 1 << 61
        sides = [min(max(round_half_away(side), -most), most) for side in (left, right)]
        return round_half_away(F32(sum(sides)) * out + zero_point)
    if name == "sub":
        return round_half_away((left - right) + zero_point)
    return PLAIN[name](*(round_half_even(side / w.last + zero_point) for side in (left, right)))


def compute_integer_pair(
    name: str, x: int, y: int, w: PairWords, i: int, oracle: SaturationOracle
) -> int:
    if name == "mul":
        product = x * y
        if w.profile != Q31 and w.element == INT8:
            product = oracle.clamp(product, *INT32, (RESCALE,) * 2, INDEX + i)
        return rescale(product, w.out, w.profile, w.element, i, oracle)
    left = rescale(x, w.lhs, w.profile, w.element, i, oracle)
    right = rescale(y, w.rhs, w.profile, w.element, i, oracle)
    both = PLAIN[name](left, right)
    if w.profile == Q31 and name in ("add", "sub"):
        return rescale(both, w.out, w.profile, w.element, i, oracle)
    return both


def generate_pair_words(profile: int, element: int) -> Iterator[PairWords]:
    """Yield descriptor words with each scale at each place."""
    if profile == QNNPACK:
        for post in (0, 1, 5, 21):
            yield PairWords(profile, element, (9, 3, 9), (9, 1 << 20, 9), (9, 9, post))
        return
    scales = list_scales(profile)
    for place, last in zip(range(2 * len(scales)), itertools.cycle([1.0, 0.5, 31.25, 1e-3])):
        lhs, rhs, out = (
            scales[(place + more) % len(scales)] for more in (0, place // 2, 2 * place)
        )
        if profile in (FLOAT, ONNX):
            lhs = (*lhs[:2], encode_float32(ADDENDS[place % 4]))
            rhs = (*rhs[:2], encode_float32(ADDENDS[(place // 2 + 1) % 4]))
        yield PairWords(profile, element, lhs, rhs, out, last)


def run_pairs(name: str, pairs: list[tuple[int, int]], w: PairWords, counters: Any) -> list[int]:
    """Run the kernel on pairs and assert that the value behind them does not change."""
    left, right = (np.array([*side, BEHIND], np.int64) for side in zip(*pairs, strict=True))
    t = BinaryShape(*map(np.int64, (OPERATIONS.index(name), w.element, *[0] * 9)))
    zero = np.int64(0)
    three = (make_scale_record(scale) for scale in (w.lhs, w.rhs, w.out))
    last, offset = np.int64(encode_float32(w.last)), np.int64(OFFSET)
    q = BinaryScales(np.int64(w.profile), zero, zero, *three, last, offset, CLIP)
    with np.errstate(all="ignore"):
        pair_entry(left, right, np.int64(len(pairs)), t, q, *AT, counters)
    assert left[-1] == right[-1] == BEHIND
    return left[:-1].tolist()


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize(
    ("profile", "name"), [(p, name) for p, names in OPERATIONS_OF.items() for name in names]
)
def test_pairs(profile: int, name: str, element: int) -> None:
    pairs = WIDE_PAIRS if element == INT8 else PAIRS
    for w in generate_pair_words(profile, element):
        counters, oracle = new_counters(), SaturationOracle()
        found = run_pairs(name, pairs, w, counters)
        with np.errstate(all="ignore"):
            expected = [compute_pair(name, x, y, w, i, oracle) for i, (x, y) in enumerate(pairs)]
        assert found == expected, vars(w)
        oracle.assert_equal(counters)


def test_sides_beyond_all_integers() -> None:
    """glow_float's add holds each side at 2^61, so that their sum fits 64 bits."""
    huge = make_float_scale(GLOW_FLOAT, 3e38)
    w = PairWords(GLOW_FLOAT, INT8, huge, huge, make_float_scale(GLOW_FLOAT, 1e-15))
    assert run_pairs("add", [(1, 1), (1, -1), (-1, -1), (1, 0)], w, new_counters()) == [
        round_half_away(F32(sides * 2**61) * F32(1e-15) + F32(OFFSET)) for sides in (2, 0, -2, 1)
    ]


# --- averages -------------------------------------------------------------------------------------


def compute_average(
    total: int, taps: int, scale: Three, profile: int, element: int, by_taps: bool, i: int,
    oracle: SaturationOracle,
) -> int:  # fmt: skip
    """Compute the unclipped average of a sum."""
    if profile in INTEGER:
        value = rescale(total, scale, profile, element, i, oracle)
        return (divide_half_away(value, taps) if by_taps and taps else value) + OFFSET
    factor = decode_float32(scale[1])
    if by_taps and taps:
        factor = factor / F32(taps)
    value = F32(total) * factor
    if profile == FLOAT:
        return round_half_even(value) + OFFSET
    if profile == FBGEMM:
        unsigned = 128 if element == INT8 else 0
        return round_half_even(value + F32(OFFSET + unsigned)) - unsigned
    return round_half_away(value + F32(OFFSET))


def run_averages(sums: list[Any], divisor: int, a: AverageParameters, counters: Any) -> list[int]:
    """Run the kernel on integer sums, or on float sums for ONNX Runtime."""
    is_onnx = a.profile == ONNX
    integers = np.array([0 if is_onnx else total for total in sums] + [BEHIND], np.int64)
    reals = np.array([total if is_onnx else 77 for total in sums] + [77], F32)
    with np.errstate(all="ignore"):
        average_entry(integers, reals, np.int64(len(sums)), np.int64(divisor), a, *AT, counters)
    assert (integers[-1], reals[-1]) == (BEHIND, 77)
    return integers[:-1].tolist()


def make_average_parameters(
    profile: int, element: int, by_taps: bool, scale: Three, last: float = 1.0
) -> AverageParameters:
    first = map(np.int64, (element, profile, 0, by_taps))
    return AverageParameters(
        *first, make_scale_record(scale), np.int64(encode_float32(last)), np.int64(OFFSET), CLIP
    )


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("profile", [*INTEGER, GLOW_FLOAT, FLOAT, FBGEMM])
def test_averages(profile: int, element: int) -> None:
    cases = itertools.product(list_scales(profile), (0, 1, 2, 3, 49), (False, True))
    for scale, taps, by_taps in cases:
        counters, oracle = new_counters(), SaturationOracle()
        a = make_average_parameters(profile, element, by_taps, scale)
        found = run_averages(SUMS, max(taps, 1) if by_taps else 1, a, counters)
        with np.errstate(all="ignore"):
            expected = [
                compute_average(total, taps, scale, profile, element, by_taps, i, oracle)
                for i, total in enumerate(SUMS)
            ]
        assert found == expected, (scale, taps, by_taps)
        oracle.assert_equal(counters)


@pytest.mark.parametrize("taps", [0, 1, 2, 3, 49])
def test_averages_of_reals(taps: int) -> None:
    """ONNX Runtime's: the sum is real, and each operation on it is rounded."""
    sums = [F32(total) * F32(0.37) for total in SUMS]
    for last, addend in ((1.0, 0.0), (0.5, -3.5), (0.007, 12.0), (1e-30, 0.0)):
        a = make_average_parameters(ONNX, INT8, True, (0, 0, encode_float32(addend)), last)
        with np.errstate(all="ignore"):
            reals = [total / F32(max(taps, 1)) / F32(last) + F32(addend) for total in sums]
        expected = [round_half_even(real) + OFFSET for real in reals]
        assert run_averages(sums, max(taps, 1), a, new_counters()) == expected, last


# --- single values --------------------------------------------------------------------------------


def rescale_value(
    x: int, scale: Three, leaky: Three | None, last: float, profile: int, element: int, i: int,
    oracle: SaturationOracle,
) -> int:  # fmt: skip
    """Rescale a value from which the zero point is subtracted, without the clip."""
    is_below = leaky is not None and x < 0
    if profile in INTEGER:
        # Zero takes part in the other half, too, where it saturates only if a half does: never.
        return rescale(x, leaky if is_below else scale, profile, element, i, oracle) + OFFSET
    factor = decode_float32(scale[1])
    if profile == GLOW_FLOAT:
        value = F32(x) * (decode_float32(leaky[1]) if is_below else factor) / F32(last)
        return round_half_even(value + F32(OFFSET))
    value = F32(x) * factor
    if is_below:
        value = value * decode_float32(leaky[1])
    return round_half_even(value * F32(last)) + OFFSET


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("profile", [*INTEGER, GLOW_FLOAT, FLOAT])
def test_single_values(profile: int, element: int) -> None:
    values, scales = [*EDGES, *range(-20, 20), *INT32], list_scales(profile)
    if profile in INTEGER:
        scales = [*scales, *SCALES["more fixed point" if profile == Q31 else "more integers"]]
        if element == INT16 or profile == Q31:
            values += [1 << 33, -(1 << 33), (1 << 47) - 1, (1 << 61) + 9, -(1 << 61) - 9]
    count = np.int64(len(values))
    for place, scale in enumerate(scales):
        for leaky, last in ((None, 0.5), (scales[place - 1], 31.25), (scales[place - 2], 1.0)):
            counters, oracle = new_counters(), SaturationOracle()
            first = map(np.int64, (element, profile, -128, 127, 0))
            u = RescaleParameters(
                *first, make_scale_record(scale), np.int64(leaky is not None),
                make_scale_record(leaky or NONE), np.int64(encode_float32(last)),
                np.int64(OFFSET), CLIP,
            )  # fmt: skip
            run = np.array([*values, BEHIND], np.int64)
            with np.errstate(all="ignore"):
                rescale_entry(run, count, u, *AT, counters)
                expected = [
                    rescale_value(x, scale, leaky, last, profile, element, i, oracle)
                    for i, x in enumerate(values)
                ]
            assert run.tolist() == [*expected, BEHIND], (scale, leaky, last)
            oracle.assert_equal(counters)


number_entry: Any = numba.njit(lambda profile: profiles.get_profile_number(profile))


def test_an_address_above_the_number_of_a_profile_is_ignored() -> None:
    for number in range(16):
        for address in (0, 1, 0x7FFF_1234_5670 >> 4):
            assert number_entry(np.int64(address << 4 | number)) == number


def test_each_profile_has_the_number_of_its_formula_of_sums() -> None:
    formulas = read_formulas("sums")
    for (profile, element), number in np.ndenumerate(profiles.SUM_NUMBERS):
        formula = formulas.get((profile, element))
        assert number == -1 if formula is None else profiles.SUMS[number] == formula
    assert len(formulas) == (profiles.SUM_NUMBERS >= 0).sum() == 18
