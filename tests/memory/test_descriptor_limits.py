"""Each word of each descriptor at its limits, one below and one above (docs/isa.md, "Limits")."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from memory_descriptors import (
    BASES,
    INT8,
    INT16,
    ONE,
    OPERANDS,
    PROFILES,
    SPM,
    fault,
    make_words,
)
from toy_rows import add_descriptor, add_word

from nmpsim.isa.descriptors import DESCRIPTORS

COUNT = 1 << 26
"""Most that a count or stride in a scratchpad can be: the largest scratchpad's bytes."""
SIZE = 1 << 20
FAR = 1 << 31
INFINITY = 0x7F80_0000
"""Bits of a float32, the first that is not finite."""
INTEGER = ("glow_int", "nmp")
REAL = ("glow_float", "glow_float_late", "float", "fbgemm", "onednn")

Range = tuple[int, int]
FLAG: Range = (0, 1)
STRIDE: Range = (0, COUNT)
WINDOW: dict[str, Range] = dict.fromkeys(
    ("kernel_h", "kernel_w", "stride_h", "stride_w", "out_h", "out_w"), (1, SIZE)
)
IMAGE: dict[str, Range] = dict.fromkeys(
    ("in_row_stride", "in_pixel_stride", "out_row_stride", "out_pixel_stride"), STRIDE
)
BOX: dict[str, Range] = {
    **dict.fromkeys(("run_bytes", "count_x", "count_y", "spm_stride_x", "spm_stride_y"), STRIDE),
    **dict.fromkeys(("dram_stride_x", "dram_stride_y"), (0, FAR)),
}
DILATION: dict[str, Range] = dict.fromkeys(("dilation_h", "dilation_w"), (1, SIZE))
POOL: dict[str, Range] = {
    **WINDOW, **IMAGE, "element": FLAG, "channels": (1, COUNT), "in_h": STRIDE, "in_w": STRIDE,
    "pad_top": (-COUNT, COUNT), "pad_left": (-COUNT, COUNT),
}  # fmt: skip
LIMITS: dict[str, dict[str, Range]] = {
    "load": {
        **BOX, "element": FLAG, "pad_x_before": STRIDE, "pad_x_after": STRIDE,
        "pad_y_before": STRIDE, "pad_y_after": STRIDE,
    },
    "store": BOX,
    "conv": {
        **WINDOW, **IMAGE, **DILATION, "element": FLAG, "groups": (1, SIZE),
        "in_channels": (1, SIZE), "out_channels": (1, SIZE), "part": (0, 3),
    },
    "dwconv": {
        **WINDOW, **IMAGE, **DILATION, "element": FLAG, "channels_count": (1, SIZE),
    },
    "gemm": {
        "element": FLAG, "rows": (1, COUNT), "inner": (1, COUNT), "columns": (1, COUNT),
        "lhs_stride": STRIDE, "rhs_stride": STRIDE, "out_stride": STRIDE, "part": (0, 3),
    },
    "maxpool": POOL,
    "avgpool": {**POOL, "divide": FLAG},
    "eltwise": {
        "element": FLAG, "operation": (0, 4), "rhs_kind": FLAG, "rows": (1, COUNT),
        "columns": (1, COUNT), "lhs_stride": STRIDE, "rhs_stride": STRIDE, "out_stride": STRIDE,
    },
    "rescale": {
        "element": FLAG, "count": (1, COUNT), "activation": FLAG,
    },
    "lut": {"count": (1, COUNT)},
    "fill": {"element": FLAG, "count": (1, COUNT)},
    "transpose": {
        **{f"size_{d}": (1, COUNT) for d in range(4)},
        **{f"in_stride_{d}": STRIDE for d in range(4)},
        **{f"out_stride_{d}": STRIDE for d in range(4)},
    },
}  # fmt: skip
"""Descriptor -> word -> (least, most)."""

ADDRESSES = {
    "load": ("spm", "run_bytes", "spm_stride_x", "spm_stride_y"),
    "conv": ("input", "weights", "output", *IMAGE),
    "dwconv": ("input", "weights", "output", *IMAGE),
    "gemm": ("lhs", "rhs", "output", "lhs_stride", "rhs_stride", "out_stride"),
    "maxpool": ("input", "output", *IMAGE),
    "avgpool": ("input", "output", *IMAGE),
    "eltwise": ("lhs", "rhs", "output", "lhs_stride", "rhs_stride", "out_stride"),
    "rescale": ("input", "output"),
    "fill": ("output",),
}
"""What may not be odd for Int16."""

