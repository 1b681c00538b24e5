"""Sums and rescaled values of Int8, where 32 bits hold every number on the way.

Sixteen neighbouring channels at a time, through all pixels of a run; what is limited is counted for
each of them in a table. What does not fit takes the 64-bit way of
:mod:`~nmpsim.kernels.elementwise` and :mod:`~nmpsim.kernels.unary`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir

from nmpsim.isa.profiles import GLOW_INT, NMP
from nmpsim.isa.words import OP_ADD, OP_SUB
from nmpsim.kernels.array_types import Int, Int8s, Int32s, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.operands import IntegerScale, Pair, PairScales, Sides, Unary
from nmpsim.kernels.saturate import ONCE, SaturationCounters
from nmpsim.kernels.saturation_stages import HIGH, LOW
from nmpsim.kernels.vector_code import (
    I32,
    LANES,
    Loop,
    ahead,
    constant,
    function_of,
    load,
    splat,
    store,
    vector,
    words,
)

NUMBERS = 14
"""What a run is calculated with, int32."""
_LOW, _HIGH, _ADDEND, _SIGN, _LHS, _RHS = 0, 1, 2, 3, 4, 9
"""Limits of the clip, zero point of the result, 1 or -1 for the right side; five numbers each for
the scale of either side."""
_OFFSET, _PRE, _MUL, _HALF, _POST = range(5)

SUM: Any = np.int64(1)
RESCALE: Any = np.int64(0)
"""What ``put_run`` does: the sum or difference of two tensors, or one on another scale."""

_BELOW, _ABOVE = range(2)
"""Rows of a table of counts: values limited from below and above, by channel."""
_LEAST, _MOST, _FIRST_BELOW, _FIRST_ABOVE = range(4)
ENDS = 4
"""Rows of a table of extremes, by lane: smallest and largest value before the clip, and the place
of the first one that was limited, in bytes after the run's first."""
_INT32_LOW, _INT32_HIGH = -(1 << 31), (1 << 31) - 1
_INT8_LOW, _INT8_HIGH = -(1 << 7), (1 << 7) - 1
_NO_ENDS = (_INT32_HIGH, _INT32_LOW, _INT32_HIGH, _INT32_HIGH)
_MAX_OFFSET = 1 << 20
_MAX_SIDE = 1 << 28

_BYTES, _WORDS = vector(8), vector(32)


def _scaled(b: ir.IRBuilder, value: ir.Value, numbers: list[Any]) -> Any:
    offset, pre, mul, half, post = numbers
    return b.ashr(b.add(b.mul(b.ashr(b.sub(value, offset), pre), mul), half), post)


def _chosen(b: ir.IRBuilder, comparison: str, value: ir.Value, other: ir.Value) -> Any:
    """``value`` where it compares so with ``other``, else that."""
    return b.select(b.icmp_signed(comparison, value, other), value, other)


def _clipped(
    b: ir.IRBuilder, value: ir.Value, numbers: list[Any], place: ir.Value, kept: list[Any]
) -> Any:
    """A value within its limits; what is kept: both counts and the extremes."""
    low, high = numbers[_LOW], numbers[_HIGH]
    is_below, is_above = b.icmp_signed("<", value, low), b.icmp_signed(">", value, high)
    never = words(_INT32_HIGH)
    below, above, least, most, first_below, first_above = kept
    after = [
        b.sub(below, b.sext(is_below, _WORDS)),
        b.sub(above, b.sext(is_above, _WORDS)),
        _chosen(b, "<", value, least),
        _chosen(b, ">", value, most),
        _chosen(b, "<", b.select(is_below, place, never), first_below),
        _chosen(b, "<", b.select(is_above, place, never), first_above),
    ]
    return _chosen(b, "<", _chosen(b, ">", value, low), high), after


