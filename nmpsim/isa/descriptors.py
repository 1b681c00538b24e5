"""Every descriptor: what a tensor instruction points to, word by word.

A descriptor is a record of 32-bit little-endian words. Part of the one table of the instruction
set; :mod:`nmpsim.isa.table` has the instructions and passes these names on.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from nmpsim.isa.total import check_total


@attrs.frozen
class Word:
    """One 32-bit word of a descriptor; ``choices`` names the values of an enumeration."""

    name: str
    summary: str
    signed: bool = False
    address: bool = False
    choices: tuple[str, ...] = ()


def _words(*specs: tuple[str, str]) -> tuple[Word, ...]:
    return tuple(Word(name, summary) for name, summary in specs)


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


def _address(name: str, summary: str) -> Word:
    return Word(name, summary, address=True)


def _signed(name: str, summary: str) -> Word:
    return Word(name, summary, signed=True)


def _each_dimension(name: str, summary: str) -> tuple[Word, ...]:
    return _words(*((f"{name}_{d}", f"{summary} along dimension {d}") for d in range(4)))


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
    _signed("clip_low", "lowest result"),
    _signed("clip_high", "highest result"),
    Word("clip_wanted", "bit 0: the lower clip is an activation, bit 1: the upper one is"),
)
_PLACE = (
    Word("event_origin", "index of the first result in the layer's output, row-major"),
    Word("event_stride_y", "step of that index from row to row"),
    Word("event_stride_x", "step of that index from pixel to pixel"),
)
_WINDOW = _words(
    ("kernel_h", "rows of the window"),
    ("kernel_w", "columns of the window"),
    ("stride_h", "rows from window to window"),
    ("stride_w", "columns from window to window"),
)
_EXISTING = _words(
    ("channels", "channels"),
    ("in_h", "rows that exist"),
    ("in_w", "columns that exist"),
)
_PAD = (
    _signed("pad_top", "rows of the first window above the first existing row"),
    _signed("pad_left", "columns of the first window left of the first existing one"),
)
_DILATION = _words(
    ("dilation_h", "rows from tap to tap"),
    ("dilation_w", "columns from tap to tap"),
)
_OUT_SHAPE = _words(("out_h", "rows of the result"), ("out_w", "columns of the result"))
_IMAGE_STRIDES = _words(
    ("in_row_stride", "bytes from row to row of the input"),
    ("in_pixel_stride", "bytes from pixel to pixel of the input"),
    ("out_row_stride", "bytes from row to row of the result"),
    ("out_pixel_stride", "bytes from pixel to pixel of the result"),
)
_PARTIAL = (
    Word(
        "part",
        "place in a sum over several instructions",
        choices=("only", "first", "middle", "last"),
    ),
    _address(
        "partial",
        "running sums, int32 (int64 for Int16) [out_h][out_w][out_channels], unless part is only",
    ),
)  # fmt: skip
_CHANNEL_TABLES = (
    _address("channels", "a channel record for each output channel"),
    _address(
        "scales", "a scale record for each output channel, or 0: the words below hold for all"
    ),
)
_REQUANTIZE = (
    *_scale("bias", "bias to accumulator"),
    *_scale("out", "accumulator to result"),
    _RESULT_SCALE,
    _signed("out_offset", "zero point of the result"),
    Word("activation", "applied before the clip", choices=("none", "leaky")),
    *_scale("leaky", "factor of a result below its zero point, if leaky"),
    *_CLIP,
    *_PLACE,
)
_BOX = _words(
    ("run_bytes", "bytes of one run (contiguous on both sides)"),
    ("count_x", "runs in a row"),
    ("count_y", "rows"),
    ("dram_stride_x", "bytes from run to run in DRAM"),
    ("dram_stride_y", "bytes from row to row in DRAM"),
    ("spm_stride_x", "bytes from run to run in the scratchpad"),
    ("spm_stride_y", "bytes from row to row in the scratchpad"),
)
_DMA = (LAYER, _address("dram", "DRAM side"), _address("spm", "scratchpad side"), *_BOX)


@attrs.frozen
class Descriptor:
    """A record in memory that a tensor instruction points to: 32-bit words in this order."""

    name: str
    words: tuple[Word, ...]
    summary: str

    @property
    def nbytes(self) -> int:
        """Bytes of the record."""
        return 4 * len(self.words)

    def __iter__(self) -> Iterator[Word]:
        return iter(self.words)


CHANNEL_RECORD = Descriptor(
    "channel record",
    (
        Word("bias_low", "bias minus its zero point, 64 bits (fbgemm, onednn: a float64)"),
        _signed("bias_high", "its upper half"),
        Word("zero_term_low", "K*Ow*Ox - Ox*sum(w): what the input's zero point adds, 64 bits"),
        _signed("zero_term_high", "its upper half"),
    ),
    "What a convolution needs for each output channel; aligned to 8 bytes.",
)
SCALE_RECORD = Descriptor(
    "scale record",
    (_signed("weight_offset", "zero point of the weights"), *_scale("bias", "bias to accumulator"),
     *_scale("out", "accumulator to result")),
    "Scales of one output channel, where each channel has its own.",
)  # fmt: skip

DESCRIPTORS: dict[str, Descriptor] = {
    d.name: d
    for d in (
        Descriptor(
            "load",
            (
                *_DMA,
                *_words(
                    ("pad_x_before", "runs of padding before each row"),
                    ("pad_x_after", "runs of padding after each row"),
                    ("pad_y_before", "rows of padding before the box"),
                    ("pad_y_after", "rows of padding after the box"),
                ),
                _element("what padding is made of"),
                _signed("fill", "value that padding is filled with"),
            ),
            "The scratchpad address is that of the first padding byte.",
        ),
        Descriptor("store", _DMA, "The reverse of a load, without padding."),
        Descriptor(
            "conv",
            (
                LAYER,
                _element(),
                _PROFILE,
                _address("input", "[rows][columns][groups*in_channels], padding included"),
                _address(
                    "weights",
                    "[out/16][ky][(kx*in)/4][16][4], for Int16 [out/16][ky][(kx*in)/2][16][2]; "
                    "bytes beyond the edges are reserved",
                ),
                *_CHANNEL_TABLES,
                _address("output", "[out_h][out_w][out_channels]"),
                *_words(
                    ("groups", "independent groups of channels"),
                    ("in_channels", "input channels of one group"),
                    ("out_channels", "output channels of all groups"),
                ),
                *_WINDOW,
                *_DILATION,
                *_OUT_SHAPE,
                *_IMAGE_STRIDES,
                *_PARTIAL,
                _signed("weight_offset", "zero point of the weights"),
                *_REQUANTIZE,
            ),
            "A fully connected layer is a convolution of one row with a 1x1 window.",
        ),
        Descriptor(
            "dwconv",
            (
                LAYER,
                _element(),
                _PROFILE,
                _address("input", "[rows][columns][channels], padding included"),
                _address("weights", "[ky][kx][channels]"),
                *_CHANNEL_TABLES,
                _address("output", "[out_h][out_w][channels]"),
                Word("channels_count", "channels of input, weights and result"),
                *_WINDOW,
                *_DILATION,
                *_OUT_SHAPE,
                *_IMAGE_STRIDES,
                _signed("weight_offset", "zero point of the weights"),
                *_REQUANTIZE,
            ),
            "Each channel is convolved with its own window.",
        ),
        Descriptor(
            "gemm",
            (
                LAYER,
                _element("what both sides and the result are"),
                _PROFILE,
                _address("lhs", "[rows][inner]"),
                _address("rhs", "[inner][columns]"),
                _address("output", "[rows][columns]"),
                *_words(
                    ("rows", "rows of lhs and result"),
                    ("inner", "columns of lhs, rows of rhs"),
                    ("columns", "columns of rhs and result"),
                    ("lhs_stride", "bytes from row to row of lhs"),
                    ("rhs_stride", "bytes from row to row of rhs"),
                    ("out_stride", "bytes from row to row of the result"),
                ),
                *_PARTIAL,
                _signed("lhs_offset", "zero point of lhs"),
                _signed("rhs_offset", "zero point of rhs"),
                *_scale("out", "accumulator to result"),
                _RESULT_SCALE,
                _signed("out_offset", "zero point of the result"),
                *_CLIP,
                Word("event_origin", "index of the first result in the layer's output, row-major"),
                Word("event_stride_y", "step of that index from row to row"),
            ),
            "result = scale(sum of (lhs - offset) * (rhs - offset)) + out_offset, clipped.",
        ),
        Descriptor(
            "maxpool",
            (
                LAYER,
                _element("what input and result are"),
                _address("input", "[in_h][in_w][channels], without padding"),
                _address("output", "[out_h][out_w][channels]"),
                *_EXISTING,
                *_WINDOW,
                *_PAD,
                *_OUT_SHAPE,
                *_IMAGE_STRIDES,
                _signed("empty_value", "result of a window that lies in the padding alone"),
            ),
            "Padding takes no part.",
        ),
        Descriptor(
            "avgpool",
            (
                LAYER,
                _element("what input and result are"),
                _address("input", "[in_h][in_w][channels], without padding"),
                _address("output", "[out_h][out_w][channels]"),
                *_EXISTING,
                *_WINDOW,
                *_PAD,
                *_OUT_SHAPE,
                *_IMAGE_STRIDES,
                _PROFILE,
                _signed("in_offset", "zero point of the input"),
                Word(
                    "divide", "what the sum is divided by", choices=("nothing", "by_valid_taps")
                ),
                *_scale("out", "sum to result"),
                _RESULT_SCALE,
                _signed("out_offset", "zero point of the result"),
                *_CLIP,
                *_PLACE,
            ),
            "Sum of (x - in_offset) over the taps that exist, scaled; then divided, or not.",
        ),
        Descriptor(
            "eltwise",
            (
                LAYER,
                _element("what lhs and result are"),
                _PROFILE,
                Word("operation", "what is done", choices=OPERATIONS),
                _address("lhs", "[rows][columns]"),
                _address("rhs", "[rows][columns]"),
                _address("output", "[rows][columns]"),
                Word("rhs_kind", "what rhs is", choices=("element", "int32")),
                *_words(
                    ("rows", "rows"),
                    ("columns", "elements of a row"),
                    ("lhs_stride", "bytes from row to row of lhs"),
                    ("rhs_stride", "bytes from row to row of rhs; 0 repeats one row"),
                    ("out_stride", "bytes from row to row of the result"),
                ),
                _signed("lhs_offset", "zero point of lhs"),
                _signed("rhs_offset", "zero point of rhs"),
                *_scale("lhs", "lhs to result (not for mul)"),
                *_scale("rhs", "rhs to result (not for mul)"),
                *_scale("out", "product to result; a sum's, where the profile rescales it"),
                _RESULT_SCALE,
                _signed("out_offset", "zero point of the result"),
                *_CLIP,
                Word("event_origin", "index of the first result in the layer's output, row-major"),
                Word("event_stride_y", "step of that index from row to row"),
            ),
            "Each side is brought to the result's scale and rounded, then the operation is done.",
        ),
        Descriptor(
            "rescale",
            (
                LAYER,
                _element("what input and result are"),
                _PROFILE,
                _address("input", "[count]"),
                _address("output", "[count]"),
                Word("count", "elements"),
                _signed("in_low", "the input is clamped to at least this"),
                _signed("in_high", "the input is clamped to at most this"),
                _signed("in_offset", "zero point of the input"),
                *_scale("out", "input to result"),
                Word("activation", "which scale holds", choices=("none", "leaky")),
                *_scale("leaky", "input below its zero point to result, if leaky"),
                _RESULT_SCALE,
                _signed("out_offset", "zero point of the result"),
                *_CLIP,
                Word("event_origin", "index of the first result in the layer's output, row-major"),
            ),
            "relu, clip, leaky relu, max with a constant and plain rescaling.",
        ),
        Descriptor(
            "lut",
            (
                LAYER,
                _address("input", "int8 [count]"),
                _address("output", "int8 [count]"),
                _address("table", "int8 [256], the entry of -128 first"),
                Word("count", "elements"),
            ),
            "result = table[x + 128].",
        ),
        Descriptor(
            "fill",
            (
                LAYER,
                _element("what the result is"),
                _address("output", "[count]"),
                Word("count", "elements"),
                _signed("value", "the value"),
            ),
            "Every element gets the value.",
        ),
        Descriptor(
            "transpose",
            (
                LAYER,
                _address("input", "elements"),
                _address("output", "elements"),
                Word("element_bytes", "1, 2, 4 or 8"),
                *_each_dimension("size", "elements"),
                *_each_dimension("in_stride", "bytes from one input element to the next"),
                *_each_dimension("out_stride", "bytes from one result element to the next"),
            ),
            "Any order of up to four dimensions; strides say it all.",
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
