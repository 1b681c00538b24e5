"""Depthwise convolution on the MAC array: each channel has its own window."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite.ir import IRBuilder, Value

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import find_max_magnitude, may_overflow, saturate_sums
from nmpsim.kernels.array_types import Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.channel_tables import fill_channel_table, fill_initial_sums
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.conv_batches import get_output_byte, get_output_index
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ZERO, ScratchpadViews, copy_elements, write_elements
from nmpsim.kernels.operands import ConvShape, MacTile
from nmpsim.kernels.pointers import get_address
from nmpsim.kernels.requantize import requantize
from nmpsim.kernels.vector_code import (
    I64,
    INT32S,
    LANES,
    EmittedLoop,
    add_offset,
    load,
    make_int_constant,
    make_int_vector_type,
    make_zero_constant,
    store,
)
from nmpsim.kernels.workspace_size import TABLE_ROWS

_WIDE_SUMS = make_int_vector_type(64)


def _emit_tap_sums(
    bits: int,
    b: IRBuilder,
    corner: Value,
    taps: Value,
    count: Value,
    factors: Value,
    stride: Value,
    sums: Value,
    blocks: Value,
) -> Any:
    """Add the products of the taps to the sums of blocks of sixteen channels.

    32 bits hold the sum of the Int8 products.
    """
    kind, sum_kind = make_int_vector_type(bits), make_int_vector_type(4 * bits)
    over_blocks = EmittedLoop(b, blocks, [corner, factors, sums])
    values_at, factors_at, sums_at = over_blocks.values
    over_taps = EmittedLoop(b, count, [taps, factors_at, make_zero_constant(sum_kind)])
    tap, row, total = over_taps.values
    values = load(b, b.add(values_at, load(b, tap, I64, 8)), kind, bits // 8)
    of_tap = load(b, row, INT32S, 4)
    if bits == 16:
        of_tap = b.sext(of_tap, sum_kind)
    total = b.add(total, b.mul(b.sext(values, sum_kind), of_tap))
    _, _, total = over_taps.end([b.add(tap, make_int_constant(8)), b.add(row, stride), total])
    if bits == 8:
        total = b.sext(total, _WIDE_SUMS)
    store(b, b.add(total, load(b, sums_at, _WIDE_SUMS, 8)), sums_at, 8)
    steps = (LANES * bits // 8, 4 * LANES, 8 * LANES)
    over_blocks.end(
        [add_offset(b, at, step) for at, step in zip(over_blocks.values, steps, strict=True)]
    )
    return make_int_constant(0)


_tap_sums_int8: Any = define_function("tap_sums_int8", partial(_emit_tap_sums, 8))
_tap_sums_int16: Any = define_function("tap_sums_int16", partial(_emit_tap_sums, 16))


@jit
def add_taps(
    spm: ScratchpadViews, element: Int, corner: Int, taps: Int64s, factors: Int32s, sums: Int64s
) -> None:
    """Add a pixel's taps, each multiplied by its factors, to the sums of the channels.

    Parameters
    ----------
    spm, element
        Scratchpad and element kind of the values.
    corner, taps
        Bytes, whose sum is where a tap's values begin; taps are int64 [T].
    factors
        int32 [T, C], where C is a multiple of sixteen. C values are read for each tap.
    sums
        int64 [C]. 32 bits must hold what is added if the elements are Int8.
    """
    blocks = factors.shape[1] // LANES
    where = (taps.size, get_address(factors), 4 * factors.shape[1], get_address(sums), blocks)
    arguments = (get_address(spm.i8) + corner, get_address(taps), *where)
    if element == INT16:
        _tap_sums_int16(arguments)
    else:
        _tap_sums_int8(arguments)


class DepthwiseBuffers(NamedTuple):
    """Buffers of a depthwise convolution: tap offsets, factors, channel table and sums.

    Factors and sums are padded to whole vectors.
    """

    taps: Int64s
    factors: Int32s
    table: Int64s
    sums: Int64s


@jit
def fill_factors(weights: Int8s | Int16s, start: Int, offset: Int64s, factors: Int32s) -> None:
    """Fill ``factors`` [taps, channels] with the weights minus each channel's zero point."""
    channels = offset.size
    for tap in range(factors.shape[0]):
        row = weights[start + tap * channels : start + (tap + 1) * channels]
        for c in range(channels):
            factors[tap, c] = np.int64(row[c]) - offset[c]


@jit
def fill_tap_offsets(w: ConvShape, taps: Int64s) -> None:
    """Fill ``taps`` with each tap's distance, in bytes, from its window's first input."""
    for tap in range(taps.size):
        ky = tap // w.kernel_w
        taps[tap] = ky * w.dilation_h * w.in_row_stride
        taps[tap] += (tap - ky * w.kernel_w) * w.dilation_w * w.in_pixel_stride


@jit
def convolve_pixels(t: MacTile, buffers: DepthwiseBuffers) -> None:
    """Compute and write all results of a depthwise convolution tile; count the elements."""
    spm, w, at, element, counters = t.spm, t.shape, t.at, t.q.element, t.counters
    taps, factors, table = buffers.taps, buffers.factors, buffers.table
    run, pixels = buffers.sums[: w.out_channels], w.out_h * w.out_w
    fill_channel_table(spm, at, t.q, ZERO, table)
    fill_initial_sums(spm, at, t.q, ZERO, table, pixels, t.place, counters)
    is_checked = may_overflow(find_max_magnitude(table[START]), taps.size, element)
    fill_tap_offsets(w, taps)
    if element == INT16:
        fill_factors(spm.i16, at.weights >> 1, table[OFFSET], factors)
    else:
        fill_factors(spm.i8, at.weights, table[OFFSET], factors)
    for pixel in range(pixels):
        y = pixel // w.out_w
        x = pixel - y * w.out_w
        corner = at.input + y * w.stride_h * w.in_row_stride + x * w.stride_w * w.in_pixel_stride
        index = get_output_index(t, pixel, ZERO)
        copy_elements(table[START], ZERO, run, ZERO, run.size)
        if is_checked:
            for tap in range(taps.size):
                one = slice(tap, tap + 1)
                add_taps(spm, element, corner, taps[one], factors[one], buffers.sums)
                saturate_sums(run, element, index, counters)
        else:
            add_taps(spm, element, corner, taps, factors, buffers.sums)
        requantize(run, table, t.q, index, counters)
        write_elements(run, spm, element, get_output_byte(t, pixel, ZERO))
    counters.layers[counters.layer].elements += pixels * run.size


@jit_allocating
def convolve_depthwise(t: MacTile) -> None:
    """Compute a depthwise convolution of a tile, in which each channel is a group."""
    taps, channels = t.shape.kernel_h * t.shape.kernel_w, t.shape.out_channels
    lanes = (channels + LANES - 1) // LANES * LANES
    buffers = DepthwiseBuffers(
        np.zeros(taps, np.int64),
        np.zeros((taps, lanes), np.int32),
        np.zeros((TABLE_ROWS, channels), np.int64),
        np.zeros(lanes, np.int64),
    )
    convolve_pixels(t, buffers)
