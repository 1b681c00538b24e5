"""Test the allowed addresses of operands at scratchpad limits, and overlaps with results.

What an operand covers is found by walking over all its elements, as docs/isa.md lays them out. The
range from its first to its last byte counts: what lies in the gaps between two rows meets it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product
from random import Random

import pytest
from memory_descriptors import INT8, INT16, OPERANDS, SPM, Words, fault, make_words

from nmpsim.isa.table import DESCRIPTORS

Range = tuple[int, int]
"""First byte, and the one behind the last, from the operand's address on."""
FAR_APART = 4096
SPM_BYTES = 16 * FAR_APART
NOTHING: Range = (0, 0)


def span_runs(starts: Iterator[int], run: int) -> Range:
    """Return the range that spans all runs of ``run`` bytes at these starts."""
    places = [(start, start + run) for start in starts if run > 0]
    return (min(p[0] for p in places), max(p[1] for p in places)) if places else NOTHING


def count_bytes(w: Words) -> int:
    return 2 if w.get("element") else 1


def image(rows: int, row_stride: int, columns: int, pixel_stride: int, run: int) -> Range:
    pixels = product(range(rows), range(columns))
    return span_runs((y * row_stride + x * pixel_stride for y, x in pixels), run)


def matrix(rows: int, stride: int, run: int) -> Range:
    return span_runs((y * stride for y in range(rows)), run)


def read_by_windows(w: Words, run: int) -> Range:
    """Return the range that spans all taps of all windows."""
    taps = product(range(w["out_h"]), range(w["kernel_h"]), range(w["out_w"]), range(w["kernel_w"]))
    return span_runs(
        (
            (oy * w["stride_h"] + ky * w["dilation_h"]) * w["in_row_stride"]
            + (ox * w["stride_w"] + kx * w["dilation_w"]) * w["in_pixel_stride"]
            for oy, ky, ox, kx in taps
        ),
        run,
    )


def get_written_range(w: Words, channels: int) -> Range:
    strides = w["out_row_stride"], w["out_pixel_stride"]
    return image(w["out_h"], strides[0], w["out_w"], strides[1], channels * count_bytes(w))


def blocked_weights(w: Words) -> int:
    """Count the bytes of weights in blocks of 16 outputs by 4 inputs (2 for Int16)."""
    inputs = 2 if count_bytes(w) == 2 else 4
    nbytes = 0
    for _ in range(0, w["out_channels"], 16):
        for _ in range(w["kernel_h"]):
            for _ in range(0, w["kernel_w"] * w["in_channels"], inputs):
                nbytes += 16 * inputs * count_bytes(w)
    return nbytes


def sums(w: Words, count: int) -> Range:
    """Return the range of partial sums, which is empty unless sums are computed in parts."""
    return (0, count * 4 * count_bytes(w)) if w.get("part") else NOTHING


def get_transposed_range(w: Words, strides: str) -> Range:
    places = product(*(range(w[f"size_{d}"]) for d in range(4)))
    return span_runs(
        (sum(at * w[f"{strides}_stride_{d}"] for d, at in enumerate(place)) for place in places),
        w["element_bytes"],
    )


def ranges(name: str, w: Words) -> dict[str, Range]:
    """Return the range that each operand covers."""
    size = count_bytes(w)
    if name in ("load", "store"):
        columns = w["count_x"] + w.get("pad_x_before", 0) + w.get("pad_x_after", 0)
        rows = w["count_y"] + w.get("pad_y_before", 0) + w.get("pad_y_after", 0)
        return {"spm": image(rows, w["spm_stride_y"], columns, w["spm_stride_x"], w["run_bytes"])}
    if name == "conv":
        channels = w["out_channels"]
        return {
            "input": read_by_windows(w, w["groups"] * w["in_channels"] * size),
            "weights": (0, blocked_weights(w)),
            "channels": (0, 16 * channels),
            "scales": (0, 28 * channels),
            "output": get_written_range(w, channels),
            "partial": sums(w, w["out_h"] * w["out_w"] * channels),
        }
    if name == "dwconv":
        channels = w["channels_count"]
        return {
            "input": read_by_windows(w, channels * size),
            "weights": (0, w["kernel_h"] * w["kernel_w"] * channels * size),
            "channels": (0, 16 * channels),
            "scales": (0, 28 * channels),
            "output": get_written_range(w, channels),
        }
    if name == "gemm":
        return {
            "lhs": matrix(w["rows"], w["lhs_stride"], w["inner"] * size),
            "rhs": matrix(w["inner"], w["rhs_stride"], w["columns"] * size),
            "output": matrix(w["rows"], w["out_stride"], w["columns"] * size),
            "partial": sums(w, w["rows"] * w["columns"]),
        }
    if name in ("maxpool", "avgpool"):
        strides, run = (w["in_row_stride"], w["in_pixel_stride"]), w["channels"] * size
        return {
            "input": image(w["in_h"], strides[0], w["in_w"], strides[1], run),
            "output": get_written_range(w, w["channels"]),
        }
    if name == "eltwise":
        rhs_size = 4 if w.get("rhs_kind") else size
        return {
            "lhs": matrix(w["rows"], w["lhs_stride"], w["columns"] * size),
            "rhs": matrix(w["rows"], w["rhs_stride"], w["columns"] * rhs_size),
            "output": matrix(w["rows"], w["out_stride"], w["columns"] * size),
        }
    if name == "transpose":
        return {"input": get_transposed_range(w, "in"), "output": get_transposed_range(w, "out")}
    every = dict.fromkeys(OPERANDS[name], (0, w["count"] * size))
    return every | ({"table": (0, 256)} if name == "lut" else {})


