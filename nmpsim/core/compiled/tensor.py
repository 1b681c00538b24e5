"""Tensor instructions: descriptor in, kernel called, unit busy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled import pure  # noqa: F401 - registers what is called below
from nmpsim.core.compiled.transfers import load, store
from nmpsim.core.compiled.units import compute
from nmpsim.core.decode import OP
from nmpsim.core.state import Count
from nmpsim.isa.table import SCRATCHPAD_BASE, Unit
from nmpsim.isa.words import (
    AVGPOOL,
    CONV,
    DWCONV,
    ELTWISE,
    FILL,
    GEMM,
    LUT,
    MAXPOOL,
    PART_FIRST,
    PART_LAST,
    PART_ONLY,
    RESCALE,
    TRANSPOSE,
)
from nmpsim.kernels.elementwise import Pair, PairScales, Unary, eltwise, look_up, rescale_tile
from nmpsim.kernels.jit import jit
from nmpsim.kernels.mac import Operands, Parts, Product, Quantizer, Window, conv, depthwise, gemm
from nmpsim.kernels.movement import permute
from nmpsim.kernels.pool import Average, PoolWindow, avgpool, maxpool
from nmpsim.kernels.saturate import Clip, IntegerScale, Place, Sink
from nmpsim.memory.checks import (
    bad_scale_table,
    check_avgpool,
    check_conv,
    check_dwconv,
    check_eltwise,
    check_fill,
    check_gemm,
    check_load,
    check_lut,
    check_maxpool,
    check_rescale,
    check_store,
    check_transpose,
)
from nmpsim.timing.compute import (
    conv_cycles,
    depthwise_cycles,
    gemm_cycles,
    pool_cycles,
    transpose_cycles,
    vector_cycles,
)

MAC_UNIT, VECTOR_UNIT = np.int64(Unit.MAC), np.int64(Unit.VECTOR)
MACS = int(Count.MACS)
ONE_ROW: Any = np.int64(1)


@jit
def check(number: Any, d: Any, spm_bytes: Any) -> Any:
    """-1 if the descriptor of instruction ``number`` is possible, else the word that is wrong."""
    if number == OP.nmp_load:
        return check_load(d, spm_bytes)
    if number == OP.nmp_store:
        return check_store(d, spm_bytes)
    if number == OP.nmp_conv:
        return check_conv(d, spm_bytes)
    if number == OP.nmp_dwconv:
        return check_dwconv(d, spm_bytes)
    if number == OP.nmp_gemm:
        return check_gemm(d, spm_bytes)
    if number == OP.nmp_maxpool:
        return check_maxpool(d, spm_bytes)
    if number == OP.nmp_avgpool:
        return check_avgpool(d, spm_bytes)
    if number == OP.nmp_eltwise:
        return check_eltwise(d, spm_bytes)
    if number == OP.nmp_rescale:
        return check_rescale(d, spm_bytes)
    if number == OP.nmp_lut:
        return check_lut(d, spm_bytes)
    if number == OP.nmp_fill:
        return check_fill(d, spm_bytes)
    return check_transpose(d, spm_bytes)


@jit
def check_tables(number: Any, d: Any, spm32: Any) -> Any:
    """As ``check``, for what a descriptor that is possible points to."""
    if number == OP.nmp_conv and bad_scale_table(spm32, d[CONV.scales], d[CONV.out_channels]):
        return CONV.scales
    if number == OP.nmp_dwconv and bad_scale_table(
        spm32, d[DWCONV.scales], d[DWCONV.channels_count]
    ):
        return DWCONV.scales
    return -1


@jit
def execute(m: Any, costs: Any, core: Any, number: Any, d: Any, layer: Any) -> Any:
    """Do a checked tensor instruction and keep its unit busy; -1, or the word that is wrong."""
    if number == OP.nmp_load:
        return load(m, costs, core, d, layer)
    if number == OP.nmp_store:
        return store(m, costs, core, d, layer)
    unit = MAC_UNIT
    if number == OP.nmp_conv:
        cycles = do_conv(m, costs, core, d, layer)
    elif number == OP.nmp_dwconv:
        cycles = do_dwconv(m, costs, core, d, layer)
    elif number == OP.nmp_gemm:
        cycles = do_gemm(m, costs, core, d, layer)
    else:
        unit = VECTOR_UNIT
        cycles = do_vector(m, costs, core, number, d, layer)
    compute(m, costs, core, unit, layer, cycles)
    return -1


@jit
def sink_of(m: Any) -> Any:
    """The machine's accounts of cut values."""
    return Sink(m.layers, m.channel_cut)


