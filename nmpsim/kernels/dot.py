"""Sums of products of Int16 with several channels at once, as vector instructions of the host.

Written as LLVM IR, because Numba's own loops reach a few per cent of what a processor can do: a
widening multiplication of 16-bit pairs whose products are added in twos. LLVM makes ``vpmaddwd`` or
its like of it on any processor that has one; AVX512-VNNI adds to a sum with the same instruction.

32 bits hold the sum of a few products only. So each sum has two parts of 32 bits: after some steps
all above the low 16 bits goes to the high part. How many steps that may be follows from the sizes
of weights and inputs: a sum of products is at most the largest input times the sum of the weights,
and at most the root of the product of both sums of squares (Cauchy and Schwarz).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numba
import numpy as np
from llvmlite import ir

from nmpsim.kernels.array_types import Int, Int16s, Int32s, Int64s
from nmpsim.kernels.cpu_features import FEATURES
from nmpsim.kernels.flavours import FLAVOURS
from nmpsim.kernels.jit import jit
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
    larger,
    load,
    pick,
    splat,
    store,
    vector,
)
from nmpsim.kernels.workspace_size import LEVELS, MAX_PIXELS

STEP = 4 * LANES
"""Bytes of weights of two inputs, a step."""
MOST: Any = np.int64((1 << 31) - (1 << 16))
"""What the products of so many steps may be together; 16 bits are left from the steps before."""

GRANULE = 16
"""Inputs whose squares are summed up: those of the steps of the middle level."""

_HALVES, _SUMS, _WIDE_SUMS = vector(16, 2 * LANES), vector(32), vector(64)


class _Vnni:
    """Products of pairs are added to a sum by one instruction; so is a sum's high half."""

    shapes: ClassVar = {2: 6, 1: 8}
    """Blocks -> pixels at most: two vectors for each sum, and a step's, fill 32 registers."""

    @staticmethod
    def add(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, inputs: ir.Value) -> Any:
        kind = ir.FunctionType(_SUMS, [_SUMS] * 3)
        function = declared(b, kind, "llvm.x86.avx512.vpdpwssd.512")
        return b.call(function, [total, b.bitcast(weights, _SUMS), b.bitcast(inputs, _SUMS)])

    @classmethod
    def carry(cls, b: ir.IRBuilder, high: ir.Value, total: ir.Value) -> Any:
        return cls.add(b, high, total, ir.Constant(_HALVES, [0, 1] * LANES))


class _Portable:
    """Products of pairs widened to 32 bits."""

    shapes: ClassVar = {1: 4}

    @staticmethod
    def add(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, inputs: ir.Value) -> Any:
        return b.add(total, _products(b, weights, inputs))

    @staticmethod
    def carry(b: ir.IRBuilder, high: ir.Value, total: ir.Value) -> Any:
        return b.add(high, b.ashr(total, ir.Constant(_SUMS, [16] * LANES)))


_flavour: Any = _Vnni if FEATURES.issuperset(FLAVOURS["vnni"]) else _Portable


def _products(b: ir.IRBuilder, weights: ir.Value, inputs: ir.Value) -> Any:
    """Products of 16-bit pairs, added in twos."""
    count = weights.type.count
    wide = vector(32, count)
    products = b.mul(b.sext(weights, wide), b.sext(inputs, wide))
    even = pick(b, products, products, list(range(0, count, 2)))
    odd = pick(b, products, products, list(range(1, count, 2)))
    return b.add(even, odd)


