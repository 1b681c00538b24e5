"""Queues of the units, and the DRAM that serves transfers, in the compiled engine.

The functions are plain Python on the arrays of a :class:`~nmpsim.core.state.Machine`, which
compiled code calls. The reference engine has its own in ``core/reference/units.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.code_regions import count_steps_with_space
from nmpsim.core.compiled.cycle_accounting import (
    ON_CONTROL,
    WAIT_LOAD,
    attribute_cycles,
    spend_cycles,
    wait_for_transfer,
)
from nmpsim.core.instruction_tables import FOOTPRINT_KIND, INSTRUCTION_UNIT
from nmpsim.core.state import (
    MAX_NOTES,
    NEVER,
    CoreStatus,
    CountColumn,
    GrantKind,
    Int,
    Int64s,
    JobColumn,
    Machine,
)
from nmpsim.core.stop_conditions import MAX_STEPS
from nmpsim.isa.table import Unit
from nmpsim.isa.words import LOAD
from nmpsim.memory.dram import (
    BYTES_DONE,
    COUNT_X,
    COUNT_Y,
    CURSOR_WORDS,
    RUN,
    RUNS_DONE,
    advance_past_grant,
    find_next_bursts,
    get_next_address,
    is_served,
    start_transfer,
)
from nmpsim.memory.footprint import count_scratchpad_bytes
from nmpsim.timing import Costs
from nmpsim.timing.compute import ceil_div, convert_to_cycles, convert_to_ticks, count_grant_ticks
from nmpsim.timing.dram import (
    FREE,
    compute_first_burst,
    compute_next_request,
    count_shares,
    find_channel,
    get_latency,
    is_buffered,
    serve_request,
)
from nmpsim.timing.work import count_busy_cycles, count_macs, count_vector_elements

LAYER, READY, SETUP, BEGIN, PC, DESCRIPTOR, KNOWN, END = map(int, JobColumn)
BUSY_LOAD = int(CountColumn.BUSY_LOAD)
BURSTS, ROW_MISSES = int(CountColumn.BURSTS), int(CountColumn.ROW_MISSES)
BYTES_READ, MACS = int(CountColumn.BYTES_READ), int(CountColumn.MACS)
TENSOR_INSTRUCTIONS = int(CountColumn.TENSOR_INSTRUCTIONS)
VECTOR_ELEMENTS, SCRATCHPAD = int(CountColumn.VECTOR_ELEMENTS), int(CountColumn.SCRATCHPAD_DMA)
BURSTS_WRITTEN = int(CountColumn.BURSTS_WRITTEN)
BURSTS_SHARED = int(CountColumn.BURSTS_SHARED)
BUSY_STORE = int(CountColumn.BUSY_STORE)
OWN_GRANT, SHARED_GRANT = int(GrantKind.OWN), int(GrantKind.SHARED)
BUFFERED_GRANT = int(GrantKind.BUFFERED)
GRANT_BEGIN, GRANT_END = CURSOR_WORDS, CURSOR_WORDS + 1
"""Positions in a core's ``granted`` after the words of the cursor."""
LOAD_UNIT, STORE_UNIT = int(Unit.LOAD), int(Unit.STORE)
RUNNING, WAITING_UNIT = int(CoreStatus.RUNNING), int(CoreStatus.WAITING_UNIT)


def count_loggable_steps(m: Machine) -> Any:
    """Return how many more steps the logs have space for, or MAX_STEPS if there is no log."""
    steps = np.int64(MAX_STEPS)
    if m.work.size > 0:
        steps = (m.work.size - m.shared[0]["noted"]) // MAX_NOTES
    if m.waits.size > 0:
        steps = min(steps, m.waits.size - m.shared[0]["waited"] - m.cores.size)
    if m.code_regions.size > 0:
        steps = min(steps, count_steps_with_space(m))
    return steps


