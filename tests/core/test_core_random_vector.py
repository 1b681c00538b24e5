"""Random vector and DMA instructions: the same bytes, cycles and events on both engines."""

from __future__ import annotations

import numpy as np
from core_machines import RAM_BASE, device, from_descriptors, run_both
from core_strategies import SEED, image_strides, places, windows
from core_tensors import Job, Layout
from hypothesis import given, settings
from hypothesis import strategies as st
from vector_strategies import (
    AVERAGE_PROFILES,
    DTYPES,
    ELEMENTS,
    OFFSETS,
    PAIR_PROFILES,
    RESCALE_PROFILES,
    RESULT_SCALES,
    elements,
    factors,
    limits,
    tensors,
    vector_clips,
)

DEVICE = device()
EXAMPLES = settings(max_examples=150, deadline=None)
GAPS = st.sampled_from([0, 4, 52])
FLOAT_PROFILES = {"glow_float", "float", "fbgemm"}


def compare(layout: Layout, *jobs: Job, ram: bytes = b"") -> None:
    program = from_descriptors(
        *jobs, scratchpad=layout.contents(), config=DEVICE, layer_channels=(7, 16, 1), ram=ram
    )
    is_real = any(d.get("profile") in FLOAT_PROFILES for _, d in jobs)
    infinity = "ignore" if is_real else "warn"  # which kernels meet that are not compiled
    with np.errstate(over=infinity, invalid=infinity):
        run_both(program)


@given(st.data())
@EXAMPLES
def test_pools(data: st.DataObject) -> None:
    draw = data.draw
    element, profile = draw(ELEMENTS), draw(st.sampled_from(AVERAGE_PROFILES))
    size = np.dtype(DTYPES[element]).itemsize
    window = draw(windows(4))
    in_h, in_w = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    channels = draw(st.integers(1, 35))
    strides = draw(image_strides(in_w, channels, window["out_w"], channels))
    strides = {name: size * stride for name, stride in strides.items()}
    layout = Layout(draw(GAPS))
    in_count = in_h * strides["in_row_stride"] // size + 1
    words = {
        **window,
        **strides,
        "element": element,
        "layer": draw(st.integers(0, 3)),
        "channels": channels,
        "in_h": in_h,
        "in_w": in_w,
        "pad_top": draw(st.integers(-1, 8)),
        "pad_left": draw(st.integers(-1, 8)),
        "input": layout.put(draw(tensors(element, in_count)), size),
        "output": layout.reserve(window["out_h"] * strides["out_row_stride"], size),
    }
    average = {
        **words,
        "profile": profile,
        "in_offset": draw(elements(element)),
        "divide": draw(st.integers(0, 1)),
        "out_offset": draw(OFFSETS),
        **draw(factors("out", profile)),
        **draw(vector_clips(element)),
        **draw(places(("y", "x"))),
        "output": layout.reserve(window["out_h"] * strides["out_row_stride"], size),
    }
    compare(
        layout,
        ("nmp.maxpool", {**words, "empty_value": draw(elements(element))}),
        ("nmp.avgpool", average),
    )


