"""Instructions of the MAC array: descriptor in, kernel called."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.kernel_context import (
    KernelContext,
    at_spm,
    clip_at,
    layer_counters,
    scale_at,
)
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import CONV, DWCONV, GEMM, PART_FIRST, PART_LAST, PART_ONLY
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.conv import conv
from nmpsim.kernels.depthwise import depthwise
from nmpsim.kernels.gemm import gemm
from nmpsim.kernels.jit import jit
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import (
    PART_CACHED,
    ConvShape,
    IntegerScale,
    MacTile,
    MatmulShape,
    OperandOffsets,
    OutputPosition,
    Quantizer,
    SumParts,
)

NONE: Any = np.int64(-1)
"""Offset of an operand that is not there."""


@jit
def requantizer(d: Int64s, weight_offset: Int, i: Int) -> Any:
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
def scales_at(address: Int) -> Any:
    """Offset of a table of scales, negative if there is none."""
    return NONE if address == 0 else address - SCRATCHPAD_BASE


@jit
def do_conv(w: KernelContext, d: Int64s, layer: Int) -> None:
    """``nmp.conv``."""
    window = ConvShape(
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
    part = d[CONV.part]
    at = OperandOffsets(
        at_spm(d[CONV.input]),
        at_spm(d[CONV.weights]),
        at_spm(d[CONV.channels]),
        scales_at(d[CONV.scales]),
        at_spm(d[CONV.output]),
        NONE if part == PART_ONLY else at_spm(d[CONV.partial]),
    )
    is_all = part in (PART_ONLY, PART_CACHED)
    parts = SumParts(is_all or part == PART_FIRST, is_all or part == PART_LAST)
    place = OutputPosition(d[CONV.event_origin], d[CONV.event_stride_y], d[CONV.event_stride_x])
    q = requantizer(d, d[CONV.weight_offset], CONV.bias_pre)
    tile = MacTile(
        struct_pointer(w.spm),
        struct_pointer(window),
        struct_pointer(at),
        parts,
        struct_pointer(q),
        struct_pointer(place),
        struct_pointer(layer_counters(w, layer)),
    )
    conv(struct_pointer(tile), w.workspace)


@jit
def do_dwconv(w: KernelContext, d: Int64s, layer: Int) -> None:
    """``nmp.dwconv``."""
    channels = d[DWCONV.channels_count]
    window = ConvShape(
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
    at = OperandOffsets(
        at_spm(d[DWCONV.input]),
        at_spm(d[DWCONV.weights]),
        at_spm(d[DWCONV.channels]),
        scales_at(d[DWCONV.scales]),
        at_spm(d[DWCONV.output]),
        np.int64(0),
    )
    place = OutputPosition(
        d[DWCONV.event_origin], d[DWCONV.event_stride_y], d[DWCONV.event_stride_x]
    )
    q = requantizer(d, d[DWCONV.weight_offset], DWCONV.bias_pre)
    tile = MacTile(
        struct_pointer(w.spm),
        struct_pointer(window),
        struct_pointer(at),
        SumParts(True, True),
        struct_pointer(q),
        struct_pointer(place),
        struct_pointer(layer_counters(w, layer)),
    )
    depthwise(struct_pointer(tile))


@jit
def do_gemm(w: KernelContext, d: Int64s, layer: Int) -> None:
    """``nmp.gemm``."""
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
        at_spm(d[GEMM.lhs]),
        at_spm(d[GEMM.rhs]),
        NONE,
        NONE,
        at_spm(d[GEMM.output]),
        at_spm(d[GEMM.partial]),
    )
    part = d[GEMM.part]
    parts = SumParts(part in (PART_ONLY, PART_FIRST), part in (PART_ONLY, PART_LAST))
    out = scale_at(d, GEMM.out_pre)
    q = Quantizer(
        d[GEMM.element],
        d[GEMM.profile],
        np.int64(0),
        IntegerScale(np.int64(0), np.int64(0), np.int64(0)),
        out,
        d[GEMM.result_scale],
        d[GEMM.out_offset],
        np.int64(0),
        out,
        clip_at(d, GEMM.clip_low),
    )
    place = OutputPosition(d[GEMM.event_origin], d[GEMM.event_stride_y], np.int64(0))
    tile = MacTile(
        struct_pointer(w.spm),
        struct_pointer(g),
        struct_pointer(at),
        parts,
        struct_pointer(q),
        struct_pointer(place),
        struct_pointer(layer_counters(w, layer)),
    )
    gemm(struct_pointer(tile))


KERNELS = {"nmp.conv": do_conv, "nmp.dwconv": do_dwconv, "nmp.gemm": do_gemm}
"""Mnemonic -> its kernel: a function of a kernel context, a descriptor and a layer."""
