"""Input and state of the simulation of a plan."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.compiler.tiling.compiled.items import NEVER, UNKNOWN
from nmpsim.memory.dram import CURSOR_WORDS
from nmpsim.timing.dram import CHANNEL_WORDS, MAX_CHANNELS, reset_dram

AT, CLOCK, ADDRESSED, AWAITS_KIND, AWAITS_ROW, WORKED = range(6)
"""Columns of a core: its next item; its clock; whether the address of the next descriptor is in its
register; the instruction that it waits for; busy cycles of its unit."""
ISSUED, SERVED, FREE = range(3)
"""Columns of a unit: the row after the last issued instruction; the transfer that is served; the
cycle from which the unit is free."""


class SimulationInput(NamedTuple):
    """Input of the compiled simulation: the instructions of a layer's plan as arrays."""

    items: Any
    """int64 [items, 2], as written by ``schedule``"""
    begins: Any
    """int64 [cores + 1] offset of each core's first item"""
    loads: Any
    """int64 [loads, words of a descriptor]"""
    stores: Any
    macs: Any
    """int64 [instructions of the MAC array, words of the longest descriptor]"""
    vectors: Any
    mac_kinds: Any
    """int64 [instructions of the MAC array] index of the descriptor in tables of descriptors"""
    vector_kinds: Any
    first: Any
    """int64 [cores + 1, 4] offsets of each core's instructions of each kind"""


class SimulationState(NamedTuple):
    """State of the compiled simulation, as int64 arrays."""

    cores: Any
    """[cores, 6]"""
    units: Any
    """[cores, 4, 3]"""
    cursors: Any
    """[cores, 2, CURSOR_WORDS] progress of the transfers that are served"""
    issued: Any
    """[2, transfers] cycle in which loads and stores were issued"""
    ends: Any
    """[4, instructions] cycle in which they end"""
    next: Any
    """[3 * cores] cycle of the next event of each core, then of each queue; ties: the first"""
    queues: Any
    """[cores, 2, 2]"""
    dram: Any
    """[channels, words] see nmpsim.timing.dram"""
    sums: Any
    """[4] busy cycles of the DRAM, grants, bursts, row misses"""
    barrier: Any
    """[2] cores that wait at a barrier within a chain, cycle in which the last one arrived"""


def make_initial_state(p: SimulationInput) -> SimulationState:
    """Return the simulation state before the first cycle."""
    cores = p.begins.size - 1
    most = max(words.shape[0] for words in (p.loads, p.stores, p.macs, p.vectors))
    s = SimulationState(
        np.zeros((cores, 6), np.int64),
        np.zeros((cores, 4, 3), np.int64),
        np.zeros((cores, 2, CURSOR_WORDS), np.int64),
        np.zeros((2, most), np.int64),
        np.full((4, most), UNKNOWN, np.int64),
        np.full(3 * cores, NEVER, np.int64),
        np.zeros((cores, 2, 2), np.int64),
        np.zeros((MAX_CHANNELS, CHANNEL_WORDS), np.int64),
        np.zeros(4, np.int64),
        np.zeros(2, np.int64),
    )
    reset_dram(s.dram)
    s.cores[:, AT] = p.begins[:-1]
    s.cores[:, AWAITS_KIND] = UNKNOWN
    s.next[:cores] = 0
    for field in (ISSUED, SERVED):
        s.units[:, :, field] = p.first[:-1]
    return s
