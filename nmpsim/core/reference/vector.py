"""The vector unit: pools, elementwise operations, rescaling, look-up, fill and transposition."""

from __future__ import annotations

import itertools

import numpy as np

from nmpsim.core.reference.arithmetic import FormulaSteps, clip, evaluate, make_step
from nmpsim.core.reference.mac import compute_channel_indices, iterate_pixels, write_pixel
from nmpsim.core.reference.operands import (
    Descriptor,
    Scratchpad,
    compute_addresses,
    get_element_type,
)
from nmpsim.core.reference.profiles.formulas import ProfileFormulas
from nmpsim.core.reference.program_formulas import find_formulas
from nmpsim.core.reference.saturation import LayerCounters, ResultPositions, clamp, saturate
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ACTIVATION_LEAKY, DIVIDE_BY_VALID_TAPS, RHS_INT32
from nmpsim.kernels.saturation_stages import ACTIVATION, RESCALE


def read_valid_taps(d: Descriptor, spm: Scratchpad, y: int, x: int) -> Int64s:
    """Read the valid taps [taps, channels] of a pool's window, without taps in the padding."""
    nbytes = get_element_type(d).nbytes
    top, left = y * d["stride_h"] - d["pad_top"], x * d["stride_w"] - d["pad_left"]
    rows = [r for r in range(top, top + d["kernel_h"]) if 0 <= r < d["in_h"]]
    columns = [c for c in range(left, left + d["kernel_w"]) if 0 <= c < d["in_w"]]
    if not rows or not columns:
        return np.zeros((0, d["channels"]), np.int64)
    start = d["input"] + rows[0] * d["in_row_stride"] + columns[0] * d["in_pixel_stride"]
    taps = compute_addresses(
        start,
        (len(rows), d["in_row_stride"]),
        (len(columns), d["in_pixel_stride"]),
        (d["channels"], nbytes),
    )
    return spm.read(nbytes, taps).reshape(-1, d["channels"])


def compute_maximum(taps: Int64s, d: Descriptor) -> FormulaSteps:
    """Compute the maximum of a window's taps, or ``empty_value`` if the window has no valid tap."""
    if len(taps):
        yield make_step("maximum", taps.max(axis=0), "of {count} taps", count=len(taps))
    else:
        empty = np.full(taps.shape[1], d["empty_value"])
        yield make_step("maximum", empty, "nothing but padding: the descriptor's value")


def maxpool(spm: Scratchpad, d: Descriptor, _: LayerCounters) -> None:
    """Execute ``nmp.maxpool``: the maximum over valid taps."""
    for y, x in iterate_pixels(d):
        write_pixel(spm, d, y, x, evaluate(compute_maximum(read_valid_taps(d, spm, y, x), d)))


def compute_average(
    taps: Int64s, d: Descriptor, formulas: ProfileFormulas, place: ResultPositions
) -> FormulaSteps:
    """Compute the average of a window's taps [taps, channels]: sum, profile formula, clip."""
    count, offset = len(taps), d["in_offset"]
    sums = formulas.total(taps - offset, d)
    yield make_step("sum", sums, "of {count} taps less {offset}", count=count, offset=offset)
    divisor = max(count, 1) if d["divide"] == DIVIDE_BY_VALID_TAPS else 1
    assert formulas.average is not None
    values = yield from formulas.average(sums, divisor, d, place)
    yield clip(values, d, place)


def avgpool(spm: Scratchpad, d: Descriptor, account: LayerCounters) -> None:
    """Execute ``nmp.avgpool``: scale the sum of valid taps, and divide it if required."""
    formulas = find_formulas(spm, d)
    for y, x in iterate_pixels(d):
        place = ResultPositions(account, compute_channel_indices(d, y, x, d["channels"]))
        steps = compute_average(read_valid_taps(d, spm, y, x), d, formulas, place)
        write_pixel(spm, d, y, x, evaluate(steps))
    account.add_elements(d["out_h"] * d["out_w"] * d["channels"])


def compute_eltwise(
    left: Int64s, right: Int64s, d: Descriptor, formulas: ProfileFormulas, place: ResultPositions
) -> FormulaSteps:
    """Compute an elementwise operation: subtract zero points, apply the profile's formula, clip."""
    formula = "{stored} - {offset}"
    stored, offset = left, d["lhs_offset"]
    left = stored - offset
    yield make_step("lhs", left, formula, stored=stored, offset=offset)
    stored, offset = right, d["rhs_offset"]
    right = saturate(stored - offset, 32, RESCALE, place)
    yield make_step("rhs", right, formula, stored=stored, offset=offset)
    assert formulas.pair is not None
    values = yield from formulas.pair(left, right, d, place)
    yield clip(values, d, place)


