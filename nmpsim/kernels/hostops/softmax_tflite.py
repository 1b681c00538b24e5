"""Softmax of quantized rows as TFLite's reference kernels compute it, in integers.

Sources: ``Softmax`` (tensorflow/lite/kernels/internal/reference/softmax.h) on the fixed point of
gemmlowp (fixedpoint/fixedpoint.h) for Int8, ``SoftmaxInt16`` (the same file) with the tables of
``LUTPopulate`` (internal/common.h) for Int16. A raw int32 with n integer bits stands for
``raw / 2**(31 - n)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from nmpsim.kernels.hostops.rounding import multiply_fixed_point, shift_away
from nmpsim.kernels.hostops.tensors import HostTensor, IntArray, UnsupportedHostOp, get_dtype_name

RESULTS = {"int8": (1 / 256, -128), "int16": (1 / 32768, 0)}
"""Scale and zero point of a result by dtype, the only ones that TFLite has."""
Ints = IntArray | int
_LARGEST = (1 << 31) - 1
_DIFFERENCE_BITS = 5
"""Integer bits of the difference from a row's largest value."""
_SUM_BITS = 12
_EXP_OF_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1/4), exp(-1/2), ... exp(-16) without integer bits."""


def softmax_int8(rows: IntArray, src: HostTensor, dest: HostTensor, beta: float) -> IntArray:
    """Compute the Int8 softmax of each row as TFLite's reference kernel does."""
    _check(dest)
    places = rows - rows.max(axis=1, keepdims=True)
    places += 255
    powers, parts = (table[places] for table in _powers(src.scale * beta))
    total = parts.sum(axis=1, keepdims=True)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    above_one = (total << zeros) - (1 << 31)
    # Of a lone row Python's integers take a third of the time.
    inverse = _one_over_one_plus(int(above_one[0, 0]) if above_one.size == 1 else above_one)
    result = shift_away(_product(inverse, powers), _SUM_BITS - zeros + 31 - 8)
    result += np.int64(dest.offset)
    return result


@lru_cache(maxsize=64)
def _powers(scale: float) -> tuple[IntArray, IntArray]:
    """Return exp of the differences -255 to 0, and their share of a row's sum; both [256].

    A difference too low to count has 0.
    """
    factor = min(scale * (1 << 31 - _DIFFERENCE_BITS), float(_LARGEST))
    below = np.arange(-255, 1)
    exponent = int(np.frexp(factor)[1])
    lowest = -((((1 << _DIFFERENCE_BITS) - 1) << 31 - _DIFFERENCE_BITS) >> exponent)
    counts = below >= lowest
    exact = _exp(multiply_fixed_point(np.where(counts, below, 0), factor), _DIFFERENCE_BITS)
    powers = np.where(counts, exact, 0)
    return powers, shift_away(powers, _SUM_BITS)


def softmax_int16(rows: IntArray, src: HostTensor, dest: HostTensor, beta: float) -> IntArray:
    """Compute the Int16 softmax of each row with two tables, as TFLite's reference kernel does."""
    _check(dest)
    below = rows - rows.max(axis=1, keepdims=True)
    scaled = multiply_fixed_point(below, src.scale * beta / (10.0 / 65535.0))
    powers = _looked_up(_table(math.exp, -10.0, 0.0), np.clip(scaled + 32767, -32768, 32767))
    total = powers.sum(axis=1, keepdims=True)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    shifted = ((total << (zeros - 1)) + (1 << 13)) >> 14
    place = np.clip(shifted - (1 << 15) - (1 << 16), -32768, 32767)
    inverse = _looked_up(_table(_invert, 0.0, 1.0), place)
    shift = 31 - zeros
    rounded = (powers * inverse + (np.int64(1) << (shift - 1))) >> shift
    held: IntArray = np.clip(rounded, 0, 32767)
    return held


def _check(dest: HostTensor) -> None:
    """Raise UnsupportedHostOp unless the result has the scale and zero point that TFLite knows."""
    if (dest.scale, dest.offset) != RESULTS[get_dtype_name(dest.dtype)]:
        scale, offset = RESULTS[get_dtype_name(dest.dtype)]
        raise UnsupportedHostOp(
            "softmax",
            f"the result has scale {dest.scale:g} and zero point {dest.offset}, but TFLite's"
            f" softmax requires scale {scale:g} and zero point {offset}",
        )


def _product(a: Ints, b: Ints) -> Any:
    """Return the doubling high product, halves up.

    It would saturate only where both are -1, which does not occur here.
    """
    high = a * b
    high += 1 << 30
    high >>= 31
    return high


def _shifted_up(x: Ints, bits: int) -> Any:
    if isinstance(x, int):
        return min(max(x << bits, -_LARGEST - 1), _LARGEST)
    return np.minimum(np.maximum(x << bits, -_LARGEST - 1), _LARGEST)


def _exp(x: IntArray, bits: int) -> IntArray:
    """Compute exp of raw values of 0 or less; the result has no integer bits.

    The part below 1/4 by a polynomial, each bit above by a factor.
    """
    quarter = 1 << (29 - bits)
    part = (x & (quarter - 1)) - quarter
    result = _exp_below_a_quarter(_shifted_up(part, bits))
    left = part - x
    for power, factor in enumerate(_EXP_OF_POWERS, -2):
        if power < bits:
            has = left & (1 << (31 - bits + power)) != 0
            result = np.where(has, _product(result, factor), result)
    return np.where(x == 0, _LARGEST, result)


def _exp_below_a_quarter(x: IntArray) -> IntArray:
    """Compute exp on [-1/4, 0), around -1/8: 1 + x + x^2/2 + x^3/6 + x^4/24."""
    middle, third = 1895147668, 715827883  # exp(-1/8), 1/3
    y = x + (1 << 28)
    square = _product(y, y)
    rest = shift_away(_product(square, square), 2) + _product(square, y)
    rest = shift_away(_product(rest, third) + square, 1)
    result: IntArray = middle + _product(y + rest, middle)
    return result


def _one_over_one_plus(x: Ints) -> Any:
    """Compute 1 / (1 + x) on [0, 1] by three Newton steps for half of the denominator."""
    half = (x + (_LARGEST + 1)) >> 1
    inverse = 1515870810 + _product(half, -1010580540)  # 48/17 - 32/17 of it, 2 integer bits
    for _ in range(3):
        error = (1 << 29) - _product(half, inverse)
        inverse = inverse + _shifted_up(_product(inverse, error), 2)
    return _shifted_up(inverse, 1)


def _invert(x: float) -> float:
    return 1.0 / (1.0 + x)


@cache
def _table(function: Callable[[float], float], low: float, high: float) -> IntArray:
    """Return 513 entries, each moved to halve the error in the middle of the next interval."""
    step = (high - low) / 512

    def entry(x: float) -> float:
        return math.floor(function(x) * 32768 + 0.5)

    values = [entry(low + step * i) for i in range(513)]
    for i in range(512):
        straight = math.floor((function(low + (i + 1) * step) * 32768 + values[i]) / 2 + 0.5)
        error = straight - entry(low + i * step + step / 2)
        values[i] -= int(math.copysign(math.floor(abs(error) / 2 + 0.5), error))
    return np.clip(np.array(values, np.int64), -32768, 32767)


def _looked_up(table: IntArray, x: IntArray) -> IntArray:
    """Interpolate a table of 513 entries linearly at x / 128."""
    index, part = 256 + (x >> 7), x & 127
    base = table[index]
    between: IntArray = base + (((table[index + 1] - base) * part + 64) >> 7)
    return between
