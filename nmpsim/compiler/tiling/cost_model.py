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

        The DRAM is busy with all traffic; a core with its sums, after its first loads and before
        its last store; the core that is served last waits for all first loads. What does not
        overlap perfectly adds an eighth of the smaller of the first two.
        """
        first = sum(load.cycles for load in self.loads)
        memory = self.memory
        alone = first + self.compute + self.store.cycles
        last = self.cores * first + self.compute / self.tiles + self.store.cycles
        longest = np.maximum(np.maximum(memory, alone), last)
        return longest + np.minimum(memory, self.compute) / 8


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
    extent = np.where(runs == 1, run, count_y * (stride_x * (count_x - 1) + run))
    rows = extent / costs.dram_row_bytes
    opened = np.where(aligned, np.ceil(rows), rows + 1)
    opening = costs.dram_row_miss_cycles / (costs.dram_channels * costs.dram_banks)
    return bursts * runs * burst / costs.dram_bytes_per_cycle + opened * opening
