"""The page itself: examples run, the table of differences holds, every formula is tested."""

import inspect
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import PAGE, code_blocks, examples_start, page

TEXT = PAGE.read_text(encoding="utf-8")
FUNCTIONS = {
    name
    for name, value in vars(page).items()
    if inspect.isfunction(value) or isinstance(value, np.vectorize)
}


def rows_below(header: str) -> list[list[str]]:
    """Return the cells of the table whose header row begins with a text."""
    table = TEXT.split(f"\n| {header} ")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def test_worked_examples_of_the_page_run() -> None:
    code = code_blocks(examples_start(), len(TEXT))
    assert code.count("assert") >= 8
    exec(compile(code, str(PAGE), "exec"), dict(vars(page)))


@pytest.mark.parametrize("row", rows_below("what differs"), ids=lambda row: row[0])
def test_references_differ_where_documented(row: list[str]) -> None:
    acc, factor = np.int64(row[1]), page.f32(float(row[2]))
    found = [
        page.scale32(acc, *page.integer_scale(factor)),
        page.half_away(page.f32(page.f32(acc) * factor)),
        page.q31(acc, *page.quantized_multiplier(factor)),
        page.q31_connected(acc, factor),
        page.float_product(acc, factor, 0),
    ]
    assert [int(y) for y in found] == [int(cell) for cell in row[3:]]


def test_every_formula_is_used_by_a_test_or_by_another_formula() -> None:
    tests = "".join(p.read_text() for p in Path(__file__).parent.glob("*.py"))
    on_page = code_blocks(0, examples_start())
    unused = {
        name
        for name in FUNCTIONS
        if not re.search(rf"page\.{name}\b", tests) and len(re.findall(rf"\b{name}\(", on_page)) < 2
    }
    assert not unused
    assert len(FUNCTIONS) > 50


def test_every_exception_is_named_once() -> None:
    names = [row[0] for row in rows_below("name | property")]
    assert len(names) == len(set(names)) > 10


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)


@given(numbers, numbers, numbers)
def test_a_fused_sum_is_rounded_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    found = page.fma(np.float32(a), np.float32(b), np.float32(c))
    around = [np.nextafter(found, np.float32(end)) for end in (-np.inf, np.inf)]
    error = abs(Fraction(float(found)) - exact)
    assert all(error <= abs(Fraction(float(other)) - exact) for other in around)


@given(st.integers(-(2**20), 2**20), st.integers(-128, 127), st.integers(0, 12))
def test_nmp_is_glow_int_where_scales_are_powers_of_two(acc: int, bias: int, shift: int) -> None:
    product, out = page.f32(2.0**-shift), page.f32(1)
    b = np.int64([bias])
    y = page.nmp(np.int64([acc]), b, 0, product, out, 3)
    assert y == page.glow_int(np.int64([acc]), b, 0, out, product, out, 3)


@given(st.lists(st.integers(-(2**33), 2**33), max_size=8))
def test_a_sum_saturates_at_each_step_only_where_it_must(terms: list[int]) -> None:
    partial = np.cumsum([0, *terms])
    found = page.saturating_sum(0, terms, 32)
    assert -(2**31) <= found < 2**31
    if np.abs(partial).max() < 2**31:
        assert found == partial[-1]
    assert page.saturating_sum(2**31 - 1, [5, -5], 32) == 2**31 - 6


@given(st.integers(-(2**31), 2**31 - 1), st.integers(2**30, 2**31 - 1), st.integers(0, 31))
def test_fixed_point_words_give_their_value(x: int, mul: int, shift: int) -> None:
    high = np.floor(Fraction(x * mul, 2**31) + Fraction(1, 2))
    assert page.doubling_high_product(np.int64(x), mul) == high
    size = (abs(x) * 2 + 2**shift) // 2 ** (shift + 1)
    assert page.rounding_shift(np.int64(x), shift) == (size if x >= 0 else -size)


def test_a_fused_leaky_relu_is_the_separate_one_on_the_result() -> None:
    y = np.arange(-128, 128, dtype=np.int64)
    one = page.f32(0.25)
    separate = page.glow_int_leaky(y, one, -5, one, -5, 0.1)
    np.testing.assert_array_equal(page.glow_int_fused_leaky(y, -5, page.f32(0.1)), separate)


def test_tflite_and_onnx_quantize_alike_but_for_halves() -> None:
    x = np.arange(-64, 64, dtype=np.float32) / np.float32(4)
    away, even = page.quantize_tflite(x, 1, 5), page.quantize_onnx(x, 1, 5)
    is_half = np.abs(x - np.trunc(x)) == 0.5
    np.testing.assert_array_equal(away[~is_half], even[~is_half])
    np.testing.assert_array_equal(np.abs(away[is_half] - 5), np.ceil(np.abs(x[is_half])))


def test_one_scale_and_a_scale_a_channel_agree_where_the_bias_is_exact() -> None:
    acc, bias = np.arange(-300, 300, dtype=np.int64), page.f32(1.5)
    arguments = (page.f32(0.25), page.f32(3), 7)
    fused, plain = page.fbgemm_one_scale(acc, bias, *arguments), page.fbgemm(acc, bias, *arguments)
    np.testing.assert_array_equal(fused, plain)
