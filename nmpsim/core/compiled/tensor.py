"""Checks of tensor instructions, and the work of their units."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.transfers import load, store
from nmpsim.core.instruction_tables import (
    CHANNELS_WORD,
    FOOTPRINT_KIND,
    INSTRUCTION_UNIT,
    OP,
    SCALES_WORD,
    UNIT,
)
from nmpsim.core.state import Count, Machine
from nmpsim.core.units import compute
from nmpsim.isa.words import CONV
from nmpsim.kernels.array_types import Int, Int32s, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.memory.checks import bad_scale_table
from nmpsim.memory.checks import check as check_descriptor
from nmpsim.memory.weight_tail import weight_tail
from nmpsim.timing import Costs
from nmpsim.timing.work import cycles, macs

MACS = int(Count.MACS)


@jit
def validate_descriptor(number: Int, d: Int64s, spm_bytes: int, touches: Int64s) -> Any:
    """Return -1 if a descriptor is valid, else the index of the invalid word.

    ``touches`` is a buffer for a footprint.
    """
    return check_descriptor(FOOTPRINT_KIND[number], d, spm_bytes, touches)


@jit
def validate_tables(number: Int, d: Int64s, spm32: Int32s) -> Any:
    """Return -1 if the tables of a valid descriptor are valid, else the index of its word."""
    table = SCALES_WORD[number]
    if table >= 0:  # both convolutions begin with the same words
        channels = d[CHANNELS_WORD[number]]
        if bad_scale_table(spm32, d[table], channels, d[CONV.element], d[CONV.profile]):
            return table
    return np.int64(-1)


@jit
def find_weight_tail(m: Machine, core: Int, number: Int, d: Int64s) -> Any:
    """Return the address of a nonzero weight beyond the tensor, or -1."""
    if number != OP.nmp_conv:
        return np.int64(-1)
    return weight_tail(d, m.scratchpad[core])


@jit
def start_unit(m: Machine, costs: Costs, core: Int, number: Int, d: Int64s, layer: Int) -> None:
    """Start the work of a tensor instruction on its unit."""
    unit = INSTRUCTION_UNIT[number]
    if unit == UNIT.LOAD:
        load(m, costs, core, d, layer)
    elif unit == UNIT.STORE:
        store(m, costs, core, d, layer)
    else:
        kind = FOOTPRINT_KIND[number]
        m.layers[layer].counts[MACS] += macs(kind, d)
        compute(m, costs, core, unit, layer, cycles(kind, d, costs))
