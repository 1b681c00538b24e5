"""Queues of the units, and the DRAM that serves transfers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.record import (
    note_compute,
    note_fetch,
    note_grant,
    note_transfer,
    note_wait,
)
from nmpsim.core.reference.step import EndOfTurnError
from nmpsim.core.state import NEVER, CoreStatus, Count, CycleCause, Job, Machine, WaitTarget
from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.isa.table import Unit
from nmpsim.memory.dram import CURSOR_WORDS, is_served, next_address, start_transfer, take_grant
from nmpsim.timing import Costs
from nmpsim.timing.compute import cycles_of, grant_ticks, ticks_of
from nmpsim.timing.dram import FREE, channel_of, first_burst, next_request, serve_grant

WAIT = exhaustive_table(
    f"{__name__}.WAIT",
    {
        Unit.LOAD: Count.WAIT_LOAD,
        Unit.STORE: Count.WAIT_STORE,
        Unit.MAC: Count.WAIT_MAC,
        Unit.VECTOR: Count.WAIT_VECTOR,
    },
    Unit,
)
CAUSE = exhaustive_table(
    f"{__name__}.CAUSE",
    {
        Unit.LOAD: CycleCause.LOAD,
        Unit.STORE: CycleCause.STORE,
        Unit.MAC: CycleCause.MAC,
        Unit.VECTOR: CycleCause.VECTOR,
    },
    Unit,
)
BUSY = exhaustive_table(
    f"{__name__}.BUSY",
    {
        Unit.LOAD: Count.BUSY_LOAD,
        Unit.STORE: Count.BUSY_STORE,
        Unit.MAC: Count.BUSY_MAC,
        Unit.VECTOR: Count.BUSY_VECTOR,
    },
    Unit,
)


class Queue:
    """A unit of a core: what was issued, what is finished and when. Job numbers never repeat."""

    def __init__(self, core: Core, unit: Unit, costs: Costs) -> None:
        self.core = core
        self.unit = unit
        self.costs = costs
        self._record = core.record

    @property
    def issued(self) -> int:
        """Jobs given to the unit so far; the next job's number."""
        return int(self._record["issued"][self.unit])

    @property
    def served(self) -> int:
        """Transfers that the DRAM has served; the number of the one it is at."""
        return int(self._record["served"][self.unit])

    @property
    def free(self) -> int:
        """Cycle at which the unit can begin its next job."""
        return int(self._record["unit_free"][self.unit])

    @property
    def request(self) -> int:
        """Cycle of the next DRAM request, or NEVER."""
        return int(self._record["request"][self.unit])

    def ask_at(self, cycle: int) -> None:
        """Set the cycle of the next DRAM request."""
        self._record["request"][self.unit] = cycle

    def transfer(self, job: int) -> Any:
        """Record of a DMA job, for its cursor and the columns of Job."""
        return self._record["jobs"][self.unit, job % self.costs.queues_depth]

    def next_row(self) -> int:
        """The DRAM row that the transfer which is served needs next."""
        return next_address(self.transfer(self.served)) // self.costs.dram_row_bytes

    def channel(self, machine: Machine) -> Any:
        """The channel that has this row; see :mod:`nmpsim.timing.dram`."""
        return machine.shared["dram"][0, channel_of(self.next_row(), self.costs)]

    def can_choose_at(self, machine: Machine) -> int:
        """Cycle in which the channel is free and the request is there."""
        free = int(self.channel(machine)[FREE]) // self.costs.dram_bytes_per_cycle
        return max(self.request, free)

    def first_burst(self, machine: Machine) -> int:
        """Tick of the first burst if the DRAM served the request next."""
        known = int(self.transfer(self.served)[Job.KNOWN])
        request = ticks_of(self.request, self.costs)
        channel, row = self.channel(machine), self.next_row()
        return first_burst(channel, row, int(self.unit), known, request, self.costs)

    def finished(self, job: int) -> int:
        """Cycle at which a job is finished, NEVER while unknown."""
        if job < 0 or job < self.issued - self.costs.queues_depth:
            return 0
        return int(self._record["finished"][self.unit, job % self.costs.queues_depth])

    def finish(self, job: int, free: int, finished: int) -> None:
        """The unit can go on at ``free``; the job's result is there at ``finished``."""
        self._record["unit_free"][self.unit] = free
        self._record["finished"][self.unit, job % self.costs.queues_depth] = finished

    def stand_in_line(self, cycles: int) -> None:
        """A request was not served for so long, because the DRAM served others."""
        self._record["in_line"][self.unit] += cycles

    def note_line(self, job: int) -> None:
        """A transfer is served: all time in line until now delayed it."""
        self._record["in_line_at"][self.unit, job % self.costs.queues_depth] = self._record[
            "in_line"
        ][self.unit]

    def forget_line(self) -> None:
        """The queue had nothing to do: what it lost before delays nothing that comes."""
        self._record["in_line_booked"][self.unit] = self._record["in_line"][self.unit]

    def book_line(self, job: int, most: int) -> int:
        """Of ``most`` cycles of waiting for a transfer, those that the queue lost in line."""
        line = int(self._record["in_line_at"][self.unit, job % self.costs.queues_depth])
        cycles = min(max(line - int(self._record["in_line_booked"][self.unit]), 0), most)
        self._record["in_line_booked"][self.unit] += cycles
        return cycles

    def issue(self) -> int:
        """Take the next job number; when the job will be finished is not known yet."""
        job = self.issued
        self._record["finished"][self.unit, job % self.costs.queues_depth] = NEVER
        self._record["issued"][self.unit] = job + 1
        return job

    def count_served(self) -> None:
        """The DRAM is done with a transfer."""
        self._record["served"][self.unit] += 1