def eltwise(spm: Scratchpad, d: Descriptor, account: LayerCounters) -> None:
    """Execute ``nmp.eltwise``: one operation on two tensors, each with its own scale."""
    rows, columns = d["rows"], d["columns"]
    nbytes = get_element_type(d).nbytes
    right_bytes = 4 if d["rhs_kind"] == RHS_INT32 else nbytes

    def addresses(name: str, nbytes: int) -> Int64s:
        return compute_addresses(
            d[name], (rows, d[f"{name.removesuffix('put')}_stride"]), (columns, nbytes)
        )

    index = compute_addresses(d["event_origin"], (rows, d["event_stride_y"]), (columns, 1))
    place = ResultPositions(account, index)
    left = spm.read(nbytes, addresses("lhs", nbytes))
    right = spm.read(right_bytes, addresses("rhs", right_bytes))
    formulas = find_formulas(spm, d)
    results = evaluate(compute_eltwise(left, right, d, formulas, place))
    spm.write(nbytes, addresses("output", nbytes), results)
    account.add_elements(rows * columns)


def rescale_values(
    x: Int64s, d: Descriptor, formulas: ProfileFormulas, place: ResultPositions
) -> FormulaSteps:
    """Rescale values: clamp, subtract the zero point, apply the profile's formula, and clip."""
    low, high, offset = d["in_low"], d["in_high"], d["in_offset"]
    x = clamp(x, low, high, (ACTIVATION, ACTIVATION), place)
    yield make_step("clamped", x, "to {low} ... {high}, an activation", low=low, high=high)
    x = x - offset
    yield make_step("x", x, "less {offset}", offset=offset)
    is_leaky = d["activation"] == ACTIVATION_LEAKY
    below = (x < 0) & is_leaky
    if is_leaky:
        description = "1 where x is below 0: the leaky scale holds"
        yield make_step("below", below.astype(np.int64), description)
    assert formulas.rescale is not None
    values = yield from formulas.rescale(x, below, d, place)
    yield clip(values, d, place)


def rescale(spm: Scratchpad, d: Descriptor, account: LayerCounters) -> None:
    """Execute ``nmp.rescale``: apply an activation, change the scale, clip the result."""
    count, nbytes = d["count"], get_element_type(d).nbytes
    place = ResultPositions(account, compute_addresses(d["event_origin"], (count, 1)))
    x = spm.read(nbytes, compute_addresses(d["input"], (count, nbytes)))
    formulas = find_formulas(spm, d)
    results = evaluate(rescale_values(x, d, formulas, place))
    spm.write(nbytes, compute_addresses(d["output"], (count, nbytes)), results)
    account.add_elements(count)


def lut(spm: Scratchpad, d: Descriptor, _: LayerCounters) -> None:
    """Execute ``nmp.lut``: replace each byte by its entry in a table."""
    count = d["count"]
    table = spm.read(1, compute_addresses(d["table"], (256, 1)))
    x = spm.read(1, compute_addresses(d["input"], (count, 1)))
    spm.write(1, compute_addresses(d["output"], (count, 1)), table[x + 128])


def fill(spm: Scratchpad, d: Descriptor, _: LayerCounters) -> None:
    """Execute ``nmp.fill``: write one value to all elements."""
    nbytes, count = get_element_type(d).nbytes, d["count"]
    addresses = compute_addresses(d["output"], (count, nbytes))
    spm.write(nbytes, addresses, np.full(count, d["value"], np.int64))


def transpose(spm: Scratchpad, d: Descriptor, _: LayerCounters) -> None:
    """Execute ``nmp.transpose``: copy elements with strides; the last write to a byte remains."""
    size = d["element_bytes"]
    sizes = [d[f"size_{n}"] for n in range(4)]
    for place in itertools.product(*map(range, sizes)):
        source = d["input"] + sum(p * d[f"in_stride_{n}"] for n, p in enumerate(place))
        target = d["output"] + sum(p * d[f"out_stride_{n}"] for n, p in enumerate(place))
        spm.view(target, size)[:] = spm.view(source, size)


INSTRUCTIONS = {
    "nmp.maxpool": maxpool,
    "nmp.avgpool": avgpool,
    "nmp.eltwise": eltwise,
    "nmp.rescale": rescale,
    "nmp.lut": lut,
    "nmp.fill": fill,
    "nmp.transpose": transpose,
}
"""Mnemonic -> definition."""
