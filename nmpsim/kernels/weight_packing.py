"""Packing of weights for ``vpmaddubsw`` (see :mod:`~nmpsim.kernels.microkernel_avx2`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.atomics import atomic_load, atomic_store, compare_exchange, yield_processor
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.packed_weights import (
    FIRST_RESIDUALS,
    OFFSETS_BYTES,
    STARTS_BYTES,
    STATE,
    STEP_BYTES,
    locate_packed_weights,
)
from nmpsim.kernels.pointers import get_address
from nmpsim.kernels.vector_code import (
    I64,
    EmittedLoop,
    add_offset,
    call_intrinsic,
    emit_signed_max,
    load,
    make_int_constant,
    make_int_vector_type,
    make_splat_constant,
    make_zero_constant,
    store,
)

_MAX_PAIR, _MAX_FOUR = 128, 258
"""Largest sum of two weights of the same sign, 255 times which fits 16 bits; largest sum of four,
127 times which does."""
_BYTES, _PAIRS, _SUMS = (
    make_int_vector_type(8, 32),
    make_int_vector_type(16, 16),
    make_int_vector_type(32, 8),
)
_NO_WEIGHTS, _NO_SUMS = make_zero_constant(_BYTES), make_zero_constant(_SUMS)
_ONE_BYTES, _ONE_PAIRS = make_splat_constant(_BYTES, 1), make_splat_constant(_PAIRS, 1)


def _add_pairs(b: IRBuilder, unsigned: Value, signed: Value) -> Any:
    return call_intrinsic(b, "x86.avx2.pmadd.ub.sw", _PAIRS, unsigned, signed)


def _sum_by_sign(b: IRBuilder, value: Value) -> list[Any]:
    """Return the sums of two positive weights, and of two negative ones as positive numbers."""
    positive = emit_signed_max(b, value, _NO_WEIGHTS)
    return [_add_pairs(b, part, _ONE_BYTES) for part in (positive, b.sub(positive, value))]


def _is_any_above(b: IRBuilder, sums: list[Any], most: int) -> Any:
    above = b.icmp_signed(">", emit_signed_max(b, *sums), make_splat_constant(_PAIRS, most))
    return b.icmp_unsigned("!=", b.bitcast(above, ir.IntType(16)), ir.IntType(16)(0))


def _emit_pack_halves(
    b: IRBuilder,
    weights: Value,
    steps: Value,
    packed: Value,
    residuals: Value,
    offsets: Value,
    starts: Value,
) -> Any:
    """Pack the weights of a block for inputs of 0 to 255 and return the number of residual steps.

    A lane starts at minus 128 times the sum of its weights.
    """
    loop = EmittedLoop(
        b,
        steps,
        [make_int_constant(0), make_int_constant(0), make_int_constant(0), *[_NO_SUMS] * 2],
    )
    step, *after = loop.values
    for side in range(2):
        at = add_offset(b, b.mul(step, make_int_constant(STEP_BYTES)), 32 * side)
        value = load(b, b.add(weights, at), _BYTES, 1)
        is_large = _is_any_above(b, _sum_by_sign(b, value), _MAX_PAIR)
        half = b.select(is_large, b.ashr(value, _ONE_BYTES), value)
        store(b, half, b.add(packed, at), 1)
        to = residuals, offsets, after[side], side
        after[side] = _store_residual(b, *to, b.sub(value, half), step, is_large)
        pairs = _add_pairs(b, _ONE_BYTES, value)
        sums = call_intrinsic(b, "x86.avx2.pmadd.wd", _SUMS, pairs, _ONE_PAIRS)
        after[2 + side] = b.add(after[2 + side], sums)
    _, *after = loop.end([b.add(step, make_int_constant(1)), *after])
    for side in range(2):
        scaled = b.sub(_NO_SUMS, b.shl(after[2 + side], make_splat_constant(_SUMS, 7)))
        store(b, scaled, add_offset(b, starts, 32 * side), 4)
    return _pad_residuals(b, residuals, offsets, after[:2])


def _emit_pack_pairs(
    b: IRBuilder,
    weights: Value,
    steps: Value,
    packed: Value,
    residuals: Value,
    offsets: Value,
    starts: Value,
) -> Any:
    """Pack the weights of a block for inputs of 0 to 127, two steps at a time.

    Returns the number of residual steps.
    """
    loop = EmittedLoop(
        b, b.lshr(steps, make_int_constant(1)), [make_int_constant(0)] * 3, may_be_empty=True
    )
    step, *after = loop.values
    for side in range(2):
        at = add_offset(b, b.mul(step, make_int_constant(STEP_BYTES)), 32 * side)
        first, second = (
            load(b, add_offset(b, b.add(weights, at), STEP_BYTES * n), _BYTES, 1) for n in range(2)
        )
        both = zip(_sum_by_sign(b, first), _sum_by_sign(b, second), strict=True)
        is_large = _is_any_above(b, [b.add(*two) for two in both], _MAX_FOUR)
        together = b.select(is_large, _NO_WEIGHTS, second)
        store(b, first, b.add(packed, at), 1)
        store(b, together, add_offset(b, b.add(packed, at), STEP_BYTES), 1)
        to = residuals, offsets, after[side], side
        following = b.add(step, make_int_constant(1))
        after[side] = _store_residual(b, *to, b.sub(second, together), following, is_large)
    step, *after = loop.end([b.add(step, make_int_constant(2)), *after])
    last = EmittedLoop(
        b,
        b.and_(steps, make_int_constant(1)),
        [b.mul(step, make_int_constant(STEP_BYTES))],
        may_be_empty=True,
    )
    (at,) = last.values
    for side in range(2):
        here = add_offset(b, at, 32 * side)
        store(b, load(b, b.add(weights, here), _BYTES, 1), b.add(packed, here), 1)
        store(b, _NO_WEIGHTS, add_offset(b, b.add(packed, here), STEP_BYTES), 1)
    last.end([at])
    for side in range(2):
        store(b, _NO_SUMS, add_offset(b, starts, 32 * side), 4)
    return _pad_residuals(b, residuals, offsets, after)


def _store_residual(
    b: IRBuilder,
    residuals: Value,
    offsets: Value,
    count: Value,
    side: int,
    value: Value,
    step: Value,
    is_needed: Value,
) -> Any:
    """Store a side's residual step after ``count`` others; return how many of them are needed."""
    residual, offset = _residual_at(b, residuals, offsets, count, side)
    store(b, value, residual, 1)
    store(b, b.mul(step, make_int_constant(4)), offset, 8)
    return b.add(count, b.zext(is_needed, I64))


