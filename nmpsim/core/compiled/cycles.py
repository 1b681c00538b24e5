"""How long a unit works on an instruction, and what is counted of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.decode import OP, decides_instructions
from nmpsim.core.state import Count
from nmpsim.isa.table import Unit
from nmpsim.isa.words import (
    CONV,
    DWCONV,
    ELTWISE,
    FILL,
    GEMM,
    LUT,
    MAXPOOL,
    RESCALE,
    TRANSPOSE,
)
from nmpsim.kernels.jit import jit
from nmpsim.timing.compute import (
    conv_cycles,
    depthwise_cycles,
    gemm_cycles,
    pool_cycles,
    transpose_cycles,
    vector_cycles,
)

MACS = int(Count.MACS)
ONE_ROW: Any = np.int64(1)
INT8: Any = np.int64(0)
NONE: Any = np.int64(0)


@jit
@decides_instructions(unit=Unit.MAC)
def mac_cycles(m: Any, costs: Any, number: Any, d: Any, layer: Any) -> Any:
    """Cycles of the MAC array; its multiplications are counted."""
    counts = m.layers[layer].counts
    if number == OP.nmp_gemm:
        rows, inner, columns = d[GEMM.rows], d[GEMM.inner], d[GEMM.columns]
        counts[MACS] += rows * inner * columns
        return gemm_cycles(rows, inner, columns, d[GEMM.element], costs)
    if number == OP.nmp_dwconv:
        pixels, channels = d[DWCONV.out_h] * d[DWCONV.out_w], d[DWCONV.channels_count]
        taps = d[DWCONV.kernel_h] * d[DWCONV.kernel_w]
        counts[MACS] += pixels * taps * channels
        return depthwise_cycles(pixels, taps, channels, d[DWCONV.element], costs)
    if number == OP.nmp_conv:
        pixels, groups = d[CONV.out_h] * d[CONV.out_w], d[CONV.groups]
        high, wide = d[CONV.kernel_h], d[CONV.kernel_w]
        taken, given = d[CONV.in_channels], d[CONV.out_channels]
        counts[MACS] += pixels * high * wide * taken * given
        return conv_cycles(pixels, high, wide, taken, given, groups, d[CONV.element], costs)
    return NONE  # of another unit; the check of descriptors let none through


@jit
@decides_instructions(unit=Unit.VECTOR)
def vector_unit_cycles(costs: Any, number: Any, d: Any) -> Any:
    """Cycles of the vector unit."""
    if number == OP.nmp_maxpool or number == OP.nmp_avgpool:
        pixels, taps = (
            d[MAXPOOL.out_h] * d[MAXPOOL.out_w],
            d[MAXPOOL.kernel_h] * d[MAXPOOL.kernel_w],
        )
        return pool_cycles(pixels, taps, d[MAXPOOL.channels], d[MAXPOOL.element], costs)
    if number == OP.nmp_eltwise:
        return vector_cycles(d[ELTWISE.rows], d[ELTWISE.columns], d[ELTWISE.element], costs)
    if number == OP.nmp_rescale:
        return vector_cycles(ONE_ROW, d[RESCALE.count], d[RESCALE.element], costs)
    if number == OP.nmp_fill:
        return vector_cycles(ONE_ROW, d[FILL.count], d[FILL.element], costs)
    if number == OP.nmp_lut:
        return vector_cycles(ONE_ROW, d[LUT.count], INT8, costs)
    if number == OP.nmp_transpose:
        i = TRANSPOSE.size_0
        return transpose_cycles(d[i] * d[i + 1] * d[i + 2] * d[i + 3], costs)
    return NONE  # as above
