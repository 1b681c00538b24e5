"""Vector code for sums and rescaled values of Int8 where 16 bits hold every number.

Blocks of sixteen neighbouring channels, or several of them, are computed through some pixels of a
run. A table counts the values of each channel that are limited.

A scale ``(x * mul + half) >> post`` becomes the rounded 16-bit product that processors have,
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
from nmpsim.kernels.operands import RunOffsets
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

PARAMETERS = 14
"""int16 parameters of a run."""
ADDEND, SIGN, LHS, RHS, CLIP_LOW, CLIP_HIGH = 0, 1, 2, 6, 10, 11
"""Positions of parameters: zero point of the result; 1 or -1 for the right side; four numbers for
the scale of either side; limits of the first clip, which those of the second follow."""
OFFSET, PRE, DOUBLED, MUL = range(4)

RESCALE: Any = np.int64(0)
SUM: Any = np.int64(1)
RESCALE_UNCLIPPED: Any = np.int64(2)
"""Operations: one tensor on another scale, the sum or difference of two, or a rescale whose results
no clip can limit."""

ROWS = 4
BELOW, ABOVE, LEAST, MOST = range(ROWS)
"""Rows of the table of a clip, by channel: values limited from below and above, smallest and
largest value before the clip."""
CLIPS = 2
_INT16_LOW, _INT16_HIGH = -(1 << 15), (1 << 15) - 1
_NOTHING = (0, 0, _INT16_HIGH, _INT16_LOW)
"""Rows of a table before a run."""
DOUBLINGS = 15
"""Doublings that a rounded product takes back."""

_LINE = ((2 * LANES, 2),) if TARGET == "vnni" else ()
_SHAPES = (*_LINE, (LANES, 1))
"""Lanes of a vector and vectors side by side: first as many as a cache line of the host holds, if
registers can hold their tables."""
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


def _define_kernel(name: str, clips: int, result: Callable[..., tuple[Value, list[Value]]]) -> Any:
    """Define a function that computes blocks of channels through some pixels.

    Pixels are ``step`` bytes apart. It fills the tables of ``clips`` clips, whose rows are ``row``
    bytes apart.
    """

    def emit(
        b: IRBuilder,
        lhs: Value,
        rhs: Value,
        out: Value,
        step: Value,
        pixels: Value,
        blocks: Value,
        numbers: Value,
        table: Value,
        row: Value,
    ) -> Any:
        kind = ir.IntType(16)
        given = [load(b, add_offset(b, numbers, 2 * i), kind, 2) for i in range(PARAMETERS)]
        at, left_over = [lhs, rhs, out, table], blocks
        for lanes, parts in _SHAPES:
            each = constant(lanes * parts // LANES)
            over_blocks = Loop(b, b.udiv(left_over, each), at, may_be_empty=True)
            at = over_blocks.end(
                emit_vectors(b, over_blocks.values, given, step, pixels, row, lanes, parts)
            )
            left_over = b.urem(left_over, each)
        return constant(0)

    def emit_vectors(
        b: IRBuilder,
        at: list[Any],
        given: list[Any],
        step: Value,
        pixels: Value,
        row: Value,
        lanes: int,
        parts: int,
    ) -> list[Any]:
        """Compute ``parts`` vectors side by side and return where the next ones are."""
        *sides, table = at
        words, rows = int_vector(16, lanes), ROWS * clips
        nothing = [splat_constant(words, value) for value in _NOTHING * (clips * parts)]
        over_pixels = Loop(b, pixels, [*sides, *nothing])
        left, right, to, *counts = over_pixels.values
        # Shifts by the same number in all lanes are fast if LLVM can see that.
        numbers = [splat(b, number, lanes) for number in given]
        after = []
        for part in range(parts):
            places = [add_offset(b, side, part * lanes) for side in (left, right, to)]
            values = [b.sext(load(b, one, int_vector(8, lanes), 1), words) for one in places[:2]]
            value, counted = result(b, values, numbers, counts[part * rows : (part + 1) * rows])
            store(b, b.trunc(value, int_vector(8, lanes)), places[2], 1)
            after += counted
        moved = [b.add(side, step) for side in (left, right, to)]
        counts = over_pixels.end([*moved, *after])[3:]
        for i, counted in enumerate(counts):
            part, number = divmod(i, rows)
            rows_at = add_offset(b, table, 2 * lanes * part)
            store(b, counted, add_offset(b, rows_at, number, row), 2)
        width = lanes * parts
        return [
            *(b.add(side, constant(width)) for side in sides),
            b.add(table, constant(2 * width)),
        ]

    return define_function(name, emit)


def _add(b: IRBuilder, values: list[Any], numbers: list[Any], counts: list[Any]) -> Any:
    left = _scale(b, values[0], numbers[LHS:RHS])
    right = b.mul(_scale(b, values[1], numbers[RHS:CLIP_LOW]), numbers[SIGN])
    total = b.add(b.add(left, right), numbers[ADDEND])
    return _clip(b, total, numbers[CLIP_LOW : CLIP_HIGH + 1], counts)


def _rescale(b: IRBuilder, values: list[Any], numbers: list[Any], counts: list[Any]) -> Any:
    value, clamp = _clip(b, values[0], numbers[CLIP_LOW : CLIP_HIGH + 1], counts[:ROWS])
    value, clip = b.add(_scale(b, value, numbers[LHS:RHS]), numbers[ADDEND]), counts[ROWS:]
    if clip:
        value, clip = _clip(b, value, numbers[CLIP_HIGH + 1 :], clip)
    return value, [*clamp, *clip]


_sums: Any = _define_kernel("sums", 1, _add)
_rescales: Any = _define_kernel("rescales", 2, _rescale)
_rescales_within: Any = _define_kernel("rescales_within", 1, _rescale)


@jit
def compute_blocks(
    spm: Int8s,
    operation: Int,
    sides: RunOffsets,
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
        int16 [PARAMETERS].
    table
        int16 [CLIPS, ROWS, blocks * LANES or more], which is filled.
    """
    base, (lhs, rhs, out) = address_of(spm), sides
    shape = (base + lhs, base + rhs, address_of(results) + out, step, pixels, blocks)
    arguments = (*shape, address_of(numbers), address_of(table), 2 * table.shape[2])
    if operation == SUM:
        _sums(arguments)
    elif operation == RESCALE_UNCLIPPED:
        _rescales_within(arguments)
    else:
        _rescales(arguments)
