"""Random tensor instructions of every element and profile, as jobs that work in a layout."""

from __future__ import annotations

import numpy as np
from core_machines import RAM_BASE
from core_profiles import (
    ADDENDS,
    AVERAGE_PROFILES,
    CONVOLUTION_PROFILES,
    INTEGERS,
    OPERATIONS_OF,
    PAIR_PROFILES,
    PRODUCT_PROFILES,
    RECORDS,
    RESCALE_PROFILES,
    Words,
    channel_records,
    factors,
    limits,
    offsets,
    results,
    scale_tables,
    values,
)
from core_strategies import INT32, SEED, dilations, image_strides, places, read_size, windows
from core_tensors import Job, Layout, pack_weights
from hypothesis import strategies as st

ELEMENTS = st.sampled_from(["int8", "int16"])
PARTS = st.sampled_from([("only",), ("only",), ("first", "last"), ("first", "middle", "last")])


def count_bytes(element: str) -> int:
    return np.dtype(element).itemsize


def in_bytes(strides: Words, element: str) -> Words:
    """Convert strides from elements to bytes."""
    return {name: stride * count_bytes(element) for name, stride in strides.items()}


@st.composite
def convolution_words(draw: st.DrawFn, layout: Layout, element: str, channels: int) -> Words:
    """Draw the words that both convolution instructions share, except their geometry."""
    profile = draw(st.sampled_from(CONVOLUTION_PROFILES))
    reduced = profile == "q31" and element == "int16"
    leaky = draw(st.booleans()) and profile in INTEGERS
    has_table = draw(st.booleans())
    table = draw(scale_tables(element, profile, channels)) if has_table else None
    return {
        "element": element,
        "profile": profile,
        "weight_offset": draw(offsets(element)),
        "channels": layout.put(draw(channel_records(profile, channels))),
        "scales": 0 if table is None else layout.put(table),
        **draw(factors("bias", profile)),
        **draw(factors("leaky", profile)),
        **draw(results(element, profile, reduced)),
        "activation": int(leaky),
        **draw(places(("y", "x"))),
    }


@st.composite
def convolutions(draw: st.DrawFn, layout: Layout) -> list[Job]:
    """Draw the jobs of a convolution that computes one sum, or one in several parts."""
    element = draw(ELEMENTS)
    size = count_bytes(element)
    groups, depth = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    channels = groups * draw(st.integers(1, 20))
    window = draw(windows()) | draw(dilations())
    rows, columns = read_size(window)
    strides = draw(image_strides(columns, groups * depth, window["out_w"], channels))
    shape = (channels, window["kernel_h"], window["kernel_w"], depth)
    weights = draw(values(element, int(np.prod(shape)))).reshape(shape)
    sums = window["out_h"] * window["out_w"] * channels
    words = {
        **window,
        **in_bytes(strides, element),
        **draw(convolution_words(layout, element, channels)),
        "groups": groups,
        "in_channels": depth,
        "out_channels": channels,
        "input": layout.put(draw(values(element, rows * strides["in_row_stride"])), size),
        "weights": layout.put(pack_weights(weights), size),
        "output": layout.reserve(window["out_h"] * strides["out_row_stride"] * size, size),
        "partial": layout.reserve(4 * size * sums),
    }
    return [("nmp.conv", {**words, "part": part}) for part in draw(PARTS)]


@st.composite
def depthwise_convolutions(draw: st.DrawFn, layout: Layout) -> list[Job]:
    element = draw(ELEMENTS)
    size = count_bytes(element)
    channels = draw(st.integers(1, 35))
    window = draw(windows()) | draw(dilations())
    rows, columns = read_size(window)
    strides = draw(image_strides(columns, channels, window["out_w"], channels))
    taps = window["kernel_h"] * window["kernel_w"]
    words = {
        **window,
        **in_bytes(strides, element),
        **draw(convolution_words(layout, element, channels)),
        "channels_count": channels,
        "input": layout.put(draw(values(element, rows * strides["in_row_stride"])), size),
        "weights": layout.put(draw(values(element, taps * channels)), size),
        "output": layout.reserve(window["out_h"] * strides["out_row_stride"] * size, size),
    }
    return [("nmp.dwconv", words)]