def _smaller(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    return b.select(b.icmp_unsigned("<", one, other), one, other)


def _emit_block(
    b: ir.IRBuilder,
    pixels: int,
    blocks: int,
    offsets: ir.Value,
    base: ir.Value,
    rows: ir.Value,
    row_stride: ir.Value,
    runs: ir.Value,
    run_stride: ir.Value,
    twos: ir.Value,
    steps: ir.Value,
    weights: ir.Value,
    block_stride: ir.Value,
    out: ir.Value,
    out_stride: ir.Value,
) -> None:
    """Sums of some pixels and some blocks; after ``steps`` steps, or at the end of a run, they are
    carried."""
    low_bits = ir.Constant(_SUMS, [0xFFFF] * LANES)
    corners = [b.add(base, load(b, ahead(b, offsets, 8 * p), I64, 8)) for p in range(pixels)]
    count = pixels * blocks
    zeros = [ir.Constant(_SUMS, None)] * (2 * count)
    chunks = b.udiv(b.add(twos, b.sub(steps, constant(1))), steps)
    over_rows = Loop(b, rows, [constant(0), weights, *zeros])
    over_runs = Loop(b, runs, over_rows.values)
    over_chunks = Loop(b, chunks, [twos, *over_runs.values])
    left, at, where, *sums = over_chunks.values
    some = _smaller(b, steps, left)
    over_steps = Loop(b, some, [at, where, *sums[:count]])
    step_at, step_where, *totals = over_steps.values
    values = [load(b, ahead(b, step_where, n, block_stride), _HALVES, 2) for n in range(blocks)]
    added = []
    for p, corner in enumerate(corners):
        two = splat(b, load(b, b.add(corner, step_at), I32, 2), LANES)
        inputs = b.bitcast(two, _HALVES)
        for n in range(blocks):
            added.append(_flavour.add(b, totals[p * blocks + n], values[n], inputs))
    after = [b.add(step_at, constant(4)), b.add(step_where, constant(STEP)), *added]
    at, where, *totals = over_steps.end(after)
    highs = [
        _flavour.carry(b, high, total) for high, total in zip(sums[count:], totals, strict=True)
    ]
    lows = [b.and_(total, low_bits) for total in totals]
    last = over_chunks.end([b.sub(left, some), at, where, *lows, *highs])[2:]
    last = over_runs.end([b.add(over_runs.values[0], run_stride), *last])[1:]
    last = over_rows.end([b.add(over_rows.values[0], row_stride), *last])[2:]
    shift = ir.Constant(_WIDE_SUMS, [16] * LANES)
    for i, (low, high) in enumerate(zip(last[:count], last[count:], strict=True)):
        total = b.add(b.shl(b.sext(high, _WIDE_SUMS), shift), b.sext(low, _WIDE_SUMS))
        to = ahead(b, out, i // blocks, out_stride)
        store(b, total, ahead(b, to, 8 * LANES * (i % blocks)), 8)


def _emit_products(b: ir.IRBuilder, pixels: ir.Value, blocks: ir.Value, *where: ir.Value) -> Any:
    """Sums of a register block of one of the flavour's shapes."""
    done = b.append_basic_block("done")
    choice = b.switch(b.add(b.mul(blocks, constant(MAX_PIXELS)), pixels), done)
    for n, most in _flavour.shapes.items():
        for p in range(1, most + 1):
            shape = b.append_basic_block("shape")
            choice.add_case(constant(n * MAX_PIXELS + p), shape)
            b.position_at_end(shape)
            _emit_block(b, p, n, *where)
            b.branch(done)
    b.position_at_end(done)
    return constant(0)


def _emit_reach(
    b: ir.IRBuilder,
    weights: ir.Value,
    runs: ir.Value,
    twos: ir.Value,
    steps: ir.Value,
    found: ir.Value,
) -> Any:
    """The most in each lane of the weights of ``steps`` steps: as magnitudes, the sum of those of
    one sign and that of all; and the sum of squares."""
    ones, nothing = ir.Constant(_HALVES, [1] * 2 * LANES), ir.Constant(_HALVES, None)
    zeros = [ir.Constant(_SUMS, None)] * 3
    chunks = b.udiv(b.add(twos, b.sub(steps, constant(1))), steps)
    over_runs = Loop(b, runs, [weights, *zeros])
    over_chunks = Loop(b, chunks, [twos, *over_runs.values])
    left, where, *most = over_chunks.values
    some = _smaller(b, steps, left)
    over_steps = Loop(b, some, [where, *zeros])
    where, positive, negative, squares = over_steps.values
    value = load(b, where, _HALVES, 2)
    above = larger(b, value, nothing)
    added = [
        b.add(positive, _products(b, above, ones)),
        b.sub(negative, _products(b, b.sub(value, above), ones)),
        b.add(squares, _squares(b, value, LANES)),
    ]
    where, *sums = over_steps.end([b.add(where, constant(STEP)), *added])
    sizes = larger(b, *sums[:2]), b.add(*sums[:2]), sums[2]
    most = [larger(b, *two) for two in zip(sizes, most, strict=True)]
    most = over_runs.end(over_chunks.end([b.sub(left, some), where, *most])[1:])[1:]
    for row, known in enumerate(most):
        store(b, known, ahead(b, found, STEP * row), 4)
    return constant(0)


def _squares(b: ir.IRBuilder, values: ir.Value, lanes: int) -> Any:
    """At least the 256th part of the sum of two squares; it is unsigned."""
    kind = vector(32, lanes)
    shifted = b.lshr(_products(b, values, values), ir.Constant(kind, [8] * lanes))
    return b.add(shifted, ir.Constant(kind, [1] * lanes))


def _emit_energy(b: ir.IRBuilder, inputs: ir.Value, granules: ir.Value, known: ir.Value) -> Any:
    """The most of ``known`` and of the squares of any GRANULE inputs."""
    lanes = GRANULE // 2
    most = ir.Constant(vector(32, lanes), None)
    most = b.insert_element(most, b.trunc(known, I32), ir.Constant(I32, 0))
    loop = Loop(b, granules, [inputs, most])
    at, most = loop.values
    sums = _squares(b, load(b, at, vector(16, GRANULE), 2), lanes)
    apart = lanes // 2
    while apart:
        sums = b.add(sums, pick(b, sums, sums, [i ^ apart for i in range(lanes)]))
        apart //= 2
    _, most = loop.end([b.add(at, constant(2 * GRANULE)), larger(b, most, sums)])
    return b.zext(b.extract_element(most, ir.Constant(I32, 0)), I64)


_products_of: Any = function_of("products_int16", _emit_products)
_reach_of: Any = function_of("reach_int16", _emit_reach)
_energy_of: Any = function_of("energy_int16", _emit_energy)
_SHAPES = np.array([0, *(_flavour.shapes.get(n, 0) for n in (1, 2))], np.int64)
"""Blocks -> pixels at most; 0 if there are none of so many blocks."""


def _products_compiled(
    inputs: Int16s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    steps: Int,
    weights: Int16s,
    start: Int,
    pixels: Int,
    out: Int64s,
) -> None:
    rows, runs = np.int64(window.rows), np.int64(window.runs)
    row_stride, run_stride = np.int64(window.row_stride), np.int64(window.run_stride)
    twos = np.int64((window.length + 1) >> 1)
    corner = np.int64(inputs.ctypes.data) + base
    where = (corner, rows, row_stride, runs, run_stride, twos, np.int64(steps))
    stride = rows * runs * twos * STEP
    pixel, row = np.int64(offsets.ctypes.data), 8 * np.int64(out.shape[1])
    block, to = np.int64(weights.ctypes.data) + 2 * start, np.int64(out.ctypes.data)
    left = np.int64(out.shape[1]) // LANES
    while left > 0:
        blocks = np.int64(2 if left > 1 and _SHAPES[2] > 0 else 1)
        parts = (pixels + _SHAPES[blocks] - 1) // _SHAPES[blocks]
        p = np.int64(0)
        while p < pixels:
            taken = (pixels - p + parts - 1) // parts
            _products_of((taken, blocks, pixel + 8 * p, *where, block, stride, to + p * row, row))
            p += taken
            parts -= 1
        left -= blocks
        block += blocks * stride
        to += blocks * (8 * LANES)


def _reach_compiled(
    weights: Int16s, start: Int, runs: Int, twos: Int, level: Int, reach: Int64s, room: Int32s
) -> None:
    steps = np.int64(1) << level
    where = np.int64(weights.ctypes.data) + 2 * start
    _reach_of((where, np.int64(runs), np.int64(twos), steps, np.int64(room.ctypes.data)))
    one_sign, all_weights, squares = np.int64(0), np.int64(0), np.int64(0)
    for lane in range(LANES):
        one_sign = max(one_sign, np.int64(room[lane]))
        all_weights = max(all_weights, np.int64(room[LANES + lane]))
        squares = max(squares, np.int64(room[2 * LANES + lane]))
    reach[LEVELS + level] = squares
    reach[level] = one_sign << np.int64(32) | all_weights


def _energy_compiled(inputs: Int16s, start: Int, granules: Int, known: Int) -> Any:
    where = np.int64(inputs.ctypes.data) + 2 * start
    return _energy_of((where, np.int64(granules), np.int64(known)))


def _products_in_numpy(
    inputs: Int16s,
    base: Int,
    offsets: Int64s,
    window: InputWindow,
    _: Int,
    weights: Int16s,
    start: Int,
    pixels: Int,
    out: Int64s,
) -> None:
    length = (window.length + 1) // 2 * 2
    taps = window.rows * window.runs * length
    blocks = weights[start : start + out.shape[1] * taps].reshape(-1, taps // 2, LANES, 2)
    lanes = blocks.transpose(0, 2, 1, 3).reshape(-1, taps).astype(np.int64)
    for p in range(pixels):
        runs = [
            inputs[(base + offsets[p] + row * window.row_stride + run * window.run_stride) >> 1 :]
            for row in range(window.rows)
            for run in range(window.runs)
        ]
        out[p] = lanes @ np.concatenate([run[:length] for run in runs]).astype(np.int64)


def _reach_in_numpy(
    weights: Int16s, start: Int, runs: Int, twos: Int, level: Int, reach: Int64s, _: Int32s
) -> None:
    taken = weights[start : start + runs * twos * 2 * LANES].reshape(runs, twos, LANES, 2)
    wide, begins = taken.astype(np.int64), np.arange(0, twos, 1 << level)
    signs = [np.abs(part).sum(axis=3) for part in (np.maximum(wide, 0), np.minimum(wide, 0))]
    both = [np.add.reduceat(part, begins, axis=1) for part in signs]
    squares = np.add.reduceat(((wide**2).sum(axis=3) >> 8) + 1, begins, axis=1)
    reach[LEVELS + level] = squares.max()
    reach[level] = int(np.maximum(*both).max()) << 32 | int(np.add(*both).max())


def _energy_in_numpy(inputs: Int16s, start: Int, granules: Int, known: Int) -> Any:
    taken = inputs[start : start + granules * GRANULE].astype(np.int64).reshape(granules, -1, 2)
    return max(int((((taken**2).sum(axis=2) >> 8) + 1).sum(axis=1).max()), known)


products_int16: Any = _products_in_numpy if numba.config.DISABLE_JIT else jit(_products_compiled)
"""``products_int16(inputs, base, offsets, window, steps, weights, start, pixels, out)``.

``out[p, lane]`` = products of a pixel's window with a lane's weights, summed up. Exact, if the
products of ``steps`` steps are at most MOST.

inputs int16, from byte ``base``; offsets int64 in bytes; the window's strides are in bytes, its
length in elements; weights int16, blocks from element ``start`` as the instruction set has them;
out int64 [pixels or more, blocks * 16].
"""
_put_reach: Any = _reach_in_numpy if numba.config.DISABLE_JIT else jit(_reach_compiled)
energy_of: Any = _energy_in_numpy if numba.config.DISABLE_JIT else jit(_energy_compiled)
"""``energy_of(inputs, start, granules, known)``: at least the 256th part of the sum of squares of
any granule of inputs int16, from element ``start`` on; or ``known``, if that is more."""

_MIDDLE = 3
"""The level to begin with: carries take a fifth of the time then."""
ENOUGH = 1 << _MIDDLE
"""Steps of the middle level."""
_LOW_WORD: Any = np.int64((1 << 32) - 1)
_MOST_SQUARES: Any = np.int64(((1 << 23) - (1 << 8)) ** 2)
"""What the products of both sums of squares may be, of which 256th parts are known."""


@jit
def _is_possible(
    weights: Int16s,
    start: Int,
    runs: Int,
    twos: Int,
    low: Int,
    high: Int,
    energy: Int,
    level: Int,
    reach: Int64s,
    room: Int32s,
) -> Any:
    """Do products of so many steps stay within MOST?"""
    # Several threads may find the same; either number may be seen first.
    if reach[level] < 0 or reach[LEVELS + level] < 0:
        _put_reach(weights, start, runs, twos, level, reach, room)
    one_sign, all_weights = reach[level] >> np.int64(32), reach[level] & _LOW_WORD
    less, more = min(high, -low), max(high, -low)
    if less * all_weights + (more - less) * one_sign <= MOST:
        return True
    squares = energy << max(level - _MIDDLE, 0)
    return energy >= 0 and squares * reach[LEVELS + level] <= _MOST_SQUARES


@jit
def steps_between(
    weights: Int16s,
    start: Int,
    runs: Int,
    twos: Int,
    low: Int,
    high: Int,
    energy: Int,
    is_kept: bool,
    reach: Int64s,
    room: Int32s,
) -> Any:
    """How many steps there may be between two carries; 0 if not even one.

    Weights int16 from element ``start``, ``runs`` of ``twos`` steps; inputs are from ``low`` (at
    most 0) to ``high`` (at least 0); ``energy`` is that of the GRANULE inputs of any ENOUGH steps
    from a multiple of so many on, or negative. What is found of the weights goes to ``reach``,
    int64 [2 * LEVELS], at first -1; where it is not kept for the next call, less is looked for.
    Room int32 [3 * LANES].
    """
    level = np.int64(_MIDDLE)
    while not _is_possible(weights, start, runs, twos, low, high, energy, level, reach, room):
        if level == 0:
            return np.int64(0)
        level -= 1
    if is_kept and level == _MIDDLE:
        while level < LEVELS - 1 and _is_possible(
            weights, start, runs, twos, low, high, energy, level + 1, reach, room
        ):
            level += 1
    return np.int64(1) << level
