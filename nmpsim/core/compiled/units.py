"""Queues of the units, and the DRAM that serves transfers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.cycle_accounting import (
    ON_CONTROL,
    WAIT_LOAD,
    attribute_cycles,
    spend_cycles,
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
from nmpsim.timing.compute import convert_to_cycles, convert_to_ticks, grant_ticks
from nmpsim.timing.dram import FREE, find_channel, first_burst, next_request, serve_grant

LAYER, READY, SETUP, BEGIN, PC, DESCRIPTOR, KNOWN, END = map(int, Job)
BUSY_LOAD = int(Count.BUSY_LOAD)
BURSTS, ROW_MISSES = int(Count.BURSTS), int(Count.ROW_MISSES)
LOAD_UNIT = int(Unit.LOAD)
RUNNING, WAITING_UNIT = int(CoreStatus.RUNNING), int(CoreStatus.WAITING_UNIT)


@jit
def count_loggable_steps(m: Machine) -> Any:
    """Return the number of steps whose log entries certainly fit; MAX_STEPS without a log."""
    if m.work.size == 0:
        return MAX_STEPS
    steps = (m.work.size - m.shared[0].noted) // MAX_NOTES
    if m.waits.size == 0:
        return steps
    return min(steps, m.waits.size - m.shared[0].waited - m.cores.size)


@jit
def record_wait(
    m: Machine, core: Int, what: Int, begin: Int, happened: Int, end: Int, awaited: Int
) -> None:
    """Record that a core waits from ``begin`` to ``end``."""
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
def record_work(
    m: Machine,
    core: Int,
    unit: Int,
    is_grant: Int,
    pc: Int,
    descriptor: Int,
    layer: Int,
    begin: Int,
    end: Int,
    done: Int,
    nbytes: Int,
) -> Any:
    """Append an entry to the work log; return its index, or -1 if there is no log."""
    if m.work.size == 0:
        return np.int64(-1)
    n = m.shared[0].noted
    m.shared[0].noted = n + 1
    m.work[n].core = core
    m.work[n].unit = unit
    m.work[n].is_grant = is_grant
    m.work[n].pc = pc
    m.work[n].descriptor = descriptor
    m.work[n].layer = layer
    m.work[n].begin = begin
    m.work[n].end = end
    m.work[n].done = done
    m.work[n].bytes = nbytes
    return n


@jit
def record_grant(
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
    """Record a DRAM grant; ``runs_done`` and ``bytes_done`` are the progress before it."""
    n = record_work(m, core, unit, 1, job[PC], job[DESCRIPTOR], job[LAYER], begin, end, end, nbytes)
    if n >= 0:
        for word in range(CURSOR_WORDS):
            m.work[n].cursor[word] = job[word]
        m.work[n].cursor[RUNS_DONE] = runs_done
        m.work[n].cursor[BYTES_DONE] = bytes_done


@jit
def record_fetch(
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
    """Record a DRAM grant that reads a descriptor, a transfer of one run."""
    pc, descriptor = m.cores[core].pc, m.cores[core].descriptor
    n = record_work(m, core, LOAD_UNIT, 1, pc, descriptor, layer, begin, end, end, nbytes)
    if n >= 0:
        for word in range(CURSOR_WORDS):
            m.work[n].cursor[word] = 0
        m.work[n].cursor[ADDRESS] = address
        m.work[n].cursor[BYTES_DONE] = bytes_done
        m.work[n].cursor[RUN] = run_bytes
        m.work[n].cursor[COUNT_X] = 1
        m.work[n].cursor[COUNT_Y] = 1


@jit
def await_job(m: Machine, costs: Costs, core: Int, unit: Int, job: Int) -> Any:
    """Wait for a job of a unit; return the cycles waited, or -1 if its end is unknown."""
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
    record_wait(m, core, unit, m.cores[core].clock, end, end, job)
    if waited > 0 and unit < 2:
        wait_for_transfer(m, core, unit, slot, waited)
    else:
        spend_cycles(m, core, WAIT_LOAD + unit, waited)  # its unit works, so nothing is idle
    return waited


@jit
def compute(m: Machine, costs: Costs, core: Int, unit: Int, layer: Int, cycles: Int) -> None:
    """Issue a job of ``cycles`` cycles to the MAC array or the vector unit."""
    attribute_cycles(m, core, ON_CONTROL)
    start = max(m.cores[core].clock, m.cores[core].unit_free[unit])
    end = start + cycles
    m.cores[core].unit_free[unit] = end
    m.cores[core].finished[unit, m.cores[core].issued[unit] % costs.queues_depth] = end
    m.cores[core].issued[unit] += 1
    m.layers[layer].counts[BUSY_LOAD + unit] += cycles
    pc, descriptor = m.cores[core].pc, m.cores[core].descriptor
    record_work(m, core, unit, 0, pc, descriptor, layer, start, end, end, 0)


@jit
def enqueue_transfer(m: Machine, costs: Costs, core: Int, unit: Int) -> None:
    """Append the transfer in the next slot of ``jobs`` to its queue."""
    job = m.cores[core].issued[unit]
    m.cores[core].finished[unit, job % costs.queues_depth] = NEVER
    m.cores[core].issued[unit] += 1
    if m.cores[core].served[unit] == job:
        begin_transfer(m, costs, core, unit)


@jit
def begin_transfer(m: Machine, costs: Costs, core: Int, unit: Int) -> None:
    """Begin the queue's next transfers until one needs the DRAM or none is left."""
    while m.cores[core].served[unit] < m.cores[core].issued[unit]:
        slot = m.cores[core].served[unit] % costs.queues_depth
        job = m.cores[core].jobs[unit, slot]
        job[BEGIN] = max(job[READY], m.cores[core].unit_free[unit])
        start = job[BEGIN] + job[SETUP]
        if job[READY] >= m.cores[core].unit_free[unit]:
            m.cores[core].queueing_charged[unit] = m.cores[core].queueing[unit]  # no delay
        if not is_served(job):
            m.cores[core].request[unit] = start
            job[KNOWN], job[END] = convert_to_ticks(start, costs), 0
            return
        finish_transfer(m, core, unit, slot, start, start)
    m.cores[core].request[unit] = NEVER