@st.composite
def matrix_products(draw: st.DrawFn, layout: Layout) -> list[Job]:
    element = draw(ELEMENTS)
    size, profile = count_bytes(element), draw(st.sampled_from(PRODUCT_PROFILES))
    rows, inner, columns = (draw(st.integers(1, most)) for most in (5, 40, 20))
    strides = {
        name: least + draw(st.integers(0, 3))
        for name, least in (("lhs_stride", inner), ("rhs_stride", columns), ("out_stride", columns))
    }
    few = np.array(draw(st.lists(RECORDS, min_size=1, max_size=4)), np.int64)
    sums = np.random.default_rng(draw(SEED)).choice(few, rows * columns)
    words = {
        "element": element,
        "profile": profile,
        "lhs": layout.put(draw(values(element, rows * strides["lhs_stride"])), size),
        "rhs": layout.put(draw(values(element, inner * strides["rhs_stride"])), size),
        "output": layout.reserve(rows * strides["out_stride"] * size, size),
        "partial": layout.put(sums.astype("<i4" if element == "int8" else "<i8")),
        "rows": rows,
        "inner": inner,
        "columns": columns,
        **in_bytes(strides, element),
        "lhs_offset": draw(offsets(element)),
        "rhs_offset": draw(offsets(element)),
        **draw(results(element, profile, profile == "q31" and element == "int16")),
        **draw(places(("y",))),
    }
    parts = draw(PARTS | st.sampled_from([("middle",), ("last",)]))
    return [("nmp.gemm", {**words, "part": part}) for part in parts]


@st.composite
def pools(draw: st.DrawFn, layout: Layout) -> list[Job]:
    element = draw(ELEMENTS)
    size, profile = count_bytes(element), draw(st.sampled_from(AVERAGE_PROFILES))
    window = draw(windows(4))
    in_h, in_w = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    channels = draw(st.integers(1, 35))
    strides = draw(image_strides(in_w, channels, window["out_w"], channels))
    out_bytes = window["out_h"] * strides["out_row_stride"] * size
    words = {
        "element": element,
        **window,
        **in_bytes(strides, element),
        "channels": channels,
        "in_h": in_h,
        "in_w": in_w,
        "pad_top": draw(st.integers(-1, 8)),
        "pad_left": draw(st.integers(-1, 8)),
        "input": layout.put(draw(values(element, in_h * strides["in_row_stride"] + 1)), size),
    }
    maximum = {
        **words,
        "output": layout.reserve(out_bytes, size),
        "empty_value": draw(offsets(element)),
        "layer": draw(st.integers(0, 3)),
    }
    average = {
        **words,
        "output": layout.reserve(out_bytes, size),
        "profile": profile,
        "in_offset": draw(offsets(element)),
        "divide": draw(st.integers(0, 1)),
        **draw(results(element, profile)),
        **draw(places(("y", "x"))),
    }
    return [("nmp.maxpool", maximum), ("nmp.avgpool", average)]


@st.composite
def pair_factors(draw: st.DrawFn, profile: str) -> Words:
    """Draw the factors of both operands in the form that ``profile`` reads."""
    if profile == "qnnpack":
        small = st.integers(0, 2**22) | INT32
        return {"lhs_mul": draw(small), "rhs_mul": draw(small)}
    words = draw(factors("lhs", profile)) | draw(factors("rhs", profile))
    if profile == "float":
        words |= {"lhs_post": draw(ADDENDS), "rhs_post": draw(ADDENDS)}
    return words


@st.composite
def elementwise(draw: st.DrawFn, layout: Layout) -> list[Job]:
    element = draw(ELEMENTS)
    size, profile = count_bytes(element), draw(st.sampled_from(PAIR_PROFILES))
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    lhs_stride, out_stride = (size * (columns + draw(st.integers(0, 3))) for _ in range(2))
    rhs_kind = draw(st.sampled_from(["element", "int32"]))
    rhs_size = size if rhs_kind == "element" else 4
    rhs_stride = draw(st.sampled_from([0, 1])) * rhs_size * (columns + draw(st.integers(0, 3)))
    rhs = draw(values("int32" if rhs_size == 4 else element, rows * (columns + 3)))
    lhs = layout.put(draw(values(element, rows * (columns + 3))), size)
    words = {
        "element": element,
        "profile": profile,
        "operation": draw(st.sampled_from(OPERATIONS_OF[profile])),
        "lhs": lhs,
        "rhs": layout.put(rhs, rhs_size),
        "output": layout.reserve(rows * out_stride, size),
        "rhs_kind": rhs_kind,
        "rows": rows,
        "columns": columns,
        "lhs_stride": lhs_stride,
        "rhs_stride": rhs_stride,
        "out_stride": out_stride,
        "lhs_offset": draw(offsets(element)),
        "rhs_offset": draw(offsets(element) | INT32),
        **draw(pair_factors(profile)),
        **draw(results(element, profile)),
        **draw(places(("y",))),
    }
    in_place = {**words, "output": lhs, "out_stride": lhs_stride}
    return [("nmp.eltwise", words), ("nmp.eltwise", in_place)]