ELEMENTS = {
    "load": ("fill",),
    "conv": ("weight_offset", "clip_low", "clip_high"),
    "dwconv": ("weight_offset", "clip_low", "clip_high"),
    "gemm": ("lhs_offset", "rhs_offset", "clip_low", "clip_high"),
    "maxpool": ("empty_value",),
    "avgpool": ("in_offset", "clip_low", "clip_high"),
    "eltwise": ("lhs_offset", "clip_low", "clip_high"),
    "rescale": ("in_low", "in_high", "in_offset", "clip_low", "clip_high"),
    "fill": ("value",),
}
"""What must be a value of the element."""
ALLOWED = {
    "conv": (*INTEGER, "q31", "q31_once", *REAL),
    "dwconv": (*INTEGER, "q31", "q31_once", *REAL),
    "gemm": (*INTEGER, "q31", "q31_once", "glow_float", "glow_float_late", "float"),
    "avgpool": (*INTEGER, "q31", "glow_float", "float", "fbgemm", "onnx"),
    "eltwise": (*INTEGER, "q31", "glow_float", "float", "qnnpack", "onnx"),
    "rescale": (*INTEGER, "q31", "glow_float", "float"),
}
"""Profiles that an instruction has."""
SCALES = {
    "conv": ("bias", "out", "leaky"),
    "dwconv": ("bias", "out", "leaky"),
    "gemm": ("out",),
    "avgpool": ("out",),
    "eltwise": ("lhs", "rhs", "out"),
    "rescale": ("out", "leaky"),
}
ANY = {
    "layer", "dram", "out_offset", "rhs_offset", "event_origin", "event_stride_y", "event_stride_x",
}  # fmt: skip
"""Words without a limit, but for those that ELEMENTS names."""
BY_THEMSELVES = {
    "conv": ("result_scale", "activation"),
    "dwconv": ("result_scale", "activation"),
    "gemm": ("result_scale",),
    "avgpool": ("result_scale",),
    "eltwise": ("result_scale",),
    "rescale": ("result_scale",),
    "transpose": ("element_bytes",),
}
"""Words whose limit hangs on others and has a test of its own below."""


def without_limits() -> set[str]:
    missing = set(DESCRIPTORS) ^ set(BASES)
    for name in set(DESCRIPTORS) & set(BASES):
        words = {word.name for word in DESCRIPTORS[name]} - ANY
        for part in (LIMITS, OPERANDS, ELEMENTS, BY_THEMSELVES):
            words -= {*part.get(name, ())}
        if name in ALLOWED:
            words -= {"profile", "clip_wanted"}
        words -= {f"{s}_{w}" for s in SCALES.get(name, ()) for w in ("mul", "pre", "post")}
        missing |= {f"{name}.{word}" for word in words}
    return missing


def test_every_word_has_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_limits() == set()
    add_word(monkeypatch, "gemm")
    assert without_limits() == {"gemm.toy"}
    add_descriptor(monkeypatch)
    assert without_limits() == {"gemm.toy", "toy"}


@pytest.mark.parametrize("name", BASES)
def test_words_without_a_limit_accept_all_values(name: str) -> None:
    names = {word.name for word in DESCRIPTORS[name]} - {*ELEMENTS.get(name, ())}
    for word in ANY & names:
        for value in (-(1 << 31), -1, 0, (1 << 31) - 1):
            assert fault(name, make_words(name, {word: value})) is None, (word, value)


def limits() -> Iterator[tuple[str, str, int, int]]:
    for name, words in LIMITS.items():
        for word, (least, most) in words.items():
            yield name, word, least, most


def with_scales() -> Iterator[tuple[str, str, str]]:
    for name, scales in SCALES.items():
        for scale in scales:
            for profile in ALLOWED[name]:
                if profile != "qnnpack":  # whose words are integers
                    yield name, scale, profile


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("name", BASES)
def test_base_descriptors_are_valid(name: str, element: int) -> None:
    assert fault(name, make_words(name, {"element": element} if name in ELEMENTS else {})) is None


