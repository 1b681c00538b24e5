"""Int16 results of sums, sixteen channels at a time: scaled, clipped, counted.

Where 32 bits hold every result before the clip. If one is beyond, or if the layer's first limited
result may be among them, the path of :mod:`~nmpsim.kernels.requantize` does the work instead.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir

from nmpsim.kernels.array_types import Float64s, Int, Int16s, Int32s, Int64s
from nmpsim.kernels.channels import (
    ADDEND,
    AFTER,
    AHEAD,
    BIAS_REAL,
    FACTOR,
    HALF,
    MOST,
    MUL,
    POST,
    PRE,
    START,
)
from nmpsim.kernels.cpu_features import FEATURES
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Clip
from nmpsim.kernels.result_blocks import ABOVE, AWAY, BEFORE, BELOW, BEYOND, EVEN, FIXED, INTEGER
from nmpsim.kernels.vector_code import (
    I32,
    LANES,
    Loop,
    any_of,
    constant,
    function_of,
    larger,
    load,
    smaller,
    splat,
    store,
    vector,
)
from nmpsim.kernels.vector_reals import DOUBLES, REALS, doubles, nearest, of_real, reals

ACCOUNTS = 2 * BEFORE
"""Rows of each block's table: accounts, and what they were before the last :func:`finish_wide`."""

_WORDS, _LONGS, _HALVES, _FLAGS = vector(32), vector(64), vector(16), vector(1)
_MAGIC = 0x4338_0000_0000_0000
"""Bits of 1.5 * 2^52: a float64 whose last bit is one."""
_CONVERTS_LONGS = "+avx512dq" in FEATURES
"""Has the host an instruction that makes reals of 64-bit integers?"""
_MAX_RESULT = 1 << 30
MAX_ADDEND: Any = np.int64(1 << 29)
"""What is added to rounded reals is less."""
_ROW_BYTES = 4 * LANES


def _rows(
    b: ir.IRBuilder, table: ir.Value, row: ir.Value, kind: ir.Type, rows: tuple[int, ...]
) -> list[Any]:
    return [load(b, b.add(table, b.mul(row, constant(i))), kind, 8) for i in rows]


def _scale_integers(b: ir.IRBuilder, rows: list[Any], total: ir.Value) -> tuple[Any, Any]:
    """Results of sums, and where they are beyond."""
    pre, mul, half, post, most, addend = rows
    shifted = b.ashr(total, pre)
    least = b.sub(ir.Constant(_LONGS, None), most)
    far = b.or_(b.icmp_signed(">", shifted, most), b.icmp_signed("<", shifted, least))
    value = b.add(b.ashr(b.add(b.mul(shifted, mul), half), post), addend)
    limit = ir.Constant(_LONGS, [_MAX_RESULT] * LANES)
    wide = b.icmp_unsigned(">", b.add(value, limit), b.add(limit, limit))
    return b.trunc(value, _WORDS), b.or_(far, wide)


def _scale_reals(
    b: ir.IRBuilder, rows: list[Any], zero: ir.Value, away: bool, total: ir.Value
) -> tuple[Any, Any]:
    """Results of sums of up to 51 bits, and where they are beyond; each operation is rounded.

    Of the profiles that round halves away from zero all other factors are 1, and the bias is 0.
    """
    ahead, factor, bias, after, addend = rows
    real = _real_of(b, total)
    if away:
        real = b.fmul(real, factor)
    else:
        scaled = b.fpext(b.fmul(b.fmul(real, ahead), factor), DOUBLES)
        real = b.fmul(b.fptrunc(b.fadd(scaled, bias), REALS), after)
    real = b.fadd(real, zero)
    far = b.fcmp_unordered(">", of_real(b, "fabs", real), reals(_MAX_RESULT))
    return b.add(nearest(b, real, away), addend), far


def _real_of(b: ir.IRBuilder, total: ir.Value) -> Any:
    """Integers of up to 51 bits as float32, rounded once."""
    if _CONVERTS_LONGS:
        return b.sitofp(total, REALS)
    magic = ir.Constant(_LONGS, [_MAGIC] * LANES)
    exact = b.fsub(b.bitcast(b.add(total, magic), DOUBLES), doubles(1.5 * 2**52))
    return b.fptrunc(exact, REALS)


