"""The copies of ``nmp.load`` and ``nmp.store``."""

from __future__ import annotations

import numpy as np

from nmpsim.core.reference.access import MemoryLocation, locate
from nmpsim.core.reference.context import InstructionContext, make_operand_fault
from nmpsim.core.reference.operands import (
    Descriptor,
    Scratchpad,
    compute_addresses,
    get_element_type,
)
from nmpsim.core.reference.saturation import LayerCounters
from nmpsim.isa.words import LOAD
from nmpsim.memory.address_map import Region
from nmpsim.memory.bounds import count_spanned_bytes


def load(s: InstructionContext, d: Descriptor, _: LayerCounters) -> None:
    """Execute ``nmp.load``: fill the padding, then copy the box into the middle."""
    source = locate_dram(s, d, (Region.IMAGE, Region.RAM))
    rows, runs, run = d["count_y"], d["count_x"], d["run_bytes"]
    spm, step_x, step_y = Scratchpad(s.core), d["spm_stride_x"], d["spm_stride_y"]
    high = d["pad_y_before"] + rows + d["pad_y_after"]
    wide = d["pad_x_before"] + runs + d["pad_x_after"]
    if (wide * high - rows * runs) * run > 0:
        nbytes = get_element_type(d).nbytes
        addresses = compute_addresses(
            d["spm"], (high, step_y), (wide, step_x), (run // nbytes, nbytes)
        )
        spm.write(nbytes, addresses, np.full(addresses.shape, d["fill"]))
    if source is not None:
        corner = d["spm"] + d["pad_y_before"] * step_y + d["pad_x_before"] * step_x
        for y in range(rows):
            for x in range(runs):
                start = source.offset + y * d["dram_stride_y"] + x * d["dram_stride_x"]
                target = spm.view(corner + y * step_y + x * step_x, run)
                target[:] = source.memory[start : start + run]


def store(s: InstructionContext, d: Descriptor, _: LayerCounters) -> None:
    """Execute ``nmp.store``: copy a box out of the scratchpad."""
    target = locate_dram(s, d, (Region.RAM,))
    rows, runs, run = d["count_y"], d["count_x"], d["run_bytes"]
    spm = Scratchpad(s.core)
    if target is not None:
        for y in range(rows):
            for x in range(runs):
                start = target.offset + y * d["dram_stride_y"] + x * d["dram_stride_x"]
                source = spm.view(d["spm"] + y * d["spm_stride_y"] + x * d["spm_stride_x"], run)
                target.memory[start : start + run] = source


def locate_dram(
    s: InstructionContext, d: Descriptor, allowed: tuple[Region, ...]
) -> MemoryLocation | None:
    """Return the first DRAM location of a transfer; None if the box is empty."""
    extent = count_spanned_bytes(
        d["count_y"], d["dram_stride_y"], d["count_x"], d["dram_stride_x"], d["run_bytes"]
    )
    if extent == 0:
        return None
    found = locate(s.core, d["dram"], extent)
    if found is None or found.region not in allowed:
        raise make_operand_fault(s, LOAD.dram)
    return found


INSTRUCTIONS = {"nmp.load": load, "nmp.store": store}
"""Mnemonic -> definition."""
