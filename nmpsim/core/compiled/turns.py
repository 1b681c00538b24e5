"""Whose turn it is: cycles of cores and of DRAM requests, side by side, to be looked through fast.

A turn changes the cycles of one core, but that barriers and semaphores let others go on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.state import NEVER, Status
from nmpsim.isa.table import INSTRUCTIONS, Kind, of_kind
from nmpsim.isa.total import total
from nmpsim.kernels.jit import jit

RUNNING = int(Status.RUNNING)
_RELEASES = total(
    f"{__name__}._RELEASES",
    {
        "nmp.wait": False,
        "nmp.barrier": True,
        "nmp.post": True,
        "nmp.pend": False,
        "nmp.halt": False,
    },
    of_kind(Kind.SYNC),
)
LETS_OTHERS_GO_ON = np.array([*(_RELEASES.get(i.mnemonic, False) for i in INSTRUCTIONS), False])
"""Instructions that may release other cores; the last entry is ILLEGAL's."""


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
