"""Int8 results on an integer scale, where 32 bits hold every number on the way.

A table holds what each lane of a block of channels needs, and which of its results were limited.
First sums are completed and compared with the largest that 32 bits can scale; if one is beyond, the
64-bit path of :mod:`~nmpsim.kernels.requantize` does the work instead.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir

from nmpsim.isa.profiles import GLOW_INT, NMP
from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.channels import ADDEND, HALF, MUL, OFFSET, POST, PRE, START
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import Clip, Quantizer
from nmpsim.kernels.saturate import ONCE, SaturationCounters, record, stages_of
from nmpsim.kernels.saturation_stages import HIGH, LOW
from nmpsim.kernels.vector_code import (
    I32,
    I64,
    LANES,
    Loop,
    constant,
    declared,
    function_of,
    load,
    splat,
    store,
    vector,
    words,
)
from nmpsim.kernels.workspace_size import ROWS

_BASE, _ZERO, _PRE, _LIMIT, _MUL, _HALF, _POST, _ADDEND, _BELOW, _ABOVE, _LEAST, _MOST = range(12)
"""Start of a sum, zero point of the weights, scale with the largest shifted sum that it can take,
what is added to a result; results limited from below and above, and the extremes before that."""
_BEFORE = _MOST + 1
"""What the last four were before the last :func:`finish_sums`."""
BEYOND = 4
"""Bit of its answer: a sum is beyond what 32 bits can scale."""

_WORDS, _HALVES, _BYTES, _FLAGS = vector(32), vector(16), vector(8), vector(1)
_INT32_LOW, _INT32_HIGH = -(1 << 31), (1 << 31) - 1
_MAX_ADDEND = 1 << 14
_ROW_BYTES = 4 * LANES
_BLOCK_BYTES = ROWS * _ROW_BYTES


@jit
def clear_accounts(table: Int32s) -> None:
    """Count from zero again."""
    for block in range(table.shape[0]):
        table[block, _BELOW : _ABOVE + 1] = 0
        table[block, _LEAST] = _INT32_HIGH
        table[block, _MOST] = _INT32_LOW


@jit
def put_int32_tables(
    integers: Int64s, begins: bool, lane: Int, q: Quantizer, table: Int32s
) -> None:
    """Fill a table, int32 [blocks, ROWS, LANES]; the first channel is in lane ``lane``.

    Lanes that belong to no channel get what is never beyond a limit.
    """
    table[:] = 0
    table[:, _PRE] = 31
    table[:, _LIMIT] = _INT32_HIGH
    clear_accounts(table)
    is_plain = q.profile in (GLOW_INT, NMP) and not q.leaky
    for c in range(integers.shape[1]):
        rows, i = table[(lane + c) // LANES], (lane + c) % LANES
        pre, mul, half = integers[PRE, c], integers[MUL, c], integers[HALF, c]
        post, addend = integers[POST, c], integers[ADDEND, c]
        start = integers[START, c] if begins else np.int64(0)
        rows[_BASE, i] = np.int32(start)
        rows[_ZERO, i] = integers[OFFSET, c]
        rows[_LIMIT, i] = limit_of(pre, mul, half, post, addend) if is_plain else np.int64(-1)
        if rows[_LIMIT, i] >= 0:
            rows[_PRE, i] = pre
            rows[_MUL, i] = mul
            rows[_HALF, i] = half
            rows[_POST, i] = post
            rows[_ADDEND, i] = addend


@jit
def limit_of(pre: Int, mul: Int, half: Int, post: Int, addend: Int) -> Any:
    """Largest magnitude of ``sum >> pre`` that 32 bits can scale; -1 if there is none."""
    if np.abs(mul) > _INT32_HIGH or post > 31 or pre > 31 or np.abs(addend) > _MAX_ADDEND:
        return np.int64(-1)
    most = np.int64(_INT32_HIGH >> 1 if post == 0 else _INT32_HIGH)
    return (most - half) // max(abs(mul), ONCE)


def _rows(b: ir.IRBuilder, table: ir.Value, first: int, last: int) -> list[Any]:
    return [
        load(b, b.add(table, constant(i * _ROW_BYTES)), _WORDS, 4) for i in range(first, last + 1)
    ]


def _any(b: ir.IRBuilder, mask: ir.Value) -> Any:
    bits = b.bitcast(mask, ir.IntType(LANES))
    return b.zext(b.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0)), I64)


def _emit_complete(
    b: ir.IRBuilder,
    sums: ir.Value,
    row: ir.Value,
    pixels: ir.Value,
    windows: ir.Value,
    table: ir.Value,
) -> Any:
    """Complete the sums of a block, in place; 1 if one is beyond its limit."""
    base, zero, pre, limit = _rows(b, table, _BASE, _LIMIT)
    least = b.sub(words(0), limit)
    turns = Loop(b, pixels, [sums, windows, ir.Constant(_FLAGS, None)])
    at, window_at, far = turns.values
    window = splat(b, load(b, window_at, I32, 4), LANES)
    total = b.add(load(b, at, _WORDS, 4), b.sub(base, b.mul(zero, window)))
    store(b, total, at, 4)
    shifted = b.ashr(total, pre)
    beyond = b.or_(b.icmp_signed(">", shifted, limit), b.icmp_signed("<", shifted, least))
    after = [b.add(at, row), b.add(window_at, constant(4)), b.or_(far, beyond)]
    return _any(b, turns.end(after)[2])


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
    pre, _, mul, half, post, addend = _rows(b, table, _PRE, _ADDEND)
    accounts = _rows(b, table, _BELOW, _MOST)
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
        store(b, account, b.add(table, constant((_BELOW + i) * _ROW_BYTES)), 4)
    limited_below = _any(b, b.icmp_signed("!=", after[2], accounts[0]))
    limited_above = _any(b, b.icmp_signed("!=", after[3], accounts[1]))
    return b.or_(limited_below, b.shl(limited_above, constant(1)))


def _larger(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    return b.select(b.icmp_signed(">", one, other), one, other)


def _smaller(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    return b.select(b.icmp_signed("<", one, other), one, other)


def _narrow(b: ir.IRBuilder, values: ir.Value, kind: ir.VectorType) -> Any:
    """Values in half as many bits, limited to what these hold; one instruction on most hosts."""
    most = (1 << kind.element.width - 1) - 1
    low, high = (ir.Constant(values.type, [limit] * LANES) for limit in (-most - 1, most))
    return b.trunc(_smaller(b, _larger(b, values, low), high), kind)


def _add_narrow(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    """Their sum, limited to 16 bits."""
    kind = ir.FunctionType(_HALVES, [_HALVES, _HALVES])
    return b.call(declared(b, kind, "llvm.sadd.sat.v16i16"), [one, other])


def _emit_finish(
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
    """Both in one pass, where no weight has a zero point; the sums stay as they are.

    A result that 16 bits do not hold is beyond its limits all the same. The least and the most are
    those of the least and the largest sum.
    """
    base, _, pre, limit, mul, half, post, addend = _rows(b, table, _BASE, _ADDEND)
    accounts = _rows(b, table, _BELOW, _MOST)
    for i, account in enumerate(accounts):
        store(b, account, b.add(table, constant((_BEFORE + i) * _ROW_BYTES)), 4)
    low, high = (splat(b, b.trunc(side, _HALVES.element), LANES) for side in (low, high))
    added = b.trunc(addend, _HALVES)

    def shifted_of(total: ir.Value) -> Any:
        return b.ashr(b.add(total, base), pre)

    def scaled_of(shifted: ir.Value) -> Any:
        return b.ashr(b.add(b.mul(shifted, mul), half), post)

    none = ir.Constant(_HALVES, None)
    first = load(b, sums, _WORDS, 4)
    turns = Loop(b, pixels, [sums, results, none, none, first, first])
    at, to, below, above, lowest, highest = turns.values
    total = load(b, at, _WORDS, 4)
    value = _add_narrow(b, _narrow(b, scaled_of(shifted_of(total)), _HALVES), added)
    is_below, is_above = b.icmp_signed("<", value, low), b.icmp_signed(">", value, high)
    result = _smaller(b, _larger(b, value, low), high)
    store(b, _narrow(b, result, _BYTES), to, 1)
    counted = [b.sub(below, b.sext(is_below, _HALVES)), b.sub(above, b.sext(is_above, _HALVES))]
    extremes = [_smaller(b, total, lowest), _larger(b, total, highest)]
    after = turns.end([b.add(at, row), b.add(to, results_row), *counted, *extremes])
    ends = [shifted_of(total) for total in after[4:]]
    values = [b.add(scaled_of(shifted), addend) for shifted in ends]
    found = [
        b.add(accounts[0], b.zext(after[2], _WORDS)),
        b.add(accounts[1], b.zext(after[3], _WORDS)),
        _smaller(b, accounts[2], _smaller(b, *values)),
        _larger(b, accounts[3], _larger(b, *values)),
    ]
    for i, account in enumerate(found):
        store(b, account, b.add(table, constant((_BELOW + i) * _ROW_BYTES)), 4)
    beyond_low = b.icmp_signed("<", _smaller(b, *ends), b.sub(words(0), limit))
    beyond = b.or_(beyond_low, b.icmp_signed(">", _larger(b, *ends), limit))
    bits = [
        _any(b, b.icmp_signed("!=", after[2], none)),
        b.shl(_any(b, b.icmp_signed("!=", after[3], none)), constant(1)),
        b.shl(_any(b, beyond), constant(2)),
    ]
    return b.or_(b.or_(bits[0], bits[1]), bits[2])


_complete: Any = function_of("complete", _emit_complete)
_finish: Any = function_of("finish", _emit_finish)
_scale: Any = function_of("scale", _emit_scale)


def _complete_compiled(sums: Int32s, pixels: Int, windows: Int32s, table: Int32s) -> Any:
    at, row = np.int64(sums.ctypes.data), 4 * np.int64(sums.shape[1])
    rows, seen = np.int64(table.ctypes.data), np.int64(windows.ctypes.data)
    beyond = np.int64(0)
    for block in range(table.shape[0]):
        there = at + block * _ROW_BYTES
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
        limited |= _scale((at + block * _ROW_BYTES, row, count, there, low, high, here, width))
    return limited


def _finish_compiled(
    sums: Int32s, pixels: Int, table: Int32s, clip: Clip, results: Int8s, start: Int, step: Int
) -> Any:
    at, row = np.int64(sums.ctypes.data), 4 * np.int64(sums.shape[1])
    rows, to = np.int64(table.ctypes.data), np.int64(results.ctypes.data) + start
    count, low, high = np.int64(pixels), np.int64(clip.low), np.int64(clip.high)
    found, width = np.int64(0), np.int64(step)
    for block in range(table.shape[0]):
        there, here = rows + block * _BLOCK_BYTES, to + block * LANES
        found |= _finish((at + block * _ROW_BYTES, row, count, there, low, high, here, width))
    return found


def _by_lane(table: Int32s) -> Any:
    return table.transpose(1, 0, 2).reshape(ROWS, -1)


def _complete_in_numpy(sums: Int32s, pixels: Int, windows: Int32s, table: Int32s) -> Any:
    lanes = _by_lane(table).astype(np.int64)
    totals = sums[:pixels] + lanes[_BASE] - lanes[_ZERO] * windows[:pixels, None]
    sums[:pixels] = totals
    return bool((abs(sums[:pixels] >> lanes[_PRE]) > lanes[_LIMIT]).any())


def _scale_in_numpy(
    sums: Int32s, pixels: Int, table: Int32s, clip: Clip, results: Int8s, start: Int, step: Int
) -> Any:
    lanes = _by_lane(table).astype(np.int64)
    scaled = (sums[:pixels] >> lanes[_PRE]) * lanes[_MUL] + lanes[_HALF]
    values = (scaled >> lanes[_POST]) + lanes[_ADDEND]
    below, above = (values < clip.low).sum(0), (values > clip.high).sum(0)
    for p, clipped in enumerate(np.clip(values, clip.low, clip.high)):
        results[start + p * step : start + p * step + clipped.size] = clipped
    blocks = (-1, LANES)
    table[:, _BELOW] += below.reshape(blocks).astype(np.int32)
    table[:, _ABOVE] += above.reshape(blocks).astype(np.int32)
    table[:, _LEAST] = np.minimum(table[:, _LEAST], values.min(0).reshape(blocks))
    table[:, _MOST] = np.maximum(table[:, _MOST], values.max(0).reshape(blocks))
    return int(below.any()) | int(above.any()) << 1


def _finish_in_numpy(
    sums: Int32s, pixels: Int, table: Int32s, clip: Clip, results: Int8s, start: Int, step: Int
) -> Any:
    table[:, _BEFORE:] = table[:, _BELOW : _MOST + 1]
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
"""``scale_sums(sums, pixels, table, clip, results, start, step)``: scaled, clipped, counted.

