"""Next cycles of all cores and DRAM requests, in arrays that are quick to search.

A turn changes those of one core, unless a barrier or a semaphore releases others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.state import NEVER, CoreStatus, Machine
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import INSTRUCTIONS, InstructionKind, list_mnemonics
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit

RUNNING = int(CoreStatus.RUNNING)
_RELEASES = make_exhaustive_table(
    f"{__name__}._RELEASES",
    {
        "nmp.wait": False,
        "nmp.barrier": True,
        "nmp.post": True,
        "nmp.pend": False,
        "nmp.halt": False,
    },
    list_mnemonics(InstructionKind.SYNC),
)
MAY_RELEASE = np.array([*(_RELEASES.get(i.mnemonic, False) for i in INSTRUCTIONS), False])
"""[instructions + 1] whether an instruction may release other cores; the last is ILLEGAL."""


@jit
def find_earliest(cycles: Int64s) -> Any:
    """Return the first index of the lowest cycle, or -1 if all cycles are NEVER."""
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
def update_cycles(m: Machine, core: Int, clocks: Int64s, requests: Int64s) -> None:
    """Update the next cycles of a core in ``clocks`` and of its transfer queues in ``requests``."""
    clocks[core] = m.cores[core].clock if m.cores[core].status == RUNNING else NEVER
    for unit in range(2):
        requests[2 * core + unit] = m.cores[core].request[unit]


@jit
def update_all_cycles(m: Machine, clocks: Int64s, requests: Int64s) -> None:
    """Update ``clocks`` and ``requests`` with the next cycles of all cores."""
    for core in range(m.cores.size):
        update_cycles(m, core, clocks, requests)


@jit
def find_last_turn(core: Int, clocks: Int64s, until: Int) -> Any:
    """Return the last cycle up to ``until`` at which ``core`` still precedes all other cores."""
    last = np.int64(until)
    for other in range(core):
        last = min(last, clocks[other] - 1)
    for other in range(core + 1, clocks.size):
        last = min(last, clocks[other])
    return last