def record_wait(
    m: Machine, core: Int, what: Int, begin: Int, happened: Int, end: Int, awaited: Int
) -> None:
    """Record a wait of a core in the wait log, unless there is no log or the wait is empty."""
    if m.waits.size == 0 or end <= begin:
        return
    wait = m.waits[m.shared[0]["waited"]]
    m.shared[0]["waited"] += 1
    wait["core"], wait["what"], wait["awaited"] = core, what, awaited
    wait["begin"], wait["happened"], wait["end"] = begin, happened, end


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
    """Record a job or DRAM grant in the work log; return the entry's index, or -1 without a log."""
    if m.work.size == 0:
        return np.int64(-1)
    n = m.shared[0]["noted"]
    m.shared[0]["noted"] = n + 1
    work = m.work[n]
    work["core"], work["unit"], work["is_grant"], work["layer"] = core, unit, is_grant, layer
    work["pc"], work["descriptor"], work["bytes"] = pc, descriptor, nbytes
    work["begin"], work["end"], work["done"] = begin, end, done
    return n


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
    kind: Int,
) -> None:
    """Record a DRAM grant in the work log, with the transfer's progress before the grant."""
    n = record_work(
        m, core, unit, kind, job[PC], job[DESCRIPTOR], job[LAYER], begin, end, end, nbytes
    )
    if n >= 0:
        cursor = m.work[n]["cursor"]
        for word in range(CURSOR_WORDS):
            cursor[word] = job[word]
        cursor[RUNS_DONE], cursor[BYTES_DONE] = runs_done, bytes_done


def record_descriptor_fetch(
    m: Machine,
    core: Int,
    layer: Int,
    address: int,
    run_bytes: int,
    bytes_done: Int,
    begin: Int,
    end: Int,
    nbytes: Int,
) -> None:
    """Record in the work log a DRAM grant that reads a descriptor."""
    c = m.cores[core]
    pc, descriptor = c["pc"], c["descriptor"]
    n = record_work(m, core, LOAD_UNIT, 1, pc, descriptor, layer, begin, end, end, nbytes)
    if n >= 0:
        cursor = m.work[n]["cursor"]
        start_transfer(cursor, address, run_bytes, 1, 1, 0, 0)
        cursor[BYTES_DONE] = bytes_done


def await_job(m: Machine, costs: Costs, core: Int, unit: Int, job: Int) -> Any:
    """Wait for a job of a unit; return the cycles waited, or -1 while the job's end is unknown."""
    c = m.cores[core]
    if job < 0 or job < c["issued"][unit] - costs.queues_depth:
        return 0
    slot = job % costs.queues_depth
    end = c["finished"][unit, slot]
    if end == NEVER:
        c["status"] = WAITING_UNIT
        c["wait"][0], c["wait"][1] = unit, job
        return -1
    waited = max(end - c["clock"], 0)
    record_wait(m, core, unit, c["clock"], end, end, job)
    if waited > 0 and unit < 2:
        wait_for_transfer(m, core, unit, slot, waited)
    else:
        spend_cycles(m, core, WAIT_LOAD + unit, waited)  # its unit works, so nothing is idle
    return waited


def issue_compute_job(
    m: Machine, costs: Costs, core: Int, unit: Int, layer: Int, cycles: Int
) -> None:
    """Issue a job of ``cycles`` cycles to the MAC array or the vector unit."""
    attribute_cycles(m, core, ON_CONTROL)
    c = m.cores[core]
    start = max(c["clock"], c["unit_free"][unit])
    end = start + cycles
    c["unit_free"][unit] = end
    c["finished"][unit, c["issued"][unit] % costs.queues_depth] = end
    c["issued"][unit] += 1
    m.layers[layer]["counts"][BUSY_LOAD + unit] += cycles
    record_work(m, core, unit, 0, c["pc"], c["descriptor"], layer, start, end, end, 0)


def count_padding_bytes(words: Any) -> Any:
    """Return the number of padding bytes of a load."""
    wide = words[LOAD.pad_x_before] + words[LOAD.count_x] + words[LOAD.pad_x_after]
    high = words[LOAD.pad_y_before] + words[LOAD.count_y] + words[LOAD.pad_y_after]
    return (wide * high - words[LOAD.count_y] * words[LOAD.count_x]) * words[LOAD.run_bytes]


