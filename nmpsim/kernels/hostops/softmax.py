"""Softmax along dimension 1: of real numbers, and of Int8 as Glow and ONNX Runtime compute it.

Sources: ``libjit_softmax_i8`` of Glow (docs/numerics.md), and
onnxruntime/contrib_ops/cpu/quantization/qlinear_softmax.cc. ONNX Runtime's table holds
exp(S * (i - 255)), scaled up so that a row's sum just fits a float32; every row is moved so that
its largest is 255. That the quotient is not rounded to float32 before it is rounded to an integer
is what ONNX Runtime 1.32 answers for ratios on halves.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops import find_implementation
from nmpsim.kernels.hostops.accumulators import sum_in_order
from nmpsim.kernels.hostops.functions import exp, exp32, log
from nmpsim.kernels.hostops.numerics import ARITHMETIC
from nmpsim.kernels.hostops.rounding import round_half_away
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
    powers = _table(src.scale, rows.shape[1])[rows - rows.max(axis=1, keepdims=True) + 255]
    sums = sum_in_order(powers)
    steps = np.floor(np.float32(1) / dest.scale32)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = powers.astype(np.float64) * steps / sums
        ratios = np.nan_to_num(np.rint(exact), nan=0.0)
    limited: IntArray = np.clip(ratios, 0, 1 << 31).astype(np.int64)
    return limited + dest.offset


@lru_cache(maxsize=64)
def _table(scale: float, count: int) -> FloatArray:
    """Return the exponentials [256] in float32; exponents are float64, their logarithm float32."""
    largest = float(np.finfo(np.float32).max / np.float32(count))
    up = max(0.0, float(np.float32(np.log(largest))) - _RESERVE) / scale
    table: FloatArray = exp((np.arange(256) - 255.0 + up) * scale).astype(np.float32)
    return table
