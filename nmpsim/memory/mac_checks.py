"""Checks of what the MAC array does: convolutions and matrix products."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import CHANNEL_BYTES, CONV, DWCONV, GEMM, PART_ONLY, SCALE, SCALE_BYTES
from nmpsim.memory.bounds import (
    MOST,
    OK,
    bad_scale,
    check_clip,
    first_beyond,
    folds,
    meets,
    outside,
    span,
    too_many,
)


def bad_scale_table(values: Any, address: int, channels: int) -> bool:
    """True if a scale record in a scratchpad (int32 ``values``) holds what no unit can do.

    The records are data, so they are looked at when the instruction is issued; the table's bounds
    and alignment have been checked. ``address`` 0 means that there is no table.
    """
    if address == 0:
        return False
    first = (address - SCRATCHPAD_BASE) // 4
    for channel in range(channels):
        at = first + channel * (SCALE_BYTES // 4)
        if values[at + SCALE.weight_offset] < -128 or values[at + SCALE.weight_offset] > 127:
            return True
        for shift in (SCALE.bias_pre, SCALE.bias_post, SCALE.out_pre, SCALE.out_post):
            if values[at + shift] < 0 or values[at + shift] > 31:
                return True
    return False


def meets_operands(
    words: Any, start: int, extent: int, in_extent: int, weight_bytes: int, channels: int
) -> bool:
    """True if a range shares a byte with an operand of a convolution of either kind.

    The words up to ``output`` are the same in both descriptors.
    """
    if meets(start, extent, words[CONV.input], in_extent):
        return True
    if meets(start, extent, words[CONV.weights], weight_bytes):
        return True
    if meets(start, extent, words[CONV.channels], channels * CHANNEL_BYTES):
        return True
    return bool(words[CONV.scales]) and meets(
        start, extent, words[CONV.scales], channels * SCALE_BYTES
    )


def check_requantize(words: Any, first: int) -> int:
    """Check the words from ``bias_pre`` (index ``first``) to ``clip_wanted``."""
    for scale in (0, 3, 8):  # bias, out, leaky
        if bad_scale(words, first + scale):
            return int(first + scale)
    if words[first + 7] > 1:
        return int(first + 7)
    return check_clip(words, first + 11)


def check_conv(words: Any, spm_bytes: int) -> int:
    """Check a convolution."""
    bad = first_beyond(words, CONV.groups, CONV.out_w, 1, 1 << 20)
    if bad == OK:
        bad = first_beyond(words, CONV.in_row_stride, CONV.out_pixel_stride, 0, MOST)
    if bad == OK:
        bad = first_beyond(words, CONV.part, CONV.part, 0, 3)
    if bad == OK:
        bad = first_beyond(words, CONV.weight_offset, CONV.weight_offset, -128, 127)
    if bad != OK:
        return bad
    channels = words[CONV.out_channels]
    if channels % words[CONV.groups]:
        return int(CONV.out_channels)
    if too_many(words[CONV.out_h], words[CONV.out_w], channels, spm_bytes):
        return int(CONV.out_h)
    rows = (words[CONV.out_h] - 1) * words[CONV.stride_h]
    rows += (words[CONV.kernel_h] - 1) * words[CONV.dilation_h] + 1
    columns = (words[CONV.out_w] - 1) * words[CONV.stride_w]
    columns += (words[CONV.kernel_w] - 1) * words[CONV.dilation_w] + 1
    depth = words[CONV.groups] * words[CONV.in_channels]
    if rows > MOST:
        return int(CONV.out_h)
    if columns > MOST:
        return int(CONV.out_w)
    if depth > MOST:
        return int(CONV.in_channels)
    in_extent = span(rows, words[CONV.in_row_stride], columns, words[CONV.in_pixel_stride], depth)
    if outside(words[CONV.input], in_extent, spm_bytes):
        return int(CONV.input)
    row_groups = (words[CONV.kernel_w] * words[CONV.in_channels] + 3) // 4
    if row_groups > MOST:
        return int(CONV.kernel_w)
    weights = ((channels + 15) // 16) * words[CONV.kernel_h] * 64
    if weights > MOST or outside(words[CONV.weights], weights * row_groups, spm_bytes):
        return int(CONV.weights)
    if (
        outside(words[CONV.channels], channels * CHANNEL_BYTES, spm_bytes)
        or words[CONV.channels] % 4
    ):
        return int(CONV.channels)
    if words[CONV.scales] != 0 and (
        outside(words[CONV.scales], channels * SCALE_BYTES, spm_bytes) or words[CONV.scales] % 4
    ):
        return int(CONV.scales)
    extent = span(
        words[CONV.out_h],
        words[CONV.out_row_stride],
        words[CONV.out_w],
        words[CONV.out_pixel_stride],
        channels,
    )
    if outside(words[CONV.output], extent, spm_bytes):
        return int(CONV.output)
    if meets_operands(
        words, words[CONV.output], extent, in_extent, weights * row_groups, channels
    ) or folds(
        words[CONV.out_h],
        words[CONV.out_row_stride],
        words[CONV.out_w],
        words[CONV.out_pixel_stride],
        channels,
    ):
        return int(CONV.output)
    if words[CONV.part] != PART_ONLY:
        sums = 4 * words[CONV.out_h] * words[CONV.out_w] * channels
        partial = words[CONV.partial]
        if outside(partial, sums, spm_bytes) or partial % 4:
            return int(CONV.partial)
        if meets(partial, sums, words[CONV.output], extent) or meets_operands(
            words, partial, sums, in_extent, weights * row_groups, channels
        ):
            return int(CONV.partial)
    return check_requantize(words, CONV.bias_pre)


def check_dwconv(words: Any, spm_bytes: int) -> int:
    """Check a depthwise convolution."""
    bad = first_beyond(words, DWCONV.channels_count, DWCONV.out_w, 1, 1 << 20)
    if bad == OK:
        bad = first_beyond(words, DWCONV.in_row_stride, DWCONV.out_pixel_stride, 0, MOST)
    if bad == OK:
        bad = first_beyond(words, DWCONV.weight_offset, DWCONV.weight_offset, -128, 127)
    if bad != OK:
        return bad
    channels = words[DWCONV.channels_count]
    if too_many(words[DWCONV.out_h], words[DWCONV.out_w], channels, spm_bytes):
        return int(DWCONV.out_h)
    rows = (words[DWCONV.out_h] - 1) * words[DWCONV.stride_h]
    rows += (words[DWCONV.kernel_h] - 1) * words[DWCONV.dilation_h] + 1
    columns = (words[DWCONV.out_w] - 1) * words[DWCONV.stride_w]
    columns += (words[DWCONV.kernel_w] - 1) * words[DWCONV.dilation_w] + 1
    if rows > MOST:
        return int(DWCONV.out_h)
    if columns > MOST:
        return int(DWCONV.out_w)
    in_extent = span(
        rows, words[DWCONV.in_row_stride], columns, words[DWCONV.in_pixel_stride], channels
    )
    if outside(words[DWCONV.input], in_extent, spm_bytes):
        return int(DWCONV.input)
    taps = words[DWCONV.kernel_h] * words[DWCONV.kernel_w]
    if taps > MOST or outside(words[DWCONV.weights], taps * channels, spm_bytes):
        return int(DWCONV.weights)
    if (
        outside(words[DWCONV.channels], channels * CHANNEL_BYTES, spm_bytes)
        or words[DWCONV.channels] % 4
    ):
        return int(DWCONV.channels)
    if words[DWCONV.scales] != 0 and (
        outside(words[DWCONV.scales], channels * SCALE_BYTES, spm_bytes) or words[DWCONV.scales] % 4
    ):
        return int(DWCONV.scales)
    extent = span(
        words[DWCONV.out_h],
        words[DWCONV.out_row_stride],
        words[DWCONV.out_w],
        words[DWCONV.out_pixel_stride],
        channels,
    )
    if outside(words[DWCONV.output], extent, spm_bytes):
        return int(DWCONV.output)
    if meets_operands(
        words, words[DWCONV.output], extent, in_extent, taps * channels, channels
    ) or folds(
        words[DWCONV.out_h],
        words[DWCONV.out_row_stride],
        words[DWCONV.out_w],
        words[DWCONV.out_pixel_stride],
        channels,
    ):
        return int(DWCONV.output)
    return check_requantize(words, DWCONV.bias_pre)


def check_gemm(words: Any, spm_bytes: int) -> int:
    """Check a matrix product."""
    bad = first_beyond(words, GEMM.rows, GEMM.columns, 1, MOST)
    if bad == OK:
        bad = first_beyond(words, GEMM.lhs_stride, GEMM.out_stride, 0, MOST)
    if bad == OK:
        bad = first_beyond(words, GEMM.part, GEMM.part, 0, 3)
    if bad == OK:
        bad = first_beyond(words, GEMM.lhs_offset, GEMM.rhs_offset, -128, 127)
    if bad != OK:
        return bad
    rows, inner, columns = words[GEMM.rows], words[GEMM.inner], words[GEMM.columns]
    if too_many(rows, columns, 1, spm_bytes):
        return int(GEMM.rows)
    lhs, rhs, output = words[GEMM.lhs], words[GEMM.rhs], words[GEMM.output]
    lhs_extent = span(rows, words[GEMM.lhs_stride], 1, 0, inner)
    if outside(lhs, lhs_extent, spm_bytes):
        return int(GEMM.lhs)
    rhs_extent = span(inner, words[GEMM.rhs_stride], 1, 0, columns)
    if outside(rhs, rhs_extent, spm_bytes):
        return int(GEMM.rhs)
    extent = span(rows, words[GEMM.out_stride], 1, 0, columns)
    if outside(output, extent, spm_bytes):
        return int(GEMM.output)
    if (
        meets(output, extent, lhs, lhs_extent)
        or meets(output, extent, rhs, rhs_extent)
        or folds(rows, words[GEMM.out_stride], 1, 0, columns)
    ):
        return int(GEMM.output)
    if words[GEMM.part] != PART_ONLY:
        partial, sums = words[GEMM.partial], 4 * rows * columns
        if outside(partial, sums, spm_bytes) or partial % 4:
            return int(GEMM.partial)
        if (
            meets(partial, sums, lhs, lhs_extent)
            or meets(partial, sums, rhs, rhs_extent)
            or meets(partial, sums, output, extent)
        ):
            return int(GEMM.partial)
    if bad_scale(words, GEMM.out_pre):
        return int(GEMM.out_pre)
    return check_clip(words, GEMM.clip_low)


FUNCTIONS = (
    bad_scale_table,
    meets_operands,
    check_requantize,
    check_conv,
    check_dwconv,
    check_gemm,
)
"""What the compiled engine compiles, callees first."""