@jit
def scale_at(d: Any, i: Any) -> Any:
    """The integer scale whose ``pre`` is word ``i``."""
    return IntegerScale(d[i], d[i + 1], d[i + 2])


@jit
def clip_at(d: Any, i: Any) -> Any:
    """The clip whose ``clip_low`` is word ``i``."""
    return Clip(d[i], d[i + 1], d[i + 2])


@jit
def requantizer(d: Any, weight_offset: Any, i: Any) -> Any:
    """The words from ``bias_pre``, word ``i``, to ``clip_wanted``."""
    return Quantizer(
        weight_offset,
        scale_at(d, i),
        scale_at(d, i + 3),
        d[i + 6],
        d[i + 7],
        scale_at(d, i + 8),
        clip_at(d, i + 11),
    )


@jit
def at_spm(address: Any) -> Any:
    """Offset in the scratchpad."""
    return address - SCRATCHPAD_BASE


@jit
def scales_at(address: Any) -> Any:
    """Offset of a table of scales, negative if there is none."""
    return np.int64(-1) if address == 0 else address - SCRATCHPAD_BASE


@jit
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
    conv(m.scratchpad_i8[core], m.scratchpad_i32[core], w, at, parts, q, place, sink_of(m))
    pixels = w.out_h * w.out_w
    m.layers[layer].counts[MACS] += (
        pixels * w.kernel_h * w.kernel_w * w.in_channels * w.out_channels
    )
    return conv_cycles(
        pixels, w.kernel_h, w.kernel_w, w.in_channels, w.out_channels, w.groups, costs
    )


@jit
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
    depthwise(m.scratchpad_i8[core], m.scratchpad_i32[core], w, at, q, place, sink_of(m))
    pixels, taps = w.out_h * w.out_w, w.kernel_h * w.kernel_w
    m.layers[layer].counts[MACS] += pixels * taps * channels
    return depthwise_cycles(pixels, taps, channels, costs)


