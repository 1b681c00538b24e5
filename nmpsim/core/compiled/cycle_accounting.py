"""Attribution of a core's cycles.

Cycles are counted twice: by activity of the control core at once, and by cause when that is known
or may change (``attribute_cycles``). A unit works without a gap from now until it is free, because
all its jobs were issued before, so its work in a span of time needs no look at its jobs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.state import Count, CycleCause, Machine
from nmpsim.isa.table import Unit
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit

CONTROL = np.int64(Count.CONTROL)
WAIT_LOAD = np.int64(Count.WAIT_LOAD)
ACTIVITIES = int(Count.IDLE) + 1
(
    ON_MAC,
    ON_VECTOR,
    ON_LOAD,
    _ON_STORE,
    ON_CONTENTION,
    ON_IMBALANCE,
    ON_UNUSED,
    ON_BARRIER,
    ON_SEMAPHORE,
    _ON_IDLE,
    ON_CONTROL,
) = map(int, CycleCause)
CAUSES = len(CycleCause)
MAC, VECTOR = int(Unit.MAC), int(Unit.VECTOR)


@jit
def spend_cycles(m: Machine, core: Int, activity: Int, cycles: Int) -> None:
    """Advance a core's clock by ``cycles`` of one activity."""
    m.cores[core].clock += cycles
    m.cores[core].pending[activity] += cycles


@jit
def attribute_cycles(m: Machine, core: Int, cause: Int) -> Any:
    """Attribute a core's cycles since the last call; return those idle, attributed to ``cause``.

    Must be called before a unit gets work and before the layer changes.
    """
    start, end = m.cores[core].booked, m.cores[core].clock
    on_mac = min(max(m.cores[core].unit_free[MAC], start), end)
    on_vector = min(max(m.cores[core].unit_free[VECTOR], on_mac), end)
    m.cores[core].spent[ON_MAC] += on_mac - start
    m.cores[core].spent[ON_VECTOR] += on_vector - on_mac
    m.cores[core].spent[cause] += end - on_vector
    m.cores[core].booked = end
    return end - on_vector


@jit
def wait_cycles(m: Machine, core: Int, activity: Int, cause: Int, cycles: Int) -> Any:
    """Advance a core's clock by a wait; return the cycles in which no unit worked."""
    attribute_cycles(m, core, ON_CONTROL)
    spend_cycles(m, core, activity, cycles)
    return attribute_cycles(m, core, cause)


@jit
def wait_for_transfer(m: Machine, core: Int, unit: Int, slot: Int, cycles: Int) -> None:
    """Advance a core's clock by a wait for a transfer, and count its queueing delay."""
    idle = wait_cycles(m, core, WAIT_LOAD + unit, ON_LOAD + unit, cycles)
    queueing = m.cores[core].queueing_at[unit, slot] - m.cores[core].queueing_charged[unit]
    contention = min(idle, max(queueing, 0))
    m.cores[core].spent[ON_LOAD + unit] -= contention
    m.cores[core].spent[ON_CONTENTION] += contention
    m.cores[core].queueing_charged[unit] += contention


@jit
def assign_to_layer(m: Machine, core: Int, layer: Int) -> None:
    """Add a core's pending cycles to a layer."""
    for activity in range(ACTIVITIES):
        m.layers[layer].counts[activity] += m.cores[core].pending[activity]
        m.cores[core].pending[activity] = 0
    attribute_cycles(m, core, ON_CONTROL)
    for cause in range(CAUSES):
        m.layers[layer].spent[cause] += m.cores[core].spent[cause]
        m.cores[core].spent[cause] = 0


@jit
def begin_layer(m: Machine, core: Int, layer: Int) -> None:
    """Attribute a core's work since the last barrier, and further work, to ``layer``."""
    if m.cores[core].layer >= 0 and m.cores[core].layer != layer:
        assign_to_layer(m, core, m.cores[core].layer)
    m.cores[core].layer = layer
    m.layers[layer].worked |= np.int64(1) << core


@jit
def mark_unused(m: Machine, core: Int) -> None:
    """Attribute a core's cycles since the last barrier to UNUSED."""
    attribute_cycles(m, core, ON_CONTROL)
    for cause in range(ON_VECTOR + 1, CAUSES):
        cycles = m.cores[core].spent[cause]
        m.cores[core].spent[cause] = 0
        m.cores[core].spent[ON_UNUSED] += cycles


@jit
def leave_layer(m: Machine, core: Int, ended: Int) -> None:
    """End a core's layer at a barrier or halt; ``ended`` is the layer if the core has none."""
    layer = m.cores[core].layer if m.cores[core].layer >= 0 else ended
    assign_to_layer(m, core, layer)
    m.cores[core].layer = -1
    m.cores[core].previous_layer = layer
