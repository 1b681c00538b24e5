"""DMA instructions: what they copy, and the transfer that the DRAM then serves."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled import pure  # noqa: F401 - registers what is called below
from nmpsim.core.compiled.memory import IMAGE, RAM, locate
from nmpsim.core.compiled.record import DESCRIPTOR, PC
from nmpsim.core.compiled.units import LAYER, READY, SETUP, enqueue_transfer
from nmpsim.core.state import Count
from nmpsim.isa.table import SCRATCHPAD_BASE, Unit
from nmpsim.isa.words import INT16, LOAD, STORE
from nmpsim.kernels.jit import jit
from nmpsim.kernels.movement import Box, copy_box, fill_rows
from nmpsim.memory.checks import span
from nmpsim.timing.dram import start_transfer

LOAD_UNIT, STORE_UNIT = np.int64(Unit.LOAD), np.int64(Unit.STORE)
BYTES_READ, BYTES_WRITTEN = int(Count.BYTES_READ), int(Count.BYTES_WRITTEN)


@jit
def load(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """Copy a box from DRAM, fill its padding; -1, or the index of the word that is wrong."""
    rows, runs, run = d[LOAD.count_y], d[LOAD.count_x], d[LOAD.run_bytes]
    extent = span(rows, d[LOAD.dram_stride_y], runs, d[LOAD.dram_stride_x], run)
    region, offset = locate(m, d[LOAD.dram], extent)
    if extent > 0 and region != IMAGE and region != RAM:
        return LOAD.dram
    spm = m.scratchpad[core]
    start = d[LOAD.spm] - SCRATCHPAD_BASE
    step_x, step_y = d[LOAD.spm_stride_x], d[LOAD.spm_stride_y]
    wide = d[LOAD.pad_x_before] + runs + d[LOAD.pad_x_after]
    high = d[LOAD.pad_y_before] + rows + d[LOAD.pad_y_after]
    padding = (wide * high - rows * runs) * run
    if padding > 0:
        if d[LOAD.element] == INT16:
            spm16 = m.scratchpad_i16[core]
            fill_rows(
                spm16, start >> 1, high, step_y >> 1, wide, step_x >> 1, run >> 1, d[LOAD.fill]
            )
        else:
            spm8 = m.scratchpad_i8[core]
            fill_rows(spm8, start, high, step_y, wide, step_x, run, d[LOAD.fill])
    if extent > 0:
        to = start + d[LOAD.pad_y_before] * step_y + d[LOAD.pad_x_before] * step_x
        box = Box(run, runs, rows, d[LOAD.dram_stride_x], d[LOAD.dram_stride_y], step_x, step_y)
        copy_box(m.image if region == IMAGE else m.ram, offset, spm, to, box)
    m.layers[layer].counts[BYTES_READ] += rows * runs * run
    filling = (padding + costs.dma_fill_bytes_per_cycle - 1) // costs.dma_fill_bytes_per_cycle
    transfer(m, costs, core, LOAD_UNIT, d, layer, costs.dma_startup_cycles + filling)
    return -1


@jit
def store(m: Any, costs: Any, core: Any, d: Any, layer: Any) -> Any:
    """Copy a box to DRAM; -1, or the index of the word that is wrong."""
    rows, runs, run = d[STORE.count_y], d[STORE.count_x], d[STORE.run_bytes]
    extent = span(rows, d[STORE.dram_stride_y], runs, d[STORE.dram_stride_x], run)
    region, offset = locate(m, d[STORE.dram], extent)
    if extent > 0:
        if region != RAM:
            return STORE.dram
        start = d[STORE.spm] - SCRATCHPAD_BASE
        box = Box(
            run,
            runs,
            rows,
            d[STORE.spm_stride_x],
            d[STORE.spm_stride_y],
            d[STORE.dram_stride_x],
            d[STORE.dram_stride_y],
        )
        copy_box(m.scratchpad[core], start, m.ram, offset, box)
    m.layers[layer].counts[BYTES_WRITTEN] += rows * runs * run
    transfer(m, costs, core, STORE_UNIT, d, layer, costs.dma_startup_cycles)
    return -1


@jit
def transfer(m: Any, costs: Any, core: Any, unit: Any, d: Any, layer: Any, setup: Any) -> None:
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
