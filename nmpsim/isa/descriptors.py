"""The descriptors of tensor instructions, word by word.

A descriptor is a record of 32-bit little-endian words. :mod:`nmpsim.isa.table` has the
instructions and re-exports these names.
"""

from __future__ import annotations

from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.isa.layouts import Alignment, Layout, Size, Throughput, Work
from nmpsim.isa.profiles import PROFILES_OF
from nmpsim.isa.records import (
    MAX_COUNT,
    Descriptor,
    Word,
    count_words,
    element_value,
    input_operand,
    output_operand,
    ranged_words,
    signed_word,
    size_words,
    stride_words,
)
from nmpsim.isa.shared_words import (
    BYTES,
    CLIP,
    DILATION,
    EXISTING,
    FLAT,
    IMAGE_STRIDES,
    LAYER,
    OPERATIONS,
    OUT_SHAPE,
    PAD,
    PADS,
    PIXELS,
    PLACE,
    PROFILE,
    REQUANTIZE,
    RESULT_SCALE,
    TAPS,
    WINDOW,
    box_layout,
    channel_table_words,
    dimension_words,
    element_word,
    image_layout,
    matrix_layout,
    part_words,
    scale_fields,
    strided_layout,
    transfer_words,
    window_layout,
)

_POOL = (
    LAYER,
    element_word("type of input and result"),
    input_operand(
        "input",
        "[in_h][in_w][channels], without padding",
        image_layout("channels", "in"),
    ),
    output_operand("output", "[out_h][out_w][channels]", image_layout("channels")),
    *EXISTING,
    *WINDOW,
    *PAD,
    *OUT_SHAPE,
    *IMAGE_STRIDES,
)
"""Words that both pools begin with."""

