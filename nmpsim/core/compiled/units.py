"""Queues of the units, and the DRAM that serves transfers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.cycle_accounting import (
    ON_CONTROL,
    WAIT_LOAD,
    book,
    spend,
    wait_for_transfer,
)
from nmpsim.core.state import MAX_NOTES, NEVER, CoreStatus, Count, Job, Machine
from nmpsim.core.stop_conditions import MAX_STEPS
from nmpsim.isa.table import Unit
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.memory.dram import (
    ADDRESS,
    BYTES_DONE,
    COUNT_X,
    COUNT_Y,
    CURSOR_WORDS,
    RUN,
    RUNS_DONE,
    is_served,
    next_address,
    take_grant,
)
from nmpsim.timing import Costs
from nmpsim.timing.compute import cycles_of, grant_ticks, ticks_of
from nmpsim.timing.dram import FREE, channel_of, first_burst, next_request, serve_grant

LAYER, BEGIN = int(Job.LAYER), int(Job.BEGIN)
PC, DESCRIPTOR = int(Job.PC), int(Job.DESCRIPTOR)


@jit
def steps_with_room(m: Machine) -> Any:
    """Steps that surely find room for what they note; all that a turn may take if none is kept."""
    if m.work.size == 0:
        return MAX_STEPS
    steps = (m.work.size - m.shared[0].noted) // MAX_NOTES
    if m.waits.size == 0:
        return steps
    return min(steps, m.waits.size - m.shared[0].waited - m.cores.size)


@jit
def note_wait(
    m: Machine, core: Int, what: Int, begin: Int, happened: Int, end: Int, awaited: Int
) -> None:
    """A core waits from ``begin`` to ``end``."""
    if m.waits.size == 0 or end <= begin:
        return
    n = m.shared[0].waited
    m.shared[0].waited = n + 1
    m.waits[n].core = core
    m.waits[n].what = what
    m.waits[n].begin = begin
    m.waits[n].happened = happened
    m.waits[n].end = end
    m.waits[n].awaited = awaited


@jit
def note(m: Machine, core: Int, unit: Int, layer: Int, begin: Int, end: Int, done: Int) -> Any:
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
def note_compute(m: Machine, core: Int, unit: Int, layer: Int, begin: Int, end: Int) -> None:
    """An instruction of the MAC array or the vector unit."""
    if m.work.size == 0:
        return
    n = note(m, core, unit, layer, begin, end, end)
    m.work[n].is_grant = 0
    m.work[n].pc = m.cores[core].pc
    m.work[n].descriptor = m.cores[core].descriptor
    m.work[n].bytes = 0


@jit
def note_transfer(m: Machine, core: Int, unit: Int, job: Int64s, free: Int, finished: Int) -> None:
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
    m: Machine,
    core: Int,
    unit: Int,
    job: Int64s,
    runs_done: Int,
    bytes_done: Int,
    begin: Int,
    end: Int,
    nbytes: Int,
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


@jit
def note_fetch(
    m: Machine,
    core: Int,
    layer: Int,
    address: Int,
    run_bytes: Int,
    bytes_done: Int,
    begin: Int,
    end: Int,
    nbytes: Int,
) -> None:
    """A grant of the DRAM that reads a descriptor: a transfer of one run."""
    if m.work.size == 0:
        return
    n = note(m, core, LOAD_UNIT, layer, begin, end, end)
    m.work[n].is_grant = 1
    m.work[n].pc = m.cores[core].pc
    m.work[n].descriptor = m.cores[core].descriptor
    m.work[n].bytes = nbytes
    for word in range(CURSOR_WORDS):
        m.work[n].cursor[word] = 0
    m.work[n].cursor[ADDRESS] = address
    m.work[n].cursor[BYTES_DONE] = bytes_done
    m.work[n].cursor[RUN] = run_bytes
    m.work[n].cursor[COUNT_X] = 1
    m.work[n].cursor[COUNT_Y] = 1


LAYER, READY, SETUP, BEGIN = int(Job.LAYER), int(Job.READY), int(Job.SETUP), int(Job.BEGIN)
KNOWN, END = int(Job.KNOWN), int(Job.END)
BUSY_LOAD = int(Count.BUSY_LOAD)
LOAD_UNIT = int(Unit.LOAD)
BURSTS, ROW_MISSES = int(Count.BURSTS), int(Count.ROW_MISSES)
RUNNING, WAITING_UNIT = int(CoreStatus.RUNNING), int(CoreStatus.WAITING_UNIT)


@jit
def await_job(m: Machine, costs: Costs, core: Int, unit: Int, job: Int) -> Any:
    """Wait until ``job`` of a unit is finished: cycles waited, or -1 if that is not known yet."""
    if job < 0 or job < m.cores[core].issued[unit] - costs.queues_depth:
        return 0
    slot = job % costs.queues_depth
    end = m.cores[core].finished[unit, slot]
    if end == NEVER:
        m.cores[core].status = WAITING_UNIT
        m.cores[core].wait[0] = unit
        m.cores[core].wait[1] = job
        return -1
    waited = max(end - m.cores[core].clock, 0)
    note_wait(m, core, unit, m.cores[core].clock, end, end, job)
    if waited > 0 and unit < 2:
        wait_for_transfer(m, core, unit, slot, waited)
    else:
        spend(m, core, WAIT_LOAD + unit, waited)  # its unit works: no booking needed
    return waited


@jit
def compute(m: Machine, costs: Costs, core: Int, unit: Int, layer: Int, cycles: Int) -> None:
    """Give ``cycles`` of work to the MAC array or the vector unit."""
    book(m, core, ON_CONTROL)
    start = max(m.cores[core].clock, m.cores[core].unit_free[unit])
    end = start + cycles
    m.cores[core].unit_free[unit] = end
    m.cores[core].finished[unit, m.cores[core].issued[unit] % costs.queues_depth] = end
    m.cores[core].issued[unit] += 1
    m.layers[layer].counts[BUSY_LOAD + unit] += cycles
    note_compute(m, core, unit, layer, start, end)


@jit
def enqueue_transfer(m: Machine, costs: Costs, core: Int, unit: Int) -> None:
    """The transfer in the next slot of ``jobs`` is complete; let the queue know."""
    job = m.cores[core].issued[unit]
    m.cores[core].finished[unit, job % costs.queues_depth] = NEVER
    m.cores[core].issued[unit] += 1
    if m.cores[core].served[unit] == job:
        begin_transfer(m, costs, core, unit)


@jit
def begin_transfer(m: Machine, costs: Costs, core: Int, unit: Int) -> None:
    """Start the queue's next transfers until one needs the DRAM or none is left."""
    while m.cores[core].served[unit] < m.cores[core].issued[unit]:
        slot = m.cores[core].served[unit] % costs.queues_depth
        job = m.cores[core].jobs[unit, slot]
        job[BEGIN] = max(job[READY], m.cores[core].unit_free[unit])
        start = job[BEGIN] + job[SETUP]
        if job[READY] >= m.cores[core].unit_free[unit]:
            m.cores[core].in_line_booked[unit] = m.cores[core].in_line[unit]  # it lost no time
        if not is_served(job):
            m.cores[core].request[unit] = start
            job[KNOWN], job[END] = ticks_of(start, costs), 0
            return
        finish_transfer(m, core, unit, slot, start, start)
    m.cores[core].request[unit] = NEVER


