"""Attribution of a core's cycles in the compiled engine.

Cycles are counted twice: by activity of the control core at once, and by cause when that is known
or may change (``attribute_cycles``). A unit works without a gap from now until it is free, because
all its jobs were issued before, so its work in a span of time needs no look at its jobs.

The functions are plain Python on the arrays of a :class:`~nmpsim.core.state.Machine`, which
compiled code calls. The reference engine has its own in ``core/reference/context.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.state import CountColumn, CycleCause, Int, Machine
from nmpsim.isa.table import Unit

CONTROL = np.int64(CountColumn.CONTROL)
WAIT_LOAD = np.int64(CountColumn.WAIT_LOAD)
ACTIVITIES, INSTRUCTIONS = int(CountColumn.IDLE) + 1, int(CountColumn.INSTRUCTIONS)
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


def spend_cycles(m: Machine, core: Int, activity: Int, cycles: Int) -> None:
    """Advance a core's clock by ``cycles`` and add them to its pending cycles of ``activity``."""
    c = m.cores[core]
    c["clock"] += cycles
    c["pending"][activity] += cycles


def attribute_cycles(m: Machine, core: Int, cause: Int) -> Any:
    """Attribute new cycles to MAC array, vector unit or ``cause``; return the cycles of ``cause``.

    Must be called before a unit gets work and before the layer changes.
    """
    c = m.cores[core]
    start, end, free, spent = c["booked"], c["clock"], c["unit_free"], c["spent"]
    on_mac = min(max(free[MAC], start), end)
    on_vector = min(max(free[VECTOR], on_mac), end)
    spent[ON_MAC] += on_mac - start
    spent[ON_VECTOR] += on_vector - on_mac
    spent[cause] += end - on_vector
    c["booked"] = end
    return end - on_vector


def wait_cycles(m: Machine, core: Int, activity: Int, cause: Int, cycles: Int) -> Any:
    """Advance a waiting core's clock; return the cycles without MAC array or vector unit work."""
    attribute_cycles(m, core, ON_CONTROL)
    spend_cycles(m, core, activity, cycles)
    return attribute_cycles(m, core, cause)


def wait_for_transfer(m: Machine, core: Int, unit: Int, slot: Int, cycles: Int) -> None:
    """Advance a core's clock by its wait for a transfer; attribute queueing delay separately."""
    idle = wait_cycles(m, core, WAIT_LOAD + unit, ON_LOAD + unit, cycles)
    c = m.cores[core]
    charged, spent = c["queueing_charged"], c["spent"]
    contention = min(idle, max(c["queueing_at"][unit, slot] - charged[unit], 0))
    spent[ON_LOAD + unit] -= contention
    spent[ON_CONTENTION] += contention
    charged[unit] += contention


def assign_pending_cycles(m: Machine, core: Int, layer: Int) -> None:
    """Assign a core's pending cycles and instructions to a layer, and clear the pending cycles."""
    attribute_cycles(m, core, ON_CONTROL)
    c, total = m.cores[core], m.layers[layer]
    total["counts"][INSTRUCTIONS] += c["retired"] - c["counted"]
    c["counted"] = c["retired"]
    for activity in range(ACTIVITIES):
        total["counts"][activity] += c["pending"][activity]
        c["pending"][activity] = 0
    for cause in range(CAUSES):
        total["spent"][cause] += c["spent"][cause]
        c["spent"][cause] = 0


def begin_layer(m: Machine, core: Int, layer: Int) -> None:
    """Begin a layer on a core: attribute work since the last barrier, and later work, to it."""
    c = m.cores[core]
    if c["layer"] >= 0 and c["layer"] != layer:
        assign_pending_cycles(m, core, c["layer"])
    c["layer"] = layer
    m.layers[layer]["worked"] |= np.int64(1) << core


def mark_unused(m: Machine, core: Int) -> None:
    """Attribute a core's pending cycles without MAC array or vector unit work to ``ON_UNUSED``."""
    attribute_cycles(m, core, ON_CONTROL)
    spent = m.cores[core]["spent"]
    for cause in range(ON_VECTOR + 1, CAUSES):
        cycles = spent[cause]
        spent[cause] = 0
        spent[ON_UNUSED] += cycles


def leave_layer(m: Machine, core: Int, ended: Int) -> None:
    """End a core's layer; assign pending cycles to the layer, or to ``ended`` outside of layers."""
    c = m.cores[core]
    layer = c["layer"] if c["layer"] >= 0 else np.int64(ended)
    assign_pending_cycles(m, core, layer)
    c["layer"] = -1
    c["previous_layer"] = layer
