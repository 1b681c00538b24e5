"""Sums and rescaled values of Int8 where 16 bits hold every number.

Vector code computes blocks of sixteen neighbouring channels, or several of them, through some
pixels of a run, and counts the values of each channel that are limited. Other operations use the
64-bit code of :mod:`~nmpsim.kernels.elementwise`.

A scale ``(x * mul + half) >> post`` becomes the rounded 16-bit product that processors have,
``(a * b + 2**14) >> 15``, of ``x`` and ``mul`` that are doubled ``15 - post`` times together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from nmpsim.isa.profiles import GLOW_INT, NMP
from nmpsim.isa.words import OP_ADD, OP_SUB
from nmpsim.kernels.array_types import Int, Int8s, Int16s
from nmpsim.kernels.cpu_features import FEATURES
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ZERO, ScratchpadViews, copy_elements
from nmpsim.kernels.operands import (
    BinaryScales,
    BinaryShape,
    Clip,
    IntegerScaleRecord,
    RescaleParameters,
    RunOffsets,
)
from nmpsim.kernels.pointers import get_address
from nmpsim.kernels.saturate import ONCE, SaturationCounters, get_clip_stages
from nmpsim.kernels.saturation_stages import ACTIVATION, HIGH, LOW
from nmpsim.kernels.vector_code import (
    LANES,
    EmittedLoop,
    add_offset,
    call_intrinsic,
    emit_count_if,
    emit_signed_max,
    emit_signed_min,
    load,
    make_int_constant,
    make_int_vector_type,
    make_splat_constant,
    splat,
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

_LINE = ((2 * LANES, 2),) if "+avx512bw" in FEATURES else ()
_SHAPES = (*_LINE, (LANES, 1))
"""Lanes of a vector and vectors side by side: first as many as a cache line of the host holds, if
registers can hold their tables."""
_ROUNDED_PRODUCTS = {
    LANES: ("+avx2", "avx2.pmul.hr.sw"),
    2 * LANES: ("+avx512bw", "avx512.pmul.hr.sw.512"),
}
"""Lanes of a vector -> feature and name of the instruction for rounded products."""


def _rounded_product(b: IRBuilder, one: Value, other: Value) -> Any:
    """Return ``(one * other + 2**14) >> 15``."""
    words = one.type
    feature, name = _ROUNDED_PRODUCTS[words.count]
    if feature in FEATURES:
        return call_intrinsic(b, f"x86.{name}", words, one, other)
    wide = make_int_vector_type(32, words.count)
    product = b.mul(b.sext(one, wide), b.sext(other, wide))
    rounded = b.add(product, make_splat_constant(wide, 1 << 14))
    return b.trunc(b.ashr(rounded, make_splat_constant(wide, DOUBLINGS)), words)


def _scale(b: IRBuilder, value: Value, numbers: list[Any]) -> Any:
    offset, pre, gain, mul = numbers
    return _rounded_product(b, b.mul(b.ashr(b.sub(value, offset), pre), gain), mul)


def _clip(b: IRBuilder, value: Value, limits: list[Any], counts: list[Any]) -> Any:
    """Return a value within its limits, and the rows of the clip's table after it."""
    low, high = limits
    below, above, least, most = counts
    after = [
        emit_count_if(b, below, "<", value, low),
        emit_count_if(b, above, ">", value, high),
        emit_signed_min(b, value, least),
        emit_signed_max(b, value, most),
    ]
    return emit_signed_min(b, emit_signed_max(b, value, low), high), after


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
            each = make_int_constant(lanes * parts // LANES)
            over_blocks = EmittedLoop(b, b.udiv(left_over, each), at, may_be_empty=True)
            at = over_blocks.end(
                emit_vectors(b, over_blocks.values, given, step, pixels, row, lanes, parts)
            )
            left_over = b.urem(left_over, each)
        return make_int_constant(0)

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
        words, rows = make_int_vector_type(16, lanes), ROWS * clips
        nothing = [make_splat_constant(words, value) for value in _NOTHING * (clips * parts)]
        over_pixels = EmittedLoop(b, pixels, [*sides, *nothing])
        left, right, to, *counts = over_pixels.values
        # Shifts by the same number in all lanes are fast if LLVM can see that.
        numbers = [splat(b, number, lanes) for number in given]
        after = []
        for part in range(parts):
            places = [add_offset(b, side, part * lanes) for side in (left, right, to)]
            values = [
                b.sext(load(b, one, make_int_vector_type(8, lanes), 1), words) for one in places[:2]
            ]
            value, counted = result(b, values, numbers, counts[part * rows : (part + 1) * rows])
            store(b, b.trunc(value, make_int_vector_type(8, lanes)), places[2], 1)
            after += counted
        moved = [b.add(side, step) for side in (left, right, to)]
        counts = over_pixels.end([*moved, *after])[3:]
        for i, counted in enumerate(counts):
            part, number = divmod(i, rows)
            rows_at = add_offset(b, table, 2 * lanes * part)
            store(b, counted, add_offset(b, rows_at, number, row), 2)
        width = lanes * parts
        return [
            *(b.add(side, make_int_constant(width)) for side in sides),
            b.add(table, make_int_constant(2 * width)),
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
    """Add or rescale the Int8 values of pixels by blocks of 16 channels; fill ``table``.

    A rescale clips the left side, scales it, and clips the result; a sum has one clip.

    Parameters
    ----------
    spm, operation
        Scratchpad and kind of operation.
    results
        int8, which is written.
    sides
        First bytes of left and right in ``spm``, and of the result in ``results``, both int8.
    step, pixels, blocks
        Bytes from pixel to pixel, and the numbers of pixels and of blocks.
    numbers
        int16 [PARAMETERS].
    table
        int16 [CLIPS, ROWS, blocks * LANES or more], which is filled.
    """
    base, (lhs, rhs, out) = get_address(spm), sides
    shape = (base + lhs, base + rhs, get_address(results) + out, step, pixels, blocks)
    arguments = (*shape, get_address(numbers), get_address(table), 2 * table.shape[2])
    if operation == SUM:
        _sums(arguments)
    elif operation == RESCALE_UNCLIPPED:
        _rescales_within(arguments)
    else:
        _rescales(arguments)


RUN_BYTES: Any = np.int64(1 << 13)
"""Bytes of whole pixels between two evaluations of the table; they stay in the inner cache."""
_INT8_LOW, _INT8_HIGH = -(1 << 7), (1 << 7) - 1
_MAX_OFFSET = 1 << 14
_MAX_SIDE = 1 << 13


@jit
def encode_scale(scale: IntegerScaleRecord, offset: Int, numbers: Int16s, first: Int) -> Any:
    """Encode a scale as four int16 numbers; return False if a result could exceed 16 bits."""
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
    numbers[first + DOUBLED] = ONCE << gain
    numbers[first + MUL] = scale.mul << (doublings - gain)
    return most * np.abs(scale.mul) >> scale.post < _MAX_SIDE


@jit
def encode_clip(
    q: BinaryScales | RescaleParameters, element: Int, numbers: Int16s, first: Int
) -> Any:
    """Encode a zero point and a clip; return False if vector code does not support them."""
    low, high = q.clip.low, q.clip.high
    if element != 0 or q.profile not in (GLOW_INT, NMP) or np.abs(q.out_offset) > _MAX_SIDE:
        return False
    numbers[ADDEND] = q.out_offset
    numbers[first] = max(low, _INT8_LOW)
    numbers[first + 1] = min(high, _INT8_HIGH)
    return low >= _INT8_LOW and high <= _INT8_HIGH


@jit
def encode_sum(t: BinaryShape, q: BinaryScales, numbers: Int16s) -> Any:
    """Encode a sum or difference in ``numbers``; return False if it is not supported."""
    if (t.operation != OP_ADD and t.operation != OP_SUB) or t.rhs_size != 0:
        return False
    numbers[SIGN] = 1 if t.operation == OP_ADD else -1
    if not encode_clip(q, t.element, numbers, CLIP_LOW):
        return False
    if not encode_scale(q.lhs_scale, q.lhs_offset, numbers, LHS):
        return False
    return encode_scale(q.rhs_scale, q.rhs_offset, numbers, RHS)


@jit
def encode_rescale(u: RescaleParameters, numbers: Int16s) -> Any:
    """Encode a rescale in ``numbers``; return False if it is not supported."""
    if u.leaky or not _INT8_LOW <= u.in_low <= u.in_high <= _INT8_HIGH:
        return False
    numbers[CLIP_LOW], numbers[CLIP_HIGH] = u.in_low, u.in_high
    if not encode_clip(u, u.element, numbers, CLIP_HIGH + 1):
        return False
    return encode_scale(u.scale, u.in_offset, numbers, LHS)


@jit
def choose_rescale(u: RescaleParameters) -> Any:
    """Choose ``RESCALE_UNCLIPPED`` if the clip cannot limit any result, else ``RESCALE``.

    All results lie between those of the ends of the input's range.
    """
    half = (ONCE << u.scale.post) >> ONCE
    for x in (u.in_low, u.in_high):
        scaled = (((x - u.in_offset) >> u.scale.pre) * u.scale.mul + half) >> u.scale.post
        if not u.clip.low <= scaled + u.out_offset <= u.clip.high:
            return RESCALE
    return RESCALE_UNCLIPPED


@jit
def can_use_blocks(sides: RunOffsets, index: Int, count: Int, channels: Int) -> Any:
    """Return whether values form whole channel blocks and results overwrite no unread operand.

    ``sides`` are the first bytes of left, right and result.
    """
    lhs, rhs, out = sides
    whole = channels % LANES == 0 and index % LANES == 0 and count % LANES == 0
    return whole and are_same_or_disjoint(out, lhs, count) and are_same_or_disjoint(out, rhs, count)


@jit
def are_same_or_disjoint(start: Int, other: Int, count: Int) -> Any:
    """Return whether two ranges of ``count`` bytes are the same or do not overlap."""
    return start == other or np.abs(start - other) >= count


@jit
def add_or_rescale_values(
    spm: ScratchpadViews,
    operation: Int,
    sides: RunOffsets,
    count: Int,
    numbers: Int16s,
    table: Int16s,
    buffer: Int8s,
    clip: Clip,
    index: Int,
    counters: SaturationCounters,
) -> None:
    """Add or rescale ``count`` consecutive Int8 values; count saturated and clipped values.

    Whole pixels are computed at once, and what is left at either end.

    Parameters
    ----------
    spm, operation, sides
        Scratchpad, kind of operation, and first bytes of left, right and result.
    count
        Number of values.
    numbers
        int16 [PARAMETERS].
    counters
        Counters of saturated values.
    clip
        Clip of the result.
    index
        Position of the first value in the layer's output.
    table
        int16 [CLIPS, ROWS, channels, or ``count`` of them].
    buffer
        int8, for the results of twice as many pixels as are computed at once.
    """
    channels, done = counters.layers[counters.layer].channels, np.int64(0)
    lhs, rhs, out = sides
    is_in_place = out in (lhs, rhs)
    while done < count:
        channel = (index + done) % channels
        pixels, width = ONCE, min(channels - channel, count - done)
        if width == channels:
            pixels = max(min(count - done, RUN_BYTES) // channels, ONCE)
        i8, at, blocks = spm.i8, index + done, width // LANES
        left, right, to = lhs + done, rhs + done, out + done
        if is_in_place:
            values = left, right, ZERO
            compute_blocks(i8, operation, values, buffer, channels, pixels, blocks, numbers, table)
        else:
            compute_blocks(
                i8, operation, (left, right, to), i8, channels, pixels, blocks, numbers, table
            )
        missing, pixel = add_clip_counts(operation, numbers, table, width, clip, at, counters), at
        while missing > 0 and pixel < at + pixels * width:
            one = left + pixel - at, right + pixel - at, np.int64(buffer.size // 2)
            compute_blocks(i8, operation, one, buffer, channels, ONCE, blocks, numbers, table)
            missing -= record_first_values(operation, table, width, clip, pixel, counters)
            pixel += width
        if is_in_place:
            copy_elements(buffer, ZERO, i8, to, pixels * width)
        done += pixels * width


@jit
def count_clips(operation: Int) -> Any:
    """Return the number of clips of an operation: 2 for a clipped rescale, else 1."""
    return CLIPS if operation == RESCALE else 1


@jit
def get_limit_stages(operation: Int, number: Int, clip: Clip) -> Any:
    """Return the two stages that count values below and above the limits of clip ``number``."""
    low, high = get_clip_stages(clip)
    if operation != SUM and number == 0:
        low, high = ACTIVATION, ACTIVATION
    return low, high


@jit
def add_clip_counts(
    operation: Int,
    numbers: Int16s,
    table: Int16s,
    width: Int,
    clip: Clip,
    index: Int,
    counters: SaturationCounters,
) -> Any:
    """Add clip counts to the layer's counters; return how many limits may need a first index.

    Returns how many counters may not know their first limited value yet.
    """
    missing = np.int64(0)
    for number in range(count_clips(operation)):
        low_stage, high_stage = get_limit_stages(operation, number, clip)
        least, most = np.int16(_INT16_HIGH), np.int16(_INT16_LOW)
        for i in range(width):
            least, most = min(least, table[number, LEAST, i]), max(most, table[number, MOST, i])
        below = np.int64(numbers[CLIP_LOW + 2 * number]) - np.int64(least)
        above = np.int64(most) - np.int64(numbers[CLIP_HIGH + 2 * number])
        if below > 0:
            counts = table[number, BELOW, :width]
            missing += add_side_counts(counts, below, low_stage, LOW, index, counters)
        if above > 0:
            counts = table[number, ABOVE, :width]
            missing += add_side_counts(counts, above, high_stage, HIGH, index, counters)
    return missing


@jit
def add_side_counts(
    counts: Int16s,
    overshoot: Int,
    stage: Int,
    side: Int,
    index: Int,
    counters: SaturationCounters,
) -> Any:
    """Add counts of values beyond one limit; return 1 if the first may be among them, else 0."""
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
def record_first_values(
    operation: Int,
    table: Int16s,
    width: Int,
    clip: Clip,
    index: Int,
    counters: SaturationCounters,
) -> Any:
    """Record the index of the first value beyond each limit; return how many were found."""
    found = np.int64(0)
    for number in range(count_clips(operation)):
        low_stage, high_stage = get_limit_stages(operation, number, clip)
        below, above = table[number, BELOW, :width], table[number, ABOVE, :width]
        found += record_first_value(below, low_stage, LOW, index, counters)
        found += record_first_value(above, high_stage, HIGH, index, counters)
    return found


@jit
def record_first_value(
    counts: Int16s, stage: Int, side: Int, index: Int, counters: SaturationCounters
) -> Any:
    """Record the index of the first value beyond one limit; return 1 if one was found, else 0."""
    first = counters.layers[counters.layer].first
    if first[stage, side] <= index:
        return np.int64(0)
    for i in range(counts.size):
        if counts[i]:
            first[stage, side] = min(first[stage, side], index + i)
            return ONCE
    return np.int64(0)
