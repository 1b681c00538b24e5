"""Random vector and DMA instructions: the same bytes, cycles and events on both engines."""

from __future__ import annotations

import numpy as np
from core_machines import RAM_BASE, device, from_descriptors, run_both
from core_strategies import (
    INT8,
    INT32,
    SEED,
    clips,
    image_strides,
    int8s,
    places,
    scales,
    windows,
)
from core_tensors import Job, Layout
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE = device()
EXAMPLES = settings(max_examples=120, deadline=None)
GAPS = st.sampled_from([0, 4, 51])


def compare(layout: Layout, *jobs: Job, ram: bytes = b"") -> None:
    run_both(
        from_descriptors(
            *jobs,
            scratchpad=layout.contents(),
            config=DEVICE,
            layer_channels=(7, 16, 1),
            ram=ram,
        )
    )


@given(st.data())
@EXAMPLES
def test_pools(data: st.DataObject) -> None:
    draw = data.draw
    window = draw(windows(4))
    in_h, in_w = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    channels = draw(st.integers(1, 35))
    strides = draw(image_strides(in_w, channels, window["out_w"], channels))
    layout = Layout(draw(GAPS))
    words = {
        **window,
        **strides,
        "layer": draw(st.integers(0, 3)),
        "channels": channels,
        "in_h": in_h,
        "in_w": in_w,
        "pad_top": draw(st.integers(-1, 8)),
        "pad_left": draw(st.integers(-1, 8)),
        "input": layout.put(draw(int8s(in_h * strides["in_row_stride"] + 1)), 1),
        "output": layout.reserve(window["out_h"] * strides["out_row_stride"], 1),
    }
    average = {
        **words,
        "in_offset": draw(INT8),
        "divide": draw(st.integers(0, 1)),
        "out_offset": draw(INT8 | INT32),
        **draw(scales("out")),
        **draw(clips()),
        **draw(places(("y", "x"))),
        "output": layout.reserve(window["out_h"] * strides["out_row_stride"], 1),
    }
    compare(
        layout,
        ("nmp.maxpool", {**words, "empty_value": draw(INT8)}),
        ("nmp.avgpool", average),
    )


@given(st.data())
@EXAMPLES
def test_elementwise(data: st.DataObject) -> None:
    draw = data.draw
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    layout = Layout(draw(GAPS))
    lhs_stride, out_stride = (columns + draw(st.integers(0, 3)) for _ in range(2))
    wide = draw(st.booleans())
    repeats = draw(st.booleans())
    rhs_stride = 0 if repeats else (4 if wide else 1) * (columns + draw(st.integers(0, 3)))
    if wide:
        rng = np.random.default_rng(draw(SEED))
        values = rng.integers(-(2**31), 2**31, rows * (columns + 3)).astype("<i4")
        rhs = layout.put(values >> draw(st.sampled_from([0, 8, 24])))
    else:
        rhs = layout.put(draw(int8s(rows * (columns + 3))), 1)
    words = {
        "operation": draw(st.integers(0, 4)),
        "lhs": layout.put(draw(int8s(rows * lhs_stride)), 1),
        "rhs": rhs,
        "output": layout.reserve(rows * out_stride, 1),
        "rhs_kind": int(wide),
        "rows": rows,
        "columns": columns,
        "lhs_stride": lhs_stride,
        "rhs_stride": rhs_stride,
        "out_stride": out_stride,
        "lhs_offset": draw(INT8),
        "rhs_offset": draw(INT8 | INT32),
        "out_offset": draw(INT8 | INT32),
        **draw(scales("lhs")),
        **draw(scales("rhs")),
        **draw(scales("out")),
        **draw(clips()),
        **draw(places(("y",))),
    }
    in_place = {**words, "output": words["lhs"], "out_stride": lhs_stride}
    compare(layout, ("nmp.eltwise", words), ("nmp.eltwise", in_place))


@given(st.data())
@EXAMPLES
def test_rescale_and_look_up(data: st.DataObject) -> None:
    draw = data.draw
    count = draw(st.integers(1, 80))
    layout = Layout(draw(GAPS))
    source, target = layout.put(draw(int8s(count)), 1), layout.reserve(count, 1)
    in_low, in_high = sorted((draw(INT8 | st.just(-128)), draw(INT8 | st.just(127))))
    words = {
        "input": source,
        "output": draw(st.sampled_from([source, target])),
        "count": count,
        "in_low": in_low,
        "in_high": in_high,
        "in_offset": draw(INT8),
        "activation": draw(st.integers(0, 1)),
        "out_offset": draw(INT8 | INT32),
        **draw(scales("out")),
        **draw(scales("leaky")),
        **draw(clips()),
        **draw(places(())),
    }
    table = layout.put(np.random.default_rng(draw(SEED)).permutation(256).astype(np.uint8), 1)
    look_up = {
        "input": source,
        "output": draw(st.sampled_from([source, target])),
        "table": table,
        "count": count,
    }
    compare(layout, ("nmp.rescale", words), ("nmp.lut", look_up))


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
    count = draw(st.integers(1, 70))
    fill = {
        "output": layout.reserve(count + 2, 1) + 1,
        "count": count,
        "value": draw(st.integers(0, 255)),
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
        jobs.append(("nmp.load", {**box, **padding, "fill": draw(st.integers(0, 255))}))
    ram = np.random.default_rng(draw(SEED)).integers(0, 256, 30_000).astype(np.uint8)
    compare(layout, *jobs, ram=ram.tobytes())
