"""Conversion of exact sums and a bias to output values (LIR_FORMAT 3.3, rows conv and FC).

Sums of integer products are formed in float64 matrix products: exact below 2**53, and even Int16
operands give products below 2**34. Saturation happens only at the end. Sums of float32 are formed
term by term, as the Interpreter does it; a library's order would depend on the processor.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.overshoots import clamp
from nmpsim.kernels.hostops.rounding import round_half_away, to_float32
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    FloatArray,
    HostTensor,
    IntArray,
)
from nmpsim.kernels.scale import apply_integer_scales, make_integer_scales
from nmpsim.records import frozen

_ACCUMULATOR_BITS = {1: 32, 2: 48}
"""Bits of the device's accumulator by bytes of an element; a bias saturates to them."""
_BLOCK_ELEMENTS = 1 << 15
"""Sums computed at a time, so that they stay in the cache."""


@frozen(eq=False)
class LayerRescale:
    """Scales of a layer's products, bias and result, as scalars or arrays over channels."""

    product: FloatArray
    bias: FloatArray
    dest: HostTensor

    @classmethod
    def from_tensors(
        cls, dest: HostTensor, src: HostTensor, weights: HostTensor, bias: HostTensor
    ) -> LayerRescale:
        """Return the scales of a layer whose four tensors have one scale each."""
        return cls(np.asarray(src.scale32 * weights.scale32), np.asarray(bias.scale32), dest)

    @property
    def bias_to_sums(self) -> FloatArray:
        """Bias scale divided by the scale of the sums, in float32."""
        return self.bias / self.product

    @property
    def product_to_output(self) -> FloatArray:
        """Scale of the sums divided by the result's scale, in float32: ``fl(mm / Sy)``."""
        return self.product / self.dest.scale32

    def rescale_sums(self, sums: IntArray, bias: IntArray, offset_after_rounding: bool) -> IntArray:
        """Rescale sums plus bias to the scale of the result, without saturation."""
        if not self.dest.uses_integers:
            return self.rescale_sums_as_floats(sums, bias, offset_after_rounding)
        total = _scale(bias, self.bias_to_sums, "bias") + sums
        scaled = _scale(total, self.product_to_output, "rescale")
        return scaled + np.int64(self.dest.offset)

    def rescale_sums_as_floats(
        self, sums: IntArray, bias: IntArray, offset_after_rounding: bool
    ) -> IntArray:
        """Rescale sums plus bias to results in float32, as Glow's Interpreter does.

        The fully connected layer adds Oy after it rounded, the convolution before.
        """
        scaled_bias = round_half_away(to_float32(bias) * self.bias_to_sums)
        limit = 1 << (_ACCUMULATOR_BITS[self.dest.dtype.itemsize] - 1)
        total = sums + clamp(scaled_bias, -limit, limit - 1, "bias")
        scaled = to_float32(total) * self.product_to_output
        if offset_after_rounding:
            return round_half_away(scaled) + np.int64(self.dest.offset)
        return round_half_away(scaled + np.float32(self.dest.offset))


def _scale(x: IntArray, factors: FloatArray, stage: str) -> IntArray:
    return apply_integer_scales(
        x, *make_integer_scales(factors), saturate=partial(clamp, stage=stage)
    )


def add_product(sums: AnyArray, left: AnyArray, right: AnyArray) -> None:
    """Add the matrix product ``left @ right`` to ``sums``, term by term in the order of K.

    Parameters
    ----------
    sums
        [..., M, N] of the dtype of ``left``; written.
    left, right
        [..., M, K] and [..., K, N].
    """
    for k in range(left.shape[-1]):
        sums += left[..., k, None] * right[..., k, None, :]


def multiply_real(left: AnyArray, right: AnyArray) -> AnyArray:
    """Return the product of floating-point matrices [M, K] and [K, N].

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


def sum_in_order(rows: AnyArray) -> AnyArray:
    """Return the sum of each row as a column [rows, 1], adding from left to right."""
    return np.cumsum(rows, axis=1, dtype=rows.dtype)[:, -1:]


def multiply_exact(left: AnyArray, right: AnyArray) -> IntArray:
    """Return the exact product of two integer matrices with values below 2**17."""
    product: npt.NDArray[np.float64] = np.matmul(left.astype(np.float64), right.astype(np.float64))
    return product.astype(np.int64)
