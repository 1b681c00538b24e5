"""Sums of products of a few pixels with many channels at once.

Weights are read where the instruction set has them, ``[channels/16][rows][runs][bytes/4][16][4]``;
inputs, too: a pixel is an offset, from which its rows and runs of bytes are at the same strides.
A register block is some pixels by some blocks of weights.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numba
import numpy as np
from llvmlite import ir

from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.cpu_features import FLAVOUR
from nmpsim.kernels.jit import jit
from nmpsim.kernels.microkernel_amx import clear_room_amx, products_amx, room_words_amx
from nmpsim.kernels.microkernel_avx2 import clear_room_avx2, products_avx2, room_words_avx2
from nmpsim.kernels.microkernel_sdot import Sdot
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
    pick,
    splat,
    store,
    vector,
)
from nmpsim.kernels.weights_avx2 import clear_kept_avx2
from nmpsim.kernels.workspace_size import MAX_PIXELS

_BYTES, _HALF_BYTES = vector(8, 4 * LANES), vector(8, 2 * LANES)
_PAIRS, _PRODUCTS, _SUMS = vector(16, 2 * LANES), vector(32, 2 * LANES), vector(32)


class _Vnni:
    """Four products of unsigned and signed bytes added to each lane by one instruction.

    Weights are made unsigned by adding 128, so a pixel's inputs are added 128 times too often: its
    excess. Inputs stay as they are, because they are read again and again.
    """

    shapes: ClassVar = {4: (1, 2, 3, 4, 5), 2: (4, 5, 6, 7), 1: (7,)}
    """Blocks -> pixels. Of eight sums, none waits for its last product; 24 leave LLVM too few
    registers for inputs that it loads ahead."""
    sums: ClassVar = (_SUMS,)
    """Types of the vectors that hold the sums of one pixel and one block."""
    has_excess = True

    @staticmethod
    def weights(b: ir.IRBuilder, address: ir.Value) -> list[Any]:
        return [b.add(load(b, address, _BYTES, 1), ir.Constant(_BYTES, [-128] * 4 * LANES))]

    @staticmethod
    def inputs(b: ir.IRBuilder, address: ir.Value) -> Any:
        return splat(b, load(b, address, I32, 1), LANES)

    @staticmethod
    def add(b: ir.IRBuilder, sums: list[Any], weights: list[Any], inputs: ir.Value) -> list[Any]:
        return [_dot(b, sums[0], weights[0], inputs)]

    @staticmethod
    def total(b: ir.IRBuilder, sums: list[Any], excess: ir.Value) -> Any:
        return b.sub(sums[0], splat(b, load(b, excess, I32, 4), LANES))


class _Portable:
    """Bytes widened to 16 bits, multiplied and added in twos.

    LLVM makes ``vpmaddwd`` or its like of it on any processor that has one.
    """

    shapes: ClassVar = {1: (1, 2)}
    """The sums of one pixel and one block fill eight registers of 128 bits."""
    sums: ClassVar = (_SUMS, _SUMS)
    has_excess = False

    @staticmethod
    def weights(b: ir.IRBuilder, address: ir.Value) -> list[Any]:
        halves = [ahead(b, address, 2 * LANES * side) for side in range(2)]
        return [b.sext(load(b, half, _HALF_BYTES, 1), _PAIRS) for half in halves]

    @staticmethod
    def inputs(b: ir.IRBuilder, address: ir.Value) -> Any:
        four = b.sext(load(b, address, vector(8, 4), 1), vector(16, 4))
        return b.bitcast(splat(b, b.bitcast(four, I64), LANES // 2), _PAIRS)

    @staticmethod
    def add(b: ir.IRBuilder, sums: list[Any], weights: list[Any], inputs: ir.Value) -> list[Any]:
        wide = b.sext(inputs, _PRODUCTS)
        products = [b.mul(b.sext(half, _PRODUCTS), wide) for half in weights]
        return [
            b.add(total, _add_in_twos(b, product, product))
            for total, product in zip(sums, products, strict=True)
        ]

    @staticmethod
    def total(b: ir.IRBuilder, sums: list[Any], _: ir.Value) -> Any:
        return _add_in_twos(b, *sums)


def _dot(b: ir.IRBuilder, sums: ir.Value, unsigned: ir.Value, signed: ir.Value) -> Any:
    """Four products of bytes added to each sum; as LLVM 14 declares it, and later ones take it."""
    function = declared(b, ir.FunctionType(_SUMS, [_SUMS] * 3), "llvm.x86.avx512.vpdpbusd.512")
    return b.call(function, [sums, b.bitcast(unsigned, _SUMS), signed])


def _add_in_twos(b: ir.IRBuilder, vector: ir.Value, other: ir.Value) -> Any:
    """Sums of neighbours in two vectors, first those of the first one; as many as lanes."""
    even = pick(b, vector, other, list(range(0, 2 * LANES, 2)))
    odd = pick(b, vector, other, list(range(1, 2 * LANES, 2)))
    return b.add(even, odd)


_flavour: Any = {"vnni": _Vnni, "sdot": Sdot}.get(FLAVOUR, _Portable)


def emit_block(
    b: ir.IRBuilder,
    flavour: Any,
    pixels: int,
    blocks: int,
    offsets: ir.Value,
    base: ir.Value,
    rows: ir.Value,
    row_stride: ir.Value,
    runs: ir.Value,
    run_stride: ir.Value,
    fours: ir.Value,
    weights: ir.Value,
    block_stride: ir.Value,
    out: ir.Value,
    out_stride: ir.Value,
    excess: ir.Value,
) -> None:
    """Sums of one register block, with a flavour's instructions."""
    parts = len(flavour.sums)
    corners = [b.add(base, load(b, ahead(b, offsets, 8 * p), I64, 8)) for p in range(pixels)]
    zeros = [ir.Constant(kind, None) for kind in flavour.sums] * (pixels * blocks)
    over_rows = Loop(b, rows, [constant(0), weights, *zeros])
    over_runs = Loop(b, runs, over_rows.values)
    over_fours = Loop(b, fours, over_runs.values)
    at, where, *sums = over_fours.values
    block = [flavour.weights(b, ahead(b, where, n, block_stride)) for n in range(blocks)]
    added = []
    for p in range(pixels):
        inputs = flavour.inputs(b, b.add(corners[p], at))
        for n in range(blocks):
            first = (p * blocks + n) * parts
            added += flavour.add(b, sums[first : first + parts], block[n], inputs)
    last = over_fours.end([b.add(at, constant(4)), b.add(where, constant(4 * LANES)), *added])
    last = over_runs.end([b.add(over_runs.values[0], run_stride), *last[1:]])
    last = over_rows.end([b.add(over_rows.values[0], row_stride), *last[1:]])
    sums = last[2:]
    for p in range(pixels):
        for n in range(blocks):
            first = (p * blocks + n) * parts
            to = ahead(b, ahead(b, out, p, out_stride), 4 * LANES * n)
            total = flavour.total(b, sums[first : first + parts], ahead(b, excess, 4 * p))
            store(b, total, to, 4)