def await_job(queue: Queue, job: int) -> int:
    """Let the core wait until a job is finished; cycles waited.

    If it is not known yet when that will be, the core stops, and does the instruction again when
    the DRAM has served the job.
    """
    core, end = queue.core, queue.finished(job)
    if end == NEVER:
        core.wait_for(CoreStatus.WAITING_UNIT, queue.unit, job)
        raise EndOfTurnError
    return wait_until(queue, job, end)


def wait_until(queue: Queue, job: int, end: int) -> int:
    """Let the core wait for a job that is finished at ``end``; cycles waited."""
    core, waited = queue.core, max(end - queue.core.clock, 0)
    note_wait(core, WaitTarget(queue.unit), end, end, job)
    idle = core.spend(WAIT[queue.unit], CAUSE[queue.unit], waited)
    if queue.unit in (Unit.LOAD, Unit.STORE) and waited > 0:
        contention = queue.book_line(job, idle)
        core.record["spent"][CAUSE[queue.unit]] -= contention
        core.record["spent"][CycleCause.CONTENTION] += contention
    return waited


def await_slot(queue: Queue) -> int:
    """Let the core wait until the queue has room for one more job; cycles waited."""
    return await_job(queue, queue.issued - queue.costs.queues_depth)


def compute(queue: Queue, layer: int, cycles: int) -> None:
    """Give ``cycles`` of work to the MAC array or the vector unit."""
    job = queue.issue()
    begin = max(queue.core.clock, queue.free)
    end = begin + cycles
    queue.finish(job, end, end)
    note_compute(queue.core, queue.unit, layer, begin, end)
    queue.core.machine.layers[layer]["counts"][BUSY[queue.unit]] += cycles


def begin_transfers(queue: Queue) -> None:
    """Start the queue's next transfers until one needs the DRAM or none is left."""
    while queue.served < queue.issued:
        transfer = queue.transfer(queue.served)
        transfer[Job.BEGIN] = max(int(transfer[Job.READY]), queue.free)
        start = int(transfer[Job.BEGIN] + transfer[Job.SETUP])
        if int(transfer[Job.READY]) >= queue.free:
            queue.forget_line()
        if not is_served(transfer):
            transfer[Job.KNOWN], transfer[Job.END] = ticks_of(start, queue.costs), 0
            queue.ask_at(start)
            return
        finish_transfer(queue, start, start)
    queue.ask_at(NEVER)


