"""Test the measures of a difference on arrays with results computed by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmpsim.analysis.difference import (
    NAN_ULP,
    ElementDifference,
    compare_outputs,
    compute_ulp_distance,
)
from nmpsim.diagnostics import UserError


def test_equal_outputs_have_no_difference() -> None:
    values = np.array([[1, -2], [3, 4]], np.int8)
    found = compare_outputs(values, values.copy(), "i8", 0.5, 3)
    assert found.equal
    assert (found.elements, found.differing, found.worst_ulp, found.mean_ulp) == (4, 0, 0, 0.0)
    assert found.first is None
    assert found.worst is None
    assert found.sqnr_db == math.inf
    assert found.cosine == pytest.approx(1.0)


def test_first_and_largest_difference_and_sizes_are_found() -> None:
    expected = np.array([[10, 20, 30], [40, 50, 60]], np.int8)
    actual = np.array([[10, 21, 30], [36, 50, 61]], np.int8)
    found = compare_outputs(actual, expected, "i8", 0.5, 10)
    assert found.first == ElementDifference((0, 1), 20, 21, 1)
    assert found.worst == ElementDifference((1, 0), 40, 36, 4)
    assert (found.differing, found.mean_ulp) == (3, 1.0)
    signal = sum((q - 10) ** 2 for q in (10, 20, 30, 40, 50, 60))
    assert found.sqnr_db == pytest.approx(10 * math.log10(signal / (1 + 16 + 1)))


def test_ratios_depend_on_offset_but_not_on_scale() -> None:
    a, b = np.array([1, 2], np.int16), np.array([1, 3], np.int16)
    assert compare_outputs(a, b, "i16", 2.0, 0).sqnr_db == pytest.approx(
        compare_outputs(a, b, "i16", 8.0, 0).sqnr_db
    )
    assert (
        compare_outputs(a, b, "i16", 2.0, 1).sqnr_db < compare_outputs(a, b, "i16", 2.0, 0).sqnr_db
    )


@pytest.mark.parametrize(
    ("elem", "dtype"), [("i8", np.int8), ("i32", np.int32), ("i64", np.int64), ("ui8", np.uint8)]
)
def test_ends_of_a_type_differ_by_its_range(elem, dtype) -> None:
    ends = np.iinfo(dtype)
    low, high = np.array([ends.min], dtype), np.array([ends.max], dtype)
    (ulp,) = compute_ulp_distance(low, high, elem)
    assert int(ulp) == int(ends.max) - int(ends.min)


def test_units_of_floats_count_representable_numbers() -> None:
    one = np.float32(1)
    above = np.nextafter(one, np.float32(2))
    below_zero = np.nextafter(np.float32(0), np.float32(-1))
    actual = np.array([one, above, -0.0, below_zero, np.inf], np.float32)
    expected = np.array([one, one, 0.0, -below_zero, np.finfo(np.float32).max], np.float32)
    assert compute_ulp_distance(actual, expected, "float").tolist() == [0, 1, 0, 2, 1]


def test_nan_and_infinity_are_compared() -> None:
    nan, inf = math.nan, math.inf
    both = compare_outputs(
        np.array([nan, inf, 1], np.float32), np.array([nan, inf, 1], np.float32), "float"
    )
    assert both.equal
    one = compare_outputs(np.array([nan, 1], np.float32), np.array([1, 1], np.float32), "float")
    assert one.worst_ulp == NAN_ULP
    assert one.worst is not None
    assert one.worst.at == (0,)
    assert math.isnan(one.sqnr_db)


def test_bfloat16_is_compared_by_value() -> None:
    one, two = np.array([0x3F80], np.uint16), np.array([0x4000], np.uint16)
    found = compare_outputs(one, two, "bfloat16")
    assert found.first == ElementDifference((0,), 2.0, 1.0, 0x80)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_outputs_are_compared(shape) -> None:
    found = compare_outputs(np.zeros(shape, np.int8), np.full(shape, 2, np.int8), "i8", 1.0, 0)
    assert found.differing == found.elements == int(np.prod(shape))
    assert found.shape == shape
    if found.first is not None:
        assert found.first.at == ()


@pytest.mark.parametrize(
    "other", [np.zeros(3, np.int8), np.zeros((1, 2), np.int8), np.zeros(2, np.int16)]
)
def test_different_types_are_refused(other) -> None:
    with pytest.raises(UserError, match="outputs with different shapes or element types"):
        compare_outputs(np.zeros(2, np.int8), other, "i8", 1.0, 0)


@given(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False))
def test_units_are_symmetric_and_zero_for_equals_only(a, b) -> None:
    left, right = np.array([a], np.float32), np.array([b], np.float32)
    assert compute_ulp_distance(left, right, "float") == compute_ulp_distance(right, left, "float")
    assert (int(compute_ulp_distance(left, right, "float")[0]) == 0) == (a == b)
