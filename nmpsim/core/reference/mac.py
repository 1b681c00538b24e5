"""The MAC array: convolution, depthwise convolution, matrix product.

A sum starts at sat32(scaled bias) + zero term, saturated; then ``(w - weight_offset) * x`` is
added in the order ky, kx, channel, and 32 bits saturate at every step.

Each function: operands, effect, cost; the queue's and the control core's share is
:mod:`~nmpsim.core.reference.tensor`'s.
"""

from __future__ import annotations

import itertools

import numpy as np

from nmpsim.core.reference.events import Account, to_int32
from nmpsim.core.reference.requantize import Scale, Words, finish, rescale, scale_of
from nmpsim.core.reference.scratchpad import Scratchpad, grid
from nmpsim.core.reference.step import Step
from nmpsim.core.reference.words import INT32_MAX, INT32_MIN
from nmpsim.core.state import Count, Int64s
from nmpsim.isa.table import CHANNEL_RECORD, SCALE_RECORD
from nmpsim.isa.words import PART_FIRST, PART_LAST, PART_ONLY
from nmpsim.kernels.stages import ACCUMULATOR, BIAS
from nmpsim.timing.compute import conv_cycles, depthwise_cycles, gemm_cycles


def accumulate(starts: Int64s, products: Int64s, index: Int64s, account: Account) -> Int64s:
    """``starts`` [n] plus ``products`` [n, k], one after the other, saturated at every step."""
    running = starts[:, None] + np.cumsum(products, axis=1)
    overflows = ((running < INT32_MIN) | (running > INT32_MAX)).any(axis=1)
    totals = running[:, -1].copy()
    for n in np.flatnonzero(overflows):
        total = starts[n : n + 1]
        for product in products[n]:
            total = to_int32(total + product, ACCUMULATOR, index[n : n + 1], account)
        totals[n] = total[0]
    return totals


def places(d: Words, y: int, x: int, channels: int) -> Int64s:
    """Indices in the layer's output of a pixel's channels."""
    origin = d["event_origin"] + y * d["event_stride_y"] + x * d.get("event_stride_x", 0)
    return origin + np.arange(channels, dtype=np.int64)


def scale_tables(spm: Scratchpad, d: Words, channels: int) -> tuple[Int64s, Scale, Scale]:
    """Weight offset, bias scale and output scale of each channel."""
    if d["scales"] == 0:
        offsets = np.full(channels, d["weight_offset"], np.int64)
        return offsets, scale_of(d, "bias"), scale_of(d, "out")
    words = len(SCALE_RECORD.words)
    columns = spm.int32(grid(d["scales"], (channels, 4 * words), (words, 4))).T
    table = dict(zip((word.name for word in SCALE_RECORD), columns, strict=True))
    bias = Scale(table["bias_pre"], table["bias_mul"], table["bias_post"])
    out = Scale(table["out_pre"], table["out_mul"], table["out_post"])
    return table["weight_offset"], bias, out


def sum_starts(
    spm: Scratchpad, d: Words, bias_scale: Scale, channels: int, pixels: int, account: Account
) -> Int64s:
    """Scaled bias plus zero term of each channel; what is cut is cut for every pixel."""
    records = spm.int64(grid(d["channels"], (channels, CHANNEL_RECORD.nbytes), (2, 8)))
    index = places(d, 0, 0, channels)
    bias = to_int32(records[:, 0], BIAS, index, account, pixels)
    bias = rescale(bias, bias_scale, index, account, BIAS, pixels)
    return to_int32(bias + records[:, 1], ACCUMULATOR, index, account, pixels)