def _pad_residuals(b: IRBuilder, residuals: Value, offsets: Value, counts: list[Value]) -> Any:
    """Give the side with fewer residual steps zeros, and return the number of both."""
    count = emit_signed_max(b, *counts)
    for side, first in enumerate(counts):
        residual, offset = _residual_at(b, residuals, offsets, first, side)
        missing = EmittedLoop(b, b.sub(count, first), [residual, offset], may_be_empty=True)
        residual, offset = missing.values
        store(b, _NO_WEIGHTS, residual, 1)
        store(b, make_int_constant(0), offset, 8)
        missing.end(
            [
                b.add(residual, make_int_constant(STEP_BYTES)),
                b.add(offset, make_int_constant(OFFSETS_BYTES)),
            ]
        )
    return count


def _residual_at(
    b: IRBuilder, residuals: Value, offsets: Value, number: Value, side: int
) -> tuple[Any, Any]:
    """Return the addresses of one side's residual step and of its input offset."""
    residual = add_offset(
        b, b.add(residuals, b.mul(number, make_int_constant(STEP_BYTES))), 32 * side
    )
    offset = add_offset(
        b, b.add(offsets, b.mul(number, make_int_constant(OFFSETS_BYTES))), 8 * side
    )
    return residual, offset


_pack_halves: Any = define_function("pack_halves_avx2", _emit_pack_halves)
_pack_pairs: Any = define_function("pack_pairs_avx2", _emit_pack_pairs)

_UNPACKED: Any = np.int64(0)
_PACKING: Any = np.int64(1)
PACKED: Any = np.int64(2)
UNUSED: Any = np.int64(3)
"""States of packed weights; ``UNUSED`` ones are never packed."""


@jit
def initialize_packed_weights_avx2(words: Int64s) -> None:
    """Mark a single tile's weights as never to be packed, because packing does not pay off."""
    words[STATE] = UNUSED
    words[words.size >> 1] = _UNPACKED


@jit
def _begin_packing(state: Int) -> Any:
    """Return whether this thread must pack the weights; if not, wait until another one has."""
    if compare_exchange(state, _UNPACKED, _PACKING):
        return True
    while atomic_load(state) != PACKED:
        yield_processor()
    return False


@jit
def pack_blocks(weights: Int, steps: Int, blocks: Int, words: Int64s, in_pairs: bool) -> None:
    """Pack blocks of weights once; if another thread is packing them, wait for that thread."""
    w = locate_packed_weights(get_address(words), blocks, 4 * steps)
    if not _begin_packing(w.state):
        return
    residuals, stride = np.int64(0), (w.residuals - w.packed) // blocks
    for block in range(blocks):
        words[FIRST_RESIDUALS + block] = residuals
        arguments = (
            weights + block * steps * STEP_BYTES,
            steps,
            w.packed + block * stride,
            w.residuals + residuals * STEP_BYTES,
            w.residual_offsets + residuals * OFFSETS_BYTES,
            w.starts + block * STARTS_BYTES,
        )
        residuals += _pack_pairs(arguments) if in_pairs else _pack_halves(arguments)
    words[FIRST_RESIDUALS + blocks] = residuals
    atomic_store(w.state, PACKED)
