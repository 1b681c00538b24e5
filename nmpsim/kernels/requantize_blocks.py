"""Results of sums, sixteen channels at a time: scaled, clipped, and counted where limited.

Only results that 32 bits hold are computed here. If a sum is too large, or if the layer's first
limited result may be among the results, :mod:`~nmpsim.kernels.requantize` or single pixels do the
work instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from nmpsim.kernels import channels
from nmpsim.kernels.array_types import Float64s, Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.cpu_features import FEATURES
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.pointers import get_address
from nmpsim.kernels.result_table import (
    ABOVE,
    ADDEND,
    BASE,
    BELOW,
    FACTOR,
    FIXED_POINT,
    FLOAT_AWAY,
    FLOAT_BIAS,
    FLOAT_EVEN,
    HALF,
    INTEGER,
    LEFT_SHIFT,
    LIMIT,
    MUL,
    POST,
    POST_FACTOR,
    PRE,
    PRE_FACTOR,
    SAVED,
)
from nmpsim.kernels.vector_code import (
    DOUBLES,
    FLOATS,
    I32,
    INT32S,
    LANES,
    Loop,
    add_offset,
    any_lane,
    call_intrinsic,
    constant,
    count_if,
    int_vector,
    is_large_float,
    load,
    round_floats,
    signed_max,
    signed_min,
    splat,
    splat_constant,
    store,
    zeros,
)

_ROW_BYTES = 4 * LANES
_HALVES, _BYTES, _LONGS, _FLAGS = (int_vector(bits) for bits in (16, 8, 64, 1))
_MAX_FLOAT = 1 << 30
"""Larger floats may not fit 32 bits together with an addend."""


class Block(NamedTuple):
    """Arguments for a block of sixteen channels; strides are in bytes from pixel to pixel."""

    sums: Any
    sum_stride: Any
    pixels: Any
    table: Any
    """Address of the block's rows, the counts first (see ``result_table.py``)."""
    zero_point: Any
    """Bits of the float32 that is added before floats are rounded."""
    low: Any
    high: Any
    results: Any
    result_stride: Any


# --- shared by Int8 and Int16 ----------------------------------------------------------------


def _load_rows(
    b: IRBuilder, table: Value, rows: Iterable[int], kind: ir.Type = INT32S
) -> list[Any]:
    return [load(b, add_offset(b, table, row * _ROW_BYTES), kind, 4) for row in rows]


def _load_counts(b: IRBuilder, table: Value) -> list[Any]:
    """Load the counts of a block and save a copy of them."""
    counts = _load_rows(b, table, range(SAVED))
    _store_rows(b, table, SAVED, counts)
    return counts


def _store_rows(b: IRBuilder, table: Value, first: int, values: list[Any]) -> None:
    for row, value in enumerate(values, first):
        store(b, value, add_offset(b, table, row * _ROW_BYTES), 4)


def _load_zero_point(b: IRBuilder, block: Block) -> Any:
    return splat(b, b.bitcast(b.trunc(block.zero_point, I32), ir.FloatType()))


def _load_clip(b: IRBuilder, block: Block, kind: ir.VectorType) -> list[Any]:
    return [splat(b, b.trunc(limit, kind.element)) for limit in (block.low, block.high)]


def _is_outside(b: IRBuilder, values: Value, limit: Value) -> Any:
    """Return the lanes whose magnitude is above a limit."""
    is_low = b.icmp_signed("<", values, b.sub(zeros(values.type), limit))
    return b.or_(is_low, b.icmp_signed(">", values, limit))


def _scale_by_integers(b: IRBuilder, shifted: Value, mul: Value, half: Value, post: Value) -> Any:
    """Return ``(shifted * mul + half) >> post``."""
    return b.ashr(b.add(b.mul(shifted, mul), half), post)


def _scale_by_floats(
    b: IRBuilder, real: Value, factors: list[Any], zero_point: Value, away: bool
) -> Any:
    """Return float32 sums on the result's scale, each operation rounded.

    ``factors`` are ``ahead``, ``factor``, the float64 bias and ``after`` (see ``channels.py``). In
    profiles that round halves away from zero, all others than ``factor`` change nothing.
    """
    ahead, factor, bias, after = factors
    if away:
        return b.fadd(b.fmul(real, factor), zero_point)
    scaled = b.fpext(b.fmul(b.fmul(real, ahead), factor), DOUBLES)
    return b.fadd(b.fmul(b.fptrunc(b.fadd(scaled, bias), FLOATS), after), zero_point)


