"""Every descriptor: what a tensor instruction points to, word by word.

A descriptor is a record of 32-bit little-endian words. Part of the one table of the instruction
set; :mod:`nmpsim.isa.table` has the instructions and passes these names on.
"""

from __future__ import annotations

import attrs

from nmpsim.isa.layouts import Alignment, Axis, Direction, Layout, Pace, Size, Work
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
    writes,
)
from nmpsim.isa.total import check_total

LAYER = Word("layer", "number of the layer that this work counts for")

OPERATIONS = ("add", "sub", "max", "min", "mul")
"""What an elementwise operation does."""

ELEMENTS = ("int8", "int16")
"""What activations and weights are; the position is log2 of the bytes."""

PROFILES = (
    "glow_int",
    "glow_float",
    "glow_float_late",
    "nmp",
    "q31",
    "float",
    "fbgemm",
    "onednn",
    "qnnpack",
)
"""Whose arithmetic a result follows, to the bit; ``docs/numerics.md`` has the formulas."""

_VECTOR_PROFILES = ("glow_int", "nmp", "glow_float", "q31", "float")
_PRODUCT_PROFILES = (*_VECTOR_PROFILES, "glow_float_late")
_CONVOLUTION_PROFILES = (*_PRODUCT_PROFILES, "fbgemm", "onednn")
PROFILES_OF = {
    "conv": _CONVOLUTION_PROFILES,
    "dwconv": _CONVOLUTION_PROFILES,
    "gemm": _PRODUCT_PROFILES,
    "avgpool": (*_VECTOR_PROFILES, "fbgemm"),
    "eltwise": (*_VECTOR_PROFILES, "qnnpack"),
    "rescale": _VECTOR_PROFILES,
}
"""Descriptor -> the profiles that its instruction has; another one is an operand fault."""


def _each_dimension(name: str, summary: str, least: int) -> tuple[Word, ...]:
    names = ((f"{name}_{d}", f"{summary} along dimension {d}") for d in range(4))
    return between(least, MAX_COUNT, *names)


def _scale(prefix: str, what: str) -> tuple[Word, ...]:
    """A real multiplier, in the form that the profile takes.

    glow_int and nmp: ``((x >> pre) * mul + round) >> post``. q31: shift left by ``pre``, take
    ``mul`` as a 32-bit fraction, shift right by ``post``. All others: ``mul`` is a float32; so is
    ``post`` where a profile adds something.
    """
    return (
        Word(f"{prefix}_pre", f"{what}: shift before the product (q31: to the left)"),
        Word(f"{prefix}_mul", f"{what}: factor (float profiles: float32)", signed=True),
        Word(f"{prefix}_post", f"{what}: shift after the product, rounding"),
    )


def _element(what: str = "what input, weights and result are") -> Word:
    return Word("element", what, choices=ELEMENTS)


_PROFILE = Word("profile", "whose arithmetic makes the result", choices=PROFILES)
_RESULT_SCALE = Word(
    "result_scale", "float32: scale of the result or its reciprocal, where a profile uses it"
)


_CLIP = (
    value("clip_low", "lowest result"),
    value("clip_high", "highest result, not below the lowest one"),
    Word(
        "clip_wanted",
        "bit 0: the lower clip is an activation, bit 1: the upper one is",
        least=0,
        most=3,
    ),
)
_PLACE = (
    Word("event_origin", "index of the first result in the layer's output, row-major"),
    Word("event_stride_y", "step of that index from row to row"),
    Word("event_stride_x", "step of that index from pixel to pixel"),
)
_WINDOW = sizes(
    ("kernel_h", "rows of the window"),
    ("kernel_w", "columns of the window"),
    ("stride_h", "rows from window to window"),
    ("stride_w", "columns from window to window"),
)
_EXISTING = (
    *counts(("channels", "channels")),
    *between(0, MAX_COUNT, ("in_h", "rows that exist"), ("in_w", "columns that exist")),
)
_PAD = tuple(
    attrs.evolve(word, signed=True)
    for word in between(
        -MAX_COUNT,
        MAX_COUNT,
        ("pad_top", "rows of the first window above the first existing row"),
        ("pad_left", "columns of the first window left of the first existing one"),
    )
)
_DILATION = sizes(
    ("dilation_h", "rows from tap to tap"),
    ("dilation_w", "columns from tap to tap"),
)
_OUT_SHAPE = sizes(("out_h", "rows of the result"), ("out_w", "columns of the result"))
_IMAGE_STRIDES = strides(
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
    (value("weight_offset", "zero point of the weights"), *_scale("bias", "bias to accumulator"),
     *_scale("out", "accumulator to result")),
    "Scales of one output channel, where each channel has its own.",
)  # fmt: skip

