"""Sums of products of a few pixels with sixteen channels at once, with the instructions of AVX2.

``vpmaddubsw`` multiplies unsigned inputs by signed weights and adds the products in twos, but only
16 bits hold a sum of two. Inputs of 0 to 127 never leave them. Others are made unsigned by adding
128, which each lane's sum begins without. Then two weights of a sign must be no more than 128
together: where those of a side's step are more, it is done in two halves, the second one later.

Weights are packed for that once, when the first negative input is met, by one of the threads that
want them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.binding
import numpy as np
from llvmlite import ir

from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.atomics import give_way, replace
from nmpsim.kernels.atomics import load as load_shared
from nmpsim.kernels.atomics import store as store_shared
from nmpsim.kernels.jit import jit, jit_pure
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.vector_code import (
    I32,
    I64,
    LANES,
    Loop,
    ahead,
    constant,
    declared,
    function_of,
    load,
    splat,
    store,
    vector,
)
from nmpsim.kernels.workspace_size import MAX_PIXELS

PIXELS = 6
"""Their sums, of sixteen channels, fill twelve of the sixteen registers."""
PATCH_BYTES = 3 << 16
"""Room for the windows of pixels; more would leave the host's nearer caches."""
STEP = 4 * LANES
"""Bytes of weights of four inputs: those of eight channels are on each side."""
_PLACES = 16
"""Bytes of the two places of a rest."""
_MOST = 128
"""What two weights of a sign may be together: 255 times as much fits 16 bits."""
_BYTES, _PAIRS, _SUMS = vector(8, 32), vector(16, 16), vector(32, 8)
_ONE_BYTES, _ONE_PAIRS = ir.Constant(_BYTES, [1] * 32), ir.Constant(_PAIRS, [1] * 16)


def _add_pairs(b: ir.IRBuilder, unsigned: ir.Value, signed: ir.Value) -> Any:
    kind = ir.FunctionType(_PAIRS, [_BYTES, _BYTES])
    return b.call(declared(b, kind, "llvm.x86.avx2.pmadd.ub.sw"), [unsigned, signed])


def _add_fours(b: ir.IRBuilder, pairs: ir.Value) -> Any:
    kind = ir.FunctionType(_SUMS, [_PAIRS, _PAIRS])
    return b.call(declared(b, kind, "llvm.x86.avx2.pmadd.wd"), [pairs, _ONE_PAIRS])


