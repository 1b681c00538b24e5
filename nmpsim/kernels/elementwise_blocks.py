"""Code for the host of sums and rescaled values of Int8, where 16 bits hold every number.

Sixteen neighbouring channels, or a few times as many, through some pixels of a run; what is limited
is counted for each of them in a table.

A scale ``(x * mul + half) >> post`` is the product of 16 bits that processors round,
``(a * b + 2**14) >> 15``, of ``x`` and ``mul`` that are doubled ``15 - post`` times together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir

from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int64s
from nmpsim.kernels.cpu_features import FLAVOUR
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Sides
from nmpsim.kernels.vector_code import (
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

NUMBERS = 14
"""What a run is calculated with, int16."""
ADDEND, SIGN, LHS, RHS, LOW_AT, HIGH_AT = 0, 1, 2, 6, 10, 11
"""Zero point of the result, 1 or -1 for the right side, four numbers for the scale of either side,
limits of the first clip; those of the second one follow."""
OFFSET, PRE, GAIN, MUL = range(4)

RESCALE: Any = np.int64(0)
SUM: Any = np.int64(1)
RESCALE_WITHIN: Any = np.int64(2)
"""What ``put_run`` does: one tensor on another scale, the sum or difference of two, or a rescale
whose results no clip can limit."""

ROWS = 4
BELOW, ABOVE, LEAST, MOST = range(ROWS)
"""Rows of the table of a clip, by channel: values limited from below and above, smallest and
largest value before the clip."""
CLIPS = 2
_INT16_LOW, _INT16_HIGH = -(1 << 15), (1 << 15) - 1
_NOTHING = (0, 0, _INT16_HIGH, _INT16_LOW)
"""A table before a run."""
DOUBLINGS = 15
"""In a product that is rounded."""

_LINE = ((2 * LANES, 2),) if FLAVOUR == "vnni" else ()
_SHAPES = (*_LINE, (LANES, 1))
"""Lanes of a vector, and vectors side by side: at first as many as are in a line of the host's
cache, where registers hold their tables."""
_ROUNDED_PRODUCTS = {LANES: "avx2.pmul.hr.sw", 2 * LANES: "avx512.pmul.hr.sw.512"}


def _equal(value: int, kind: ir.VectorType) -> Any:
    """The same constant in each lane."""
    return ir.Constant(kind, [value] * kind.count)


def _rounded_product(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    """``(one * other + 2**14) >> 15``."""
    words = one.type
    if FLAVOUR in ("vnni", "avx2"):
        kind = ir.FunctionType(words, [words, words])
        name = f"llvm.x86.{_ROUNDED_PRODUCTS[words.count]}"
        return b.call(declared(b, kind, name), [one, other])
    wide = vector(32, words.count)
    product = b.mul(b.sext(one, wide), b.sext(other, wide))
    rounded = b.ashr(b.add(product, _equal(1 << 14, wide)), _equal(DOUBLINGS, wide))
    return b.trunc(rounded, words)


def _scaled(b: ir.IRBuilder, value: ir.Value, numbers: list[Any]) -> Any:
    offset, pre, gain, mul = numbers
    return _rounded_product(b, b.mul(b.ashr(b.sub(value, offset), pre), gain), mul)


def _chosen(b: ir.IRBuilder, comparison: str, value: ir.Value, other: ir.Value) -> Any:
    """``value`` where it compares so with ``other``, else that."""
    return b.select(b.icmp_signed(comparison, value, other), value, other)


def _clipped(b: ir.IRBuilder, value: ir.Value, limits: list[Any], kept: list[Any]) -> Any:
    """A value within its limits; the rows of the clip's table after it."""
    low, high = limits
    below, above, least, most = kept
    after = [
        b.sub(below, b.sext(b.icmp_signed("<", value, low), value.type)),
        b.sub(above, b.sext(b.icmp_signed(">", value, high), value.type)),
        _chosen(b, "<", value, least),
        _chosen(b, ">", value, most),
    ]
    return _chosen(b, "<", _chosen(b, ">", value, low), high), after