def _combine_flags(b: IRBuilder, *masks: Value) -> Any:
    """Return a number whose bit i is set if any lane of mask i is."""
    bits = [b.shl(any_lane(b, mask), constant(i)) for i, mask in enumerate(masks)]
    return b.or_(b.or_(bits[0], bits[1]), bits[2])


# --- Int8 ------------------------------------------------------------------------------------

Scale = Callable[[Value], Any]
"""Function of int32 sums without the block's initial sums: scaled int32 results, or flags of the
lanes whose results are invalid."""


def _int8_by_integers(b: IRBuilder, block: Block) -> tuple[Scale, Scale]:
    base, pre, limit, *rest = _load_rows(b, block.table, (BASE, PRE, LIMIT, MUL, HALF, POST))

    def shift(total: Value) -> Any:
        return b.ashr(b.add(total, base), pre)

    return (
        lambda total: _scale_by_integers(b, shift(total), *rest),
        lambda total: _is_outside(b, shift(total), limit),
    )


def _int8_by_fixed_point(b: IRBuilder, block: Block) -> tuple[Scale, Scale]:
    """Doubling high product, halves up; then a shift, halves away from zero (``rounding.py``)."""
    rows = (BASE, LEFT_SHIFT, LIMIT, MUL, POST)
    base, left_shift, limit, mul, post = _load_rows(b, block.table, rows)
    factor, nudge = b.sext(mul, _LONGS), splat_constant(_LONGS, 1 << 30)
    one = splat_constant(INT32S, 1)
    mask = b.sub(b.shl(one, post), one)
    threshold = b.ashr(mask, one)

    def scale(total: Value) -> Any:
        wide = b.mul(b.sext(b.shl(b.add(total, base), left_shift), _LONGS), factor)
        high = b.trunc(b.ashr(b.add(wide, nudge), splat_constant(_LONGS, 31)), INT32S)
        most = b.sub(threshold, b.ashr(high, splat_constant(INT32S, 31)))
        is_rounded_up = b.icmp_signed(">", b.and_(high, mask), most)
        return b.sub(b.ashr(high, post), b.sext(is_rounded_up, INT32S))

    return scale, lambda total: _is_outside(b, b.add(total, base), limit)


def _int8_by_floats(away: bool, b: IRBuilder, block: Block) -> tuple[Scale, Scale]:
    base, limit = _load_rows(b, block.table, (BASE, LIMIT))
    ahead, factor, after = _load_rows(b, block.table, (PRE_FACTOR, FACTOR, POST_FACTOR), FLOATS)
    (bias,) = _load_rows(b, block.table, (FLOAT_BIAS,), DOUBLES)
    zero_point = _load_zero_point(b, block)

    def scale(total: Value) -> Any:
        real = b.sitofp(b.add(total, base), FLOATS)
        return _scale_by_floats(b, real, [ahead, factor, bias, after], zero_point, away)

    def is_too_large(total: Value) -> Any:
        is_large = is_large_float(b, scale(total), _MAX_FLOAT)
        return b.or_(is_large, b.icmp_signed("<", limit, zeros(INT32S)))

    return lambda total: round_floats(b, scale(total), away), is_too_large


def _saturate_to(b: IRBuilder, values: Value, kind: ir.VectorType) -> Any:
    """Return values in half as many bits, limited to what these hold: often one instruction."""
    most = (1 << kind.element.width - 1) - 1
    low, high = (splat_constant(values.type, limit) for limit in (-most - 1, most))
    return b.trunc(signed_min(b, signed_max(b, values, low), high), kind)


