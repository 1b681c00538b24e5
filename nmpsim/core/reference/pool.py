"""Pools of the vector unit: maximum and average over the taps that exist.

Each instruction: operands, effect.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.arithmetic import Steps, clip, result_of
from nmpsim.core.reference.events import LayerCounters, ResultPositions
from nmpsim.core.reference.mac import channel_index, pixels_of, put_results
from nmpsim.core.reference.operands import Scratchpad, Words, element_of, grid
from nmpsim.core.reference.profiles import AVERAGES, TOTALS
from nmpsim.core.reference.step import Step
from nmpsim.core.state import Int64s
from nmpsim.isa.words import DIVIDE_BY_VALID_TAPS


def existing_taps(d: Words, spm: Scratchpad, y: int, x: int) -> Int64s:
    """Input below a pixel of a pool, without padding: [taps, channels]."""
    nbytes = element_of(d).nbytes
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
        (d["channels"], nbytes),
    )
    return spm.read(nbytes, taps).reshape(-1, d["channels"])


def maxpool(s: Step, d: Words, _: LayerCounters) -> None:
    """``nmp.maxpool``: maximum of the taps that exist."""
    spm = Scratchpad(s.core)
    for y, x in pixels_of(d):
        taps = existing_taps(d, spm, y, x)
        best = taps.max(axis=0) if len(taps) else np.full(d["channels"], d["empty_value"])
        put_results(spm, d, y, x, best)


def total(taps: Int64s, d: Words) -> Any:
    """What the taps [taps, channels] of a window add up to, less their zero point."""
    return TOTALS[d["profile"]](taps, d)


def average(sums: Any, divisor: int, d: Words, place: ResultPositions) -> Steps:
    """Averages of the sums of windows: profile, clip."""
    values = yield from AVERAGES[d["profile"]](sums, divisor, d, place)
    yield clip(values, d, place)


def avgpool(s: Step, d: Words, account: LayerCounters) -> None:
    """``nmp.avgpool``: scaled sum of the taps that exist, divided if asked for."""
    spm = Scratchpad(s.core)
    for y, x in pixels_of(d):
        place = ResultPositions(account, channel_index(d, y, x, d["channels"]))
        taps = existing_taps(d, spm, y, x) - d["in_offset"]
        divisor = len(taps) if d["divide"] == DIVIDE_BY_VALID_TAPS else 1
        steps = average(total(taps, d), max(divisor, 1), d, place)
        put_results(spm, d, y, x, result_of(steps))
    account.add_elements(d["out_h"] * d["out_w"] * d["channels"])


INSTRUCTIONS = {"nmp.maxpool": maxpool, "nmp.avgpool": avgpool}
"""Mnemonic -> what it does."""