def _kernel(name: str, clips: int, result: Callable[..., tuple[ir.Value, list[ir.Value]]]) -> Any:
    """Results of some blocks of channels through some pixels, ``step`` bytes apart; the tables of
    ``clips`` clips, whose rows are ``row`` bytes apart."""

    def emit(
        b: ir.IRBuilder,
        lhs: ir.Value,
        rhs: ir.Value,
        out: ir.Value,
        step: ir.Value,
        turns: ir.Value,
        blocks: ir.Value,
        at_numbers: ir.Value,
        table: ir.Value,
        row: ir.Value,
    ) -> Any:
        given = [load(b, ahead(b, at_numbers, 2 * i), ir.IntType(16), 2) for i in range(NUMBERS)]
        at, left_over = [lhs, rhs, out, table], blocks
        for lanes, parts in _SHAPES:
            each = constant(lanes * parts // LANES)
            over_blocks = Loop(b, b.udiv(left_over, each), at, may_be_empty=True)
            at = over_blocks.end(some(b, over_blocks.values, given, step, turns, row, lanes, parts))
            left_over = b.urem(left_over, each)
        return constant(0)

    def some(
        b: ir.IRBuilder,
        at: list[Any],
        given: list[Any],
        step: ir.Value,
        turns: ir.Value,
        row: ir.Value,
        lanes: int,
        parts: int,
    ) -> list[Any]:
        """Results of ``parts`` vectors side by side; where the next ones are."""
        *sides, table = at
        words, rows = vector(16, lanes), ROWS * clips
        nothing = [_equal(value, words) for value in _NOTHING * (clips * parts)]
        over_turns = Loop(b, turns, [*sides, *nothing])
        left, right, to, *kept = over_turns.values
        # Shifts by one number for all lanes are fast where LLVM sees that they are.
        numbers = [splat(b, number, lanes) for number in given]
        after = []
        for part in range(parts):
            places = [ahead(b, side, part * lanes) for side in (left, right, to)]
            values = [b.sext(load(b, one, vector(8, lanes), 1), words) for one in places[:2]]
            value, counted = result(b, values, numbers, kept[part * rows : (part + 1) * rows])
            store(b, b.trunc(value, vector(8, lanes)), places[2], 1)
            after += counted
        moved = [b.add(side, step) for side in (left, right, to)]
        kept = over_turns.end([*moved, *after])[3:]
        for i, counted in enumerate(kept):
            part, number = divmod(i, rows)
            store(b, counted, ahead(b, ahead(b, table, 2 * lanes * part), number, row), 2)
        width = lanes * parts
        return [
            *(b.add(side, constant(width)) for side in sides),
            b.add(table, constant(2 * width)),
        ]

    return function_of(name, emit)


def _sum(b: ir.IRBuilder, values: list[Any], numbers: list[Any], kept: list[Any]) -> Any:
    left = _scaled(b, values[0], numbers[LHS:RHS])
    right = b.mul(_scaled(b, values[1], numbers[RHS:LOW_AT]), numbers[SIGN])
    total = b.add(b.add(left, right), numbers[ADDEND])
    return _clipped(b, total, numbers[LOW_AT : HIGH_AT + 1], kept)


def _rescaled(b: ir.IRBuilder, values: list[Any], numbers: list[Any], kept: list[Any]) -> Any:
    value, clamp = _clipped(b, values[0], numbers[LOW_AT : HIGH_AT + 1], kept[:ROWS])
    value, clip = b.add(_scaled(b, value, numbers[LHS:RHS]), numbers[ADDEND]), kept[ROWS:]
    if clip:
        value, clip = _clipped(b, value, numbers[HIGH_AT + 1 :], clip)
    return value, [*clamp, *clip]


_sums: Any = _kernel("sums", 1, _sum)
_rescales: Any = _kernel("rescales", 2, _rescaled)
_rescales_within: Any = _kernel("rescales_within", 1, _rescaled)


def _put_compiled(
    spm: Int8s,
    operation: Int,
    sides: Sides,
    results: Int8s,
    step: Int,
    turns: Int,
    blocks: Int,
    numbers: Int16s,
    table: Int16s,
) -> None:
    base, given = np.int64(spm.ctypes.data), np.int64(numbers.ctypes.data)
    lhs, rhs, out = sides
    out += np.int64(results.ctypes.data)
    shape = (base + lhs, base + rhs, out, step, turns, blocks)
    asked = (*shape, given, np.int64(table.ctypes.data), np.int64(2 * table.shape[2]))
    if operation == SUM:
        _sums(asked)
    elif operation == RESCALE_WITHIN:
        _rescales_within(asked)
    else:
        _rescales(asked)


def _put_in_numpy(
    spm: Int8s,
    operation: Int,
    sides: Sides,
    results: Int8s,
    step: Int,
    turns: Int,
    blocks: Int,
    numbers: Int16s,
    table: Int16s,
) -> None:
    where = np.arange(turns)[:, None] * step + np.arange(blocks * LANES)
    given = numbers.astype(np.int64)

    def scaled(value: Int64s, first: int) -> Any:
        offset, pre, gain, mul = given[first : first + 4]
        return (((value - offset) >> pre) * gain * mul + (1 << 14)) >> DOUBLINGS

    def clipped(value: Int64s, clip: int) -> Any:
        low, high = given[LOW_AT + 2 * clip : LOW_AT + 2 * clip + 2]
        table[clip, :, : blocks * LANES] = (
            (value < low).sum(0),
            (value > high).sum(0),
            value.min(0),
            value.max(0),
        )
        return np.minimum(np.maximum(value, low), high)

    left, right = (spm[side + where].astype(np.int64) for side in sides[:2])
    if operation == SUM:
        value = scaled(left, LHS) + given[SIGN] * scaled(right, RHS) + given[ADDEND]
        results[sides[2] + where] = clipped(value, 0)
    else:
        value = scaled(clipped(left, 0), LHS) + given[ADDEND]
        results[sides[2] + where] = clipped(value, 1)


put_blocks: Any = _put_in_numpy if numba.config.DISABLE_JIT else jit(_put_compiled)
"""``put_blocks(spm, operation, sides, results, step, turns, blocks, numbers, table)``.

spm, results int8; ``sides`` are the first bytes of left and right in the one and of the result in
the other; ``blocks`` of LANES neighbouring bytes through ``turns`` pixels, ``step`` bytes apart.
numbers int16 [NUMBERS]; table int16 [CLIPS, ROWS, blocks * LANES or more] is filled. A rescale
clips the left side, scales it, and clips the result, where that is asked for; a sum has one clip.
"""