def _emit_products(b: ir.IRBuilder, pixels: ir.Value, blocks: ir.Value, *where: ir.Value) -> Any:
    """Sums of a register block of one of the flavour's shapes."""
    done = b.append_basic_block("done")
    choice = b.switch(b.add(b.mul(blocks, constant(MAX_PIXELS)), pixels), done)
    for n, p in ((n, p) for n, many in _flavour.shapes.items() for p in many):
        shape = b.append_basic_block("shape")
        choice.add_case(constant(n * MAX_PIXELS + p), shape)
        b.position_at_end(shape)
        emit_block(b, _flavour, p, n, *where)
        b.branch(done)
    b.position_at_end(done)
    return constant(0)


def _emit_excess(
    b: ir.IRBuilder,
    offsets: ir.Value,
    base: ir.Value,
    rows: ir.Value,
    row_stride: ir.Value,
    runs: ir.Value,
    run_stride: ir.Value,
    fours: ir.Value,
    out: ir.Value,
) -> Any:
    """128 times the sum of some pixels' inputs, with what is read after a run."""
    lanes, zeros = ir.Constant(_SUMS, list(range(LANES))), [ir.Constant(_SUMS, None)] * AT_ONCE
    corners = [b.add(base, load(b, ahead(b, offsets, 8 * p), I64, 8)) for p in range(AT_ONCE)]
    chunks = b.lshr(b.add(fours, constant(LANES - 1)), constant(4))
    over_rows = Loop(b, rows, [constant(0), *zeros])
    over_runs = Loop(b, runs, over_rows.values)
    over_chunks = Loop(b, chunks, [over_runs.values[0], fours, *over_runs.values[1:]])
    at, left, *totals = over_chunks.values
    there = b.icmp_unsigned("<", lanes, splat(b, b.trunc(left, I32), LANES))
    ones = ir.Constant(_BYTES, [1] * 4 * LANES)
    added = [
        _dot(b, total, ones, _load_some(b, b.add(corner, at), there))
        for total, corner in zip(totals, corners, strict=True)
    ]
    after = [b.add(at, constant(4 * LANES)), b.sub(left, constant(LANES)), *added]
    totals = over_chunks.end(after)[2:]
    totals = over_runs.end([b.add(over_runs.values[0], run_stride), *totals])[1:]
    totals = over_rows.end([b.add(over_rows.values[0], row_stride), *totals])[1:]
    while len(totals) > 1:
        totals = [_add_in_twos(b, *two) for two in zip(totals[::2], totals[1::2], strict=True)]
    total = _add_in_twos(b, totals[0], totals[0])
    lone = pick(b, total, total, list(range(AT_ONCE)))
    store(b, b.shl(lone, ir.Constant(lone.type, [7] * AT_ONCE)), out, 4)
    return constant(0)


