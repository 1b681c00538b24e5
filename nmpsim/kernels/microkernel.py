"""Sums of products of a few pixels with many channels at once.

Weights are read where the instruction set has them, ``[channels/16][rows][runs][bytes/4][16][4]``;
inputs, too: a pixel is an offset, from which its rows and runs of bytes stand at the same strides.
A register block is some pixels by some blocks of weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir

from nmpsim.kernels.host import FLAVOUR
from nmpsim.kernels.jit import jit
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

_numba: Any = numba  # its types, where it ships any, do not know all that is used here
_BYTES, _HALF_BYTES = vector(8, 4 * LANES), vector(8, 2 * LANES)
_PAIRS, _PRODUCTS, _SUMS = vector(16, 2 * LANES), vector(32, 2 * LANES), vector(32)


class Window(NamedTuple):
    """A pixel's inputs: ``rows`` times ``runs`` runs of ``length`` bytes.

    What a run lacks to a multiple of four bytes is read, too: its weights are 0.
    """

    rows: Any
    row_stride: Any
    runs: Any
    run_stride: Any
    length: Any


class _Vnni:
    """Four products of unsigned and signed bytes added to each lane by one instruction.

    Weights are made unsigned by adding 128, so a pixel's inputs are added 128 times too often: its
    excess. Inputs stay as they are, because they are read again and again.
    """

    wide, narrow, lone = (6, 4), (12, 1), (1, 4)
    has_excess = True

    @staticmethod
    def weights(b: Any, address: Any) -> list[Any]:
        return [b.add(load(b, address, _BYTES, 1), ir.Constant(_BYTES, [-128] * 4 * LANES))]

    @staticmethod
    def inputs(b: Any, address: Any) -> Any:
        return splat(b, load(b, address, I32, 1), LANES)

    @staticmethod
    def add(b: Any, sums: list[Any], weights: list[Any], inputs: Any) -> list[Any]:
        return [_dot(b, sums[0], weights[0], b.bitcast(inputs, _BYTES))]

    @staticmethod
    def total(b: Any, sums: list[Any], excess: Any) -> Any:
        return b.sub(sums[0], splat(b, load(b, excess, I32, 4), LANES))


class _Portable:
    """Bytes widened to 16 bits, multiplied and added in twos.

    LLVM makes ``vpmaddwd`` or its like of it on any processor that has one.
    """

    wide, narrow, lone = (4, 2), (4, 1), (1, 2)
    has_excess = False

    @staticmethod
    def weights(b: Any, address: Any) -> list[Any]:
        halves = [ahead(b, address, 2 * LANES * side) for side in range(2)]
        return [b.sext(load(b, half, _HALF_BYTES, 1), _PAIRS) for half in halves]

    @staticmethod
    def inputs(b: Any, address: Any) -> Any:
        four = b.sext(load(b, address, vector(8, 4), 1), vector(16, 4))
        return b.bitcast(splat(b, b.bitcast(four, I64), LANES // 2), _PAIRS)

    @staticmethod
    def add(b: Any, sums: list[Any], weights: list[Any], inputs: Any) -> list[Any]:
        wide = b.sext(inputs, _PRODUCTS)
        products = [b.mul(b.sext(half, _PRODUCTS), wide) for half in weights]
        return [
            b.add(total, _add_in_twos(b, product, product))
            for total, product in zip(sums, products, strict=True)
        ]

    @staticmethod
    def total(b: Any, sums: list[Any], _: Any) -> Any:
        return _add_in_twos(b, *sums)


def _dot(b: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    kind = ir.FunctionType(_SUMS, [_SUMS, _BYTES, _BYTES])
    return b.call(declared(b, kind, "llvm.x86.avx512.vpdpbusd.512"), [sums, unsigned, signed])


def _add_in_twos(b: Any, vector: Any, other: Any) -> Any:
    """Neighbours of two vectors, one behind the other, added; as many as lanes."""
    even = pick(b, vector, other, list(range(0, 2 * LANES, 2)))
    odd = pick(b, vector, other, list(range(1, 2 * LANES, 2)))
    return b.add(even, odd)


_flavour: Any = {"vnni": _Vnni, "portable": _Portable}[FLAVOUR]
_PARTS = 1 if FLAVOUR == "vnni" else 2
"""Vectors that hold the sums of one pixel and one block."""


def _kernel(shape: tuple[int, int]) -> Any:
    """Sums of one register block, (pixels, blocks)."""
    pixels, blocks = shape

    def emit(
        b: Any,
        offsets: Any,
        base: Any,
        rows: Any,
        row_stride: Any,
        runs: Any,
        run_stride: Any,
        fours: Any,
        weights: Any,
        block_stride: Any,
        out: Any,
        out_stride: Any,
        excess: Any,
    ) -> Any:
        corners = [b.add(base, load(b, ahead(b, offsets, 8 * p), I64, 8)) for p in range(pixels)]
        zeros = [ir.Constant(_SUMS, [0] * LANES)] * (pixels * blocks * _PARTS)
        over_rows = Loop(b, rows, [constant(0), weights, *zeros])
        over_runs = Loop(b, runs, over_rows.values)
        over_fours = Loop(b, fours, over_runs.values)
        at, where, *sums = over_fours.values
        block = [_flavour.weights(b, ahead(b, where, n, block_stride)) for n in range(blocks)]
        added = []
        for p in range(pixels):
            inputs = _flavour.inputs(b, b.add(corners[p], at))
            for n in range(blocks):
                first = (p * blocks + n) * _PARTS
                added += _flavour.add(b, sums[first : first + _PARTS], block[n], inputs)
        last = over_fours.end([b.add(at, constant(4)), b.add(where, constant(4 * LANES)), *added])
        last = over_runs.end([b.add(over_runs.values[0], run_stride), *last[1:]])
        last = over_rows.end([b.add(over_rows.values[0], row_stride), *last[1:]])
        sums = last[2:]
        for p in range(pixels):
            for n in range(blocks):
                first = (p * blocks + n) * _PARTS
                to = ahead(b, ahead(b, out, p, out_stride), 4 * LANES * n)
                total = _flavour.total(b, sums[first : first + _PARTS], ahead(b, excess, 4 * p))
                store(b, total, to, 4)
        return constant(0)

    return function_of(f"products_{pixels}_{blocks}", emit)


def _emit_excess(
    b: Any,
    offsets: Any,
    base: Any,
    rows: Any,
    row_stride: Any,
    runs: Any,
    run_stride: Any,
    fours: Any,
    out: Any,
) -> Any:
    """128 times the sum of some pixels' inputs, with what is read behind a run."""
    lanes, zeros = ir.Constant(_SUMS, list(range(LANES))), [ir.Constant(_SUMS, None)] * _AT_ONCE
    corners = [b.add(base, load(b, ahead(b, offsets, 8 * p), I64, 8)) for p in range(_AT_ONCE)]
    chunks = b.lshr(b.add(fours, constant(LANES - 1)), constant(4))
    over_rows = Loop(b, rows, [constant(0), *zeros])
    over_runs = Loop(b, runs, over_rows.values)
    over_chunks = Loop(b, chunks, [over_runs.values[0], fours, *over_runs.values[1:]])
    at, left, *totals = over_chunks.values
    there = b.icmp_unsigned("<", lanes, splat(b, b.trunc(left, I32), LANES))
    ones = ir.Constant(_BYTES, [1] * 4 * LANES)
    added = [
        _dot(b, total, ones, b.bitcast(_load_some(b, b.add(corner, at), there), _BYTES))
        for total, corner in zip(totals, corners, strict=True)
    ]
    after = [b.add(at, constant(4 * LANES)), b.sub(left, constant(LANES)), *added]
    totals = over_chunks.end(after)[2:]
    totals = over_runs.end([b.add(over_runs.values[0], run_stride), *totals])[1:]
    totals = over_rows.end([b.add(over_rows.values[0], row_stride), *totals])[1:]
    add_up = declared(b, ir.FunctionType(I32, [_SUMS]), "llvm.vector.reduce.add.v16i32")
    for p, total in enumerate(totals):
        lone = b.shl(b.call(add_up, [total]), ir.Constant(I32, 7))
        store(b, lone, ahead(b, out, 4 * p), 4)
    return constant(0)


