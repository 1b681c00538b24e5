"""Pooling on one core's scratchpad; taps outside the tile (padding) are skipped."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import ONNX
from nmpsim.kernels.array_types import Float32s, Int, Int8s, Int16s, Int64s
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ZERO, ScratchpadViews, copy_elements, write_elements
from nmpsim.kernels.operands import AverageParameters, OutputPosition, PoolShape
from nmpsim.kernels.profiles import compute_averages, get_profile_number
from nmpsim.kernels.rounding import real
from nmpsim.kernels.saturate import ONCE, SaturationCounters, clip_elements


@jit
def find_window_range(position: Int, stride: Int, pad: Int, kernel: Int, size: Int) -> Any:
    """Return the begin and end of a window along one dimension, clipped to the tile."""
    begin = position * stride - pad
    return max(begin, 0), min(begin + kernel, size)


@jit_allocating
def compute_max_pool(spm: Int8s | Int16s, w: PoolShape, lowest: Int, empty_value: Int) -> None:
    """Compute a max pool of a tile; a window without taps inside the tile gives ``empty_value``.

    ``spm`` is a scratchpad of the element's type, ``w`` counts elements; ``lowest`` is the lowest
    element.
    """
    best = np.zeros(w.channels, spm.dtype)
    for y in range(w.out_h):
        top, bottom = find_window_range(y, w.stride_h, w.pad_top, w.kernel_h, w.in_h)
        for x in range(w.out_w):
            left, right = find_window_range(x, w.stride_w, w.pad_left, w.kernel_w, w.in_w)
            best[:] = empty_value if top >= bottom or left >= right else lowest
            for row in range(top, bottom):
                for column in range(left, right):
                    source = w.input + row * w.in_row_stride + column * w.in_pixel_stride
                    values = spm[source : source + w.channels]
                    for c in range(w.channels):
                        best[c] = max(best[c], values[c])
            to = w.output + y * w.out_row_stride + x * w.out_pixel_stride
            copy_elements(best, ZERO, spm, to, w.channels)


@jit
def add_elements(spm: Int8s | Int16s, start: Int, sums: Int64s) -> None:
    """Add consecutive scratchpad elements, from ``start`` on, to ``sums`` in place."""
    values = spm[start : start + sums.size]
    for c in range(sums.size):
        sums[c] += np.int64(values[c])


@jit
def sum_window(
    spm: ScratchpadViews,
    w: PoolShape,
    element: Int,
    rows: tuple[Int, Int],
    columns: tuple[Int, Int],
    offset: Int,
    sums: Int64s,
) -> Any:
    """Write each channel's sum of ``x - offset`` in a window to ``sums``; return the tap count."""
    top, bottom = rows
    left, right = columns
    taps = max(bottom - top, 0) * max(right - left, 0)
    sums[:] = -taps * offset
    for row in range(top, bottom):
        for column in range(left, right):
            source = w.input + row * w.in_row_stride + column * w.in_pixel_stride
            if element:
                add_elements(spm.i16, source, sums)
            else:
                add_elements(spm.i8, source, sums)
    return taps


@jit
def sum_dequantized_window(
    spm: ScratchpadViews,
    w: PoolShape,
    a: AverageParameters,
    rows: tuple[Int, Int],
    columns: tuple[Int, Int],
    totals: Float32s,
) -> Any:
    """Write a window's dequantized sums to ``totals``; return the number of taps to divide by.

    It is the number of taps inside the tile, or that of the whole window.
    """
    top, bottom = rows
    left, right = columns
    factor = real(a.scale.mul)
    totals[:] = 0
    for row in range(top, bottom):
        for column in range(left, right):
            source = w.input + row * w.in_row_stride + column * w.in_pixel_stride
            for c in range(w.channels):
                value: Int = np.int64(0)
                if a.element:
                    value = np.int64(spm.i16[source + c])
                else:
                    value = np.int64(spm.i8[source + c])
                totals[c] += np.float32(value - a.in_offset) * factor
    if a.by_valid_taps:
        return max(bottom - top, 0) * max(right - left, 0)
    return w.kernel_h * w.kernel_w


@jit_allocating
def compute_average_pool(
    spm: ScratchpadViews,
    w: PoolShape,
    a: AverageParameters,
    place: OutputPosition,
    counters: SaturationCounters,
) -> None:
    """Compute an average pool of a tile, skipping taps outside the tile."""
    sums = np.zeros(w.channels, np.int64)
    totals = np.zeros(w.channels, np.float32)
    for y in range(w.out_h):
        rows = find_window_range(y, w.stride_h, w.pad_top, w.kernel_h, w.in_h)
        for x in range(w.out_w):
            columns = find_window_range(x, w.stride_w, w.pad_left, w.kernel_w, w.in_w)
            taps: Int = np.int64(0)
            if get_profile_number(a.profile) == ONNX:
                taps = sum_dequantized_window(spm, w, a, rows, columns, totals)
            else:
                taps = sum_window(spm, w, a.element, rows, columns, a.in_offset, sums)
                taps = taps if a.by_valid_taps else ONCE
            index = place.origin + y * place.stride_y + x * place.stride_x
            compute_averages(sums, totals, max(taps, ONCE), a, index, counters)
            clip_elements(sums, a.clip, index, counters)
            to = w.output + y * w.out_row_stride + x * w.out_pixel_stride
            write_elements(sums, spm, a.element, to << a.element)
    counters.layers[counters.layer].elements += w.out_h * w.out_w * w.channels
