"""Is a descriptor possible, and does all that it names lie in the scratchpad?

Each ``check_*`` function takes the record's words (int64) and the scratchpad's size in bytes and
gives -1 if all is well, else the index of the first word that is wrong. Sizes are bounded before
they are multiplied, so nothing here can overflow 64 bits.
"""

from __future__ import annotations

from typing import Any

from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import (
    AVGPOOL,
    CHANNEL_BYTES,
    CONV,
    DWCONV,
    ELTWISE,
    FILL,
    GEMM,
    LOAD,
    LUT,
    MAXPOOL,
    PART_ONLY,
    RESCALE,
    SCALE_BYTES,
    STORE,
    TRANSPOSE,
)

OK = -1
_MOST = 1 << 26
"""No count or stride within a scratchpad can be larger."""
_MOST_DRAM_STRIDE = 1 << 31


def outside(address: int, extent: int, spm_bytes: int) -> bool:
    """True if ``extent`` bytes from ``address`` are not all in the scratchpad."""
    start = address - SCRATCHPAD_BASE
    return bool(extent < 0 or start < 0 or start + extent > spm_bytes)


def span(count_y: int, stride_y: int, count_x: int, stride_x: int, run: int) -> int:
    """Bytes from the first to behind the last of ``count_y`` x ``count_x`` runs; 0 if none."""
    if count_y <= 0 or count_x <= 0 or run <= 0:
        return 0
    return int((count_y - 1) * stride_y + (count_x - 1) * stride_x + run)


def meets(a: int, a_extent: int, b: int, b_extent: int) -> bool:
    """True if two ranges share a byte."""
    return bool(a < b + b_extent and b < a + a_extent)


def folds(count_y: int, stride_y: int, count_x: int, stride_x: int, run: int) -> bool:
    """True if runs of a result would lie on one another."""
    if count_x > 1 and stride_x < run:
        return True
    return bool(count_y > 1 and stride_y < (count_x - 1) * stride_x + run)


def first_beyond(words: Any, first: int, last: int, low: int, high: int) -> int:
    """Index of the first word from ``first`` to ``last`` that is not within ``low`` to ``high``."""
    for index in range(first, last + 1):
        if words[index] < low or words[index] > high:
            return index
    return OK


def bad_scale(words: Any, pre: int) -> bool:
    """True if a shift of the integer scale at index ``pre`` is impossible."""
    return bool(words[pre] > 31 or words[pre + 2] > 31)


def too_many(a: int, b: int, c: int, most: int) -> bool:
    """True if ``a * b * c`` is more than ``most``; each factor is at most ``_MOST``.

    A result that a zero stride writes again and again would otherwise never end.
    """
    return bool(a * b > most or a * b * c > most)


def check_load(words: Any, spm_bytes: int) -> int:
    """Check a load; the DRAM side is for the engine, which knows what is mapped."""
    bad = first_beyond(words, LOAD.run_bytes, LOAD.count_y, 0, _MOST)
    if bad == OK:
        bad = first_beyond(words, LOAD.dram_stride_x, LOAD.dram_stride_y, 0, _MOST_DRAM_STRIDE)
    if bad == OK:
        bad = first_beyond(words, LOAD.spm_stride_x, LOAD.spm_stride_y, 0, _MOST)
    if bad == OK:
        bad = first_beyond(words, LOAD.pad_x_before, LOAD.pad_y_after, 0, _MOST)
    if bad == OK:
        bad = first_beyond(words, LOAD.fill, LOAD.fill, 0, 255)
    if bad != OK:
        return bad
    columns = words[LOAD.count_x] + words[LOAD.pad_x_before] + words[LOAD.pad_x_after]
    rows = words[LOAD.count_y] + words[LOAD.pad_y_before] + words[LOAD.pad_y_after]
    if too_many(rows, columns, max(words[LOAD.run_bytes], 1), spm_bytes):
        return int(LOAD.count_y)
    extent = span(
        rows, words[LOAD.spm_stride_y], columns, words[LOAD.spm_stride_x], words[LOAD.run_bytes]
    )
    return int(LOAD.spm) if outside(words[LOAD.spm], extent, spm_bytes) else OK


def check_store(words: Any, spm_bytes: int) -> int:
    """Check a store; the DRAM side is for the engine, which knows what is mapped."""
    bad = first_beyond(words, STORE.run_bytes, STORE.count_y, 0, _MOST)
    if bad == OK:
        bad = first_beyond(words, STORE.dram_stride_x, STORE.dram_stride_y, 0, _MOST_DRAM_STRIDE)
    if bad == OK:
        bad = first_beyond(words, STORE.spm_stride_x, STORE.spm_stride_y, 0, _MOST)
    if bad != OK:
        return bad
    if too_many(
        words[STORE.count_y], words[STORE.count_x], max(words[STORE.run_bytes], 1), spm_bytes
    ):
        return int(STORE.count_y)
    extent = span(
        words[STORE.count_y],
        words[STORE.spm_stride_y],
        words[STORE.count_x],
        words[STORE.spm_stride_x],
        words[STORE.run_bytes],
    )
    return int(STORE.spm) if outside(words[STORE.spm], extent, spm_bytes) else OK


