"""Instructions of the vector unit: descriptor in, kernel called, cycles out."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled import pure  # noqa: F401 - registers what is called below
from nmpsim.core.compiled.operands import at_spm, clip_at, scale_at, scratchpad_of, sink_of
from nmpsim.core.decode import OP
from nmpsim.isa.words import (
    AVGPOOL,
    ELTWISE,
    FILL,
    LUT,
    MAXPOOL,
    RESCALE,
    RHS_INT32,
    TRANSPOSE,
)
from nmpsim.kernels.elementwise import Pair, PairScales, eltwise
from nmpsim.kernels.jit import jit, jit_inlined
from nmpsim.kernels.movement import permute
from nmpsim.kernels.pool import Average, PoolWindow, avgpool, maxpool
from nmpsim.kernels.saturate import Place
from nmpsim.kernels.unary import Unary, look_up, rescale_tile
from nmpsim.timing.compute import pool_cycles, transpose_cycles, vector_cycles

ONE_ROW: Any = np.int64(1)
INT8: Any = np.int64(0)
LOWEST_INT8: Any = np.int64(-128)
LOWEST_INT16: Any = np.int64(-32768)
LOG2_INT32_BYTES: Any = np.int64(2)


@jit_inlined
def do_vector(m: Any, costs: Any, core: Any, number: Any, d: Any, layer: Any) -> Any:
    """An instruction of the vector unit; cycles."""
    if number == OP.nmp_maxpool or number == OP.nmp_avgpool:
        return do_pool(m, costs, core, number, d, layer)
    if number == OP.nmp_eltwise:
        return do_eltwise(m, costs, core, d, layer)
    if number == OP.nmp_rescale:
        return do_rescale(m, costs, core, d, layer)
    if number == OP.nmp_fill:
        return do_fill(m, costs, core, d)
    spm = m.scratchpad_i8[core]
    if number == OP.nmp_transpose:
        return do_transpose(spm, costs, d)
    look_up(spm, at_spm(d[LUT.input]), at_spm(d[LUT.output]), at_spm(d[LUT.table]), d[LUT.count])
    return vector_cycles(ONE_ROW, d[LUT.count], INT8, costs)


@jit_inlined
def do_pool(m: Any, costs: Any, core: Any, number: Any, d: Any, layer: Any) -> Any:
    """``nmp.maxpool`` or ``nmp.avgpool``; cycles."""
    element = d[MAXPOOL.element]
    w = pool_window(d, element)
    if number == OP.nmp_avgpool:
        average = Average(
            element,
            d[AVGPOOL.profile],
            d[AVGPOOL.in_offset],
            d[AVGPOOL.divide],
            scale_at(d, AVGPOOL.out_pre),
            d[AVGPOOL.out_offset],
            clip_at(d, AVGPOOL.clip_low),
        )
        place = Place(
            layer, d[AVGPOOL.event_origin], d[AVGPOOL.event_stride_y], d[AVGPOOL.event_stride_x]
        )
        avgpool(scratchpad_of(m, core), w, average, place, sink_of(m))
    elif element:
        maxpool(m.scratchpad_i16[core], w, LOWEST_INT16, d[MAXPOOL.empty_value])
    else:
        maxpool(m.scratchpad_i8[core], w, LOWEST_INT8, d[MAXPOOL.empty_value])
    return pool_cycles(w.out_h * w.out_w, w.kernel_h * w.kernel_w, w.channels, element, costs)


@jit
def pool_window(d: Any, element: Any) -> Any:
    """Geometry of either pool: their words are the same up to the strides."""
    return PoolWindow(
        at_spm(d[MAXPOOL.input]) >> element,
        at_spm(d[MAXPOOL.output]) >> element,
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
        d[MAXPOOL.in_row_stride] >> element,
        d[MAXPOOL.in_pixel_stride] >> element,
        d[MAXPOOL.out_row_stride] >> element,
        d[MAXPOOL.out_pixel_stride] >> element,
    )


@jit_inlined
def do_eltwise(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """``nmp.eltwise``; cycles."""
    element = d[ELTWISE.element]
    t = Pair(
        d[ELTWISE.operation],
        element,
        LOG2_INT32_BYTES if d[ELTWISE.rhs_kind] == RHS_INT32 else element,
        at_spm(d[ELTWISE.lhs]),
        at_spm(d[ELTWISE.rhs]),
        at_spm(d[ELTWISE.output]),
        d[ELTWISE.rows],
        d[ELTWISE.columns],
        d[ELTWISE.lhs_stride],
        d[ELTWISE.rhs_stride],
        d[ELTWISE.out_stride],
    )
    q = PairScales(
        d[ELTWISE.profile],
        d[ELTWISE.lhs_offset],
        d[ELTWISE.rhs_offset],
        scale_at(d, ELTWISE.lhs_pre),
        scale_at(d, ELTWISE.rhs_pre),
        scale_at(d, ELTWISE.out_pre),
        d[ELTWISE.result_scale],
        d[ELTWISE.out_offset],
        clip_at(d, ELTWISE.clip_low),
    )
    place = Place(layer, d[ELTWISE.event_origin], d[ELTWISE.event_stride_y], np.int64(0))
    eltwise(scratchpad_of(m, core), t, q, place, sink_of(m))
    return vector_cycles(t.rows, t.columns, element, costs)


@jit_inlined
def do_rescale(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """``nmp.rescale``; cycles."""
    element = d[RESCALE.element]
    u = Unary(
        element,
        d[RESCALE.profile],
        d[RESCALE.in_low],
        d[RESCALE.in_high],
        d[RESCALE.in_offset],
        scale_at(d, RESCALE.out_pre),
        d[RESCALE.activation],
        scale_at(d, RESCALE.leaky_pre),
        d[RESCALE.result_scale],
        d[RESCALE.out_offset],
        clip_at(d, RESCALE.clip_low),
    )
    place = Place(layer, d[RESCALE.event_origin], np.int64(0), np.int64(0))
    source, target = at_spm(d[RESCALE.input]), at_spm(d[RESCALE.output])
    rescale_tile(scratchpad_of(m, core), source, target, d[RESCALE.count], u, place, sink_of(m))
    return vector_cycles(ONE_ROW, d[RESCALE.count], element, costs)


@jit_inlined
def do_fill(m: Any, costs: Any, core: Any, d: Any) -> Any:
    """``nmp.fill``; cycles."""
    element, count = d[FILL.element], d[FILL.count]
    start = at_spm(d[FILL.output]) >> element
    if element:
        m.scratchpad_i16[core][start : start + count] = d[FILL.value]
    else:
        m.scratchpad_i8[core][start : start + count] = d[FILL.value]
    return vector_cycles(ONE_ROW, count, element, costs)


@jit_inlined
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
