"""Random convolutions and matrix products: the same bytes, cycles and events on both engines."""

from __future__ import annotations

import numpy as np
import pytest
from core_machines import device, from_descriptors, run_both
from core_strategies import (
    INT8,
    clips,
    dilations,
    image_strides,
    int8s,
    places,
    read_size,
    requantizers,
    scales,
    tables,
    windows,
)
from core_tensors import Array, Job, Layout, at, channel_records, pack_weights, scale
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.kernels.saturation_stages import ACCUMULATOR, BIAS

DEVICE = device()
CHANNELS = (7, 16, 1)
EXAMPLES = examples(150)
PARTS = st.sampled_from([("only",), ("only",), ("first", "last"), ("first", "middle", "last")])
GAPS = st.sampled_from([0, 4, 52])


def compare(layout: Layout, *jobs: Job) -> None:
    run_both(
        from_descriptors(
            *jobs, scratchpad=layout.contents(), config=DEVICE, layer_channels=CHANNELS
        )
    )


@given(st.data())
@EXAMPLES
def test_random_convolutions_agree(data: st.DataObject) -> None:
    draw = data.draw
    groups, depth = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    channels = groups * draw(st.integers(1, 20))
    window = draw(windows()) | draw(dilations())
    rows, columns = read_size(window)
    strides = draw(image_strides(columns, groups * depth, window["out_w"], channels))
    records, scale_table = draw(tables(channels))
    weights = draw(int8s(channels * window["kernel_h"] * window["kernel_w"] * depth))
    shape = (channels, window["kernel_h"], window["kernel_w"], depth)
    layout = Layout(draw(GAPS))
    words = {
        **window,
        **strides,
        **draw(requantizers()),
        "groups": groups,
        "in_channels": depth,
        "out_channels": channels,
        "weight_offset": draw(INT8 | st.just(0)),
        "input": layout.put(draw(int8s(rows * strides["in_row_stride"])), 1),
        "weights": layout.put(pack_weights(weights.reshape(shape)), 1),
        "channels": layout.put(records),
        "scales": 0 if scale_table is None else layout.put(scale_table),
        "output": layout.reserve(window["out_h"] * strides["out_row_stride"], 1),
        "partial": layout.reserve(4 * window["out_h"] * window["out_w"] * channels),
    }
    compare(layout, *(("nmp.conv", {**words, "part": part}) for part in draw(PARTS)))


@given(st.data())
@EXAMPLES
def test_random_depthwise_convolutions_agree(data: st.DataObject) -> None:
    draw = data.draw
    channels = draw(st.integers(1, 35))
    window = draw(windows()) | draw(dilations())
    rows, columns = read_size(window)
    strides = draw(image_strides(columns, channels, window["out_w"], channels))
    records, scale_table = draw(tables(channels))
    layout = Layout(draw(GAPS))
    words = {
        **window,
        **strides,
        **draw(requantizers()),
        "channels_count": channels,
        "weight_offset": draw(INT8 | st.just(0)),
        "input": layout.put(draw(int8s(rows * strides["in_row_stride"])), 1),
        "weights": layout.put(draw(int8s(window["kernel_h"] * window["kernel_w"] * channels)), 1),
        "channels": layout.put(records),
        "scales": 0 if scale_table is None else layout.put(scale_table),
        "output": layout.reserve(window["out_h"] * strides["out_row_stride"], 1),
    }
    compare(layout, ("nmp.dwconv", words))


@given(st.data())
@EXAMPLES
def test_random_matrix_products_agree(data: st.DataObject) -> None:
    draw = data.draw
    rows, inner, columns = (draw(st.integers(1, most)) for most in (5, 40, 20))
    lhs_stride, rhs_stride, out_stride = (
        n + draw(st.integers(0, 3)) for n in (inner, columns, columns)
    )
    layout = Layout(draw(GAPS))
    edge = draw(st.sampled_from([0, 2**31 - 1, -(2**31)]))
    sums = np.full(rows * columns, edge, "<i4") + np.arange(rows * columns, dtype="<i4") * (
        -900 if edge > 0 else 900
    )
    words = {
        "lhs": layout.put(draw(int8s(rows * lhs_stride)), 1),
        "rhs": layout.put(draw(int8s(inner * rhs_stride)), 1),
        "output": layout.reserve(rows * out_stride, 1),
        "partial": layout.put(sums.astype("<i4")),
        "rows": rows,
        "inner": inner,
        "columns": columns,
        "lhs_stride": lhs_stride,
        "rhs_stride": rhs_stride,
        "out_stride": out_stride,
        "lhs_offset": draw(INT8),
        "rhs_offset": draw(INT8),
        "out_offset": draw(INT8),
        **draw(scales("out")),
        **draw(clips()),
        **draw(places(("y",))),
    }
    parts = draw(PARTS | st.sampled_from([("middle",), ("last",)]))
    compare(layout, *(("nmp.gemm", {**words, "part": part}) for part in parts))


