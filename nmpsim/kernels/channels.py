"""What each output channel brings to a sum and its result: a table of integers, a table of reals.

The loops that follow take their rows as they are: what a profile lacks is plus zero or times one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.words import CHANNEL, CHANNEL_BYTES, SCALE, SCALE_BYTES
from nmpsim.kernels.array_types import Int, Int32s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import Scratchpad
from nmpsim.kernels.operands import IntegerScale, Operands, Quantizer
from nmpsim.kernels.rounding import HELD, held
from nmpsim.kernels.workspace_size import INTEGERS, REALS

OFFSET, START, PRE, MUL, HALF, POST, MOST, ADDEND = range(INTEGERS)
"""Rows of the integers: zero point of the weights, start of a sum, integer scale, largest factor
of an Int16 product, what is added to the scaled sum."""
AHEAD, FACTOR, BIAS_REAL, AFTER = range(REALS)
"""Rows of the reals: ``t = f32(sum) * ahead * factor``, ``t = (t + bias) * after``; each operation
is rounded to float32. All are float32 values but the bias, which is float64."""


@jit
def scale_in(record: Int32s, i: Int) -> Any:
    """The scale whose ``pre`` is word ``i`` of a scale record."""
    return IntegerScale(np.int64(record[i]), np.int64(record[i + 1]), np.int64(record[i + 2]))


@jit
def scales_of(spm: Scratchpad, at: Operands, channel: Int, q: Quantizer) -> Any:
    """Weight offset, bias scale and output scale of one channel."""
    if at.scales < 0:
        return q.weight_offset, q.bias, q.out
    i = (at.scales + SCALE_BYTES * channel) >> 2
    record = spm.i32[i : i + SCALE_BYTES // 4]
    return (
        np.int64(record[SCALE.weight_offset]),
        scale_in(record, SCALE.bias_pre),
        scale_in(record, SCALE.out_pre),
    )


@jit
def record_of(spm: Scratchpad, at: Operands, channel: Int) -> Any:
    """Bias and zero term of one channel."""
    if at.channels < 0:
        return np.int64(0), np.int64(0)
    i = (at.channels + CHANNEL_BYTES * channel) >> 3
    return spm.i64[i + CHANNEL.bias_low // 2], held(spm.i64[i + CHANNEL.zero_term_low // 2], HELD)