def _load_some(b: ir.IRBuilder, address: ir.Value, there: ir.Value) -> Any:
    """Lanes of 32 bits, 0 where a lane of the mask is not set."""
    pointer = b.inttoptr(address, _SUMS.as_pointer())
    kind = ir.FunctionType(_SUMS, [pointer.type, I32, there.type, _SUMS])
    taken = declared(b, kind, "llvm.masked.load.v16i32.p0")
    return b.call(taken, [pointer, ir.Constant(I32, 1), there, ir.Constant(_SUMS, None)])


AT_ONCE = 8
"""Pixels whose inputs are summed up in one call."""
_HAS_EXCESS = _flavour.has_excess
_excess: Any = function_of("excess", _emit_excess)
_products: Any = function_of("products", _emit_products)


def _first_shape(pixels: int, blocks: int) -> tuple[int, int]:
    """Pixels and blocks of the register block to begin with, if these are left.

    It has as many blocks as still let it take all pixels, or else the most; the pixels are shared
    out evenly.
    """
    shapes = {n: many for n, many in _flavour.shapes.items() if n <= blocks}
    most = {n: min(many[-1], pixels) for n, many in shapes.items()}
    n = max(most, key=lambda n: (most[n], n))
    parts = -(-pixels // most[n])
    return next(p for p in shapes[n] if p * parts >= pixels), n


_MAX_BLOCKS = max(_flavour.shapes)
_FIRST = np.array(
    [[_first_shape(p, n) for n in range(1, _MAX_BLOCKS + 1)] for p in range(1, MAX_PIXELS + 1)],
    np.int64,
)
"""Pixels left, from 1 on; blocks left, from 1 to _MAX_BLOCKS; pixels and blocks to begin with."""


def _products_compiled(
    inputs: Int8s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    weights: Int8s,
    start: Int,
    pixels: Int,
    out: Int32s,
    excess: Int32s,
    _: Int64s,
    __: Int64s,
) -> None:
    rows, runs = np.int64(window.rows), np.int64(window.runs)
    row_stride, run_stride = np.int64(window.row_stride), np.int64(window.run_stride)
    fours = np.int64((window.length + 3) >> 2)
    where = (np.int64(inputs.ctypes.data) + base, rows, row_stride, runs, run_stride, fours)
    stride = rows * runs * fours * (4 * LANES)
    pixel = np.int64(offsets.ctypes.data)
    too_many = np.int64(excess.ctypes.data)
    if _HAS_EXCESS:
        for first in range(0, pixels, AT_ONCE):
            _excess((pixel + 8 * first, *where, too_many + 4 * first))
    block = np.int64(weights.ctypes.data) + start
    to, row = np.int64(out.ctypes.data), 4 * np.int64(out.shape[1])
    left = np.int64(out.shape[1]) // LANES
    while left > 0:
        blocks = _FIRST[pixels - 1, min(left, _MAX_BLOCKS) - 1, 1]
        p = np.int64(0)
        while p < pixels:
            asked = (pixel + 8 * p, *where, block, stride, to + p * row, row, too_many + 4 * p)
            taken = _FIRST[pixels - p - 1, blocks - 1, 0]
            _products((taken, blocks, *asked))
            p += taken
        left -= blocks
        block += blocks * stride
        to += blocks * (4 * LANES)


def _products_in_numpy(
    inputs: Int8s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    weights: Int8s,
    start: Int,
    pixels: Int,
    out: Int32s,
    _: Int32s,
    __: Int64s,
    ___: Int64s,
) -> None:
    whole = (window.length + 3) // 4 * 4
    taps = window.rows * window.runs * whole
    blocks = weights[start : start + out.shape[1] * taps].reshape(-1, taps // 4, LANES, 4)
    lanes = blocks.transpose(0, 2, 1, 3).reshape(-1, taps).astype(np.int64)
    for p in range(pixels):
        corner = base + offsets[p]
        runs = [
            inputs[corner + row * window.row_stride + run * window.run_stride :][:whole]
            for row in range(window.rows)
            for run in range(window.runs)
        ]
        out[p] = lanes @ np.concatenate(runs).astype(np.int64)


@jit
def _no_words(blocks: Int, depth: Int) -> Any:
    return 0 * blocks * depth


@jit
def _nothing_to_clear(room: Int64s) -> None:
    pass


_own: Any = {
    "amx": (products_amx, room_words_amx, clear_room_amx, _nothing_to_clear),
    "avx2": (products_avx2, room_words_avx2, clear_room_avx2, clear_kept_avx2),
}
_plain = _products_in_numpy if numba.config.DISABLE_JIT else jit(_products_compiled)
_nothing = (_no_words, _nothing_to_clear, _nothing_to_clear)
_taken = "" if numba.config.DISABLE_JIT else FLAVOUR
products, room_words, clear_room, clear_kept = _own.get(_taken, (_plain, *_nothing))
"""Four functions.

``products(inputs, base, offsets, window, weights, start, pixels, out, excess, room, kept)``:
``out[p, lane]`` = products of a pixel's window with a lane's weights, summed up modulo 2^32.

inputs int8, from byte ``base``; offsets int64 in bytes, the last one repeated to MAX_PIXELS;
weights int8, blocks from byte ``start``; out int32 [MAX_PIXELS, blocks * 16], of which rows after
``pixels`` may be written; excess int32 [MAX_PIXELS] and room int64, to work in; kept int64, what is
made of these weights, for several threads at the same time.

``room_words(blocks, depth)``: size of a room for some blocks of weights, of ``depth`` inputs in
each lane. ``clear_room(room)`` before the first products with other weights.

``clear_kept(kept)`` before the first products with other weights, unless it holds zeros;
``kept_words`` says how many.
"""