DESCRIPTORS: dict[str, Descriptor] = {
    d.name: d
    for d in (
        Descriptor(
            "load",
            (
                *transfer_words(
                    input_operand("dram", "DRAM side", box_layout("dram"), Alignment.NONE),
                    output_operand(
                        "spm", "scratchpad side", box_layout("spm", *PADS), may_overlap_itself=True
                    ),
                    Alignment.ELEMENT,
                ),
                *ranged_words(
                    0,
                    MAX_COUNT,
                    *zip(
                        PADS,
                        (
                            "runs of padding before each row",
                            "runs of padding after each row",
                            "rows of padding before the box",
                            "rows of padding after the box",
                        ),
                        strict=True,
                    ),
                ),
                element_word("element type of the padding"),
                element_value("fill", "value that padding is filled with"),
            ),
            "The scratchpad address is that of the first padding byte.",
        ),
        Descriptor(
            "store",
            transfer_words(
                output_operand(
                    "dram", "DRAM side", box_layout("dram"), Alignment.NONE, may_overlap_itself=True
                ),
                input_operand("spm", "scratchpad side", box_layout("spm"), Alignment.NONE),
                Alignment.NONE,
            ),
            "The reverse of a load, without padding.",
        ),
        Descriptor(
            "conv",
            (
                LAYER,
                element_word(),
                PROFILE,
                input_operand(
                    "input",
                    "[rows][columns][groups*in_channels], padding included",
                    window_layout("groups", "in_channels"),
                ),
                input_operand(
                    "weights",
                    "[out/16][ky][(kx*in)/4][16][4], for Int16 [out/16][ky][(kx*in)/2][16][2]; "
                    "bytes beyond the edges are reserved",
                    Layout(("out_channels", *TAPS, "in_channels"), is_blocked=True),
                ),
                *channel_table_words("out_channels"),
                output_operand(
                    "output", "[out_h][out_w][out_channels]", image_layout("out_channels")
                ),
                *size_words(
                    ("groups", "independent groups of channels"),
                    ("in_channels", "input channels of one group"),
                    ("out_channels", "output channels of all groups, a multiple of `groups`"),
                ),
                *WINDOW,
                *DILATION,
                *OUT_SHAPE,
                *IMAGE_STRIDES,
                *part_words(*PIXELS, "out_channels"),
                element_value("weight_offset", "zero point of the weights"),
                *REQUANTIZE,
            ),
            "A fully connected layer is a convolution of one row with a 1x1 window.",
            Work(
                Throughput.PRODUCT,
                rows=(*PIXELS, "kernel_h"),
                depth=("kernel_w", "in_channels"),
                columns=("out_channels",),
                groups=("groups",),
            ),
        ),
        Descriptor(
            "dwconv",
            (
                LAYER,
                element_word(),
                PROFILE,
                input_operand(
                    "input",
                    "[rows][columns][channels], padding included",
                    window_layout("channels_count"),
                ),
                input_operand("weights", "[ky][kx][channels]", Layout((*TAPS, "channels_count"))),
                *channel_table_words("channels_count"),
                output_operand(
                    "output", "[out_h][out_w][channels]", image_layout("channels_count")
                ),
                *size_words(("channels_count", "channels of input, weights and result")),
                *WINDOW,
                *DILATION,
                *OUT_SHAPE,
                *IMAGE_STRIDES,
                element_value("weight_offset", "zero point of the weights"),
                *REQUANTIZE,
            ),
            "Each channel is convolved with its own window.",
            Work(Throughput.DEPTHWISE, rows=(*PIXELS, *TAPS), columns=("channels_count",)),
        ),
        Descriptor(
            "gemm",
            (
                LAYER,
                element_word("type of both operands and the result"),
                PROFILE,
                input_operand("lhs", "[rows][inner]", matrix_layout("rows", "lhs_stride", "inner")),
                input_operand(
                    "rhs", "[inner][columns]", matrix_layout("inner", "rhs_stride", "columns")
                ),
                output_operand(
                    "output", "[rows][columns]", matrix_layout("rows", "out_stride", "columns")
                ),
                *count_words(
                    ("rows", "rows of lhs and result"),
                    ("inner", "columns of lhs, rows of rhs"),
                    ("columns", "columns of rhs and result"),
                ),
                *stride_words(
                    ("lhs_stride", "bytes from row to row of lhs"),
                    ("rhs_stride", "bytes from row to row of rhs"),
                    ("out_stride", "bytes from row to row of the result"),
                ),
                *part_words("rows", "columns"),
                element_value("lhs_offset", "zero point of lhs"),
                element_value("rhs_offset", "zero point of rhs"),
                *scale_fields("out", "accumulator to result"),
                RESULT_SCALE,
                signed_word("out_offset", "zero point of the result"),
                *CLIP,
                *PLACE[:2],
            ),
            "result = scale(sum of (lhs - offset) * (rhs - offset)) + out_offset, clipped.",
            Work(Throughput.PRODUCT, rows=("rows",), depth=("inner",), columns=("columns",)),
        ),
        Descriptor(
            "maxpool",
            (
                *_POOL,
                element_value("empty_value", "result of a window that lies only in padding"),
            ),
            "The maximum ignores padding.",
            Work(Throughput.LANES, rows=(*PIXELS, *TAPS), columns=("channels",)),
        ),
        Descriptor(
            "avgpool",
            (
                *_POOL,
                PROFILE,
                element_value("in_offset", "zero point of the input"),
                Word("divide", "what the sum is divided by", choices=("nothing", "by_valid_taps")),
                *scale_fields("out", "sum to result"),
                RESULT_SCALE,
                signed_word("out_offset", "zero point of the result"),
                *CLIP,
                *PLACE,
            ),
            "Sum of (x - in_offset) over existing taps, scaled and divided according to `divide`.",
            Work(Throughput.LANES, rows=(*PIXELS, *TAPS), columns=("channels",)),
        ),
        Descriptor(
            "eltwise",
            (
                LAYER,
                element_word("type of lhs and result"),
                PROFILE,
                Word("operation", "operation", choices=OPERATIONS),
                input_operand(
                    "lhs",
                    "[rows][columns]",
                    matrix_layout("rows", "lhs_stride", "columns"),
                    in_place=True,
                ),
                input_operand(
                    "rhs",
                    "[rows][columns]",
                    matrix_layout("rows", "rhs_stride", "columns", Size.RIGHT_SIDE),
                    Alignment.RIGHT_SIDE,
                    in_place=True,
                ),
                output_operand(
                    "output", "[rows][columns]", matrix_layout("rows", "out_stride", "columns")
                ),
                Word("rhs_kind", "what rhs is", choices=("element", "int32")),
                *count_words(("rows", "rows"), ("columns", "elements of a row")),
                *stride_words(
                    ("lhs_stride", "bytes from row to row of lhs"),
                    (
                        "rhs_stride",
                        "bytes from row to row of rhs, of int32 a multiple of 4; 0 repeats one row",
                    ),
                    ("out_stride", "bytes from row to row of the result"),
                ),
                element_value("lhs_offset", "zero point of lhs"),
                signed_word("rhs_offset", "zero point of rhs"),
                *scale_fields("lhs", "lhs to result (not for mul)"),
                *scale_fields("rhs", "rhs to result (not for mul)"),
                *scale_fields("out", "product (or sum, if the profile rescales it) to result"),
                RESULT_SCALE,
                signed_word("out_offset", "zero point of the result"),
                *CLIP,
                *PLACE[:2],
            ),
            "Both operands are rescaled to the result's scale and rounded before the operation.",
            Work(Throughput.LANES, rows=("rows",), columns=("columns",)),
        ),
        Descriptor(
            "rescale",
            (
                LAYER,
                element_word("type of input and result"),
                PROFILE,
                input_operand("input", "[count]", FLAT, in_place=True),
                output_operand("output", "[count]", FLAT),
                *count_words(("count", "elements")),
                element_value("in_low", "the input is clamped to at least this"),
                element_value(
                    "in_high", "the input is clamped to at most this; not less than `in_low`"
                ),
                element_value("in_offset", "zero point of the input"),
                *scale_fields("out", "input to result"),
                Word(
                    "activation",
                    "whether inputs below the zero point have the leaky scale",
                    choices=("none", "leaky"),
                ),
                *scale_fields("leaky", "input below its zero point to result, if leaky"),
                RESULT_SCALE,
                signed_word("out_offset", "zero point of the result"),
                *CLIP,
                *PLACE[:1],
            ),
            "relu, clip, leaky relu, max with a constant and plain rescaling.",
            Work(Throughput.LANES, columns=("count",)),
        ),
        Descriptor(
            "lut",
            (
                LAYER,
                input_operand("input", "int8 [count]", BYTES, Alignment.NONE, in_place=True),
                output_operand("output", "int8 [count]", BYTES, Alignment.NONE),
                input_operand(
                    "table",
                    "int8 [256], the entry of -128 first",
                    Layout((), size=256),
                    Alignment.NONE,
                ),
                *count_words(("count", "elements")),
            ),
            "result = table[x + 128].",
            Work(Throughput.LANES, columns=("count",)),
        ),
        Descriptor(
            "fill",
            (
                LAYER,
                element_word("type of the result"),
                output_operand("output", "[count]", FLAT),
                *count_words(("count", "elements")),
                element_value("value", "the value"),
            ),
            "Every element is set to the value.",
            Work(Throughput.LANES, columns=("count",)),
        ),
        Descriptor(
            "transpose",
            (
                LAYER,
                input_operand("input", "elements", strided_layout("in"), Alignment.NONE),
                output_operand(
                    "output",
                    "elements",
                    strided_layout("out"),
                    Alignment.NONE,
                    may_overlap_itself=True,
                ),
                Word("element_bytes", "bytes of an element", values=(1, 2, 4, 8)),
                *dimension_words("size", "elements", 1),
                *dimension_words("in_stride", "bytes from one input element to the next", 0),
                *dimension_words("out_stride", "bytes from one result element to the next", 0),
            ),
            "Strides define any order of up to four dimensions.",
            Work(Throughput.ELEMENT, rows=tuple(f"size_{d}" for d in range(4))),
        ),
    )
}

check_exhaustive(
    "nmpsim.isa.profiles.PROFILES_OF",
    PROFILES_OF,
    (n for n, d in DESCRIPTORS.items() if PROFILE in d.words),
)

DESCRIPTOR_ALIGNMENT = 4
"""Alignment of descriptors in bytes; another address is a descriptor fault."""
