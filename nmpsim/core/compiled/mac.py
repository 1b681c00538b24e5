"""Instructions of the MAC array: descriptor in, kernel called, cycles out."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled import pure  # noqa: F401 - registers what is called below
from nmpsim.core.compiled.operands import at_spm, clip_at, scale_at, scratchpad_of, sink_of
from nmpsim.core.state import Count
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import CONV, DWCONV, GEMM, PART_FIRST, PART_LAST, PART_ONLY
from nmpsim.kernels.channels import Operands, Quantizer
from nmpsim.kernels.depthwise import depthwise
from nmpsim.kernels.gemm import Product, gemm
from nmpsim.kernels.jit import jit, jit_inlined
from nmpsim.kernels.mac import Parts, Window, conv
from nmpsim.kernels.saturate import Place
from nmpsim.timing.compute import conv_cycles, depthwise_cycles, gemm_cycles

MACS = int(Count.MACS)
NONE: Any = np.int64(-1)
"""Offset of an operand that is not there."""


@jit
def requantizer(d: Any, weight_offset: Any, i: Any) -> Any:
    """The words from ``bias_pre``, word ``i``, to ``clip_wanted``."""
    return Quantizer(
        d[CONV.element],
        d[CONV.profile],
        weight_offset,
        scale_at(d, i),
        scale_at(d, i + 3),
        d[i + 6],
        d[i + 7],
        d[i + 8],
        scale_at(d, i + 9),
        clip_at(d, i + 12),
    )


@jit
def scales_at(address: Any) -> Any:
    """Offset of a table of scales, negative if there is none."""
    return NONE if address == 0 else address - SCRATCHPAD_BASE


@jit_inlined
def do_conv(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """``nmp.conv``; cycles."""
    w = Window(
        d[CONV.groups],
        d[CONV.in_channels],
        d[CONV.out_channels],
        d[CONV.kernel_h],
        d[CONV.kernel_w],
        d[CONV.stride_h],
        d[CONV.stride_w],
        d[CONV.dilation_h],
        d[CONV.dilation_w],
        d[CONV.out_h],
        d[CONV.out_w],
        d[CONV.in_row_stride],
        d[CONV.in_pixel_stride],
        d[CONV.out_row_stride],
        d[CONV.out_pixel_stride],
    )
    at = Operands(
        at_spm(d[CONV.input]),
        at_spm(d[CONV.weights]),
        at_spm(d[CONV.channels]),
        scales_at(d[CONV.scales]),
        at_spm(d[CONV.output]),
        at_spm(d[CONV.partial]),
    )
    part = d[CONV.part]
    parts = Parts(part in (PART_ONLY, PART_FIRST), part in (PART_ONLY, PART_LAST))
    place = Place(layer, d[CONV.event_origin], d[CONV.event_stride_y], d[CONV.event_stride_x])
    q = requantizer(d, d[CONV.weight_offset], CONV.bias_pre)
    conv(scratchpad_of(m, core), w, at, parts, q, place, sink_of(m))
    pixels = w.out_h * w.out_w
    m.layers[layer].counts[MACS] += (
        pixels * w.kernel_h * w.kernel_w * w.in_channels * w.out_channels
    )
    return conv_cycles(
        pixels,
        w.kernel_h,
        w.kernel_w,
        w.in_channels,
        w.out_channels,
        w.groups,
        d[CONV.element],
        costs,
    )


@jit_inlined
def do_dwconv(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """``nmp.dwconv``; cycles."""
    channels = d[DWCONV.channels_count]
    w = Window(
        channels,
        np.int64(1),
        channels,
        d[DWCONV.kernel_h],
        d[DWCONV.kernel_w],
        d[DWCONV.stride_h],
        d[DWCONV.stride_w],
        d[DWCONV.dilation_h],
        d[DWCONV.dilation_w],
        d[DWCONV.out_h],
        d[DWCONV.out_w],
        d[DWCONV.in_row_stride],
        d[DWCONV.in_pixel_stride],
        d[DWCONV.out_row_stride],
        d[DWCONV.out_pixel_stride],
    )
    at = Operands(
        at_spm(d[DWCONV.input]),
        at_spm(d[DWCONV.weights]),
        at_spm(d[DWCONV.channels]),
        scales_at(d[DWCONV.scales]),
        at_spm(d[DWCONV.output]),
        np.int64(0),
    )
    place = Place(layer, d[DWCONV.event_origin], d[DWCONV.event_stride_y], d[DWCONV.event_stride_x])
    q = requantizer(d, d[DWCONV.weight_offset], DWCONV.bias_pre)
    depthwise(scratchpad_of(m, core), w, at, q, place, sink_of(m))
    pixels, taps = w.out_h * w.out_w, w.kernel_h * w.kernel_w
    m.layers[layer].counts[MACS] += pixels * taps * channels
    return depthwise_cycles(pixels, taps, channels, d[DWCONV.element], costs)


@jit_inlined
def do_gemm(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """``nmp.gemm``; cycles."""
    g = Product(
        d[GEMM.rows],
        d[GEMM.inner],
        d[GEMM.columns],
        d[GEMM.lhs_stride],
        d[GEMM.rhs_stride],
        d[GEMM.out_stride],
        d[GEMM.lhs_offset],
        d[GEMM.rhs_offset],
    )
    at = Operands(
        at_spm(d[GEMM.lhs]),
        at_spm(d[GEMM.rhs]),
        NONE,
        NONE,
        at_spm(d[GEMM.output]),
        at_spm(d[GEMM.partial]),
    )
    part = d[GEMM.part]
    parts = Parts(part in (PART_ONLY, PART_FIRST), part in (PART_ONLY, PART_LAST))
    out = scale_at(d, GEMM.out_pre)
    q = Quantizer(
        d[GEMM.element],
        d[GEMM.profile],
        np.int64(0),
        out,
        out,
        d[GEMM.result_scale],
        d[GEMM.out_offset],
        np.int64(0),
        out,
        clip_at(d, GEMM.clip_low),
    )
    place = Place(layer, d[GEMM.event_origin], d[GEMM.event_stride_y], np.int64(0))
    gemm(scratchpad_of(m, core), g, at, parts, q, place, sink_of(m))
    m.layers[layer].counts[MACS] += g.rows * g.inner * g.columns
    return gemm_cycles(g.rows, g.inner, g.columns, d[GEMM.element], costs)