_FLAT = Layout(run=("count",))
"""Elements one behind the other."""
_BYTES = Layout(run=("count",), size=1)
_PIXELS = ("out_h", "out_w")
_TAPS = ("kernel_h", "kernel_w")


def _matrix(rows: str, stride: str, columns: str, size: Size = Size.ELEMENT) -> Layout:
    return Layout((columns,), (Axis(stride, (rows,)),), size)


def _image(channels: str, side: str = "out") -> Layout:
    """Pixels of the result, or of an input without padding."""
    columns = Axis(f"{side}_pixel_stride", (f"{side}_w",))
    return Layout((channels,), (columns, Axis(f"{side}_row_stride", (f"{side}_h",))))


def _windows(*channels: str) -> Layout:
    """All that the windows of a convolution reach, padding included."""
    return Layout(
        channels,
        (
            Axis("in_pixel_stride", windows=("out_w", "stride_w", "kernel_w", "dilation_w")),
            Axis("in_row_stride", windows=("out_h", "stride_h", "kernel_h", "dilation_h")),
        ),
    )


def _strided(side: str) -> Layout:
    axes = (Axis(f"{side}_stride_{d}", (f"size_{d}",)) for d in reversed(range(4)))
    return Layout(("element_bytes",), tuple(axes), size=1, in_any_order=True)


def _part(*sums: str) -> tuple[Word, ...]:
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


def _channel_tables(channels: str) -> tuple[Word, ...]:
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


_REQUANTIZE = (
    *_scale("bias", "bias to accumulator"),
    *_scale("out", "accumulator to result"),
    _RESULT_SCALE,
    signed("out_offset", "zero point of the result"),
    Word("activation", "applied before the clip", choices=("none", "leaky")),
    *_scale("leaky", "factor of a result below its zero point, if leaky"),
    *_CLIP,
    *_PLACE,
)


_PADS = ("pad_x_before", "pad_x_after", "pad_y_before", "pad_y_after")


def _box(place: str, *pads: str) -> Layout:
    """One side of a copy; the runs and rows of padding count there, too."""
    columns = Axis(f"{place}_stride_x", ("count_x", *(p for p in pads if p.startswith("pad_x"))))
    rows = Axis(f"{place}_stride_y", ("count_y", *(p for p in pads if p.startswith("pad_y"))))
    return Layout(("run_bytes",), (columns, rows), size=1)


def _transfer(dram: Word, spm: Word, in_scratchpad: Alignment) -> tuple[Word, ...]:
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


