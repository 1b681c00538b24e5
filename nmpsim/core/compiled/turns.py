"""Whose turn it is: cycles of cores and of DRAM requests, side by side, to be looked through fast.

A turn changes the cycles of one core, but that barriers and semaphores let others go on.
"""

from __future__ import annotations

from typing import Any

from nmpsim.core.decode import OP
from nmpsim.core.state import NEVER, Status
from nmpsim.kernels.jit import jit

RUNNING = int(Status.RUNNING)


@jit
def earliest(cycles: Any) -> Any:
    """Index of the lowest of ``cycles``, the first one of equals; -1 if all are NEVER."""
    lowest = NEVER
    for i in range(cycles.size):
        lowest = min(lowest, cycles[i])
    if lowest == NEVER:
        return -1
    first = 0
    while cycles[first] != lowest:
        first += 1
    return first


@jit
def note_cycles(m: Any, core: Any, clocks: Any, requests: Any) -> None:
    """Take over a core's cycles: int64 [cores], and [2 * cores] for its two queues of transfers."""
    clocks[core] = m.cores[core].clock if m.cores[core].status == RUNNING else NEVER
    for unit in range(2):
        requests[2 * core + unit] = m.cores[core].request[unit]


@jit
def note_all_cycles(m: Any, clocks: Any, requests: Any) -> None:
    """As ``note_cycles``, for all."""
    for core in range(m.cores.size):
        note_cycles(m, core, clocks, requests)


@jit
def lets_others_go_on(number: Any) -> Any:
    """True if an instruction may release other cores."""
    return number == OP.nmp_barrier or number == OP.nmp_post
