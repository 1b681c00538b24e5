"""Checks of what the vector unit does."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.words import AVGPOOL, ELTWISE, FILL, LUT, MAXPOOL, RESCALE, TRANSPOSE
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

MOST_TAPS = 1 << 23
"""32 bits hold the sum of so many values less their zero point."""


def check_pool(words: Any, spm_bytes: int) -> int:
    """Check what both pools have: the words up to ``out_pixel_stride`` are the same."""
    bad = first_beyond(words, MAXPOOL.channels, MAXPOOL.channels, 1, MOST)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.in_h, MAXPOOL.in_w, 0, MOST)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.kernel_h, MAXPOOL.stride_w, 1, 1 << 20)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.pad_top, MAXPOOL.pad_left, -MOST, MOST)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.out_h, MAXPOOL.out_w, 1, 1 << 20)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.in_row_stride, MAXPOOL.out_pixel_stride, 0, MOST)
    if bad != OK:
        return bad
    channels = words[MAXPOOL.channels]
    if too_many(words[MAXPOOL.out_h], words[MAXPOOL.out_w], channels, spm_bytes):
        return int(MAXPOOL.out_h)
    if too_many(words[MAXPOOL.kernel_h], words[MAXPOOL.kernel_w], 1, min(spm_bytes, MOST_TAPS)):
        return int(MAXPOOL.kernel_h)
    in_extent = span(
        words[MAXPOOL.in_h],
        words[MAXPOOL.in_row_stride],
        words[MAXPOOL.in_w],
        words[MAXPOOL.in_pixel_stride],
        channels,
    )
    if outside(words[MAXPOOL.input], in_extent, spm_bytes):
        return int(MAXPOOL.input)
    extent = span(
        words[MAXPOOL.out_h],
        words[MAXPOOL.out_row_stride],
        words[MAXPOOL.out_w],
        words[MAXPOOL.out_pixel_stride],
        channels,
    )
    if (
        outside(words[MAXPOOL.output], extent, spm_bytes)
        or meets(words[MAXPOOL.output], extent, words[MAXPOOL.input], in_extent)
        or folds(
            words[MAXPOOL.out_h],
            words[MAXPOOL.out_row_stride],
            words[MAXPOOL.out_w],
            words[MAXPOOL.out_pixel_stride],
            channels,
        )
    ):
        return int(MAXPOOL.output)
    return OK


def check_maxpool(words: Any, spm_bytes: int) -> int:
    """Check a maximum pool."""
    bad = check_pool(words, spm_bytes)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.empty_value, MAXPOOL.empty_value, -128, 127)
    return bad


def check_avgpool(words: Any, spm_bytes: int) -> int:
    """Check an average pool."""
    bad = check_pool(words, spm_bytes)
    if bad == OK:
        bad = first_beyond(words, AVGPOOL.in_offset, AVGPOOL.in_offset, -128, 127)
    if bad == OK:
        bad = first_beyond(words, AVGPOOL.divide, AVGPOOL.divide, 0, 1)
    if bad != OK:
        return bad
    if bad_scale(words, AVGPOOL.out_pre, words[AVGPOOL.profile]):
        return int(AVGPOOL.out_pre)
    return check_clip(words, AVGPOOL.clip_low, words[AVGPOOL.element])


def check_eltwise(words: Any, spm_bytes: int) -> int:
    """Check an elementwise operation."""
    bad = first_beyond(words, ELTWISE.operation, ELTWISE.operation, 0, 4)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.rhs_kind, ELTWISE.rhs_kind, 0, 1)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.rows, ELTWISE.columns, 1, MOST)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.lhs_stride, ELTWISE.out_stride, 0, MOST)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.lhs_offset, ELTWISE.lhs_offset, -128, 127)
    if bad != OK:
        return bad
    rows, columns = words[ELTWISE.rows], words[ELTWISE.columns]
    if too_many(rows, columns, 1, spm_bytes):
        return int(ELTWISE.rows)
    lhs_extent = span(rows, words[ELTWISE.lhs_stride], 1, 0, columns)
    if outside(words[ELTWISE.lhs], lhs_extent, spm_bytes):
        return int(ELTWISE.lhs)
    wide = 4 if words[ELTWISE.rhs_kind] else 1
    rhs_extent = span(rows, words[ELTWISE.rhs_stride], 1, 0, wide * columns)
    if outside(words[ELTWISE.rhs], rhs_extent, spm_bytes):
        return int(ELTWISE.rhs)
    if wide == 4 and (words[ELTWISE.rhs] % 4 or words[ELTWISE.rhs_stride] % 4):
        return int(ELTWISE.rhs)
    out_extent = span(rows, words[ELTWISE.out_stride], 1, 0, columns)
    if outside(words[ELTWISE.output], out_extent, spm_bytes):
        return int(ELTWISE.output)
    if (
        folds(rows, words[ELTWISE.out_stride], 1, 0, columns)
        or (
            meets(words[ELTWISE.output], out_extent, words[ELTWISE.lhs], lhs_extent)
            and (
                words[ELTWISE.output] != words[ELTWISE.lhs]
                or words[ELTWISE.out_stride] != words[ELTWISE.lhs_stride]
            )
        )
        or (
            meets(words[ELTWISE.output], out_extent, words[ELTWISE.rhs], rhs_extent)
            and (
                words[ELTWISE.output] != words[ELTWISE.rhs]
                or words[ELTWISE.out_stride] != words[ELTWISE.rhs_stride]
                or wide == 4
            )
        )
    ):
        return int(ELTWISE.output)
    for scale in (ELTWISE.lhs_pre, ELTWISE.rhs_pre, ELTWISE.out_pre):
        if bad_scale(words, scale, words[ELTWISE.profile]):
            return int(scale)
    return check_clip(words, ELTWISE.clip_low, words[ELTWISE.element])


def check_rescale(words: Any, spm_bytes: int) -> int:
    """Check a rescale."""
    bad = first_beyond(words, RESCALE.count, RESCALE.count, 1, MOST)
    if bad == OK:
        bad = first_beyond(words, RESCALE.in_low, RESCALE.in_offset, -128, 127)
    if bad == OK:
        bad = first_beyond(words, RESCALE.in_high, RESCALE.in_high, words[RESCALE.in_low], 127)
    if bad == OK:
        bad = first_beyond(words, RESCALE.activation, RESCALE.activation, 0, 1)
    if bad != OK:
        return bad
    if outside(words[RESCALE.input], words[RESCALE.count], spm_bytes):
        return int(RESCALE.input)
    if outside(words[RESCALE.output], words[RESCALE.count], spm_bytes) or (
        words[RESCALE.output] != words[RESCALE.input]
        and meets(
            words[RESCALE.output], words[RESCALE.count], words[RESCALE.input], words[RESCALE.count]
        )
    ):
        return int(RESCALE.output)
    for scale in (RESCALE.out_pre, RESCALE.leaky_pre):
        if bad_scale(words, scale, words[RESCALE.profile]):
            return int(scale)
    return check_clip(words, RESCALE.clip_low, words[RESCALE.element])


def check_lut(words: Any, spm_bytes: int) -> int:
    """Check a table look-up."""
    if words[LUT.count] < 1 or words[LUT.count] > MOST:
        return int(LUT.count)
    if outside(words[LUT.input], words[LUT.count], spm_bytes):
        return int(LUT.input)
    if outside(words[LUT.table], 256, spm_bytes):
        return int(LUT.table)
    if (
        outside(words[LUT.output], words[LUT.count], spm_bytes)
        or meets(words[LUT.output], words[LUT.count], words[LUT.table], 256)
        or (
            words[LUT.output] != words[LUT.input]
            and meets(words[LUT.output], words[LUT.count], words[LUT.input], words[LUT.count])
        )
    ):
        return int(LUT.output)
    return OK


def check_fill(words: Any, spm_bytes: int) -> int:
    """Check a fill."""
    if words[FILL.count] < 1 or words[FILL.count] > MOST:
        return int(FILL.count)
    if words[FILL.value] < -128 or words[FILL.value] > 127:
        return int(FILL.value)
    return int(FILL.output) if outside(words[FILL.output], words[FILL.count], spm_bytes) else OK


def check_transpose(words: Any, spm_bytes: int) -> int:
    """Check a strided copy."""
    size = words[TRANSPOSE.element_bytes]
    if size not in (1, 2, 4, 8):
        return int(TRANSPOSE.element_bytes)
    bad = first_beyond(words, TRANSPOSE.size_0, TRANSPOSE.size_3, 1, MOST)
    if bad == OK:
        bad = first_beyond(words, TRANSPOSE.in_stride_0, TRANSPOSE.out_stride_3, 0, MOST)
    if bad != OK:
        return bad
    if too_many(
        words[TRANSPOSE.size_0], words[TRANSPOSE.size_1], words[TRANSPOSE.size_2], spm_bytes
    ):
        return int(TRANSPOSE.size_0)
    elements = words[TRANSPOSE.size_0] * words[TRANSPOSE.size_1] * words[TRANSPOSE.size_2]
    if too_many(elements, words[TRANSPOSE.size_3], 1, spm_bytes):
        return int(TRANSPOSE.size_3)
    in_extent = size
    out_extent = size
    for d in range(4):
        in_extent += (words[TRANSPOSE.size_0 + d] - 1) * words[TRANSPOSE.in_stride_0 + d]
        out_extent += (words[TRANSPOSE.size_0 + d] - 1) * words[TRANSPOSE.out_stride_0 + d]
    if outside(words[TRANSPOSE.input], in_extent, spm_bytes):
        return int(TRANSPOSE.input)
    if outside(words[TRANSPOSE.output], out_extent, spm_bytes) or meets(
        words[TRANSPOSE.output], out_extent, words[TRANSPOSE.input], in_extent
    ):
        return int(TRANSPOSE.output)
    return OK


FUNCTIONS = (
    check_pool,
    check_maxpool,
    check_avgpool,
    check_eltwise,
    check_rescale,
    check_lut,
    check_fill,
    check_transpose,
)
"""What the compiled engine compiles, callees first."""
