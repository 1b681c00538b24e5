"""Code for the host of sums and rescaled values of Int8, where 16 bits hold every number.

Sixteen neighbouring channels, or a few times as many, through some pixels of a run; what is limited
is counted for each of them in a table.

A scale ``(x * mul + half) >> post`` is the product of 16 bits that processors round,
``(a * b + 2**14) >> 15``, of ``x`` and ``mul`` that are doubled ``15 - post`` times together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from nmpsim.kernels.array_types import Int, Int8s, Int16s
from nmpsim.kernels.cpu_features import TARGET
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Sides
from nmpsim.kernels.pointers import address_of
from nmpsim.kernels.vector_code import (
    LANES,
    Loop,
    add_offset,
    call_intrinsic,
    constant,
    count_if,
    int_vector,
    load,
    signed_max,
    signed_min,
    splat,
    splat_constant,
    store,
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

_LINE = ((2 * LANES, 2),) if TARGET == "vnni" else ()
_SHAPES = (*_LINE, (LANES, 1))
"""Lanes of a vector, and vectors side by side: at first as many as are in a line of the host's
cache, where registers hold their tables."""
_ROUNDED_PRODUCTS = {LANES: "avx2.pmul.hr.sw", 2 * LANES: "avx512.pmul.hr.sw.512"}


def _rounded_product(b: IRBuilder, one: Value, other: Value) -> Any:
    """Return ``(one * other + 2**14) >> 15``."""
    words = one.type
    if TARGET in ("vnni", "avx2"):
        return call_intrinsic(b, f"x86.{_ROUNDED_PRODUCTS[words.count]}", words, one, other)
    wide = int_vector(32, words.count)
    product = b.mul(b.sext(one, wide), b.sext(other, wide))
    rounded = b.add(product, splat_constant(wide, 1 << 14))
    return b.trunc(b.ashr(rounded, splat_constant(wide, DOUBLINGS)), words)


def _scale(b: IRBuilder, value: Value, numbers: list[Any]) -> Any:
    offset, pre, gain, mul = numbers
    return _rounded_product(b, b.mul(b.ashr(b.sub(value, offset), pre), gain), mul)


def _clip(b: IRBuilder, value: Value, limits: list[Any], counts: list[Any]) -> Any:
    """Return a value within its limits, and the rows of the clip's table after it."""
    low, high = limits
    below, above, least, most = counts
    after = [
        count_if(b, below, "<", value, low),
        count_if(b, above, ">", value, high),
        signed_min(b, value, least),
        signed_max(b, value, most),
    ]
    return signed_min(b, signed_max(b, value, low), high), after


def _kernel(name: str, clips: int, result: Callable[..., tuple[Value, list[Value]]]) -> Any:
    """Results of some blocks of channels through some pixels, ``step`` bytes apart; the tables of
    ``clips`` clips, whose rows are ``row`` bytes apart."""

    def emit(
        b: IRBuilder,
        lhs: Value,
        rhs: Value,
        out: Value,
        step: Value,
        turns: Value,
        blocks: Value,
        numbers: Value,
        table: Value,
        row: Value,
    ) -> Any:
        kind = ir.IntType(16)
        given = [load(b, add_offset(b, numbers, 2 * i), kind, 2) for i in range(NUMBERS)]
        at, left_over = [lhs, rhs, out, table], blocks
        for lanes, parts in _SHAPES:
            each = constant(lanes * parts // LANES)
            over_blocks = Loop(b, b.udiv(left_over, each), at, may_be_empty=True)
            at = over_blocks.end(some(b, over_blocks.values, given, step, turns, row, lanes, parts))
            left_over = b.urem(left_over, each)
        return constant(0)

    def some(
        b: IRBuilder,
        at: list[Any],
        given: list[Any],
        step: Value,
        turns: Value,
        row: Value,
        lanes: int,
        parts: int,
    ) -> list[Any]:
        """Results of ``parts`` vectors side by side; where the next ones are."""
        *sides, table = at
        words, rows = int_vector(16, lanes), ROWS * clips
        nothing = [splat_constant(words, value) for value in _NOTHING * (clips * parts)]
        over_turns = Loop(b, turns, [*sides, *nothing])
        left, right, to, *kept = over_turns.values
        # Shifts by one number for all lanes are fast where LLVM sees that they are.
        numbers = [splat(b, number, lanes) for number in given]
        after = []
        for part in range(parts):
            places = [add_offset(b, side, part * lanes) for side in (left, right, to)]
            values = [b.sext(load(b, one, int_vector(8, lanes), 1), words) for one in places[:2]]
            value, counted = result(b, values, numbers, kept[part * rows : (part + 1) * rows])
            store(b, b.trunc(value, int_vector(8, lanes)), places[2], 1)
            after += counted
        moved = [b.add(side, step) for side in (left, right, to)]
        kept = over_turns.end([*moved, *after])[3:]
        for i, counted in enumerate(kept):
            part, number = divmod(i, rows)
            rows_at = add_offset(b, table, 2 * lanes * part)
            store(b, counted, add_offset(b, rows_at, number, row), 2)
        width = lanes * parts
        return [
            *(b.add(side, constant(width)) for side in sides),
            b.add(table, constant(2 * width)),
        ]

    return define_function(name, emit)


def _sum(b: IRBuilder, values: list[Any], numbers: list[Any], kept: list[Any]) -> Any:
    left = _scale(b, values[0], numbers[LHS:RHS])
    right = b.mul(_scale(b, values[1], numbers[RHS:LOW_AT]), numbers[SIGN])
    total = b.add(b.add(left, right), numbers[ADDEND])
    return _clip(b, total, numbers[LOW_AT : HIGH_AT + 1], kept)


def _rescaled(b: IRBuilder, values: list[Any], numbers: list[Any], kept: list[Any]) -> Any:
    value, clamp = _clip(b, values[0], numbers[LOW_AT : HIGH_AT + 1], kept[:ROWS])
    value, clip = b.add(_scale(b, value, numbers[LHS:RHS]), numbers[ADDEND]), kept[ROWS:]
    if clip:
        value, clip = _clip(b, value, numbers[HIGH_AT + 1 :], clip)
    return value, [*clamp, *clip]


_sums: Any = _kernel("sums", 1, _sum)
_rescales: Any = _kernel("rescales", 2, _rescaled)
_rescales_within: Any = _kernel("rescales_within", 1, _rescaled)


@jit
def put_blocks(
    spm: Int8s,
    operation: Int,
    sides: Sides,
    results: Int8s,
    step: Int,
    pixels: Int,
    blocks: Int,
    numbers: Int16s,
    table: Int16s,
) -> None:
    """Compute results of blocks of LANES neighbouring bytes through some pixels.

    A rescale clips the left side, scales it, and clips the result; a sum has one clip.

    Parameters
    ----------
    sides
        First bytes of left and right in ``spm``, and of the result in ``results``, both int8.
    step, pixels
        Bytes from pixel to pixel, and their number.
    numbers
        int16 [NUMBERS].
    table
        int16 [CLIPS, ROWS, blocks * LANES or more], which is filled.
    """
    base, (lhs, rhs, out) = address_of(spm), sides
    shape = (base + lhs, base + rhs, address_of(results) + out, step, pixels, blocks)
    arguments = (*shape, address_of(numbers), address_of(table), 2 * table.shape[2])
    if operation == SUM:
        _sums(arguments)
    elif operation == RESCALE_WITHIN:
        _rescales_within(arguments)
    else:
        _rescales(arguments)