def _emit_int8(
    make_scale: Callable[[IRBuilder, Block], tuple[Scale, Scale]], b: IRBuilder, block: Block
) -> Any:
    """Compute Int8 results of a block; the sums stay as they are.

    Results are counted in 16 bits; one that these do not hold is outside any clip. Scaling is
    monotonic: the extremes of the results are those of the extreme sums, and if these two are not
    too large, no sum is.
    """
    scale, is_too_large = make_scale(b, block)
    (addend,) = _load_rows(b, block.table, (ADDEND,))
    counts = _load_counts(b, block.table)
    low, high = _load_clip(b, block, _HALVES)
    narrow_addend, none = b.trunc(addend, _HALVES), zeros(_HALVES)
    first = load(b, block.sums, INT32S, 4)
    loop = Loop(b, block.pixels, [block.sums, block.results, none, none, first, first])
    at, to, below, above, lowest, highest = loop.values
    total = load(b, at, INT32S, 4)
    narrow = _saturate_to(b, scale(total), _HALVES)
    value = call_intrinsic(b, "sadd.sat.v16i16", _HALVES, narrow, narrow_addend)
    result = signed_min(b, signed_max(b, value, low), high)
    store(b, _saturate_to(b, result, _BYTES), to, 1)
    _, _, below, above, *extremes = loop.end(
        [
            b.add(at, block.sum_stride),
            b.add(to, block.result_stride),
            count_if(b, below, "<", value, low),
            count_if(b, above, ">", value, high),
            signed_min(b, total, lowest),
            signed_max(b, total, highest),
        ]
    )
    values = [b.add(scale(total), addend) for total in extremes]
    after = [
        b.add(counts[0], b.zext(below, INT32S)),
        b.add(counts[1], b.zext(above, INT32S)),
        signed_min(b, counts[2], signed_min(b, *values)),
        signed_max(b, counts[3], signed_max(b, *values)),
    ]
    _store_rows(b, block.table, 0, after)
    return _combine_flags(
        b,
        b.icmp_signed("!=", below, none),
        b.icmp_signed("!=", above, none),
        b.or_(*map(is_too_large, extremes)),
    )


# --- Int16 -----------------------------------------------------------------------------------

_MAGIC = 0x4338_0000_0000_0000
"""Bits of 1.5 * 2^52, a float64 whose last bit has the value one."""
_CONVERTS_INT64 = "+avx512dq" in FEATURES
"""Whether the host has an instruction that converts int64 to float32."""
_MAX_RESULT = 1 << 30
MAX_ADDEND: Any = np.int64(1 << 29)
"""Integers that are added to rounded floats must be smaller."""


def _int16_by_integers(b: IRBuilder, rows: list[Any], total: Value) -> tuple[Any, Any]:
    """Return results of int64 sums, and flags of the lanes whose results are invalid."""
    pre, mul, half, post, most, addend = rows
    shifted = b.ashr(total, pre)
    value = b.add(_scale_by_integers(b, shifted, mul, half, post), addend)
    limit = splat_constant(_LONGS, _MAX_RESULT)
    is_wide = b.icmp_unsigned(">", b.add(value, limit), b.add(limit, limit))
    return b.trunc(value, INT32S), b.or_(_is_outside(b, shifted, most), is_wide)


def _int16_by_floats(
    b: IRBuilder, rows: list[Any], zero_point: Value, away: bool, total: Value
) -> tuple[Any, Any]:
    """Return results of sums of up to 51 bits, and flags of the lanes whose results are invalid."""
    *factors, addend = rows
    real = _scale_by_floats(b, _float_of_int64(b, total), factors, zero_point, away)
    result = b.add(round_floats(b, real, away), addend)
    return result, is_large_float(b, real, _MAX_FLOAT)


def _float_of_int64(b: IRBuilder, total: Value) -> Any:
    """Convert integers of up to 51 bits to float32, rounded once."""
    if _CONVERTS_INT64:
        return b.sitofp(total, FLOATS)
    with_magic = b.bitcast(b.add(total, splat_constant(_LONGS, _MAGIC)), DOUBLES)
    return b.fptrunc(b.fsub(with_magic, splat_constant(DOUBLES, 1.5 * 2**52)), FLOATS)


def _emit_int16(
    mode: int, b: IRBuilder, block: Block, integers: Value, reals: Value, row_bytes: Value
) -> Any:
    """Compute Int16 results of a block; the tables of the channels have rows of ``row_bytes``."""

    def load_rows(table: Value, kind: ir.Type, rows: tuple[int, ...]) -> list[Any]:
        return [load(b, b.add(table, b.mul(row_bytes, constant(i))), kind, 8) for i in rows]

    start, addend = load_rows(integers, _LONGS, (channels.START, channels.ADDEND))
    if mode == INTEGER:
        scales = (channels.PRE, channels.MUL, channels.HALF, channels.POST, channels.MOST)
        rows = [*load_rows(integers, _LONGS, scales), addend]
        scale = partial(_int16_by_integers, b, rows)
    else:
        factors = (channels.PRE_FACTOR, channels.FACTOR, channels.FLOAT_BIAS, channels.POST_FACTOR)
        rows = load_rows(reals, DOUBLES, factors)
        rows = [b.fptrunc(row, FLOATS) if i != 2 else row for i, row in enumerate(rows)]
        rows.append(b.trunc(addend, INT32S))
        zero_point = _load_zero_point(b, block)
        scale = partial(_int16_by_floats, b, rows, zero_point, mode == FLOAT_AWAY)
    low, high = _load_clip(b, block, INT32S)
    counts = _load_counts(b, block.table)
    loop = Loop(b, block.pixels, [block.sums, block.results, zeros(_FLAGS), *counts])
    source, to, too_large, below, above, least, most = loop.values
    value, is_invalid = scale(b.add(load(b, source, _LONGS, 8), start))
    store(b, b.trunc(signed_min(b, signed_max(b, value, low), high), _HALVES), to, 2)
    _, _, too_large, *after = loop.end(
        [
            b.add(source, block.sum_stride),
            b.add(to, block.result_stride),
            b.or_(too_large, is_invalid),
            count_if(b, below, "<", value, low),
            count_if(b, above, ">", value, high),
            signed_min(b, value, least),
            signed_max(b, value, most),
        ]
    )
    _store_rows(b, block.table, 0, after)
    limited = [b.icmp_signed("!=", after[side], counts[side]) for side in (BELOW, ABOVE)]
    return _combine_flags(b, *limited, too_large)