def _kernel(name: str, result: Callable[..., tuple[ir.Value, list[ir.Value]]]) -> Any:
    """Results of some blocks of channels through some pixels, ``step`` bytes apart."""

    def emit(
        b: ir.IRBuilder,
        lhs: ir.Value,
        rhs: ir.Value,
        out: ir.Value,
        step: ir.Value,
        turns: ir.Value,
        blocks: ir.Value,
        at_numbers: ir.Value,
        below: ir.Value,
        above: ir.Value,
        ends: ir.Value,
    ) -> Any:
        numbers = [
            splat(b, load(b, ahead(b, at_numbers, 4 * i), I32, 4), LANES) for i in range(NUMBERS)
        ]
        apart = splat(b, b.trunc(step, I32), LANES)
        place = ir.Constant(_WORDS, list(range(LANES)))
        over_blocks = Loop(b, blocks, [lhs, rhs, out, below, above, place, *map(words, _NO_ENDS)])
        sides, counts, place, extremes = _split(over_blocks.values, 3, 2, 1)
        over_turns = Loop(b, turns, [*sides, *place, words(0), words(0), *extremes])
        (left, right, to), (now,), kept = _split(over_turns.values, 3, 1)
        values = [b.sext(load(b, side, _BYTES, 1), _WORDS) for side in (left, right)]
        value, kept = result(b, values, numbers, now, kept)
        store(b, b.trunc(value, _BYTES), to, 1)
        moved = [b.add(side, step) for side in (left, right, to)]
        kept = over_turns.end([*moved, b.add(now, apart), *kept])[4:]
        for count, address in zip(kept, counts):  # noqa: B905 - the counts come first
            store(b, count, address, 4)
        following = [b.add(side, constant(LANES)) for side in sides]
        following += [b.add(address, constant(4 * LANES)) for address in counts]
        following.append(b.add(place[0], words(LANES)))
        for i, row in enumerate(over_blocks.end([*following, *kept[2:]])[6:]):
            store(b, row, ahead(b, ends, 4 * LANES * i), 4)
        return constant(0)

    return function_of(name, emit)


def _split(values: list[Any], *lengths: int) -> list[list[Any]]:
    """Values in groups of these lengths, and the rest."""
    groups = []
    for length in lengths:
        groups.append(values[:length])
        values = values[length:]
    return [*groups, values]


def _sum(
    b: ir.IRBuilder, values: list[Any], numbers: list[Any], place: ir.Value, kept: list[Any]
) -> Any:
    left = _scaled(b, values[0], numbers[_LHS:_RHS])
    right = b.mul(_scaled(b, values[1], numbers[_RHS:]), numbers[_SIGN])
    total = b.add(b.add(left, right), numbers[_ADDEND])
    return _clipped(b, total, numbers, place, kept)


def _rescaled(
    b: ir.IRBuilder, values: list[Any], numbers: list[Any], place: ir.Value, kept: list[Any]
) -> Any:
    value, kept = _clipped(b, values[0], numbers, place, kept)
    return b.add(_scaled(b, value, numbers[_LHS:_RHS]), numbers[_ADDEND]), kept


_sums: Any = _kernel("sums", _sum)
_rescales: Any = _kernel("rescales", _rescaled)


def _put_compiled(
    spm: Int8s,
    operation: Int,
    sides: Sides,
    step: Int,
    turns: Int,
    blocks: Int,
    numbers: Int32s,
    counts: Int32s,
    ends: Int32s,
) -> None:
    base, given = np.int64(spm.ctypes.data), np.int64(numbers.ctypes.data)
    below = np.int64(counts.ctypes.data)
    above = below + 4 * np.int64(counts.shape[1])
    lhs, rhs, out = sides
    shape = (base + lhs, base + rhs, base + out, step, turns, blocks)
    asked = (*shape, given, below, above, np.int64(ends.ctypes.data))
    if operation == SUM:
        _sums(asked)
    else:
        _rescales(asked)


