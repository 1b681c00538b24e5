"""Instructions of the vector unit: descriptor words to kernel arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.kernel_context import (
    KernelContext,
    compute_scratchpad_offset,
    get_layer_counters,
    make_descriptor_reader,
)
from nmpsim.isa.words import FILL, LUT, MAXPOOL, RESCALE, RHS_INT32, TRANSPOSE
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

_IN_ELEMENTS = (
    *("input", "output", "in_row_stride", "in_pixel_stride", "out_row_stride", "out_pixel_stride"),
)
"""Words of a pool in bytes, which kernels take in elements."""
read_maxpool_shape, read_avgpool_shape = (
    make_descriptor_reader(
        PoolShape, name, **{word: f"{{{word}}} >> {{element}}" for word in _IN_ELEMENTS}
    )
    for name in ("maxpool", "avgpool")
)
read_average = make_descriptor_reader(
    AverageParameters, "avgpool", by_valid_taps="{divide}", scale="{out_scale}"
)
read_average_position = make_descriptor_reader(OutputPosition, "avgpool")
read_binary_shape = make_descriptor_reader(
    BinaryShape,
    "eltwise",
    rhs_size=f"(np.int64(2) if {{rhs_kind}} == {RHS_INT32} else {{element}})",
)
read_binary_scales = make_descriptor_reader(BinaryScales, "eltwise")
read_binary_position = make_descriptor_reader(OutputPosition, "eltwise")
read_rescale = make_descriptor_reader(
    RescaleParameters, "rescale", scale="{out_scale}", leaky="{activation}"
)
read_rescale_position = make_descriptor_reader(OutputPosition, "rescale")


@jit
def do_maxpool(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.maxpool``, the maximum pool of a tile in a scratchpad."""
    window = read_maxpool_shape(w, d)
    if d[MAXPOOL.element]:
        compute_max_pool(w.spm.i16, window, LOWEST_INT16, d[MAXPOOL.empty_value])
    else:
        compute_max_pool(w.spm.i8, window, LOWEST_INT8, d[MAXPOOL.empty_value])


@jit
def do_avgpool(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.avgpool``, the average or sum pool of a tile in a scratchpad."""
    window, average, place = (
        read_avgpool_shape(w, d),
        read_average(w, d),
        read_average_position(w, d),
    )
    compute_average_pool(w.spm, window, average, place, get_layer_counters(w, layer))


@jit
def do_eltwise(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.eltwise``, an elementwise operation on two tiles in a scratchpad."""
    shape, scales, place = (
        read_binary_shape(w, d),
        read_binary_scales(w, d),
        read_binary_position(w, d),
    )
    compute_eltwise(w.spm, shape, scales, place, get_layer_counters(w, layer))


@jit
def do_rescale(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.rescale``, which rescales and clips the values of a tile in a scratchpad."""
    source, target = (
        compute_scratchpad_offset(d[RESCALE.input]),
        compute_scratchpad_offset(d[RESCALE.output]),
    )
    u, place = read_rescale(w, d), read_rescale_position(w, d)
    rescale_tile(w.spm, source, target, d[RESCALE.count], u, place, get_layer_counters(w, layer))


@jit
def do_fill(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.fill``, which fills a scratchpad range with one value."""
    element, count = d[FILL.element], d[FILL.count]
    start = compute_scratchpad_offset(d[FILL.output]) >> element
    if element:
        w.spm.i16[start : start + count] = d[FILL.value]
    else:
        w.spm.i8[start : start + count] = d[FILL.value]


@jit
def do_transpose(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.transpose``, which permutes the axes of a tile in a scratchpad."""
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
    """Execute ``nmp.lut``, which looks up the int8 values of a tile in a table."""
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