# --- functions -------------------------------------------------------------------------------

_int8_integer, _int8_fixed_point, _int8_away, _int8_even = (
    define_function(f"requantize_int8_{mode}", partial(_emit_int8, scale))
    for mode, scale in (
        (INTEGER, _int8_by_integers),
        (FIXED_POINT, _int8_by_fixed_point),
        (FLOAT_AWAY, partial(_int8_by_floats, True)),
        (FLOAT_EVEN, partial(_int8_by_floats, False)),
    )
)
_int16_integer, _int16_away, _int16_even = (
    define_function(f"requantize_int16_{mode}", partial(_emit_int16, mode))
    for mode in (INTEGER, FLOAT_AWAY, FLOAT_EVEN)
)


@jit
def _requantize_int8(mode: Int, block: Block) -> Any:
    if mode == INTEGER:
        return _int8_integer((block,))
    if mode == FIXED_POINT:
        return _int8_fixed_point((block,))
    if mode == FLOAT_AWAY:
        return _int8_away((block,))
    return _int8_even((block,))


@jit
def _requantize_int16(mode: Int, arguments: tuple[Any, ...]) -> Any:
    if mode in (INTEGER, FIXED_POINT):
        return _int16_integer(arguments)
    if mode == FLOAT_AWAY:
        return _int16_away(arguments)
    return _int16_even(arguments)


@jit
def requantize_blocks(
    sums: Int32s | Int64s,
    pixels: Int,
    table: Int32s,
    mode: Int,
    zero_point: np.float32,
    clip: Clip,
    results: Int8s | Int16s,
    start: Int,
    step: Int,
    integers: Int64s,
    reals: Float64s,
) -> Any:
    """Compute results of at most MAX_PIXELS pixels and count those that are limited.

    Parameters
    ----------
    pixels, mode
        Number of pixels, and kind of scaling.
    clip
        Clip of the result.
    sums
        [pixels or more, blocks * 16], without their initial sums: int32 for Int8, int64 for Int16.
    table
        For Int8, that of :func:`~nmpsim.kernels.result_table.fill_result_table`; for Int16, int32
        [blocks, COUNT_ROWS, LANES].
    zero_point
        Added before floats are rounded.
    results, start, step
        int8 or int16: the first pixel's results are at byte ``start``, the next one's ``step``
        bytes later.
    integers, reals
        Tables of ``channels.py``, for Int16. Addends must be below MAX_ADDEND unless sums are
        scaled by integers.

    Returns
    -------
    Bit 0: a result was limited from below; bit 1: from above; TOO_LARGE: results and counts are
    invalid.
    """
    found, is_int16 = np.int64(0), results.itemsize == 2
    for i in range(table.shape[0]):
        lanes = LANES * i
        block = Block(
            get_address(sums) + sums.itemsize * lanes,
            sums.itemsize * sums.shape[1],
            pixels,
            get_address(table) + table.itemsize * lanes * table.shape[1],
            np.int64(np.float32(zero_point).view(np.int32)),
            clip.low,
            clip.high,
            get_address(results) + start + results.itemsize * lanes,
            step,
        )
        if is_int16:
            tables = get_address(integers) + 8 * lanes, get_address(reals) + 8 * lanes
            found |= _requantize_int16(mode, (block, *tables, 8 * integers.shape[1]))
        else:
            found |= _requantize_int8(mode, block)
    return found