@jit
def finish_transfer(m: Machine, core: Int, unit: Int, slot: Int, free: Int, finished: Int) -> None:
    """Complete a transfer: set when its queue is free and its data have arrived."""
    job = m.cores[core].served[unit]
    transfer = m.cores[core].jobs[unit, slot]
    nbytes = transfer[RUN] * transfer[COUNT_X] * transfer[COUNT_Y]
    pc, descriptor, layer = transfer[PC], transfer[DESCRIPTOR], transfer[LAYER]
    begin = transfer[BEGIN]
    record_work(m, core, unit, 0, pc, descriptor, layer, begin, free, finished, nbytes)
    m.cores[core].unit_free[unit] = free
    m.cores[core].finished[unit, slot] = finished
    m.cores[core].queueing_at[unit, slot] = m.cores[core].queueing[unit]
    m.cores[core].served[unit] += 1
    if (
        m.cores[core].status == WAITING_UNIT
        and m.cores[core].wait[0] == unit
        and m.cores[core].wait[1] == job
    ):
        m.cores[core].status = RUNNING
        record_wait(m, core, unit, m.cores[core].clock, finished, finished, job)
        wait_for_transfer(m, core, unit, slot, max(finished - m.cores[core].clock, 0))


@jit
def get_next_request(m: Machine, costs: Costs, queue: Int) -> Any:
    """Return the DRAM row of a queue's next request and the tick at which it became known."""
    core, unit = queue >> 1, queue & 1
    job = m.cores[core].jobs[unit, m.cores[core].served[unit] % costs.queues_depth]
    return next_address(job) // costs.dram_row_bytes, job[KNOWN]


