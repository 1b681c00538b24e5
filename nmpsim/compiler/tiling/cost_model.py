"""The rough cost of a plan: what it computes and moves, and about how long that takes.

Good enough to say which of thousands of tilings of a layer are worth simulating
(:mod:`nmpsim.compiler.tiling.simulate`), and no more than that.
"""

from __future__ import annotations

import math

import attrs

from nmpsim.timing import Costs


@attrs.frozen
class Memory:
    """How a slicer sees the DRAM; a blind one counts bytes only, as if there were no bursts."""

    costs: Costs
    blind: bool = False


@attrs.frozen
class Traffic:
    """Transfers of one kind that a core makes."""

    count: int
    cycles: float
    """That the DRAM serves each."""

    @property
    def total(self) -> float:
        """Of all of them."""
        return self.count * self.cycles


@attrs.frozen
class RoughCost:
    """A layer whose cores all do what the busiest does."""

    cores: int
    compute: int
    """Cycles of a core's unit."""
    tiles: int
    """That a core computes one after the other."""
    loads: tuple[Traffic, ...]
    store: Traffic

    @property
    def memory(self) -> float:
        """Cycles that the DRAM is busy."""
        return self.cores * (sum(load.total for load in self.loads) + self.store.total)

    @property
    def bound(self) -> float:
        """About what it takes if everything overlaps."""
        return max(self.memory, self.compute)

    @property
    def cycles(self) -> float:
        """About what the layer takes.

        The DRAM is busy with all traffic; a core with its sums, after its first loads and before
        its last store; the core that is served last waits for all first loads. What does not
        overlap perfectly adds an eighth of the smaller of the first two.
        """
        first = sum(load.cycles for load in self.loads)
        memory = self.memory
        alone = first + self.compute + self.store.cycles
        last = self.cores * first + self.compute / self.tiles + self.store.cycles
        return max(memory, alone, last) + min(memory, self.compute) / 8


def box_cycles(
    memory: Memory,
    run: int,
    count_x: int,
    stride_x: int,
    count_y: int,
    stride_y: int,
    aligned: bool = False,
) -> float:
    """About the cycles that the DRAM serves a box of runs; strides in bytes.

    ``aligned`` says that it begins where a row does.
    """
    if count_x == 1 or stride_x == run:
        run, count_x, stride_x, count_y, stride_y = run * count_x, count_y, stride_y, 1, 0
        if count_x == 1 or stride_x == run:
            run, count_x, stride_x = run * count_x, 1, 0
    costs, runs = memory.costs, count_x * count_y
    if memory.blind:
        return run * runs / costs.dram_bytes_per_cycle
    burst = costs.dram_burst_bytes
    bursts: float = (run - 1) // burst + 1
    if runs > 1 and stride_x % burst:
        bursts = min(bursts + (run - 1) % burst / burst, max(stride_x, run) / burst)
    extent = run * runs if runs == 1 else count_y * (stride_x * (count_x - 1) + run)
    rows = extent / costs.dram_row_bytes
    opened = math.ceil(rows) if aligned else rows + 1
    per_burst = -(-burst // costs.dram_bytes_per_cycle)
    return bursts * runs * per_burst + opened * costs.dram_row_miss_cycles