DESCRIPTORS: dict[str, Descriptor] = {
    d.name: d
    for d in (
        Descriptor(
            "load",
            (
                *_transfer(
                    reads("dram", "DRAM side", _box("dram"), Alignment.NONE),
                    writes("spm", "scratchpad side", _box("spm", *_PADS), may_fold=True),
                    Alignment.ELEMENT,
                ),
                *between(
                    0,
                    MAX_COUNT,
                    *zip(
                        _PADS,
                        (
                            "runs of padding before each row",
                            "runs of padding after each row",
                            "rows of padding before the box",
                            "rows of padding after the box",
                        ),
                        strict=True,
                    ),
                ),
                _element("what padding is made of"),
                value("fill", "value that padding is filled with"),
            ),
            "The scratchpad address is that of the first padding byte.",
        ),
        Descriptor(
            "store",
            _transfer(
                writes("dram", "DRAM side", _box("dram"), Alignment.NONE, may_fold=True),
                reads("spm", "scratchpad side", _box("spm"), Alignment.NONE),
                Alignment.NONE,
            ),
            "The reverse of a load, without padding.",
        ),
        Descriptor(
            "conv",
            (
                LAYER,
                _element(),
                _PROFILE,
                reads(
                    "input",
                    "[rows][columns][groups*in_channels], padding included",
                    _windows("groups", "in_channels"),
                ),
                reads(
                    "weights",
                    "[out/16][ky][(kx*in)/4][16][4], for Int16 [out/16][ky][(kx*in)/2][16][2]; "
                    "bytes beyond the edges are reserved",
                    Layout(("out_channels", *_TAPS, "in_channels"), is_blocked=True),
                ),
                *_channel_tables("out_channels"),
                writes("output", "[out_h][out_w][out_channels]", _image("out_channels")),
                *sizes(
                    ("groups", "independent groups of channels"),
                    ("in_channels", "input channels of one group"),
                    ("out_channels", "output channels of all groups, a multiple of them"),
                ),
                *_WINDOW,
                *_DILATION,
                *_OUT_SHAPE,
                *_IMAGE_STRIDES,
                *_part(*_PIXELS, "out_channels"),
                value("weight_offset", "zero point of the weights"),
                *_REQUANTIZE,
            ),
            "A fully connected layer is a convolution of one row with a 1x1 window.",
            Work(
                Pace.PRODUCT,
                rows=(*_PIXELS, "kernel_h"),
                depth=("kernel_w", "in_channels"),
                columns=("out_channels",),
                groups=("groups",),
            ),
        ),
        Descriptor(
            "dwconv",
            (
                LAYER,
                _element(),
                _PROFILE,
                reads(
                    "input",
                    "[rows][columns][channels], padding included",
                    _windows("channels_count"),
                ),
                reads("weights", "[ky][kx][channels]", Layout((*_TAPS, "channels_count"))),
                *_channel_tables("channels_count"),
                writes("output", "[out_h][out_w][channels]", _image("channels_count")),
                *sizes(("channels_count", "channels of input, weights and result")),
                *_WINDOW,
                *_DILATION,
                *_OUT_SHAPE,
                *_IMAGE_STRIDES,
                value("weight_offset", "zero point of the weights"),
                *_REQUANTIZE,
            ),
            "Each channel is convolved with its own window.",
            Work(Pace.DEPTHWISE, rows=(*_PIXELS, *_TAPS), columns=("channels_count",)),
        ),
        Descriptor(
            "gemm",
            (
                LAYER,
                _element("what both sides and the result are"),
                _PROFILE,
                reads("lhs", "[rows][inner]", _matrix("rows", "lhs_stride", "inner")),
                reads("rhs", "[inner][columns]", _matrix("inner", "rhs_stride", "columns")),
                writes("output", "[rows][columns]", _matrix("rows", "out_stride", "columns")),
                *counts(
                    ("rows", "rows of lhs and result"),
                    ("inner", "columns of lhs, rows of rhs"),
                    ("columns", "columns of rhs and result"),
                ),
                *strides(
                    ("lhs_stride", "bytes from row to row of lhs"),
                    ("rhs_stride", "bytes from row to row of rhs"),
                    ("out_stride", "bytes from row to row of the result"),
                ),
                *_part("rows", "columns"),
                value("lhs_offset", "zero point of lhs"),
                value("rhs_offset", "zero point of rhs"),
                *_scale("out", "accumulator to result"),
                _RESULT_SCALE,
                signed("out_offset", "zero point of the result"),
                *_CLIP,
                Word("event_origin", "index of the first result in the layer's output, row-major"),
                Word("event_stride_y", "step of that index from row to row"),
            ),
            "result = scale(sum of (lhs - offset) * (rhs - offset)) + out_offset, clipped.",
            Work(Pace.PRODUCT, rows=("rows",), depth=("inner",), columns=("columns",)),
        ),
        Descriptor(
            "maxpool",
            (
                LAYER,
                _element("what input and result are"),
                reads(
                    "input",
                    "[in_h][in_w][channels], without padding",
                    _image("channels", "in"),
                ),
                writes("output", "[out_h][out_w][channels]", _image("channels")),
                *_EXISTING,
                *_WINDOW,
                *_PAD,
                *_OUT_SHAPE,
                *_IMAGE_STRIDES,
                value("empty_value", "result of a window that lies in the padding alone"),
            ),
            "Padding takes no part.",
            Work(Pace.LANES, rows=(*_PIXELS, *_TAPS), columns=("channels",)),
        ),
        Descriptor(
            "avgpool",
            (
                LAYER,
                _element("what input and result are"),
                reads(
                    "input",
                    "[in_h][in_w][channels], without padding",
                    _image("channels", "in"),
                ),
                writes("output", "[out_h][out_w][channels]", _image("channels")),
                *_EXISTING,
                *_WINDOW,
                *_PAD,
                *_OUT_SHAPE,
                *_IMAGE_STRIDES,
                _PROFILE,
                value("in_offset", "zero point of the input"),
                Word(
                    "divide", "what the sum is divided by", choices=("nothing", "by_valid_taps")
                ),
                *_scale("out", "sum to result"),
                _RESULT_SCALE,
                signed("out_offset", "zero point of the result"),
                *_CLIP,
                *_PLACE,
            ),
            "Sum of (x - in_offset) over the taps that exist, scaled; then divided, or not.",
            Work(Pace.LANES, rows=(*_PIXELS, *_TAPS), columns=("channels",)),
        ),
        Descriptor(
            "eltwise",
            (
                LAYER,
                _element("what lhs and result are"),
                _PROFILE,
                Word("operation", "what is done", choices=OPERATIONS),
                reads(
                    "lhs",
                    "[rows][columns]",
                    _matrix("rows", "lhs_stride", "columns"),
                    in_place=True,
                ),
                reads(
                    "rhs",
                    "[rows][columns]",
                    _matrix("rows", "rhs_stride", "columns", Size.RIGHT_SIDE),
                    Alignment.RIGHT_SIDE,
                    in_place=True,
                ),
                writes("output", "[rows][columns]", _matrix("rows", "out_stride", "columns")),
                Word("rhs_kind", "what rhs is", choices=("element", "int32")),
                *counts(("rows", "rows"), ("columns", "elements of a row")),
                *strides(
                    ("lhs_stride", "bytes from row to row of lhs"),
                    (
                        "rhs_stride",
                        "bytes from row to row of rhs, of int32 a multiple of 4; 0 repeats one row",
                    ),
                    ("out_stride", "bytes from row to row of the result"),
                ),
                value("lhs_offset", "zero point of lhs"),
                signed("rhs_offset", "zero point of rhs"),
                *_scale("lhs", "lhs to result (not for mul)"),
                *_scale("rhs", "rhs to result (not for mul)"),
                *_scale("out", "product to result; a sum's, where the profile rescales it"),
                _RESULT_SCALE,
                signed("out_offset", "zero point of the result"),
                *_CLIP,
                Word("event_origin", "index of the first result in the layer's output, row-major"),
                Word("event_stride_y", "step of that index from row to row"),
            ),
            "Each side is brought to the result's scale and rounded, then the operation is done.",
            Work(Pace.LANES, rows=("rows",), columns=("columns",)),
        ),
        Descriptor(
            "rescale",
            (
                LAYER,
                _element("what input and result are"),
                _PROFILE,
                reads("input", "[count]", _FLAT, in_place=True),
                writes("output", "[count]", _FLAT),
                *counts(("count", "elements")),
                value("in_low", "the input is clamped to at least this"),
                value("in_high", "the input is clamped to at most this, not below the former"),
                value("in_offset", "zero point of the input"),
                *_scale("out", "input to result"),
                Word("activation", "which scale holds", choices=("none", "leaky")),
                *_scale("leaky", "input below its zero point to result, if leaky"),
                _RESULT_SCALE,
                signed("out_offset", "zero point of the result"),
                *_CLIP,
                Word("event_origin", "index of the first result in the layer's output, row-major"),
            ),
            "relu, clip, leaky relu, max with a constant and plain rescaling.",
            Work(Pace.LANES, columns=("count",)),
        ),
        Descriptor(
            "lut",
            (
                LAYER,
                reads("input", "int8 [count]", _BYTES, Alignment.NONE, in_place=True),
                writes("output", "int8 [count]", _BYTES, Alignment.NONE),
                reads(
                    "table",
                    "int8 [256], the entry of -128 first",
                    Layout((), size=256),
                    Alignment.NONE,
                ),
                *counts(("count", "elements")),
            ),
            "result = table[x + 128].",
            Work(Pace.LANES, columns=("count",)),
        ),
        Descriptor(
            "fill",
            (
                LAYER,
                _element("what the result is"),
                writes("output", "[count]", _FLAT),
                *counts(("count", "elements")),
                value("value", "the value"),
            ),
            "Every element gets the value.",
            Work(Pace.LANES, columns=("count",)),
        ),
        Descriptor(
            "transpose",
            (
                LAYER,
                reads("input", "elements", _strided("in"), Alignment.NONE),
                writes("output", "elements", _strided("out"), Alignment.NONE, may_fold=True),
                Word("element_bytes", "bytes of an element", values=(1, 2, 4, 8)),
                *_each_dimension("size", "elements", 1),
                *_each_dimension("in_stride", "bytes from one input element to the next", 0),
                *_each_dimension("out_stride", "bytes from one result element to the next", 0),
            ),
            "Any order of up to four dimensions; strides say it all.",
            Work(Pace.ELEMENT, rows=tuple(f"size_{d}" for d in range(4))),
        ),
    )
}  # fmt: skip

check_total(
    f"{__name__}.PROFILES_OF",
    PROFILES_OF,
    (n for n, d in DESCRIPTORS.items() if _PROFILE in d.words),
)

DESCRIPTOR_ALIGNMENT = 4
"""Bytes; an address that is not a multiple of it is a descriptor fault."""
