"""Instructions of the MAC array: descriptor words to kernel arguments."""

from __future__ import annotations

from nmpsim.core.compiled.kernel_context import (
    NONE,
    ZERO,
    KernelContext,
    get_layer_counters,
    make_descriptor_reader,
)
from nmpsim.isa.words import CONV, GEMM, PART_FIRST, PART_LAST, PART_ONLY
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.conv import convolve_tile
from nmpsim.kernels.depthwise import convolve_depthwise
from nmpsim.kernels.gemm import multiply_matrices
from nmpsim.kernels.jit import jit
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.operands import (
    PART_CACHED,
    ConvShape,
    MacTile,
    MatmulShape,
    OperandOffsets,
    OutputPosition,
    Quantizer,
    SumParts,
)

_QUANTIZER = {"bias": "{bias_scale}", "out": "{out_scale}", "leaky": "{activation}"}

read_conv_shape = make_descriptor_reader(ConvShape, "conv")
read_conv_offsets = make_descriptor_reader(
    OperandOffsets, "conv", partial=f"({NONE} if {{part}} == {PART_ONLY} else {{partial}})"
)
read_conv_quantizer = make_descriptor_reader(Quantizer, "conv", **_QUANTIZER)
read_conv_position = make_descriptor_reader(OutputPosition, "conv")

read_dwconv_shape = make_descriptor_reader(
    ConvShape,
    "dwconv",
    groups="{channels_count}",
    in_channels="np.int64(1)",
    out_channels="{channels_count}",
)
read_dwconv_offsets = make_descriptor_reader(OperandOffsets, "dwconv", partial=ZERO)
read_dwconv_quantizer = make_descriptor_reader(Quantizer, "dwconv", **_QUANTIZER)
read_dwconv_position = make_descriptor_reader(OutputPosition, "dwconv")

read_gemm_shape = make_descriptor_reader(MatmulShape, "gemm")
read_gemm_offsets = make_descriptor_reader(
    OperandOffsets, "gemm", input="{lhs}", weights="{rhs}", channels=NONE, scales=NONE
)
read_gemm_quantizer = make_descriptor_reader(
    Quantizer,
    "gemm",
    weight_offset=ZERO,
    bias=f"IntegerScaleRecord({ZERO}, {ZERO}, {ZERO})",
    out="{out_scale}",
    leaky=ZERO,
    leaky_scale="{out_scale}",
)
read_gemm_position = make_descriptor_reader(OutputPosition, "gemm")


@jit
def do_conv(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.conv``, the convolution of a tile in a scratchpad."""
    part = d[CONV.part]
    is_all = part in (PART_ONLY, PART_CACHED)
    tile = MacTile(
        struct_pointer(w.spm),
        struct_pointer(read_conv_shape(w, d)),
        struct_pointer(read_conv_offsets(w, d)),
        SumParts(is_all or part == PART_FIRST, is_all or part == PART_LAST),
        struct_pointer(read_conv_quantizer(w, d)),
        struct_pointer(read_conv_position(w, d)),
        struct_pointer(get_layer_counters(w, layer)),
    )
    convolve_tile(struct_pointer(tile), w.workspace)


@jit
def do_dwconv(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.dwconv``, the depthwise convolution of a tile in a scratchpad."""
    tile = MacTile(
        struct_pointer(w.spm),
        struct_pointer(read_dwconv_shape(w, d)),
        struct_pointer(read_dwconv_offsets(w, d)),
        SumParts(True, True),
        struct_pointer(read_dwconv_quantizer(w, d)),
        struct_pointer(read_dwconv_position(w, d)),
        struct_pointer(get_layer_counters(w, layer)),
    )
    convolve_depthwise(struct_pointer(tile))


@jit
def do_gemm(w: KernelContext, d: Int64s, layer: Int) -> None:
    """Execute ``nmp.gemm``, the matrix product of two tiles in a scratchpad."""
    part = d[GEMM.part]
    tile = MacTile(
        struct_pointer(w.spm),
        struct_pointer(read_gemm_shape(w, d)),
        struct_pointer(read_gemm_offsets(w, d)),
        SumParts(part in (PART_ONLY, PART_FIRST), part in (PART_ONLY, PART_LAST)),
        struct_pointer(read_gemm_quantizer(w, d)),
        struct_pointer(read_gemm_position(w, d)),
        struct_pointer(get_layer_counters(w, layer)),
    )
    multiply_matrices(struct_pointer(tile))


KERNELS = {"nmp.conv": do_conv, "nmp.dwconv": do_dwconv, "nmp.gemm": do_gemm}
"""Mnemonic -> kernel, a function of a kernel context, a descriptor and a layer."""
