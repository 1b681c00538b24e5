"""DMA instructions: the transfer that the DRAM serves."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.copies import extent, padding_bytes
from nmpsim.core.compiled.memory import IMAGE, RAM, locate
from nmpsim.core.compiled.units import DESCRIPTOR, LAYER, PC, READY, SETUP, enqueue_transfer
from nmpsim.core.state import Count, Machine
from nmpsim.isa.table import Unit
from nmpsim.isa.words import LOAD, STORE
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.memory.dram import start_transfer
from nmpsim.timing import Costs

LOAD_UNIT, STORE_UNIT = np.int64(Unit.LOAD), np.int64(Unit.STORE)
BYTES_READ, BYTES_WRITTEN = int(Count.BYTES_READ), int(Count.BYTES_WRITTEN)


@jit
def beyond_dram(m: Machine, d: Int64s, is_load: bool) -> Any:
    """-1 if the DRAM has what a transfer touches there, else the index of the word that is wrong.

    The first words of a load and a store are the same; a store must not touch the image.
    """
    nbytes = extent(d)
    region, _ = locate(m, d[LOAD.dram], nbytes)
    if nbytes == 0 or region == RAM or (is_load and region == IMAGE):
        return -1
    return LOAD.dram


@jit
def load(m: Machine, costs: Costs, core: Int, d: Int64s, layer: Int) -> None:
    """The transfer of a load."""
    rows, runs, run = d[LOAD.count_y], d[LOAD.count_x], d[LOAD.run_bytes]
    m.layers[layer].counts[BYTES_READ] += rows * runs * run
    filled = padding_bytes(d)
    filling = (filled + costs.dma_fill_bytes_per_cycle - 1) // costs.dma_fill_bytes_per_cycle
    transfer(m, costs, core, LOAD_UNIT, d, layer, costs.dma_startup_cycles + filling)


@jit
def store(m: Machine, costs: Costs, core: Int, d: Int64s, layer: Int) -> None:
    """The transfer of a store."""
    m.layers[layer].counts[BYTES_WRITTEN] += (
        d[STORE.count_y] * d[STORE.count_x] * d[STORE.run_bytes]
    )
    transfer(m, costs, core, STORE_UNIT, d, layer, costs.dma_startup_cycles)


@jit
def transfer(
    m: Machine, costs: Costs, core: Int, unit: Int, d: Int64s, layer: Int, setup: Int
) -> None:
    """Put the transfer of a load or store (their first words are the same) into its queue."""
    job = m.cores[core].jobs[unit, m.cores[core].issued[unit] % costs.queues_depth]
    start_transfer(
        job,
        d[LOAD.dram],
        d[LOAD.run_bytes],
        d[LOAD.count_x],
        d[LOAD.count_y],
        d[LOAD.dram_stride_x],
        d[LOAD.dram_stride_y],
    )
    job[LAYER] = layer
    job[READY] = m.cores[core].clock
    job[SETUP] = setup
    job[PC] = m.cores[core].pc
    job[DESCRIPTOR] = m.cores[core].descriptor
    enqueue_transfer(m, costs, core, unit)
