"""The descriptors of tensor instructions, word by word.

A descriptor is a record of 32-bit little-endian words. :mod:`nmpsim.isa.table` has the
instructions and re-exports these names.
"""

from __future__ import annotations

from nmpsim.isa.exhaustive import check_exhaustive
from nmpsim.isa.layouts import Alignment, InstructionWork, ItemSize, OperandLayout, UnitThroughput
from nmpsim.isa.profiles import PROFILES_OF
from nmpsim.isa.records import (
    MAX_COUNT,
    Descriptor,
    Word,
    make_count_words,
    make_element_value_word,
    make_input_word,
    make_output_word,
    make_ranged_words,
    make_signed_word,
    make_size_words,
    make_stride_words,
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
    make_box_layout,
    make_channel_table_words,
    make_dimension_words,
    make_element_type_word,
    make_image_layout,
    make_matrix_layout,
    make_part_words,
    make_scale_fields,
    make_strided_layout,
    make_transfer_words,
    make_window_layout,
)

_POOL = (
    LAYER,
    make_element_type_word("type of input and result"),
    make_input_word(
        "input",
        "[in_h][in_w][channels], without padding",
        make_image_layout("channels", "in"),
    ),
    make_output_word("output", "[out_h][out_w][channels]", make_image_layout("channels")),
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
                *make_transfer_words(
                    make_input_word("dram", "DRAM side", make_box_layout("dram"), Alignment.NONE),
                    make_output_word(
                        "spm",
                        "scratchpad side",
                        make_box_layout("spm", *PADS),
                        may_overlap_itself=True,
                    ),
                    Alignment.ELEMENT,
                ),
                *make_ranged_words(
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
                make_element_type_word("element type of the padding"),
                make_element_value_word("fill", "value that padding is filled with"),
            ),
            "The scratchpad address is that of the first padding byte.",
        ),
        Descriptor(
            "store",
            make_transfer_words(
                make_output_word(
                    "dram",
                    "DRAM side",
                    make_box_layout("dram"),
                    Alignment.NONE,
                    may_overlap_itself=True,
                ),
                make_input_word("spm", "scratchpad side", make_box_layout("spm"), Alignment.NONE),
                Alignment.NONE,
            ),
            "The reverse of a load, without padding.",
        ),
        Descriptor(
            "conv",
            (
                LAYER,
                make_element_type_word(),
                PROFILE,
                make_input_word(
                    "input",
                    "[rows][columns][groups*in_channels], padding included",
                    make_window_layout("groups", "in_channels"),
                ),
                make_input_word(
                    "weights",
                    "[out/16][ky][(kx*in)/4][16][4], for Int16 [out/16][ky][(kx*in)/2][16][2]; "
                    "bytes beyond the edges are reserved",
                    OperandLayout(("out_channels", *TAPS, "in_channels"), is_blocked=True),
                ),
                *make_channel_table_words("out_channels"),
                make_output_word(
                    "output", "[out_h][out_w][out_channels]", make_image_layout("out_channels")
                ),
                *make_size_words(
                    ("groups", "independent groups of channels"),
                    ("in_channels", "input channels of one group"),
                    ("out_channels", "output channels of all groups, a multiple of `groups`"),
                ),
                *WINDOW,
                *DILATION,
                *OUT_SHAPE,
                *IMAGE_STRIDES,
                *make_part_words(*PIXELS, "out_channels"),
                make_element_value_word("weight_offset", "zero point of the weights"),
                *REQUANTIZE,
            ),
            "A fully connected layer is a convolution of one row with a 1x1 window.",
            InstructionWork(
                UnitThroughput.PRODUCT,
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
                make_element_type_word(),
                PROFILE,
                make_input_word(
                    "input",
                    "[rows][columns][channels], padding included",
                    make_window_layout("channels_count"),
                ),
                make_input_word(
                    "weights", "[ky][kx][channels]", OperandLayout((*TAPS, "channels_count"))
                ),
                *make_channel_table_words("channels_count"),
                make_output_word(
                    "output", "[out_h][out_w][channels]", make_image_layout("channels_count")
                ),
                *make_size_words(("channels_count", "channels of input, weights and result")),
                *WINDOW,
                *DILATION,
                *OUT_SHAPE,
                *IMAGE_STRIDES,
                make_element_value_word("weight_offset", "zero point of the weights"),
                *REQUANTIZE,
            ),
            "Each channel is convolved with its own window.",
            InstructionWork(
                UnitThroughput.DEPTHWISE, rows=(*PIXELS, *TAPS), columns=("channels_count",)
            ),
        ),
        Descriptor(
            "gemm",
            (
                LAYER,
                make_element_type_word("type of both operands and the result"),
                PROFILE,
                make_input_word(
                    "lhs", "[rows][inner]", make_matrix_layout("rows", "lhs_stride", "inner")
                ),
                make_input_word(
                    "rhs", "[inner][columns]", make_matrix_layout("inner", "rhs_stride", "columns")
                ),
                make_output_word(
                    "output", "[rows][columns]", make_matrix_layout("rows", "out_stride", "columns")
                ),
                *make_count_words(
                    ("rows", "rows of lhs and result"),
                    ("inner", "columns of lhs, rows of rhs"),
                    ("columns", "columns of rhs and result"),
                ),
                *make_stride_words(
                    ("lhs_stride", "bytes from row to row of lhs"),
                    ("rhs_stride", "bytes from row to row of rhs"),
                    ("out_stride", "bytes from row to row of the result"),
                ),
                *make_part_words("rows", "columns"),
                make_element_value_word("lhs_offset", "zero point of lhs"),
                make_element_value_word("rhs_offset", "zero point of rhs"),
                *make_scale_fields("out", "accumulator to result"),
                RESULT_SCALE,
                make_signed_word("out_offset", "zero point of the result"),
                *CLIP,
                *PLACE[:2],
            ),
            "result = scale(sum of (lhs - offset) * (rhs - offset)) + out_offset, clipped.",
            InstructionWork(
                UnitThroughput.PRODUCT, rows=("rows",), depth=("inner",), columns=("columns",)
            ),
        ),
        Descriptor(
            "maxpool",
            (
                *_POOL,
                make_element_value_word(
                    "empty_value", "result of a window that lies only in padding"
                ),
            ),
            "The maximum ignores padding.",
            InstructionWork(UnitThroughput.LANES, rows=(*PIXELS, *TAPS), columns=("channels",)),
        ),
        Descriptor(
            "avgpool",
            (
                *_POOL,
                PROFILE,
                make_element_value_word("in_offset", "zero point of the input"),
                Word("divide", "what the sum is divided by", choices=("nothing", "by_valid_taps")),
                *make_scale_fields("out", "sum to result"),
                RESULT_SCALE,
                make_signed_word("out_offset", "zero point of the result"),
                *CLIP,
                *PLACE,
            ),
            "Sum of (x - in_offset) over existing taps, scaled and divided according to `divide`.",
            InstructionWork(UnitThroughput.LANES, rows=(*PIXELS, *TAPS), columns=("channels",)),
        ),
        Descriptor(
            "eltwise",
            (
                LAYER,
                make_element_type_word("type of lhs and result"),
                PROFILE,
                Word("operation", "operation", choices=OPERATIONS),
                make_input_word(
                    "lhs",
                    "[rows][columns]",
                    make_matrix_layout("rows", "lhs_stride", "columns"),
                    in_place=True,
                ),
                make_input_word(
                    "rhs",
                    "[rows][columns]",
                    make_matrix_layout("rows", "rhs_stride", "columns", ItemSize.RIGHT_SIDE),
                    Alignment.RIGHT_SIDE,
                    in_place=True,
                ),
                make_output_word(
                    "output", "[rows][columns]", make_matrix_layout("rows", "out_stride", "columns")
                ),
                Word("rhs_kind", "what rhs is", choices=("element", "int32")),
                *make_count_words(("rows", "rows"), ("columns", "elements of a row")),
                *make_stride_words(
                    ("lhs_stride", "bytes from row to row of lhs"),
                    (
                        "rhs_stride",
                        "bytes from row to row of rhs, of int32 a multiple of 4; 0 repeats one row",
                    ),
                    ("out_stride", "bytes from row to row of the result"),
                ),
                make_element_value_word("lhs_offset", "zero point of lhs"),
                make_signed_word("rhs_offset", "zero point of rhs"),
                *make_scale_fields("lhs", "lhs to result (not for mul)"),
                *make_scale_fields("rhs", "rhs to result (not for mul)"),
                *make_scale_fields("out", "product (or sum, if the profile rescales it) to result"),
                RESULT_SCALE,
                make_signed_word("out_offset", "zero point of the result"),
                *CLIP,
                *PLACE[:2],
            ),
            "Both operands are rescaled to the result's scale and rounded before the operation.",
            InstructionWork(UnitThroughput.LANES, rows=("rows",), columns=("columns",)),
        ),
        Descriptor(
            "rescale",
            (
                LAYER,
                make_element_type_word("type of input and result"),
                PROFILE,
                make_input_word("input", "[count]", FLAT, in_place=True),
                make_output_word("output", "[count]", FLAT),
                *make_count_words(("count", "elements")),
                make_element_value_word("in_low", "the input is clamped to at least this"),
                make_element_value_word(
                    "in_high", "the input is clamped to at most this; not less than `in_low`"
                ),
                make_element_value_word("in_offset", "zero point of the input"),
                *make_scale_fields("out", "input to result"),
                Word(
                    "activation",
                    "whether inputs below the zero point have the leaky scale",
                    choices=("none", "leaky"),
                ),
                *make_scale_fields("leaky", "input below its zero point to result, if leaky"),
                RESULT_SCALE,
                make_signed_word("out_offset", "zero point of the result"),
                *CLIP,
                *PLACE[:1],
            ),
            "relu, clip, leaky relu, max with a constant and plain rescaling.",
            InstructionWork(UnitThroughput.LANES, columns=("count",)),
        ),
        Descriptor(
            "lut",
            (
                LAYER,
                make_input_word("input", "int8 [count]", BYTES, Alignment.NONE, in_place=True),
                make_output_word("output", "int8 [count]", BYTES, Alignment.NONE),
                make_input_word(
                    "table",
                    "int8 [256], the entry of -128 first",
                    OperandLayout((), size=256),
                    Alignment.NONE,
                ),
                *make_count_words(("count", "elements")),
            ),
            "result = table[x + 128].",
            InstructionWork(UnitThroughput.LANES, columns=("count",)),
        ),
        Descriptor(
            "fill",
            (
                LAYER,
                make_element_type_word("type of the result"),
                make_output_word("output", "[count]", FLAT),
                *make_count_words(("count", "elements")),
                make_element_value_word("value", "the value"),
            ),
            "Every element is set to the value.",
            InstructionWork(UnitThroughput.LANES, columns=("count",)),
        ),
        Descriptor(
            "transpose",
            (
                LAYER,
                make_input_word("input", "elements", make_strided_layout("in"), Alignment.NONE),
                make_output_word(
                    "output",
                    "elements",
                    make_strided_layout("out"),
                    Alignment.NONE,
                    may_overlap_itself=True,
                ),
                Word("element_bytes", "bytes of an element", values=(1, 2, 4, 8)),
                *make_dimension_words("size", "elements", 1),
                *make_dimension_words("in_stride", "bytes from one input element to the next", 0),
                *make_dimension_words("out_stride", "bytes from one result element to the next", 0),
            ),
            "Strides define any order of up to four dimensions.",
            InstructionWork(UnitThroughput.ELEMENT, rows=tuple(f"size_{d}" for d in range(4))),
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