@st.composite
def rescales(draw: st.DrawFn, layout: Layout) -> list[Job]:
    element = draw(ELEMENTS)
    size, profile = count_bytes(element), draw(st.sampled_from(RESCALE_PROFILES))
    count = draw(st.integers(1, 80))
    source, target = layout.put(draw(values(element, count)), size), layout.reserve(count * size)
    low, high = limits(element)
    bounds = sorted((draw(offsets(element) | st.just(low)), draw(offsets(element) | st.just(high))))
    words = {
        "element": element,
        "profile": profile,
        "input": source,
        "output": draw(st.sampled_from([source, target])),
        "count": count,
        "in_low": bounds[0],
        "in_high": bounds[1],
        "in_offset": draw(offsets(element)),
        "activation": draw(st.integers(0, 1)),
        **draw(factors("leaky", profile)),
        **draw(results(element, profile)),
        **draw(places(())),
    }
    return [("nmp.rescale", words)]


@st.composite
def fills_and_transfers(draw: st.DrawFn, layout: Layout) -> list[Job]:
    element = draw(ELEMENTS)
    size, count = count_bytes(element), draw(st.integers(1, 70))
    fill = {
        "element": element,
        "output": layout.reserve((count + 1) * size, size) + draw(st.integers(0, 1)) * size,
        "count": count,
        "value": draw(offsets(element)),
    }
    names = ("pad_x_before", "pad_x_after", "pad_y_before", "pad_y_after")
    box = {
        "element": element,
        "fill": draw(offsets(element)),
        "run_bytes": size * draw(st.integers(0, 20)),
        "count_x": draw(st.integers(0, 4)),
        "count_y": draw(st.integers(0, 4)),
        "dram": RAM_BASE + draw(st.integers(0, 100)),
        "dram_stride_x": draw(st.integers(0, 100)),
        "dram_stride_y": draw(st.integers(0, 1000)),
        "spm": layout.reserve(6000) + size * draw(st.integers(0, 3)),
        "spm_stride_x": size * draw(st.integers(0, 40)),
        "spm_stride_y": size * draw(st.integers(0, 200)),
        **{name: draw(st.integers(0, 2)) for name in names},
    }
    of_load_only = ("element", "fill", *names)
    back = {name: word for name, word in box.items() if name not in of_load_only}
    return [("nmp.fill", fill), ("nmp.load", box), ("nmp.store", back)]


@st.composite
def look_ups(draw: st.DrawFn, layout: Layout) -> list[Job]:
    count = draw(st.integers(1, 80))
    source, target = layout.put(draw(values("int8", count)), 1), layout.reserve(count, 1)
    table = layout.put(np.random.default_rng(draw(SEED)).permutation(256).astype(np.uint8), 1)
    words = {
        "input": source,
        "output": draw(st.sampled_from([source, target])),
        "table": table,
        "count": count,
    }
    return [("nmp.lut", words)]


@st.composite
def transpositions(draw: st.DrawFn, layout: Layout) -> list[Job]:
    size = draw(st.sampled_from([1, 2, 4, 8]))
    sizes = [draw(st.integers(1, 4)) for _ in range(4)]
    strides = [[size * draw(st.integers(0, 12)) for _ in range(4)] for _ in range(2)]
    extents = [
        size + sum((n - 1) * stride for n, stride in zip(sizes, side, strict=True))
        for side in strides
    ]
    words = {
        "element_bytes": size,
        "input": layout.put(np.arange(extents[0]).astype(np.uint8), 1),
        "output": layout.reserve(extents[1], 1),
    }
    for n in range(4):
        words[f"size_{n}"] = sizes[n]
        words[f"in_stride_{n}"], words[f"out_stride_{n}"] = strides[0][n], strides[1][n]
    return [("nmp.transpose", words)]


JOBS = {
    "nmp.conv": convolutions,
    "nmp.dwconv": depthwise_convolutions,
    "nmp.gemm": matrix_products,
    "nmp.maxpool nmp.avgpool": pools,
    "nmp.eltwise": elementwise,
    "nmp.rescale": rescales,
    "nmp.fill nmp.load nmp.store": fills_and_transfers,
    "nmp.lut": look_ups,
    "nmp.transpose": transpositions,
}
"""Mnemonics -> strategy of jobs with each of these instructions."""
MOVES = ("nmp.fill nmp.load nmp.store", "nmp.lut", "nmp.transpose")
"""Keys of ``JOBS`` whose instructions compute no value."""
