"""Pooling on one core's scratchpad. Padding takes no part: taps outside the tile are skipped."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ORIGIN, copy_run
from nmpsim.kernels.saturate import clip_run, scale_run


class PoolWindow(NamedTuple):
    """Geometry of a pool; offsets and strides in bytes."""

    input: Any
    output: Any
    channels: Any
    in_h: Any
    in_w: Any
    kernel_h: Any
    kernel_w: Any
    stride_h: Any
    stride_w: Any
    pad_top: Any
    pad_left: Any
    out_h: Any
    out_w: Any
    in_row_stride: Any
    in_pixel_stride: Any
    out_row_stride: Any
    out_pixel_stride: Any


class Average(NamedTuple):
    """How a sum becomes an average."""

    in_offset: Any
    by_valid_taps: Any
    scale: Any
    out_offset: Any
    clip: Any


@jit
def window_range(position: Any, stride: Any, pad: Any, kernel: Any, size: Any) -> Any:
    """First and behind-last existing row (or column) of a window."""
    begin = position * stride - pad
    return max(begin, 0), min(begin + kernel, size)


@jit
def maxpool(spm: Any, w: Any, empty_value: Any) -> None:
    """Maximum of the taps that exist; ``empty_value`` where none does."""
    best = np.zeros(w.channels, np.int8)
    for y in range(w.out_h):
        top, bottom = window_range(y, w.stride_h, w.pad_top, w.kernel_h, w.in_h)
        for x in range(w.out_w):
            left, right = window_range(x, w.stride_w, w.pad_left, w.kernel_w, w.in_w)
            if top >= bottom or left >= right:
                best[:] = empty_value
            else:
                best[:] = -128
            for row in range(top, bottom):
                for column in range(left, right):
                    source = w.input + row * w.in_row_stride + column * w.in_pixel_stride
                    values = spm[source : source + w.channels]
                    for c in range(w.channels):
                        best[c] = max(best[c], values[c])
            to = w.output + y * w.out_row_stride + x * w.out_pixel_stride
            copy_run(best, ORIGIN, spm, to, w.channels)


@jit
def divide_rounding(value: Any, by: Any) -> Any:
    """Nearest integer of ``value / by``, halves away from zero (libjit's average pool)."""
    if value > 0:
        return (value + by // 2) // by
    return -((-value + by // 2) // by)


@jit
def avgpool(spm: Any, w: Any, a: Any, place: Any, sink: Any) -> None:
    """Sum of ``x - in_offset`` over the taps that exist, scaled, then divided if asked for."""
    sums = np.zeros(w.channels, np.int64)
    for y in range(w.out_h):
        top, bottom = window_range(y, w.stride_h, w.pad_top, w.kernel_h, w.in_h)
        for x in range(w.out_w):
            left, right = window_range(x, w.stride_w, w.pad_left, w.kernel_w, w.in_w)
            taps = max(bottom - top, 0) * max(right - left, 0)
            sums[:] = -taps * a.in_offset
            for row in range(top, bottom):
                for column in range(left, right):
                    source = w.input + row * w.in_row_stride + column * w.in_pixel_stride
                    values = spm[source : source + w.channels]
                    for c in range(w.channels):
                        sums[c] += np.int64(values[c])
            to = w.output + y * w.out_row_stride + x * w.out_pixel_stride
            index = place.origin + y * place.stride_y + x * place.stride_x
            scale_run(sums, w.channels, a.scale, index, place.layer, sink)
            for c in range(w.channels):
                if a.by_valid_taps and taps > 0:
                    sums[c] = divide_rounding(sums[c], taps)
                sums[c] += a.out_offset
            clip_run(sums, w.channels, a.clip, index, place.layer, sink)
            copy_run(sums, ORIGIN, spm, to, w.channels)
    sink.layers[place.layer].elements += w.out_h * w.out_w * w.channels