def _load_some(b: Any, address: Any, there: Any) -> Any:
    """Lanes of 32 bits, 0 where a lane of the mask is not set."""
    pointer = b.inttoptr(address, _SUMS.as_pointer())
    kind = ir.FunctionType(_SUMS, [pointer.type, I32, there.type, _SUMS])
    taken = declared(b, kind, "llvm.masked.load.v16i32.p0")
    return b.call(taken, [pointer, ir.Constant(I32, 1), there, ir.Constant(_SUMS, None)])


_wide, _narrow, _lone = (_kernel(s) for s in (_flavour.wide, _flavour.narrow, _flavour.lone))
_WIDE_PIXELS, _WIDE_BLOCKS = _flavour.wide
_NARROW_PIXELS = _flavour.narrow[0]
_LONE_BLOCKS = _flavour.lone[1]
_FEW = 2
"""So many pixels that are left over are faster one by one."""
_AT_ONCE = 4
"""Pixels whose inputs are summed up in one call."""
_HAS_EXCESS = _flavour.has_excess
_excess: Any = function_of("excess", _emit_excess)

MOST_PIXELS = 60
"""Rows of sums that one call fills: a multiple of every register block's pixels."""


def _products_compiled(
    inputs: Any,
    base: Any,
    offsets: Any,
    window: Any,
    weights: Any,
    start: Any,
    pixels: Any,
    out: Any,
    excess: Any,
) -> None:
    rows, runs = np.int64(window.rows), np.int64(window.runs)
    row_stride, run_stride = np.int64(window.row_stride), np.int64(window.run_stride)
    fours = np.int64((window.length + 3) >> 2)
    where = (np.int64(inputs.ctypes.data) + base, rows, row_stride, runs, run_stride, fours)
    stride = rows * runs * fours * (4 * LANES)
    pixel = np.int64(offsets.ctypes.data)
    too_many = np.int64(excess.ctypes.data)
    if _HAS_EXCESS:
        for first in range(0, pixels, _AT_ONCE):
            _excess((pixel + 8 * first, *where, too_many + 4 * first))
    block = np.int64(weights.ctypes.data) + start
    to, row = np.int64(out.ctypes.data), 4 * np.int64(out.shape[1])
    left = np.int64(out.shape[1]) // LANES
    while left > 0:
        p = np.int64(0)
        while p < pixels:
            asked = (pixel + 8 * p, *where, block, stride, to + p * row, row, too_many + 4 * p)
            if left < _WIDE_BLOCKS:
                _narrow(asked)
                p += _NARROW_PIXELS
            elif pixels - p <= _FEW:
                _lone(asked)
                p += 1
            else:
                _wide(asked)
                p += _WIDE_PIXELS
        step = 1 if left < _WIDE_BLOCKS else _WIDE_BLOCKS
        left -= step
        block += step * stride
        to += step * (4 * LANES)


def _products_in_numpy(
    inputs: Any,
    base: Any,
    offsets: Any,
    window: Any,
    weights: Any,
    start: Any,
    pixels: Any,
    out: Any,
    _: Any,
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


products: Any = _products_in_numpy if _numba.config.DISABLE_JIT else jit(_products_compiled)
"""``products(inputs, base, offsets, window, weights, start, pixels, out, excess)``.

``out[p, lane]`` = products of a pixel's window with a lane's weights, summed up modulo 2^32.

inputs int8, from byte ``base``; offsets int64 in bytes, the last one repeated to MOST_PIXELS;
weights int8, blocks from byte ``start``; out int32 [MOST_PIXELS, blocks * 16], of which rows behind
``pixels`` may be written; excess int32 [MOST_PIXELS], room to work in.
"""
