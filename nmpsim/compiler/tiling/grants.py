"""All grants of a transfer at once: what :mod:`nmpsim.memory.dram` gives one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import attrs
import numpy as np

from nmpsim.timing import Costs
from nmpsim.timing.compute import grant_cycles

Grant = tuple[int, int, int]
"""DRAM row, bursts, cycles if the row is open."""


@attrs.frozen
class Memory:
    """How a slicer sees the DRAM; a blind one counts bytes only, as if there were no bursts."""

    costs: Costs
    blind: bool = False

    @property
    def row_miss_cycles(self) -> int:
        """What opening a row costs."""
        return 0 if self.blind else self.costs.dram_row_miss_cycles

    def grants(self, words: Mapping[str, int]) -> tuple[Grant, ...]:
        """The grants of a load or store with these words, in order."""
        row, start = divmod(words["dram"], self.costs.dram_row_bytes)
        runs = _runs(
            words["run_bytes"],
            words["count_x"],
            words["count_y"],
            words["dram_stride_x"],
            words["dram_stride_y"],
        )
        return tuple((row + r, n, c) for r, n, c in _grants(start, *runs, self))


def _runs(run: int, x: int, y: int, step_x: int, step_y: int) -> tuple[int, int, int, int, int]:
    """The box with runs that touch each other joined, as the device does."""
    if x == 1 or step_x == run:
        run, x, step_x, y, step_y = run * x, y, step_y, 1, 0
        if x == 1 or step_x == run:
            run, x, step_x = run * x, 1, 0
    return run, x, y, step_x, step_y


@lru_cache(maxsize=1 << 16)
def _grants(
    start: int, run: int, x: int, y: int, step_x: int, step_y: int, memory: Memory
) -> tuple[Grant, ...]:
    """Grants of a box that begins ``start`` bytes after the begin of a row; rows count from it."""
    if run * x * y == 0:
        return ()
    costs = memory.costs
    begins = (start + np.arange(y)[:, None] * step_y + np.arange(x) * step_x).reshape(-1)
    begins, ends = _cut_at_rows(begins, run, costs.dram_row_bytes)
    rows = begins // costs.dram_row_bytes
    first, last = begins // costs.dram_burst_bytes, (ends - 1) // costs.dram_burst_bytes
    bursts = last - first + 1
    bursts[1:] -= first[1:] == last[:-1]
    edges = np.flatnonzero(np.diff(rows, prepend=rows[0] - 1))
    totals = np.add.reduceat(bursts, edges).tolist()
    if memory.blind:
        moved = np.add.reduceat(ends - begins, edges).tolist()
        cycles = [-(-n // costs.dram_bytes_per_cycle) for n in moved]
    else:
        cycles = [grant_cycles(n, False, costs) for n in totals]
    return tuple(zip(rows[edges].tolist(), totals, cycles, strict=True))


def _cut_at_rows(
    begins: np.ndarray[tuple[int], np.dtype[np.int64]], run: int, row_bytes: int
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Begins and ends of pieces of runs that lie in one row each."""
    rows = (begins + run - 1) // row_bytes - begins // row_bytes + 1
    which = np.repeat(np.arange(begins.size), rows)
    number = np.arange(which.size) - np.repeat(np.cumsum(rows) - rows, rows)
    edges = (begins // row_bytes)[which] + number
    low = np.maximum(begins[which], edges * row_bytes)
    high = np.minimum(begins[which] + run, (edges + 1) * row_bytes)
    return low, high
