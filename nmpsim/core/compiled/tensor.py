"""Tensor instructions: checked, their unit kept busy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.cycles import mac_cycles, vector_unit_cycles
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
from nmpsim.isa.table import Kind, Unit
from nmpsim.isa.words import CONV
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
