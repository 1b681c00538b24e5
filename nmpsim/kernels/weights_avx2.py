"""Weights as ``vpmaddubsw`` can take them (``microkernel_avx2.py``), and where they are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.atomics import give_way, replace
from nmpsim.kernels.atomics import load as load_shared
from nmpsim.kernels.atomics import store as store_shared
from nmpsim.kernels.jit import jit
from nmpsim.kernels.kept_weights import FIRSTS, PLACES, STARTS_BYTES, STATE, STEP, kept_at
from nmpsim.kernels.vector_code import (
    I64,
    Loop,
    ahead,
    constant,
    declared,
    function_of,
    load,
    store,
    vector,
)

_MOST, _MOST_OF_PAIRS = 128, 258
"""What two weights of a sign may be together: 255 times as much fits 16 bits; what four may be, of
which 127 times as much does."""
_BYTES, _PAIRS, _SUMS = vector(8, 32), vector(16, 16), vector(32, 8)
_NO_SUMS = ir.Constant(_SUMS, None)
_ONE_BYTES, _ONE_PAIRS = ir.Constant(_BYTES, [1] * 32), ir.Constant(_PAIRS, [1] * 16)


def _add_pairs(b: ir.IRBuilder, unsigned: ir.Value, signed: ir.Value) -> Any:
    kind = ir.FunctionType(_PAIRS, [_BYTES, _BYTES])
    return b.call(declared(b, kind, "llvm.x86.avx2.pmadd.ub.sw"), [unsigned, signed])


def _add_fours(b: ir.IRBuilder, pairs: ir.Value) -> Any:
    kind = ir.FunctionType(_SUMS, [_PAIRS, _PAIRS])
    return b.call(declared(b, kind, "llvm.x86.avx2.pmadd.wd"), [pairs, _ONE_PAIRS])


def _larger(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    return b.select(b.icmp_signed(">", one, other), one, other)


def _of_a_sign(b: ir.IRBuilder, value: ir.Value) -> list[Any]:
    """Sums of two positive weights, and of two negative ones, as positive numbers."""
    positive = _larger(b, value, ir.Constant(_BYTES, None))
    return [_add_pairs(b, part, _ONE_BYTES) for part in (positive, b.sub(positive, value))]


def _is_beyond(b: ir.IRBuilder, sums: list[Any], most: int) -> Any:
    beyond = b.icmp_signed(">", _larger(b, *sums), ir.Constant(_PAIRS, [most] * 16))
    return b.icmp_unsigned("!=", b.bitcast(beyond, ir.IntType(16)), ir.IntType(16)(0))


def _emit_pack_halves(
    b: ir.IRBuilder,
    weights: ir.Value,
    steps: ir.Value,
    packed: ir.Value,
    rests: ir.Value,
    places: ir.Value,
    starts: ir.Value,
) -> Any:
    """Weights of a block for inputs of 0 to 255, the rests of what is halved and the inputs that
    they belong to, and minus 128 times each lane's sum; the number of rests."""
    loop = Loop(b, steps, [constant(0), constant(0), constant(0), *[_NO_SUMS] * 2])
    step, *after = loop.values
    for side in range(2):
        at = ahead(b, b.mul(step, constant(STEP)), 32 * side)
        value = load(b, b.add(weights, at), _BYTES, 1)
        is_beyond = _is_beyond(b, _of_a_sign(b, value), _MOST)
        half = b.select(is_beyond, b.ashr(value, ir.Constant(_BYTES, [1] * 32)), value)
        store(b, half, b.add(packed, at), 1)
        to = rests, places, after[side], side
        after[side] = _put_rest(b, *to, b.sub(value, half), step, is_beyond)
        sums = _add_fours(b, _add_pairs(b, _ONE_BYTES, value))
        after[2 + side] = b.add(after[2 + side], sums)
    _, *after = loop.end([b.add(step, constant(1)), *after])
    for side in range(2):
        scaled = b.sub(_NO_SUMS, b.shl(after[2 + side], ir.Constant(_SUMS, [7] * 8)))
        store(b, scaled, ahead(b, starts, 32 * side), 4)
    return _complete_rests(b, rests, places, after[:2])


