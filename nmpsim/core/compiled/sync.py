"""Cores that meet: barriers, semaphores, halt."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.cycle_accounting import call_unused, leave_layer, wait
from nmpsim.core.compiled.units import note_wait
from nmpsim.core.state import Awaited, Count, Machine, Spent, Status
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit
from nmpsim.timing import Costs

RUNNING = int(Status.RUNNING)
AT_BARRIER = int(Status.AT_BARRIER)
PENDING = int(Status.PENDING)
HALTED = int(Status.HALTED)
AT_A_BARRIER, AT_A_SEMAPHORE = int(Awaited.BARRIER), int(Awaited.SEMAPHORE)
BARRIER = np.int64(Count.BARRIER)
SEMAPHORE = np.int64(Count.SEMAPHORE)
ON_IMBALANCE, ON_BARRIER = int(Spent.IMBALANCE), int(Spent.BARRIER)
ON_SEMAPHORE = int(Spent.SEMAPHORE)


@jit
def arrive(m: Machine, costs: Costs, core: Int, barrier: Int, cores: Int) -> None:
    """Wait at a barrier; the last of ``cores`` to arrive releases all."""
    m.cores[core].status = AT_BARRIER
    m.cores[core].wait[0] = barrier
    m.cores[core].wait[1] = cores
    arrived = 0
    latest = 0
    last = core
    has_work = False
    for other in range(m.cores.size):
        if m.cores[other].status == AT_BARRIER and m.cores[other].wait[0] == barrier:
            arrived += 1
            if m.cores[other].clock > latest:
                latest, last = m.cores[other].clock, other
            has_work = has_work or m.cores[other].layer >= 0
    if arrived < cores:
        return
    release = latest + costs.sync_barrier_cycles
    known = barrier < m.barriers.size
    ended = m.barriers[barrier].layer if known else m.layers.size - 1
    for other in range(m.cores.size):
        if m.cores[other].status == AT_BARRIER and m.cores[other].wait[0] == barrier:
            note_wait(m, other, AT_A_BARRIER, m.cores[other].clock, latest, release, last)
            wait(m, other, BARRIER, ON_IMBALANCE, latest - m.cores[other].clock)
            wait(m, other, BARRIER, ON_BARRIER, costs.sync_barrier_cycles)
            m.cores[other].status = RUNNING
            if known:
                if has_work and m.cores[other].layer < 0:
                    call_unused(m, other)
                leave_layer(m, other, ended)
    if known:
        m.barriers[barrier].cycle = release
    m.shared[0].last_barrier = barrier


@jit
def post(m: Machine, costs: Costs, core: Int, semaphore: Int, count: Int) -> None:
    """Add to a semaphore and release who waits for it, lower core numbers first."""
    m.shared[0].semaphores[semaphore] += count
    release = m.cores[core].clock + costs.sync_semaphore_cycles
    for other in range(m.cores.size):
        if m.cores[other].status != PENDING or m.cores[other].wait[0] != semaphore:
            continue
        if m.shared[0].semaphores[semaphore] >= m.cores[other].wait[1]:
            m.shared[0].semaphores[semaphore] -= m.cores[other].wait[1]
            posted = m.cores[core].clock
            note_wait(m, other, AT_A_SEMAPHORE, m.cores[other].clock, posted, release, core)
            wait(m, other, SEMAPHORE, ON_SEMAPHORE, max(release - m.cores[other].clock, 0))
            m.cores[other].status = RUNNING


@jit
def pend(m: Machine, core: Int, semaphore: Int, count: Int) -> Any:
    """Take from a semaphore; False if the core must wait until there is enough."""
    if m.shared[0].semaphores[semaphore] >= count:
        m.shared[0].semaphores[semaphore] -= count
        return True
    m.cores[core].status = PENDING
    m.cores[core].wait[0] = semaphore
    m.cores[core].wait[1] = count
    return False


@jit
def halt(m: Machine, core: Int) -> None:
    """The core is done."""
    m.cores[core].status = HALTED
    leave_layer(m, core, m.cores[core].previous_layer)
