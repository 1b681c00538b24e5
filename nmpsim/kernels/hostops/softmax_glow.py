"""Glow's softmax of Int8, in fixed point: ``libjit_softmax_i8`` (docs/numerics.md)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.functions import exp32
from nmpsim.kernels.hostops.rounding import round_half_away
from nmpsim.kernels.hostops.tensors import HostTensor, IntArray, UnsupportedHostOp
from nmpsim.records import frozen

_ENTRY_BITS = 31
"""Fraction bits of table entries, which are unsigned Q1.31."""


def softmax_int8(rows: IntArray, src: HostTensor, dest: HostTensor, beta: float) -> IntArray:
    """Compute the softmax of Int8 rows [N, C] as libjit, before saturation; ``beta`` must be 1."""
    if beta != 1:
        raise UnsupportedHostOp("softmax", f"Glow's has no Beta, this is {beta:g}")
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