def unpack_weights(spm: Scratchpad, d: Words) -> Int64s:
    """Weights of a convolution from their blocks, as [out][ky, kx, channel]."""
    row = d["kernel_w"] * d["in_channels"]
    blocks, fours = -(-d["out_channels"] // 16), -(-row // 4)
    shape = (blocks, d["kernel_h"], fours, 16, 4)
    packed = spm.int8(grid(d["weights"], (int(np.prod(shape)), 1))).reshape(shape)
    rows = packed.transpose(0, 3, 1, 2, 4).reshape(16 * blocks, d["kernel_h"], 4 * fours)
    return rows[: d["out_channels"], :, :row].reshape(d["out_channels"], -1)


def windows(spm: Scratchpad, d: Words, depth: int) -> Int64s:
    """The input below each pixel of the result: [out_h, out_w, taps, depth]."""
    addresses = grid(
        d["input"],
        (d["out_h"], d["stride_h"] * d["in_row_stride"]),
        (d["out_w"], d["stride_w"] * d["in_pixel_stride"]),
        (d["kernel_h"], d["dilation_h"] * d["in_row_stride"]),
        (d["kernel_w"], d["dilation_w"] * d["in_pixel_stride"]),
        (depth, 1),
    )
    taps = d["kernel_h"] * d["kernel_w"]
    return spm.int8(addresses).reshape(d["out_h"], d["out_w"], taps, depth)


def group_sums(
    d: Words, starts: Int64s, weights: Int64s, window: Int64s, index: Int64s, account: Account
) -> Int64s:
    """Sums of one pixel; each group of output channels sees its own input channels."""
    totals = starts.copy()
    outs, ins = d["out_channels"] // d["groups"], d["in_channels"]
    for group in range(d["groups"]):
        out = slice(group * outs, (group + 1) * outs)
        x = window[:, group * ins : (group + 1) * ins].reshape(-1)
        totals[out] = accumulate(starts[out], weights[out] * x, index[out], account)
    return totals


def conv(s: Step, d: Words, account: Account) -> int:
    """``nmp.conv``; cycles."""
    spm, channels, pixels = Scratchpad(s.core), d["out_channels"], d["out_h"] * d["out_w"]
    begins, ends = d["part"] in (PART_ONLY, PART_FIRST), d["part"] in (PART_ONLY, PART_LAST)
    offsets, bias_scale, out_scale = scale_tables(spm, d, channels)
    weights = unpack_weights(spm, d) - offsets[:, None]
    inputs = windows(spm, d, d["groups"] * d["in_channels"])
    if begins:
        starts = sum_starts(spm, d, bias_scale, channels, pixels, account)

    for y, x in itertools.product(range(d["out_h"]), range(d["out_w"])):
        index = places(d, y, x, channels)
        partial = grid(d["partial"] + 4 * channels * (y * d["out_w"] + x), (channels, 4))
        if not begins:
            starts = spm.int32(partial)
        totals = group_sums(d, starts, weights, inputs[y, x], index, account)
        if ends:
            put_results(spm, d, y, x, finish(totals, d, out_scale, index, account))
        else:
            spm.put_int32(partial, totals)
    if ends:
        account.add_elements(pixels * channels)

    taps = d["kernel_h"] * d["kernel_w"]
    count_macs(s, d, pixels * taps * d["in_channels"] * channels)
    return conv_cycles(
        pixels, d["kernel_h"], d["kernel_w"], d["in_channels"], channels, d["groups"], 0, s.costs
    )


def put_results(spm: Scratchpad, d: Words, y: int, x: int, results: Int64s) -> None:
    """Write the channels of one pixel."""
    to = d["output"] + y * d["out_row_stride"] + x * d["out_pixel_stride"]
    spm.put_int8(grid(to, (results.size, 1)), results)


def dwconv(s: Step, d: Words, account: Account) -> int:
    """``nmp.dwconv``; cycles."""
    spm, channels, pixels = Scratchpad(s.core), d["channels_count"], d["out_h"] * d["out_w"]
    taps = d["kernel_h"] * d["kernel_w"]
    offsets, bias_scale, out_scale = scale_tables(spm, d, channels)
    weights = spm.int8(grid(d["weights"], (taps, channels), (channels, 1))) - offsets
    inputs = windows(spm, d, channels)
    starts = sum_starts(spm, d, bias_scale, channels, pixels, account)

    for y, x in itertools.product(range(d["out_h"]), range(d["out_w"])):
        index = places(d, y, x, channels)
        totals = accumulate(starts, (weights * inputs[y, x]).T, index, account)
        put_results(spm, d, y, x, finish(totals, d, out_scale, index, account))
    account.add_elements(pixels * channels)

    count_macs(s, d, pixels * taps * channels)
    return depthwise_cycles(pixels, taps, channels, 0, s.costs)


def gemm(s: Step, d: Words, account: Account) -> int:
    """``nmp.gemm``; cycles."""
    spm = Scratchpad(s.core)
    rows, inner, columns = d["rows"], d["inner"], d["columns"]
    begins, ends = d["part"] in (PART_ONLY, PART_FIRST), d["part"] in (PART_ONLY, PART_LAST)
    lhs = spm.int8(grid(d["lhs"], (rows, d["lhs_stride"]), (inner, 1))) - d["lhs_offset"]
    rhs = spm.int8(grid(d["rhs"], (inner, d["rhs_stride"]), (columns, 1))) - d["rhs_offset"]

    for row in range(rows):
        index = places(d, row, 0, columns)
        partial = grid(d["partial"] + 4 * row * columns, (columns, 4))
        starts = np.zeros(columns, np.int64) if begins else spm.int32(partial)
        totals = accumulate(starts, (lhs[row][:, None] * rhs).T, index, account)
        if ends:
            to = grid(d["output"] + row * d["out_stride"], (columns, 1))
            spm.put_int8(to, finish(totals, d, scale_of(d, "out"), index, account))
        else:
            spm.put_int32(partial, totals)
    if ends:
        account.add_elements(rows * columns)

    count_macs(s, d, rows * inner * columns)
    return gemm_cycles(rows, inner, columns, 0, s.costs)


def count_macs(s: Step, d: Words, macs: int) -> None:
    """Note how many products were summed."""
    layer = min(d["layer"], s.machine.layers.size - 1)
    s.machine.layers[layer]["counts"][Count.MACS] += macs