def finish_transfer(queue: Queue, free: int, finished: int) -> None:
    """The queue's transfer is done; wake the core if it waits for it."""
    job, core = queue.served, queue.core
    note_transfer(core, queue.unit, queue.transfer(job), free, finished)
    queue.finish(job, free, finished)
    queue.note_line(job)
    queue.count_served()
    if core.waits_for(CoreStatus.WAITING_UNIT, queue.unit) and core.wait_count == job:
        core.status = CoreStatus.RUNNING
        wait_until(queue, job, finished)


def look_ahead(machine: Machine, asking: list[Queue], costs: Costs) -> tuple[Queue, int]:
    """The queue that the DRAM serves next if it looks ahead, and the cycle in which it chooses.

    A channel chooses when it is free: of the requests that are not much later than its oldest one
    that whose first burst can be first. Of equals the older one is, then the one of the lower core.
    """
    first = min(asking, key=lambda queue: queue.can_choose_at(machine))
    now, number = first.can_choose_at(machine), channel_of(first.next_row(), costs)
    here = [queue for queue in asking if channel_of(queue.next_row(), costs) == number]
    too_late = min(queue.request for queue in here) + costs.dram_lookahead_cycles
    known = [queue for queue in here if queue.request <= now and queue.request < too_late]
    return min(known, key=lambda queue: (queue.first_burst(machine), queue.request)), now


def fetch(core: Core, costs: Costs, layer: int, address: int, nbytes: int) -> int:
    """A core reads its descriptor from the DRAM: the cycle at which it is there.

    It is the core's turn, so all earlier requests are served.
    """
    counts = core.machine.layers[layer]["counts"]
    request, there = ticks_of(core.clock, costs), core.clock
    cursor = np.zeros(CURSOR_WORDS, np.int64)
    start_transfer(cursor, address, nbytes, 1, 1, 0, 0)
    while not is_served(cursor):
        row, before = next_address(cursor) // costs.dram_row_bytes, cursor.copy()
        bursts = take_grant(cursor, costs)
        channel = core.machine.shared["dram"][0, channel_of(row, costs)]
        begin = cycles_of(max(request, int(channel[FREE])), costs)
        ticks = grant_ticks(bursts * costs.dram_burst_bytes, costs)
        end_tick, is_miss = serve_grant(channel, row, 0, request, request, ticks, costs)
        free = cycles_of(end_tick, costs)
        counts[Count.BUSY_LOAD] += free - begin
        counts[Count.BURSTS] += bursts
        counts[Count.ROW_MISSES] += int(is_miss)
        note_fetch(core, layer, before, begin, free, bursts * costs.dram_burst_bytes)
        there = max(there, free + costs.dram_latency_cycles)
    return there


def serve(machine: Machine, queue: Queue) -> None:
    """The DRAM serves one grant of a queue: all that its transfer needs next from one row."""
    costs, transfer = queue.costs, queue.transfer(queue.served)
    row = queue.next_row()
    channel = queue.channel(machine)
    before = transfer[:CURSOR_WORDS].copy()
    bursts = take_grant(transfer, costs)
    nbytes = bursts * costs.dram_burst_bytes
    request = ticks_of(queue.request, costs)
    known, begin_tick = int(transfer[Job.KNOWN]), max(request, int(channel[FREE]))
    end_tick, is_miss = serve_grant(
        channel, row, int(queue.unit), known, request, grant_ticks(nbytes, costs), costs
    )
    start, end = cycles_of(begin_tick, costs), cycles_of(end_tick, costs)
    queue.stand_in_line(begin_tick // costs.dram_bytes_per_cycle - queue.request)
    counts = machine.layers[int(transfer[Job.LAYER])]["counts"]
    counts[BUSY[queue.unit]] += end - start
    counts[Count.BURSTS] += bursts
    counts[Count.ROW_MISSES] += int(is_miss)
    note_grant(queue.core, queue.unit, transfer, before, start, end, nbytes)
    earlier_end = int(transfer[Job.END])
    all_end = max(earlier_end, end_tick)
    if is_served(transfer):
        free = cycles_of(all_end, costs)
        finish_transfer(queue, free, free + costs.dram_latency_cycles)
        begin_transfers(queue)
    else:
        queue.ask_at(next_request(row, queue.next_row(), begin_tick, end_tick, earlier_end, costs))
        transfer[Job.KNOWN], transfer[Job.END] = begin_tick, all_end
