"""The MAC array: convolution, depthwise convolution, matrix product.

A sum starts at bias plus zero term; then ``(w - weight_offset) * x`` is added in the order ky, kx,
channel, and the accumulator (32 bits for Int8, 48 for Int16) saturates at every step. Queues and
the control core are handled by :mod:`~nmpsim.core.reference.tensor`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from nmpsim.core.reference.arithmetic import clamp_bits, evaluate
from nmpsim.core.reference.operands import (
    Descriptor,
    ElementType,
    Scale,
    Scratchpad,
    compute_addresses,
    get_element_type,
    get_scale,
)
from nmpsim.core.reference.program_formulas import find_formulas
from nmpsim.core.reference.requantize import (
    compute_initial_sums,
    finish_sums,
    make_requantization_parameters,
)
from nmpsim.core.reference.saturation import LayerCounters, ResultPositions, saturate
from nmpsim.core.state import Int64s
from nmpsim.isa.table import CHANNEL_RECORD, SCALE_RECORD
from nmpsim.isa.words import PART_FIRST, PART_LAST, PART_ONLY
from nmpsim.kernels.saturation_stages import ACCUMULATOR


def accumulate(
    starts: Int64s, products: Int64s, element: ElementType, place: ResultPositions
) -> Int64s:
    """Add ``products`` [n, k] to ``starts`` [n] in order, saturating each sum; return the sums."""
    bits = element.accumulator_bits
    limit = 1 << (bits - 1)
    running = starts[:, None] + np.cumsum(products, axis=1)
    overflows = ((running < -limit) | (running >= limit)).any(axis=1)
    totals = running[:, -1].copy()
    for n in np.flatnonzero(overflows):
        total = starts[n : n + 1]
        for product in products[n]:
            total = saturate(total + product, bits, ACCUMULATOR, place.select([n]))
        totals[n] = total[0]
    return totals


def iterate_pixels(d: Descriptor) -> Iterator[tuple[int, int]]:
    """Yield the row and column of each output pixel."""
    return itertools.product(range(d["out_h"]), range(d["out_w"]))


def compute_channel_indices(d: Descriptor, y: int, x: int, channels: int) -> Int64s:
    """Compute the indices of a pixel's channels in the layer's output."""
    origin = d["event_origin"] + y * d["event_stride_y"] + x * d.get("event_stride_x", 0)
    return origin + np.arange(channels, dtype=np.int64)


def read_scale_tables(spm: Scratchpad, d: Descriptor, channels: int) -> tuple[Int64s, Scale, Scale]:
    """Read the weight offset, the bias scale and the output scale of each channel."""
    if d["scales"] == 0:
        offsets = np.full(channels, d["weight_offset"], np.int64)
        return offsets, get_scale(d, "bias"), get_scale(d, "out")
    count = len(SCALE_RECORD.words)
    columns = spm.read(4, compute_addresses(d["scales"], (channels, 4 * count), (count, 4))).T
    table = dict(zip((word.name for word in SCALE_RECORD), columns, strict=True))
    bias = Scale(table["bias_pre"], table["bias_mul"], table["bias_post"])
    out = Scale(table["out_pre"], table["out_mul"], table["out_post"])
    return table["weight_offset"], bias, out


def read_channel_tables(spm: Scratchpad, d: Descriptor, channels: int) -> tuple[Int64s, Int64s]:
    """Read the bias and the zero-point term of each channel from the channel records."""
    records = spm.read(
        8, compute_addresses(d["channels"], (channels, CHANNEL_RECORD.nbytes), (2, 8))
    )
    return records[:, 0].copy(), clamp_bits(records[:, 1], 62)


def unpack_weights(spm: Scratchpad, d: Descriptor) -> Int64s:
    """Unpack a convolution's weights from a scratchpad to an array [out][ky, kx, channel]."""
    nbytes = get_element_type(d).nbytes
    row, side = d["kernel_w"] * d["in_channels"], 4 // nbytes
    blocks, runs = -(-d["out_channels"] // 16), -(-row // side)
    shape = (blocks, d["kernel_h"], runs, 16, side)
    packed = spm.read(
        nbytes, compute_addresses(d["weights"], (int(np.prod(shape)), nbytes))
    ).reshape(shape)
    rows = packed.transpose(0, 3, 1, 2, 4).reshape(16 * blocks, d["kernel_h"], side * runs)
    return rows[: d["out_channels"], :, :row].reshape(d["out_channels"], -1)


def read_windows(spm: Scratchpad, d: Descriptor, depth: int) -> Int64s:
    """Read the input window of each output pixel as [out_h, out_w, taps, depth]."""
    nbytes = get_element_type(d).nbytes
    addresses = compute_addresses(
        d["input"],
        (d["out_h"], d["stride_h"] * d["in_row_stride"]),
        (d["out_w"], d["stride_w"] * d["in_pixel_stride"]),
        (d["kernel_h"], d["dilation_h"] * d["in_row_stride"]),
        (d["kernel_w"], d["dilation_w"] * d["in_pixel_stride"]),
        (depth, nbytes),
    )
    taps = d["kernel_h"] * d["kernel_w"]
    return spm.read(nbytes, addresses).reshape(d["out_h"], d["out_w"], taps, depth)


def multiply_window(weights: Int64s, window: Int64s, groups: int) -> Int64s:
    """Return the products [channels, k] of a pixel, in the order in which they are added.

    Each group of the output channels of ``weights`` [channels, k] has its own channels of
    ``window`` [taps, channels].
    """
    inputs = window.reshape(len(window), groups, -1).swapaxes(0, 1).reshape(groups, 1, -1)
    return (weights.reshape(groups, -1, weights.shape[1]) * inputs).reshape(weights.shape)


class PartialSums:
    """Partial sums [rows][values] that an instruction reads or writes."""

    def __init__(self, spm: Scratchpad, d: Descriptor, values: int) -> None:
        self._spm = spm
        self._nbytes = get_element_type(d).accumulator_bytes
        part = d.get("part", PART_ONLY)
        self.begins = part in (PART_ONLY, PART_FIRST)
        """Whether the instruction begins the sums."""
        self.ends = part in (PART_ONLY, PART_LAST)
        """Whether the instruction completes the sums."""
        self._start = d.get("partial", 0)
        self._values = values

    def _addresses(self, row: int) -> Int64s:
        start = self._start + row * self._values * self._nbytes
        return compute_addresses(start, (self._values, self._nbytes))

    def read(self, row: int) -> Int64s:
        """Read the sums of a row, clamped so that additions do not overflow int64."""
        return clamp_bits(self._spm.read(self._nbytes, self._addresses(row)), 62)

    def write(self, row: int, sums: Int64s) -> None:
        """Write the sums of a row."""
        self._spm.write(self._nbytes, self._addresses(row), sums)


def convolve(
    spm: Scratchpad, d: Descriptor, account: LayerCounters, groups: int, weights: Int64s
) -> None:
    """Execute a convolution of ``groups`` groups with weights [channels, k] as stored."""
    channels, pixels, taps = len(weights), d["out_h"] * d["out_w"], d["kernel_h"] * d["kernel_w"]
    partial = PartialSums(spm, d, channels)
    offsets, bias_scale, out_scale = read_scale_tables(spm, d, channels)
    bias, zero_terms = read_channel_tables(spm, d, channels)
    q = make_requantization_parameters(d, find_formulas(spm, d), bias, bias_scale, out_scale)
    weights = weights - offsets[:, None]
    inputs = read_windows(spm, d, groups * weights.shape[1] // taps)
    if partial.begins:
        every_pixel = ResultPositions(
            account, compute_channel_indices(d, 0, 0, channels), times=pixels
        )
        starts = evaluate(compute_initial_sums(d, zero_terms, q, every_pixel))

    for row, (y, x) in enumerate(iterate_pixels(d)):
        place = ResultPositions(account, compute_channel_indices(d, y, x, channels))
        if not partial.begins:
            starts = partial.read(row)
        products = multiply_window(weights, inputs[y, x], groups)
        totals = accumulate(starts, products, get_element_type(d), place)
        if partial.ends:
            write_pixel(spm, d, y, x, evaluate(finish_sums(totals, d, q, place)))
        else:
            partial.write(row, totals)
    if partial.ends:
        account.add_elements(pixels * channels)


def write_pixel(spm: Scratchpad, d: Descriptor, y: int, x: int, results: Int64s) -> None:
    """Write the channels of one output pixel."""
    nbytes = get_element_type(d).nbytes
    start = d["output"] + y * d["out_row_stride"] + x * d["out_pixel_stride"]
    spm.write(nbytes, compute_addresses(start, (results.size, nbytes)), results)


def conv(spm: Scratchpad, d: Descriptor, account: LayerCounters) -> None:
    """Execute ``nmp.conv``, a convolution in the scratchpad; count saturated values."""
    convolve(spm, d, account, d["groups"], unpack_weights(spm, d))


def dwconv(spm: Scratchpad, d: Descriptor, account: LayerCounters) -> None:
    """Execute ``nmp.dwconv``, a depthwise convolution in the scratchpad; count saturated values."""
    channels, nbytes = d["channels_count"], get_element_type(d).nbytes
    taps = d["kernel_h"] * d["kernel_w"]
    at = compute_addresses(d["weights"], (taps, channels * nbytes), (channels, nbytes))
    convolve(spm, d, account, channels, spm.read(nbytes, at).T)


def gemm(spm: Scratchpad, d: Descriptor, account: LayerCounters) -> None:
    """Execute ``nmp.gemm``, a matrix product in the scratchpad; count saturated values."""
    rows, inner, columns = d["rows"], d["inner"], d["columns"]
    element = get_element_type(d)
    nbytes = element.nbytes
    partial = PartialSums(spm, d, columns)
    zeros, scale = np.zeros(columns, np.int64), get_scale(d, "out")
    q = make_requantization_parameters(
        d, find_formulas(spm, d), bias=zeros, bias_scale=Scale(0, 0, 0), out=scale
    )
    lhs = spm.read(nbytes, compute_addresses(d["lhs"], (rows, d["lhs_stride"]), (inner, nbytes)))
    rhs = spm.read(nbytes, compute_addresses(d["rhs"], (inner, d["rhs_stride"]), (columns, nbytes)))
    lhs, rhs = lhs - d["lhs_offset"], rhs - d["rhs_offset"]

    for row in range(rows):
        place = ResultPositions(account, compute_channel_indices(d, row, 0, columns))
        starts = zeros if partial.begins else partial.read(row)
        totals = accumulate(starts, (lhs[row][:, None] * rhs).T, element, place)
        if partial.ends:
            to = compute_addresses(d["output"] + row * d["out_stride"], (columns, nbytes))
            spm.write(nbytes, to, evaluate(finish_sums(totals, d, q, place)))
        else:
            partial.write(row, totals)
    if partial.ends:
        account.add_elements(rows * columns)


INSTRUCTIONS = {"nmp.conv": conv, "nmp.dwconv": dwconv, "nmp.gemm": gemm}
"""Mnemonic -> definition."""
