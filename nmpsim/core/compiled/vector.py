"""Instructions of the vector unit: descriptor words to kernel arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.kernel_context import (
    KernelContext,
    compute_scratchpad_offset,
    get_layer_counters,
    read_clip,
    read_scale,
)
from nmpsim.core.compiled.mac import read_position
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
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.elementwise import compute_eltwise, look_up, rescale_tile
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import permute
from nmpsim.kernels.operands import (
    AverageParameters,
    BinaryScales,
    BinaryShape,
    OutputPosition,
    PoolShape,
    RescaleParameters,
)
from nmpsim.kernels.pool import compute_average_pool, compute_max_pool

LOWEST_INT8: Any = np.int64(-128)
LOWEST_INT16: Any = np.int64(-32768)
LOG2_INT32_BYTES: Any = np.int64(2)


@jit
def do_maxpool(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.maxpool``."""
    element = d[MAXPOOL.element]
    window = read_pool_shape(d, element)
    if element:
        compute_max_pool(w.spm.i16, window, LOWEST_INT16, d[MAXPOOL.empty_value])
    else:
        compute_max_pool(w.spm.i8, window, LOWEST_INT8, d[MAXPOOL.empty_value])


@jit
def do_avgpool(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.avgpool``."""
    element = d[AVGPOOL.element]
    average = AverageParameters(
        element,
        w.profiles[d[AVGPOOL.profile]],
        d[AVGPOOL.in_offset],
        d[AVGPOOL.divide],
        read_scale(d, AVGPOOL.out_pre),
        d[AVGPOOL.result_scale],
        d[AVGPOOL.out_offset],
        read_clip(d, AVGPOOL.clip_low),
    )
    place = read_position(d, AVGPOOL.event_origin)
    compute_average_pool(
        w.spm, read_pool_shape(d, element), average, place, get_layer_counters(w, layer)
    )


@jit
def read_pool_shape(d: Int64s, element: Int) -> Any:
    """Return the geometry of a pool; both pools have the same words up to the strides."""
    return PoolShape(
        compute_scratchpad_offset(d[MAXPOOL.input]) >> element,
        compute_scratchpad_offset(d[MAXPOOL.output]) >> element,
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


@jit
def do_eltwise(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.eltwise``."""
    element = d[ELTWISE.element]
    t = BinaryShape(
        d[ELTWISE.operation],
        element,
        LOG2_INT32_BYTES if d[ELTWISE.rhs_kind] == RHS_INT32 else element,
        compute_scratchpad_offset(d[ELTWISE.lhs]),
        compute_scratchpad_offset(d[ELTWISE.rhs]),
        compute_scratchpad_offset(d[ELTWISE.output]),
        d[ELTWISE.rows],
        d[ELTWISE.columns],
        d[ELTWISE.lhs_stride],
        d[ELTWISE.rhs_stride],
        d[ELTWISE.out_stride],
    )
    q = BinaryScales(
        w.profiles[d[ELTWISE.profile]],
        d[ELTWISE.lhs_offset],
        d[ELTWISE.rhs_offset],
        read_scale(d, ELTWISE.lhs_pre),
        read_scale(d, ELTWISE.rhs_pre),
        read_scale(d, ELTWISE.out_pre),
        d[ELTWISE.result_scale],
        d[ELTWISE.out_offset],
        read_clip(d, ELTWISE.clip_low),
    )
    place = OutputPosition(d[ELTWISE.event_origin], d[ELTWISE.event_stride_y], np.int64(0))
    compute_eltwise(w.spm, t, q, place, get_layer_counters(w, layer))


@jit
def do_rescale(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.rescale``."""
    element = d[RESCALE.element]
    u = RescaleParameters(
        element,
        w.profiles[d[RESCALE.profile]],
        d[RESCALE.in_low],
        d[RESCALE.in_high],
        d[RESCALE.in_offset],
        read_scale(d, RESCALE.out_pre),
        d[RESCALE.activation],
        read_scale(d, RESCALE.leaky_pre),
        d[RESCALE.result_scale],
        d[RESCALE.out_offset],
        read_clip(d, RESCALE.clip_low),
    )
    place = OutputPosition(d[RESCALE.event_origin], np.int64(0), np.int64(0))
    source, target = (
        compute_scratchpad_offset(d[RESCALE.input]),
        compute_scratchpad_offset(d[RESCALE.output]),
    )
    rescale_tile(w.spm, source, target, d[RESCALE.count], u, place, get_layer_counters(w, layer))


@jit
def do_fill(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.fill``."""
    element, count = d[FILL.element], d[FILL.count]
    start = compute_scratchpad_offset(d[FILL.output]) >> element
    if element:
        w.spm.i16[start : start + count] = d[FILL.value]
    else:
        w.spm.i8[start : start + count] = d[FILL.value]


@jit
def do_transpose(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.transpose``."""
    sizes = d[TRANSPOSE.size_0 : TRANSPOSE.size_0 + 4]
    permute(
        w.spm.i8,
        compute_scratchpad_offset(d[TRANSPOSE.input]),
        compute_scratchpad_offset(d[TRANSPOSE.output]),
        d[TRANSPOSE.element_bytes],
        sizes,
        d[TRANSPOSE.in_stride_0 : TRANSPOSE.in_stride_0 + 4],
        d[TRANSPOSE.out_stride_0 : TRANSPOSE.out_stride_0 + 4],
    )


@jit
def do_lut(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.lut``."""
    table, count = compute_scratchpad_offset(d[LUT.table]), d[LUT.count]
    look_up(
        w.spm.i8,
        compute_scratchpad_offset(d[LUT.input]),
        compute_scratchpad_offset(d[LUT.output]),
        table,
        count,
    )


KERNELS = {
    "nmp.maxpool": do_maxpool,
    "nmp.avgpool": do_avgpool,
    "nmp.eltwise": do_eltwise,
    "nmp.rescale": do_rescale,
    "nmp.fill": do_fill,
    "nmp.transpose": do_transpose,
    "nmp.lut": do_lut,
}
"""Mnemonic -> kernel, a function of a kernel context, a descriptor and a layer."""
