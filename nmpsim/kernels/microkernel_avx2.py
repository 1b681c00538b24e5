"""Sums of products of a few pixels with sixteen channels at once, with the instructions of AVX2.

``vpmaddubsw`` multiplies unsigned inputs by signed weights and adds the products in twos, but only
16 bits hold a sum of two. Inputs of 0 to 127 never leave them. Others are made unsigned by adding
128, which each lane's sum begins without. Then two weights of a sign must be no more than 128
together: where those of a side's step are more, it is done in two halves, the second one later.

Of inputs of 0 to 127, 16 bits also hold two steps together where four weights of a sign are no more
than 258: then the second step is done later where they are more.

Weights are packed for that when they are met with such inputs: those of a whole layer once, by one
of the threads that want them.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir

from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.atomics import load as load_shared
from nmpsim.kernels.jit import jit
from nmpsim.kernels.kept_weights import FIRSTS, PLACES, STARTS_BYTES, STEP, kept_at
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.vector_code import (
    I32,
    I64,
    LANES,
    Loop,
    ahead,
    constant,
    function_of,
    load,
    splat,
    store,
    vector,
)
from nmpsim.kernels.weights_avx2 import NEVER, THERE, pack_blocks
from nmpsim.kernels.workspace_size import MAX_PIXELS

PIXELS = 6
"""Their sums, of sixteen channels, fill twelve of the sixteen registers."""
PATCH_BYTES = 3 << 16
"""Room for the windows of pixels; more would leave the host's nearer caches."""
PAIR_PIXELS = 5
"""Pixels that are done at once two steps at a time: their sums, and what else is needed."""
_BYTES, _PAIRS, _SUMS = vector(8, 32), vector(16, 16), vector(32, 8)


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
_TWO_STEPS = (
    "vpbroadcastd ($3,$4), %ymm12\n"
    "vpbroadcastd 4($3,$4), %ymm13\n"
    "vpmaddubsw ($5), %ymm12, %ymm14\n"
    "vpmaddubsw 64($5), %ymm13, %ymm15\n"
    "vpmaddubsw 32($5), %ymm12, %ymm12\n"
    "vpmaddubsw 96($5), %ymm13, %ymm13\n"
    "vpaddw %ymm15, %ymm14, %ymm14\n"
    "vpaddw %ymm13, %ymm12, %ymm12\n"
    "vpmaddwd $2, %ymm14, %ymm14\n"
    "vpmaddwd $2, %ymm12, %ymm12\n"
    "vpaddd %ymm14, $0, $0\n"
    "vpaddd %ymm12, $1, $1"
)
_TWO_CONSTRAINTS = "=x,=x,x,r,r,r,0,1,~{ymm12},~{ymm13},~{ymm14},~{ymm15},~{memory}"


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


def _add_two_steps(
    b: ir.IRBuilder,
    sums: list[Any],
    corners: list[Any],
    at: ir.Value,
    weights: ir.Value,
    ones: ir.Value,
) -> list[Any]:
    """Eight inputs of each pixel times two steps of weights."""
    kind = ir.FunctionType(
        ir.LiteralStructType([_SUMS, _SUMS]), [_PAIRS, I64, I64, I64, _SUMS, _SUMS]
    )
    llvmlite.binding.initialize_native_asmparser()
    added = []
    for p, corner in enumerate(corners):
        given = [ones, corner, at, weights, *sums[2 * p : 2 * p + 2]]
        both = b.asm(kind, _TWO_STEPS, _TWO_CONSTRAINTS, given, side_effect=True)
        added += [b.extract_value(both, side) for side in range(2)]
    return added


