"""Barriers, semaphores and halt in the compiled engine.

The functions are plain Python on the arrays of a :class:`~nmpsim.core.state.Machine`, which
compiled code calls. The reference engine has its own in ``core/reference/control.py``.
"""

from __future__ import annotations

from typing import Any

from nmpsim.core.compiled.cycle_accounting import (
    ON_BARRIER,
    ON_IMBALANCE,
    ON_SEMAPHORE,
    leave_layer,
    mark_unused,
    wait_cycles,
)
from nmpsim.core.compiled.units import record_wait
from nmpsim.core.state import CoreStatus, CountColumn, Int, Machine, WaitTarget
from nmpsim.isa.table import Unit
from nmpsim.timing import Costs
from nmpsim.timing.compute import convert_to_cycles
from nmpsim.timing.dram import FREE

RUNNING, _WAITING_UNIT, AT_BARRIER, PENDING, HALTED = map(int, CoreStatus)
AT_A_BARRIER, AT_A_SEMAPHORE = int(WaitTarget.BARRIER), int(WaitTarget.SEMAPHORE)
UNITS = len(Unit)
BARRIER, SEMAPHORE = int(CountColumn.BARRIER), int(CountColumn.SEMAPHORE)


def set_waiting(m: Machine, core: Int, status: Int, number: Int, count: Int) -> None:
    """Set a core to wait for barrier or semaphore ``number``, with a waiting status and a count."""
    c = m.cores[core]
    c["status"] = status
    c["wait"][0], c["wait"][1] = number, count


def is_waiting_for(m: Machine, core: Int, status: Int, number: Int) -> Any:
    """Return whether a core waits with ``status`` for barrier or semaphore ``number``."""
    return m.cores[core]["status"] == status and m.cores[core]["wait"][0] == number


def return_to_cycle(m: Machine, core: Int, cycle: Int) -> None:
    """Set the clock and the unit times of a core back to ``cycle`` if they are later."""
    c = m.cores[core]
    c["clock"], c["booked"] = min(c["clock"], cycle), min(c["booked"], cycle)
    for unit in range(UNITS):
        c["unit_free"][unit] = min(c["unit_free"][unit], cycle)


def arrive_at_barrier(m: Machine, costs: Costs, core: Int, barrier: Int, cores: Int) -> None:
    """Set a core to waiting at a barrier, or release all cores if ``cores`` have arrived.

    Without imbalance, late cores go back to the mean cycle of arrival, or to the cycle at which the
    DRAM has served all requests if that is later.
    """
    set_waiting(m, core, AT_BARRIER, barrier, cores)
    arrived, latest, last, total, has_work = 0, 0, core, 0, False
    for other in range(m.cores.size):
        if is_waiting_for(m, other, AT_BARRIER, barrier):
            arrived += 1
            total += m.cores[other]["clock"]
            if m.cores[other]["clock"] > latest:
                latest, last = m.cores[other]["clock"], other
            has_work = has_work or m.cores[other]["layer"] >= 0
    if arrived < cores:
        return
    if not costs.is_imbalance_timed:
        even = total // arrived
        for channel in range(costs.dram_channels):
            even = max(even, convert_to_cycles(m.shared[0]["dram"][channel, FREE], costs))
        latest = min(latest, even)
        for other in range(m.cores.size):
            if is_waiting_for(m, other, AT_BARRIER, barrier):
                return_to_cycle(m, other, latest)
    release = latest + costs.sync_barrier_cycles
    is_known = barrier < m.barriers.size
    ended = m.barriers[barrier]["layer"] if is_known else m.layers.size - 1
    for other in range(m.cores.size):
        if is_waiting_for(m, other, AT_BARRIER, barrier):
            clock = m.cores[other]["clock"]
            record_wait(m, other, AT_A_BARRIER, clock, latest, release, last)
            wait_cycles(m, other, BARRIER, ON_IMBALANCE, latest - clock)
            wait_cycles(m, other, BARRIER, ON_BARRIER, costs.sync_barrier_cycles)
            m.cores[other]["status"] = RUNNING
            if is_known:
                if has_work and m.cores[other]["layer"] < 0:
                    mark_unused(m, other)
                leave_layer(m, other, ended)
    if is_known:
        m.barriers[barrier]["cycle"] = release
    m.shared[0]["last_barrier"] = barrier


def post(m: Machine, costs: Costs, core: Int, semaphore: Int, count: Int) -> None:
    """Add ``count`` to a semaphore and release waiting cores, lower core numbers first."""
    values, posted = m.shared[0]["semaphores"], m.cores[core]["clock"]
    values[semaphore] += count
    release = posted + costs.sync_semaphore_cycles
    for other in range(m.cores.size):
        if not is_waiting_for(m, other, PENDING, semaphore):
            continue
        wanted, clock = m.cores[other]["wait"][1], m.cores[other]["clock"]
        if values[semaphore] >= wanted:
            values[semaphore] -= wanted
            record_wait(m, other, AT_A_SEMAPHORE, clock, posted, release, core)
            wait_cycles(m, other, SEMAPHORE, ON_SEMAPHORE, max(release - clock, 0))
            m.cores[other]["status"] = RUNNING


def pend(m: Machine, core: Int, semaphore: Int, count: Int) -> Any:
    """Subtract ``count`` from a semaphore; return False if the core must wait for posts."""
    values = m.shared[0]["semaphores"]
    if values[semaphore] >= count:
        values[semaphore] -= count
        return True
    set_waiting(m, core, PENDING, semaphore, count)
    return False


def halt(m: Machine, core: Int) -> None:
    """Halt a core and end its layer."""
    m.cores[core]["status"] = HALTED
    leave_layer(m, core, m.cores[core]["previous_layer"])


def halt_all(m: Machine, core: Int) -> None:
    """Halt all cores in the cycle of a core that ends the program."""
    for other in range(m.cores.size):
        if m.cores[other]["status"] != HALTED:
            if other != core and m.cores[other]["status"] == RUNNING:
                m.shared[0]["stopped"] += 1
            return_to_cycle(m, other, m.cores[core]["clock"])
            halt(m, other)
