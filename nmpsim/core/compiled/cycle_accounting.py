"""Where a core's cycles go.

They are counted twice: by what the control core does, at once, and by cause, when that is known or
may change (``book``). A unit has work without a gap from now until it is free, because whatever it
was given, it was given before; so what it does in a span of time takes no look at its jobs.
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
ON_MAC, ON_VECTOR = int(CycleCause.MAC), int(CycleCause.VECTOR)
ON_LOAD, ON_CONTENTION = int(CycleCause.LOAD), int(CycleCause.CONTENTION)
ON_CONTROL = int(CycleCause.CONTROL)
ON_UNUSED = int(CycleCause.UNUSED)
CAUSES = len(CycleCause)
MAC, VECTOR = int(Unit.MAC), int(Unit.VECTOR)


@jit
def spend(m: Machine, core: Int, activity: Int, cycles: Int) -> None:
    """``cycles`` of a core pass with one activity."""
    m.cores[core].clock += cycles
    m.cores[core].pending[activity] += cycles


@jit
def book(m: Machine, core: Int, cause: Int) -> Any:
    """Book a core's time since the last booking; the cycles in which no unit worked, for ``cause``.

    Before a unit gets work, and before the layer changes.
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
def wait(m: Machine, core: Int, activity: Int, cause: Int, cycles: Int) -> Any:
    """A core waits for ``cycles``; those in which no unit worked."""
    book(m, core, ON_CONTROL)
    spend(m, core, activity, cycles)
    return book(m, core, cause)


@jit
def wait_for_transfer(m: Machine, core: Int, unit: Int, slot: Int, cycles: Int) -> None:
    """A core waits for a transfer: for the DRAM as far as that delayed the queue."""
    idle = wait(m, core, WAIT_LOAD + unit, ON_LOAD + unit, cycles)
    in_line = m.cores[core].in_line_at[unit, slot] - m.cores[core].in_line_booked[unit]
    contention = min(idle, max(in_line, 0))
    m.cores[core].spent[ON_LOAD + unit] -= contention
    m.cores[core].spent[ON_CONTENTION] += contention
    m.cores[core].in_line_booked[unit] += contention


@jit
def give_to_layer(m: Machine, core: Int, layer: Int) -> None:
    """Book what a core has spent since the last time on a layer."""
    for activity in range(ACTIVITIES):
        m.layers[layer].counts[activity] += m.cores[core].pending[activity]
        m.cores[core].pending[activity] = 0
    book(m, core, ON_CONTROL)
    for cause in range(CAUSES):
        m.layers[layer].spent[cause] += m.cores[core].spent[cause]
        m.cores[core].spent[cause] = 0


@jit
def works_on(m: Machine, core: Int, layer: Int) -> None:
    """The core's next work is for ``layer``; what it did since a barrier was for it already."""
    if m.cores[core].layer >= 0 and m.cores[core].layer != layer:
        give_to_layer(m, core, m.cores[core].layer)
    m.cores[core].layer = layer
    m.layers[layer].worked |= np.int64(1) << core


@jit
def call_unused(m: Machine, core: Int) -> None:
    """What a core did since the last barrier was for nothing: the layer gave it no work."""
    book(m, core, ON_CONTROL)
    for cause in range(ON_VECTOR + 1, CAUSES):
        cycles = m.cores[core].spent[cause]
        m.cores[core].spent[cause] = 0
        m.cores[core].spent[ON_UNUSED] += cycles


@jit
def leave_layer(m: Machine, core: Int, ended: Int) -> None:
    """A barrier is passed or the core halts; ``ended`` is used if the core named no layer."""
    layer = m.cores[core].layer if m.cores[core].layer >= 0 else ended
    give_to_layer(m, core, layer)
    m.cores[core].layer = -1
    m.cores[core].previous_layer = layer
