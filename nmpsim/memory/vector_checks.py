"""Checks of what the vector unit does."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.words import (
    AVGPOOL,
    ELTWISE,
    FILL,
    FLOAT,
    GLOW_FLOAT,
    LUT,
    MAXPOOL,
    OP_ADD,
    OP_MAX,
    OP_MIN,
    OP_MUL,
    OP_SUB,
    PROFILE_MASKS,
    QNNPACK,
    RESCALE,
    TRANSPOSE,
)
from nmpsim.memory.bounds import (
    INFINITY_BITS,
    MOST,
    OK,
    bad_profile,
    bad_result_scale,
    bad_scale,
    beyond_element,
    check_clip,
    first_beyond,
    first_odd,
    folds,
    meets,
    outside,
    span,
    too_many,
)

MAX_TAPS = 1 << 23
"""32 bits hold the sum of so many Int8 values less their zero point."""
_PROFILES, _AVERAGE_PROFILES = PROFILE_MASKS["rescale"], PROFILE_MASKS["avgpool"]
_PAIR_PROFILES = PROFILE_MASKS["eltwise"]


def check_pool(words: Any, spm_bytes: int) -> int:
    """Check what both pools have: the words up to ``out_pixel_stride`` are the same."""
    bad = first_beyond(words, MAXPOOL.element, MAXPOOL.element, 0, 1)
    if bad == OK:
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
    element = words[MAXPOOL.element]
    if bad == OK:
        bad = first_odd(words, MAXPOOL.in_row_stride, MAXPOOL.out_pixel_stride, element)
    if bad == OK:
        bad = first_odd(words, MAXPOOL.input, MAXPOOL.output, element)
    if bad != OK:
        return bad
    pixel = words[MAXPOOL.channels] << element
    if too_many(words[MAXPOOL.out_h], words[MAXPOOL.out_w], pixel, spm_bytes):
        return int(MAXPOOL.out_h)
    if too_many(words[MAXPOOL.kernel_h], words[MAXPOOL.kernel_w], 1, min(spm_bytes, MAX_TAPS)):
        return int(MAXPOOL.kernel_h)
    in_extent = span(
        words[MAXPOOL.in_h],
        words[MAXPOOL.in_row_stride],
        words[MAXPOOL.in_w],
        words[MAXPOOL.in_pixel_stride],
        pixel,
    )
    if outside(words[MAXPOOL.input], in_extent, spm_bytes):
        return int(MAXPOOL.input)
    extent = span(
        words[MAXPOOL.out_h],
        words[MAXPOOL.out_row_stride],
        words[MAXPOOL.out_w],
        words[MAXPOOL.out_pixel_stride],
        pixel,
    )
    if (
        outside(words[MAXPOOL.output], extent, spm_bytes)
        or meets(words[MAXPOOL.output], extent, words[MAXPOOL.input], in_extent)
        or folds(
            words[MAXPOOL.out_h],
            words[MAXPOOL.out_row_stride],
            words[MAXPOOL.out_w],
            words[MAXPOOL.out_pixel_stride],
            pixel,
        )
    ):
        return int(MAXPOOL.output)
    return OK


def check_maxpool(words: Any, spm_bytes: int) -> int:
    """Check a maximum pool."""
    bad = check_pool(words, spm_bytes)
    if bad == OK:
        bad = beyond_element(
            words, MAXPOOL.empty_value, MAXPOOL.empty_value, words[MAXPOOL.element]
        )
    return bad


def check_avgpool(words: Any, spm_bytes: int) -> int:
    """Check an average pool."""
    bad = check_pool(words, spm_bytes)
    if bad != OK:
        return bad
    if bad_profile(words, AVGPOOL.profile, _AVERAGE_PROFILES):
        return int(AVGPOOL.profile)
    bad = beyond_element(words, AVGPOOL.in_offset, AVGPOOL.in_offset, words[AVGPOOL.element])
    if bad == OK:
        bad = first_beyond(words, AVGPOOL.divide, AVGPOOL.divide, 0, 1)
    if bad != OK:
        return bad
    if bad_scale(words, AVGPOOL.out_pre, words[AVGPOOL.profile]):
        return int(AVGPOOL.out_pre)
    return check_clip(words, AVGPOOL.clip_low, words[AVGPOOL.element])


def check_pair(words: Any, spm_bytes: int) -> int:
    """Check the operands and the result of an elementwise operation."""
    element = words[ELTWISE.element]
    rows, columns = words[ELTWISE.rows], words[ELTWISE.columns]
    run = columns << element
    if too_many(rows, run, 1, spm_bytes):
        return int(ELTWISE.rows)
    bad = first_odd(words, ELTWISE.lhs_stride, ELTWISE.out_stride, element)
    if bad == OK:
        bad = first_odd(words, ELTWISE.lhs, ELTWISE.output, element)
    if bad != OK:
        return bad
    lhs_extent = span(rows, words[ELTWISE.lhs_stride], 1, 0, run)
    if outside(words[ELTWISE.lhs], lhs_extent, spm_bytes):
        return int(ELTWISE.lhs)
    wide = words[ELTWISE.rhs_kind]
    rhs_extent = span(rows, words[ELTWISE.rhs_stride], 1, 0, 4 * columns if wide else run)
    if outside(words[ELTWISE.rhs], rhs_extent, spm_bytes):
        return int(ELTWISE.rhs)
    if wide and (words[ELTWISE.rhs] % 4 or words[ELTWISE.rhs_stride] % 4):
        return int(ELTWISE.rhs)
    output, stride = words[ELTWISE.output], words[ELTWISE.out_stride]
    extent = span(rows, stride, 1, 0, run)
    if outside(output, extent, spm_bytes) or folds(rows, stride, 1, 0, run):
        return int(ELTWISE.output)
    if meets(output, extent, words[ELTWISE.lhs], lhs_extent) and (
        output != words[ELTWISE.lhs] or stride != words[ELTWISE.lhs_stride]
    ):
        return int(ELTWISE.output)
    if meets(output, extent, words[ELTWISE.rhs], rhs_extent) and (
        output != words[ELTWISE.rhs] or stride != words[ELTWISE.rhs_stride] or wide
    ):
        return int(ELTWISE.output)
    return OK


def is_finite(words: Any, index: int) -> bool:
    """True if a float32 of either sign is finite."""
    return bool(words[index] & 0x7FFF_FFFF < INFINITY_BITS)


def check_pair_scales(words: Any) -> int:
    """Check the scales of an elementwise operation that its profile uses."""
    profile, operation = words[ELTWISE.profile], words[ELTWISE.operation]
    if profile == QNNPACK:
        return int(ELTWISE.out_post) if words[ELTWISE.out_post] > 31 else OK
    for scale in (ELTWISE.lhs_pre, ELTWISE.rhs_pre, ELTWISE.out_pre):
        if bad_scale(words, scale, profile):
            return int(scale)
    if profile == FLOAT and operation != OP_MUL:
        for addend in (ELTWISE.lhs_post, ELTWISE.rhs_post):
            if not is_finite(words, addend):
                return int(addend)
    divides = (profile == GLOW_FLOAT and operation in (OP_MAX, OP_MIN)) or (
        profile == FLOAT and operation != OP_MUL
    )
    if divides and bad_result_scale(words, ELTWISE.result_scale):
        return int(ELTWISE.result_scale)
    return OK


def check_eltwise(words: Any, spm_bytes: int) -> int:
    """Check an elementwise operation."""
    bad = first_beyond(words, ELTWISE.element, ELTWISE.element, 0, 1)
    if bad != OK:
        return bad
    if bad_profile(words, ELTWISE.profile, _PAIR_PROFILES):
        return int(ELTWISE.profile)
    last_operation = OP_SUB if words[ELTWISE.profile] == QNNPACK else OP_MUL
    bad = first_beyond(words, ELTWISE.operation, ELTWISE.operation, OP_ADD, last_operation)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.rhs_kind, ELTWISE.rhs_kind, 0, 1)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.rows, ELTWISE.columns, 1, MOST)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.lhs_stride, ELTWISE.out_stride, 0, MOST)
    if bad == OK:
        bad = beyond_element(words, ELTWISE.lhs_offset, ELTWISE.lhs_offset, words[ELTWISE.element])
    if bad == OK:
        bad = check_pair(words, spm_bytes)
    if bad == OK:
        bad = check_pair_scales(words)
    if bad != OK:
        return bad
    return check_clip(words, ELTWISE.clip_low, words[ELTWISE.element])


def check_unary(words: Any, source: int, extent: int, spm_bytes: int) -> int:
    """Check the address words ``source`` and the next one, the result's, of ``extent`` bytes."""
    if outside(words[source], extent, spm_bytes):
        return source
    if outside(words[source + 1], extent, spm_bytes) or (
        words[source + 1] != words[source]
        and meets(words[source + 1], extent, words[source], extent)
    ):
        return source + 1
    return OK


