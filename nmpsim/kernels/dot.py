"""Products of blocks of Int16 weights with several patches, as vector instructions of the host.

Written as LLVM IR, because Numba's own loops reach a few per cent of what a processor can do: a
widening multiplication of 16-bit pairs whose products are added in twos. LLVM makes ``vpmaddwd`` or
its like of it on any processor that has one. Weights are split into a high and a low byte, so that
32 bits hold the sums of 256 products of each plane.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from nmpsim.kernels.array_types import Int16s, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.vector_code import (
    I32,
    LANES,
    constant,
    load,
    pick,
    store,
    sum_up,
    vector,
)

BLOCK_BYTES = 64
"""A block has LANES times as many consecutive inputs as four bytes hold."""
PATCHES = 4
"""Pixels that share one pass over the weights."""
_WIDE_PAIRS = 128
"""Pairs of Int16 inputs whose products with one plane of weights 32 bits can sum up."""

_HALVES = vector(16, BLOCK_BYTES // 2)
_PRODUCTS = vector(32, BLOCK_BYTES // 2)
_SUMS, _WIDE_SUMS = vector(32), vector(64)


def _add_in_twos(builder: ir.IRBuilder, first: ir.Value, second: ir.Value) -> Any:
    """Sums of neighbours in two vectors, first those of the first one."""
    even = pick(builder, first, second, list(range(0, 2 * LANES, 2)))
    odd = pick(builder, first, second, list(range(1, 2 * LANES, 2)))
    return builder.add(even, odd)


def _products(builder: ir.IRBuilder, weights: ir.Value, inputs: ir.Value) -> Any:
    """Products of 16-bit pairs, added in twos."""
    products = builder.mul(builder.sext(weights, _PRODUCTS), builder.sext(inputs, _PRODUCTS))
    return _add_in_twos(builder, products, products)


def _repeat(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> Any:
    """The inputs of one block, 16 bits each, again and again."""
    inputs = load(builder, address, kind, 2)
    count = 512 // kind.width
    lone = ir.Constant(vector(kind.width, count), ir.Undefined)
    lone = builder.insert_element(lone, inputs, ir.Constant(I32, 0))
    return builder.bitcast(pick(builder, lone, lone, [0] * count), _HALVES)


def _planes(builder: ir.IRBuilder, address: ir.Value) -> list[Any]:
    """High and low bytes of sixteen lanes by two inputs."""
    weights = load(builder, address, _HALVES, 2)
    high = builder.ashr(weights, ir.Constant(_HALVES, [8] * 32))
    return [high, builder.and_(weights, ir.Constant(_HALVES, [255] * 32))]


def _put(builder: ir.IRBuilder, sums: list[Any], to: ir.Value) -> None:
    """Add a patch's sums, those of both planes, to what is there."""
    high, low = (builder.sext(plane, _WIDE_SUMS) for plane in sums)
    total = builder.add(builder.shl(high, ir.Constant(_WIDE_SUMS, [8] * LANES)), low)
    store(builder, builder.add(total, load(builder, to, _WIDE_SUMS, 8)), to, 8)


def _emit(
    builder: ir.IRBuilder,
    weights: ir.Value,
    patches: ir.Value,
    stride: ir.Value,
    count: ir.Value,
    sums: ir.Value,
    sums_stride: ir.Value,
) -> None:
    """Sum up the inputs of a block, then put each patch's sums."""

    def terms(index: ir.Value) -> list[Any]:
        offset = builder.mul(index, constant(BLOCK_BYTES))
        sides = _planes(builder, builder.add(weights, offset))
        step = builder.mul(index, constant(4))
        products = []
        for patch in range(PATCHES):
            row = builder.add(patches, builder.mul(stride, constant(patch)))
            inputs = _repeat(builder, builder.add(row, step), I32)
            products += [_products(builder, side, inputs) for side in sides]
        return products

    totals = sum_up(builder, count, _SUMS, 2 * PATCHES, terms)
    for patch in range(PATCHES):
        to = builder.add(sums, builder.mul(sums_stride, constant(patch)))
        _put(builder, totals[2 * patch : 2 * patch + 2], to)


def _type_of_dot(
    _: object,
    weights: numba.types.Type,
    patches: numba.types.Type,
    stride: numba.types.Type,
    count: numba.types.Type,
    sums: numba.types.Type,
    sums_stride: numba.types.Type,
) -> Any:
    """Addresses, bytes from patch to patch and from sums to sums; ``count`` is at least one."""

    def generate(_: object, builder: ir.IRBuilder, __: object, arguments: list[ir.Value]) -> Any:
        _emit(builder, *arguments)
        return constant(0)

    return numba.intp(*[numba.intp] * 6), generate


_dot16: Any = intrinsic(_type_of_dot)


def _dot_int16_compiled(weights: Int16s, patches: Int16s, sums: Int64s) -> None:
    sums[:] = 0
    stride, row = 2 * patches.shape[1], 8 * sums.shape[1]
    count = patches.shape[1] // 2
    for block in range(weights.size // (patches.shape[1] * LANES)):
        to = sums.ctypes.data + 8 * LANES * block
        for first in range(0, count, _WIDE_PAIRS):
            inputs = min(_WIDE_PAIRS, count - first)
            where = weights.ctypes.data + (block * count + first) * BLOCK_BYTES
            _dot16(where, patches.ctypes.data + 4 * first, stride, inputs, to, row)


def _dot_in_numpy(weights: Int16s, patches: Int16s, sums: Int64s) -> None:
    side, lanes = 4 // weights.itemsize, weights.size // patches.shape[1]
    blocks = weights.reshape(lanes // LANES, -1, LANES, side)
    by_lane = blocks.transpose(0, 2, 1, 3).reshape(lanes, -1)
    sums[:, :lanes] = patches.astype(np.int64) @ by_lane.T.astype(np.int64)


dot_int16: Any = _dot_in_numpy if numba.config.DISABLE_JIT else jit(_dot_int16_compiled)
"""``dot_int16(weights, patches, sums)``: sums[p, lane] = products of patch p with a lane's weights.

weights int16 [B * K * 16], B blocks as packed, patches int16 [PATCHES, K], sums int64
[PATCHES, B * 16 or more]; K is a multiple of two. Exact.
"""