@jit
def do_gemm(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """``nmp.gemm``; cycles."""
    g = Product(
        at_spm(d[GEMM.lhs]),
        at_spm(d[GEMM.rhs]),
        at_spm(d[GEMM.output]),
        at_spm(d[GEMM.partial]),
        d[GEMM.rows],
        d[GEMM.inner],
        d[GEMM.columns],
        d[GEMM.lhs_stride],
        d[GEMM.rhs_stride],
        d[GEMM.out_stride],
        d[GEMM.lhs_offset],
        d[GEMM.rhs_offset],
    )
    part = d[GEMM.part]
    parts = Parts(part in (PART_ONLY, PART_FIRST), part in (PART_ONLY, PART_LAST))
    out = scale_at(d, GEMM.out_pre)
    q = Quantizer(
        np.int64(0), out, out, d[GEMM.out_offset], np.int64(0), out, clip_at(d, GEMM.clip_low)
    )
    place = Place(layer, d[GEMM.event_origin], d[GEMM.event_stride_y], np.int64(0))
    gemm(m.scratchpad_i8[core], m.scratchpad_i32[core], g, parts, q, place, sink_of(m))
    m.layers[layer].counts[MACS] += g.rows * g.inner * g.columns
    return gemm_cycles(g.rows, g.inner, g.columns, costs)


@jit
def do_vector(m: Any, costs: Any, core: Any, number: Any, d: Any, layer: Any) -> Any:
    """An instruction of the vector unit; cycles."""
    spm = m.scratchpad_i8[core]
    if number == OP.nmp_maxpool:
        w = pool_window(d)
        maxpool(spm, w, d[MAXPOOL.empty_value])
        return pool_cycles(w.out_h * w.out_w, w.kernel_h * w.kernel_w, w.channels, costs)
    if number == OP.nmp_avgpool:
        w = pool_window(d)
        average = Average(
            d[AVGPOOL.in_offset],
            d[AVGPOOL.divide],
            scale_at(d, AVGPOOL.out_pre),
            d[AVGPOOL.out_offset],
            clip_at(d, AVGPOOL.clip_low),
        )
        place = Place(
            layer, d[AVGPOOL.event_origin], d[AVGPOOL.event_stride_y], d[AVGPOOL.event_stride_x]
        )
        avgpool(spm, w, average, place, sink_of(m))
        return pool_cycles(w.out_h * w.out_w, w.kernel_h * w.kernel_w, w.channels, costs)
    if number == OP.nmp_eltwise:
        return do_eltwise(m, costs, core, d, layer)
    if number == OP.nmp_rescale:
        return do_rescale(m, costs, core, d, layer)
    if number == OP.nmp_lut:
        look_up(
            spm, at_spm(d[LUT.input]), at_spm(d[LUT.output]), at_spm(d[LUT.table]), d[LUT.count]
        )
        return vector_cycles(ONE_ROW, d[LUT.count], costs)
    if number == OP.nmp_fill:
        start = at_spm(d[FILL.output])
        m.scratchpad[core][start : start + d[FILL.count]] = d[FILL.value]
        return vector_cycles(ONE_ROW, d[FILL.count], costs)
    return do_transpose(spm, costs, d)


@jit
def pool_window(d: Any) -> Any:
    """Geometry of either pool: their words are the same up to the strides."""
    return PoolWindow(
        at_spm(d[MAXPOOL.input]),
        at_spm(d[MAXPOOL.output]),
        d[MAXPOOL.channels],
        d[MAXPOOL.in_h],
        d[MAXPOOL.in_w],
        d[MAXPOOL.kernel_h],
        d[MAXPOOL.kernel_w],
        d[MAXPOOL.stride_h],
        d[MAXPOOL.stride_w],
        d[MAXPOOL.pad_top],
        d[MAXPOOL.pad_left],
        d[MAXPOOL.out_h],
        d[MAXPOOL.out_w],
        d[MAXPOOL.in_row_stride],
        d[MAXPOOL.in_pixel_stride],
        d[MAXPOOL.out_row_stride],
        d[MAXPOOL.out_pixel_stride],
    )


@jit
def do_eltwise(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """``nmp.eltwise``; cycles."""
    t = Pair(
        d[ELTWISE.operation],
        at_spm(d[ELTWISE.lhs]),
        at_spm(d[ELTWISE.rhs]),
        at_spm(d[ELTWISE.output]),
        d[ELTWISE.rhs_kind],
        d[ELTWISE.rows],
        d[ELTWISE.columns],
        d[ELTWISE.lhs_stride],
        d[ELTWISE.rhs_stride],
        d[ELTWISE.out_stride],
    )
    q = PairScales(
        d[ELTWISE.lhs_offset],
        d[ELTWISE.rhs_offset],
        scale_at(d, ELTWISE.lhs_pre),
        scale_at(d, ELTWISE.rhs_pre),
        scale_at(d, ELTWISE.out_pre),
        d[ELTWISE.out_offset],
        clip_at(d, ELTWISE.clip_low),
    )
    place = Place(layer, d[ELTWISE.event_origin], d[ELTWISE.event_stride_y], np.int64(0))
    eltwise(m.scratchpad_i8[core], m.scratchpad_i32[core], t, q, place, sink_of(m))
    return vector_cycles(t.rows, t.columns, costs)


@jit
def do_rescale(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """``nmp.rescale``; cycles."""
    u = Unary(
        d[RESCALE.in_low],
        d[RESCALE.in_high],
        d[RESCALE.in_offset],
        scale_at(d, RESCALE.out_pre),
        d[RESCALE.activation],
        scale_at(d, RESCALE.leaky_pre),
        d[RESCALE.out_offset],
        clip_at(d, RESCALE.clip_low),
    )
    place = Place(layer, d[RESCALE.event_origin], np.int64(0), np.int64(0))
    source, target = at_spm(d[RESCALE.input]), at_spm(d[RESCALE.output])
    rescale_tile(m.scratchpad_i8[core], source, target, d[RESCALE.count], u, place, sink_of(m))
    return vector_cycles(ONE_ROW, d[RESCALE.count], costs)


@jit
def do_transpose(spm: Any, costs: Any, d: Any) -> Any:
    """``nmp.transpose``; cycles."""
    sizes = d[TRANSPOSE.size_0 : TRANSPOSE.size_0 + 4]
    permute(
        spm,
        at_spm(d[TRANSPOSE.input]),
        at_spm(d[TRANSPOSE.output]),
        d[TRANSPOSE.element_bytes],
        sizes,
        d[TRANSPOSE.in_stride_0 : TRANSPOSE.in_stride_0 + 4],
        d[TRANSPOSE.out_stride_0 : TRANSPOSE.out_stride_0 + 4],
    )
    return transpose_cycles(sizes[0] * sizes[1] * sizes[2] * sizes[3], costs)