@jit
def finish_transfer(m: Machine, core: Int, unit: Int, slot: Int, free: Int, finished: Int) -> None:
    """The queue is free at ``free``, the data are there at ``finished``; a waiting core goes on."""
    job = m.cores[core].served[unit]
    note_transfer(m, core, unit, m.cores[core].jobs[unit, slot], free, finished)
    m.cores[core].unit_free[unit] = free
    m.cores[core].finished[unit, slot] = finished
    m.cores[core].in_line_at[unit, slot] = m.cores[core].in_line[unit]
    m.cores[core].served[unit] += 1
    if (
        m.cores[core].status == WAITING_UNIT
        and m.cores[core].wait[0] == unit
        and m.cores[core].wait[1] == job
    ):
        m.cores[core].status = RUNNING
        note_wait(m, core, unit, m.cores[core].clock, finished, finished, job)
        wait_for_transfer(m, core, unit, slot, max(finished - m.cores[core].clock, 0))


@jit
def asking(m: Machine, costs: Costs, queue: Int) -> Any:
    """The DRAM row that a queue's transfer needs next, and since when the DRAM knows of it."""
    core, unit = queue >> 1, queue & 1
    job = m.cores[core].jobs[unit, m.cores[core].served[unit] % costs.queues_depth]
    return next_address(job) // costs.dram_row_bytes, job[KNOWN]