def start_tensor_instruction(
    m: Machine, costs: Costs, core: Int, number: Int, words: Any, layer: Int
) -> None:
    """Start a tensor instruction with descriptor ``words`` on its unit, and count its work."""
    unit, kind, counts = INSTRUCTION_UNIT[number], FOOTPRINT_KIND[number], m.layers[layer]["counts"]
    counts[TENSOR_INSTRUCTIONS] += 1
    counts[SCRATCHPAD + max(unit - STORE_UNIT, 0)] += count_scratchpad_bytes(kind, words)
    if unit > STORE_UNIT:
        counts[MACS] += count_macs(kind, words)
        counts[VECTOR_ELEMENTS] += count_vector_elements(kind, words)
        issue_compute_job(m, costs, core, unit, layer, count_busy_cycles(kind, words, costs))
        return
    # The first words of a load and a store are the same.
    counts[BYTES_READ + unit] += words[LOAD.count_y] * words[LOAD.count_x] * words[LOAD.run_bytes]
    setup = costs.dma_startup_cycles
    if unit == LOAD_UNIT:
        setup += ceil_div(count_padding_bytes(words), costs.dma_fill_bytes_per_cycle)
    enqueue_transfer(m, costs, core, unit, words, layer, setup)


def enqueue_transfer(
    m: Machine, costs: Costs, core: Int, unit: Int, words: Any, layer: Int, setup: Int
) -> None:
    """Enqueue a transfer on a unit of a core, with ``setup`` cycles before the first request."""
    c = m.cores[core]
    number = c["issued"][unit]
    slot = number % costs.queues_depth
    job = c["jobs"][unit, slot]
    start_transfer(
        job,
        words[LOAD.dram],
        words[LOAD.run_bytes],
        words[LOAD.count_x],
        words[LOAD.count_y],
        words[LOAD.dram_stride_x],
        words[LOAD.dram_stride_y],
    )
    job[LAYER], job[SETUP], job[READY] = layer, setup, c["clock"]
    job[PC], job[DESCRIPTOR] = c["pc"], c["descriptor"]
    c["finished"][unit, slot] = NEVER
    c["issued"][unit] = number + 1
    if c["served"][unit] == number:
        begin_transfers(m, costs, core, unit)


def begin_transfers(m: Machine, costs: Costs, core: Int, unit: Int) -> None:
    """Begin the next transfers of a queue until one needs the DRAM or the queue is empty."""
    c = m.cores[core]
    while c["served"][unit] < c["issued"][unit]:
        slot = c["served"][unit] % costs.queues_depth
        job = c["jobs"][unit, slot]
        job[BEGIN] = max(job[READY], c["unit_free"][unit])
        start = job[BEGIN] + job[SETUP]
        if job[READY] >= c["unit_free"][unit]:
            c["queueing_charged"][unit] = c["queueing"][unit]  # no delay
        if not is_served(job):
            c["request"][unit] = start
            job[KNOWN], job[END] = convert_to_ticks(start, costs), 0
            return
        finish_transfer(m, core, unit, slot, start, start)
    c["request"][unit] = NEVER


def finish_transfer(
    m: Machine, core: Int, unit: Int, slot: Int, free_cycle: Int, done_cycle: Int
) -> None:
    """Finish a transfer, and resume the core if it waits for this transfer.

    Its queue is free from ``free_cycle`` on; its data have arrived at ``done_cycle``.
    """
    c = m.cores[core]
    number, job = c["served"][unit], c["jobs"][unit, slot]
    nbytes = job[RUN] * job[COUNT_X] * job[COUNT_Y]
    pc, descriptor, layer, begin = job[PC], job[DESCRIPTOR], job[LAYER], job[BEGIN]
    record_work(m, core, unit, 0, pc, descriptor, layer, begin, free_cycle, done_cycle, nbytes)
    c["unit_free"][unit] = free_cycle
    c["finished"][unit, slot] = done_cycle
    c["queueing_at"][unit, slot] = c["queueing"][unit]
    c["served"][unit] = number + 1
    if c["status"] == WAITING_UNIT and c["wait"][0] == unit and c["wait"][1] == number:
        c["status"] = RUNNING
        record_wait(m, core, unit, c["clock"], done_cycle, done_cycle, number)
        wait_for_transfer(m, core, unit, slot, max(done_cycle - c["clock"], 0))