def _emit_block(
    b: ir.IRBuilder,
    pixels: int,
    in_pairs: bool,
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
    loaded = load(b, ones, _PAIRS, 8)
    turn = 2 if in_pairs else 1
    turns = b.lshr(b.add(depth, constant(4 * turn - 4)), constant(1 + turn))
    steps = Loop(b, turns, [constant(0), weights, *(begin * pixels)])
    at, where, *sums = steps.values
    if in_pairs:
        added = _add_two_steps(b, sums, corners, at, where, loaded)
    else:
        added = _add_step(b, sums, corners, [at], where, ones)
    after = [b.add(at, constant(4 * turn)), b.add(where, constant(STEP * turn)), *added]
    _, _, *sums = steps.end(after)
    halved = Loop(b, count, [places, rests, *sums], may_be_empty=True)
    place, where, *sums = halved.values
    own = [load(b, ahead(b, place, 8 * side), I64, 8) for side in range(2)]
    added = _add_step(b, sums, corners, own, where, ones)
    after = [b.add(place, constant(PLACES)), b.add(where, constant(STEP)), *added]
    _, _, *sums = halved.end(after)
    for p in range(pixels):
        for side in range(2):
            to = ahead(b, ahead(b, out, p, out_stride), 32 * side)
            store(b, sums[2 * p + side], to, 4)


def _emit_products(b: ir.IRBuilder, pixels: ir.Value, in_pairs: ir.Value, *where: ir.Value) -> Any:
    """Sums of up to PIXELS pixels and one block, or of up to PAIR_PIXELS two steps at a time."""
    done = b.append_basic_block("done")
    choice = b.switch(b.add(pixels, b.mul(in_pairs, constant(PIXELS))), done)
    shapes = [(p, False) for p in range(1, PIXELS + 1)]
    shapes += [(p, True) for p in range(1, PAIR_PIXELS + 1)]
    for p, is_paired in shapes:
        shape = b.append_basic_block("shape")
        choice.add_case(constant(p + PIXELS * is_paired), shape)
        b.position_at_end(shape)
        _emit_block(b, p, is_paired, *where)
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


_products: Any = function_of("products_avx2", _emit_products)
_gather: Any = function_of("gather_avx2", _emit_gather)

_ONES, _ZEROS, _PATCHES = 0, 4, 12
"""Words of the room: sixteen ones of 16 bits; sixteen zeros of 32 bits, with which sums begin where
no input is negative; windows of pixels."""
_ALL_ONES: Any = np.int64(0x0001_0001_0001_0001)
_SIGNS: Any = np.int64(0x8080_8080)
"""The sign of each of four inputs."""


@jit
def _most_at_once(depth: Int) -> Any:
    """Pixels for whose windows a room is large enough."""
    return min(max(PATCH_BYTES // depth // PIXELS, 1) * PIXELS, MAX_PIXELS)


@jit
def _at_once(pixels: Int, depth: Int) -> Any:
    """Pixels whose windows are in the room at a time: even shares of all of them."""
    most = _most_at_once(depth)
    shares = (pixels + most - 1) // most
    return min(((pixels + shares - 1) // shares + PIXELS - 1) // PIXELS * PIXELS, most)


@jit
def room_words_avx2(_: Int, depth: Int) -> Any:
    """64-bit words to work in, for windows of ``depth`` inputs."""
    return _PATCHES + ((_most_at_once(depth) * depth + 7) >> 3) + 1


@jit
def clear_room_avx2(room: Int64s) -> None:
    """Make a room ready."""
    room[_ONES:_ZEROS] = _ALL_ONES
    room[_ZEROS:_PATCHES] = 0


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
    of_pairs, of_halves = kept[: kept.size >> 1], kept[kept.size >> 1 :]
    pairs = kept_at(np.int64(of_pairs.ctypes.data), blocks, 4 * steps)
    halves = kept_at(np.int64(of_halves.ctypes.data), blocks, 4 * steps)
    at_once = _at_once(pixels, 4 * steps)
    for first in range(0, pixels, at_once):
        count = min(at_once, pixels - first)
        windows = (np.int64(count), np.int64(offsets.ctypes.data) + 8 * first, *where)
        is_any = load_shared(halves.state) == THERE
        signs = _SIGNS if is_any else np.int64(0)
        if _gather((*windows, signs, patches)) != 0 and not is_any:
            pack_blocks(original, steps, blocks, of_halves, False)
            is_any = True
            _gather((*windows, _SIGNS, patches))
        in_pairs = not is_any and load_shared(pairs.state) != NEVER
        if in_pairs and load_shared(pairs.state) != THERE:
            pack_blocks(original, steps, blocks, of_pairs, True)
        k, own = (pairs, of_pairs) if in_pairs else (halves, of_halves)
        most = PAIR_PIXELS if in_pairs else PIXELS
        kind = np.int64(1) if in_pairs else np.int64(0)
        for block in range(blocks):
            block_at, starts = original + block * steps * STEP, at + 8 * _ZEROS
            rests, before = np.int64(0), np.int64(0)
            if in_pairs or is_any:
                block_at = k.packed + block * ((k.rests - k.packed) // blocks)
                starts = k.starts + block * STARTS_BYTES
                before = own[FIRSTS + block]
                rests = own[FIRSTS + block + 1] - before
            of_block = (block_at, starts, rests)
            halved = (k.places + before * PLACES, k.rests + before * STEP)
            to = np.int64(out.ctypes.data) + 4 * (first * out.shape[1] + block * LANES)
            p, row = np.int64(0), 4 * np.int64(out.shape[1])
            while p < count:
                left = count - p
                taken = left // ((left + most - 1) // most)
                patch = patches + p * 4 * steps
                written = (to + p * row, row, at + 8 * _ONES)
                _products((taken, kind, patch, 4 * steps, *of_block, *halved, *written))
                p += taken
