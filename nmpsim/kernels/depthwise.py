"""Depthwise convolution on the MAC array: each channel has its own window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import largest, may_overflow, saturate_sums
from nmpsim.kernels.array_types import Float64s, Int, Int8s, Int16s, Int32s, Int64s
from nmpsim.kernels.channel_tables import put_channels, put_starts
from nmpsim.kernels.channels import OFFSET, START
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ORIGIN, Scratchpad, copy_run, write_run
from nmpsim.kernels.operands import ConvShape, Operands, Place, Quantizer
from nmpsim.kernels.requantize import requantize
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.kernels.vector_code import I64, LANES, constant, load, store, sum_up, vector
from nmpsim.kernels.workspace_size import INTEGERS, REALS

_FACTORS, _WIDE_SUMS = vector(32), vector(64)


def _emit(
    builder: ir.IRBuilder,
    bits: int,
    corner: ir.Value,
    taps: ir.Value,
    count: ir.Value,
    factors: ir.Value,
    stride: ir.Value,
    sums: ir.Value,
) -> None:
    """Sum up the taps of LANES channels, and add them to what is there.

    32 bits hold the sums of Int8, as far as they are not to be checked.
    """
    kind, total_kind = vector(bits), vector(4 * bits)

    def terms(index: ir.Value) -> list[Any]:
        at = builder.add(taps, builder.mul(index, constant(8)))
        values = load(builder, builder.add(corner, load(builder, at, I64, 8)), kind, bits // 8)
        row = builder.add(factors, builder.mul(index, stride))
        of_tap = load(builder, row, _FACTORS, 4)
        if bits == 16:
            of_tap = builder.sext(of_tap, total_kind)
        return [builder.mul(builder.sext(values, total_kind), of_tap)]

    (total,) = sum_up(builder, count, total_kind, 1, terms)
    if bits == 8:
        total = builder.sext(total, _WIDE_SUMS)
    store(builder, builder.add(total, load(builder, sums, _WIDE_SUMS, 8)), sums, 8)


def _tap_sums_of(bits: int) -> Any:
    """Addresses of corner, taps, factors, sums; ``count`` taps, at least one, ``stride`` apart."""

    def type_of_sums(
        typing_context: object,
        corner: numba.types.Type,
        taps: numba.types.Type,
        count: numba.types.Type,
        factors: numba.types.Type,
        stride: numba.types.Type,
        sums: numba.types.Type,
    ) -> Any:
        def generate(
            _: object, builder: ir.IRBuilder, __: object, arguments: list[ir.Value]
        ) -> Any:
            _emit(builder, bits, *arguments)
            return constant(0)

        return numba.intp(*[numba.intp] * 6), generate

    return intrinsic(type_of_sums)


_taps8: Any = _tap_sums_of(8)
_taps16: Any = _tap_sums_of(16)


def _add_taps_int8_compiled(
    values: Int8s, corner: Int, taps: Int64s, factors: Int32s, sums: Int64s
) -> None:
    for block in range(0, factors.shape[1], LANES):
        _taps8(
            values.ctypes.data + corner + block,
            taps.ctypes.data,
            taps.size,
            factors.ctypes.data + 4 * block,
            4 * factors.shape[1],
            sums.ctypes.data + 8 * block,
        )


def _add_taps_int16_compiled(
    values: Int16s, corner: Int, taps: Int64s, factors: Int32s, sums: Int64s
) -> None:
    for block in range(0, factors.shape[1], LANES):
        _taps16(
            values.ctypes.data + corner + 2 * block,
            taps.ctypes.data,
            taps.size,
            factors.ctypes.data + 4 * block,
            4 * factors.shape[1],
            sums.ctypes.data + 8 * block,
        )


def _add_taps_in_numpy(
    values: Int8s | Int16s, corner: Int, taps: Int64s, factors: Int32s, sums: Int64s
) -> None:
    for tap, offset in enumerate(taps):
        start = (corner + offset) // values.itemsize
        sums += factors[tap].astype(np.int64) * values[start : start + sums.size]


_is_plain = numba.config.DISABLE_JIT
add_taps_int8: Any = _add_taps_in_numpy if _is_plain else jit(_add_taps_int8_compiled)
"""``add_taps_int8(values, corner, taps, factors, sums)``: to each sum a value of every tap times
its factor.

