"""Hypothesis strategies for the contents and the words of descriptors."""

from __future__ import annotations

import numpy as np
from core_tensors import Array, channel_records, scale, scale_records
from hypothesis import strategies as st

INT32 = st.integers(-(2**31), 2**31 - 1)
INT8 = st.integers(-128, 127)
SHIFT = st.integers(0, 31)
SEED = st.integers(0, 2**32 - 1)
NEAR_THE_EDGE = st.sampled_from([-(2**31), 2**31 - 1, 2**31 - 20_000, -(2**31) + 20_000])
BIASES = st.integers(-50_000, 50_000) | INT32 | NEAR_THE_EDGE

Words = dict[str, int]


@st.composite
def int8s(draw: st.DrawFn, count: int) -> Array:
    """Draw Int8 values: any values, only the extremes, or one extreme throughout."""
    rng = np.random.default_rng(draw(SEED))
    kind = draw(st.sampled_from(["any", "extremes", "lowest", "highest"]))
    if kind == "any":
        return rng.integers(-128, 128, count).astype(np.int8)
    if kind == "extremes":
        return rng.choice(np.array([-128, 127], np.int8), count)
    return np.full(count, -128 if kind == "lowest" else 127, np.int8)


@st.composite
def scales(draw: st.DrawFn, prefix: str) -> Words:
    """Draw a scale that a compiler would emit, or any valid one."""
    if draw(st.booleans()):
        post = draw(st.integers(0, 20))
        return scale(prefix, draw(st.integers(0, 7)), draw(st.integers(1, 511)), post)
    return scale(prefix, draw(SHIFT), draw(INT32), draw(SHIFT))


@st.composite
def clips(draw: st.DrawFn) -> Words:
    low, high = sorted([draw(INT8 | st.just(-128)), draw(INT8 | st.just(127))])
    return {"clip_low": low, "clip_high": high, "clip_wanted": draw(st.integers(0, 3))}


@st.composite
def places(draw: st.DrawFn, strides: tuple[str, ...]) -> Words:
    names = ("event_origin", *(f"event_stride_{s}" for s in strides), "layer")
    limits = (5000, *([300] * len(strides)), 3)
    return {n: draw(st.integers(0, m)) for n, m in zip(names, limits, strict=True)}


@st.composite
def requantizers(draw: st.DrawFn) -> Words:
    """Draw the words of a convolution from ``bias_pre`` to the end of its descriptor."""
    return {
        **draw(scales("bias")),
        **draw(scales("out")),
        **draw(scales("leaky")),
        "out_offset": draw(INT8 | INT32),
        "activation": draw(st.integers(0, 1)),
        **draw(clips()),
        **draw(places(("y", "x"))),
    }


@st.composite
def windows(draw: st.DrawFn, most: int = 3) -> Words:
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "out_h", "out_w")
    return {name: draw(st.integers(1, most)) for name in names}


@st.composite
def dilations(draw: st.DrawFn) -> Words:
    return {name: draw(st.integers(1, 2)) for name in ("dilation_h", "dilation_w")}


def read_size(w: Words) -> tuple[int, int]:
    """Return the number of input rows and columns that the windows cover."""
    rows = (w["out_h"] - 1) * w["stride_h"] + (w["kernel_h"] - 1) * w.get("dilation_h", 1) + 1
    columns = (w["out_w"] - 1) * w["stride_w"] + (w["kernel_w"] - 1) * w.get("dilation_w", 1) + 1
    return rows, columns


@st.composite
def image_strides(draw: st.DrawFn, columns: int, depth: int, out_w: int, out_depth: int) -> Words:
    """Draw row and pixel strides of input and result, with or without gaps."""
    gaps = [draw(st.integers(0, 3)) for _ in range(4)]
    in_pixel, out_pixel = depth + gaps[0], out_depth + gaps[1]
    return {
        "in_pixel_stride": in_pixel,
        "in_row_stride": columns * in_pixel + gaps[2],
        "out_pixel_stride": out_pixel,
        "out_row_stride": out_w * out_pixel + gaps[3],
    }


@st.composite
def tables(draw: st.DrawFn, channels: int) -> tuple[Array, Array | None]:
    """Draw channel records, and scale records or None."""
    rng = np.random.default_rng(draw(SEED))
    pool = np.array(draw(st.lists(BIASES, min_size=1, max_size=4)), np.int64)
    bias, zero = rng.choice(pool, channels), rng.choice(pool, channels)
    records = channel_records(bias, zero)
    if draw(st.booleans()):
        return records, None
    pre, post = rng.integers(0, 8, (2, channels)), rng.integers(0, 32, (2, channels))
    mul = rng.integers(-1000, 100_000, (2, channels))
    offsets = rng.integers(-128, 128, channels)
    return records, scale_records(offsets, (pre[0], mul[0], post[0]), (pre[1], mul[1], post[1]))
