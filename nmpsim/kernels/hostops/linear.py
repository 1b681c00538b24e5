"""Fully connected layers, matrix products, and sums along the batch (LIR_FORMAT 3.3)."""

from __future__ import annotations

import numpy as np

from nmpsim.kernels.hostops.accumulators import Rescale, add_product, exact_product, real_product
from nmpsim.kernels.hostops.elementwise import add_by_floats, add_by_integers
from nmpsim.kernels.hostops.rounding import rescale, round_half_away, to_float32
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    on_values,
    saturate,
    store,
)


def fully_connected(
    dest: HostTensor, src: HostTensor, weights: HostTensor, bias: HostTensor, attributes: Attributes
) -> HostResult:
    """Compute Dest [M,N] = Src [M,K] @ Weights [K,N] + Bias [N]."""
    rows = (src.values if src.is_float else src.centered()).reshape(src.shape[0], -1)
    if src.is_float:
        return store(real_product(rows, weights.values) + bias.values, dest)
    sums = exact_product(rows, weights.centered())
    scales = Rescale.of_tensors(dest, src, weights, bias)
    return saturate(scales.apply(sums, bias.centered(), offset_after_rounding=True), dest)


def rowwise_fully_connected(
    dest: HostTensor,
    src: HostTensor,
    weights: HostTensor,
    bias: HostTensor,
    scales: HostTensor,
    offsets: HostTensor,
    attributes: Attributes,
) -> HostResult:
    """Compute Dest [M,N] of Src [M,K], Weights [N,K], Bias [N], Scales [N] and Offsets [N].

    Each row of weights has a scale and an offset. libjit's arithmetic for Int8; that of the
    Interpreter, which Int16 follows too, is assumed to be the fully connected layer's.
    """
    centered = weights.values.astype(np.int64) - offsets.values.astype(np.int64)[:, None]
    product = src.scale32 * scales.values.astype(np.float32)
    sums = exact_product(src.centered().reshape(src.shape[0], -1), centered.T)
    factors = Rescale(product, np.asarray(bias.scale32), dest)
    return saturate(factors.apply(sums, bias.centered(), offset_after_rounding=True), dest)


def matmul(
    dest: HostTensor, lhs: HostTensor, rhs: HostTensor, attributes: Attributes
) -> HostResult:
    """Compute Dest [M,N] = LHS [M,K] @ RHS [K,N]; the Interpreter adds the offset, then rounds."""
    if lhs.is_float:
        return store(real_product(lhs.values, rhs.values), dest)
    sums = exact_product(lhs.centered(), rhs.centered())
    factor = lhs.scale32 * rhs.scale32 / dest.scale32
    if dest.uses_integers:
        return saturate(rescale(sums, factor, dest.offset), dest)
    exact = round_half_away(to_float32(sums) * factor + np.float32(dest.offset))
    return saturate(exact, dest)


@on_values
def batch_matmul(lhs: AnyArray, rhs: AnyArray) -> AnyArray:
    """Compute Dest [B,M,N] = LHS [B,M,K] @ RHS [B,K,N] in float, each sum in order."""
    sums = np.zeros((*lhs.shape[:2], rhs.shape[2]), lhs.dtype)
    add_product(sums, lhs, rhs)
    return sums


def batched_add(
    dest: HostTensor, batch: HostTensor, slice_: HostTensor, attributes: Attributes
) -> HostResult:
    """Add Slice [...] (Int8, Int16 or Int32) to each item of Batch [N, ...]."""
    if batch.is_float:
        return store(batch.values + slice_.values[None], dest)
    add = add_by_integers if dest.uses_integers else add_by_floats
    return saturate(add(dest, batch, slice_), dest)


def batched_reduce_add(dest: HostTensor, batch: HostTensor, attributes: Attributes) -> HostResult:
    """Sum Batch along Axis; Dest omits that axis or has size 1 there.

    Real numbers are added in order. Int8 rescales the whole sum once (libjit), or as the
    Interpreter does: ``rha(fl(fl(sum * Sx) / Sy)) + Oy``, which Int16 follows too (Glow has none).
    """
    axis = int(attributes["Axis"])
    if not np.issubdtype(batch.dtype, np.integer):
        dtype = np.result_type(batch.dtype, np.float32)
        in_order = np.cumsum(batch.values, axis=axis, dtype=dtype)
        return store(np.take(in_order, -1, axis=axis), dest)
    if batch.dtype.itemsize > 2:
        return store(batch.values.sum(axis=axis, dtype=batch.dtype), dest)
    sums = batch.centered().sum(axis=axis).reshape(dest.shape)
    if dest.uses_integers:
        return saturate(rescale(sums, batch.scale32 / dest.scale32, dest.offset), dest)
    scaled = round_half_away(to_float32(sums) * batch.scale32 / dest.scale32)
    return saturate(scaled + np.int64(dest.offset), dest)
