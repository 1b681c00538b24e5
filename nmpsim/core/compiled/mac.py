"""Instructions of the MAC array: descriptor words to kernel arguments."""

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
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import CONV, DWCONV, GEMM, PART_FIRST, PART_LAST, PART_ONLY
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.conv import convolve_tile
from nmpsim.kernels.depthwise import convolve_depthwise
from nmpsim.kernels.gemm import multiply_matrices
from nmpsim.kernels.jit import jit
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import (
    PART_CACHED,
    ConvShape,
    IntegerScaleRecord,
    MacTile,
    MatmulShape,
    OperandOffsets,
    OutputPosition,
    Quantizer,
    SumParts,
)

NONE: Any = np.int64(-1)
"""Offset of an operand that does not exist."""


@jit
def read_quantizer(w: KernelContext, d: Int64s, weight_offset: Int, i: Int) -> Any:
    """Return the requantization parameters that begin at word ``i`` of a descriptor."""
    return Quantizer(
        d[CONV.element],
        w.profiles[d[CONV.profile]],
        weight_offset,
        read_scale(d, i),
        read_scale(d, i + 3),
        d[i + 6],
        d[i + 7],
        d[i + 8],
        read_scale(d, i + 9),
        read_clip(d, i + 12),
    )


@jit
def get_scale_table_offset(address: Int) -> Any:
    """Return the scratchpad offset of the scale table at an address; NONE for address 0."""
    return NONE if address == 0 else address - SCRATCHPAD_BASE


@jit
def read_position(d: Int64s, i: Int) -> Any:
    """Return a tile's position in its layer's output, which begins at word ``i``."""
    return OutputPosition(d[i], d[i + 1], d[i + 2])


def make_shape_reader(w: Any) -> Any:
    """Return a compiled function that reads a convolution's geometry at the word indices ``w``."""

    def read_shape(d: Int64s, groups: Int, in_channels: Int, out_channels: Int) -> Any:
        return ConvShape(
            groups,
            in_channels,
            out_channels,
            d[w.kernel_h],
            d[w.kernel_w],
            d[w.stride_h],
            d[w.stride_w],
            d[w.dilation_h],
            d[w.dilation_w],
            d[w.out_h],
            d[w.out_w],
            d[w.in_row_stride],
            d[w.in_pixel_stride],
            d[w.out_row_stride],
            d[w.out_pixel_stride],
        )

    return jit(read_shape)


read_conv_shape, read_dwconv_shape = make_shape_reader(CONV), make_shape_reader(DWCONV)


@jit
def read_operand_offsets(d: Int64s, partial: Int) -> Any:
    """Return the scratchpad offsets of a convolution's operands."""
    return OperandOffsets(
        compute_scratchpad_offset(d[CONV.input]),
        compute_scratchpad_offset(d[CONV.weights]),
        compute_scratchpad_offset(d[CONV.channels]),
        get_scale_table_offset(d[CONV.scales]),
        compute_scratchpad_offset(d[CONV.output]),
        partial,
    )


@jit
def do_conv(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.conv``."""
    shape = read_conv_shape(d, d[CONV.groups], d[CONV.in_channels], d[CONV.out_channels])
    part = d[CONV.part]
    at = read_operand_offsets(
        d, NONE if part == PART_ONLY else compute_scratchpad_offset(d[CONV.partial])
    )
    is_all = part in (PART_ONLY, PART_CACHED)
    tile = MacTile(
        struct_pointer(w.spm),
        struct_pointer(shape),
        struct_pointer(at),
        SumParts(is_all or part == PART_FIRST, is_all or part == PART_LAST),
        struct_pointer(read_quantizer(w, d, d[CONV.weight_offset], CONV.bias_pre)),
        struct_pointer(read_position(d, CONV.event_origin)),
        struct_pointer(get_layer_counters(w, layer)),
    )
    convolve_tile(struct_pointer(tile), w.workspace)


@jit
def do_dwconv(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.dwconv``."""
    channels = d[DWCONV.channels_count]
    shape = read_dwconv_shape(d, channels, np.int64(1), channels)
    at = read_operand_offsets(d, np.int64(0))
    tile = MacTile(
        struct_pointer(w.spm),
        struct_pointer(shape),
        struct_pointer(at),
        SumParts(True, True),
        struct_pointer(read_quantizer(w, d, d[DWCONV.weight_offset], DWCONV.bias_pre)),
        struct_pointer(read_position(d, DWCONV.event_origin)),
        struct_pointer(get_layer_counters(w, layer)),
    )
    convolve_depthwise(struct_pointer(tile))


@jit
def do_gemm(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.gemm``."""
    g = MatmulShape(
        d[GEMM.rows],
        d[GEMM.inner],
        d[GEMM.columns],
        d[GEMM.lhs_stride],
        d[GEMM.rhs_stride],
        d[GEMM.out_stride],
        d[GEMM.lhs_offset],
        d[GEMM.rhs_offset],
    )
    at = OperandOffsets(
        compute_scratchpad_offset(d[GEMM.lhs]),
        compute_scratchpad_offset(d[GEMM.rhs]),
        NONE,
        NONE,
        compute_scratchpad_offset(d[GEMM.output]),
        compute_scratchpad_offset(d[GEMM.partial]),
    )
    part = d[GEMM.part]
    parts = SumParts(part in (PART_ONLY, PART_FIRST), part in (PART_ONLY, PART_LAST))
    out = read_scale(d, GEMM.out_pre)
    q = Quantizer(
        d[GEMM.element],
        d[GEMM.profile],
        np.int64(0),
        IntegerScaleRecord(np.int64(0), np.int64(0), np.int64(0)),
        out,
        d[GEMM.result_scale],
        d[GEMM.out_offset],
        np.int64(0),
        out,
        read_clip(d, GEMM.clip_low),
    )
    place = OutputPosition(d[GEMM.event_origin], d[GEMM.event_stride_y], np.int64(0))
    tile = MacTile(
        struct_pointer(w.spm),
        struct_pointer(g),
        struct_pointer(at),
        parts,
        struct_pointer(q),
        struct_pointer(place),
        struct_pointer(get_layer_counters(w, layer)),
    )
    multiply_matrices(struct_pointer(tile))


KERNELS = {"nmp.conv": do_conv, "nmp.dwconv": do_dwconv, "nmp.gemm": do_gemm}
"""Mnemonic -> kernel, a function of a kernel context, a descriptor and a layer."""
