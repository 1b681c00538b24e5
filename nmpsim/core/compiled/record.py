"""Notes of what units did; :mod:`nmpsim.core.work` says who reads them."""

from __future__ import annotations

from typing import Any

from nmpsim.core.state import MOST_NOTES, Job
from nmpsim.core.stops import MOST_STEPS
from nmpsim.kernels.jit import jit
from nmpsim.timing.dram import BYTES_DONE, COUNT_X, COUNT_Y, CURSOR_WORDS, RUN, RUNS_DONE

LAYER, BEGIN = int(Job.LAYER), int(Job.BEGIN)
PC, DESCRIPTOR = int(Job.PC), int(Job.DESCRIPTOR)


@jit
def steps_with_room(m: Any) -> Any:
    """Steps that surely find room for what they note; all that a turn may take if none is kept."""
    if m.work.size == 0:
        return MOST_STEPS
    return (m.work.size - m.shared[0].noted) // MOST_NOTES


@jit
def note(m: Any, core: Any, unit: Any, layer: Any, begin: Any, end: Any, done: Any) -> Any:
    """The next entry, filled as far as all are alike; there must be room."""
    n = m.shared[0].noted
    m.shared[0].noted = n + 1
    m.work[n].core = core
    m.work[n].unit = unit
    m.work[n].layer = layer
    m.work[n].begin = begin
    m.work[n].end = end
    m.work[n].done = done
    return n


@jit
def note_compute(m: Any, core: Any, unit: Any, layer: Any, begin: Any, end: Any) -> None:
    """An instruction of the MAC array or the vector unit."""
    if m.work.size == 0:
        return
    n = note(m, core, unit, layer, begin, end, end)
    m.work[n].is_grant = 0
    m.work[n].pc = m.cores[core].pc
    m.work[n].descriptor = m.cores[core].descriptor
    m.work[n].bytes = 0


@jit
def note_transfer(m: Any, core: Any, unit: Any, job: Any, free: Any, finished: Any) -> None:
    """A transfer that is served."""
    if m.work.size == 0:
        return
    n = note(m, core, unit, job[LAYER], job[BEGIN], free, finished)
    m.work[n].is_grant = 0
    m.work[n].pc = job[PC]
    m.work[n].descriptor = job[DESCRIPTOR]
    m.work[n].bytes = job[RUN] * job[COUNT_X] * job[COUNT_Y]


@jit
def note_grant(
    m: Any,
    core: Any,
    unit: Any,
    job: Any,
    runs_done: Any,
    bytes_done: Any,
    begin: Any,
    end: Any,
    nbytes: Any,
) -> None:
    """A grant of the DRAM; the transfer had come as far as ``runs_done`` and ``bytes_done``."""
    if m.work.size == 0:
        return
    n = note(m, core, unit, job[LAYER], begin, end, end)
    m.work[n].is_grant = 1
    m.work[n].pc = job[PC]
    m.work[n].descriptor = job[DESCRIPTOR]
    m.work[n].bytes = nbytes
    for word in range(CURSOR_WORDS):
        m.work[n].cursor[word] = job[word]
    m.work[n].cursor[RUNS_DONE] = runs_done
    m.work[n].cursor[BYTES_DONE] = bytes_done
