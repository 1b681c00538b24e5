"""The log of unit work, for traces, timelines and figures.

Both engines append to ``Machine.work`` and return PAUSED before it overflows; the caller reads it
out. With capacity 0, as in a plain run, nothing is logged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.core.code_regions import count_steps_with_space
from nmpsim.core.state import MAX_NOTES, WAIT, WORK, Machine
from nmpsim.core.stop_conditions import MAX_STEPS

ROOM = 1 << 14
"""Default capacity of the logs, 2.3 MB."""

WorkListener = Callable[[Any], None]
"""Called with a copy of an array of ``WORK``, in the order in which work was completed.

An instruction of a computing unit is logged when issued, a transfer when the DRAM has served it, so
a transfer always comes before work that waited for it.
"""


def add_work_log(machine: Machine, room: int = ROOM) -> Machine:
    """Return a machine with a new work log that shares all other arrays of ``machine``."""
    return machine._replace(work=np.zeros(max(room, MAX_NOTES), WORK).view(np.recarray))


def add_wait_log(machine: Machine, room: int = ROOM) -> Machine:
    """Return a machine with new work and wait logs that shares all other arrays of ``machine``."""
    return add_work_log(machine, room)._replace(waits=np.zeros(room, WAIT).view(np.recarray))


def drain_wait_log(machine: Machine) -> Any:
    """Return a copy of the wait log as a structured array, and clear the log."""
    noted = machine.waits[: int(machine.shared[0].waited)].copy()
    machine.shared.waited[:] = 0
    return noted


def drain_work_log(machine: Machine) -> Any:
    """Return a copy of the work log as a structured array, and clear the log."""
    noted = machine.work[: int(machine.shared[0].noted)].copy()
    machine.shared.noted[:] = 0
    return noted


def count_loggable_steps(machine: Machine) -> int:
    """Return how many more steps the logs have space for, or MAX_STEPS if there is no log."""
    steps = MAX_STEPS
    if machine.work.size:
        steps = (machine.work.size - machine.shared[0]["noted"]) // MAX_NOTES
    if machine.waits.size:
        steps = min(steps, machine.waits.size - machine.shared[0]["waited"] - machine.cores.size)
    if machine.code_regions.size:
        steps = min(steps, count_steps_with_space(machine))
    return int(steps)