results int8 [bytes]: those of a pixel are the blocks * 16 bytes from ``start`` on, ``step`` bytes
after the pixel before. Bit 0 of the answer: a result was below the clip; bit 1: above.
"""
finish_sums: Any = _finish_in_numpy if numba.config.DISABLE_JIT else jit(_finish_compiled)
"""``finish_sums(sums, pixels, table, clip, results, start, step)``: both at once.

For weights without zero points, and at most MAX_PIXELS. The sums stay as they are. The answer has
BEYOND, too; then results and accounts mean nothing.
"""


@jit
def take_back(table: Int32s) -> None:
    """Accounts as they were before the last :func:`finish_sums`."""
    for block in range(table.shape[0]):
        for row in range(_BELOW, _MOST + 1):
            for lane in range(LANES):
                table[block, row, lane] = table[block, row + _BEFORE - _BELOW, lane]


@jit
def may_be_first(
    index: Int, limited: Int, clip: Clip, layer: Int, counters: SaturationCounters
) -> Any:
    """False if nothing limited from ``index`` on can come before what was noted; ``limited`` is
    what :func:`scale_sums` answered."""
    first = counters.layers[layer].first
    low_stage, high_stage = stages_of(clip)
    is_low = limited & 1 and index < first[low_stage, LOW]
    return is_low or (limited & 2 and index < first[high_stage, HIGH])


@jit
def result_of(total: Int, table: Int32s, lane: Int) -> Any:
    """The result of one sum (int64) before the clip."""
    rows, i = table[lane // LANES], lane % LANES
    scaled = (total >> np.int64(rows[_PRE, i])) * np.int64(rows[_MUL, i]) + np.int64(rows[_HALF, i])
    return (scaled >> np.int64(rows[_POST, i])) + np.int64(rows[_ADDEND, i])


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


@jit
def add_accounts(
    table: Int32s,
    lane: Int,
    count: Int,
    clip: Clip,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Add what the table counted to the layer's accounts.

    ``index`` is that of the first channel's last result: the first limited result is noted already.
    """
    low_stage, high_stage = stages_of(clip)
    for c in range(count):
        rows, i = table[(lane + c) // LANES], (lane + c) % LANES
        below, above = np.int64(rows[_BELOW, i]), np.int64(rows[_ABOVE, i])
        if below:
            over = clip.low - np.int64(rows[_LEAST, i])
            record(counters, layer, low_stage, LOW, index + c, over, below)
        if above:
            over = np.int64(rows[_MOST, i]) - clip.high
            record(counters, layer, high_stage, HIGH, index + c, over, above)
