"""``nmp.load`` and ``nmp.store``: the copy, and the transfer that the DRAM then serves."""

from __future__ import annotations

import numpy as np

from nmpsim.core.reference.access import MemoryLocation, locate
from nmpsim.core.reference.context import InstructionContext
from nmpsim.core.reference.operands import (
    Descriptor,
    Scratchpad,
    compute_addresses,
    get_element_type,
)
from nmpsim.core.reference.units import UnitQueue, begin_transfers
from nmpsim.core.state import CountColumn, JobColumn
from nmpsim.isa.table import Unit
from nmpsim.memory.address_map import Region
from nmpsim.memory.bounds import count_spanned_bytes
from nmpsim.memory.dram import start_transfer
from nmpsim.timing.compute import ceil_div


class OperandError(Exception):
    """Exception raised if a word of a descriptor is invalid; it holds the word's name."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


def load(s: InstructionContext, d: Descriptor, layer: int) -> None:
    """Execute ``nmp.load``: fill the padding, copy data from DRAM, and enqueue the transfer."""
    source = locate_dram(s, d, (Region.IMAGE, Region.RAM))
    rows, runs, run = d["count_y"], d["count_x"], d["run_bytes"]
    high = d["pad_y_before"] + rows + d["pad_y_after"]
    wide = d["pad_x_before"] + runs + d["pad_x_after"]
    padding = (wide * high - rows * runs) * run
    if s.computes_values:
        fill_scratchpad(s, d, source, (high, wide) if padding > 0 else None)
    s.machine.layers[layer]["counts"][CountColumn.BYTES_READ] += rows * runs * run
    filling = ceil_div(padding, s.costs.dma_fill_bytes_per_cycle)
    enqueue_transfer(s, Unit.LOAD, d, layer, s.costs.dma_startup_cycles + filling)


def fill_scratchpad(
    s: InstructionContext,
    d: Descriptor,
    source: MemoryLocation | None,
    padded: tuple[int, int] | None,
) -> None:
    """Fill a scratchpad with the result of a load: first padding, then data from DRAM.

    ``padded`` has the rows and the runs in a row with padding, or None without padding.
    """
    spm, step_x, step_y = Scratchpad(s.core), d["spm_stride_x"], d["spm_stride_y"]
    run = d["run_bytes"]
    if padded is not None:
        nbytes, (high, wide) = get_element_type(d).nbytes, padded
        addresses = compute_addresses(
            d["spm"], (high, step_y), (wide, step_x), (run // nbytes, nbytes)
        )
        spm.write(nbytes, addresses, np.full(addresses.shape, d["fill"]))
    if source is not None:
        corner = d["spm"] + d["pad_y_before"] * step_y + d["pad_x_before"] * step_x
        for y in range(d["count_y"]):
            for x in range(d["count_x"]):
                start = source.offset + y * d["dram_stride_y"] + x * d["dram_stride_x"]
                target = spm.view(corner + y * step_y + x * step_x, run)
                target[:] = source.memory[start : start + run]


def store(s: InstructionContext, d: Descriptor, layer: int) -> None:
    """Execute ``nmp.store``: copy data from the scratchpad to DRAM, and enqueue the transfer."""
    target = locate_dram(s, d, (Region.RAM,))
    rows, runs, run = d["count_y"], d["count_x"], d["run_bytes"]
    spm = Scratchpad(s.core)
    if target is not None and s.computes_values:
        for y in range(rows):
            for x in range(runs):
                start = target.offset + y * d["dram_stride_y"] + x * d["dram_stride_x"]
                source = spm.view(d["spm"] + y * d["spm_stride_y"] + x * d["spm_stride_x"], run)
                target.memory[start : start + run] = source
    s.machine.layers[layer]["counts"][CountColumn.BYTES_WRITTEN] += rows * runs * run
    enqueue_transfer(s, Unit.STORE, d, layer, s.costs.dma_startup_cycles)


def locate_dram(
    s: InstructionContext, d: Descriptor, allowed: tuple[Region, ...]
) -> MemoryLocation | None:
    """Locate a transfer's first DRAM byte; return None if empty, raise OperandError if invalid."""
    extent = count_spanned_bytes(
        d["count_y"], d["dram_stride_y"], d["count_x"], d["dram_stride_x"], d["run_bytes"]
    )
    if extent == 0:
        return None
    found = locate(s.core, d["dram"], extent)
    if found is None or found.region not in allowed:
        raise OperandError("dram")
    return found


def enqueue_transfer(
    s: InstructionContext, unit: Unit, d: Descriptor, layer: int, setup: int
) -> None:
    """Enqueue a transfer on its unit, and begin the transfer if the queue was idle."""
    queue = UnitQueue(s.core, unit, s.costs)
    was_idle = queue.served == queue.issued
    transfer = queue.get_transfer(queue.issue_job())
    start_transfer(
        transfer,
        d["dram"],
        d["run_bytes"],
        d["count_x"],
        d["count_y"],
        d["dram_stride_x"],
        d["dram_stride_y"],
    )
    transfer[JobColumn.LAYER] = layer
    transfer[JobColumn.READY] = s.core.clock
    transfer[JobColumn.SETUP] = setup
    transfer[JobColumn.PC] = s.core.pc
    transfer[JobColumn.DESCRIPTOR] = s.core.descriptor
    if was_idle:
        begin_transfers(queue)