def draw_words(name: str, random: Random) -> Words:
    """Draw words of a small shape with gaps between rows and pixels."""

    def some(low: int, high: int) -> int:
        return random.randint(low, high)

    element = some(INT8, INT16)
    size = element + 1
    w: Words = {"element": element}
    if name in ("load", "store"):
        pads = ("pad_x_before", "pad_x_after", "pad_y_before", "pad_y_after")
        w = {
            **({"element": element, **{pad: some(0, 2) for pad in pads}} if name == "load" else {}),
            "run_bytes": 2 * some(0, 5), "count_x": some(0, 4), "count_y": some(0, 3),
            "spm_stride_x": 2 * some(0, 9), "spm_stride_y": 2 * some(0, 40),
        }  # fmt: skip
    elif name in ("conv", "dwconv", "maxpool", "avgpool"):
        for word in ("kernel_h", "kernel_w", "stride_h", "stride_w", "out_h", "out_w"):
            w[word] = some(1, 3)
        channels, depth = some(1, 20), 1
        if name == "conv":
            groups, depth = some(1, 3), some(1, 5)
            channels *= groups
            w |= {"groups": groups, "in_channels": depth, "out_channels": channels,
                  "part": some(0, 3)}  # fmt: skip
        elif name == "dwconv":
            w["channels_count"] = channels
        else:
            w |= {"channels": channels, "in_h": some(0, 4), "in_w": some(0, 4)}
        if name in ("conv", "dwconv"):
            w |= {"dilation_h": some(1, 3), "dilation_w": some(1, 3)}
        w["in_pixel_stride"] = size * some(0, 25)
        w["in_row_stride"] = size * some(0, 90)
        w["out_pixel_stride"] = size * (channels + some(0, 2))
        w["out_row_stride"] = w["out_w"] * w["out_pixel_stride"] + size * some(0, 3)
    elif name == "gemm":
        columns = some(1, 9)
        w |= {"rows": some(1, 5), "inner": some(1, 9), "columns": columns, "part": some(0, 3)}
        w |= {"lhs_stride": size * some(0, 12), "rhs_stride": size * some(0, 12)}
        w["out_stride"] = size * (columns + some(0, 3))
    elif name == "eltwise":
        columns = some(1, 9)
        w |= {"rows": some(1, 5), "columns": columns, "rhs_kind": some(0, 1)}
        w |= {"lhs_stride": size * some(0, 12), "rhs_stride": 4 * some(0, 12)}
        w["out_stride"] = size * (columns + some(0, 3))
    elif name == "transpose":
        w = {"element_bytes": random.choice([1, 2, 4, 8])}
        for d in range(4):
            w[f"size_{d}"] = some(1, 3)
            w[f"in_stride_{d}"], w[f"out_stride_{d}"] = some(0, 40), some(0, 40)
    else:
        w = {"count": some(1, 60), **(w if name != "lut" else {})}
    return w


def place_operands(name: str, w: Mapping[str, int]) -> Words:
    """Return a descriptor whose operands are far apart in a small scratchpad."""
    places = {operand: SPM + FAR_APART * at for at, operand in enumerate(OPERANDS[name], start=1)}
    return {**make_words(name), **w, **places}


CASES = [(name, seed) for name in OPERANDS for seed in range(12)]
RESULTS = {"gemm": ("output", "partial"), "conv": ("output", "partial"), "load": (), "store": (),
           "fill": ()}  # fmt: skip
