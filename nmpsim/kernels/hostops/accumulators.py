"""From an exact accumulator and a bias to an output value (LIR_FORMAT 3.3, rows conv and FC).

Sums of integer products are formed in float64 matrix products: exact below 2**53, and even Int16
operands give products below 2**34. Saturation happens only at the end. Sums of float32 are formed
term by term, as the Interpreter does it; a library's order would depend on the processor.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.overshoots import clamp
from nmpsim.kernels.hostops.rounding import float32_of, round_half_away
from nmpsim.kernels.hostops.tensors import AnyArray, FloatArray, HostTensor, IntArray
from nmpsim.kernels.scale import apply_integer_scales, integer_scales
from nmpsim.records import frozen

_ACCUMULATOR_BITS = {1: 32, 2: 48}
"""Of the device, by bytes of an element; a bias saturates to them."""
_BLOCK_ELEMENTS = 1 << 15
"""Sums computed at a time, so that they stay in the cache."""


@frozen(eq=False)
class Rescale:
    """Scales of one layer; ``product`` (input x weight) and ``bias`` may hold one per channel."""

    product: FloatArray
    bias: FloatArray
    dest: HostTensor

    @property
    def bias_to_product(self) -> FloatArray:
        """``fl(Sb / mm)``: onto the accumulator's scale."""
        return self.bias / self.product

    @property
    def product_to_output(self) -> FloatArray:
        """``fl(mm / Sy)``."""
        return self.product / self.dest.scale32

    def by_integers(self, sums: IntArray, bias: IntArray) -> IntArray:
        """Int8, libjit: ``scale32(scale32(b - Ob) + sum) + Oy``; channels are the last axis."""
        total = _scale(bias, self.bias_to_product, "bias") + sums
        scaled = _scale(total, self.product_to_output, "rescale")
        return scaled + np.int64(self.dest.offset)

    def by_floats(self, sums: IntArray, bias: IntArray, offset_after_rounding: bool) -> IntArray:
        """Int16, Interpreter: ``rha(fl(fl(fl(sum + B) * fl(mm/Sy)) + Oy))``.

        The fully connected layer adds Oy after it rounded, the convolution before.
        """
        scaled_bias = round_half_away(float32_of(bias) * self.bias_to_product)
        limit = 1 << (_ACCUMULATOR_BITS[self.dest.dtype.itemsize] - 1)
        total = sums + clamp(scaled_bias, -limit, limit - 1, "bias")
        scaled = float32_of(total) * self.product_to_output
        if offset_after_rounding:
            return round_half_away(scaled) + np.int64(self.dest.offset)
        return round_half_away(scaled + np.float32(self.dest.offset))


def _scale(x: IntArray, factors: FloatArray, stage: str) -> IntArray:
    return apply_integer_scales(x, *integer_scales(factors), saturate=partial(clamp, stage=stage))


def scale_array(tensor: HostTensor) -> FloatArray:
    """The scale of a tensor, as a 0-d float32 array that broadcasts over channels."""
    return np.asarray(tensor.scale32)


def bias_minus_offset(bias: HostTensor, offsets: AnyArray | int) -> IntArray:
    """``b - Ob`` in 64 bits, with one offset or one a channel."""
    return bias.values.astype(np.int64) - np.asarray(offsets, dtype=np.int64)


def add_product(sums: AnyArray, left: AnyArray, right: AnyArray) -> None:
    """Add the float32 products ``left @ right`` onto sums, in order: the same bits on every host.

    Args:
        sums: float32 [..., M, N], written.
        left: float32 [..., M, K].
        right: float32 [..., K, N].
    """
    for k in range(left.shape[-1]):
        sums += left[..., k, None] * right[..., k, None, :]


def real_product(left: AnyArray, right: AnyArray) -> AnyArray:
    """Return the matrix product of floating-point matrices [M, K] and [K, N].

    In float32 each sum runs over K in order and is rounded at each step, which has the bits of
    Glow's Interpreter on every machine. Float64, used for real arithmetic, sums in any order.
    """
    if left.dtype == np.float64:
        product: AnyArray = np.matmul(left, right)
        return product
    rows, columns = left.shape[0], right.shape[1]
    sums = np.zeros((rows, columns), left.dtype)
    step = max(1, _BLOCK_ELEMENTS // columns)
    for first in range(0, rows, step):
        block = sums[first : first + step]
        terms = np.empty_like(block)
        for column, row in zip(left[first : first + step].T.copy(), right, strict=True):
            np.multiply(column[:, None], row, out=terms)
            block += terms
    return sums


def exact_product(left: AnyArray, right: AnyArray) -> IntArray:
    """Matrix product of integers below 2**17, exact."""
    product: npt.NDArray[np.float64] = np.matmul(left.astype(np.float64), right.astype(np.float64))
    return product.astype(np.int64)
