"""Products of a block of weights with several patches, as vector instructions of the host.

Written as LLVM IR, because Numba's own loops reach a few per cent of what a processor can do: a
widening multiplication of 16-bit pairs whose products are added in twos. LLVM makes ``vpmaddwd`` or
its like of it on any processor that has one. All sums are exact modulo 2^32.
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
DEPTH = 4
"""Consecutive inputs that lie together for each channel."""
PATCHES = 4
"""Pixels that share one pass over the weights."""

_numba: Any = numba  # its types, where it ships any, do not know all that is used here
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_BYTES = ir.VectorType(ir.IntType(8), LANES * DEPTH // 2)
_HALVES = ir.VectorType(ir.IntType(16), LANES * DEPTH // 2)
_WIDE = ir.VectorType(_I32, LANES * DEPTH // 2)
_SUMS = ir.VectorType(_I32, LANES)


def _constant(value: int) -> Any:
    return ir.Constant(_I64, value)


def _pick(builder: Any, vector: Any, other: Any, indices: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_I32, len(indices)), indices)
    return builder.shuffle_vector(vector, other, mask)


def _load(builder: Any, address: Any, kind: Any, alignment: int) -> Any:
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = alignment
    return value


def _add_products(builder: Any, sums: Any, weights: Any, inputs: Any) -> Any:
    """``sums`` plus products of 16-bit pairs, added in twos."""
    products = builder.mul(builder.sext(weights, _WIDE), builder.sext(inputs, _WIDE))
    even = _pick(builder, products, products, list(range(0, 2 * LANES, 2)))
    odd = _pick(builder, products, products, list(range(1, 2 * LANES, 2)))
    return builder.add(sums, builder.add(even, odd))


def _emit(builder: Any, weights: Any, patches: Any, stride: Any, groups: Any, sums: Any) -> None:
    """A loop over groups of DEPTH inputs; two vectors of sums in twos for each patch."""
    before = builder.block
    body, after = builder.append_basic_block("group"), builder.append_basic_block("done")
    builder.branch(body)
    builder.position_at_end(body)
    index = builder.phi(_I64)
    index.add_incoming(_constant(0), before)
    running = [builder.phi(_SUMS) for _ in range(2 * PATCHES)]
    for total in running:
        total.add_incoming(ir.Constant(_SUMS, [0] * LANES), before)
    block = builder.add(weights, builder.mul(index, _constant(LANES * DEPTH)))
    sides = [
        builder.sext(_load(builder, builder.add(block, _constant(side * 32)), _BYTES, 1), _HALVES)
        for side in range(2)
    ]
    added = []
    for patch in range(PATCHES):
        row = builder.add(patches, builder.mul(stride, _constant(patch)))
        four = _load(builder, builder.add(row, builder.mul(index, _constant(2 * DEPTH))), _I64, 2)
        lone = builder.insert_element(
            ir.Constant(ir.VectorType(_I64, 8), ir.Undefined), four, ir.Constant(_I32, 0)
        )
        inputs = builder.bitcast(_pick(builder, lone, lone, [0] * 8), _HALVES)
        for side in range(2):
            added.append(_add_products(builder, running[2 * patch + side], sides[side], inputs))
    following = builder.add(index, _constant(1))
    index.add_incoming(following, body)
    for total, value in zip(running, added, strict=True):
        total.add_incoming(value, body)
    builder.cbranch(builder.icmp_unsigned("<", following, groups), body, after)
    builder.position_at_end(after)
    for patch in range(PATCHES):
        low, high = added[2 * patch : 2 * patch + 2]
        even = _pick(builder, low, high, list(range(0, 2 * LANES, 2)))
        odd = _pick(builder, low, high, list(range(1, 2 * LANES, 2)))
        to = builder.add(sums, _constant(patch * LANES * 4))
        stored = builder.store(builder.add(even, odd), builder.inttoptr(to, _SUMS.as_pointer()))
        stored.align = 4


def _type_of_dot(
    typing_context: Any, weights: Any, patches: Any, stride: Any, groups: Any, sums: Any
) -> Any:
    """Addresses of weights, patches and sums; bytes from patch to patch; groups, at least one."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _emit(builder, *arguments)
        return context.get_dummy_value()

    return _numba.void(*[_numba.intp] * 5), generate


_dot: Any = intrinsic(_type_of_dot)


def _dot_in_numpy(weights: Any, patches: Any, sums: Any) -> None:
    by_lane = weights.reshape(-1, LANES, DEPTH).transpose(1, 0, 2).reshape(LANES, -1)
    sums[:] = patches.astype(np.int32) @ by_lane.T.astype(np.int32)


def _dot_compiled(weights: Any, patches: Any, sums: Any) -> None:
    groups = patches.shape[1] // DEPTH
    _dot(weights.ctypes.data, patches.ctypes.data, 2 * patches.shape[1], groups, sums.ctypes.data)


dot_block: Any = _dot_in_numpy if _numba.config.DISABLE_JIT else jit(_dot_compiled)
"""``dot_block(weights, patches, sums)``: sums[p, lane] = products of patch p with one weight block.

weights int8 [K * 16] as packed, patches int16 [PATCHES, K], sums int32 [PATCHES, 16]; K is a
multiple of four.
"""
