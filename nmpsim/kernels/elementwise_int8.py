"""Sums and rescaled values of Int8, where 16 bits hold every number on the way.

Sixteen neighbouring channels at a time, through some pixels of a run; what is limited is counted
for each of them in a table. What does not fit takes the 64-bit way of
:mod:`~nmpsim.kernels.elementwise` and :mod:`~nmpsim.kernels.unary`.

A scale ``(x * mul + half) >> post`` is the product of 16 bits that processors round,
``(a * b + 2**14) >> 15``, of ``x`` and ``mul`` that are doubled ``15 - post`` times together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir

from nmpsim.isa.profiles import GLOW_INT, NMP
from nmpsim.isa.words import OP_ADD, OP_SUB
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int64s
from nmpsim.kernels.cpu_features import FLAVOUR
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ORIGIN, Scratchpad, copy_run
from nmpsim.kernels.operands import Clip, IntegerScale, Pair, PairScales, Sides, Unary
from nmpsim.kernels.saturate import ONCE, SaturationCounters, stages_of
from nmpsim.kernels.saturation_stages import ACTIVATION, HIGH, LOW
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
_ADDEND, _SIGN, _LHS, _RHS, _LOW, _HIGH = 0, 1, 2, 6, 10, 11
"""Zero point of the result, 1 or -1 for the right side, four numbers for the scale of either side,
limits of the first clip; those of the second one follow."""
_OFFSET, _PRE, _GAIN, _MUL = range(4)

RESCALE: Any = np.int64(0)
SUM: Any = np.int64(1)
RESCALE_WITHIN: Any = np.int64(2)
"""What ``put_run`` does: one tensor on another scale, the sum or difference of two, or a rescale
whose results no clip can limit."""

ROWS = 4
_BELOW, _ABOVE, _LEAST, _MOST = range(ROWS)
"""Rows of the table of a clip, by channel: values limited from below and above, smallest and
largest value before the clip."""
CLIPS = 2
RUN_BYTES: Any = np.int64(1 << 13)
"""Bytes of whole pixels between two sums of the table: they stay in the host's nearest cache."""
_INT16_LOW, _INT16_HIGH = -(1 << 15), (1 << 15) - 1
_INT8_LOW, _INT8_HIGH = -(1 << 7), (1 << 7) - 1
_NOTHING = (0, 0, _INT16_HIGH, _INT16_LOW)
"""A table before a run."""
_MAX_OFFSET = 1 << 14
_MAX_SIDE = 1 << 13
_DOUBLINGS = 15
"""In a product that is rounded."""

_BYTES, _WORDS, _WIDE = vector(8), vector(16), vector(32)
_VECTOR_BYTES = 2 * LANES


def _equal(value: int, kind: ir.Type = _WORDS) -> Any:
    """The same constant in each lane."""
    return ir.Constant(kind, [value] * LANES)


