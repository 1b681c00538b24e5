"""The record of what units did, for any caller: traces, time lines, pictures.

Both engines fill ``Machine.work`` while it has room, and come back with PAUSED before it overflows;
who called them reads it out. Without room, as in a plain run, nothing is noted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nmpsim.core.state import MAX_NOTES, WAIT, WORK, Machine
from nmpsim.core.stop_conditions import MAX_STEPS

ROOM = 1 << 14
"""Entries between two visits to Python: 2.3 MB."""

WorkListener = Callable[[Any], None]
"""Called with an array of ``WORK``, its own copy, in the order in which units were done with it.

An instruction of a computing unit is there when it is issued, a transfer when the DRAM has served
it: so a transfer always comes before work that waited for it.
"""


def with_work(machine: Machine, room: int = ROOM) -> Machine:
    """The same machine, all memory shared, that notes work; at least MAX_NOTES of room."""
    return machine._replace(work=np.zeros(max(room, MAX_NOTES), WORK).view(np.recarray))


def with_waits(machine: Machine, room: int = ROOM) -> Machine:
    """As ``with_work``, and what cores wait for is noted too."""
    return with_work(machine, room)._replace(waits=np.zeros(room, WAIT).view(np.recarray))


def take_waits(machine: Machine) -> Any:
    """What was noted of waits since the last time, as an array of ``WAIT``."""
    noted = machine.waits[: int(machine.shared[0].waited)].copy()
    machine.shared.waited[:] = 0
    return noted


def take_work(machine: Machine) -> Any:
    """What was noted since the last time, as an array of ``WORK``."""
    noted = machine.work[: int(machine.shared[0].noted)].copy()
    machine.shared.noted[:] = 0
    return noted


def steps_with_room(machine: Machine) -> int:
    """Steps that surely find room for what they note; all that a turn may take if none is kept."""
    if machine.work.size == 0:
        return MAX_STEPS
    steps = int((machine.work.size - machine.shared[0]["noted"]) // MAX_NOTES)
    if machine.waits.size == 0:
        return steps
    return int(min(steps, machine.waits.size - machine.shared[0]["waited"] - machine.cores.size))
