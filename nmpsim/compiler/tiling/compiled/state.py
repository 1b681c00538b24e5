"""What is simulated of a plan, and how far the simulation is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.compiler.tiling.compiled.items import NEVER, UNKNOWN
from nmpsim.memory.dram import CURSOR_WORDS
from nmpsim.timing.dram import CHANNEL_WORDS, MAX_CHANNELS, reset_dram

AT, CLOCK, ADDRESSED, AWAITS_KIND, AWAITS_ROW, WORKED = range(6)
"""Of a core: its next item; its clock; whether the address of the next descriptor is in its
register; the instruction that it waits for; cycles that its unit has worked."""
ISSUED, SERVED, FREE = range(3)
"""Of a core's unit: the row behind the last instruction that was issued; the transfer that is
served; when the unit is free."""


class Work(NamedTuple):
    """A plan."""

    items: Any
    """int64 [items, 2], as ``schedule`` puts them"""
    begins: Any
    """int64 [cores + 1] where each core's begin"""
    loads: Any
    """int64 [loads, words of a descriptor]"""
    stores: Any
    computes: Any
    first: Any
    """int64 [cores + 1, 3] where each core's loads, stores and computations begin"""
    computing: int
    """The row of the computations' descriptor in tables of descriptors."""


class State(NamedTuple):
    """All that changes, int64."""

    cores: Any
    """[cores, 6]"""
    units: Any
    """[cores, 3, 3]"""
    cursors: Any
    """[cores, 2, CURSOR_WORDS] of the transfers that are served"""
    issued: Any
    """[2, transfers] when loads and stores were issued"""
    ends: Any
    """[3, instructions] when they end"""
    next: Any
    """[3 * cores] when each core, then each queue is next: of equal cycles the first one is"""
    queues: Any
    """[cores, 2, 2]"""
    dram: Any
    """[channels, words] see nmpsim.timing.dram"""
    sums: Any
    """[4] cycles that the DRAM is busy, grants, bursts, row misses"""


def new_state(p: Work) -> State:
    """Before the first cycle."""
    cores = p.begins.size - 1
    most = max(p.loads.shape[0], p.stores.shape[0], p.computes.shape[0])
    s = State(
        np.zeros((cores, 6), np.int64),
        np.zeros((cores, 3, 3), np.int64),
        np.zeros((cores, 2, CURSOR_WORDS), np.int64),
        np.zeros((2, most), np.int64),
        np.full((3, most), UNKNOWN, np.int64),
        np.full(3 * cores, NEVER, np.int64),
        np.zeros((cores, 2, 2), np.int64),
        np.zeros((MAX_CHANNELS, CHANNEL_WORDS), np.int64),
        np.zeros(4, np.int64),
    )
    reset_dram(s.dram)
    s.cores[:, AT] = p.begins[:-1]
    s.cores[:, AWAITS_KIND] = UNKNOWN
    s.next[:cores] = 0
    for field in (ISSUED, SERVED):
        s.units[:, :, field] = p.first[:-1]
    return s