def _put_in_numpy(
    spm: Int8s,
    operation: Int,
    sides: Sides,
    step: Int,
    turns: Int,
    blocks: Int,
    numbers: Int32s,
    counts: Int32s,
    ends: Int32s,
) -> None:
    where = np.arange(turns)[:, None] * step + np.arange(blocks * LANES)
    given = numbers.astype(np.int64)
    low, high = given[_LOW], given[_HIGH]

    def scaled(value: Int64s, first: int) -> Any:
        offset, pre, mul, half, post = given[first : first + 5]
        return (((value - offset) >> pre) * mul + half) >> post

    left, right = (spm[side + where].astype(np.int64) for side in sides[:2])
    value = left
    if operation == SUM:
        value = scaled(left, _LHS) + given[_SIGN] * scaled(right, _RHS) + given[_ADDEND]
    counts[:, : blocks * LANES] = (value < low).sum(0), (value > high).sum(0)
    first_below = np.where(value < low, where, _INT32_HIGH)
    first_above = np.where(value > high, where, _INT32_HIGH)
    for i, row in enumerate((value, -value, first_below, first_above)):
        ends[i] = row.reshape(-1, LANES).min(0)
    ends[_MOST] = -ends[_MOST]
    clipped = np.minimum(np.maximum(value, low), high)
    spm[sides[2] + where] = clipped if operation == SUM else scaled(clipped, _LHS) + given[_ADDEND]


put_blocks: Any = _put_in_numpy if numba.config.DISABLE_JIT else jit(_put_compiled)
"""``put_blocks(spm, operation, sides, step, turns, blocks, numbers, counts, ends)``.

spm int8; ``sides`` are the first bytes of left, right and result; ``blocks`` of LANES neighbouring
bytes through ``turns`` pixels, ``step`` bytes apart. numbers int32 [NUMBERS]; counts int32
[2, blocks * LANES or more] and ends int32 [ENDS, LANES] are filled. A rescale clips the left side
and then scales it.
"""


@jit
def largest_scaled(scale: IntegerScale, offset: Int) -> Any:
    """Largest magnitude of a scaled Int8, -1 if 32 bits may not hold all on the way."""
    if np.abs(offset) > _MAX_OFFSET or scale.pre > 31 or scale.post > 31:
        return np.int64(-1)
    shifted = ((np.abs(offset) - _INT8_LOW) >> scale.pre) + ONCE
    scaled = shifted * np.abs(scale.mul) + ((ONCE << scale.post) >> ONCE)
    return scaled if scaled <= _INT32_HIGH and scaled >> scale.post < _MAX_SIDE else np.int64(-1)


@jit
def put_scale(scale: IntegerScale, offset: Int, numbers: Int32s, first: Int) -> None:
    """The five numbers of a side."""
    numbers[first + _OFFSET] = offset
    numbers[first + _PRE] = scale.pre
    numbers[first + _MUL] = scale.mul
    numbers[first + _HALF] = (ONCE << scale.post) >> ONCE
    numbers[first + _POST] = scale.post


@jit
def fits_int32(element: Int, profile: Int, low: Int, high: Int, addend: Int) -> Any:
    """True for Int8 on integer scales whose limits and zero point are small."""
    plain = element == 0 and profile in (GLOW_INT, NMP)
    return plain and low >= _INT8_LOW and high <= _INT8_HIGH and np.abs(addend) < _MAX_SIDE


@jit
def put_sum_numbers(t: Pair, q: PairScales, numbers: Int32s) -> Any:
    """Fill ``numbers`` for a sum or difference of tensors; False if it does not fit 32 bits."""
    if (t.operation != OP_ADD and t.operation != OP_SUB) or t.rhs_size != 0:
        return False
    if not fits_int32(t.element, q.profile, q.clip.low, q.clip.high, q.out_offset):
        return False
    if (
        min(largest_scaled(q.lhs_scale, q.lhs_offset), largest_scaled(q.rhs_scale, q.rhs_offset))
        < 0
    ):
        return False
    numbers[_LOW] = q.clip.low
    numbers[_HIGH] = q.clip.high
    numbers[_ADDEND] = q.out_offset
    numbers[_SIGN] = 1 if t.operation == OP_ADD else -1
    put_scale(q.lhs_scale, q.lhs_offset, numbers, _LHS)
    put_scale(q.rhs_scale, q.rhs_offset, numbers, _RHS)
    return True