def check_rescale(words: Any, spm_bytes: int) -> int:
    """Check a rescale."""
    bad = first_beyond(words, RESCALE.element, RESCALE.element, 0, 1)
    if bad != OK:
        return bad
    if bad_profile(words, RESCALE.profile, _PROFILES):
        return int(RESCALE.profile)
    element = words[RESCALE.element]
    bad = first_beyond(words, RESCALE.count, RESCALE.count, 1, MOST)
    if bad == OK:
        bad = beyond_element(words, RESCALE.in_low, RESCALE.in_offset, element)
    if bad == OK and words[RESCALE.in_high] < words[RESCALE.in_low]:
        bad = int(RESCALE.in_high)
    if bad == OK:
        bad = first_beyond(words, RESCALE.activation, RESCALE.activation, 0, 1)
    if bad == OK:
        bad = first_odd(words, RESCALE.input, RESCALE.output, element)
    if bad == OK:
        bad = check_unary(words, RESCALE.input, words[RESCALE.count] << element, spm_bytes)
    if bad != OK:
        return bad
    for scale in (RESCALE.out_pre, RESCALE.leaky_pre):
        if bad_scale(words, scale, words[RESCALE.profile]):
            return int(scale)
    is_real = words[RESCALE.profile] in (GLOW_FLOAT, FLOAT)
    if is_real and bad_result_scale(words, RESCALE.result_scale):
        return int(RESCALE.result_scale)
    return check_clip(words, RESCALE.clip_low, element)


