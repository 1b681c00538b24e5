"""Rough costs of tilings: how much they compute and move, and approximately how long it takes.

They select which of thousands of tilings are simulated
(:mod:`nmpsim.compiler.tiling.simulate`).
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from nmpsim.timing import Costs


@attrs.frozen
class DramModel:
    """Model of DRAM costs for a tiling search."""

    costs: Costs
    blind: bool = False
    """Whether only bytes count, as if there were neither bursts nor rows."""


@attrs.frozen(eq=False)
class Traffic:
    """Traffic of one core: number of transfers, and DRAM cycles for each."""

    count: Any
    cycles: Any
    """Cycles that the DRAM needs for each transfer."""

    @property
    def total(self) -> Any:
        """DRAM cycles of all transfers."""
        return self.count * self.cycles


@attrs.frozen(eq=False)
class RoughCost:
    """Approximate cost of one or more tilings, computed without a simulation."""

    cores: Any
    compute: Any
    """Cycles of computation of a core."""
    tiles: Any
    """Tiles of a core."""
    loads: tuple[Traffic, ...]
    store: Traffic

    @property
    def memory(self) -> Any:
        """DRAM cycles of the transfers of all cores."""
        return self.cores * (sum(load.total for load in self.loads) + self.store.total)

    @property
    def bound(self) -> Any:
        """Approximate cycles of the layer if all transfers overlap with computation."""
        return np.maximum(self.memory, self.compute)

    @property
    def cycles(self) -> Any:
        """Approximate cycles of the layer, with imperfect overlap of transfers and computation.

        The DRAM serves all traffic while cores compute. A core begins after its first loads, for
        which it waits until half of the cores, on average, are served. The more equal transfers
        and computation are, the less perfectly they overlap. The computation and the store of the
        last tile come after everything else.
        """
        memory, first = self.memory * 1.0, sum(load.cycles for load in self.loads)
        cores = self.compute + self.cores * first / 2
        overlapped = np.sqrt(np.sqrt(memory**2 * memory**2 + cores**2 * cores**2))
        return overlapped + self.compute / self.tiles + self.store.cycles


def estimate_box_cycles(
    memory: DramModel,
    run: Any,
    count_x: Any = 1,
    stride_x: Any = 0,
    count_y: Any = 1,
    stride_y: Any = 0,
    aligned: Any = False,
) -> Any:
    """Estimate the DRAM cycles for transferring a strided box of bytes.

    ``aligned`` tells that the box begins at the begin of a row. All banks but one are expected to
    open rows while others are served. Refresh and turnaround, which cost nearly the same for all
    boxes, are left out.
    """
    costs, burst = memory.costs, memory.costs.dram_burst_bytes
    if memory.blind:
        return run * count_x * count_y / costs.dram_bytes_per_cycle
    for _ in range(2):  # adjacent runs become one
        joins = (count_x == 1) | (stride_x == run)
        run = np.where(joins, run * count_x, run)
        stride_x, count_x = np.where(joins, stride_y, stride_x), np.where(joins, count_y, count_x)
        count_y, stride_y = np.where(joins, 1, count_y), np.where(joins, 0, stride_y)
    runs = count_x * count_y
    bursts = (run - 1) // burst + 1
    split = np.minimum(bursts + (run - 1) % burst / burst, np.maximum(stride_x, run) / burst)
    bursts = np.where((runs > 1) & (stride_x % burst != 0), split, bursts)
    extent, opened = run, _rows_of(run, costs)
    for count, stride in ((count_x, stride_x), (count_y, stride_y)):
        extent = extent + (count - 1) * stride
        opened = np.minimum(count * opened, _rows_of(extent, costs))
    opened = np.where(aligned, np.ceil(extent / costs.dram_row_bytes), opened)
    opening = costs.dram_row_miss_cycles / (costs.dram_channels * costs.dram_banks)
    return bursts * runs * burst / costs.dram_bytes_per_cycle + opened * opening


def _rows_of(extent: Any, costs: Costs) -> Any:
    """Return the average number of DRAM rows of so many consecutive bytes."""
    return (extent - 1) / costs.dram_row_bytes + 1
