"""Products of blocks of weights with several patches, as vector instructions of the host.

Written as LLVM IR, because Numba's own loops reach a few per cent of what a processor can do: a
widening multiplication of 16-bit pairs whose products are added in twos. LLVM makes ``vpmaddwd`` or
its like of it on any processor that has one. Int8 weights are widened to 16 bits. Int16 weights
are split into a high and a low byte, so that 32 bits hold the sums of 256 products of each plane.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from nmpsim.kernels.jit import jit

LANES = 16
"""Output channels of one weight block."""
BLOCK_BYTES = 64
"""A block has LANES times as many consecutive inputs as four bytes hold."""
PATCHES = 4
"""Pixels that share one pass over the weights."""
_WIDE_PAIRS = 128
"""Pairs of Int16 inputs whose products with one plane of weights 32 bits can sum up."""

_numba: Any = numba  # its types, where it ships any, do not know all that is used here
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_BYTES = ir.VectorType(ir.IntType(8), BLOCK_BYTES // 2)
_HALVES = ir.VectorType(ir.IntType(16), BLOCK_BYTES // 2)
_PRODUCTS = ir.VectorType(_I32, BLOCK_BYTES // 2)
_SUMS = ir.VectorType(_I32, LANES)
_WIDE_SUMS = ir.VectorType(_I64, LANES)


def _constant(value: int) -> Any:
    return ir.Constant(_I64, value)


def _pick(builder: Any, vector: Any, other: Any, indices: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_I32, len(indices)), indices)
    return builder.shuffle_vector(vector, other, mask)


def _load(builder: Any, address: Any, kind: Any, alignment: int) -> Any:
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = alignment
    return value


def _add_in_twos(builder: Any, vector: Any, other: Any) -> Any:
    """Neighbours of two vectors, one behind the other, added."""
    even = _pick(builder, vector, other, list(range(0, 2 * LANES, 2)))
    odd = _pick(builder, vector, other, list(range(1, 2 * LANES, 2)))
    return builder.add(even, odd)


def _products(builder: Any, weights: Any, inputs: Any) -> Any:
    """Products of 16-bit pairs, added in twos."""
    products = builder.mul(builder.sext(weights, _PRODUCTS), builder.sext(inputs, _PRODUCTS))
    return _add_in_twos(builder, products, products)


def _repeat(builder: Any, address: Any, kind: Any) -> Any:
    """The inputs of one block, 16 bits each, again and again."""
    inputs = _load(builder, address, kind, 2)
    count = 512 // kind.width
    vector = ir.Constant(ir.VectorType(kind, count), ir.Undefined)
    lone = builder.insert_element(vector, inputs, ir.Constant(_I32, 0))
    return builder.bitcast(_pick(builder, lone, lone, [0] * count), _HALVES)


class _Int8Block:
    """Two halves of eight lanes by four inputs; a lane has two sums in its half."""

    inputs = _I64

    @staticmethod
    def sides(builder: Any, address: Any) -> list[Any]:
        halves = [builder.add(address, _constant(side * 32)) for side in range(2)]
        return [builder.sext(_load(builder, half, _BYTES, 1), _HALVES) for half in halves]

    @staticmethod
    def store(builder: Any, sums: list[Any], to: Any) -> None:
        total = _add_in_twos(builder, *sums)
        builder.store(total, builder.inttoptr(to, _SUMS.as_pointer())).align = 4


class _Int16Block:
    """High and low bytes of sixteen lanes by two inputs; a lane has a sum in each plane.

    What is stored is added to what is there.
    """

    inputs = _I32

    @staticmethod
    def sides(builder: Any, address: Any) -> list[Any]:
        weights = _load(builder, address, _HALVES, 2)
        high = builder.ashr(weights, ir.Constant(_HALVES, [8] * 32))
        return [high, builder.and_(weights, ir.Constant(_HALVES, [255] * 32))]

    @staticmethod
    def store(builder: Any, sums: list[Any], to: Any) -> None:
        high, low = (builder.sext(plane, _WIDE_SUMS) for plane in sums)
        total = builder.add(builder.shl(high, ir.Constant(_WIDE_SUMS, [8] * LANES)), low)
        total = builder.add(total, _load(builder, to, _WIDE_SUMS, 8))
        builder.store(total, builder.inttoptr(to, _WIDE_SUMS.as_pointer())).align = 8


def _emit(
    builder: Any,
    block: Any,
    weights: Any,
    patches: Any,
    stride: Any,
    count: Any,
    sums: Any,
    sums_stride: Any,
) -> None:
    """A loop over the inputs of a block; then each patch's sums are stored."""
    before = builder.block
    body, after = builder.append_basic_block("block"), builder.append_basic_block("done")
    builder.branch(body)
    builder.position_at_end(body)
    index = builder.phi(_I64)
    index.add_incoming(_constant(0), before)
    running = [builder.phi(_SUMS) for _ in range(2 * PATCHES)]
    for total in running:
        total.add_incoming(ir.Constant(_SUMS, [0] * LANES), before)
    offset = builder.mul(index, _constant(BLOCK_BYTES))
    sides = block.sides(builder, builder.add(weights, offset))
    step = builder.mul(index, _constant(block.inputs.width // 8))
    added = []
    for patch in range(PATCHES):
        row = builder.add(patches, builder.mul(stride, _constant(patch)))
        inputs = _repeat(builder, builder.add(row, step), block.inputs)
        for side in range(2):
            products = _products(builder, sides[side], inputs)
            added.append(builder.add(running[2 * patch + side], products))
    following = builder.add(index, _constant(1))
    index.add_incoming(following, body)
    for total, value in zip(running, added, strict=True):
        total.add_incoming(value, body)
    builder.cbranch(builder.icmp_unsigned("<", following, count), body, after)
    builder.position_at_end(after)
    for patch in range(PATCHES):
        to = builder.add(sums, builder.mul(sums_stride, _constant(patch)))
        block.store(builder, added[2 * patch : 2 * patch + 2], to)


def _dot_of(block: Any) -> Any:
    """Addresses, bytes from patch to patch and from sums to sums; ``count`` is at least one."""

    def type_of_dot(
        typing_context: Any,
        weights: Any,
        patches: Any,
        stride: Any,
        count: Any,
        sums: Any,
        sums_stride: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            _emit(builder, block, *arguments)
            return context.get_dummy_value()

        return _numba.void(*[_numba.intp] * 6), generate

    return intrinsic(type_of_dot)


_dot8: Any = _dot_of(_Int8Block)
_dot16: Any = _dot_of(_Int16Block)


def _dot_int8_compiled(weights: Any, patches: Any, sums: Any) -> None:
    stride, row = 2 * patches.shape[1], 4 * sums.shape[1]
    count = patches.shape[1] // 4
    for block in range(sums.shape[1] // LANES):
        where = weights.ctypes.data + block * count * BLOCK_BYTES
        to = sums.ctypes.data + 4 * LANES * block
        _dot8(where, patches.ctypes.data, stride, count, to, row)


def _dot_int16_compiled(weights: Any, patches: Any, sums: Any) -> None:
    sums[:] = 0
    stride, row = 2 * patches.shape[1], 8 * sums.shape[1]
    count = patches.shape[1] // 2
    for block in range(sums.shape[1] // LANES):
        to = sums.ctypes.data + 8 * LANES * block
        for first in range(0, count, _WIDE_PAIRS):
            inputs = min(_WIDE_PAIRS, count - first)
            where = weights.ctypes.data + (block * count + first) * BLOCK_BYTES
            _dot16(where, patches.ctypes.data + 4 * first, stride, inputs, to, row)


def _dot_in_numpy(weights: Any, patches: Any, sums: Any) -> None:
    side, lanes = 4 // weights.itemsize, sums.shape[1]
    blocks = weights.reshape(lanes // LANES, -1, LANES, side)
    by_lane = blocks.transpose(0, 2, 1, 3).reshape(lanes, -1)
    sums[:] = patches.astype(np.int64) @ by_lane.T.astype(np.int64)


dot_int8: Any = _dot_in_numpy if _numba.config.DISABLE_JIT else jit(_dot_int8_compiled)
"""``dot_int8(weights, patches, sums)``: sums[p, lane] = products of patch p with a lane's weights.

weights int8 [B * K * 16], B blocks as packed, patches int16 [PATCHES, K], sums int32
[PATCHES, B * 16]; K is a multiple of four. The patches hold Int8 values. Exact modulo 2^32.
"""
dot_int16: Any = _dot_in_numpy if _numba.config.DISABLE_JIT else jit(_dot_int16_compiled)
"""The same for weights int16 and sums int64; K is a multiple of two. Exact."""
