"""A factor as integers, over the whole range of float32, against exact fractions.

Glow's ``quantizeScaleOffset32To8`` as docs/numerics.md has it; its recorded integers are compared
in ``test_scale.py``.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest
from rescale_oracle import F32, INT32, compute_half

from nmpsim.kernels.scale import (
    IntegerScale,
    InvalidScaleError,
    apply_integer_scale,
    apply_integer_scales,
    make_integer_scale,
    make_integer_scales,
)

Three = tuple[int, int, int]
"""pre, post, mul"""


def compute_expected_scale(factor: float) -> Three:
    """Compute pre, post and mul of a factor by searching for the fewest doublings."""
    s = Fraction(float(F32(factor)))
    if (s.numerator & (s.numerator - 1), s.denominator & (s.denominator - 1)) == (0, 0):
        return 0, s.denominator.bit_length() - 1, min(s.numerator, INT32[1])
    post = next(n for n in range(200) if s * 2**n >= Fraction(1, 2) and (s * 2**n >= 256 or n > 14))
    s *= 2**post
    pre = next(n for n in range(200) if s * 2**n >= 255 or n == post // 2)
    return pre, post, min(int(s * 2**pre + Fraction(1, 2)), INT32[1])


def list_factors() -> list[float]:
    """Return all powers of two, their neighbours, factors near rounding limits, and random ones."""
    random, found = Random(1), []
    for exponent in range(-149, 128):
        power = F32(2.0**exponent)
        found.append(power)
        if exponent > -126:
            found += [np.nextafter(power, F32(0)), np.nextafter(power, F32(np.inf))]
            near = F32(power * F32(255 / 256))
            found += [near, np.nextafter(near, F32(0)), np.nextafter(near, F32(np.inf))]
            found += [F32(power * F32(random.uniform(1, 2))) for _ in range(3)]
    return [float(factor) for factor in found if np.isfinite(factor)]


@pytest.mark.parametrize(
    ("factor", "pre", "post", "mul"),
    [
        (1.0, 0, 0, 1),
        (0.5, 0, 1, 1),
        (2.0**-40, 0, 40, 1),
        (8.0, 0, 0, 8),
        (2.0**30, 0, 0, 1 << 30),
        (2.0**31, 0, 0, INT32[1]),
        (2.0**100, 0, 0, INT32[1]),
        (3e38, 0, 0, INT32[1]),
        # 0.75 * 2^9 = 384 is the first from 256 on; no doubling before the shift is needed.
        (0.75, 0, 9, 384),
        # 0.0141 * 2^15 = 462.03.
        (0.0141, 0, 15, 462),
        # 1.5 * 2^-10 * 2^15 = 48, and three doublings more, of seven that may be: 384.
        (1.5 * 2.0**-10, 3, 15, 384),
        # 1.5 * 2^-20 * 2^19 = 0.75, and nine doublings more, of nine that may be: 384.
        (1.5 * 2.0**-20, 9, 19, 384),
        # 300.7 is beyond 256 already.
        (300.7, 0, 0, 301),
        (3.3, 0, 7, 422),
    ],
)
def test_by_hand(factor: float, pre: int, post: int, mul: int) -> None:
    assert make_integer_scale(factor) == IntegerScale(pre=pre, post=post, mul=mul)
    assert compute_expected_scale(factor) == (pre, post, mul)


def test_every_exponent() -> None:
    chosen = list_factors()
    expected = [compute_expected_scale(factor) for factor in chosen]
    one_by_one = [make_integer_scale(factor) for factor in chosen]
    assert [(s.pre, s.post, s.mul) for s in one_by_one] == expected
    columns = make_integer_scales(np.array(chosen))
    assert [column.dtype for column in columns] == [np.int32] * 3
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


@pytest.mark.parametrize("factor", [0.0, -0.0, -1.0, np.inf, -np.inf, np.nan, 1e-46, 1e39])
def test_no_factor(factor: float) -> None:
    with pytest.raises(InvalidScaleError), np.errstate(all="ignore"):
        make_integer_scale(factor)
    with pytest.raises(InvalidScaleError), np.errstate(all="ignore"):
        make_integer_scales(np.array([0.5, factor]))


def test_the_first_invalid_factor_is_named() -> None:
    with pytest.raises(InvalidScaleError, match=r"factor -3\.0 is not"):
        make_integer_scales(np.array([0.5, -3.0, 0.25, -7.0]))


XS = [0, 1, -1, 2, -3, 99, -100, 4711, -65536, *INT32, 1 << 40, -(1 << 40), 1 << 61, -(1 << 61)]


@pytest.mark.parametrize(
    "scale",
    [(0, 0, 1), (3, 7, 181), (0, 0, INT32[1]), (9, 19, 384), (0, 40, 1), (0, 61, 3), (0, 62, 1),
     (0, 63, 1), (5, 149, 1), (31, 1, 255)],
)  # fmt: skip
def test_scaled_integers(scale: Three) -> None:
    """``((x >> pre) * mul + half) >> post``, what is shifted last in 32 bits, plus an offset."""
    pre, post, mul = scale
    expected = []
    for x in XS:
        total = (x >> pre) * mul + compute_half(post)
        expected.append((min(max(total, INT32[0]), INT32[1]) >> post) + 17)
    xs = np.array(XS, np.int64)
    if post < 62:
        found = apply_integer_scale(xs, IntegerScale(pre=pre, post=post, mul=mul), 17)
        assert found.tolist() == expected
    columns = np.array(scale, np.int32)[:, None]
    found = apply_integer_scales(xs[None, :], *columns, offset=17)
    assert found.dtype == np.int64
    # A shift of 31 or more leaves the sign of what 32 bits hold: the half saturates first.
    assert found.tolist() == [expected]
    assert apply_integer_scales(xs, pre, post, mul).tolist() == [x - 17 for x in expected]


def test_halves_go_up() -> None:
    xs = np.array([-3, -2, -1, 0, 1, 2, 3], np.int64)
    halved = [-1, -1, 0, 0, 1, 1, 2]
    assert apply_integer_scale(xs, make_integer_scale(0.5)).tolist() == halved