def _finisher(way: int) -> Any:
    """The function for a block of channels."""

    def emit(
        b: ir.IRBuilder,
        sums: ir.Value,
        row: ir.Value,
        pixels: ir.Value,
        integers: ir.Value,
        reals: ir.Value,
        step: ir.Value,
        zero: ir.Value,
        accounts: ir.Value,
        low: ir.Value,
        high: ir.Value,
        results: ir.Value,
        results_row: ir.Value,
    ) -> Any:
        start, addend = _rows(b, integers, step, _LONGS, (START, ADDEND))
        if way == INTEGER:
            rows = [*_rows(b, integers, step, _LONGS, (PRE, MUL, HALF, POST, MOST)), addend]
        else:
            rows = _rows(b, reals, step, DOUBLES, (AHEAD, FACTOR, BIAS_REAL, AFTER))
            rows = [b.fptrunc(one, REALS) if i != 2 else one for i, one in enumerate(rows)]
            rows.append(b.trunc(addend, _WORDS))
            real = splat(b, b.bitcast(b.trunc(zero, I32), ir.FloatType()), LANES)
        low, high = (splat(b, b.trunc(limit, I32), LANES) for limit in (low, high))
        at = [b.add(accounts, constant(i * _ROW_BYTES)) for i in range(ACCOUNTS)]
        before = [load(b, one, _WORDS, 4) for one in at[:BEFORE]]
        for account, one in zip(before, at[BEFORE:], strict=True):
            store(b, account, one, 4)
        loop = Loop(b, pixels, [sums, results, ir.Constant(_FLAGS, None), *before])
        source, to, far, below, above, least, most = loop.values
        total = b.add(load(b, source, _LONGS, 8), start)
        if way == INTEGER:
            value, beyond = _scale_integers(b, rows, total)
        else:
            value, beyond = _scale_reals(b, rows, real, way == AWAY, total)
        raised = larger(b, value, low)
        store(b, b.trunc(smaller(b, raised, high), _HALVES), to, 2)
        _, _, far, *after = loop.end(
            [
                b.add(source, row),
                b.add(to, results_row),
                b.or_(far, beyond),
                b.sub(below, b.sext(b.icmp_signed("<", value, low), _WORDS)),
                b.sub(above, b.sext(b.icmp_signed(">", value, high), _WORDS)),
                smaller(b, value, least),
                larger(b, value, most),
            ]
        )
        for account, one in zip(after, at, strict=False):
            store(b, account, one, 4)
        limited = [
            any_of(b, b.icmp_signed("!=", after[side], before[side])) for side in (BELOW, ABOVE)
        ]
        found = b.or_(limited[0], b.shl(limited[1], constant(1)))
        return b.or_(found, b.shl(any_of(b, far), constant(2)))

    return emit


_integer: Any = function_of("finish_integer", _finisher(INTEGER))
_away: Any = function_of("finish_away", _finisher(AWAY))
_even: Any = function_of("finish_even", _finisher(EVEN))


def _finish_compiled(
    sums: Int64s,
    pixels: Int,
    integers: Int64s,
    reals: Float64s,
    way: Int,
    zero: np.float32,
    accounts: Int32s,
    clip: Clip,
    results: Int16s,
    start: Int,
    step: Int,
) -> Any:
    at, row = np.int64(sums.ctypes.data), 8 * np.int64(sums.shape[1])
    table, real_table = np.int64(integers.ctypes.data), np.int64(reals.ctypes.data)
    known, to = np.int64(accounts.ctypes.data), np.int64(results.ctypes.data) + start
    width, bits = 8 * np.int64(integers.shape[1]), np.int64(np.float32(zero).view(np.int32))
    count, low, high = np.int64(pixels), np.int64(clip.low), np.int64(clip.high)
    found = np.int64(0)
    for block in range(accounts.shape[0]):
        lanes = 8 * LANES * block
        asked = (
            at + lanes,
            row,
            count,
            table + lanes,
            real_table + lanes,
            width,
            bits,
            known + block * (ACCOUNTS * _ROW_BYTES),
            low,
            high,
            to + 2 * LANES * block,
            np.int64(step),
        )
        if way in (INTEGER, FIXED):
            found |= _integer(asked)
        elif way == AWAY:
            found |= _away(asked)
        else:
            found |= _even(asked)
    return found


def _finish_in_numpy(
    sums: Int64s,
    pixels: Int,
    integers: Int64s,
    reals: Float64s,
    way: Int,
    zero: np.float32,
    accounts: Int32s,
    clip: Clip,
    results: Int16s,
    start: Int,
    step: Int,
) -> Any:
    return BEYOND  # the other path is the plain one


finish_wide: Any = _finish_in_numpy if numba.config.DISABLE_JIT else jit(_finish_compiled)
"""``finish_wide(sums, pixels, integers, reals, way, zero, accounts, clip, results, start, step)``.

Of sums int64 [pixels or more, blocks * 16], without their starts, to ``results`` int16: a pixel's
from byte ``start`` on, ``step`` bytes after the pixel before. Tables as in ``channels.py``, with
addends below MAX_ADDEND where sums are scaled by reals; ``zero`` is added before reals are rounded.
Bit 0 of the answer: a result was below the clip; bit 1: above; BEYOND: results mean nothing.
"""