values int8; ``corner`` and taps int64 [T] are bytes: a tap's values begin at their sum. factors
int32 [T, C], sums int64 [C]; C is a multiple of sixteen, and C values are read. 32 bits must hold
what is added.
"""
add_taps_int16: Any = _add_taps_in_numpy if _is_plain else jit(_add_taps_int16_compiled)
"""The same for values int16; 64 bits must hold what is added."""


class DepthwiseBuffers(NamedTuple):
    """Arrays to work in: where the taps are, what they are multiplied with, the tables of the
    channels, their sums; factors and sums are padded to whole vectors."""

    taps: Int64s
    factors: Int32s
    integers: Int64s
    reals: Float64s
    sums: Int64s


@jit
def put_factors(weights: Int8s | Int16s, start: Int, offset: Int64s, factors: Int32s) -> None:
    """``factors`` [taps, channels] = weights from element ``start`` on, less their zero points."""
    channels = offset.size
    for tap in range(factors.shape[0]):
        row = weights[start + tap * channels : start + (tap + 1) * channels]
        for c in range(channels):
            factors[tap, c] = np.int64(row[c]) - offset[c]


@jit
def put_taps(w: ConvShape, taps: Int64s) -> None:
    """Bytes from the corner of a window to each of its taps."""
    for tap in range(taps.size):
        ky = tap // w.kernel_w
        taps[tap] = ky * w.dilation_h * w.in_row_stride
        taps[tap] += (tap - ky * w.kernel_w) * w.dilation_w * w.in_pixel_stride


@jit
def add_taps(
    spm: Scratchpad, element: Int, corner: Int, taps: Int64s, factors: Int32s, sums: Int64s
) -> None:
    """Add to each channel's sum its values at the taps, times its factors."""
    if element == INT16:
        add_taps_int16(spm.i16, corner, taps, factors, sums)
    else:
        add_taps_int8(spm.i8, corner, taps, factors, sums)


@jit
def convolve_each(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
    buffers: DepthwiseBuffers,
) -> None:
    """All pixels of a depthwise convolution."""
    taps, factors, integers = buffers.taps, buffers.factors, buffers.integers
    run = buffers.sums[: w.out_channels]
    put_channels(spm, at, q, ORIGIN, integers, buffers.reals)
    put_starts(spm, at, q, ORIGIN, integers, w.out_h * w.out_w, place, counters)
    checked = may_overflow(largest(integers[START]), taps.size, q.element)
    put_taps(w, taps)
    if q.element == INT16:
        put_factors(spm.i16, at.weights >> 1, integers[OFFSET], factors)
    else:
        put_factors(spm.i8, at.weights, integers[OFFSET], factors)
    for y in range(w.out_h):
        for x in range(w.out_w):
            corner = at.input + y * w.stride_h * w.in_row_stride
            corner += x * w.stride_w * w.in_pixel_stride
            index = place.origin + y * place.stride_y + x * place.stride_x
            copy_run(integers[START], ORIGIN, run, ORIGIN, run.size)
            if checked:
                for t in range(taps.size):
                    one = slice(t, t + 1)
                    add_taps(spm, q.element, corner, taps[one], factors[one], buffers.sums)
                    saturate_sums(run, q.element, index, place.layer, counters)
            else:
                add_taps(spm, q.element, corner, taps, factors, buffers.sums)
            requantize(run, integers, buffers.reals, q, index, place.layer, counters)
            to = at.output + y * w.out_row_stride + x * w.out_pixel_stride
            write_run(run, run.size, spm, q.element, to)
    counters.layers[place.layer].elements += w.out_h * w.out_w * run.size


@jit_allocating
def depthwise(
    spm: Scratchpad,
    w: ConvShape,
    at: Operands,
    q: Quantizer,
    place: Place,
    counters: SaturationCounters,
) -> None:
    """Depthwise convolution of one tile; ``w.out_channels`` channels, one a group."""
    taps, channels = w.kernel_h * w.kernel_w, w.out_channels
    lanes = (channels + LANES - 1) // LANES * LANES
    buffers = DepthwiseBuffers(
        np.zeros(taps, np.int64),
        np.zeros((taps, lanes), np.int32),
        np.zeros((INTEGERS, channels), np.int64),
        np.zeros((REALS, channels), np.float64),
        np.zeros(lanes, np.int64),
    )
    convolve_each(spm, w, at, q, place, counters, buffers)