def get_next_request(m: Machine, costs: Costs, queue: Int) -> Any:
    """Return DRAM row and shares of bank groups of a queue's next request, and a tick.

    The shares are those of the next run. From the tick on, banks may open the row.
    """
    c, unit = m.cores[queue >> 1], queue & 1
    job = c["jobs"][unit, c["served"][unit] % costs.queues_depth]
    first, last = find_next_bursts(job, costs)
    row = get_next_address(job) // costs.dram_row_bytes
    return row, count_shares(first, last, costs), job[KNOWN]


def find_equal_grant(m: Machine, costs: Costs, core: Int) -> Any:
    """Find the core whose last grant the next load request of ``core`` shares; return -1 if none.

    With multicast, equal requests that wait at the same time are served once. So the grant is that
    of an equal transfer with equal progress, and does not begin before the request.
    """
    if not costs.dram_multicast:
        return np.int64(-1)
    c = m.cores[core]
    job = c["jobs"][LOAD_UNIT, c["served"][LOAD_UNIT] % costs.queues_depth]
    request = convert_to_ticks(c["request"][LOAD_UNIT], costs)
    for other in range(m.cores.size):
        granted = m.cores[other]["granted"]
        if other == core or granted[GRANT_BEGIN] < request:
            continue
        is_equal = True
        for word in range(CURSOR_WORDS):
            is_equal = is_equal and granted[word] == job[word]
        if is_equal:
            return np.int64(other)
    return np.int64(-1)


def choose_grant(m: Machine, costs: Costs, requests: Int64s, earliest_one: Int) -> Any:
    """Choose the queue that gets the next DRAM grant; return the queue and the decision's cycle.

    With look-ahead, a channel decides when it is free: of the requests within the look-ahead after
    its oldest one it serves the one whose first burst is earliest. The write buffer takes a store
    at its request.

    Parameters
    ----------
    m, costs
        The machine, and the costs of its device.
    requests
        int64 [2 * cores] cycle of the next request of each transfer queue, or NEVER.
    earliest_one
        Index of the earliest request.
    """
    if costs.dram_lookahead_cycles == 0:
        return earliest_one, requests[earliest_one]
    shared = np.int64(-1)
    for core in range(m.cores.size):
        is_earlier = requests[2 * core] < (NEVER if shared < 0 else requests[shared])
        if is_earlier and find_equal_grant(m, costs, core) >= 0:
            shared = np.int64(2 * core)
    if shared >= 0:
        return shared, requests[shared]
    dram = m.shared[0]["dram"]
    now, chooses, stores = np.int64(NEVER), 0, np.int64(-1)
    for queue in range(requests.size):
        if requests[queue] == NEVER:
            continue
        if is_buffered(queue & 1, costs):
            if stores < 0 or requests[queue] < requests[stores]:
                stores = np.int64(queue)
        else:
            number = find_channel(get_next_request(m, costs, queue)[0], costs)
            free = dram[number, FREE] // costs.dram_bytes_per_cycle
            if max(requests[queue], free) < now:
                now, chooses = max(requests[queue], free), number
    if stores >= 0 and requests[stores] <= now:
        return stores, requests[stores]
    oldest = NEVER
    for queue in range(requests.size):
        if (
            requests[queue] < oldest
            and not is_buffered(queue & 1, costs)
            and find_channel(get_next_request(m, costs, queue)[0], costs) == chooses
        ):
            oldest = requests[queue]
    latest = min(now, oldest + costs.dram_lookahead_cycles - 1)
    best, best_tick, best_request = np.int64(-1), NEVER, NEVER
    for queue in range(requests.size):
        if requests[queue] > latest or is_buffered(queue & 1, costs):
            continue
        row, shares, known = get_next_request(m, costs, queue)
        if find_channel(row, costs) != chooses:
            continue
        request = convert_to_ticks(requests[queue], costs)
        tick = compute_first_burst(dram[chooses], row, shares, queue & 1, known, request, costs)
        if tick < best_tick or (tick == best_tick and requests[queue] < best_request):
            best, best_tick, best_request = np.int64(queue), tick, requests[queue]
    return best, now


