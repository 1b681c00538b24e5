"""Snapshots of the machine for going back in time.

A snapshot shares unchanged memory pages with the previous one, so a layer costs about what it
wrote. When all snapshots exceed the budget, every second one is dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.build_report import RunCycles
from nmpsim.core.state import Machine

PAGE_BYTES = 1 << 14
DEFAULT_BUDGET_MIB = 512

Bytes = npt.NDArray[np.uint8]


@attrs.frozen(eq=False)
class Snapshot:
    """Snapshot of the state of a run at one position."""

    position: int
    step: int
    is_started: bool
    account: RunCycles
    pages: tuple[Bytes, ...]
    """Copies of ``list_pages``."""
    records: tuple[Any, ...]
    """Copies of the other arrays that a run writes."""


def list_pages(machine: Machine) -> list[Bytes]:
    """Return the pages of DRAM and scratchpads that a run changes, as views."""
    return [
        memory[start : start + PAGE_BYTES]
        for memory in (machine.ram, machine.scratchpad.reshape(-1))
        for start in range(0, memory.size, PAGE_BYTES)
    ]


def list_small_arrays(machine: Machine) -> tuple[Any, ...]:
    """Return the small arrays of a machine that a run changes."""
    return (
        machine.cores,
        machine.layers,
        machine.channel_saturated,
        machine.barriers,
        machine.shared,
        machine.control,
    )


def copy_pages(machine: Machine, before: Snapshot | None) -> tuple[Bytes, ...]:
    """Copy the memory pages of a machine; share unchanged pages with ``before``."""
    pages = list_pages(machine)
    if before is None:
        return tuple(page.copy() for page in pages)
    return tuple(
        old if np.array_equal(old, page) else page.copy()
        for old, page in zip(before.pages, pages, strict=True)
    )


class SnapshotStore:
    """Store of snapshots within a memory budget; the first snapshot is never removed."""

    def __init__(self, budget_mib: int = DEFAULT_BUDGET_MIB) -> None:
        self._budget_bytes = budget_mib << 20
        self._kept: list[Snapshot] = []
        self._uses = Counter[int]()
        """Identity of a page -> number of snapshots that share it."""
        self.nbytes = 0
        """Number of bytes of all snapshots."""

    def __len__(self) -> int:
        return len(self._kept)

    def find_before(self, position: int) -> Snapshot:
        """Return the last snapshot at or before a position."""
        return self._kept[self._index(position) - 1]

    def has_position(self, position: int) -> bool:
        """Return whether there is a snapshot at a position."""
        index = self._index(position)
        return index > 0 and self._kept[index - 1].position == position

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot, and remove every second one while the memory budget is exceeded."""
        self._kept.insert(self._index(snapshot.position), snapshot)
        self._count(snapshot, 1)
        while self.nbytes > self._budget_bytes and len(self._kept) > 2:
            self._keep([self._kept[0], *self._kept[2::2]], self._kept[1::2])

    def remove_after(self, position: int) -> None:
        """Remove all snapshots after a position."""
        index = self._index(position)
        self._keep(self._kept[:index], self._kept[index:])

    def _keep(self, kept: list[Snapshot], dropped: list[Snapshot]) -> None:
        for snapshot in dropped:
            self._count(snapshot, -1)
        self._kept = kept

    def _count(self, snapshot: Snapshot, change: int) -> None:
        """Add or subtract the bytes of a snapshot; pages are shared with others."""
        self.nbytes += change * sum(int(record.nbytes) for record in snapshot.records)
        for page in snapshot.pages:
            self._uses[id(page)] += change
            if self._uses[id(page)] == max(change, 0):  # it is new, or nothing shares it now
                self.nbytes += change * page.nbytes

    def _index(self, position: int) -> int:
        return bisect_right([one.position for one in self._kept], position)
