"""The vector unit: pools, elementwise operations, rescale, look-up, fill, transpose.

Each function: operands, effect, cost.
"""

from __future__ import annotations

import itertools

import numpy as np

from nmpsim.core.reference.events import Account, clamp, to_int32
from nmpsim.core.reference.mac import places
from nmpsim.core.reference.requantize import Words, clip, rescale, scale_of
from nmpsim.core.reference.scratchpad import Scratchpad, grid
from nmpsim.core.reference.step import Step
from nmpsim.core.state import Int64s
from nmpsim.isa.words import (
    ACTIVATION_LEAKY,
    DIVIDE_BY_VALID_TAPS,
    OP_ADD,
    OP_MAX,
    OP_MIN,
    OP_MUL,
    OP_SUB,
    RHS_INT32,
)
from nmpsim.kernels.stages import ACTIVATION, RESCALE
from nmpsim.timing.compute import pool_cycles, transpose_cycles, vector_cycles


def existing_taps(d: Words, spm: Scratchpad, y: int, x: int) -> Int64s:
    """Input below a pixel of a pool, without padding: [taps, channels]."""
    top, left = y * d["stride_h"] - d["pad_top"], x * d["stride_w"] - d["pad_left"]
    rows = [r for r in range(top, top + d["kernel_h"]) if 0 <= r < d["in_h"]]
    columns = [c for c in range(left, left + d["kernel_w"]) if 0 <= c < d["in_w"]]
    if not rows or not columns:
        return np.zeros((0, d["channels"]), np.int64)
    start = d["input"] + rows[0] * d["in_row_stride"] + columns[0] * d["in_pixel_stride"]
    taps = grid(
        start,
        (len(rows), d["in_row_stride"]),
        (len(columns), d["in_pixel_stride"]),
        (d["channels"], 1),
    )
    return spm.int8(taps).reshape(-1, d["channels"])


def result_pixel(d: Words, y: int, x: int) -> Int64s:
    """Addresses of a pool's result."""
    start = d["output"] + y * d["out_row_stride"] + x * d["out_pixel_stride"]
    return grid(start, (d["channels"], 1))


def window_cycles(s: Step, d: Words) -> int:
    """Cycles of a pool."""
    pixels, taps = d["out_h"] * d["out_w"], d["kernel_h"] * d["kernel_w"]
    return pool_cycles(pixels, taps, d["channels"], 0, s.costs)


def maxpool(s: Step, d: Words, _: Account) -> int:
    """``nmp.maxpool``: maximum of the taps that exist; cycles."""
    spm = Scratchpad(s.core)
    for y, x in itertools.product(range(d["out_h"]), range(d["out_w"])):
        taps = existing_taps(d, spm, y, x)
        best = taps.max(axis=0) if len(taps) else np.full(d["channels"], d["empty_value"])
        spm.put_int8(result_pixel(d, y, x), best)
    return window_cycles(s, d)


