"""Int8 results, sixteen channels at a time, where 32 bits hold every sum and result.

A table holds what each lane of a block of channels needs, and which of its results were limited.
Sums are compared with the largest that can be scaled here; if one is beyond, the 64-bit path of
:mod:`~nmpsim.kernels.requantize` does the work instead.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir

from nmpsim.kernels import result_rows as in_table
from nmpsim.kernels.array_types import Float64s, Int, Int8s, Int32s, Int64s
from nmpsim.kernels.channels import (
    ADDEND,
    AFTER,
    AHEAD,
    BIAS_REAL,
    FACTOR,
    HALF,
    MUL,
    OFFSET,
    POST,
    PRE,
    START,
)
from nmpsim.kernels.finish_int8 import (
    ROW_BYTES,
    finish_away,
    finish_by_fixed_point,
    finish_by_integers,
    finish_even,
    row_of,
)
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Clip, Quantizer
from nmpsim.kernels.result_blocks import (
    AWAY,
    BEYOND,
    EVEN,
    FIXED,
    INTEGER,
    clear_accounts,
    way_of,
)
from nmpsim.kernels.saturate import INT32_HIGH, ONCE, SaturationCounters, stages_of
from nmpsim.kernels.saturation_stages import HIGH, LOW
from nmpsim.kernels.vector_code import (
    I32,
    LANES,
    Loop,
    any_of,
    constant,
    function_of,
    load,
    splat,
    store,
    vector,
    words,
)
from nmpsim.kernels.workspace_size import ROWS

_WORDS, _BYTES, _FLAGS = vector(32), vector(8), vector(1)
_MAX_ADDEND = 1 << 14
_BLOCK_BYTES = ROWS * ROW_BYTES


@jit
def put_result_tables(
    integers: Int64s, reals: Float64s, begins: bool, lane: Int, q: Quantizer, table: Int32s
) -> None:
    """Fill a table, int32 [blocks, ROWS, LANES]; the first channel is in lane ``lane``.

    Lanes that belong to no channel get what is never beyond a limit.
    """
    table[:] = 0
    table[:, in_table.PRE] = 31
    table[:, in_table.LIMIT : in_table.LIMIT + 1] = INT32_HIGH
    table[:, in_table.REACH : in_table.REACH + 1] = INT32_HIGH
    clear_accounts(table, in_table.BELOW)
    way = way_of(q)
    for c in range(integers.shape[1]):
        rows, i = table[(lane + c) // LANES], (lane + c) % LANES
        start = integers[START, c] if begins else np.int64(0)
        rows[in_table.BASE, i] = np.int32(start)
        rows[in_table.ZERO, i] = integers[OFFSET, c]
        rows[in_table.LIMIT, i] = rows[in_table.REACH, i] = -1
        if np.abs(integers[ADDEND, c]) > _MAX_ADDEND:
            continue
        rows[in_table.ADDEND, i] = integers[ADDEND, c]
        if way in (INTEGER, FIXED):
            put_integers(integers[:, c], way, rows, i)
        elif way >= 0:
            put_reals(reals[:, c], rows, i)


@jit
def put_integers(integers: Int64s, way: Int, rows: Int32s, i: Int) -> None:
    """A channel's shifts and factor in lane ``i``, if 32 bits hold them."""
    pre, mul, half, post = integers[PRE], integers[MUL], integers[HALF], integers[POST]
    if np.abs(mul) > INT32_HIGH or post > 31 or pre > 31:
        return
    rows[in_table.MUL, i] = mul
    rows[in_table.POST, i] = post
    most = np.int64(INT32_HIGH >> 1 if post == 0 else INT32_HIGH)  # something is added to results
    if way == FIXED:
        rows[in_table.UP, i] = pre
        rows[in_table.REACH, i] = most >> pre
        return
    rows[in_table.LIMIT, i] = (most - half) // max(abs(mul), ONCE)
    rows[in_table.PRE, i] = pre
    rows[in_table.HALF, i] = half