@jit
def next_grant(m: Machine, costs: Costs, requests: Int64s, earliest_one: Int) -> Any:
    """The queue that the DRAM serves next, and the cycle in which it does or chooses so.

    With look-ahead a channel chooses when it is free: of the requests that are not much later than
    its oldest one that whose first burst can be first.
    """
    if costs.dram_lookahead_cycles == 0:
        return earliest_one, requests[earliest_one]
    now, chooses = np.int64(NEVER), 0
    for queue in range(requests.size):
        if requests[queue] != NEVER:
            number = channel_of(asking(m, costs, queue)[0], costs)
            free = m.shared[0].dram[number, FREE] // costs.dram_bytes_per_cycle
            if max(requests[queue], free) < now:
                now, chooses = max(requests[queue], free), number
    oldest = NEVER
    for queue in range(requests.size):
        if requests[queue] < oldest and channel_of(asking(m, costs, queue)[0], costs) == chooses:
            oldest = requests[queue]
    latest = min(now, oldest + costs.dram_lookahead_cycles - 1)
    best, best_tick, best_request = np.int64(-1), NEVER, NEVER
    for queue in range(requests.size):
        if requests[queue] > latest:
            continue
        row, known = asking(m, costs, queue)
        if channel_of(row, costs) != chooses:
            continue
        channel, request = m.shared[0].dram[chooses], ticks_of(requests[queue], costs)
        tick = first_burst(channel, row, queue & 1, known, request, costs)
        if tick < best_tick or (tick == best_tick and requests[queue] < best_request):
            best, best_tick, best_request = np.int64(queue), tick, requests[queue]
    return best, now


@jit
def fetch(m: Machine, costs: Costs, core: Int, layer: Int, first: Any, nbytes: Int) -> Any:
    """A core reads its descriptor from the DRAM: cycles until it is there.

    It is the core's turn, so all earlier requests are served.
    """
    now, there = m.cores[core].clock, m.cores[core].clock
    request = ticks_of(now, costs)
    address, end = first, first + nbytes
    while address < end:
        row = address // costs.dram_row_bytes
        last = min(end, (row + 1) * costs.dram_row_bytes) - 1
        bursts = last // costs.dram_burst_bytes - address // costs.dram_burst_bytes + 1
        moved = bursts * costs.dram_burst_bytes
        channel = m.shared[0].dram[channel_of(row, costs)]
        begin = cycles_of(max(request, channel[FREE]), costs)
        ticks = grant_ticks(moved, costs)
        end_tick, miss = serve_grant(channel, row, 0, request, request, ticks, costs)
        free = cycles_of(end_tick, costs)
        m.layers[layer].counts[BUSY_LOAD] += free - begin
        m.layers[layer].counts[BURSTS] += bursts
        m.layers[layer].counts[ROW_MISSES] += 1 if miss else 0
        note_fetch(m, core, layer, first, nbytes, address - first, begin, free, moved)
        there = max(there, free + costs.dram_latency_cycles)
        address = last + 1
    return there - now


@jit
def serve(m: Machine, costs: Costs, core: Int, unit: Int) -> None:
    """The DRAM serves one grant of a queue."""
    slot = m.cores[core].served[unit] % costs.queues_depth
    job = m.cores[core].jobs[unit, slot]
    row = next_address(job) // costs.dram_row_bytes
    channel = m.shared[0].dram[channel_of(row, costs)]
    runs_done, bytes_done = job[RUNS_DONE], job[BYTES_DONE]
    bursts = take_grant(job, costs)
    nbytes = bursts * costs.dram_burst_bytes
    request, per_cycle = m.cores[core].request[unit], costs.dram_bytes_per_cycle
    begin_tick = max(request * per_cycle, channel[FREE])
    end_tick, miss = serve_grant(
        channel, row, unit, job[KNOWN], request * per_cycle, grant_ticks(nbytes, costs), costs
    )
    start, end = cycles_of(begin_tick, costs), cycles_of(end_tick, costs)
    m.cores[core].in_line[unit] += begin_tick // per_cycle - request
    m.layers[job[LAYER]].counts[BUSY_LOAD + unit] += end - start
    m.layers[job[LAYER]].counts[BURSTS] += bursts
    m.layers[job[LAYER]].counts[ROW_MISSES] += 1 if miss else 0
    note_grant(m, core, unit, job, runs_done, bytes_done, start, end, nbytes)
    all_end = max(job[END], end_tick)
    if is_served(job):
        free = cycles_of(all_end, costs)
        finish_transfer(m, core, unit, slot, free, free + costs.dram_latency_cycles)
        begin_transfer(m, costs, core, unit)
    else:
        next_row = next_address(job) // costs.dram_row_bytes
        m.cores[core].request[unit] = next_request(
            row, next_row, begin_tick, end_tick, job[END], costs
        )
        job[KNOWN], job[END] = begin_tick, all_end
