"""Table of what each output channel contributes to sums and results: int64 [TABLE_ROWS, channels].

Its rows are those below and, from FIRST_PARAMETER on, the parameters of the profile's formula of
sums (see ``profiles.py``); floats are stored as their bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.words import CHANNEL, CHANNEL_BYTES, SCALE, SCALE_BYTES
from nmpsim.kernels.array_types import Int, Int32s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import ScratchpadViews
from nmpsim.kernels.operands import IntegerScaleRecord, OperandOffsets, Quantizer
from nmpsim.kernels.rounding import MAX_MAGNITUDE, hold

OFFSET, START, FIRST_PARAMETER = range(3)
"""Rows: zero point of the weights; initial sum; first parameter."""


@jit
def read_scale(record: Int32s, i: Int) -> Any:
    """Read the integer scale stored in words ``i`` to ``i + 2`` of a scale record."""
    return IntegerScaleRecord(np.int64(record[i]), np.int64(record[i + 1]), np.int64(record[i + 2]))


@jit
def read_channel_scales(
    spm: ScratchpadViews, at: OperandOffsets, channel: Int, q: Quantizer
) -> Any:
    """Read a channel's weight zero point, bias scale and output scale."""
    if at.scales < 0:
        return q.weight_offset, q.bias, q.out
    i = (at.scales + SCALE_BYTES * channel) >> 2
    record = spm.i32[i : i + SCALE_BYTES // 4]
    return (
        np.int64(record[SCALE.weight_offset]),
        read_scale(record, SCALE.bias_pre),
        read_scale(record, SCALE.out_pre),
    )


@jit
def read_channel_record(spm: ScratchpadViews, at: OperandOffsets, channel: Int) -> Any:
    """Return a channel's bias and zero-point term, or zeros if the tile has no channel records."""
    if at.channels < 0:
        return np.int64(0), np.int64(0)
    i = (at.channels + CHANNEL_BYTES * channel) >> 3
    zero_term = spm.i64[i + CHANNEL.zero_term_low // 2]
    return spm.i64[i + CHANNEL.bias_low // 2], hold(zero_term, MAX_MAGNITUDE)