@jit
def choose_grant(m: Machine, costs: Costs, requests: Int64s, earliest_one: Int) -> Any:
    """Return the queue that the DRAM serves next, and the cycle of the decision.

    With look-ahead, a channel decides when it is free: of the requests within the look-ahead after
    its oldest one it serves the one whose first burst is earliest.
    """
    if costs.dram_lookahead_cycles == 0:
        return earliest_one, requests[earliest_one]
    now, chooses = np.int64(NEVER), 0
    for queue in range(requests.size):
        if requests[queue] != NEVER:
            number = find_channel(get_next_request(m, costs, queue)[0], costs)
            free = m.shared[0].dram[number, FREE] // costs.dram_bytes_per_cycle
            if max(requests[queue], free) < now:
                now, chooses = max(requests[queue], free), number
    oldest = NEVER
    for queue in range(requests.size):
        if (
            requests[queue] < oldest
            and find_channel(get_next_request(m, costs, queue)[0], costs) == chooses
        ):
            oldest = requests[queue]
    latest = min(now, oldest + costs.dram_lookahead_cycles - 1)
    best, best_tick, best_request = np.int64(-1), NEVER, NEVER
    for queue in range(requests.size):
        if requests[queue] > latest:
            continue
        row, known = get_next_request(m, costs, queue)
        if find_channel(row, costs) != chooses:
            continue
        channel, request = m.shared[0].dram[chooses], convert_to_ticks(requests[queue], costs)
        tick = first_burst(channel, row, queue & 1, known, request, costs)
        if tick < best_tick or (tick == best_tick and requests[queue] < best_request):
            best, best_tick, best_request = np.int64(queue), tick, requests[queue]
    return best, now


@jit
def fetch(m: Machine, costs: Costs, core: Int, layer: Int, first: Any, nbytes: Int) -> Any:
    """Read a descriptor from DRAM; return the number of cycles until it is available.

    It is the core's turn, so all earlier requests are served.
    """
    now, there = m.cores[core].clock, m.cores[core].clock
    request = convert_to_ticks(now, costs)
    address, end = first, first + nbytes
    while address < end:
        row = address // costs.dram_row_bytes
        last = min(end, (row + 1) * costs.dram_row_bytes) - 1
        bursts = last // costs.dram_burst_bytes - address // costs.dram_burst_bytes + 1
        moved = bursts * costs.dram_burst_bytes
        channel = m.shared[0].dram[find_channel(row, costs)]
        begin = convert_to_cycles(max(request, channel[FREE]), costs)
        ticks = grant_ticks(moved, costs)
        end_tick, miss = serve_grant(channel, row, 0, request, request, ticks, costs)
        free = convert_to_cycles(end_tick, costs)
        m.layers[layer].counts[BUSY_LOAD] += free - begin
        m.layers[layer].counts[BURSTS] += bursts
        m.layers[layer].counts[ROW_MISSES] += 1 if miss else 0
        record_fetch(m, core, layer, first, nbytes, address - first, begin, free, moved)
        there = max(there, free + costs.dram_latency_cycles)
        address = last + 1
    return there - now


@jit
def serve(m: Machine, costs: Costs, core: Int, unit: Int) -> None:
    """Serve one DRAM grant of a queue."""
    slot = m.cores[core].served[unit] % costs.queues_depth
    job = m.cores[core].jobs[unit, slot]
    row = next_address(job) // costs.dram_row_bytes
    channel = m.shared[0].dram[find_channel(row, costs)]
    runs_done, bytes_done = job[RUNS_DONE], job[BYTES_DONE]
    bursts = take_grant(job, costs)
    nbytes = bursts * costs.dram_burst_bytes
    request, per_cycle = m.cores[core].request[unit], costs.dram_bytes_per_cycle
    begin_tick = max(request * per_cycle, channel[FREE])
    end_tick, miss = serve_grant(
        channel, row, unit, job[KNOWN], request * per_cycle, grant_ticks(nbytes, costs), costs
    )
    start, end = convert_to_cycles(begin_tick, costs), convert_to_cycles(end_tick, costs)
    m.cores[core].queueing[unit] += begin_tick // per_cycle - request
    m.layers[job[LAYER]].counts[BUSY_LOAD + unit] += end - start
    m.layers[job[LAYER]].counts[BURSTS] += bursts
    m.layers[job[LAYER]].counts[ROW_MISSES] += 1 if miss else 0
    record_grant(m, core, unit, job, runs_done, bytes_done, start, end, nbytes)
    all_end = max(job[END], end_tick)
    if is_served(job):
        free = convert_to_cycles(all_end, costs)
        finish_transfer(m, core, unit, slot, free, free + costs.dram_latency_cycles)
        begin_transfer(m, costs, core, unit)
    else:
        next_row = next_address(job) // costs.dram_row_bytes
        m.cores[core].request[unit] = next_request(
            row, next_row, begin_tick, end_tick, job[END], costs
        )
        job[KNOWN], job[END] = begin_tick, all_end
