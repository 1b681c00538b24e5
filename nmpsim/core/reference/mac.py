"""The MAC array: convolution, depthwise convolution, matrix product.

A sum starts at bias plus zero term; then ``(w - weight_offset) * x`` is added in the order ky, kx,
channel, and the accumulator (32 bits for Int8, 48 for Int16) saturates at every step.

Each function: operands, effect, cost; the queue's and the control core's share is
:mod:`~nmpsim.core.reference.tensor`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from nmpsim.core.reference.arithmetic import held, result_of
from nmpsim.core.reference.events import LayerCounters, ResultPositions, saturate
from nmpsim.core.reference.operands import (
    Element,
    Scale,
    Scratchpad,
    Words,
    element_of,
    grid,
    scale_of,
)
from nmpsim.core.reference.requantize import finish, requantizer_of, start
from nmpsim.core.reference.step import Step
from nmpsim.core.state import Int64s
from nmpsim.isa.table import CHANNEL_RECORD, SCALE_RECORD
from nmpsim.isa.words import PART_FIRST, PART_LAST, PART_ONLY
from nmpsim.kernels.saturation_stages import ACCUMULATOR


def accumulate(
    starts: Int64s, products: Int64s, element: Element, place: ResultPositions
) -> Int64s:
    """``starts`` [n] plus ``products`` [n, k], one after the other, saturated at every step."""
    bits = element.accumulator_bits
    limit = 1 << (bits - 1)
    running = starts[:, None] + np.cumsum(products, axis=1)
    overflows = ((running < -limit) | (running >= limit)).any(axis=1)
    totals = running[:, -1].copy()
    for n in np.flatnonzero(overflows):
        total = starts[n : n + 1]
        for product in products[n]:
            total = saturate(total + product, bits, ACCUMULATOR, place.only([n]))
        totals[n] = total[0]
    return totals


def pixels_of(d: Words) -> Iterator[tuple[int, int]]:
    """Row and column of each pixel of the result."""
    return itertools.product(range(d["out_h"]), range(d["out_w"]))


def channel_index(d: Words, y: int, x: int, channels: int) -> Int64s:
    """Indices in the layer's output of a pixel's channels."""
    origin = d["event_origin"] + y * d["event_stride_y"] + x * d.get("event_stride_x", 0)
    return origin + np.arange(channels, dtype=np.int64)


def scale_tables(spm: Scratchpad, d: Words, channels: int) -> tuple[Int64s, Scale, Scale]:
    """Weight offset, bias scale and output scale of each channel."""
    if d["scales"] == 0:
        offsets = np.full(channels, d["weight_offset"], np.int64)
        return offsets, scale_of(d, "bias"), scale_of(d, "out")
    count = len(SCALE_RECORD.words)
    columns = spm.read(4, grid(d["scales"], (channels, 4 * count), (count, 4))).T
    table = dict(zip((word.name for word in SCALE_RECORD), columns, strict=True))
    bias = Scale(table["bias_pre"], table["bias_mul"], table["bias_post"])
    out = Scale(table["out_pre"], table["out_mul"], table["out_post"])
    return table["weight_offset"], bias, out


def channel_tables(spm: Scratchpad, d: Words, channels: int) -> tuple[Int64s, Int64s]:
    """Bias and zero term of each channel."""
    records = spm.read(8, grid(d["channels"], (channels, CHANNEL_RECORD.nbytes), (2, 8)))
    return records[:, 0].copy(), held(records[:, 1], 62)


def unpack_weights(spm: Scratchpad, d: Words) -> Int64s:
    """Weights of a convolution from their blocks, as [out][ky, kx, channel]."""
    nbytes = element_of(d).nbytes
    row, side = d["kernel_w"] * d["in_channels"], 4 // nbytes
    blocks, runs = -(-d["out_channels"] // 16), -(-row // side)
    shape = (blocks, d["kernel_h"], runs, 16, side)
    packed = spm.read(nbytes, grid(d["weights"], (int(np.prod(shape)), nbytes))).reshape(shape)
    rows = packed.transpose(0, 3, 1, 2, 4).reshape(16 * blocks, d["kernel_h"], side * runs)
    return rows[: d["out_channels"], :, :row].reshape(d["out_channels"], -1)


def windows(spm: Scratchpad, d: Words, depth: int) -> Int64s:
    """The input below each pixel of the result: [out_h, out_w, taps, depth]."""
    nbytes = element_of(d).nbytes
    addresses = grid(
        d["input"],
        (d["out_h"], d["stride_h"] * d["in_row_stride"]),
        (d["out_w"], d["stride_w"] * d["in_pixel_stride"]),
        (d["kernel_h"], d["dilation_h"] * d["in_row_stride"]),
        (d["kernel_w"], d["dilation_w"] * d["in_pixel_stride"]),
        (depth, nbytes),
    )
    taps = d["kernel_h"] * d["kernel_w"]
    return spm.read(nbytes, addresses).reshape(d["out_h"], d["out_w"], taps, depth)


def group_sums(
    d: Words, starts: Int64s, weights: Int64s, window: Int64s, place: ResultPositions
) -> Int64s:
    """Sums of one pixel; each group of output channels sees its own input channels."""
    totals = starts.copy()
    outs, ins = d["out_channels"] // d["groups"], d["in_channels"]
    for group in range(d["groups"]):
        out = slice(group * outs, (group + 1) * outs)
        products = weights[out] * window[:, group * ins : (group + 1) * ins].reshape(-1)
        totals[out] = accumulate(starts[out], products, element_of(d), place.only(out))
    return totals


class PartialSums:
    """The sums of an instruction that is one part of several: [rows][values]."""

    def __init__(self, spm: Scratchpad, d: Words, values: int) -> None:
        self._spm = spm
        self._nbytes = element_of(d).accumulator_bytes
        self._start = d["partial"]
        self._values = values

    def _addresses(self, row: int) -> Int64s:
        start = self._start + row * self._values * self._nbytes
        return grid(start, (self._values, self._nbytes))

    def read(self, row: int) -> Int64s:
        """The sums of a row, held where 64 bits hold what is added to them."""
        return held(self._spm.read(self._nbytes, self._addresses(row)), 62)

    def write(self, row: int, sums: Int64s) -> None:
        """Store the sums of a row."""
        self._spm.write(self._nbytes, self._addresses(row), sums)


def conv(s: Step, d: Words, account: LayerCounters) -> None:
    """``nmp.conv``."""
    spm, channels, pixels = Scratchpad(s.core), d["out_channels"], d["out_h"] * d["out_w"]
    begins, ends = d["part"] in (PART_ONLY, PART_FIRST), d["part"] in (PART_ONLY, PART_LAST)
    partial = PartialSums(spm, d, channels)
    offsets, bias_scale, out_scale = scale_tables(spm, d, channels)
    bias, zero_terms = channel_tables(spm, d, channels)
    q = requantizer_of(d, bias, bias_scale, out_scale)
    weights = unpack_weights(spm, d) - offsets[:, None]
    inputs = windows(spm, d, d["groups"] * d["in_channels"])
    if begins:
        every_pixel = ResultPositions(account, channel_index(d, 0, 0, channels), times=pixels)
        starts = result_of(start(d, zero_terms, q, every_pixel))

    for row, (y, x) in enumerate(pixels_of(d)):
        place = ResultPositions(account, channel_index(d, y, x, channels))
        if not begins:
            starts = partial.read(row)
        totals = group_sums(d, starts, weights, inputs[y, x], place)
        if ends:
            put_results(spm, d, y, x, result_of(finish(totals, d, q, place)))
        else:
            partial.write(row, totals)
    if ends:
        account.add_elements(pixels * channels)


def put_results(spm: Scratchpad, d: Words, y: int, x: int, results: Int64s) -> None:
    """Write the channels of one pixel."""
    nbytes = element_of(d).nbytes
    start = d["output"] + y * d["out_row_stride"] + x * d["out_pixel_stride"]
    spm.write(nbytes, grid(start, (results.size, nbytes)), results)


def dwconv(s: Step, d: Words, account: LayerCounters) -> None:
    """``nmp.dwconv``."""
    spm, channels, pixels = Scratchpad(s.core), d["channels_count"], d["out_h"] * d["out_w"]
    element, taps = element_of(d), d["kernel_h"] * d["kernel_w"]
    nbytes = element.nbytes
    offsets, bias_scale, out_scale = scale_tables(spm, d, channels)
    bias, zero_terms = channel_tables(spm, d, channels)
    q = requantizer_of(d, bias, bias_scale, out_scale)
    at = grid(d["weights"], (taps, channels * nbytes), (channels, nbytes))
    weights = spm.read(nbytes, at) - offsets
    inputs = windows(spm, d, channels)
    every_pixel = ResultPositions(account, channel_index(d, 0, 0, channels), times=pixels)
    starts = result_of(start(d, zero_terms, q, every_pixel))

    for y, x in pixels_of(d):
        place = ResultPositions(account, channel_index(d, y, x, channels))
        totals = accumulate(starts, (weights * inputs[y, x]).T, element, place)
        put_results(spm, d, y, x, result_of(finish(totals, d, q, place)))
    account.add_elements(pixels * channels)


def gemm(s: Step, d: Words, account: LayerCounters) -> None:
    """``nmp.gemm``."""
    spm, element = Scratchpad(s.core), element_of(d)
    rows, inner, columns, nbytes = d["rows"], d["inner"], d["columns"], element.nbytes
    begins, ends = d["part"] in (PART_ONLY, PART_FIRST), d["part"] in (PART_ONLY, PART_LAST)
    partial = PartialSums(spm, d, columns)
    zeros, scale = np.zeros(columns, np.int64), scale_of(d, "out")
    q = requantizer_of(d, bias=zeros, bias_scale=Scale(0, 0, 0), out=scale)
    lhs = spm.read(nbytes, grid(d["lhs"], (rows, d["lhs_stride"]), (inner, nbytes)))
    rhs = spm.read(nbytes, grid(d["rhs"], (inner, d["rhs_stride"]), (columns, nbytes)))
    lhs, rhs = lhs - d["lhs_offset"], rhs - d["rhs_offset"]

    for row in range(rows):
        place = ResultPositions(account, channel_index(d, row, 0, columns))
        starts = zeros if begins else partial.read(row)
        totals = accumulate(starts, (lhs[row][:, None] * rhs).T, element, place)
        if ends:
            to = grid(d["output"] + row * d["out_stride"], (columns, nbytes))
            spm.write(nbytes, to, result_of(finish(totals, d, q, place)))
        else:
            partial.write(row, totals)
    if ends:
        account.add_elements(rows * columns)


INSTRUCTIONS = {"nmp.conv": conv, "nmp.dwconv": dwconv, "nmp.gemm": gemm}
"""Mnemonic -> what it does."""