@given(st.data())
@EXAMPLES
def test_elementwise(data: st.DataObject) -> None:
    draw = data.draw
    element, profile = draw(ELEMENTS), draw(st.sampled_from(PAIR_PROFILES))
    size = np.dtype(DTYPES[element]).itemsize
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    layout = Layout(draw(GAPS))
    lhs_stride, out_stride = (size * (columns + draw(st.integers(0, 3))) for _ in range(2))
    wide = draw(st.booleans())
    rhs_stride = 0
    if draw(st.booleans()):
        rhs_stride = (4 if wide else size) * (columns + draw(st.integers(0, 3)))
    if wide:
        rng = np.random.default_rng(draw(SEED))
        values = rng.integers(-(2**31), 2**31, rows * (columns + 3)).astype("<i4")
        rhs = layout.put(values >> draw(st.sampled_from([0, 8, 24])))
    else:
        rhs = layout.put(draw(tensors(element, rows * (columns + 3))), size)
    words = {
        "element": element,
        "profile": profile,
        "operation": draw(st.integers(0, 1 if profile == "qnnpack" else 4)),
        "lhs": layout.put(draw(tensors(element, rows * lhs_stride // size)), size),
        "rhs": rhs,
        "output": layout.reserve(rows * out_stride, size),
        "rhs_kind": int(wide),
        "rows": rows,
        "columns": columns,
        "lhs_stride": lhs_stride,
        "rhs_stride": rhs_stride,
        "out_stride": out_stride,
        "lhs_offset": draw(elements(element)),
        "rhs_offset": draw(OFFSETS),
        "out_offset": draw(OFFSETS),
        "result_scale": draw(RESULT_SCALES),
        **draw(factors("lhs", profile)),
        **draw(factors("rhs", profile)),
        **draw(factors("out", profile)),
        **draw(vector_clips(element)),
        **draw(places(("y",))),
    }
    in_place = {**words, "output": words["lhs"], "out_stride": lhs_stride}
    compare(layout, ("nmp.eltwise", words), ("nmp.eltwise", in_place))


@given(st.data())
@EXAMPLES
def test_rescale(data: st.DataObject) -> None:
    draw = data.draw
    element, profile = draw(ELEMENTS), draw(st.sampled_from(RESCALE_PROFILES))
    size = np.dtype(DTYPES[element]).itemsize
    count = draw(st.integers(1, 80))
    layout = Layout(draw(GAPS))
    source = layout.put(draw(tensors(element, count)), size)
    low, high = limits(element)
    in_low, in_high = sorted((draw(elements(element) | st.just(low)), draw(elements(element))))
    words = {
        "element": element,
        "profile": profile,
        "input": source,
        "output": draw(st.sampled_from([source, layout.reserve(size * count, size)])),
        "count": count,
        "in_low": in_low,
        "in_high": draw(st.sampled_from([in_high, high])),
        "in_offset": draw(elements(element)),
        "activation": draw(st.integers(0, 1)),
        "out_offset": draw(OFFSETS),
        "result_scale": draw(RESULT_SCALES),
        **draw(factors("out", profile)),
        **draw(factors("leaky", profile)),
        **draw(vector_clips(element)),
        **draw(places(())),
    }
    compare(layout, ("nmp.rescale", words))


@given(st.data())
@EXAMPLES
def test_look_up(data: st.DataObject) -> None:
    draw = data.draw
    count = draw(st.integers(1, 80))
    layout = Layout(draw(GAPS))
    source, target = layout.put(draw(tensors("int8", count)), 1), layout.reserve(count, 1)
    table = layout.put(np.random.default_rng(draw(SEED)).permutation(256).astype(np.uint8), 1)
    words = {
        "input": source,
        "output": draw(st.sampled_from([source, target])),
        "table": table,
        "count": count,
    }
    compare(layout, ("nmp.lut", words))


@given(st.data())
@EXAMPLES
def test_fill_and_transpose(data: st.DataObject) -> None:
    draw = data.draw
    size = draw(st.sampled_from([1, 2, 4, 8]))
    sizes = [draw(st.integers(1, 4)) for _ in range(4)]
    strides = [[size * draw(st.integers(0, 12)) for _ in range(4)] for _ in range(2)]
    extents = [
        size + sum((n - 1) * stride for n, stride in zip(sizes, side, strict=True))
        for side in strides
    ]
    layout = Layout(draw(GAPS))
    words = {
        "element_bytes": size,
        "input": layout.put(np.arange(extents[0]).astype(np.uint8), 1),
        "output": layout.reserve(extents[1], 1),
    }
    for n in range(4):
        words[f"size_{n}"] = sizes[n]
        words[f"in_stride_{n}"], words[f"out_stride_{n}"] = strides[0][n], strides[1][n]
    count, element = draw(st.integers(1, 70)), draw(ELEMENTS)
    nbytes = np.dtype(DTYPES[element]).itemsize
    fill = {
        "element": element,
        "output": layout.reserve(nbytes * (count + 2), nbytes) + nbytes,
        "count": count,
        "value": draw(elements(element)),
    }
    compare(layout, ("nmp.transpose", words), ("nmp.fill", fill))


@st.composite
def boxes(draw: st.DrawFn) -> dict[str, int]:
    run, count_x, count_y = (draw(st.integers(0, most)) for most in (70, 4, 4))
    return {
        "run_bytes": run,
        "count_x": count_x,
        "count_y": count_y,
        "dram_stride_x": draw(st.just(run) | st.integers(0, 300)),
        "dram_stride_y": draw(st.just(run * count_x) | st.integers(0, 3000)),
        "spm_stride_x": draw(st.just(run) | st.integers(0, 100)),
        "spm_stride_y": draw(st.just(run * count_x) | st.integers(0, 500)),
        "dram": RAM_BASE + draw(st.integers(0, 5000)),
        "layer": draw(st.integers(0, 3)),
    }


@given(st.data())
@EXAMPLES
def test_transfers(data: st.DataObject) -> None:
    draw = data.draw
    layout = Layout()
    target = layout.reserve(6000)
    jobs: list[Job] = []
    for _ in range(draw(st.integers(1, 7))):
        box = {**draw(boxes()), "spm": target + draw(st.integers(0, 100))}
        if draw(st.booleans()):
            jobs.append(("nmp.store", box))
            continue
        pads = ("pad_x_before", "pad_x_after", "pad_y_before", "pad_y_after")
        padding = {name: draw(st.integers(0, 2)) for name in pads}
        if draw(st.booleans()):
            jobs.append(("nmp.load", {**box, **padding, "fill": draw(elements("int8"))}))
            continue
        whole = {name: value & ~1 for name, value in box.items() if "spm" in name or "run" in name}
        words = {**box, **whole, **padding, "element": "int16", "fill": draw(elements("int16"))}
        jobs.append(("nmp.load", words))
    ram = np.random.default_rng(draw(SEED)).integers(0, 256, 30_000).astype(np.uint8)
    compare(layout, *jobs, ram=ram.tobytes())
