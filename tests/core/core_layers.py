"""A layer as an instruction, on both engines: arrays in, array out. The element is the arrays'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from core_machines import device, from_descriptors, run_both
from core_tensors import (
    Array,
    Job,
    Layout,
    at,
    channel_records,
    pack_weights,
    padded_image,
    window_sizes,
)

DEVICE = device(scratchpad_bytes=1 << 20)
Words = dict[str, int]


def full_clip(dtype: Any) -> Words:
    """Return clip words that span the range of an element type without an activation."""
    info = np.iinfo(dtype)
    return {"clip_low": int(info.min), "clip_high": int(info.max)}


def run(layout: Layout, *jobs: Job, formulas: bytes = b"") -> Any:
    """Run jobs on both engines, assert that none traps, and return the machine."""
    contents = layout.contents()
    m = run_both(from_descriptors(*jobs, scratchpad=contents, config=DEVICE, formulas=formulas))
    assert m.shared.trap[0, 0] == -1, m.shared.trap
    return m


def result(m: Any, address: int, shape: Sequence[int], dtype: Any) -> Array:
    """Return an array from the scratchpad of core 0."""
    data = m.scratchpad[0, at(address) :].tobytes()
    count = int(np.prod(shape))
    return np.frombuffer(data, dtype, count).reshape(shape)


@attrs.frozen(kw_only=True, eq=False)
class Window:
    """Geometry of a convolution or pooling window."""

    kernels: Sequence[int]
    strides: Sequence[int] = (1, 1)
    pads: Sequence[int] = (0, 0, 0, 0)
    """Padding at the top, left, bottom and right."""
    dilation: Sequence[int] = (1, 1)
    group: int = 1

    def sizes(self, x: Array) -> Words:
        """Return the window's descriptor words for an image that includes its padding."""
        case = {"kernels": self.kernels, "strides": self.strides, "dilation": self.dilation}
        return window_sizes(case, x)


def image_strides(x: Array, out_w: int, out_channels: int) -> Words:
    """Return the strides of input and output images without gaps."""
    size = x.dtype.itemsize
    return {
        "in_row_stride": x.shape[2] * x.shape[3] * size,
        "in_pixel_stride": x.shape[3] * size,
        "out_row_stride": out_w * out_channels * size,
        "out_pixel_stride": out_channels * size,
    }


@attrs.frozen(kw_only=True, eq=False)
class Weights:
    """Weights, biases, zero points and scale records of a layer."""

    values: Array
    """Weight values in OHWI layout."""
    bias: Array
    """Bias of each output channel [O], as the channel record stores it."""
    offsets: Any = 0
    """Zero point of all weights, or of each output channel [O]."""
    scales: Array | None = None
    """Scale records, or None if no channel has its own scale."""

    @property
    def all_offsets(self) -> Array:
        return np.broadcast_to(np.asarray(self.offsets, np.int64), self.bias.shape)

    def channel_records(self, in_offset: int) -> Array:
        differences = self.all_offsets[:, None, None, None] - self.values.astype(np.int64)
        return channel_records(self.bias, in_offset * differences.sum(axis=(1, 2, 3)))


def convolution(
    x: Array,
    weights: Weights,
    window: Window,
    words: Mapping[str, int | str],
    in_offset: int = 0,
) -> Array:
    """Run ``nmp.conv`` on each NHWC image and return the results."""
    channels, depth = weights.bias.size, weights.values.shape[3]
    numbers = {"groups": window.group, "in_channels": depth, "out_channels": channels}
    packed = pack_weights(weights.values)
    return _run_layer("nmp.conv", x, weights, packed, window, {**numbers, **words}, in_offset)


def depthwise(
    x: Array,
    weights: Weights,
    window: Window,
    words: Mapping[str, int | str],
    in_offset: int = 0,
) -> Array:
    """Run ``nmp.dwconv``, with one filter per channel, on each NHWC image."""
    packed = weights.values[..., 0].transpose(1, 2, 0)
    words = {"channels_count": weights.bias.size, **words}
    return _run_layer("nmp.dwconv", x, weights, packed, window, words, in_offset)