@pytest.mark.parametrize(("name", "word", "least", "most"), [*limits()])
def test_values_beyond_the_limits_are_wrong(name: str, word: str, least: int, most: int) -> None:
    for value in (least, most):
        channels = {"out_channels": value} if word == "groups" else {}
        assert fault(name, make_words(name, {word: value, **channels})) is None, value
    for value in (least - 1, most + 1, 0xFFFF_FFFF if least >= 0 else -(1 << 31)):
        assert fault(name, make_words(name, {word: value})) == word


@pytest.mark.parametrize("name", ADDRESSES)
def test_odd_addresses_and_strides_are_valid_for_int8_only(name: str) -> None:
    for word in ADDRESSES[name]:
        words = make_words(name)
        assert fault(name, {**words, word: words[word] + 1}) is None, word
        assert fault(name, {**words, word: words[word] + 1, "element": INT16}) == word
        assert fault(name, {**words, word: words[word] + 2, "element": INT16}) is None


@pytest.mark.parametrize("alignment", [("conv", "channels", 8), ("dwconv", "channels", 8),
                                       ("conv", "scales", 4), ("dwconv", "scales", 4)])  # fmt: skip
def test_records_are_aligned(alignment: tuple[str, str, int]) -> None:
    name, word, unit = alignment
    for past in range(17):
        words = make_words(name)
        expected = word if past % unit else None
        assert fault(name, {**words, word: words[word] + past}) == expected


@pytest.mark.parametrize("name", ["conv", "gemm"])
@pytest.mark.parametrize(("element", "unit"), [(INT8, 4), (INT16, 8)])
def test_partial_sums_are_aligned(name: str, element: int, unit: int) -> None:
    for part in (1, 2, 3):
        for past in range(17):
            words = make_words(name, {"part": part, "element": element})
            expected = "partial" if past % unit else None
            assert fault(name, {**words, "partial": words["partial"] + past}) == expected
    # Without parts nobody looks at the word.
    assert fault(name, make_words(name, {"element": element, "partial": 1})) is None


def test_the_wide_side_of_a_pair_is_aligned() -> None:
    for past in range(9):
        words = make_words("eltwise", {"rhs_kind": 1})
        expected = "rhs" if past % 4 else None
        assert fault("eltwise", {**words, "rhs": words["rhs"] + past}) == expected
        assert fault("eltwise", {**words, "rhs_stride": 4 + past}) == expected


@pytest.mark.parametrize(("element", "most"), [(INT8, 127), (INT16, 32767)])
@pytest.mark.parametrize("name", ELEMENTS)
def test_values_of_the_element_are_valid(name: str, element: int, most: int) -> None:
    ends = {"clip_low": -most - 1, "clip_high": most, "in_low": -most - 1, "in_high": most}
    words = {word: value for word, value in ends.items() if word in ELEMENTS[name]}
    words = make_words(name, {**words, "element": element})
    for word in ELEMENTS[name]:
        for value in (-most - 1, 0, most):
            assert fault(name, {**words, word: value}) is None
        for value in (-most - 2, most + 1):
            assert fault(name, {**words, word: value}) == word


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [(name, "clip_low", "clip_high") for name in SCALES] + [("rescale", "in_low", "in_high")],
)
def test_inverted_ranges_are_wrong(name: str, low: str, high: str) -> None:
    for least, most in ((5, 5), (-5, -5), (-128, 127), (4, 5)):
        assert fault(name, make_words(name, {low: least, high: most})) is None
    for least, most in ((5, 4), (-5, -6), (127, -128), (1, 0)):
        assert fault(name, make_words(name, {low: least, high: most})) == high


@pytest.mark.parametrize("name", SCALES)
def test_clip_wanted_accepts_its_flags_only(name: str) -> None:
    for sides in range(4):
        assert fault(name, make_words(name, {"clip_wanted": sides})) is None
    for sides in (4, 5, 8, 0xFFFF_FFFF):
        assert fault(name, make_words(name, {"clip_wanted": sides})) == "clip_wanted"


