"""Sums and rescaled values of Int8, where 16 bits hold every number on the way.

What the vector code of :mod:`~nmpsim.kernels.elementwise_blocks` is given, and what it counts. What
does not fit takes the 64-bit way of :mod:`~nmpsim.kernels.elementwise` and
:mod:`~nmpsim.kernels.elementwise`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import GLOW_INT, NMP
from nmpsim.isa.words import OP_ADD, OP_SUB
from nmpsim.kernels.array_types import Int, Int8s, Int16s
from nmpsim.kernels.elementwise_blocks import (
    ABOVE,
    ADDEND,
    BELOW,
    CLIPS,
    DOUBLINGS,
    GAIN,
    HIGH_AT,
    LEAST,
    LHS,
    LOW_AT,
    MOST,
    MUL,
    OFFSET,
    PRE,
    RESCALE,
    RESCALE_WITHIN,
    RHS,
    SIGN,
    SUM,
    put_blocks,
)
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ORIGIN, Scratchpad, copy_run
from nmpsim.kernels.operands import Clip, IntegerScale, Pair, PairScales, Sides, Unary
from nmpsim.kernels.saturate import ONCE, SaturationCounters, stages_of
from nmpsim.kernels.saturation_stages import ACTIVATION, HIGH, LOW
from nmpsim.kernels.vector_code import LANES

RUN_BYTES: Any = np.int64(1 << 13)
"""Bytes of whole pixels between two sums of the table: they stay in the host's nearest cache."""
_INT16_LOW, _INT16_HIGH = -(1 << 15), (1 << 15) - 1
_INT8_LOW, _INT8_HIGH = -(1 << 7), (1 << 7) - 1
_MAX_OFFSET = 1 << 14
_MAX_SIDE = 1 << 13


@jit
def put_scale(scale: IntegerScale, offset: Int, numbers: Int16s, first: Int) -> Any:
    """Fill the four numbers of a side; False if 16 bits may not hold all on the way."""
    doublings = DOUBLINGS - scale.post
    if np.abs(offset) > _MAX_OFFSET or scale.pre > DOUBLINGS or doublings < 0:
        return False
    most = ((np.abs(offset) - _INT8_LOW) >> scale.pre) + ONCE
    gain = np.int64(0)
    while gain < doublings and most << (gain + ONCE) <= _INT16_HIGH:
        gain += 1
    if np.abs(scale.mul) > _INT16_HIGH >> (doublings - gain):
        return False
    numbers[first + OFFSET] = offset
    numbers[first + PRE] = scale.pre
    numbers[first + GAIN] = ONCE << gain
    numbers[first + MUL] = scale.mul << (doublings - gain)
    return most * np.abs(scale.mul) >> scale.post < _MAX_SIDE


@jit
def put_clip(
    element: Int, profile: Int, addend: Int, low: Int, high: Int, numbers: Int16s, first: Int
) -> Any:
    """Fill the zero point and a clip; False but for Int8 on integer scales, if all are small."""
    if element != 0 or (profile != GLOW_INT and profile != NMP) or np.abs(addend) > _MAX_SIDE:
        return False
    numbers[ADDEND] = addend
    numbers[first] = max(low, _INT8_LOW)
    numbers[first + 1] = min(high, _INT8_HIGH)
    return low >= _INT8_LOW and high <= _INT8_HIGH


@jit
def put_sum_numbers(t: Pair, q: PairScales, numbers: Int16s) -> Any:
    """Fill ``numbers`` for a sum or difference of tensors; False if it does not fit 16 bits."""
    if (t.operation != OP_ADD and t.operation != OP_SUB) or t.rhs_size != 0:
        return False
    numbers[SIGN] = 1 if t.operation == OP_ADD else -1
    if not put_clip(t.element, q.profile, q.out_offset, q.clip.low, q.clip.high, numbers, LOW_AT):
        return False
    if not put_scale(q.lhs_scale, q.lhs_offset, numbers, LHS):
        return False
    return put_scale(q.rhs_scale, q.rhs_offset, numbers, RHS)


@jit
def put_rescale_numbers(u: Unary, numbers: Int16s) -> Any:
    """Fill ``numbers`` for a rescale; False if it does not fit 16 bits."""
    if u.leaky or not _INT8_LOW <= u.in_low <= u.in_high <= _INT8_HIGH:
        return False
    numbers[LOW_AT], numbers[HIGH_AT] = u.in_low, u.in_high
    if not put_clip(
        u.element, u.profile, u.out_offset, u.clip.low, u.clip.high, numbers, HIGH_AT + 1
    ):
        return False
    return put_scale(u.scale, u.in_offset, numbers, LHS)


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
    counters: SaturationCounters,
) -> None:
    """Results of a regular run: whole pixels at once, and what is left at either end.

    ``clip`` is that of the result; ``index`` is the first value's in the layer's output, here and
    below. Working memory is table int16 [CLIPS, ROWS, channels, or ``count`` of them], and room
    int8 for the results of twice as many pixels as are computed at once.
    """
    channels, done = counters.layers[counters.layer].channels, np.int64(0)
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
        missing, pixel = add_clips(operation, numbers, table, width, clip, at, counters), at
        while missing > 0 and pixel < at + turns * width:
            one = left + pixel - at, right + pixel - at, np.int64(room.size // 2)
            put_blocks(i8, operation, one, room, channels, ONCE, blocks, numbers, table)
            missing -= note_firsts(operation, table, width, clip, pixel, counters)
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
            least, most = min(least, table[number, LEAST, i]), max(most, table[number, MOST, i])
        below = np.int64(numbers[LOW_AT + 2 * number]) - np.int64(least)
        above = np.int64(most) - np.int64(numbers[HIGH_AT + 2 * number])
        if below > 0:
            counts = table[number, BELOW, :width]
            missing += add_side(counts, below, low_stage, LOW, index, counters)
        if above > 0:
            counts = table[number, ABOVE, :width]
            missing += add_side(counts, above, high_stage, HIGH, index, counters)
    return missing


@jit
def add_side(
    counts: Int16s,
    overshoot: Int,
    stage: Int,
    side: Int,
    index: Int,
    counters: SaturationCounters,
) -> Any:
    """Count what was limited on one side, by channel; 1 if the first one may be among it."""
    account = counters.layers[counters.layer]
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
    counters: SaturationCounters,
) -> Any:
    """Take note of the first values of a pixel that were limited, if none was before; how many."""
    found = np.int64(0)
    for number in range(clips_of(operation)):
        low_stage, high_stage = stages_at(operation, number, clip)
        below, above = table[number, BELOW, :width], table[number, ABOVE, :width]
        found += note_first(below, low_stage, LOW, index, counters)
        found += note_first(above, high_stage, HIGH, index, counters)
    return found


@jit
def note_first(
    counts: Int16s, stage: Int, side: Int, index: Int, counters: SaturationCounters
) -> Any:
    """The same for one side; 1 if there was one."""
    first = counters.layers[counters.layer].first
    if first[stage, side] <= index:
        return np.int64(0)
    for i in range(counts.size):
        if counts[i]:
            first[stage, side] = min(first[stage, side], index + i)
            return ONCE
    return np.int64(0)