def _run_layer(
    mnemonic: str,
    x: Array,
    weights: Weights,
    packed: Array,
    window: Window,
    words: Mapping[str, int | str],
    in_offset: int,
) -> Array:
    x = padded_image(x, window.pads, in_offset)
    sizes = window.sizes(x)
    shape = (sizes["out_h"], sizes["out_w"], weights.bias.size)
    results = []
    for image in x:
        layout = Layout()
        output = layout.reserve(int(np.prod(shape)) * x.dtype.itemsize)
        job = {
            **full_clip(x.dtype),
            **sizes,
            **image_strides(x, sizes["out_w"], weights.bias.size),
            "element": str(x.dtype),
            "input": layout.put(image),
            "weights": layout.put(packed, 64),
            "channels": layout.put(weights.channel_records(in_offset)),
            "scales": 0 if weights.scales is None else layout.put(weights.scales),
            "output": output,
            "weight_offset": int(weights.all_offsets[0]),
            **words,
        }
        results.append(result(run(layout, (mnemonic, job)), output, shape, x.dtype))
    return np.stack(results)


def fully_connected(
    x: Array, weights: Weights, words: Mapping[str, int | str], in_offset: int = 0
) -> Array:
    """Run x [M, K] and weights [N, 1, 1, K] as a 1x1 convolution of one row of pixels."""
    y = convolution(x[None, None], weights, Window(kernels=(1, 1)), words, in_offset)
    return y[0, 0]


def matrix_product(lhs: Array, rhs: Array, words: Mapping[str, int | str]) -> Array:
    """Run ``nmp.gemm`` on [M, K] x [K, N] and return the product."""
    (rows, inner), columns, size = lhs.shape, rhs.shape[1], lhs.dtype.itemsize
    layout = Layout()
    output = layout.reserve(rows * columns * size)
    job = {
        **full_clip(lhs.dtype),
        "element": str(lhs.dtype),
        "lhs": layout.put(lhs),
        "rhs": layout.put(rhs),
        "output": output,
        "rows": rows,
        "inner": inner,
        "columns": columns,
        "lhs_stride": inner * size,
        "rhs_stride": columns * size,
        "out_stride": columns * size,
        **words,
    }
    return result(run(layout, ("nmp.gemm", job)), output, (rows, columns), lhs.dtype)


def pair(lhs: Array, rhs: Array, words: Mapping[str, int | str]) -> Array:
    """Run ``nmp.eltwise`` on all elements; a 1-D ``rhs`` is repeated for each row."""
    columns = rhs.shape[-1] if rhs.ndim == 1 else lhs.size
    layout = Layout()
    output = layout.reserve(lhs.nbytes)
    job = {
        **full_clip(lhs.dtype),
        "element": str(lhs.dtype),
        "lhs": layout.put(lhs),
        "rhs": layout.put(rhs),
        "output": output,
        "rows": lhs.size // columns,
        "columns": columns,
        "lhs_stride": columns * lhs.dtype.itemsize,
        "out_stride": columns * lhs.dtype.itemsize,
        **words,
    }
    return result(run(layout, ("nmp.eltwise", job)), output, lhs.shape, lhs.dtype)


def unary(x: Array, words: Mapping[str, int | str], formulas: bytes = b"") -> Array:
    """Run ``nmp.rescale`` on all elements and return the result."""
    layout = Layout()
    output = layout.reserve(x.nbytes)
    bounds = full_clip(x.dtype)
    job = {
        **bounds,
        "element": str(x.dtype),
        "input": layout.put(x),
        "output": output,
        "count": x.size,
        "in_low": bounds["clip_low"],
        "in_high": bounds["clip_high"],
        **words,
    }
    machine = run(layout, ("nmp.rescale", job), formulas=formulas)
    return result(machine, output, x.shape, x.dtype)


def pool(mnemonic: str, x: Array, window: Window, words: Mapping[str, int | str]) -> Array:
    """Run a pooling instruction on each NHWC image and return the results."""
    channels = x.shape[3]
    sizes = window.sizes(padded_image(x, window.pads, 0))
    shape = (sizes["out_h"], sizes["out_w"], channels)
    results = []
    for image in x:
        layout = Layout()
        output = layout.reserve(int(np.prod(shape)) * x.dtype.itemsize)
        clip = full_clip(x.dtype) if mnemonic == "nmp.avgpool" else {}
        job = {
            **clip,
            **{key: value for key, value in sizes.items() if not key.startswith("dilation")},
            **image_strides(x, sizes["out_w"], channels),
            "element": str(x.dtype),
            "input": layout.put(image),
            "output": output,
            "channels": channels,
            "in_h": image.shape[0],
            "in_w": image.shape[1],
            "pad_top": int(window.pads[0]),
            "pad_left": int(window.pads[1]),
            **words,
        }
        results.append(result(run(layout, (mnemonic, job)), output, shape, x.dtype))
    return np.stack(results)
