"""Fully connected, matrix product, and sums along the batch (LIR_FORMAT 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.accumulators import (
    Rescale,
    add_product,
    bias_minus_offset,
    exact_product,
    real_product,
    scale_array,
)
from nmpsim.kernels.hostops.elementwise import add_by_floats, add_by_integers
from nmpsim.kernels.hostops.rounding import float32_of, rescaled, round_half_away
from nmpsim.kernels.hostops.tensors import (
    Attributes,
    HostResult,
    HostTensor,
    clipped,
    whole,
)


def fully_connected(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest [M,N], Src [M,K], Weights [K,N], Bias [N]: ``Src @ Weights + Bias``."""
    dest, src, weights, bias = operands
    rows = src.values.reshape(src.shape[0], -1)
    if src.is_real:
        return whole(real_product(rows, weights.values) + bias.values, dest)
    rescale = Rescale(
        product=np.asarray(src.scale32 * weights.scale32),
        bias=scale_array(bias),
        dest=dest,
    )
    sums = exact_product(src.centered().reshape(rows.shape), weights.centered())
    centered_bias = bias_minus_offset(bias, bias.offset)
    if dest.by_integers:
        return clipped(rescale.by_integers(sums, centered_bias), dest)
    return clipped(rescale.by_floats(sums, centered_bias, offset_after_rounding=True), dest)


def rowwise_fully_connected(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest [M,N], Src [M,K], Weights [N,K], Bias [N], Scales [N], Offsets [N].

    A scale and an offset for each row of weights. libjit's arithmetic for Int8; that of the
    Interpreter, which Int16 follows too, is assumed to be the fully connected layer's.
    """
    dest, src, weights, bias, scales, offsets = operands
    centered = weights.values.astype(np.int64) - offsets.values.astype(np.int64)[:, None]
    rescale = Rescale(
        product=src.scale32 * scales.values.astype(np.float32),
        bias=scale_array(bias),
        dest=dest,
    )
    sums = exact_product(src.centered().reshape(src.shape[0], -1), centered.T)
    centered_bias = bias_minus_offset(bias, bias.offset)
    if dest.by_integers:
        return clipped(rescale.by_integers(sums, centered_bias), dest)
    return clipped(rescale.by_floats(sums, centered_bias, offset_after_rounding=True), dest)


def matmul(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest [M,N], LHS [M,K], RHS [K,N]; the Interpreter adds the offset before it rounds."""
    dest, lhs, rhs = operands
    if lhs.is_real:
        return whole(real_product(lhs.values, rhs.values), dest)
    sums = exact_product(lhs.centered(), rhs.centered())
    factor = lhs.scale32 * rhs.scale32 / dest.scale32
    if dest.by_integers:
        return clipped(rescaled(sums, factor, dest.offset), dest)
    exact = round_half_away(float32_of(sums) * factor + np.float32(dest.offset))
    return clipped(exact, dest)


def batch_matmul(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest [B,M,N], LHS [B,M,K], RHS [B,K,N], float: a product for each B, summed in order."""
    dest, lhs, rhs = operands
    sums = np.zeros(dest.shape, lhs.dtype)
    add_product(sums, lhs.values, rhs.values)
    return whole(sums, dest)


def batched_add(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest [N, ...], Batch [N, ...], Slice [...] (Int8, Int16 or Int32): Slice added to each."""
    dest, batch, slice_ = operands
    if batch.is_real:
        return whole(batch.values + slice_.values[None], dest)
    add = add_by_integers if dest.by_integers else add_by_floats
    return clipped(add(dest, batch, slice_), dest)


def batched_reduce_add(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Batch {Axis}: sum along one axis, which Dest lacks (or keeps as 1).

    Real numbers are added in order. Int8 rescales the whole sum once (libjit), or as the
    Interpreter does: ``rha(fl(fl(sum * Sx) / Sy)) + Oy``, which Int16 follows too (Glow has none).
    """
    dest, batch = operands
    axis = int(attributes["Axis"])
    if not np.issubdtype(batch.dtype, np.integer):
        dtype = np.result_type(batch.dtype, np.float32)
        in_order = np.cumsum(batch.values, axis=axis, dtype=dtype)
        return whole(np.take(in_order, -1, axis=axis), dest)
    if batch.dtype.itemsize > 2:
        return whole(batch.values.sum(axis=axis, dtype=batch.dtype), dest)
    sums = batch.centered().sum(axis=axis).reshape(dest.shape)
    if dest.by_integers:
        return clipped(rescaled(sums, batch.scale32 / dest.scale32, dest.offset), dest)
    scaled = round_half_away(float32_of(sums) * batch.scale32 / dest.scale32)
    return clipped(scaled + np.int64(dest.offset), dest)
