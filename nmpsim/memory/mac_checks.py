"""Checks of what the MAC array does: convolutions and matrix products."""

from __future__ import annotations

from typing import Any

from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import (
    CHANNEL_BYTES,
    CONV,
    DWCONV,
    GEMM,
    GLOW_INT,
    NMP,
    ONEDNN,
    PART_ONLY,
    PROFILE_MASKS,
    Q31,
    SCALE,
    SCALE_BYTES,
)
from nmpsim.memory.bounds import (
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

_PRODUCT_PROFILES, _PROFILES = PROFILE_MASKS["gemm"], PROFILE_MASKS["conv"]
_DEPTHWISE_PROFILES = PROFILE_MASKS["dwconv"]
_LEAKY_PROFILES = 1 << GLOW_INT | 1 << NMP
_FROM_KERNEL = type(CONV)(*(index - CONV.kernel_h for index in CONV))
_FROM_BIAS = type(CONV)(*(index - CONV.bias_pre for index in CONV))
"""Both convolutions have the same words up to ``output``, from ``kernel_h`` to
``out_pixel_stride`` and from ``bias_pre`` on; these are their distances."""


def bad_out_scale(words: Any, pre: int, element: int, profile: int) -> bool:
    """As ``bad_scale``; q31's reduced multiplier of Int16 shifts by at least one."""
    if profile == Q31 and element and words[pre] > 14 + words[pre + 2]:
        return True
    return bad_scale(words, pre, profile)


def bad_scale_table(values: Any, address: int, channels: int, element: int, profile: int) -> bool:
    """True if a scale record in a scratchpad (int32 ``values``) holds what no unit can do.

    The records are data, so they are looked at when the instruction is issued; the table's bounds
    and alignment have been checked. ``address`` 0 means that there is no table.
    """
    if address == 0:
        return False
    first = (address - SCRATCHPAD_BASE) // 4
    for channel in range(channels):
        at = first + channel * (SCALE_BYTES // 4)
        offset = at + SCALE.weight_offset
        if beyond_element(values, offset, offset, element) != OK:
            return True
        if bad_scale(values, at + SCALE.bias_pre, profile):
            return True
        if bad_out_scale(values, at + SCALE.out_pre, element, profile):
            return True
    return False


def meets_operands(
    words: Any, start: int, extent: int, in_extent: int, weight_bytes: int, channels: int
) -> bool:
    """True if a range shares a byte with an operand of a convolution of either kind."""
    if meets(start, extent, words[CONV.input], in_extent):
        return True
    if meets(start, extent, words[CONV.weights], weight_bytes):
        return True
    if meets(start, extent, words[CONV.channels], channels * CHANNEL_BYTES):
        return True
    return bool(words[CONV.scales]) and meets(
        start, extent, words[CONV.scales], channels * SCALE_BYTES
    )


def check_requantize(words: Any, first: int, element: int, profile: int) -> int:
    """Check the words from ``bias_pre`` (index ``first``) to ``clip_wanted``."""
    if bad_scale(words, first, profile):
        return first
    if bad_out_scale(words, first + _FROM_BIAS.out_pre, element, profile):
        return int(first + _FROM_BIAS.out_pre)
    if profile == ONEDNN and bad_result_scale(words, first + _FROM_BIAS.result_scale):
        return int(first + _FROM_BIAS.result_scale)
    activation = first + _FROM_BIAS.activation
    if words[activation] > (_LEAKY_PROFILES >> profile) & 1:
        return int(activation)
    if bad_scale(words, first + _FROM_BIAS.leaky_pre, profile):
        return int(first + _FROM_BIAS.leaky_pre)
    return check_clip(words, first + _FROM_BIAS.clip_low, element)


def check_kind(words: Any, kernel: int, profiles: int) -> int:
    """Check a convolution's words that stand alone; ``kernel`` is the index of ``kernel_h``."""
    bad = first_beyond(words, CONV.element, CONV.element, 0, 1)
    if bad != OK:
        return bad
    if bad_profile(words, CONV.profile, profiles):
        return int(CONV.profile)
    bad = first_beyond(words, kernel, kernel + _FROM_KERNEL.out_w, 1, 1 << 20)
    strides = kernel + _FROM_KERNEL.in_row_stride
    if bad == OK:
        bad = first_beyond(words, strides, kernel + _FROM_KERNEL.out_pixel_stride, 0, MOST)
    element = words[CONV.element]
    if bad == OK:
        bad = first_odd(words, strides, kernel + _FROM_KERNEL.out_pixel_stride, element)
    if bad == OK:
        bad = first_odd(words, CONV.input, CONV.weights, element)
    if bad == OK:
        bad = first_odd(words, CONV.output, CONV.output, element)
    return bad


def image_extent(words: Any, kernel: int, run: int) -> int:
    """Bytes of the input that a convolution touches, ``run`` of them in a pixel; -1 if too many."""
    rows = (words[kernel + _FROM_KERNEL.out_h] - 1) * words[kernel + _FROM_KERNEL.stride_h]
    rows += (words[kernel] - 1) * words[kernel + _FROM_KERNEL.dilation_h] + 1
    columns = (words[kernel + _FROM_KERNEL.out_w] - 1) * words[kernel + _FROM_KERNEL.stride_w]
    columns += (words[kernel + 1] - 1) * words[kernel + _FROM_KERNEL.dilation_w] + 1
    if rows > MOST or columns > MOST or run > MOST:
        return -1
    return span(
        rows,
        words[kernel + _FROM_KERNEL.in_row_stride],
        columns,
        words[kernel + _FROM_KERNEL.in_pixel_stride],
        run,
    )


def check_operands(
    words: Any, kernel: int, in_extent: int, weight_bytes: int, channels: int, spm_bytes: int
) -> int:
    """Check where a convolution's operands lie, but the input, and that the result meets none."""
    if outside(words[CONV.weights], weight_bytes, spm_bytes):
        return int(CONV.weights)
    records = words[CONV.channels]
    if outside(records, channels * CHANNEL_BYTES, spm_bytes) or records % 8:
        return int(CONV.channels)
    scales = words[CONV.scales]
    if scales != 0 and (outside(scales, channels * SCALE_BYTES, spm_bytes) or scales % 4):
        return int(CONV.scales)
    extent = result_extent(words, kernel, channels)
    output = words[CONV.output]
    if outside(output, extent, spm_bytes):
        return int(CONV.output)
    if meets_operands(words, output, extent, in_extent, weight_bytes, channels) or folds(
        words[kernel + _FROM_KERNEL.out_h],
        words[kernel + _FROM_KERNEL.out_row_stride],
        words[kernel + _FROM_KERNEL.out_w],
        words[kernel + _FROM_KERNEL.out_pixel_stride],
        channels << words[CONV.element],
    ):
        return int(CONV.output)
    return OK


def result_extent(words: Any, kernel: int, channels: int) -> int:
    """Bytes from the first to behind the last of a convolution's results."""
    return span(
        words[kernel + _FROM_KERNEL.out_h],
        words[kernel + _FROM_KERNEL.out_row_stride],
        words[kernel + _FROM_KERNEL.out_w],
        words[kernel + _FROM_KERNEL.out_pixel_stride],
        channels << words[CONV.element],
    )


def check_partial(
    words: Any, in_extent: int, weight_bytes: int, channels: int, spm_bytes: int
) -> int:
    """Check where a convolution's running sums lie."""
    sums = (4 << words[CONV.element]) * words[CONV.out_h] * words[CONV.out_w] * channels
    partial = words[CONV.partial]
    if outside(partial, sums, spm_bytes) or partial % (4 << words[CONV.element]):
        return int(CONV.partial)
    extent = result_extent(words, CONV.kernel_h, channels)
    if meets(partial, sums, words[CONV.output], extent) or meets_operands(
        words, partial, sums, in_extent, weight_bytes, channels
    ):
        return int(CONV.partial)
    return OK


def check_conv(words: Any, spm_bytes: int) -> int:
    """Check a convolution."""
    bad = first_beyond(words, CONV.groups, CONV.out_channels, 1, 1 << 20)
    if bad == OK:
        bad = check_kind(words, CONV.kernel_h, _PROFILES)
    if bad == OK:
        bad = first_beyond(words, CONV.part, CONV.part, 0, 3)
    if bad == OK:
        bad = beyond_element(words, CONV.weight_offset, CONV.weight_offset, words[CONV.element])
    if bad != OK:
        return bad
    element, channels = words[CONV.element], words[CONV.out_channels]
    if channels % words[CONV.groups]:
        return int(CONV.out_channels)
    if too_many(words[CONV.out_h], words[CONV.out_w], channels, spm_bytes):
        return int(CONV.out_h)
    run = words[CONV.groups] * words[CONV.in_channels] << element
    in_extent = image_extent(words, CONV.kernel_h, run)
    if outside(words[CONV.input], in_extent, spm_bytes):
        return int(CONV.input)
    in_block = 4 >> element
    row_blocks = (words[CONV.kernel_w] * words[CONV.in_channels] + in_block - 1) // in_block
    if row_blocks > MOST:
        return int(CONV.kernel_w)
    weight_rows = ((channels + 15) // 16) * words[CONV.kernel_h] * 64
    if weight_rows > MOST:
        return int(CONV.weights)
    weight_bytes = weight_rows * row_blocks
    bad = check_operands(words, CONV.kernel_h, in_extent, weight_bytes, channels, spm_bytes)
    if bad == OK and words[CONV.part] != PART_ONLY:
        bad = check_partial(words, in_extent, weight_bytes, channels, spm_bytes)
    if bad != OK:
        return bad
    return check_requantize(words, CONV.bias_pre, element, words[CONV.profile])


def check_dwconv(words: Any, spm_bytes: int) -> int:
    """Check a depthwise convolution."""
    bad = first_beyond(words, DWCONV.channels_count, DWCONV.channels_count, 1, 1 << 20)
    if bad == OK:
        bad = check_kind(words, DWCONV.kernel_h, _DEPTHWISE_PROFILES)
    if bad == OK:
        offset = DWCONV.weight_offset
        bad = beyond_element(words, offset, offset, words[DWCONV.element])
    if bad != OK:
        return bad
    element, channels = words[DWCONV.element], words[DWCONV.channels_count]
    if too_many(words[DWCONV.out_h], words[DWCONV.out_w], channels, spm_bytes):
        return int(DWCONV.out_h)
    in_extent = image_extent(words, DWCONV.kernel_h, channels << element)
    if outside(words[DWCONV.input], in_extent, spm_bytes):
        return int(DWCONV.input)
    taps = words[DWCONV.kernel_h] * words[DWCONV.kernel_w]
    if taps > MOST:
        return int(DWCONV.weights)
    weight_bytes = taps * channels << element
    bad = check_operands(words, DWCONV.kernel_h, in_extent, weight_bytes, channels, spm_bytes)
    if bad != OK:
        return bad
    return check_requantize(words, DWCONV.bias_pre, element, words[DWCONV.profile])


def check_product_kind(words: Any) -> int:
    """Check the words of a matrix product that stand alone."""
    bad = first_beyond(words, GEMM.element, GEMM.element, 0, 1)
    if bad != OK:
        return bad
    if bad_profile(words, GEMM.profile, _PRODUCT_PROFILES):
        return int(GEMM.profile)
    element = words[GEMM.element]
    bad = first_beyond(words, GEMM.rows, GEMM.columns, 1, MOST)
    if bad == OK:
        bad = first_beyond(words, GEMM.lhs_stride, GEMM.out_stride, 0, MOST)
    if bad == OK:
        bad = first_odd(words, GEMM.lhs_stride, GEMM.out_stride, element)
    if bad == OK:
        bad = first_odd(words, GEMM.lhs, GEMM.output, element)
    if bad == OK:
        bad = first_beyond(words, GEMM.part, GEMM.part, 0, 3)
    if bad == OK:
        bad = beyond_element(words, GEMM.lhs_offset, GEMM.rhs_offset, element)
    return bad


def check_gemm(words: Any, spm_bytes: int) -> int:
    """Check a matrix product."""
    bad = check_product_kind(words)
    if bad != OK:
        return bad
    element = words[GEMM.element]
    rows, inner, columns = words[GEMM.rows], words[GEMM.inner], words[GEMM.columns]
    if too_many(rows, columns, 1, spm_bytes):
        return int(GEMM.rows)
    lhs, rhs, output = words[GEMM.lhs], words[GEMM.rhs], words[GEMM.output]
    lhs_extent = span(rows, words[GEMM.lhs_stride], 1, 0, inner << element)
    if outside(lhs, lhs_extent, spm_bytes):
        return int(GEMM.lhs)
    rhs_extent = span(inner, words[GEMM.rhs_stride], 1, 0, columns << element)
    if outside(rhs, rhs_extent, spm_bytes):
        return int(GEMM.rhs)
    extent = span(rows, words[GEMM.out_stride], 1, 0, columns << element)
    if outside(output, extent, spm_bytes):
        return int(GEMM.output)
    if (
        meets(output, extent, lhs, lhs_extent)
        or meets(output, extent, rhs, rhs_extent)
        or folds(rows, words[GEMM.out_stride], 1, 0, columns << element)
    ):
        return int(GEMM.output)
    if words[GEMM.part] != PART_ONLY:
        partial, sums = words[GEMM.partial], (4 << element) * rows * columns
        if outside(partial, sums, spm_bytes) or partial % (4 << element):
            return int(GEMM.partial)
        if (
            meets(partial, sums, lhs, lhs_extent)
            or meets(partial, sums, rhs, rhs_extent)
            or meets(partial, sums, output, extent)
        ):
            return int(GEMM.partial)
    if bad_out_scale(words, GEMM.out_pre, element, words[GEMM.profile]):
        return int(GEMM.out_pre)
    return check_clip(words, GEMM.clip_low, element)


FUNCTIONS = (
    bad_out_scale,
    bad_scale_table,
    meets_operands,
    check_requantize,
    check_kind,
    image_extent,
    result_extent,
    check_operands,
    check_partial,
    check_conv,
    check_dwconv,
    check_product_kind,
    check_gemm,
)
"""What the compiled engine compiles, callees first."""