@jit
def rescaled(x: Int, u: Unary) -> Any:
    """The result for one value within the clamp, before the clip."""
    half = (ONCE << u.scale.post) >> ONCE
    return (
        (((x - u.in_offset) >> u.scale.pre) * u.scale.mul + half) >> u.scale.post
    ) + u.out_offset


@jit
def put_rescale_numbers(u: Unary, numbers: Int32s) -> Any:
    """Fill ``numbers`` for a rescale; False if 32 bits do not do, or if results might be limited.

    Results rise with the values, so those of the clamp's ends tell.
    """
    if not fits_int32(u.element, u.profile, u.clip.low, u.clip.high, u.out_offset) or u.leaky:
        return False
    if not _INT8_LOW <= u.in_low <= u.in_high <= _INT8_HIGH or u.scale.mul < 0:
        return False
    if largest_scaled(u.scale, u.in_offset) < 0:
        return False
    if rescaled(u.in_low, u) < u.clip.low or rescaled(u.in_high, u) > u.clip.high:
        return False
    numbers[_LOW] = u.in_low
    numbers[_HIGH] = u.in_high
    numbers[_ADDEND] = u.out_offset
    put_scale(u.scale, u.in_offset, numbers, _LHS)
    return True


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
    numbers: Int32s,
    counts: Int32s,
    ends: Int32s,
    stages: tuple[Int, Int],
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Results of a regular run: whole pixels at once, and what is left at either end.

    ``stages`` are those of values limited from below and above; ``index`` is the first value's in
    the layer's output, here and below.
    """
    channels, done = counters.layers[layer].channels, np.int64(0)
    lhs, rhs, out = sides
    while done < count:
        channel = (index + done) % channels
        turns, width = ONCE, min(channels - channel, count - done)
        if width == channels:
            turns = (count - done) // channels
        moved = (lhs + done, rhs + done, out + done)
        blocks = width // LANES
        put_blocks(spm.i8, operation, moved, channels, turns, blocks, numbers, counts, ends)
        add_counts(numbers, counts, ends, width, stages, index + done, layer, counters)
        done += turns * width


@jit
def add_counts(
    numbers: Int32s,
    counts: Int32s,
    ends: Int32s,
    width: Int,
    stages: tuple[Int, Int],
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Add what some pixels' channels counted to the layer's accounts."""
    below = np.int64(numbers[_LOW]) - extreme(ends[_LEAST], -ONCE)
    above = extreme(ends[_MOST], ONCE) - np.int64(numbers[_HIGH])
    low_stage, high_stage = stages
    if below > 0:
        first = index + extreme(ends[_FIRST_BELOW], -ONCE)
        add_side(counts[_BELOW, :width], first, below, low_stage, LOW, index, layer, counters)
    if above > 0:
        first = index + extreme(ends[_FIRST_ABOVE], -ONCE)
        add_side(counts[_ABOVE, :width], first, above, high_stage, HIGH, index, layer, counters)


@jit
def extreme(row: Int32s, sign: Int) -> Any:
    """The largest of some integers, or with a sign of -1 the smallest."""
    found = sign * np.int64(row[0])
    for i in range(row.size):
        found = max(found, sign * np.int64(row[i]))
    return sign * found


@jit
def add_side(
    counts: Int32s,
    first: Int,
    overshoot: Int,
    stage: Int,
    side: Int,
    index: Int,
    layer: Int,
    counters: SaturationCounters,
) -> None:
    """Count what was limited on one side, by channel; ``first`` is the index of the first value."""
    account = counters.layers[layer]
    channel = account.channel_base + index % account.channels
    by_channel = counters.channel_saturated[stage, side, channel : channel + counts.size]
    total = np.int64(0)
    for i in range(counts.size):
        by_channel[i] += counts[i]
        total += counts[i]
    account.saturated[stage, side] += total
    account.worst[stage, side] = max(account.worst[stage, side], overshoot)
    account.first[stage, side] = min(account.first[stage, side], first)