def check_lut(words: Any, spm_bytes: int) -> int:
    """Check a table look-up."""
    if words[LUT.count] < 1 or words[LUT.count] > MOST:
        return int(LUT.count)
    if outside(words[LUT.table], 256, spm_bytes):
        return int(LUT.table)
    if meets(words[LUT.output], words[LUT.count], words[LUT.table], 256):
        return int(LUT.output)
    return check_unary(words, LUT.input, words[LUT.count], spm_bytes)


def check_fill(words: Any, spm_bytes: int) -> int:
    """Check a fill."""
    element = words[FILL.element]
    bad = first_beyond(words, FILL.element, FILL.element, 0, 1)
    if bad == OK:
        bad = first_beyond(words, FILL.count, FILL.count, 1, MOST)
    if bad == OK:
        bad = beyond_element(words, FILL.value, FILL.value, element)
    if bad == OK:
        bad = first_odd(words, FILL.output, FILL.output, element)
    if bad == OK and outside(words[FILL.output], words[FILL.count] << element, spm_bytes):
        bad = int(FILL.output)
    return bad


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
    check_pair,
    is_finite,
    check_pair_scales,
    check_eltwise,
    check_unary,
    check_rescale,
    check_lut,
    check_fill,
    check_transpose,
)
"""What the compiled engine compiles, callees first."""
