"""Fully connected layers, matrix products, and sums along the batch (LIR_FORMAT 3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.hostops.accumulators import (
    LayerRescale,
    add_product,
    multiply_exact,
    multiply_real,
)
from nmpsim.kernels.hostops.elementwise import add_by_floats, add_by_integers
from nmpsim.kernels.hostops.rounding import rescale, round_half_away, to_float32
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostTensor,
    wrap_array_function,
)


def fully_connected(
    dest: HostTensor, src: HostTensor, weights: HostTensor, bias: HostTensor, attributes: Attributes
) -> AnyArray:
    """Compute the fully connected layer Src [M, K] @ Weights [K, N] + Bias [N]."""
    rows = (src.values if src.is_float else src.subtract_offset()).reshape(src.shape[0], -1)
    if src.is_float:
        return multiply_real(rows, weights.values) + bias.values
    sums = multiply_exact(rows, weights.subtract_offset())
    scales = LayerRescale.from_tensors(dest, src, weights, bias)
    return scales.rescale_sums(sums, bias.subtract_offset(), offset_after_rounding=True)


def rowwise_fully_connected(
    dest: HostTensor,
    src: HostTensor,
    weights: HostTensor,
    bias: HostTensor,
    scales: HostTensor,
    offsets: HostTensor,
    attributes: Attributes,
) -> AnyArray:
    """Compute a fully connected layer with a scale and offset for each row of Weights [N, K].

    Each row of weights has a scale and an offset. libjit's arithmetic for Int8; that of the
    Interpreter, which Int16 follows too, is assumed to be the fully connected layer's.
    """
    centered = weights.values.astype(np.int64) - offsets.values.astype(np.int64)[:, None]
    product = src.scale32 * scales.values.astype(np.float32)
    sums = multiply_exact(src.subtract_offset().reshape(src.shape[0], -1), centered.T)
    factors = LayerRescale(product, np.asarray(bias.scale32), dest)
    return factors.rescale_sums(sums, bias.subtract_offset(), offset_after_rounding=True)


def matmul(dest: HostTensor, lhs: HostTensor, rhs: HostTensor, attributes: Attributes) -> AnyArray:
    """Compute the matrix product LHS [M, K] @ RHS [K, N]."""
    if lhs.is_float:
        return multiply_real(lhs.values, rhs.values)
    sums = multiply_exact(lhs.subtract_offset(), rhs.subtract_offset())
    factor = lhs.scale32 * rhs.scale32 / dest.scale32
    if dest.uses_integers:
        return rescale(sums, factor, dest.offset)
    return round_half_away(to_float32(sums) * factor + np.float32(dest.offset))


@wrap_array_function
def batch_matmul(lhs: AnyArray, rhs: AnyArray) -> AnyArray:
    """Compute the float matrix products LHS [B, M, K] @ RHS [B, K, N], adding in order of K."""
    sums = np.zeros((*lhs.shape[:2], rhs.shape[2]), lhs.dtype)
    add_product(sums, lhs, rhs)
    return sums


def batched_add(
    dest: HostTensor, batch: HostTensor, slice_: HostTensor, attributes: Attributes
) -> AnyArray:
    """Add Slice to each item of Batch."""
    if batch.is_float:
        return batch.values + slice_.values[None]
    add = add_by_integers if dest.uses_integers else add_by_floats
    return add(dest, batch, slice_)


def batched_reduce_add(dest: HostTensor, batch: HostTensor, attributes: Attributes) -> Any:
    """Compute the sum of Batch along Axis.

    Real numbers are added in order. Int8 rescales the whole sum once (libjit), or as the
    Interpreter does: ``rha(fl(fl(sum * Sx) / Sy)) + Oy``, which Int16 follows too (Glow has none).
    """
    axis = int(attributes["Axis"])
    if not np.issubdtype(batch.dtype, np.integer):
        dtype = np.result_type(batch.dtype, np.float32)
        in_order = np.cumsum(batch.values, axis=axis, dtype=dtype)
        return np.take(in_order, -1, axis=axis)
    if batch.dtype.itemsize > 2:
        return batch.values.sum(axis=axis, dtype=batch.dtype)
    sums = batch.subtract_offset().sum(axis=axis).reshape(dest.shape)
    if dest.uses_integers:
        return rescale(sums, batch.scale32 / dest.scale32, dest.offset)
    scaled = round_half_away(to_float32(sums) * batch.scale32 / dest.scale32)
    return scaled + np.int64(dest.offset)
