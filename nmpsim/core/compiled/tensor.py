"""Tensor instructions: checked, their unit kept busy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled import pure  # noqa: F401 - registers what is called below
from nmpsim.core.compiled.cycles import mac_cycles, vector_unit_cycles
from nmpsim.core.compiled.transfers import load, store
from nmpsim.core.compiled.units import compute
from nmpsim.core.decode import OP
from nmpsim.isa.table import Unit
from nmpsim.isa.words import CONV, DWCONV
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

MAC_UNIT, VECTOR_UNIT = np.int64(Unit.MAC), np.int64(Unit.VECTOR)


@jit
def check(number: Any, d: Any, spm_bytes: Any) -> Any:
    """-1 if the descriptor of instruction ``number`` is possible, else the word that is wrong."""
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
    return check_transpose(d, spm_bytes)


@jit
def check_tables(number: Any, d: Any, spm32: Any) -> Any:
    """As ``check``, for what the descriptor of a convolution, which is possible, points to."""
    channels = d[CONV.out_channels] if number == OP.nmp_conv else d[DWCONV.channels_count]
    if bad_scale_table(spm32, d[CONV.scales], channels, d[CONV.element], d[CONV.profile]):
        return CONV.scales  # both convolutions begin with the same words
    return -1


@jit
def keep_busy(m: Any, costs: Any, core: Any, number: Any, d: Any, layer: Any) -> None:
    """A tensor instruction's unit has work."""
    if number == OP.nmp_load:
        load(m, costs, core, d, layer)
    elif number == OP.nmp_store:
        store(m, costs, core, d, layer)
    elif number == OP.nmp_conv or number == OP.nmp_dwconv or number == OP.nmp_gemm:
        cycles = mac_cycles(m, costs, number, d, layer)
        compute(m, costs, core, MAC_UNIT, layer, cycles)
    else:
        cycles = vector_unit_cycles(costs, number, d)
        compute(m, costs, core, VECTOR_UNIT, layer, cycles)