def rounded_quotient(value: Int64s, by: int) -> Int64s:
    """Nearest integer of ``value / by``, halves away from zero."""
    result: Int64s = np.sign(value) * ((np.abs(value) + by // 2) // by)
    return result


def avgpool(s: Step, d: Words, account: Account) -> int:
    """``nmp.avgpool``: scaled sum of the taps that exist, divided if asked for; cycles."""
    spm, scale = Scratchpad(s.core), scale_of(d, "out")
    for y, x in itertools.product(range(d["out_h"]), range(d["out_w"])):
        index = places(d, y, x, d["channels"])
        taps = existing_taps(d, spm, y, x) - d["in_offset"]
        values = rescale(taps.sum(axis=0), scale, index, account)
        if d["divide"] == DIVIDE_BY_VALID_TAPS and len(taps):
            values = rounded_quotient(values, len(taps))
        spm.put_int8(result_pixel(d, y, x), clip(values + d["out_offset"], d, index, account))
    account.add_elements(d["out_h"] * d["out_w"] * d["channels"])
    return window_cycles(s, d)


OPERATIONS = {
    OP_ADD: np.add,
    OP_SUB: np.subtract,
    OP_MAX: np.maximum,
    OP_MIN: np.minimum,
}


def eltwise(s: Step, d: Words, account: Account) -> int:
    """``nmp.eltwise``: each side on the result's scale, rounded; then the operation; cycles."""
    spm, rows, columns = Scratchpad(s.core), d["rows"], d["columns"]
    index = grid(d["event_origin"], (rows, d["event_stride_y"]), (columns, 1))
    left = spm.int8(grid(d["lhs"], (rows, d["lhs_stride"]), (columns, 1))) - d["lhs_offset"]
    if d["rhs_kind"] == RHS_INT32:
        right = spm.int32(grid(d["rhs"], (rows, d["rhs_stride"]), (columns, 4)))
    else:
        right = spm.int8(grid(d["rhs"], (rows, d["rhs_stride"]), (columns, 1)))
    right = to_int32(right - d["rhs_offset"], RESCALE, index, account)

    if d["operation"] == OP_MUL:
        product = to_int32(left * right, RESCALE, index, account)
        values = rescale(product, scale_of(d, "out"), index, account)
    else:
        values = OPERATIONS[d["operation"]](
            rescale(left, scale_of(d, "lhs"), index, account),
            rescale(right, scale_of(d, "rhs"), index, account),
        )
    results = clip(values + d["out_offset"], d, index, account)
    spm.put_int8(grid(d["output"], (rows, d["out_stride"]), (columns, 1)), results)
    account.add_elements(rows * columns)
    return vector_cycles(rows, columns, 0, s.costs)


def rescale_elements(s: Step, d: Words, account: Account) -> int:
    """``nmp.rescale``: clamp (an activation), change scale, clip; cycles."""
    spm, count = Scratchpad(s.core), d["count"]
    index = grid(d["event_origin"], (count, 1))
    x = spm.int8(grid(d["input"], (count, 1)))
    x = clamp(x, d["in_low"], d["in_high"], (ACTIVATION, ACTIVATION), index, account)
    x = x - d["in_offset"]
    below = (x < 0) & (d["activation"] == ACTIVATION_LEAKY)
    values = np.zeros(count, np.int64)
    values[below] = rescale(x[below], scale_of(d, "leaky"), index[below], account)
    values[~below] = rescale(x[~below], scale_of(d, "out"), index[~below], account)
    results = clip(values + d["out_offset"], d, index, account)
    spm.put_int8(grid(d["output"], (count, 1)), results)
    account.add_elements(count)
    return vector_cycles(1, count, 0, s.costs)


def lut(s: Step, d: Words, _: Account) -> int:
    """``nmp.lut``: each element through a table; cycles."""
    spm = Scratchpad(s.core)
    table, x = spm.int8(grid(d["table"], (256, 1))), spm.int8(grid(d["input"], (d["count"], 1)))
    spm.put_int8(grid(d["output"], (d["count"], 1)), table[x + 128])
    return vector_cycles(1, d["count"], 0, s.costs)


def fill(s: Step, d: Words, _: Account) -> int:
    """``nmp.fill``: one byte everywhere; cycles."""
    Scratchpad(s.core).run(d["output"], d["count"])[:] = d["value"] & 0xFF
    return vector_cycles(1, d["count"], 0, s.costs)


def transpose(s: Step, d: Words, _: Account) -> int:
    """``nmp.transpose``: strided copy; where results lie on one another the last stays; cycles."""
    spm, size = Scratchpad(s.core), d["element_bytes"]
    sizes = [d[f"size_{n}"] for n in range(4)]
    for place in itertools.product(*map(range, sizes)):
        source = d["input"] + sum(p * d[f"in_stride_{n}"] for n, p in enumerate(place))
        target = d["output"] + sum(p * d[f"out_stride_{n}"] for n, p in enumerate(place))
        spm.run(target, size)[:] = spm.run(source, size)
    return transpose_cycles(int(np.prod(sizes)), s.costs)