def _emit_pack_pairs(
    b: ir.IRBuilder,
    weights: ir.Value,
    steps: ir.Value,
    packed: ir.Value,
    rests: ir.Value,
    places: ir.Value,
    starts: ir.Value,
) -> Any:
    """Weights of a block for inputs of 0 to 127, two steps at a time, the rests of what is too
    large together and the inputs that they belong to; the number of rests."""
    zero = ir.Constant(_BYTES, None)
    none = [constant(0)] * 3
    loop = Loop(b, b.lshr(steps, constant(1)), none, may_be_empty=True)
    step, *after = loop.values
    for side in range(2):
        at = ahead(b, b.mul(step, constant(STEP)), 32 * side)
        first, second = (
            load(b, ahead(b, b.add(weights, at), STEP * n), _BYTES, 1) for n in range(2)
        )
        both = zip(_of_a_sign(b, first), _of_a_sign(b, second), strict=True)
        is_beyond = _is_beyond(b, [b.add(*two) for two in both], _MOST_OF_PAIRS)
        kept = b.select(is_beyond, zero, second)
        store(b, first, b.add(packed, at), 1)
        store(b, kept, ahead(b, b.add(packed, at), STEP), 1)
        to = rests, places, after[side], side
        following = b.add(step, constant(1))
        after[side] = _put_rest(b, *to, b.sub(second, kept), following, is_beyond)
    step, *after = loop.end([b.add(step, constant(2)), *after])
    lone = Loop(b, b.and_(steps, constant(1)), [b.mul(step, constant(STEP))], may_be_empty=True)
    (at,) = lone.values
    for side in range(2):
        here = ahead(b, at, 32 * side)
        store(b, load(b, b.add(weights, here), _BYTES, 1), b.add(packed, here), 1)
        store(b, zero, ahead(b, b.add(packed, here), STEP), 1)
    lone.end([at])
    for side in range(2):
        store(b, _NO_SUMS, ahead(b, starts, 32 * side), 4)
    return _complete_rests(b, rests, places, after)


def _put_rest(
    b: ir.IRBuilder,
    rests: ir.Value,
    places: ir.Value,
    count: ir.Value,
    side: int,
    value: ir.Value,
    step: ir.Value,
    is_one: ir.Value,
) -> Any:
    """Put down a side's rest of a step, if it is one; how many there are then."""
    rest, place = _rest_at(b, rests, places, count, side)
    store(b, value, rest, 1)
    store(b, b.mul(step, constant(4)), place, 8)
    return b.add(count, b.zext(is_one, I64))


def _complete_rests(
    b: ir.IRBuilder, rests: ir.Value, places: ir.Value, counts: list[ir.Value]
) -> Any:
    """The number of rests. Each is that of one step on the left, and of another on the right: a
    side that has fewer gets zeros."""
    count = _larger(b, *counts)
    for side, had in enumerate(counts):
        rest, place = _rest_at(b, rests, places, had, side)
        lacking = Loop(b, b.sub(count, had), [rest, place], may_be_empty=True)
        rest, place = lacking.values
        store(b, ir.Constant(_BYTES, None), rest, 1)
        store(b, constant(0), place, 8)
        lacking.end([b.add(rest, constant(STEP)), b.add(place, constant(PLACES))])
    return count


def _rest_at(
    b: ir.IRBuilder, rests: ir.Value, places: ir.Value, count: ir.Value, side: int
) -> tuple[Any, Any]:
    """Addresses of one side's rest and of its place."""
    rest = ahead(b, b.add(rests, b.mul(count, constant(STEP))), 32 * side)
    return rest, ahead(b, b.add(places, b.mul(count, constant(PLACES))), 8 * side)


_pack_halves: Any = function_of("pack_halves_avx2", _emit_pack_halves)
_pack_pairs: Any = function_of("pack_pairs_avx2", _emit_pack_pairs)

_NOTHING: Any = np.int64(0)
_BEGUN: Any = np.int64(1)
THERE: Any = np.int64(2)
NEVER: Any = np.int64(3)
"""States: a thread packs the weights; they are packed; they shall not be."""


@jit
def clear_kept_avx2(kept: Int64s) -> None:
    """Nothing is kept there; it is not worth while to pack weights that can be read in place."""
    kept[STATE] = NEVER
    kept[kept.size >> 1] = _NOTHING


@jit
def _is_mine(state: Int) -> Any:
    """True if this thread shall pack the weights; else another one has done so."""
    if replace(state, _NOTHING, _BEGUN):
        return True
    while load_shared(state) != THERE:
        give_way()
    return False


@jit
def pack_blocks(weights: Int, steps: Int, blocks: Int, kept: Int64s, in_pairs: bool) -> None:
    """Pack the weights at an address, unless another thread does."""
    k = kept_at(np.int64(kept.ctypes.data), blocks, 4 * steps)
    if not _is_mine(k.state):
        return
    rests, stride = np.int64(0), (k.rests - k.packed) // blocks
    for block in range(blocks):
        kept[FIRSTS + block] = rests
        taken = (weights + block * steps * STEP, steps, k.packed + block * stride)
        places, starts = k.places + rests * PLACES, k.starts + block * STARTS_BYTES
        given = (*taken, k.rests + rests * STEP, places, starts)
        rests += _pack_pairs(given) if in_pairs else _pack_halves(given)
    kept[FIRSTS + blocks] = rests
    store_shared(k.state, THERE)