def check_conv(words: Any, spm_bytes: int) -> int:
    """Check a convolution."""
    bad = first_beyond(words, CONV.groups, CONV.out_w, 1, 1 << 20)
    if bad == OK:
        bad = first_beyond(words, CONV.in_row_stride, CONV.out_pixel_stride, 0, _MOST)
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
    if rows > _MOST:
        return int(CONV.out_h)
    if columns > _MOST:
        return int(CONV.out_w)
    if depth > _MOST:
        return int(CONV.in_channels)
    in_extent = span(rows, words[CONV.in_row_stride], columns, words[CONV.in_pixel_stride], depth)
    if outside(words[CONV.input], in_extent, spm_bytes):
        return int(CONV.input)
    row_groups = (words[CONV.kernel_w] * words[CONV.in_channels] + 3) // 4
    if row_groups > _MOST:
        return int(CONV.kernel_w)
    weights = ((channels + 15) // 16) * words[CONV.kernel_h] * 64
    if weights > _MOST or outside(words[CONV.weights], weights * row_groups, spm_bytes):
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
    if words[CONV.part] != PART_ONLY:
        pixels = words[CONV.out_h] * words[CONV.out_w]
        if pixels > _MOST or outside(words[CONV.partial], 4 * pixels * channels, spm_bytes):
            return int(CONV.partial)
        if words[CONV.partial] % 4:
            return int(CONV.partial)
    extent = span(
        words[CONV.out_h],
        words[CONV.out_row_stride],
        words[CONV.out_w],
        words[CONV.out_pixel_stride],
        channels,
    )
    if outside(words[CONV.output], extent, spm_bytes):
        return int(CONV.output)
    if meets(words[CONV.output], extent, words[CONV.input], in_extent) or folds(
        words[CONV.out_h],
        words[CONV.out_row_stride],
        words[CONV.out_w],
        words[CONV.out_pixel_stride],
        channels,
    ):
        return int(CONV.output)
    return check_requantize(words, CONV.bias_pre)


def check_requantize(words: Any, first: int) -> int:
    """Check the words from ``bias_pre`` (index ``first``) to ``clip_wanted``."""
    for scale in (0, 3, 8):  # bias, out, leaky
        if bad_scale(words, first + scale):
            return int(first + scale)
    if words[first + 7] > 1:
        return int(first + 7)
    return check_clip(words, first + 11)


def check_clip(words: Any, clip_low: int) -> int:
    """Check ``clip_low``, ``clip_high`` and ``clip_wanted``."""
    if words[clip_low] < -128 or words[clip_low] > 127:
        return int(clip_low)
    if words[clip_low + 1] < words[clip_low] or words[clip_low + 1] > 127:
        return int(clip_low + 1)
    return int(clip_low + 2) if words[clip_low + 2] > 3 else OK


def check_dwconv(words: Any, spm_bytes: int) -> int:
    """Check a depthwise convolution."""
    bad = first_beyond(words, DWCONV.channels_count, DWCONV.out_w, 1, 1 << 20)
    if bad == OK:
        bad = first_beyond(words, DWCONV.in_row_stride, DWCONV.out_pixel_stride, 0, _MOST)
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
    if rows > _MOST:
        return int(DWCONV.out_h)
    if columns > _MOST:
        return int(DWCONV.out_w)
    in_extent = span(
        rows, words[DWCONV.in_row_stride], columns, words[DWCONV.in_pixel_stride], channels
    )
    if outside(words[DWCONV.input], in_extent, spm_bytes):
        return int(DWCONV.input)
    taps = words[DWCONV.kernel_h] * words[DWCONV.kernel_w]
    if taps > _MOST or outside(words[DWCONV.weights], taps * channels, spm_bytes):
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
    if meets(words[DWCONV.output], extent, words[DWCONV.input], in_extent) or folds(
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
    bad = first_beyond(words, GEMM.rows, GEMM.columns, 1, _MOST)
    if bad == OK:
        bad = first_beyond(words, GEMM.lhs_stride, GEMM.out_stride, 0, _MOST)
    if bad == OK:
        bad = first_beyond(words, GEMM.part, GEMM.part, 0, 3)
    if bad == OK:
        bad = first_beyond(words, GEMM.lhs_offset, GEMM.rhs_offset, -128, 127)
    if bad != OK:
        return bad
    rows, inner, columns = words[GEMM.rows], words[GEMM.inner], words[GEMM.columns]
    if too_many(rows, columns, 1, spm_bytes):
        return int(GEMM.rows)
    if outside(words[GEMM.lhs], span(rows, words[GEMM.lhs_stride], 1, 0, inner), spm_bytes):
        return int(GEMM.lhs)
    if outside(words[GEMM.rhs], span(inner, words[GEMM.rhs_stride], 1, 0, columns), spm_bytes):
        return int(GEMM.rhs)
    out_extent = span(rows, words[GEMM.out_stride], 1, 0, columns)
    if outside(words[GEMM.output], out_extent, spm_bytes):
        return int(GEMM.output)
    if (
        meets(
            words[GEMM.output],
            out_extent,
            words[GEMM.lhs],
            span(rows, words[GEMM.lhs_stride], 1, 0, inner),
        )
        or meets(
            words[GEMM.output],
            out_extent,
            words[GEMM.rhs],
            span(inner, words[GEMM.rhs_stride], 1, 0, columns),
        )
        or folds(rows, words[GEMM.out_stride], 1, 0, columns)
    ):
        return int(GEMM.output)
    if words[GEMM.part] != PART_ONLY and (
        outside(words[GEMM.partial], 4 * rows * columns, spm_bytes) or words[GEMM.partial] % 4
    ):
        return int(GEMM.partial)
    if bad_scale(words, GEMM.out_pre):
        return int(GEMM.out_pre)
    return check_clip(words, GEMM.clip_low)


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
        bad = first_beyond(words, AVGPOOL.divide, AVGPOOL.divide, 0, 1)
    if bad != OK:
        return bad
    if bad_scale(words, AVGPOOL.out_pre):
        return int(AVGPOOL.out_pre)
    return check_clip(words, AVGPOOL.clip_low)


def check_pool(words: Any, spm_bytes: int) -> int:
    """Check what both pools have: the words up to ``out_pixel_stride`` are the same."""
    bad = first_beyond(words, MAXPOOL.channels, MAXPOOL.channels, 1, _MOST)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.in_h, MAXPOOL.in_w, 0, _MOST)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.kernel_h, MAXPOOL.stride_w, 1, 1 << 20)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.pad_top, MAXPOOL.pad_left, -_MOST, _MOST)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.out_h, MAXPOOL.out_w, 1, 1 << 20)
    if bad == OK:
        bad = first_beyond(words, MAXPOOL.in_row_stride, MAXPOOL.out_pixel_stride, 0, _MOST)
    if bad != OK:
        return bad
    channels = words[MAXPOOL.channels]
    if too_many(words[MAXPOOL.out_h], words[MAXPOOL.out_w], channels, spm_bytes):
        return int(MAXPOOL.out_h)
    if too_many(words[MAXPOOL.kernel_h], words[MAXPOOL.kernel_w], 1, spm_bytes):
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


