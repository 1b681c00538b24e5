"""Test descriptions of the positions of wrong elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nmpsim.debugger.error_patterns import find_error_patterns

RNG = np.random.default_rng(7)
RIGHT = RNG.integers(-90, 90, (1, 8, 10, 16)).astype(np.int8)


def words(actual: Any, expected: Any = RIGHT, offset: int = 0) -> list[str]:
    return [one.text for one in find_error_patterns(actual, expected, offset)]


def test_wrong_channels_are_named() -> None:
    wrong = RIGHT.copy()
    wrong[0, ::3, ::3, 5] += 3
    assert words(wrong) == ["only in channel 5 of 16 (possible causes: weights, bias, factor)"]
    wrong[0, 3, 3, 7] -= 40
    assert "only in channels 5, 7 of 16" in words(wrong)[0]
    wrong = RIGHT.copy()
    wrong[..., 5] = 3
    text = "where the result is constant (possible causes: zero weights, clip)"
    assert words(wrong) == [f"only in channel 5 of 16, {text}"]
    wrong[..., 5] = 127  # saturated, for example because of a bias
    assert words(wrong) == ["only in channel 5 of 16 (possible causes: weights, bias, factor)"]


@pytest.mark.parametrize(("rows", "columns"), [(1, 0), (-1, -1), (0, 2)])
def test_a_moved_result_is_recognized(rows: int, columns: int) -> None:
    wrong = np.roll(RIGHT, (rows, columns), axis=(1, 2))
    (text,) = words(wrong)
    assert text.startswith(f"correct values moved by {rows} rows and {columns} columns")


@pytest.mark.parametrize("margin", [1, 2])
def test_a_wrong_border_is_recognized(margin: int) -> None:
    wrong = RIGHT + np.int8(1)
    wrong[:, margin:-margin, margin:-margin] = RIGHT[:, margin:-margin, margin:-margin]
    assert words(wrong)[0].startswith("only at the border")


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.1])
def test_a_factor_is_recognized(factor: float) -> None:
    small = (RIGHT // 3).astype(np.int8)
    wrong = np.clip(np.rint((small - 4.0) * factor) + 4, -128, 127).astype(np.int8)
    (text,) = words(wrong, small, 4)
    assert text.startswith(f"{factor:.3g} times") or abs(float(text.split()[0]) - factor) < 0.01


def test_an_offset_of_each_channel_is_recognized() -> None:
    wrong = RIGHT + RNG.integers(3, 30, 16).astype(np.int8)
    assert words(wrong) == ["each channel has a constant error (possible causes: bias, zero point)"]


def test_repeated_rows_are_recognized() -> None:
    wrong = RIGHT.copy()
    wrong[0, 1::2] ^= 5
    assert words(wrong) == ["only in every 2nd row from 1 on"]
    wrong = RIGHT.copy()
    wrong[0, 2:5, :, 3:] ^= 5
    assert words(wrong)[:1] == ["only in rows 2 to 4 of 8"]


def test_nested_parts_are_recognized() -> None:
    wrong = RIGHT.copy()
    wrong[0, 2:4, 5] ^= 9
    found = words(wrong)
    assert set(found) == {"only in rows 2, 3 of 8", "only in column 5 of 10"}


def test_adjacent_elements_are_not_channels() -> None:
    right = RNG.integers(-90, 90, (1, 8, 8, 64)).astype(np.int8)
    wrong = right.copy()
    wrong[0, 3, 4, 20:36] ^= 5
    found = words(wrong, right)
    assert "only in channels 20 to 35 of 64" in found
    assert not any("possible cause" in text for text in found)


@pytest.mark.parametrize("step", [2, 0.5])
def test_stretched_columns_are_recognized(step: float) -> None:
    wrong = RNG.integers(-90, 90, RIGHT.shape).astype(np.int8)
    wrong[:, :, 0] = RIGHT[:, :, 0]
    if step == 2:
        wrong[:, :, ::2] = RIGHT[:, :, :5]
    else:
        wrong[:, :, :5] = RIGHT[:, :, ::2]
    assert (
        f"the distance of columns is {step:g} times the expected one (possible" in words(wrong)[-1]
    )


def test_sheared_rows_are_recognized() -> None:
    wrong = RNG.integers(-90, 90, RIGHT.shape).astype(np.int8)
    for row in range(8):
        wrong[0, row, row:] = RIGHT[0, row, : 10 - row]
    assert (
        "each row moved by 1 columns more than the one before (possible cause: stride)"
        in words(wrong)[-1]
    )


@pytest.mark.parametrize("amount", [1, -1, 6])
def test_a_constant_offset_is_recognized(amount: int) -> None:
    much = f"{abs(amount)} too {'large' if amount > 0 else 'small'}"
    (text,) = words(RIGHT + np.int8(amount))
    assert text.startswith(f"all values are {much} (possible causes: zero point")


def test_an_offset_of_each_pixel_is_recognized() -> None:
    wrong = RIGHT + RNG.integers(-30, 30, (1, 8, 10, 1)).astype(np.int8)
    assert words(wrong) == [
        "each pixel has the same error in all channels (possible cause: zero point of weights)"
    ]


def test_a_limit_is_recognized() -> None:
    assert words(np.minimum(RIGHT, 40)) == [
        "all of the wrong elements are 40, but should exceed it (possible cause: clip)"
    ]
    assert words(RIGHT, np.maximum(RIGHT, 0)) == [
        "all of the wrong elements exceed the expected 0 (possible causes: clip, activation)"
    ]


def test_scattered_errors_of_one_are_no_pattern() -> None:
    signs = RNG.choice([-1, 0, 0, 1], RIGHT.shape).astype(np.int8)
    assert words(RIGHT + signs) == ["all differences are 1"]


@pytest.mark.parametrize("count", [1, 2, 4, 7, 15, 40])
def test_few_scattered_elements_are_no_pattern(count: int) -> None:
    for _ in range(20):
        wrong = RIGHT.copy()
        wrong.reshape(-1)[RNG.choice(RIGHT.size, count, replace=False)] ^= 0x15
        assert words(wrong) == []


def test_noise_and_other_types_are_no_pattern() -> None:
    assert words(RNG.integers(-90, 90, RIGHT.shape).astype(np.int8)) == []
    assert words(RIGHT.astype(np.float32), RIGHT.astype(np.float32) + 1) == []
    assert words(RIGHT[:, :4], RIGHT) == []
    assert words(np.int8([3]), np.int8([4])) == []
    assert words(RIGHT[:, :1, :1, :1], RIGHT[:, :1, :1, :1] + np.int8(1)) == []
