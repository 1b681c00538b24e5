"""Words that several descriptors share, and how their operands lie in memory.

:mod:`nmpsim.isa.descriptors` puts them together.
"""

from __future__ import annotations

import attrs

from nmpsim.isa.layouts import Alignment, Axis, Direction, Layout, Size
from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.records import (
    MAX_COUNT,
    MAX_DRAM_STRIDE,
    Descriptor,
    Word,
    between,
    counts,
    reads,
    signed,
    sizes,
    strides,
    value,
)

LAYER = Word("layer", "number of the layer that this work counts for")

OPERATIONS = ("add", "sub", "max", "min", "mul")
"""What an elementwise operation does."""

ELEMENTS = ("int8", "int16")
"""What activations and weights are; the position is log2 of the bytes."""


def each_dimension(name: str, summary: str, least: int) -> tuple[Word, ...]:
    """A word for each of four dimensions."""
    names = ((f"{name}_{d}", f"{summary} along dimension {d}") for d in range(4))
    return between(least, MAX_COUNT, *names)


def scale(prefix: str, what: str) -> tuple[Word, ...]:
    """A real multiplier, in the form that the profile takes.

    :class:`~nmpsim.isa.profiles.ScaleForm` says which forms there are.
    """
    return (
        Word(f"{prefix}_pre", f"{what}: shift before the product (q31: to the left)"),
        Word(f"{prefix}_mul", f"{what}: factor (float profiles: float32)", signed=True),
        Word(f"{prefix}_post", f"{what}: shift after the product, rounding"),
    )


def element(what: str = "what input, weights and result are") -> Word:
    """The word that says Int8 or Int16."""
    return Word("element", what, choices=ELEMENTS)


PROFILE = Word("profile", "whose arithmetic makes the result", choices=PROFILES)
RESULT_SCALE = Word(
    "result_scale", "float32: scale of the result or its reciprocal, where a profile uses it"
)


CLIP = (
    value("clip_low", "lowest result"),
    value("clip_high", "highest result, not below the lowest one"),
    Word(
        "clip_wanted",
        "bit 0: the lower clip is an activation, bit 1: the upper one is",
        least=0,
        most=3,
    ),
)
PLACE = (
    Word("event_origin", "index of the first result in the layer's output, row-major"),
    Word("event_stride_y", "step of that index from row to row"),
    Word("event_stride_x", "step of that index from pixel to pixel"),
)
WINDOW = sizes(
    ("kernel_h", "rows of the window"),
    ("kernel_w", "columns of the window"),
    ("stride_h", "rows from window to window"),
    ("stride_w", "columns from window to window"),
)
EXISTING = (
    *counts(("channels", "channels")),
    *between(0, MAX_COUNT, ("in_h", "rows that exist"), ("in_w", "columns that exist")),
)
PAD = tuple(
    attrs.evolve(word, signed=True)
    for word in between(
        -MAX_COUNT,
        MAX_COUNT,
        ("pad_top", "rows of the first window above the first existing row"),
        ("pad_left", "columns of the first window left of the first existing one"),
    )
)
DILATION = sizes(
    ("dilation_h", "rows from tap to tap"),
    ("dilation_w", "columns from tap to tap"),
)
OUT_SHAPE = sizes(("out_h", "rows of the result"), ("out_w", "columns of the result"))
IMAGE_STRIDES = strides(
    ("in_row_stride", "bytes from row to row of the input"),
    ("in_pixel_stride", "bytes from pixel to pixel of the input"),
    ("out_row_stride", "bytes from row to row of the result"),
    ("out_pixel_stride", "bytes from pixel to pixel of the result"),
)


CHANNEL_RECORD = Descriptor(
    "channel record",
    (
        Word("bias_low", "bias minus its zero point, 64 bits (fbgemm, onednn: a float64)"),
        signed("bias_high", "its upper half"),
        Word("zero_term_low", "K*Ow*Ox - Ox*sum(w): what the input's zero point adds, 64 bits"),
        signed("zero_term_high", "its upper half"),
    ),
    "What a convolution needs for each output channel; aligned to 8 bytes.",
)
SCALE_RECORD = Descriptor(
    "scale record",
    (value("weight_offset", "zero point of the weights"), *scale("bias", "bias to accumulator"),
     *scale("out", "accumulator to result")),
    "Scales of one output channel, where each channel has its own.",
)  # fmt: skip

