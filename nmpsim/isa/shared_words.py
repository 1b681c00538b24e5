"""Words and memory layouts that several descriptors share."""

from __future__ import annotations

import attrs

from nmpsim.isa.layouts import AccessDirection, Alignment, ItemSize, OperandLayout, RepeatAxis
from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.records import (
    MAX_COUNT,
    MAX_DRAM_STRIDE,
    Descriptor,
    Word,
    make_count_words,
    make_element_value_word,
    make_input_word,
    make_ranged_words,
    make_signed_word,
    make_size_words,
    make_stride_words,
)

LAYER = Word("layer", "number of the layer that this work counts for")

OPERATIONS = ("add", "sub", "max", "min", "mul")
"""Elementwise operations, by value of the word ``operation``."""

ELEMENTS = ("int8", "int16")
"""Element types of activations and weights; the index is log2 of the bytes."""


def make_dimension_words(name: str, summary: str, least: int) -> tuple[Word, ...]:
    """Create a word for each of the four dimensions of a transpose."""
    names = ((f"{name}_{d}", f"{summary} along dimension {d}") for d in range(4))
    return make_ranged_words(least, MAX_COUNT, *names)


def make_scale_fields(prefix: str, what: str) -> tuple[Word, ...]:
    """Create the three words of a scale: ``pre``, ``mul`` and ``post``.

    :class:`~nmpsim.isa.profiles.ScaleForm` describes the forms.
    """
    return (
        Word(f"{prefix}_pre", f"{what}: shift before the product (q31: to the left)"),
        Word(f"{prefix}_mul", f"{what}: factor (float profiles: float32)", signed=True),
        Word(f"{prefix}_post", f"{what}: shift after the product, rounding"),
    )


def make_element_type_word(what: str = "type of input, weights and result") -> Word:
    """Create the word that selects the element type, Int8 or Int16."""
    return Word("element", what, choices=ELEMENTS)


PROFILE = Word("profile", "arithmetic of the result", choices=PROFILES)
RESULT_SCALE = Word(
    "result_scale", "float32: scale of the result or its reciprocal, if the profile uses it"
)


CLIP = (
    make_element_value_word("clip_low", "lowest result"),
    make_element_value_word("clip_high", "highest result; not less than `clip_low`"),
    Word(
        "clip_wanted",
        "bit 0: the lower clip is an activation; bit 1: the upper clip is an activation",
        least=0,
        most=3,
    ),
)
PLACE = (
    Word("event_origin", "index of the first result in the layer's output, row-major"),
    Word("event_stride_y", "step of that index from row to row"),
    Word("event_stride_x", "step of that index from pixel to pixel"),
)
WINDOW = make_size_words(
    ("kernel_h", "rows of the window"),
    ("kernel_w", "columns of the window"),
    ("stride_h", "rows from window to window"),
    ("stride_w", "columns from window to window"),
)
EXISTING = (
    *make_count_words(("channels", "channels")),
    *make_ranged_words(
        0, MAX_COUNT, ("in_h", "rows of the input"), ("in_w", "columns of the input")
    ),
)
PAD = tuple(
    attrs.evolve(word, signed=True)
    for word in make_ranged_words(
        -MAX_COUNT,
        MAX_COUNT,
        ("pad_top", "rows of the first window above the first existing row"),
        ("pad_left", "columns of the first window left of the first existing one"),
    )
)
DILATION = make_size_words(
    ("dilation_h", "rows from tap to tap"),
    ("dilation_w", "columns from tap to tap"),
)
OUT_SHAPE = make_size_words(("out_h", "rows of the result"), ("out_w", "columns of the result"))
IMAGE_STRIDES = make_stride_words(
    ("in_row_stride", "bytes from row to row of the input"),
    ("in_pixel_stride", "bytes from pixel to pixel of the input"),
    ("out_row_stride", "bytes from row to row of the result"),
    ("out_pixel_stride", "bytes from pixel to pixel of the result"),
)


CHANNEL_RECORD = Descriptor(
    "channel record",
    (
        Word("bias_low", "bias minus its zero point, 64 bits (fbgemm, onednn: a float64)"),
        make_signed_word("bias_high", "upper half of this value"),
        Word(
            "zero_term_low",
            "K*Ow*Ox - Ox*sum(w): the contribution of the input's zero point, 64 bits",
        ),
        make_signed_word("zero_term_high", "upper half of this value"),
    ),
    "Bias and zero term of one output channel; aligned to 8 bytes.",
)
SCALE_RECORD = Descriptor(
    "scale record",
    (
        make_element_value_word("weight_offset", "zero point of the weights"),
        *make_scale_fields("bias", "bias to accumulator"),
        *make_scale_fields("out", "accumulator to result"),
    ),
    "Scales of one output channel, used if channels have different scales.",
)