"""What an instruction writes; the others have ``output`` alone."""


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_operands_must_lie_in_the_scratchpad(name: str, seed: int) -> None:
    w = place_operands(name, draw_words(name, Random(seed)))
    assert fault(name, w, SPM_BYTES) is None
    for operand, (_, end) in ranges(name, w).items():
        if operand == "partial" and not w["part"]:
            continue
        # The first byte: one before it is out. Records and sums are aligned, so go in eights.
        assert fault(name, {**w, operand: SPM}, SPM_BYTES) is None
        assert fault(name, {**w, operand: SPM - 8}, SPM_BYTES) == operand
        assert fault(name, {**w, operand: 8}, SPM_BYTES) == operand or operand == "scales"
        # The last one: the scratchpad ends with the operand, or one byte earlier.
        last = {**w, operand: SPM + 8 * FAR_APART}
        assert fault(name, last, 8 * FAR_APART + end) is None
        assert fault(name, last, 8 * FAR_APART + end - 1) == operand
        assert fault(name, {**w, operand: 0xFFFF_FFF8}, SPM_BYTES) == operand


@pytest.mark.parametrize("name", ["conv", "dwconv"])
def test_a_missing_table_of_scales_is_valid(name: str) -> None:
    w = place_operands(name, draw_words(name, Random(1)))
    assert fault(name, {**w, "scales": 0}, SPM_BYTES) is None
    # Where there is no table nothing meets it.
    assert fault(name, {**w, "scales": 0, "output": w["scales"]}, SPM_BYTES) is None