FLAT = Layout(run=("count",))
"""Consecutive elements."""
BYTES = Layout(run=("count",), size=1)
PIXELS = ("out_h", "out_w")
TAPS = ("kernel_h", "kernel_w")


def matrix(rows: str, stride: str, columns: str, size: Size = Size.ELEMENT) -> Layout:
    """Rows of elements."""
    return Layout((columns,), (Axis(stride, (rows,)),), size)


def image(channels: str, side: str = "out") -> Layout:
    """Pixels of the result, or of an input without padding."""
    columns = Axis(f"{side}_pixel_stride", (f"{side}_w",))
    return Layout((channels,), (columns, Axis(f"{side}_row_stride", (f"{side}_h",))))


def windows(*channels: str) -> Layout:
    """All that the windows of a convolution reach, padding included."""
    return Layout(
        channels,
        (
            Axis("in_pixel_stride", windows=("out_w", "stride_w", "kernel_w", "dilation_w")),
            Axis("in_row_stride", windows=("out_h", "stride_h", "kernel_h", "dilation_h")),
        ),
    )


def strided(side: str) -> Layout:
    """Four dimensions in any order, each with its own stride."""
    axes = (Axis(f"{side}_stride_{d}", (f"size_{d}",)) for d in reversed(range(4)))
    return Layout(("element_bytes",), tuple(axes), size=1, in_any_order=True)


def part(*sums: str) -> tuple[Word, ...]:
    """The place of an instruction in a sum, and where such sums are: ``sums`` says how many."""
    return (
        Word(
            "part",
            "place in a sum over several instructions",
            choices=("only", "first", "middle", "last"),
        ),
        Word(
            "partial",
            "running sums, int32 (int64 for Int16) "
            f"{''.join(f'[{word}]' for word in sums)}, unless part is only",
            address=True,
            alignment=Alignment.SUM,
            direction=Direction.SUMS,
            layout=Layout(sums, size=Size.SUM),
        ),
    )


def channel_tables(channels: str) -> tuple[Word, ...]:
    """The addresses of channel records and of scale records."""
    scales = reads(
        "scales",
        "a scale record for each output channel, or 0: the words below hold for all",
        Layout((channels,), size=SCALE_RECORD.nbytes),
        Alignment.BYTES_4,
    )
    return (
        reads(
            "channels",
            "a channel record for each output channel",
            Layout((channels,), size=CHANNEL_RECORD.nbytes),
            Alignment.BYTES_8,
        ),
        attrs.evolve(scales, is_optional=True),
    )


REQUANTIZE = (
    *scale("bias", "bias to accumulator"),
    *scale("out", "accumulator to result"),
    RESULT_SCALE,
    signed("out_offset", "zero point of the result"),
    Word("activation", "applied before the clip", choices=("none", "leaky")),
    *scale("leaky", "factor of a result below its zero point, if leaky"),
    *CLIP,
    *PLACE,
)


PADS = ("pad_x_before", "pad_x_after", "pad_y_before", "pad_y_after")


def box(place: str, *pads: str) -> Layout:
    """One side of a copy; the runs and rows of padding count there, too."""
    columns = Axis(f"{place}_stride_x", ("count_x", *(p for p in pads if p.startswith("pad_x"))))
    rows = Axis(f"{place}_stride_y", ("count_y", *(p for p in pads if p.startswith("pad_y"))))
    return Layout(("run_bytes",), (columns, rows), size=1)


def transfer(dram: Word, spm: Word, in_scratchpad: Alignment) -> tuple[Word, ...]:
    """The words of a copy in either direction."""
    run, columns, rows = between(
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
        *between(
            0,
            MAX_DRAM_STRIDE,
            ("dram_stride_x", "bytes from run to run in DRAM"),
            ("dram_stride_y", "bytes from row to row in DRAM"),
        ),
        *strides(
            ("spm_stride_x", "bytes from run to run in the scratchpad"),
            ("spm_stride_y", "bytes from row to row in the scratchpad"),
            alignment=in_scratchpad,
        ),
    )