FLAT = OperandLayout(run=("count",))
"""Layout of consecutive elements."""
BYTES = OperandLayout(run=("count",), size=1)
PIXELS = ("out_h", "out_w")
TAPS = ("kernel_h", "kernel_w")


def make_matrix_layout(
    rows: str, stride: str, columns: str, size: ItemSize = ItemSize.ELEMENT
) -> OperandLayout:
    """Return the layout of a matrix: rows of elements at a stride."""
    return OperandLayout((columns,), (RepeatAxis(stride, (rows,)),), size)


def make_image_layout(channels: str, side: str = "out") -> OperandLayout:
    """Return the layout of an image: rows of pixels at strides, without padding."""
    columns = RepeatAxis(f"{side}_pixel_stride", (f"{side}_w",))
    return OperandLayout((channels,), (columns, RepeatAxis(f"{side}_row_stride", (f"{side}_h",))))


def make_window_layout(*channels: str) -> OperandLayout:
    """Return the layout of a convolution's input, including its padding."""
    return OperandLayout(
        channels,
        (
            RepeatAxis("in_pixel_stride", windows=("out_w", "stride_w", "kernel_w", "dilation_w")),
            RepeatAxis("in_row_stride", windows=("out_h", "stride_h", "kernel_h", "dilation_h")),
        ),
    )


def make_strided_layout(side: str) -> OperandLayout:
    """Return the layout of a four-dimensional operand with a stride word for each dimension."""
    axes = (RepeatAxis(f"{side}_stride_{d}", (f"size_{d}",)) for d in reversed(range(4)))
    return OperandLayout(("element_bytes",), tuple(axes), size=1, in_any_order=True)


def make_part_words(*sums: str) -> tuple[Word, ...]:
    """Return the words for a sum that several instructions compute."""
    return (
        Word(
            "part",
            "position in a sum over several instructions",
            choices=("only", "first", "middle", "last"),
        ),
        Word(
            "partial",
            "running sums, int32 (int64 for Int16) "
            f"{''.join(f'[{word}]' for word in sums)}, unless part is only",
            address=True,
            alignment=Alignment.SUM,
            direction=AccessDirection.SUMS,
            layout=OperandLayout(sums, size=ItemSize.SUM),
        ),
    )


def make_channel_table_words(channels: str) -> tuple[Word, ...]:
    """Create the address words of the channel records and scale records."""
    scales = make_input_word(
        "scales",
        "a scale record for each output channel; 0: the words below apply to all channels",
        OperandLayout((channels,), size=SCALE_RECORD.nbytes),
        Alignment.BYTES_4,
    )
    return (
        make_input_word(
            "channels",
            "a channel record for each output channel",
            OperandLayout((channels,), size=CHANNEL_RECORD.nbytes),
            Alignment.BYTES_8,
        ),
        attrs.evolve(scales, is_optional=True),
    )


REQUANTIZE = (
    *make_scale_fields("bias", "bias to accumulator"),
    *make_scale_fields("out", "accumulator to result"),
    RESULT_SCALE,
    make_signed_word("out_offset", "zero point of the result"),
    Word("activation", "applied before the clip", choices=("none", "leaky")),
    *make_scale_fields("leaky", "factor of a result below its zero point, if leaky"),
    *CLIP,
    *PLACE,
)


PADS = ("pad_x_before", "pad_x_after", "pad_y_before", "pad_y_after")


def make_box_layout(place: str, *pads: str) -> OperandLayout:
    """Return the layout of one side of a transfer, including padding."""
    columns = RepeatAxis(
        f"{place}_stride_x", ("count_x", *(p for p in pads if p.startswith("pad_x")))
    )
    rows = RepeatAxis(f"{place}_stride_y", ("count_y", *(p for p in pads if p.startswith("pad_y"))))
    return OperandLayout(("run_bytes",), (columns, rows), size=1)


def make_transfer_words(dram: Word, spm: Word, in_scratchpad: Alignment) -> tuple[Word, ...]:
    """Create the words of a load or a store."""
    run, columns, rows = make_ranged_words(
        0,
        MAX_COUNT,
        ("run_bytes", "bytes of one run (contiguous on both sides)"),
        ("count_x", "runs in a row"),
        ("count_y", "rows"),
    )
    return (
        LAYER,
        dram,
        spm,
        attrs.evolve(run, alignment=in_scratchpad),
        columns,
        rows,
        *make_ranged_words(
            0,
            MAX_DRAM_STRIDE,
            ("dram_stride_x", "bytes from run to run in DRAM"),
            ("dram_stride_y", "bytes from row to row in DRAM"),
        ),
        *make_stride_words(
            ("spm_stride_x", "bytes from run to run in the scratchpad"),
            ("spm_stride_y", "bytes from row to row in the scratchpad"),
            alignment=in_scratchpad,
        ),
    )