def check_eltwise(words: Any, spm_bytes: int) -> int:
    """Check an elementwise operation."""
    bad = first_beyond(words, ELTWISE.operation, ELTWISE.operation, 0, 4)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.rhs_kind, ELTWISE.rhs_kind, 0, 1)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.rows, ELTWISE.columns, 1, _MOST)
    if bad == OK:
        bad = first_beyond(words, ELTWISE.lhs_stride, ELTWISE.out_stride, 0, _MOST)
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
        if bad_scale(words, scale):
            return int(scale)
    return check_clip(words, ELTWISE.clip_low)


def check_rescale(words: Any, spm_bytes: int) -> int:
    """Check a rescale."""
    bad = first_beyond(words, RESCALE.count, RESCALE.count, 1, _MOST)
    if bad == OK:
        bad = first_beyond(words, RESCALE.in_low, RESCALE.in_offset, -128, 127)
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
        if bad_scale(words, scale):
            return int(scale)
    return check_clip(words, RESCALE.clip_low)


def check_lut(words: Any, spm_bytes: int) -> int:
    """Check a table look-up."""
    if words[LUT.count] < 1 or words[LUT.count] > _MOST:
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
    if words[FILL.count] < 1 or words[FILL.count] > _MOST:
        return int(FILL.count)
    if words[FILL.value] > 255:
        return int(FILL.value)
    return int(FILL.output) if outside(words[FILL.output], words[FILL.count], spm_bytes) else OK


def check_transpose(words: Any, spm_bytes: int) -> int:
    """Check a strided copy."""
    size = words[TRANSPOSE.element_bytes]
    if size not in (1, 2, 4, 8):
        return int(TRANSPOSE.element_bytes)
    bad = first_beyond(words, TRANSPOSE.size_0, TRANSPOSE.size_3, 1, _MOST)
    if bad == OK:
        bad = first_beyond(words, TRANSPOSE.in_stride_0, TRANSPOSE.out_stride_3, 0, _MOST)
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
    outside,
    span,
    meets,
    folds,
    first_beyond,
    bad_scale,
    too_many,
    check_clip,
    check_requantize,
    check_load,
    check_store,
    check_conv,
    check_dwconv,
    check_gemm,
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