@pytest.mark.parametrize("name", ALLOWED)
def test_profiles_of_each_instruction_are_valid(name: str) -> None:
    for profile, number in PROFILES.items():
        expected = None if profile in ALLOWED[name] else "profile"
        assert fault(name, make_words(name, {"profile": number})) == expected, profile
    for number in (11, 30, 31, 32, 33, 64, 1 << 26, 0xFFFF_FFFF):
        assert fault(name, make_words(name, {"profile": number})) == "profile"


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize(("name", "scale", "profile"), [*with_scales()])
def test_impossible_scales_are_wrong(name: str, scale: str, profile: str, element: int) -> None:
    def named(**words: int) -> str | None:
        changes = {f"{scale}_{word}": value for word, value in words.items()}
        return fault(
            name, make_words(name, {**changes, "profile": PROFILES[profile], "element": element})
        )

    bad = f"{scale}_pre"
    if profile in (*REAL, "onnx"):
        for bits in (0, 1, ONE, INFINITY - 1):
            assert named(mul=bits) is None
        for bits in (-1, INFINITY, INFINITY + 1, 0xFFFF_FFFF):
            assert named(mul=bits) == bad
        assert named(pre=32) is None, "there are no shifts"
        if (name, profile) != ("eltwise", "float") and profile != "onnx":
            assert named(post=0xFFFF_FFFF) is None
        return
    for mul in (-(1 << 31), -1, 0, (1 << 31) - 1):
        assert named(mul=mul) is None
    # A multiplier of 16 bits shifts by 15 - pre + post, at least by one.
    reduced = (profile, element, scale) == ("q31", INT16, "out") and name in (
        "conv", "dwconv", "gemm",
    )  # fmt: skip
    for post in (-1, 0, 1, 16, 17, 31, 32, 0xFFFF_FFFF):
        for pre in (-1, 0, 14, 15, 16, 30, 31, 32, 0xFFFF_FFFF):
            good = 0 <= pre <= 31 and 0 <= post <= 31
            if reduced:
                good = good and 15 - pre + post >= 1
            assert named(pre=pre, post=post) == (None if good else bad), (pre, post)


def test_onnx_has_a_scale_and_an_addend_of_the_average() -> None:
    onnx = {"profile": PROFILES["onnx"]}
    assert fault("avgpool", make_words("avgpool", {**onnx, "result_scale": ONE})) is None
    for bits in (-1, 0, INFINITY):
        words = make_words("avgpool", {**onnx, "result_scale": bits})
        assert fault("avgpool", words) == "result_scale"
    for bits in (INFINITY, 0xFFFF_FFFF):
        words = make_words("avgpool", {**onnx, "result_scale": ONE, "out_post": bits})
        assert fault("avgpool", words) == "out_post"


@pytest.mark.parametrize("name", ["conv", "dwconv"])
def test_onednn_has_a_scale_of_the_result(name: str) -> None:
    for profile, number in PROFILES.items():
        if profile not in ALLOWED[name]:
            continue
        for bits in (1, ONE, INFINITY - 1):
            assert fault(name, make_words(name, {"profile": number, "result_scale": bits})) is None
        for bits in (-1, 0, INFINITY, 0xFFFF_FFFF):
            expected = "result_scale" if profile == "onednn" else None
            words = make_words(name, {"profile": number, "result_scale": bits})
            for layer in (0, -1):
                assert fault(name, {**words, "layer": layer}) == expected


@pytest.mark.parametrize("name", ["conv", "dwconv"])
def test_leaky_is_valid_for_integer_profiles_only(name: str) -> None:
    for profile in ALLOWED[name]:
        for activation in (0, 1, 2, 0xFFFF_FFFF):
            words = make_words(name, {"profile": PROFILES[profile], "activation": activation})
            good = activation == 0 or (activation == 1 and profile in INTEGER)
            assert fault(name, words) == (None if good else "activation"), profile


def test_result_scales_of_rescales_have_limits() -> None:
    for profile in ALLOWED["rescale"]:
        for bits in (-1, 0, 1, INFINITY - 1, INFINITY, 0xFFFF_FFFF):
            good = 0 < bits < INFINITY or profile not in ("glow_float", "float")
            words = make_words("rescale", {"profile": PROFILES[profile], "result_scale": bits})
            assert fault("rescale", words) == (None if good else "result_scale")