@pytest.mark.parametrize("element", ["int8", "int16"])
@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize(("groups", "depth", "channels"), [(1, 700, 35), (3, 129, 7), (2, 514, 16)])
def test_deep_sums_are_exact(
    element: str, extreme: bool, groups: int, depth: int, channels: int
) -> None:
    """More products than a block of vector instructions takes at once."""
    info, rng = np.iinfo(element), np.random.default_rng(depth)
    ends = np.array([info.min, info.max], element)

    def draw(*shape: int) -> Array:
        if extreme:
            return rng.choice(ends, shape, p=[0.9, 0.1])
        return rng.integers(info.min, info.max, shape, element, endpoint=True)

    pixels, size = 5, ends.itemsize
    x, weights = draw(pixels, groups, depth), draw(groups * channels, 1, 1, depth)
    zero_point = -3
    layout = Layout()
    words = {
        "element": element,
        **dict.fromkeys(("kernel_h", "kernel_w", "out_h"), 1),
        **dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1),
        "out_w": pixels,
        "groups": groups,
        "in_channels": depth,
        "out_channels": groups * channels,
        "in_pixel_stride": size * groups * depth,
        "out_pixel_stride": size * groups * channels,
        "weight_offset": zero_point,
        "input": layout.put(x),
        "weights": layout.put(pack_weights(weights)),
        "channels": layout.put(channel_records(range(groups * channels), [1] * groups * channels)),
        "partial": layout.reserve(4 * size * pixels * groups * channels),
        "output": layout.reserve(size * pixels * groups * channels),
        **scale("bias"),
        "part": "first",
    }
    config = device(scratchpad_bytes=1 << 20)
    m = run_both(from_descriptors(("nmp.conv", words), scratchpad=layout.contents(), config=config))
    sums = m.scratchpad.view(np.int32) if element == "int8" else m.scratchpad.view(np.int64)
    found = sums[0, at(words["partial"]) // (4 * size) :][: pixels * groups * channels]
    by_group = weights.reshape(groups, channels, depth).astype(np.int64) - zero_point
    expected = np.einsum("pgk,gck->pgc", x.astype(np.int64), by_group).reshape(pixels, -1)
    expected += np.arange(groups * channels) + 1
    np.testing.assert_array_equal(found.reshape(pixels, -1), expected)
    assert not m.layers.saturated.any()


def test_an_accumulator_saturates_in_the_order_of_its_products() -> None:
    """Bias 2**31 - 1; products 127, -127, 127 ... in one pixel, -127, 127 ... in the other.

    Adding first: the first 127 is cut, -127 goes down from there, 127 up again, and so on; the end
    is 127 below. The other way round nothing is cut.
    """
    layout = Layout()
    one_pixel = np.array([127, -127] * 4, np.int8)
    x = np.concatenate([one_pixel, -one_pixel])
    words = {
        "input": layout.put(x),
        "weights": layout.put(pack_weights(np.ones((1, 1, 1, 8), np.int8))),
        "channels": layout.put(channel_records([2**31 - 1], [1])),
        "partial": layout.reserve(8),
        "output": layout.reserve(8),
        "in_row_stride": 16,
        "in_pixel_stride": 8,
        "out_row_stride": 2,
        "out_pixel_stride": 1,
        **dict.fromkeys(("groups", "out_channels", "kernel_h", "kernel_w", "out_h"), 1),
        **dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1),
        "in_channels": 8,
        "out_w": 2,
        "part": "first",
        **scale("bias", mul=2),
        **scale("out"),
        "event_origin": 100,
        "event_stride_x": 1,
    }
    m = run_both(from_descriptors(("nmp.conv", words), scratchpad=layout.contents()))
    offset = words["partial"] - 0x2000_0000
    assert m.scratchpad.view(np.int32)[0, offset // 4 :][:2].tolist() == [2**31 - 128, 2**31 - 1]
    cut, worst, first = (m.layers[name][0] for name in ("saturated", "worst", "first"))
    # The bias is doubled, which cuts 2**31 - 1; both pixels have it, and the zero term of 1.
    assert (cut[BIAS, 1], worst[BIAS, 1], first[BIAS, 1]) == (2, 2**31 - 1, 100)
    assert (cut[ACCUMULATOR, 1], worst[ACCUMULATOR, 1], first[ACCUMULATOR, 1]) == (2 + 1, 127, 100)
    assert m.channel_saturated[ACCUMULATOR, :, 0].tolist() == [0, 3]
    assert m.layers.elements[0] == 0, "nothing is written before the last part"


def test_tiles_with_different_clips_are_counted_separately() -> None:
    """What the first one counts, in which nothing is cut, is not the second one's overshoot."""
    layout = Layout()
    words = {
        "weights": layout.put(pack_weights(np.ones((1, 1, 1, 4), np.int8))),
        "channels": layout.put(channel_records([0], [0])),
        "output": layout.reserve(8),
        **dict.fromkeys(("groups", "out_channels", "kernel_h", "kernel_w", "out_h"), 1),
        **dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w", "out_w"), 1),
        "in_channels": 4,
        **scale("bias"),
        **scale("out"),
    }
    free, cut = (layout.put(np.full(4, value, np.int8)) for value in (-25, -1))
    m = run_both(
        from_descriptors(
            ("nmp.conv", {**words, "input": free, "clip_low": -128, "clip_high": 127}),
            ("nmp.conv", {**words, "input": cut, "clip_low": 0, "clip_high": 127}),
            scratchpad=layout.contents(),
        )
    )
    assert m.layers[0].worst.max() == 4
