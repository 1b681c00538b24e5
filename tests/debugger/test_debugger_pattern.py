"""What wrong elements have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nmpsim.debugger.pattern import patterns

RNG = np.random.default_rng(7)
RIGHT = RNG.integers(-90, 90, (1, 8, 10, 16)).astype(np.int8)


def words(actual: Any, expected: Any = RIGHT, offset: int = 0) -> list[str]:
    return [one.text for one in patterns(actual, expected, offset)]


def test_a_few_channels_are_named() -> None:
    wrong = RIGHT.copy()
    wrong[0, ::3, ::3, 5] += 3
    assert words(wrong) == ["only in channel 5 of 16: a weight, a bias, a factor?"]
    wrong[0, 3, 3, 7] -= 40
    assert "only in channels 5, 7 of 16" in words(wrong)[0]


@pytest.mark.parametrize(("rows", "columns"), [(1, 0), (-1, -1), (0, 2)])
def test_a_moved_result(rows: int, columns: int) -> None:
    wrong = np.roll(RIGHT, (rows, columns), axis=(1, 2))
    (text,) = words(wrong)
    assert text.startswith(f"right values moved by {rows} rows and {columns} columns")


@pytest.mark.parametrize("margin", [1, 2])
def test_the_border(margin: int) -> None:
    wrong = RIGHT + np.int8(1)
    wrong[:, margin:-margin, margin:-margin] = RIGHT[:, margin:-margin, margin:-margin]
    assert words(wrong)[0].startswith("only at the border")


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.1])
def test_a_factor_around_the_zero_point(factor: float) -> None:
    small = (RIGHT // 3).astype(np.int8)
    wrong = np.clip(np.rint((small - 4.0) * factor) + 4, -128, 127).astype(np.int8)
    (text,) = words(wrong, small, 4)
    assert text.startswith(f"{factor:.3g} times") or abs(float(text.split()[0]) - factor) < 0.01


def test_an_amount_of_each_channel() -> None:
    wrong = RIGHT + RNG.integers(3, 30, 16).astype(np.int8)
    assert words(wrong) == ["each channel is off by an amount of its own: a bias, a zero point?"]


def test_noise_and_other_types_say_nothing() -> None:
    assert words(RNG.integers(-90, 90, RIGHT.shape).astype(np.int8)) == []
    assert words(RIGHT.astype(np.float32), RIGHT.astype(np.float32) + 1) == []
    assert words(RIGHT[:, :4], RIGHT) == []
    assert words(np.int8([3]), np.int8([4])) == []
    assert words(RIGHT[:, :1, :1, :1], RIGHT[:, :1, :1, :1] + np.int8(1)) == []
