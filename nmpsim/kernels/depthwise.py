"""Depthwise convolution on the MAC array: each channel has its own window."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.words import INT16
from nmpsim.kernels.accumulate import largest, may_overflow, saturate_sums
from nmpsim.kernels.channels import INTEGERS, OFFSET, REALS, START, put_channels, put_starts
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ORIGIN, copy_run, write_run
from nmpsim.kernels.requantize import requantize


@jit
def put_factors(weights: Any, start: Any, offset: Any, factors: Any) -> None:
    """``factors`` [taps, channels] = weights from element ``start`` on, less their zero points."""
    taps, channels = factors.shape
    for tap in range(taps):
        row = weights[start + tap * channels : start + (tap + 1) * channels]
        for c in range(channels):
            factors[tap, c] = np.int64(row[c]) - offset[c]


@jit
def add_products(values: Any, start: Any, factors: Any, sums: Any) -> None:
    """Add to each channel's sum its value, from element ``start`` on, times its factor."""
    run = values[start : start + sums.size]
    for c in range(sums.size):
        sums[c] += np.int64(factors[c]) * np.int64(run[c])


@jit_allocating
def depthwise(spm: Any, w: Any, at: Any, q: Any, place: Any, sink: Any) -> None:
    """Depthwise convolution of one tile; ``w.out_channels`` channels, one a group."""
    count, taps = w.out_channels, w.kernel_h * w.kernel_w
    pixels = w.out_h * w.out_w
    wide = q.element == INT16
    integers = np.zeros((INTEGERS, count), np.int64)
    reals = np.zeros((REALS, count), np.float64)
    put_channels(spm, at, q, ORIGIN, integers, reals)
    put_starts(spm, at, q, ORIGIN, integers, pixels, place, sink)
    checked = may_overflow(largest(integers[START]), taps, q.element)
    factors = np.zeros((taps, count), np.int32)
    if wide:
        put_factors(spm.i16, at.weights >> 1, integers[OFFSET], factors)
    else:
        put_factors(spm.i8, at.weights, integers[OFFSET], factors)
    sums = np.zeros(count, np.int64)
    for y in range(w.out_h):
        for x in range(w.out_w):
            corner = at.input + y * w.stride_h * w.in_row_stride
            corner += x * w.stride_w * w.in_pixel_stride
            index = place.origin + y * place.stride_y + x * place.stride_x
            copy_run(integers[START], ORIGIN, sums, ORIGIN, count)
            for tap in range(taps):
                ky = tap // w.kernel_w
                source = corner + ky * w.dilation_h * w.in_row_stride
                source += (tap - ky * w.kernel_w) * w.dilation_w * w.in_pixel_stride
                if wide:
                    add_products(spm.i16, source >> 1, factors[tap], sums)
                else:
                    add_products(spm.i8, source, factors[tap], sums)
                if checked:
                    saturate_sums(sums, q.element, index, place.layer, sink)
            requantize(sums, integers, reals, q, index, place.layer, sink)
            to = at.output + y * w.out_row_stride + x * w.out_pixel_stride
            write_run(sums, count, spm, q.element, to)
    sink.layers[place.layer].elements += pixels * count
