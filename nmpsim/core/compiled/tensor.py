"""Tensor instructions: checked, their unit kept busy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.transfers import load, store
from nmpsim.core.compiled.units import compute
from nmpsim.core.decode import (
    CHANNELS_WORD,
    INSTRUCTION_UNIT,
    OP,
    SCALES_WORD,
    UNIT,
    decides_instructions,
)
from nmpsim.core.state import Count
from nmpsim.isa.table import Kind, Unit
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
from nmpsim.memory.checks import (
    bad_scale_table,
    check_avgpool,
    check_conv,
    check_dwconv,
    check_eltwise,
    check_fill,
    check_gemm,
    check_load,
    check_lut,
    check_maxpool,
    check_rescale,
    check_store,
    check_transpose,
)
from nmpsim.memory.weight_tail import weight_tail
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


MAC_UNIT, VECTOR_UNIT = np.int64(Unit.MAC), np.int64(Unit.VECTOR)
NO_SUCH: Any = np.int64(-2)


@jit
@decides_instructions(Kind.TENSOR)
def check(number: Any, d: Any, spm_bytes: Any) -> Any:
    """-1 if the descriptor of instruction ``number`` is possible, else the word that is wrong.

    NO_SUCH if there is no such tensor instruction.
    """
    if number == OP.nmp_load:
        return check_load(d, spm_bytes)
    if number == OP.nmp_store:
        return check_store(d, spm_bytes)
    if number == OP.nmp_conv:
        return check_conv(d, spm_bytes)
    if number == OP.nmp_dwconv:
        return check_dwconv(d, spm_bytes)
    if number == OP.nmp_gemm:
        return check_gemm(d, spm_bytes)
    if number == OP.nmp_maxpool:
        return check_maxpool(d, spm_bytes)
    if number == OP.nmp_avgpool:
        return check_avgpool(d, spm_bytes)
    if number == OP.nmp_eltwise:
        return check_eltwise(d, spm_bytes)
    if number == OP.nmp_rescale:
        return check_rescale(d, spm_bytes)
    if number == OP.nmp_lut:
        return check_lut(d, spm_bytes)
    if number == OP.nmp_fill:
        return check_fill(d, spm_bytes)
    if number == OP.nmp_transpose:
        return check_transpose(d, spm_bytes)
    return NO_SUCH


@jit
def check_tables(number: Any, d: Any, spm32: Any) -> Any:
    """As ``check``, for what a descriptor, which is possible, points to."""
    table = SCALES_WORD[number]
    if table >= 0:  # both convolutions begin with the same words
        channels = d[CHANNELS_WORD[number]]
        if bad_scale_table(spm32, d[table], channels, d[CONV.element], d[CONV.profile]):
            return table
    return np.int64(-1)


@jit
def weight_tail_of(m: Any, core: Any, number: Any, d: Any) -> Any:
    """Address of a byte of weights that the contract asks to be zero and that is not, or -1."""
    if number != OP.nmp_conv:
        return np.int64(-1)
    return weight_tail(d, m.scratchpad[core])


@jit
def keep_busy(m: Any, costs: Any, core: Any, number: Any, d: Any, layer: Any) -> None:
    """A tensor instruction's unit has work."""
    unit = INSTRUCTION_UNIT[number]
    if unit == UNIT.LOAD:
        load(m, costs, core, d, layer)
    elif unit == UNIT.STORE:
        store(m, costs, core, d, layer)
    elif unit == UNIT.MAC:
        compute(m, costs, core, MAC_UNIT, layer, mac_cycles(m, costs, number, d, layer))
    elif unit == UNIT.VECTOR:
        compute(m, costs, core, VECTOR_UNIT, layer, vector_unit_cycles(costs, number, d))
