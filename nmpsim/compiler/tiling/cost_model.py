"""The rough cost of a plan: what it computes and moves, and about how long that takes.

Good enough to say which of thousands of tilings of a layer are worth simulating
(:mod:`nmpsim.compiler.tiling.simulate`), and no more than that.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from nmpsim.timing import Costs


@attrs.frozen
class Memory:
    """How a slicer sees the DRAM; a blind one counts bytes only, as if there were no bursts."""

    costs: Costs
    blind: bool = False


@attrs.frozen(eq=False)
class Traffic:
    """Transfers of one kind that a core makes."""

    count: Any
    cycles: Any
    """That the DRAM serves each."""

    @property
    def total(self) -> Any:
        """Of all of them."""
        return self.count * self.cycles


@attrs.frozen(eq=False)
class RoughCost:
    """Tilings of a layer whose cores all do what the busiest does; numbers, or arrays of them."""

    cores: Any
    compute: Any
    """Cycles of a core's unit."""
    tiles: Any
    """That a core computes one after the other."""
    loads: tuple[Traffic, ...]
    store: Traffic

    @property
    def memory(self) -> Any:
        """Cycles that the DRAM is busy."""
        return self.cores * (sum(load.total for load in self.loads) + self.store.total)

    @property
    def bound(self) -> Any:
        """About what it takes if everything overlaps."""
        return np.maximum(self.memory, self.compute)

    @property
    def cycles(self) -> Any:
        """About what the layer takes.

        The DRAM serves all traffic while cores compute, each after its first loads: on average half
        of the cores are served before it. The more equal the two are, the less they overlap
        perfectly. The last tile's sums and its store come after all others.
        """
        memory, first = self.memory * 1.0, sum(load.cycles for load in self.loads)
        cores = self.compute + self.cores * first / 2
        overlapped = np.sqrt(np.sqrt(memory**2 * memory**2 + cores**2 * cores**2))
        return overlapped + self.compute / self.tiles + self.store.cycles


def box_cycles(
    memory: Memory,
    run: Any,
    count_x: Any,
    stride_x: Any,
    count_y: Any,
    stride_y: Any,
    aligned: Any = False,
) -> Any:
    """About the cycles that the DRAM serves a box of runs; strides in bytes.

    ``aligned`` says that it begins where a row does. Of the banks all but one are expected to open
    rows while others are served; what refresh and turnaround cost is much the same for all boxes.
    """
    costs, burst = memory.costs, memory.costs.dram_burst_bytes
    if memory.blind:
        return run * count_x * count_y / costs.dram_bytes_per_cycle
    for _ in range(2):  # runs that touch each other become one
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
    """DRAM rows that so many consecutive bytes touch, on average over all places."""
    return (extent - 1) / costs.dram_row_bytes + 1