@jit
def put_reals(reals: Float64s, rows: Int32s, i: Int) -> None:
    """A channel's float factors in lane ``i``."""
    rows[in_table.AHEAD, i] = np.float32(reals[AHEAD]).view(np.int32)
    rows[in_table.FACTOR, i] = np.float32(reals[FACTOR]).view(np.int32)
    rows[in_table.AFTER, i] = np.float32(reals[AFTER]).view(np.int32)
    bits, at = np.float64(reals[BIAS_REAL]).view(np.int64), 2 * i
    rows[in_table.BIAS + at // LANES, at % LANES] = np.int32(bits)
    rows[in_table.BIAS + at // LANES, at % LANES + 1] = np.int32(bits >> 32)
    rows[in_table.REACH, i] = INT32_HIGH


def _rows(b: ir.IRBuilder, table: ir.Value, first: int, last: int) -> list[Any]:
    return [row_of(b, table, row) for row in range(first, last + 1)]


def _emit_complete(
    b: ir.IRBuilder,
    sums: ir.Value,
    row: ir.Value,
    pixels: ir.Value,
    windows: ir.Value,
    table: ir.Value,
) -> Any:
    """Complete the sums of a block, in place; 1 if one is beyond its limit."""
    base, zero, pre, limit = _rows(b, table, in_table.BASE, in_table.LIMIT)
    least = b.sub(words(0), limit)
    turns = Loop(b, pixels, [sums, windows, ir.Constant(_FLAGS, None)])
    at, window_at, far = turns.values
    window = splat(b, load(b, window_at, I32, 4), LANES)
    total = b.add(load(b, at, _WORDS, 4), b.sub(base, b.mul(zero, window)))
    store(b, total, at, 4)
    shifted = b.ashr(total, pre)
    beyond = b.or_(b.icmp_signed(">", shifted, limit), b.icmp_signed("<", shifted, least))
    after = [b.add(at, row), b.add(window_at, constant(4)), b.or_(far, beyond)]
    return any_of(b, turns.end(after)[2])


def _emit_scale(
    b: ir.IRBuilder,
    sums: ir.Value,
    row: ir.Value,
    pixels: ir.Value,
    table: ir.Value,
    low: ir.Value,
    high: ir.Value,
    results: ir.Value,
    results_row: ir.Value,
) -> Any:
    """Results of a block's sums; bit 0 if one was limited from below, bit 1 from above."""
    pre, _, mul, half, post, addend = _rows(b, table, in_table.PRE, in_table.ADDEND)
    accounts = _rows(b, table, in_table.BELOW, in_table.MOST)
    low, high = (splat(b, b.trunc(limit, I32), LANES) for limit in (low, high))
    turns = Loop(b, pixels, [sums, results, *accounts])
    at, to, below, above, least, most = turns.values
    scaled = b.add(b.mul(b.ashr(load(b, at, _WORDS, 4), pre), mul), half)
    value = b.add(b.ashr(scaled, post), addend)
    is_below, is_above = b.icmp_signed("<", value, low), b.icmp_signed(">", value, high)
    raised = b.select(is_below, low, value)
    result = b.select(b.icmp_signed(">", raised, high), high, raised)
    store(b, b.trunc(result, _BYTES), to, 1)
    after = turns.end(
        [
            b.add(at, row),
            b.add(to, results_row),
            b.sub(below, b.sext(is_below, _WORDS)),
            b.sub(above, b.sext(is_above, _WORDS)),
            b.select(b.icmp_signed("<", value, least), value, least),
            b.select(b.icmp_signed(">", value, most), value, most),
        ]
    )
    for i, account in enumerate(after[2:]):
        store(b, account, b.add(table, constant((in_table.BELOW + i) * ROW_BYTES)), 4)
    limited_below = any_of(b, b.icmp_signed("!=", after[2], accounts[0]))
    limited_above = any_of(b, b.icmp_signed("!=", after[3], accounts[1]))
    return b.or_(limited_below, b.shl(limited_above, constant(1)))


_complete: Any = function_of("complete", _emit_complete)
_scale: Any = function_of("scale", _emit_scale)


def _complete_compiled(sums: Int32s, pixels: Int, windows: Int32s, table: Int32s) -> Any:
    at, row = np.int64(sums.ctypes.data), 4 * np.int64(sums.shape[1])
    rows, seen = np.int64(table.ctypes.data), np.int64(windows.ctypes.data)
    beyond = np.int64(0)
    for block in range(table.shape[0]):
        there = at + block * ROW_BYTES
        beyond |= _complete((there, row, np.int64(pixels), seen, rows + block * _BLOCK_BYTES))
    return beyond != 0


def _scale_compiled(
    sums: Int32s, pixels: Int, table: Int32s, clip: Clip, results: Int8s, start: Int, step: Int
) -> Any:
    at, row = np.int64(sums.ctypes.data), 4 * np.int64(sums.shape[1])
    rows, to = np.int64(table.ctypes.data), np.int64(results.ctypes.data) + start
    count, low, high = np.int64(pixels), np.int64(clip.low), np.int64(clip.high)
    width = np.int64(step)
    limited = np.int64(0)
    for block in range(table.shape[0]):
        there, here = rows + block * _BLOCK_BYTES, to + block * LANES
        limited |= _scale((at + block * ROW_BYTES, row, count, there, low, high, here, width))
    return limited


def _finish_compiled(
    sums: Int32s,
    pixels: Int,
    table: Int32s,
    way: Int,
    zero: np.float32,
    clip: Clip,
    results: Int8s,
    start: Int,
    step: Int,
) -> Any:
    at, row = np.int64(sums.ctypes.data), 4 * np.int64(sums.shape[1])
    rows, to = np.int64(table.ctypes.data), np.int64(results.ctypes.data) + start
    count, low, high = np.int64(pixels), np.int64(clip.low), np.int64(clip.high)
    found, width = np.int64(0), np.int64(step)
    early = np.int64(np.float32(zero).view(np.int32))
    for block in range(table.shape[0]):
        from_, by, here = at + block * ROW_BYTES, rows + block * _BLOCK_BYTES, to + block * LANES
        asked = (from_, row, count, by, early, low, high, here, width)
        if way == INTEGER:
            found |= finish_by_integers(asked)
        elif way == FIXED:
            found |= finish_by_fixed_point(asked)
        elif way == AWAY:
            found |= finish_away(asked)
        elif way == EVEN:
            found |= finish_even(asked)
    return found


def _by_lane(table: Int32s) -> Any:
    return table.transpose(1, 0, 2).reshape(ROWS, -1)


def _complete_in_numpy(sums: Int32s, pixels: Int, windows: Int32s, table: Int32s) -> Any:
    lanes = _by_lane(table).astype(np.int64)
    totals = sums[:pixels] + lanes[in_table.BASE] - lanes[in_table.ZERO] * windows[:pixels, None]
    sums[:pixels] = totals
    return bool((abs(sums[:pixels] >> lanes[in_table.PRE]) > lanes[in_table.LIMIT]).any())


def _scale_in_numpy(
    sums: Int32s, pixels: Int, table: Int32s, clip: Clip, results: Int8s, start: Int, step: Int
) -> Any:
    lanes = _by_lane(table).astype(np.int64)
    scaled = (sums[:pixels] >> lanes[in_table.PRE]) * lanes[in_table.MUL] + lanes[in_table.HALF]
    values = (scaled >> lanes[in_table.POST]) + lanes[in_table.ADDEND]
    below, above = (values < clip.low).sum(0), (values > clip.high).sum(0)
    for p, clipped in enumerate(np.clip(values, clip.low, clip.high)):
        results[start + p * step : start + p * step + clipped.size] = clipped
    blocks = (-1, LANES)
    table[:, in_table.BELOW] += below.reshape(blocks).astype(np.int32)
    table[:, in_table.ABOVE] += above.reshape(blocks).astype(np.int32)
    table[:, in_table.LEAST] = np.minimum(table[:, in_table.LEAST], values.min(0).reshape(blocks))
    table[:, in_table.MOST] = np.maximum(table[:, in_table.MOST], values.max(0).reshape(blocks))
    return int(below.any()) | int(above.any()) << 1


def _finish_in_numpy(
    sums: Int32s,
    pixels: Int,
    table: Int32s,
    _: Int,
    __: np.float32,
    clip: Clip,
    results: Int8s,
    start: Int,
    step: Int,
) -> Any:
    table[:, in_table.BEFORE : in_table.BEFORE + 4] = table[:, in_table.BELOW : in_table.MOST + 1]
    totals = sums.copy()
    beyond = _complete_in_numpy(totals, pixels, np.zeros(len(sums), np.int32), table)
    found = _scale_in_numpy(totals, pixels, table, clip, results, start, step)
    return found | BEYOND * int(beyond)


complete_sums: Any = _complete_in_numpy if numba.config.DISABLE_JIT else jit(_complete_compiled)
"""``complete_sums(sums, pixels, windows, table)``: adds the start, takes the zero points off.

sums int32 [rows, blocks * 16], of which ``pixels`` are there, in place, modulo 2^32; windows int32
[rows], sums of each pixel's inputs. True if a sum is beyond what :func:`scale_sums` can do.
"""
scale_sums: Any = _scale_in_numpy if numba.config.DISABLE_JIT else jit(_scale_compiled)
"""``scale_sums(sums, pixels, table, clip, results, start, step)``: by integers, clipped, counted.

results int8 [bytes]: those of a pixel are the blocks * 16 bytes from ``start`` on, ``step`` bytes
after the pixel before. Bit 0 of the answer: a result was below the clip; bit 1: above.
"""
finish_sums: Any = _finish_in_numpy if numba.config.DISABLE_JIT else jit(_finish_compiled)
"""``finish_sums(sums, pixels, table, way, zero, clip, results, start, step)``: both at once.

In any way of :func:`way_of`; ``zero`` is added before reals are rounded. For weights without zero
points, and at most MAX_PIXELS. The sums stay as they are. The answer has BEYOND, too; then results
and accounts mean nothing.
"""


@jit
def result_of(total: Int, table: Int32s, lane: Int) -> Any:
    """The result of one sum (int64) before the clip."""
    rows, i = table[lane // LANES], lane % LANES
    shifted = total >> np.int64(rows[in_table.PRE, i])
    scaled = shifted * np.int64(rows[in_table.MUL, i]) + np.int64(rows[in_table.HALF, i])
    return (scaled >> np.int64(rows[in_table.POST, i])) + np.int64(rows[in_table.ADDEND, i])


@jit
def _has(results: Int8s, value: Int) -> Any:
    """True if one of the results is this one."""
    found = np.int8(0)
    for c in range(results.size):
        found |= np.int8(results[c] == np.int8(value))
    return found != 0


@jit
def note_first(
    run: Int32s,
    results: Int8s,
    table: Int32s,
    lane: Int,
    clip: Clip,
    limited: Int,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Note the first limited results of a pixel; ``limited`` is what :func:`scale_sums` answered.

    ``index`` is the first one's in the layer's output. Most pixels come after the first one, or
    have no result that may be limited: only those are computed again.
    """
    first = counters.layers[layer].first
    low_stage, high_stage = stages_of(clip)
    if limited & 1 and index < first[low_stage, LOW] and _has(results, clip.low):
        for c in range(run.size):
            if result_of(np.int64(run[c]), table, lane + c) < clip.low:
                first[low_stage, LOW] = min(first[low_stage, LOW], index + c)
                break
    if limited & 2 and index < first[high_stage, HIGH] and _has(results, clip.high):
        for c in range(run.size):
            if result_of(np.int64(run[c]), table, lane + c) > clip.high:
                first[high_stage, HIGH] = min(first[high_stage, HIGH], index + c)
                break
