"""Pools of the vector unit: maximum and average over the taps that exist.

Each instruction: operands, effect.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nmpsim.core.reference.events import LayerCounters, ResultPositions
from nmpsim.core.reference.mac import channel_index, pixels_of, put_results
from nmpsim.core.reference.operands import Words, element_of, scale_of
from nmpsim.core.reference.rounding import quietly, real, round_away, round_even
from nmpsim.core.reference.scales import clip, fixed_point, integer_scale, round_unsigned
from nmpsim.core.reference.scratchpad import Scratchpad, grid
from nmpsim.core.reference.step import Step
from nmpsim.core.state import Int64s
from nmpsim.isa.profiles import FBGEMM, FLOAT, GLOW_FLOAT, GLOW_INT, NMP, Q31, check_profiles
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


def rounded_quotient(values: Int64s, by: int) -> Int64s:
    """Nearest integer of ``values / by``, halves away from zero."""
    result: Int64s = np.sign(values) * ((np.abs(values) + by // 2) // by)
    return result


def glow_int(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Int64s:
    """Glow's libjit rounds twice: the scaled sum, then its quotient."""
    scaled = integer_scale(sums, scale_of(d, "out"), element_of(d), place)
    return rounded_quotient(scaled, divisor) + d["out_offset"]


@quietly
def glow_float(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Int64s:
    """Glow's Interpreter: ``rha(f32(sum) * (m / f32(n)) + f32(Oy))``."""
    factor = scale_of(d, "out").factor / np.float32(divisor)
    return round_away(real(sums) * factor + np.float32(d["out_offset"]))


def q31(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Int64s:
    """Fixed point, then the quotient; TFLite's own average has a scale of one."""
    scaled = fixed_point(sums, scale_of(d, "out"), place)
    return rounded_quotient(scaled, divisor) + d["out_offset"]


@quietly
def float_early(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Int64s:
    """PyTorch's fbgemm and onednn: ``rne(f32(sum) * (m / f32(n)) + f32(Oy))``, Oy unsigned."""
    factor = scale_of(d, "out").factor / np.float32(divisor)
    return round_unsigned(real(sums) * factor, d["out_offset"], element_of(d))


@quietly
def float_late(sums: Int64s, divisor: int, d: Words, place: ResultPositions) -> Int64s:
    """PyTorch's qnnpack, ONNX Runtime: ``rne(f32(sum) * (m / f32(n))) + Oy``."""
    factor = scale_of(d, "out").factor / np.float32(divisor)
    return round_even(real(sums) * factor) + d["out_offset"]


AVERAGES: dict[int, Callable[[Int64s, int, Words, ResultPositions], Int64s]] = {
    GLOW_INT: glow_int,
    NMP: glow_int,
    GLOW_FLOAT: glow_float,
    Q31: q31,
    FLOAT: float_late,
    FBGEMM: float_early,
}
"""Profile -> the average of a sum."""
check_profiles(f"{__name__}.AVERAGES", AVERAGES, "avgpool")


def avgpool(s: Step, d: Words, account: LayerCounters) -> None:
    """``nmp.avgpool``: scaled sum of the taps that exist, divided if asked for."""
    spm = Scratchpad(s.core)
    for y, x in pixels_of(d):
        place = ResultPositions(account, channel_index(d, y, x, d["channels"]))
        taps = existing_taps(d, spm, y, x) - d["in_offset"]
        divisor = len(taps) if d["divide"] == DIVIDE_BY_VALID_TAPS else 1
        values = AVERAGES[d["profile"]](taps.sum(axis=0), max(divisor, 1), d, place)
        put_results(spm, d, y, x, clip(values, d, place))
    account.add_elements(d["out_h"] * d["out_w"] * d["channels"])


INSTRUCTIONS = {"nmp.maxpool": maxpool, "nmp.avgpool": avgpool}
"""Mnemonic -> what it does."""