def fetch_descriptor(
    m: Machine, costs: Costs, core: Int, layer: Int, first: Any, nbytes: Any
) -> Any:
    """Simulate the DRAM reads of a descriptor; return the cycles until the descriptor is available.

    It is the core's turn, so all earlier requests are served.
    """
    now, counts = m.cores[core]["clock"], m.layers[layer]["counts"]
    request, there = convert_to_ticks(now, costs), now
    address, end = first, first + nbytes
    while address < end:
        row = address // costs.dram_row_bytes
        last = min(end, (row + 1) * costs.dram_row_bytes) - 1
        first_burst, last_burst = address // costs.dram_burst_bytes, last // costs.dram_burst_bytes
        bursts, shares = last_burst - first_burst + 1, count_shares(first_burst, last_burst, costs)
        moved = bursts * costs.dram_burst_bytes
        channel = m.shared[0]["dram"][find_channel(row, costs)]
        ticks = count_grant_ticks(moved, costs)
        begin_tick, end_tick, misses, drained = serve_request(
            channel, row, shares, 0, request, request, ticks, costs
        )
        begin, free = convert_to_cycles(begin_tick, costs), convert_to_cycles(end_tick, costs)
        counts[BUSY_LOAD] += free - begin
        counts[BUSY_STORE] += drained // costs.dram_bytes_per_cycle
        counts[BURSTS] += bursts
        counts[ROW_MISSES] += misses
        record_descriptor_fetch(m, core, layer, first, nbytes, address - first, begin, free, moved)
        there = max(there, free + costs.dram_latency_cycles)
        address = last + 1
    return there - now


def serve_queue(m: Machine, costs: Costs, core: Int, unit: Int) -> None:
    """Serve the next DRAM grant of a transfer queue, and finish the transfer if it is complete."""
    c, per_cycle = m.cores[core], costs.dram_bytes_per_cycle
    slot, request = c["served"][unit] % costs.queues_depth, c["request"][unit]
    job = c["jobs"][unit, slot]
    row = get_next_address(job) // costs.dram_row_bytes
    channel, counts = m.shared[0]["dram"][find_channel(row, costs)], m.layers[job[LAYER]]["counts"]
    runs_done, bytes_done = job[RUNS_DONE], job[BYTES_DONE]
    can_share, granted = costs.dram_multicast and unit == LOAD_UNIT, c["granted"]
    shared = find_equal_grant(m, costs, core) if can_share else np.int64(-1)
    if can_share:
        for word in range(CURSOR_WORDS):
            granted[word] = job[word]
    bursts, shares = advance_past_grant(job, costs)
    nbytes = bursts * costs.dram_burst_bytes
    is_shared = shared >= 0
    if is_shared:
        begin_tick = m.cores[shared]["granted"][GRANT_BEGIN]
        end_tick = m.cores[shared]["granted"][GRANT_END]
        misses, drained = 0, 0
    else:
        ticks = count_grant_ticks(nbytes, costs)
        begin_tick, end_tick, misses, drained = serve_request(
            channel, row, shares, unit, job[KNOWN], request * per_cycle, ticks, costs
        )
    if can_share:
        granted[GRANT_BEGIN], granted[GRANT_END] = begin_tick, end_tick
    start, end = convert_to_cycles(begin_tick, costs), convert_to_cycles(end_tick, costs)
    c["queueing"][unit] += begin_tick // per_cycle - request
    counts[BUSY_LOAD + unit] += 0 if is_shared else end - start
    counts[BURSTS_SHARED if is_shared else BURSTS] += bursts
    counts[BURSTS_WRITTEN] += bursts * unit
    counts[ROW_MISSES] += misses
    counts[BUSY_STORE] += drained // costs.dram_bytes_per_cycle
    kind = SHARED_GRANT if is_shared else OWN_GRANT
    if is_buffered(unit, costs) and end_tick == begin_tick:
        kind = BUFFERED_GRANT
    record_grant(m, core, unit, job, runs_done, bytes_done, start, end, nbytes, kind)
    all_end = max(job[END], end_tick)
    if is_served(job):
        free = convert_to_cycles(all_end, costs)
        finish_transfer(m, core, unit, slot, free, free + get_latency(unit, costs))
        begin_transfers(m, costs, core, unit)
    else:
        next_row = get_next_address(job) // costs.dram_row_bytes
        c["request"][unit] = compute_next_request(
            row, next_row, begin_tick, end_tick, job[END], costs
        )
        job[KNOWN], job[END] = begin_tick, all_end