def _larger(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    return b.select(b.icmp_signed(">", one, other), one, other)


def _emit_pack(
    b: ir.IRBuilder,
    weights: ir.Value,
    steps: ir.Value,
    packed: ir.Value,
    rests: ir.Value,
    places: ir.Value,
    starts: ir.Value,
) -> Any:
    """Weights of a block that ``vpmaddubsw`` can take, the rests of what is halved and the inputs
    that they belong to, and minus 128 times each lane's sum; the number of rests.

    A rest is that of one step on the left, and of another one on the right.
    """
    nothing, zero = ir.Constant(_SUMS, None), ir.Constant(_BYTES, None)
    loop = Loop(b, steps, [constant(0), constant(0), constant(0), nothing, nothing])
    step, *after = loop.values
    for side in range(2):
        at = ahead(b, b.mul(step, constant(STEP)), 32 * side)
        value = load(b, b.add(weights, at), _BYTES, 1)
        positive = _larger(b, value, zero)
        pairs = [_add_pairs(b, part, _ONE_BYTES) for part in (positive, b.sub(positive, value))]
        beyond = b.icmp_signed(">", _larger(b, *pairs), ir.Constant(_PAIRS, [_MOST] * 16))
        is_beyond = b.icmp_unsigned("!=", b.bitcast(beyond, ir.IntType(16)), ir.IntType(16)(0))
        half = b.select(is_beyond, b.ashr(value, ir.Constant(_BYTES, [1] * 32)), value)
        store(b, half, b.add(packed, at), 1)
        rest, place = _rest_at(b, rests, places, after[side], side)
        store(b, b.sub(value, half), rest, 1)
        store(b, b.mul(step, constant(4)), place, 8)
        after[side] = b.add(after[side], b.zext(is_beyond, I64))
        after[2 + side] = b.add(after[2 + side], _add_fours(b, _add_pairs(b, _ONE_BYTES, value)))
    _, *after = loop.end([b.add(step, constant(1)), *after])
    count = _larger(b, after[0], after[1])
    for side in range(2):
        rest, place = _rest_at(b, rests, places, after[side], side)
        lacking = Loop(b, b.sub(count, after[side]), [rest, place], may_be_empty=True)
        rest, place = lacking.values
        store(b, zero, rest, 1)
        store(b, constant(0), place, 8)
        lacking.end([b.add(rest, constant(STEP)), b.add(place, constant(_PLACES))])
        scaled = b.sub(nothing, b.shl(after[2 + side], ir.Constant(_SUMS, [7] * 8)))
        store(b, scaled, ahead(b, starts, 32 * side), 4)
    return count


def _rest_at(
    b: ir.IRBuilder, rests: ir.Value, places: ir.Value, count: ir.Value, side: int
) -> tuple[Any, Any]:
    """Addresses of one side's rest and of its place."""
    rest = ahead(b, b.add(rests, b.mul(count, constant(STEP))), 32 * side)
    return rest, ahead(b, b.add(places, b.mul(count, constant(_PLACES))), 8 * side)


_SAME_INPUTS = "vpbroadcastd ($4,$5), %ymm14\nvpmaddubsw $2, %ymm14, %ymm15\n"
_OWN_INPUTS = (
    "vpbroadcastd ($4,$5), %ymm15\nvpbroadcastd ($4,$6), %ymm14\nvpmaddubsw $2, %ymm15, %ymm15\n"
)
"""Four inputs of a pixel, for the left side in ymm15, for the right one in ymm14."""
_PRODUCTS = (
    "vpmaddubsw $3, %ymm14, %ymm14\n"
    "vpmaddwd ($7), %ymm15, %ymm15\n"
    "vpmaddwd ($7), %ymm14, %ymm14\n"
    "vpaddd %ymm15, $0, $0\n"
    "vpaddd %ymm14, $1, $1"
)
_CONSTRAINTS = "=x,=x,x,x,r,r,r,r,0,1,~{ymm14},~{ymm15},~{memory}"


def _add_step(
    b: ir.IRBuilder,
    sums: list[Any],
    corners: list[Any],
    at: list[Any],
    weights: ir.Value,
    ones: ir.Value,
) -> list[Any]:
    """Four inputs of each pixel times a step of weights; LLVM alone would spill registers.

    ``at`` is where the inputs of both sides are, or of each.
    """
    kind = ir.FunctionType(
        ir.LiteralStructType([_SUMS, _SUMS]), [_BYTES, _BYTES, I64, I64, I64, I64, _SUMS, _SUMS]
    )
    block = [load(b, ahead(b, weights, 32 * side), _BYTES, 1) for side in range(2)]
    llvmlite.binding.initialize_native_asmparser()  # for LLVM, which compiles it in this process
    code = (_SAME_INPUTS if len(at) == 1 else _OWN_INPUTS) + _PRODUCTS
    added = []
    for p, corner in enumerate(corners):
        given = [*block, corner, at[0], at[-1], ones, *sums[2 * p : 2 * p + 2]]
        both = b.asm(kind, code, _CONSTRAINTS, given, side_effect=True)
        added += [b.extract_value(both, side) for side in range(2)]
    return added


def _emit_block(
    b: ir.IRBuilder,
    pixels: int,
    patches: ir.Value,
    depth: ir.Value,
    weights: ir.Value,
    starts: ir.Value,
    count: ir.Value,
    places: ir.Value,
    rests: ir.Value,
    out: ir.Value,
    out_stride: ir.Value,
    ones: ir.Value,
) -> None:
    """Sums of some pixels and one block."""
    corners = [ahead(b, patches, p, depth) for p in range(pixels)]
    begin = [load(b, ahead(b, starts, 32 * side), _SUMS, 4) for side in range(2)]
    steps = Loop(b, b.lshr(depth, constant(2)), [constant(0), weights, *(begin * pixels)])
    at, where, *sums = steps.values
    added = _add_step(b, sums, corners, [at], where, ones)
    _, _, *sums = steps.end([b.add(at, constant(4)), b.add(where, constant(STEP)), *added])
    halved = Loop(b, count, [places, rests, *sums], may_be_empty=True)
    place, where, *sums = halved.values
    own = [load(b, ahead(b, place, 8 * side), I64, 8) for side in range(2)]
    added = _add_step(b, sums, corners, own, where, ones)
    after = [b.add(place, constant(_PLACES)), b.add(where, constant(STEP)), *added]
    _, _, *sums = halved.end(after)
    for p in range(pixels):
        for side in range(2):
            to = ahead(b, ahead(b, out, p, out_stride), 32 * side)
            store(b, sums[2 * p + side], to, 4)


def _emit_products(b: ir.IRBuilder, pixels: ir.Value, *where: ir.Value) -> Any:
    """Sums of up to PIXELS pixels and one block."""
    done = b.append_basic_block("done")
    choice = b.switch(pixels, done)
    for p in range(1, PIXELS + 1):
        shape = b.append_basic_block("shape")
        choice.add_case(constant(p), shape)
        b.position_at_end(shape)
        _emit_block(b, p, *where)
        b.branch(done)
    b.position_at_end(done)
    return constant(0)


def _emit_gather(
    b: ir.IRBuilder,
    pixels: ir.Value,
    offsets: ir.Value,
    base: ir.Value,
    rows: ir.Value,
    row_stride: ir.Value,
    runs: ir.Value,
    run_stride: ir.Value,
    fours: ir.Value,
    change: ir.Value,
    patches: ir.Value,
) -> Any:
    """Copy windows of pixels, each bit changed that ``change`` has, one after the other.

    Not 0 if one of the inputs is negative.
    """
    four = b.trunc(change, I32)
    turns: list[Loop] = [Loop(b, pixels, [offsets, patches, ir.Constant(_SUMS, None)])]
    offset, to, found = turns[0].values
    corner = b.add(base, load(b, offset, I64, 8))
    turns += [Loop(b, rows, [corner, to, found])]
    turns += [Loop(b, runs, turns[1].values)]
    run, to, found = turns[2].values
    large = Loop(b, b.lshr(fours, constant(3)), [run, to, found], may_be_empty=True)
    at, to, found = large.values
    values = load(b, at, _SUMS, 1)
    store(b, b.xor(values, splat(b, four, 8)), to, 1)
    after = [b.add(at, constant(32)), b.add(to, constant(32)), b.or_(found, values)]
    at, to, found = large.end(after)
    none = ir.Constant(I32, 0)
    small = Loop(b, b.and_(fours, constant(7)), [at, to, none], may_be_empty=True)
    at, to, some = small.values
    value = load(b, at, I32, 1)
    store(b, b.xor(value, four), to, 1)
    after = [b.add(at, constant(4)), b.add(to, constant(4)), b.or_(some, value)]
    _, to, some = small.end(after)
    found = b.or_(found, b.insert_element(ir.Constant(_SUMS, None), some, none))
    _, to, found = turns[2].end([b.add(run, run_stride), to, found])
    _, to, found = turns[1].end([b.add(turns[1].values[0], row_stride), to, found])
    _, _, found = turns[0].end([b.add(offset, constant(8)), to, found])
    signs = b.icmp_signed("<", b.bitcast(found, _BYTES), ir.Constant(_BYTES, None))
    return b.zext(b.bitcast(signs, I32), I64)


_pack: Any = function_of("pack_avx2", _emit_pack)
_products: Any = function_of("products_avx2", _emit_products)
_gather: Any = function_of("gather_avx2", _emit_gather)

_ONES, _ZEROS, _PATCHES = 0, 4, 12
"""Words of the room: sixteen ones of 16 bits; sixteen zeros of 32 bits, with which sums begin where
no input is negative; windows of pixels."""
_ALL_ONES: Any = np.int64(0x0001_0001_0001_0001)
_SIGNS: Any = np.int64(0x8080_8080)
"""The sign of each of four inputs."""
_STATE, _FIRSTS = 0, 1
"""Words of what is kept: whether it is there; how many rests come before those of each block. What
follows is ``_Kept``."""
_NOTHING: Any = np.int64(0)
_BEGUN: Any = np.int64(1)
_THERE: Any = np.int64(2)
"""States: a thread packs the weights; they are packed."""
_STARTS_BYTES = 4 * LANES


class _Kept(NamedTuple):
    """Addresses of what is made of weights."""

    starts: Int
    packed: Int
    rests: Int
    places: Int
    end: Int


def _kept_at(address: Int, blocks: Int, depth: Int) -> Any:
    """What is kept of some blocks of weights, of ``depth`` inputs each."""
    steps = blocks * (depth >> 2)
    starts = address + ((8 * (_FIRSTS + blocks + 1) + 63) & -64)
    packed = starts + blocks * _STARTS_BYTES
    rests = packed + steps * STEP
    places = rests + steps * STEP
    return _Kept(starts, packed, rests, places, places + steps * _PLACES)


def kept_words_avx2(blocks: Int, depth: Int) -> Any:
    """64-bit words for what is kept; few of them are ever touched."""
    return _kept_at(0, blocks, depth).end >> 3


jit_pure(_kept_at)
jit_pure(kept_words_avx2)


@jit
def _at_once(pixels: Int, depth: Int) -> Any:
    """Pixels whose windows are in the room at a time: even shares of all of them."""
    most = min(max(PATCH_BYTES // depth // PIXELS, 1) * PIXELS, MAX_PIXELS)
    shares = (pixels + most - 1) // most
    return min(((pixels + shares - 1) // shares + PIXELS - 1) // PIXELS * PIXELS, most)


@jit
def room_words_avx2(_: Int, depth: Int) -> Any:
    """64-bit words to work in, for windows of ``depth`` inputs."""
    return _PATCHES + ((_at_once(np.int64(MAX_PIXELS), depth) * depth + 7) >> 3)


@jit
def clear_room_avx2(room: Int64s) -> None:
    """Make a room ready."""
    room[_ONES:_ZEROS] = _ALL_ONES
    room[_ZEROS:_PATCHES] = 0


@jit
def clear_kept_avx2(kept: Int64s) -> None:
    """Nothing is kept there."""
    kept[_STATE] = _NOTHING


@jit
def _state_at(kept: Int64s) -> Any:
    return np.int64(kept.ctypes.data) + 8 * _STATE


@jit
def _pack_blocks(weights: Int, steps: Int, blocks: Int, kept: Int64s) -> None:
    """Pack the weights at an address, or wait until another thread has done so."""
    state = _state_at(kept)
    if not replace(state, _NOTHING, _BEGUN):
        while load_shared(state) != _THERE:
            give_way()
        return
    k = _kept_at(np.int64(kept.ctypes.data), blocks, 4 * steps)
    rests = np.int64(0)
    for block in range(blocks):
        kept[_FIRSTS + block] = rests
        taken = (weights + block * steps * STEP, steps, k.packed + block * steps * STEP)
        places = k.places + rests * _PLACES
        rests += _pack((*taken, k.rests + rests * STEP, places, k.starts + block * _STARTS_BYTES))
    kept[_FIRSTS + blocks] = rests
    store_shared(state, _THERE)


@jit
def products_avx2(
    inputs: Int8s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    weights: Int8s,
    start: Int,
    pixels: Int,
    out: Int32s,
    _: Int32s,
    room: Int64s,
    kept: Int64s,
) -> None:
    """See ``products`` of :mod:`~nmpsim.kernels.microkernel`."""
    rows, runs = np.int64(window.rows), np.int64(window.runs)
    row_stride, run_stride = np.int64(window.row_stride), np.int64(window.run_stride)
    fours = np.int64((window.length + 3) >> 2)
    where = (np.int64(inputs.ctypes.data) + base, rows, row_stride, runs, run_stride, fours)
    steps, blocks = rows * runs * fours, np.int64(out.shape[1]) // LANES
    original = np.int64(weights.ctypes.data) + start
    at = np.int64(room.ctypes.data)
    patches = at + 8 * _PATCHES
    k = _kept_at(np.int64(kept.ctypes.data), blocks, 4 * steps)
    at_once = _at_once(pixels, 4 * steps)
    for first in range(0, pixels, at_once):
        count = min(at_once, pixels - first)
        windows = (np.int64(count), np.int64(offsets.ctypes.data) + 8 * first, *where)
        is_packed = load_shared(_state_at(kept)) == _THERE
        signs = _SIGNS if is_packed else np.int64(0)
        if _gather((*windows, signs, patches)) != 0 and not is_packed:
            _pack_blocks(original, steps, blocks, kept)
            is_packed = True
            _gather((*windows, _SIGNS, patches))
        for block in range(blocks):
            block_at, starts = original, at + 8 * _ZEROS
            rests, before = np.int64(0), np.int64(0)
            if is_packed:
                block_at, starts = k.packed, k.starts + block * _STARTS_BYTES
                before = kept[_FIRSTS + block]
                rests = kept[_FIRSTS + block + 1] - before
            of_block = (block_at + block * steps * STEP, starts, rests)
            halved = (k.places + before * _PLACES, k.rests + before * STEP)
            to = np.int64(out.ctypes.data) + 4 * (first * out.shape[1] + block * LANES)
            p, row = np.int64(0), 4 * np.int64(out.shape[1])
            while p < count:
                left = count - p
                taken = left // ((left + PIXELS - 1) // PIXELS)
                patch = patches + p * 4 * steps
                written = (to + p * row, row, at + 8 * _ONES)
                _products((taken, patch, 4 * steps, *of_block, *halved, *written))
                p += taken