@pytest.mark.parametrize(("operation", "name"), [*enumerate(("add", "sub", "max", "min", "mul"))])
def test_factors_of_pairs_have_limits(operation: int, name: str) -> None:
    """docs/isa.md, "Scales of nmp.eltwise"."""
    for profile in ALLOWED["eltwise"]:
        words = make_words("eltwise", {"operation": operation, "profile": PROFILES[profile]})
        if profile == "qnnpack":
            expected = None if name in ("add", "sub") else "operation"
            assert fault("eltwise", words) == expected
            continue
        if profile == "onnx" and name not in ("add", "mul"):
            assert fault("eltwise", words) == "operation"
            continue
        assert fault("eltwise", words) is None
        divides = (profile == "glow_float" and name in ("max", "min")) or (
            profile == "float" and name != "mul"
        )
        for bits in (-1, 0, INFINITY, 0xFFFF_FFFF):
            expected = "result_scale" if divides else None
            assert fault("eltwise", {**words, "result_scale": bits}) == expected
        for bits in (1, INFINITY - 1):
            assert fault("eltwise", {**words, "result_scale": bits}) is None
        if profile in ("float", "onnx"):
            for side in ("lhs_post", "rhs_post"):
                for bits in (INFINITY, INFINITY + 1, 0xFF80_0000, 0xFFFF_FFFF):
                    expected = side if (profile, name) != ("float", "mul") else None
                    assert fault("eltwise", {**words, side: bits}) == expected
                for bits in (0, ONE, INFINITY - 1, 0x8000_0000, 0xFF7F_FFFF):
                    assert fault("eltwise", {**words, side: bits}) is None


def test_qnnpack_shifts_to_the_right() -> None:
    words = make_words("eltwise", {"profile": PROFILES["qnnpack"], "lhs_pre": 77, "out_pre": 77})
    for shift in (0, 1, 31):
        assert fault("eltwise", {**words, "out_post": shift}) is None
    for shift in (32, 33, 0xFFFF_FFFF):
        assert fault("eltwise", {**words, "out_post": shift}) == "out_post"


def test_element_bytes_of_a_copy_are_1_2_4_or_8() -> None:
    for size in range(-1, 20):
        expected = None if size in (1, 2, 4, 8) else "element_bytes"
        assert fault("transpose", make_words("transpose", {"element_bytes": size})) == expected


def test_groups_divide_the_channels() -> None:
    for groups in range(1, 9):
        for channels in range(1, 20):
            words = make_words("conv", {"groups": groups, "out_channels": channels})
            assert fault("conv", words) == ("out_channels" if channels % groups else None)


BAD_SIZE = {
    "load": "element", "conv": "kernel_h", "dwconv": "kernel_h", "gemm": "rows",
    "maxpool": "channels", "avgpool": "channels", "eltwise": "columns", "rescale": "count",
    "lut": "count", "fill": "count", "transpose": "size_0",
}  # fmt: skip


@pytest.mark.parametrize("name", SCALES)
def test_the_first_of_several_wrong_words_is_named(name: str) -> None:
    """Sizes come before addresses, addresses before scales and clips."""
    address = {"gemm": "lhs", "eltwise": "lhs"}.get(name, "input")
    words = make_words(name, {"clip_wanted": 0xFFFF_FFFF})
    assert fault(name, words) == "clip_wanted"
    words |= {"clip_low": 1, "clip_high": 0}
    assert fault(name, words) == "clip_high"
    for scale in reversed(SCALES[name]):
        words[f"{scale}_pre"] = 32
        assert fault(name, words) == f"{scale}_pre"
    words[address] = SPM - 2
    assert fault(name, words) == address
    words[BAD_SIZE[name]] = 0
    assert fault(name, words) == BAD_SIZE[name]


@pytest.mark.parametrize(("name", "value"), [("maxpool", "empty_value"), ("load", "fill")])
def test_the_first_of_two_wrong_words_is_named(name: str, value: str) -> None:
    words = make_words(name, {value: 1 << 20})
    assert fault(name, words) == value
    words[BAD_SIZE[name]] = 0xFFFF_FFFF
    assert fault(name, words) == BAD_SIZE[name]
