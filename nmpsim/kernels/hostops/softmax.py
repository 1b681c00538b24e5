"""Softmax of real numbers, and of integers as Glow, ONNX Runtime and TFLite compute it.

Sources: ``libjit_softmax_i8`` of Glow (docs/numerics.md), and
onnxruntime/contrib_ops/cpu/quantization/qlinear_softmax.cc. ONNX Runtime's table holds
exp(S * (i - 255)), scaled up so that a row's sum just fits a float32; every row is moved so that
its largest is 255. That the quotient is not rounded to float32 before it is rounded to an integer
is what ONNX Runtime 1.32 answers for ratios on halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops import find_implementation
from nmpsim.kernels.hostops.accumulators import sum_in_order
from nmpsim.kernels.hostops.functions import exp, exp32, log
from nmpsim.kernels.hostops.numerics import ARITHMETIC
from nmpsim.kernels.hostops.rounding import multiply_fixed_point, round_half_away, shift_away
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    FloatArray,
    HostTensor,
    IntArray,
    UnsupportedHostOp,
    get_dtype_name,
    wrap_array_function,
)
from nmpsim.records import frozen

_ENTRY_BITS = 31
"""Fraction bits of table entries, which are unsigned Q1.31."""
_RESERVE = 5.0
"""Distance that the logarithm of the sum keeps from that of the largest float32."""


def softmax(dest: HostTensor, src: HostTensor, attributes: Attributes) -> Any:
    """Compute the softmax over all dimensions after dimension 0."""
    if len(src.shape) < 2:
        raise UnsupportedHostOp(
            "softmax", f"the input has shape {src.shape}, but needs at least two dimensions"
        )
    beta = float(attributes.get("Beta", 1.0))
    rows = src.values.reshape(src.shape[0], -1)
    if not src.is_float:
        formula = find_implementation(ARITHMETIC[dest.numerics].softmax[get_dtype_name(dest.dtype)])
        return formula(rows.astype(np.int64), src, dest, beta).reshape(dest.shape)
    if beta != 1:
        raise UnsupportedHostOp(
            "softmax", f"Beta is {beta:g}, but the softmax of floats supports only Beta 1"
        )
    return _softmax_float(rows)


@wrap_array_function
def log_softmax(src: AnyArray) -> AnyArray:
    """Compute the logarithm of the softmax of each row, in float."""
    rows = src.reshape(src.shape[0], -1)
    lower = rows - rows.max(axis=1, keepdims=True)
    result: AnyArray = lower - log(sum_in_order(exp(lower)))
    return result


def _softmax_float(rows: AnyArray) -> AnyArray:
    powers = exp(rows - rows.max(axis=1, keepdims=True))
    shares: AnyArray = powers / sum_in_order(powers)
    return shares


def softmax_glow(rows: IntArray, src: HostTensor, dest: HostTensor, beta: float) -> IntArray:
    """Compute the Int8 softmax of each row in libjit's fixed-point arithmetic."""
    if beta != 1:
        raise UnsupportedHostOp(
            "softmax", f"Beta is {beta:g}, but Glow's softmax supports only Beta 1"
        )
    entries = _exponentials(src.scale)[255 + rows - rows.max(axis=1, keepdims=True)]
    sum_bits = _sum_bits(rows.shape[1])
    sums = (entries >> np.uint64(sum_bits - 1)).sum(axis=1, dtype=np.uint64) & np.uint64(0xFFFFFFFF)
    reciprocal = _Reciprocal.from_scale(dest.scale32)
    exact = [
        reciprocal.divide(int(total), sum_bits, row)
        for total, row in zip(sums, entries, strict=True)
    ]
    stacked: IntArray = np.stack(exact) + np.int64(dest.offset)
    return stacked


@lru_cache(maxsize=64)
def _exponentials(input_scale: float) -> npt.NDArray[np.uint64]:
    """Return ``round(fl(exp(S * d)) * 2**31)`` for d = -255..0, at index d + 255."""
    distances = np.arange(-255, 1, dtype=np.float32)
    reals = exp32(np.float32(input_scale) * distances)
    return round_half_away(reals * np.float32(2.0**_ENTRY_BITS)).astype(np.uint64)


def _sum_bits(classes: int) -> int:
    """Return the integer bits of the sum: ``ceil(log2 n)``, one more if n is a power of two."""
    return classes.bit_length()


@frozen
class _Reciprocal:
    """``1 / S_out`` as an unsigned 32-bit number with ``integer_bits`` before the binary point."""

    value: int
    integer_bits: int

    @classmethod
    @lru_cache(maxsize=64)
    def from_scale(cls, output_scale: np.float32) -> _Reciprocal:
        reciprocal = np.float32(1.0) / output_scale
        integer_bits = math.floor(float(reciprocal)).bit_length()
        scaled = float(reciprocal) * 2.0 ** (32 - integer_bits)
        return cls(math.floor(scaled + 0.5), integer_bits)

    def divide(
        self, total: int, sum_bits: int, entries: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.int64]:
        """Compute ``entries / (total * S_out)``, rounded as the reference does.

        The sum is normalized to 16 significant bits. The rounding constant should be
        ``2**(point-1)``, but the reference shifts in a 32-bit int, which takes the shift modulo
        32; as ``point`` is 39 to 41 in practice, that comes near to truncation.
        """
        while total < 2**31:
            total <<= 1
            sum_bits -= 1
        total >>= 16
        quotient = (self.value + total // 2) // total
        point = _ENTRY_BITS + 16 - self.integer_bits + sum_bits
        shift = (point - 1) % 32
        half = (1 << shift) - (1 << 32 if shift == 31 else 0)
        products = entries.astype(np.int64) * np.int64(quotient) + np.int64(half)
        return products >> np.int64(point)


def softmax_onnx(rows: IntArray, src: HostTensor, dest: HostTensor, beta: float) -> IntArray:
    """Compute the Int8 softmax of each row as ONNX Runtime's QLinearSoftmax does."""
    powers = _compute_powers(src.scale, rows.shape[1])[rows - rows.max(axis=1, keepdims=True) + 255]
    sums = sum_in_order(powers)
    steps = np.floor(np.float32(1) / dest.scale32)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = powers.astype(np.float64) * steps / sums
        ratios = np.nan_to_num(np.rint(exact), nan=0.0)
    limited: IntArray = np.clip(ratios, 0, 1 << 31).astype(np.int64)
    return limited + dest.offset


@lru_cache(maxsize=64)
def _compute_powers(scale: float, count: int) -> FloatArray:
    """Return the exponentials [256] in float32; exponents are float64, their logarithm float32."""
    largest = float(np.finfo(np.float32).max / np.float32(count))
    up = max(0.0, float(np.float32(np.log(largest))) - _RESERVE) / scale
    table: FloatArray = exp((np.arange(256) - 255.0 + up) * scale).astype(np.float32)
    return table


# Softmax of quantized rows as TFLite's reference kernels compute it, in integers.
#
# Sources: ``Softmax`` (tensorflow/lite/kernels/internal/reference/softmax.h) on the fixed point of
# gemmlowp (fixedpoint/fixedpoint.h) for Int8, ``SoftmaxInt16`` (the same file) with the tables of
# ``LUTPopulate`` (internal/common.h) for Int16. A raw int32 with n integer bits stands for
# ``raw / 2**(31 - n)``.

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