def _rounded_product(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    """``(one * other + 2**14) >> 15``."""
    if FLAVOUR in ("vnni", "avx2"):
        kind = ir.FunctionType(_WORDS, [_WORDS, _WORDS])
        return b.call(declared(b, kind, "llvm.x86.avx2.pmul.hr.sw"), [one, other])
    product = b.mul(b.sext(one, _WIDE), b.sext(other, _WIDE))
    rounded = b.ashr(b.add(product, _equal(1 << 14, _WIDE)), _equal(_DOUBLINGS, _WIDE))
    return b.trunc(rounded, _WORDS)


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
        b.sub(below, b.sext(b.icmp_signed("<", value, low), _WORDS)),
        b.sub(above, b.sext(b.icmp_signed(">", value, high), _WORDS)),
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
        over_blocks = Loop(b, blocks, [lhs, rhs, out, table])
        *sides, table = over_blocks.values
        nothing = [_equal(value) for value in _NOTHING * clips]
        over_turns = Loop(b, turns, [*sides, *nothing])
        left, right, to, *kept = over_turns.values
        # Shifts by one number for all lanes are fast where LLVM sees that they are.
        numbers = [splat(b, number, LANES) for number in given]
        values = [b.sext(load(b, side, _BYTES, 1), _WORDS) for side in (left, right)]
        value, kept = result(b, values, numbers, kept)
        store(b, b.trunc(value, _BYTES), to, 1)
        moved = [b.add(side, step) for side in (left, right, to)]
        kept = over_turns.end([*moved, *kept])[3:]
        for i, counted in enumerate(kept):
            store(b, counted, ahead(b, table, i, row), 2)
        over_blocks.end(
            [
                *(b.add(side, constant(LANES)) for side in sides),
                b.add(table, constant(_VECTOR_BYTES)),
            ]
        )
        return constant(0)

    return function_of(name, emit)


def _sum(b: ir.IRBuilder, values: list[Any], numbers: list[Any], kept: list[Any]) -> Any:
    left = _scaled(b, values[0], numbers[_LHS:_RHS])
    right = b.mul(_scaled(b, values[1], numbers[_RHS:_LOW]), numbers[_SIGN])
    total = b.add(b.add(left, right), numbers[_ADDEND])
    return _clipped(b, total, numbers[_LOW : _HIGH + 1], kept)


def _rescaled(b: ir.IRBuilder, values: list[Any], numbers: list[Any], kept: list[Any]) -> Any:
    value, clamp = _clipped(b, values[0], numbers[_LOW : _HIGH + 1], kept[:ROWS])
    value, clip = b.add(_scaled(b, value, numbers[_LHS:_RHS]), numbers[_ADDEND]), kept[ROWS:]
    if clip:
        value, clip = _clipped(b, value, numbers[_HIGH + 1 :], clip)
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
        return (((value - offset) >> pre) * gain * mul + (1 << 14)) >> _DOUBLINGS

    def clipped(value: Int64s, clip: int) -> Any:
        low, high = given[_LOW + 2 * clip : _LOW + 2 * clip + 2]
        table[clip, :, : blocks * LANES] = (
            (value < low).sum(0),
            (value > high).sum(0),
            value.min(0),
            value.max(0),
        )
        return np.minimum(np.maximum(value, low), high)

    left, right = (spm[side + where].astype(np.int64) for side in sides[:2])
    if operation == SUM:
        value = scaled(left, _LHS) + given[_SIGN] * scaled(right, _RHS) + given[_ADDEND]
        results[sides[2] + where] = clipped(value, 0)
    else:
        value = scaled(clipped(left, 0), _LHS) + given[_ADDEND]
        results[sides[2] + where] = clipped(value, 1)


put_blocks: Any = _put_in_numpy if numba.config.DISABLE_JIT else jit(_put_compiled)
"""``put_blocks(spm, operation, sides, results, step, turns, blocks, numbers, table)``.

spm, results int8; ``sides`` are the first bytes of left and right in the one and of the result in
the other; ``blocks`` of LANES neighbouring bytes through ``turns`` pixels, ``step`` bytes apart.
numbers int16 [NUMBERS]; table int16 [CLIPS, ROWS, blocks * LANES or more] is filled. A rescale
clips the left side, scales it, and clips the result, where that is asked for; a sum has one clip.
"""


@jit
def put_scale(scale: IntegerScale, offset: Int, numbers: Int16s, first: Int) -> Any:
    """Fill the four numbers of a side; False if 16 bits may not hold all on the way."""
    doublings = _DOUBLINGS - scale.post
    if np.abs(offset) > _MAX_OFFSET or scale.pre > _DOUBLINGS or doublings < 0:
        return False
    most = ((np.abs(offset) - _INT8_LOW) >> scale.pre) + ONCE
    gain = np.int64(0)
    while gain < doublings and most << (gain + ONCE) <= _INT16_HIGH:
        gain += 1
    if np.abs(scale.mul) > _INT16_HIGH >> (doublings - gain):
        return False
    numbers[first + _OFFSET] = offset
    numbers[first + _PRE] = scale.pre
    numbers[first + _GAIN] = ONCE << gain
    numbers[first + _MUL] = scale.mul << (doublings - gain)
    return most * np.abs(scale.mul) >> scale.post < _MAX_SIDE


@jit
def put_clip(
    element: Int, profile: Int, addend: Int, low: Int, high: Int, numbers: Int16s, first: Int
) -> Any:
    """Fill the zero point and a clip; False but for Int8 on integer scales, if all are small."""
    if element != 0 or (profile != GLOW_INT and profile != NMP) or np.abs(addend) > _MAX_SIDE:
        return False
    numbers[_ADDEND] = addend
    numbers[first] = max(low, _INT8_LOW)
    numbers[first + 1] = min(high, _INT8_HIGH)
    return low >= _INT8_LOW and high <= _INT8_HIGH


@jit
def put_sum_numbers(t: Pair, q: PairScales, numbers: Int16s) -> Any:
    """Fill ``numbers`` for a sum or difference of tensors; False if it does not fit 16 bits."""
    if (t.operation != OP_ADD and t.operation != OP_SUB) or t.rhs_size != 0:
        return False
    numbers[_SIGN] = 1 if t.operation == OP_ADD else -1
    if not put_clip(t.element, q.profile, q.out_offset, q.clip.low, q.clip.high, numbers, _LOW):
        return False
    if not put_scale(q.lhs_scale, q.lhs_offset, numbers, _LHS):
        return False
    return put_scale(q.rhs_scale, q.rhs_offset, numbers, _RHS)


@jit
def put_rescale_numbers(u: Unary, numbers: Int16s) -> Any:
    """Fill ``numbers`` for a rescale; False if it does not fit 16 bits."""
    if u.leaky or not _INT8_LOW <= u.in_low <= u.in_high <= _INT8_HIGH:
        return False
    numbers[_LOW], numbers[_HIGH] = u.in_low, u.in_high
    if not put_clip(
        u.element, u.profile, u.out_offset, u.clip.low, u.clip.high, numbers, _HIGH + 1
    ):
        return False
    return put_scale(u.scale, u.in_offset, numbers, _LHS)


@jit
def rescale_of(u: Unary) -> Any:
    """RESCALE, or RESCALE_WITHIN if results of the clamp's ends are within the clip: all others lie
    between those."""
    half = (ONCE << u.scale.post) >> ONCE
    for x in (u.in_low, u.in_high):
        scaled = (((x - u.in_offset) >> u.scale.pre) * u.scale.mul + half) >> u.scale.post
        if not u.clip.low <= scaled + u.out_offset <= u.clip.high:
            return RESCALE
    return RESCALE_WITHIN


@jit
def is_regular(sides: Sides, index: Int, count: Int, channels: Int) -> Any:
    """True if a run is made of whole blocks of channels, and is where no side is overwritten early.

    ``sides`` are the first bytes of left, right and result.
    """
    lhs, rhs, out = sides
    whole = channels % LANES == 0 and index % LANES == 0 and count % LANES == 0
    return whole and is_apart(out, lhs, count) and is_apart(out, rhs, count)


@jit
def is_apart(start: Int, other: Int, count: Int) -> Any:
    """True if two runs are the same one or do not touch."""
    return start == other or np.abs(start - other) >= count


@jit
def put_run(
    spm: Scratchpad,
    operation: Int,
    sides: Sides,
    count: Int,
    numbers: Int16s,
    table: Int16s,
    room: Int8s,
    clip: Clip,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Results of a regular run: whole pixels at once, and what is left at either end.

    ``clip`` is that of the result; ``index`` is the first value's in the layer's output, here and
    below. Working memory is table int16 [CLIPS, ROWS, channels, or ``count`` of them], and room
    int8 for the results of twice as many pixels as are computed at once.
    """
    channels, done = counters.layers[layer].channels, np.int64(0)
    lhs, rhs, out = sides
    is_in_place = out in (lhs, rhs)
    while done < count:
        channel = (index + done) % channels
        turns, width = ONCE, min(channels - channel, count - done)
        if width == channels:
            turns = max(min(count - done, RUN_BYTES) // channels, ONCE)
        i8, at, blocks = spm.i8, index + done, width // LANES
        left, right, to = lhs + done, rhs + done, out + done
        if is_in_place:
            values = left, right, ORIGIN
            put_blocks(i8, operation, values, room, channels, turns, blocks, numbers, table)
        else:
            put_blocks(
                i8, operation, (left, right, to), i8, channels, turns, blocks, numbers, table
            )
        missing, pixel = add_clips(operation, numbers, table, width, clip, at, layer, counters), at
        while missing > 0 and pixel < at + turns * width:
            one = left + pixel - at, right + pixel - at, np.int64(room.size // 2)
            put_blocks(i8, operation, one, room, channels, ONCE, blocks, numbers, table)
            missing -= note_firsts(operation, table, width, clip, pixel, layer, counters)
            pixel += width
        if is_in_place:
            copy_run(room, ORIGIN, i8, to, turns * width)
        done += turns * width


@jit
def clips_of(operation: Int) -> Any:
    """Clips of an operation; the first one of a rescale is that of its activation."""
    return CLIPS if operation == RESCALE else 1


@jit
def stages_at(operation: Int, number: Int, clip: Clip) -> Any:
    """Stages of values limited from below and above by a clip of an operation."""
    low, high = stages_of(clip)
    if operation != SUM and number == 0:
        low, high = ACTIVATION, ACTIVATION
    return low, high


@jit
def add_clips(
    operation: Int,
    numbers: Int16s,
    table: Int16s,
    width: Int,
    clip: Clip,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> Any:
    """Add what some pixels' channels counted to the layer's accounts; how many of these do not
    know the first limited value yet, or a later one.
    """
    missing = np.int64(0)
    for number in range(clips_of(operation)):
        low_stage, high_stage = stages_at(operation, number, clip)
        least, most = np.int16(_INT16_HIGH), np.int16(_INT16_LOW)
        for i in range(width):
            least, most = min(least, table[number, _LEAST, i]), max(most, table[number, _MOST, i])
        below = np.int64(numbers[_LOW + 2 * number]) - np.int64(least)
        above = np.int64(most) - np.int64(numbers[_HIGH + 2 * number])
        if below > 0:
            counts = table[number, _BELOW, :width]
            missing += add_side(counts, below, low_stage, LOW, index, layer, counters)
        if above > 0:
            counts = table[number, _ABOVE, :width]
            missing += add_side(counts, above, high_stage, HIGH, index, layer, counters)
    return missing


@jit
def add_side(
    counts: Int16s,
    overshoot: Int,
    stage: Int,
    side: Int,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> Any:
    """Count what was limited on one side, by channel; 1 if the first one may be among it."""
    account = counters.layers[layer]
    channel = account.channel_base + index % account.channels
    by_channel = counters.channel_saturated[stage, side, channel : channel + counts.size]
    total = np.int64(0)
    for i in range(counts.size):
        by_channel[i] += counts[i]
        total += counts[i]
    account.saturated[stage, side] += total
    account.worst[stage, side] = max(account.worst[stage, side], overshoot)
    return np.int64(account.first[stage, side] > index)


@jit
def note_firsts(
    operation: Int,
    table: Int16s,
    width: Int,
    clip: Clip,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> Any:
    """Take note of the first values of a pixel that were limited, if none was before; how many."""
    found = np.int64(0)
    for number in range(clips_of(operation)):
        low_stage, high_stage = stages_at(operation, number, clip)
        below, above = table[number, _BELOW, :width], table[number, _ABOVE, :width]
        found += note_first(below, low_stage, LOW, index, layer, counters)
        found += note_first(above, high_stage, HIGH, index, layer, counters)
    return found


@jit
def note_first(
    counts: Int16s, stage: Int, side: Int, index: Int, layer: Int, counters: SaturationCounters
) -> Any:
    """The same for one side; 1 if there was one."""
    first = counters.layers[layer].first
    if first[stage, side] <= index:
        return np.int64(0)
    for i in range(counts.size):
        if counts[i]:
            first[stage, side] = min(first[stage, side], index + i)
            return ONCE
    return np.int64(0)
