"""Test the formula language: parsing, value ranges and vector code of each primitive."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import pytest
from rescale_oracle import (
    F32,
    INT8,
    INT16,
    INT32,
    INT48,
    decode_float32,
    encode_float32,
    encode_float64,
    round_half_away,
    round_half_even,
    shift_away,
)

from nmpsim.isa.profiles import PROFILES, ROWS
from nmpsim.kernels import lanes
from nmpsim.kernels.formula_ranges import (
    FormulaError,
    Interval,
    contains,
    find_parameter_ranges,
    infer_ranges,
    make_signed_interval,
)
from nmpsim.kernels.formulas import ELEMENTS, RESULT, SOURCE, FormulaReader, read_formulas
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.lanes import get_width
from nmpsim.kernels.requantize_blocks import ChannelBlock, _emit
from nmpsim.kernels.result_table import LEAST, MOST, PARAMETER_ROWS, TOO_LARGE
from nmpsim.kernels.workspace_size import COUNT_ROWS, LANES

TABLE: dict[str, Any] = {
    "constants": {"extra": "128 - element * 128"},
    "functions": {
        "double": "x * 2",
        "scaled": {"int8": "(x >> pre) * mul", "int16": "twice = double(x, none)\ntwice << pre"},
    },
}


def read_formula(text: str, element: str = "int8") -> Any:
    return FormulaReader(TABLE, element).read(text)


# --- reading ----------------------------------------------------------------------------------


def test_terms_that_do_not_vary_are_computed_once() -> None:
    found = read_formula(
        "half = 1 << out_post >> 1\n(acc * out_mul + half >> out_post) + (zero + extra)"
    )
    assert dict(found.constants) == {
        "term0": "1 << out_post >> 1",
        "term1": "zero + (128 - element * 128)",
    }
    assert dict(found.steps) == {RESULT: "(acc * out_mul + term0 >> out_post) + term1"}
    assert found.words == ("out_post", "zero", "element", "out_mul")
    assert found.parameters == ("out_mul", "term0", "out_post", "term1")


def test_functions_are_expanded_by_element() -> None:
    assert dict(read_formula("scaled(acc + 1, lhs)").steps) == {
        "step0": "acc + 1",
        RESULT: "(step0 >> lhs_pre) * lhs_mul",
    }
    assert dict(read_formula("scaled(acc, rhs)", "int16").steps) == {
        "step0": "acc * 2",
        RESULT: "step0 << rhs_pre",
    }


def test_equal_terms_are_one() -> None:
    found = read_formula("scaled(acc, out) + scaled(acc, out) + (1 << out_pre) + (1 << out_pre)")
    assert dict(found.constants) == {"term0": "1 << out_pre"}


def test_every_profile_has_the_formulas_of_its_instructions() -> None:
    table = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    assert set(table) == {"constants", "functions", *PROFILES}
    for row in ROWS:
        kinds = {
            "sums": row.sums is not None,
            "bias": row.sums is not None,
            "leaky_sums": row.has_leaky_sums,
            "average": bool(row.average),
            "rescale": bool(row.rescale),
            "leaky": bool(row.rescale),
        }
        kinds |= {name: name in row.operations for name in ("add", "sub", "max", "min", "mul")}
        for kind, has_it in kinds.items():
            keys = read_formulas(kind)
            assert [(row.number, e) in keys for e in (0, 1)] == [has_it, has_it], (row.name, kind)


# --- ranges -----------------------------------------------------------------------------------


def find_result(text: str, **names: tuple[int, int]) -> tuple[int, int]:
    found = infer_ranges(read_formula(text), {name: Interval(*of) for name, of in names.items()})[
        RESULT
    ]
    assert isinstance(found, Interval)
    return found.low, found.high


@pytest.mark.parametrize(("text", "low", "high"), [
    ("x + n", -5, 10), ("x - n", -8, 7), ("x * x", -35, 49), ("x << n", -40, 56), ("x >> n", -5, 7),
    ("1 << n", 1, 8), ("64 >> n", 8, 64), ("3 - n", 0, 3), ("100 // (n * 2 + 1)", 14, 100),
    ("-x", -7, 5), ("abs(x)", 0, 7), ("abs(n - 9)", 6, 9), ("abs(n + 3)", 3, 6),
    ("shift_away(x, n)", -5, 7), ("divide_away(x, n + 1)", -5, 7), ("hold(x, n)", -3, 3),
    ("hold(x * 8, 16 >> n) << n", -16, 16), ("x if x < n else 9", -5, 9),
])  # fmt: skip
def test_ranges_of_integers(text: str, low: int, high: int) -> None:
    assert find_result(text, x=(-5, 7), n=(0, 3)) == (low, high)


def test_an_argument_of_within_may_exceed_64_bits() -> None:
    words = {"x": INT32, "n": (0, 62)}
    assert find_result("within(x << n, 1 << 40)", **words) == (-(1 << 40), 1 << 40)
    with pytest.raises(FormulaError, match="may exceed 64 bits"):
        find_result("hold(x << n, 1 << 40)", **words)


@pytest.mark.parametrize(("low", "high", "bits"), [
    (0, INT32[1], 32), (INT32[0], 0, 32), (0, INT32[1] + 1, 64), (INT32[0] - 1, 0, 64),
    (-(1 << 63), (1 << 63) - 1, 64),
])  # fmt: skip
def test_the_narrowest_word(low: int, high: int, bits: int) -> None:
    assert get_width(Interval(low, high)) == bits


@pytest.mark.parametrize("element", [0, 1])
def test_parameters_of_all_sums_are_proved(element: int) -> None:
    for (_, own), formula in read_formulas("sums").items():
        for known in find_parameter_ranges(formula).values():
            assert (
                own != element
                or not isinstance(known, Interval)
                or contains(make_signed_interval(64), known)
            )


def test_what_64_bits_do_not_hold_is_not_proved() -> None:
    with pytest.raises(FormulaError, match="may exceed 64 bits"):
        find_result("x + 1", x=(0, (1 << 63) - 1))


# --- primitives in vector code ----------------------------------------------------------------

Evaluate = Callable[[int, dict[str, int]], int | None]
"""Value of one sum, with the words of a formula; None if vector code leaves it to others."""


def compile_lanes(text: str, element: int) -> Evaluate:
    """Compile a formula to vector code and return a function that evaluates it for one sum."""
    formula = read_formula(text, ELEMENTS[element])
    function = define_function(f"formula_{hash(text)}_{element}", partial(_emit, formula, element))
    entry: Any = numba.njit(lambda block: function((block,)))
    words = dict(formula.constants)

    def evaluate(acc: int, given: dict[str, int]) -> int | None:
        sums = np.full(LANES, acc, np.int64 if element == INT16 else np.int32)
        parameters = np.zeros((PARAMETER_ROWS, LANES), np.int64)
        for row, name in enumerate(formula.parameters, start=1):
            word = name if name in given else words[name].split("(")[1].rstrip(")")
            parameters[row] = given[word]
        counts, results = np.zeros((COUNT_ROWS, LANES), np.int32), np.zeros(LANES, np.int16)
        counts[LEAST], counts[MOST] = INT32[1], INT32[0]
        addresses = (at.ctypes.data for at in (sums, parameters, counts, results))
        sums_at, parameters_at, counts_at, results_at = map(np.int64, addresses)
        zero, one = np.int64(0), np.int64(1)
        most = np.int64(32767 if element == INT16 else 127)
        numbers = zero, sums_at, zero, one, parameters_at, counts_at, -most - 1, most
        found = entry(ChannelBlock(*numbers, results_at, zero))
        if found & TOO_LARGE:
            return None
        assert (counts[LEAST] == counts[MOST]).all()
        stored = results if element == INT16 else results.view(np.int8)[:LANES]
        assert (stored == np.clip(counts[LEAST], -most - 1, most)).all()
        return int(counts[LEAST, 0])

    return evaluate


def int32_or_none(exact: int) -> int | None:
    return exact if INT32[0] <= exact <= INT32[1] else None


def bounded_or_none(exact: int, most: int) -> int | None:
    return int32_or_none(exact) if -most <= exact <= most else None


def round_or_none(real: Any, rule: Callable[[Any], int]) -> int | None:
    return rule(real) if abs(real) <= 1 << 30 else None


EDGES = [0, 1, -1, 2, -3, 5, 100, -129, 255, (1 << 24) + 1, 1 << 30, -(1 << 30), *INT32]
WIDE = [*EDGES, 1 << 31, -(1 << 31) - 1, (1 << 40) + 3, *INT48]
INTEGERS: dict[str, Callable[[int, int, int], int | None]] = {
    "acc + mul": lambda x, mul, n: int32_or_none(x + mul),
    "acc - mul": lambda x, mul, n: int32_or_none(x - mul),
    "saturate(acc * mul, 32)": lambda x, mul, n: int32_or_none(x * mul),
    "saturate(acc * mul + 5, 32) >> out_post": lambda x, mul, n: (
        None if int32_or_none(x * mul + 5) is None else x * mul + 5 >> n
    ),
    "acc >> out_post": lambda x, mul, n: int32_or_none(x >> n),
    "shift_away(acc, out_post)": lambda x, mul, n: int32_or_none(shift_away(x, n)),
    "shift_away(saturate(acc, 32), out_post) + mul": lambda x, mul, n: (
        None if int32_or_none(x) is None else int32_or_none(shift_away(x, n) + mul)
    ),
    "hold(acc, 1000)": lambda x, mul, n: bounded_or_none(x, 1000),
    "limit(acc >> out_post, 1 << 20) * mul": lambda x, mul, n: (
        None if bounded_or_none(x >> n, 1 << 20) is None else int32_or_none((x >> n) * mul)
    ),
    "acc * mul + (1 << 30) >> 31": lambda x, mul, n: int32_or_none(x * mul + (1 << 30) >> 31),
}


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("text", INTEGERS)
def test_integers(text: str, element: int) -> None:
    if element == INT16 and text.startswith("acc * mul"):
        text = f"within({text.removesuffix(' + (1 << 30) >> 31')}, 1 << 62) + (1 << 30) >> 31"
        expected = INTEGERS["acc * mul + (1 << 30) >> 31"]
    else:
        expected = INTEGERS[text]
    if element == INT16 and "saturate(acc * mul" in text:
        text = text.replace("saturate(acc * mul", "saturate(within(acc * mul, 1 << 62)")
    evaluate = compile_lanes(text, element)
    for x in WIDE if element == INT16 else EDGES:
        for mul in (0, 1, -7, 181, 1 << 20, *INT32):
            if abs(x * mul) >= 1 << 62 and "within" in text:
                continue
            for n in (0, 1, 2, 7, 30, 31):
                found = evaluate(x, {"mul": mul, "out_post": n})
                assert found == expected(x, mul, n), (x, mul, n)


@pytest.mark.parametrize("count", [0, 1, 5, 31])
def test_shifts_to_the_left(count: int) -> None:
    evaluate = compile_lanes("saturate(acc << out_pre, 32)", INT8)
    for x in EDGES:
        assert evaluate(x, {"out_pre": count}) == int32_or_none(x << count)


REALS: dict[str, Callable[[int, int, int], int | None]] = {
    "round_even(float32(acc) * real(mul))": lambda x, mul, bias: round_or_none(
        F32(x) * decode_float32(mul), round_half_even
    ),
    "round_away(float32(acc) * real(mul))": lambda x, mul, bias: round_or_none(
        F32(x) * decode_float32(mul), round_half_away
    ),
    "round_away(float64(acc) * real64(bias))": lambda x, mul, bias: round_or_none(
        np.float64(x) * np.int64(bias).view(np.float64), round_half_away
    ),
    "round_even(float64(acc) * real64(bias))": lambda x, mul, bias: round_or_none(
        np.float64(x) * np.int64(bias).view(np.float64), round_half_even
    ),
    "round_even(float32(float64(float32(acc)) + real64(bias)) + real(mul))": lambda x, mul, bias: (
        round_or_none(
            F32(np.float64(F32(x)) + np.int64(bias).view(np.float64)) + decode_float32(mul),
            round_half_even,
        )
    ),
}
FACTORS = [0.0, 1.0, 0.5, -0.5, 0.25, 0.37, 1e-30, 3e38, np.inf, np.nan, 0.49999997]
WIDE_FACTORS = [*FACTORS, 0.49999999999999994, 1e300]


@pytest.mark.parametrize(("element", "converts"), [(INT8, True), (INT16, True), (INT16, False)])
@pytest.mark.parametrize("text", REALS)
def test_reals(text: str, element: int, converts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as on hosts without an instruction that converts 64-bit integers."""
    monkeypatch.setattr(lanes, "_CONVERTS_INT64", lanes._CONVERTS_INT64 and converts)
    evaluate = compile_lanes(text, element)
    expected = REALS[text]
    for x in [*(WIDE if element == INT16 else EDGES), *range(-8, 9)]:
        for factor in FACTORS:
            for wide in WIDE_FACTORS if "bias" in text else (0.0,):
                words = encode_float32(factor), encode_float64(wide)
                with np.errstate(all="ignore"):
                    exact = expected(x, *words)
                found = evaluate(x, {"mul": words[0], "bias": words[1]})
                assert found == exact, (x, factor, wide)