def get_edge_distances(fixed: Range, moved: Range, unit: int) -> set[int]:
    """Return distances at which two ranges start or stop overlapping, and their neighbors."""
    edges = (fixed[0] - moved[1], fixed[0] - moved[0], fixed[1] - moved[1], fixed[1] - moved[0])
    return {(edge // unit + step) * unit for edge in edges for step in (-1, 0, 1, 2)}


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_results_must_not_overlap_operands(name: str, seed: int) -> None:
    w = place_operands(name, draw_words(name, Random(seed)))
    lie = ranges(name, w)
    met = 0
    for result in RESULTS.get(name, ("output",)):
        if lie[result] == NOTHING:
            continue
        for operand in OPERANDS[name]:
            if operand == result or (operand == "partial" and result == "output"):
                continue
            # Operand and result are both moved: only one of them may need an alignment.
            unit = 8 if result == "partial" else count_bytes(w)
            for distance in get_edge_distances(lie[operand], lie[result], unit):
                first, last = distance + lie[result][0], distance + lie[result][1]
                meets = first < lie[operand][1] and lie[operand][0] < last
                meets = meets and lie[operand] != NOTHING
                met += meets
                moved = {**w, result: w[operand] + distance}
                expected = result if meets and not is_in_place(name, moved, operand) else None
                assert fault(name, moved, SPM_BYTES) == expected, (operand, distance)
    assert met or RESULTS.get(name) == () or name in ("maxpool", "avgpool")


def is_in_place(name: str, w: Words, operand: str) -> bool:
    """Return whether an instruction may write exactly where it reads this operand."""
    if w["output"] != w[operand]:
        return False
    if name == "eltwise":
        wide = operand == "rhs" and w["rhs_kind"] == 1
        return w["out_stride"] == w[f"{operand}_stride"] and not wide
    return name in ("rescale", "lut") and operand == "input"


@pytest.mark.parametrize("kind", ["element", "int32"])
@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("side", ["lhs", "rhs"])
def test_pairs_may_work_in_place(side: str, element: int, kind: str) -> None:
    shape = {"rows": 3, "columns": 4, "lhs_stride": 16, "rhs_stride": 16, "out_stride": 16}
    w = place_operands("eltwise", {**shape, "element": element, "rhs_kind": int(kind == "int32")})
    w["output"] = w[side]
    expected = "output" if side == "rhs" and kind == "int32" else None
    assert fault("eltwise", w, SPM_BYTES) == expected
    for stride in (12, 14, 18, 20):
        assert fault("eltwise", {**w, "out_stride": stride}, SPM_BYTES) == "output"
        other = {**w, f"{side}_stride": 2 * stride}
        assert fault("eltwise", other, SPM_BYTES) == "output"


def begins_before_its_predecessor_ends(starts: Iterator[int], run: int) -> bool:
    end = None
    for start in starts:
        if end is not None and start < end:
            return True
        end = start + run
    return False


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("name", ["conv", "dwconv", "maxpool", "avgpool"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (2, 3)])
def test_images_must_not_overlap_themselves(
    name: str, shape: tuple[int, int], element: int
) -> None:
    rows, columns = shape
    size, channels = element + 1, 3
    word = {"conv": "out_channels", "dwconv": "channels_count"}.get(name, "channels")
    for pixel_stride, row_stride in product(range(0, 6 * size, size), range(0, 20 * size, size)):
        w = place_operands(
            name,
            {
                "element": element, word: channels, "out_h": rows, "out_w": columns,
                "out_pixel_stride": pixel_stride, "out_row_stride": row_stride,
            },
        )  # fmt: skip
        starts = (y * row_stride + x * pixel_stride for y in range(rows) for x in range(columns))
        folded = begins_before_its_predecessor_ends(starts, channels * size)
        assert fault(name, w, SPM_BYTES) == ("output" if folded else None)


@pytest.mark.parametrize("element", [INT8, INT16])
@pytest.mark.parametrize("name", ["gemm", "eltwise"])
def test_matrices_must_not_overlap_themselves(name: str, element: int) -> None:
    size, columns = element + 1, 5
    for rows, stride in product((1, 2, 3), range(0, 8 * size, size)):
        words = {"element": element, "rows": rows, "columns": columns, "out_stride": stride}
        folded = begins_before_its_predecessor_ends((y * stride for y in range(rows)), 5 * size)
        assert fault(name, place_operands(name, words), SPM_BYTES) == ("output" if folded else None)


NONE: Words = {}
TOO_MANY: list[tuple[str, dict[str, int], str, str, int]] = [
    # Descriptor, shape, the word that is raised by one, the word that is named, most of it.
    ("load", {"count_x": 8, "run_bytes": 16, "count_y": 5}, "count_y", "count_y", 640),
    ("load", {"count_x": 8, "run_bytes": 0, "count_y": 5}, "count_y", "count_y", 40),
    ("load", {"count_x": 8, "run_bytes": 1, "count_y": 5}, "count_y", "count_y", 40),
    ("load", {"count_x": 5, "pad_x_before": 2, "pad_x_after": 1, "run_bytes": 4, "count_y": 2,
              "pad_y_before": 3, "pad_y_after": 1}, "pad_y_after", "count_y", 8 * 4 * 6),
    ("store", {"count_x": 8, "run_bytes": 16, "count_y": 5}, "count_y", "count_y", 640),
    ("store", {"count_x": 8, "run_bytes": 0, "count_y": 5}, "count_y", "count_y", 40),
    ("store", {"count_x": 8, "run_bytes": 1, "count_y": 5}, "count_y", "count_y", 40),
    ("conv", {"out_h": 4, "out_w": 5, "out_channels": 3}, "out_h", "out_h", 60),
    ("dwconv", {"out_h": 4, "out_w": 5, "channels_count": 3}, "out_h", "out_h", 60),
    ("gemm", {"rows": 4, "columns": 15}, "rows", "rows", 60),
    ("maxpool", {"out_h": 4, "out_w": 5, "channels": 3}, "out_h", "out_h", 60),
    ("maxpool", {"out_h": 4, "out_w": 5, "channels": 3, "element": 1}, "out_h", "out_h", 120),
    ("avgpool", {"out_h": 4, "out_w": 5, "channels": 3}, "out_h", "out_h", 60),
    ("avgpool", {"out_h": 4, "out_w": 5, "channels": 3, "element": 1}, "out_h", "out_h", 120),
    ("maxpool", {"kernel_h": 4, "kernel_w": 15}, "kernel_h", "kernel_h", 60),
    ("eltwise", {"rows": 4, "columns": 15}, "rows", "rows", 60),
    ("eltwise", {"rows": 4, "columns": 15, "element": 1}, "rows", "rows", 120),
    ("transpose", {"size_0": 4, "size_1": 5, "size_2": 3}, "size_0", "size_0", 60),
    ("transpose", {"size_0": 4, "size_1": 5, "size_2": 3, "size_3": 2}, "size_3", "size_3", 120),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "raised", "named", "most"), TOO_MANY)
def test_results_must_not_exceed_the_scratchpad(
    name: str, shape: dict[str, int], raised: str, named: str, most: int
) -> None:
    """Whatever strides say: else a zero stride would let an instruction go on for ever."""
    none = {word: 0 for word in make_words(name) if "stride_" in word and name != "conv"}
    if name in ("load", "store"):
        shape = {**shape, **none}
    w = {**make_words(name, shape)}
    assert fault(name, w, most) != named, "there is no room, but that is another word's fault"
    assert fault(name, w, most - 1) == named
    assert fault(name, {**w, raised: w[raised] + 1}, most) == named


def test_taps_of_a_window_have_a_limit() -> None:
    """The sum of 2^23 Int8 values less their zero point fits 32 bits; 10 x 838861 are 2 more."""
    for name in ("maxpool", "avgpool"):
        assert fault(name, make_words(name, {"kernel_h": 1 << 10, "kernel_w": 1 << 13})) is None
        assert fault(name, make_words(name, {"kernel_h": 10, "kernel_w": 838861})) == "kernel_h"


def test_weights_have_a_limit() -> None:
    """Blocks of inputs in a row of the window, and rows of blocks: 2^26 of each at most."""
    rows = [
        # 2^28 inputs are 2^26 blocks of four; 87211 x 3078 are two more.
        ("conv", {"kernel_w": 1 << 20, "in_channels": 1 << 8}, None),
        ("conv", {"kernel_w": 87211, "in_channels": 3078}, "kernel_w"),
        ("conv", {"kernel_w": 1 << 20, "in_channels": 1 << 7, "element": INT16}, None),
        ("conv", {"kernel_w": 87211, "in_channels": 1539, "element": INT16}, "kernel_w"),
        # 2^20 rows of 64 bytes are 2^26; 17 x 61681 are one more.
        ("conv", {"kernel_h": 1 << 20, "out_channels": 16, "out_pixel_stride": 16}, None),
        ("conv", {"kernel_h": 1 << 16, "out_channels": 256, "out_pixel_stride": 256}, None),
        ("conv", {"kernel_h": 61681, "out_channels": 272}, "weights"),
        ("conv", {"kernel_h": 61681, "out_channels": 257}, "weights"),
        ("conv", {"kernel_h": 61681, "out_channels": 256}, None),
        # 2^13 x 2^13 taps, and 8065 x 8321, one more.
        ("dwconv", {"kernel_h": 1 << 13, "kernel_w": 1 << 13}, None),
        ("dwconv", {"kernel_h": 8065, "kernel_w": 8321}, "weights"),
    ]  # fmt: skip
    for name, shape, named in rows:
        assert fault(name, make_words(name, shape)) == named, shape


@pytest.mark.parametrize("name", ["conv", "dwconv"])
def test_rows_and_columns_of_windows_have_a_limit(name: str) -> None:
    """8191 x 8193 + 1 are 2^26; another tap is one too many."""
    for size, stride, kernel, dilation in (
        ("out_h", "stride_h", "kernel_h", "dilation_h"),
        ("out_w", "stride_w", "kernel_w", "dilation_w"),
    ):
        most = {size: 8192, stride: 8193}
        assert fault(name, make_words(name, most)) is None
        assert fault(name, make_words(name, {**most, kernel: 2})) == "input"
        most = {kernel: 8192, dilation: 8193}
        assert fault(name, make_words(name, most)) is None
        assert fault(name, make_words(name, {**most, size: 2})) == "input"


def test_bytes_of_a_pixel_have_a_limit() -> None:
    """2^13 x 2^13 channels of a byte are 2^26 bytes; 8065 x 8321 one more."""
    groups = {"groups": 1 << 13, "out_channels": 1 << 13}
    assert fault("conv", make_words("conv", {**groups, "in_channels": 1 << 13})) is None
    wide = {**groups, "in_channels": 1 << 13, "element": INT16}
    assert fault("conv", make_words("conv", wide)) == "input"
    assert fault("conv", make_words("conv", {**wide, "in_channels": 1 << 12})) is None
    assert fault("conv", make_words("conv", {**wide, "in_channels": (1 << 12) + 1})) == "input"
    one_more = {"groups": 8065, "out_channels": 8065, "in_channels": 8321}
    assert fault("conv", make_words("conv", one_more)) == "input"


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [(name, a, b) for name, places in OPERANDS.items() for a, b in combinations(places, 2)],
)
def test_the_first_of_two_outside_operands_is_named(name: str, first: str, second: str) -> None:
    """In the order of the descriptor's words, whichever of them is read or written."""
    part = {"part": 1} if "partial" in (first, second) else {}  # which has partial sums
    outside = {first: SPM - FAR_APART, second: SPM - 2 * FAR_APART}
    alone = [fault(name, make_words(name, {**part, word: outside[word]})) for word in outside]
    named = [word for word in (first, second) if word in alone]
    both = fault(name, make_words(name, {**part, **outside}))
    assert named
    assert both == min(named, key=[word.name for word in DESCRIPTORS[name]].index)
