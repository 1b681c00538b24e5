"""Queues of the units, and the DRAM that serves their transfers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.context import EndOfTurnError
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.watch import record_wait, record_work
from nmpsim.core.state import (
    NEVER,
    CoreStatus,
    CountColumn,
    CycleCause,
    GrantKind,
    JobColumn,
    Machine,
    WaitTarget,
)
from nmpsim.isa.table import Unit
from nmpsim.memory.dram import (
    COUNT_X,
    COUNT_Y,
    CURSOR_WORDS,
    RUN,
    advance_past_grant,
    find_next_bursts,
    get_next_address,
    is_served,
    start_transfer,
)
from nmpsim.timing import Costs
from nmpsim.timing.compute import convert_to_cycles, convert_to_ticks, count_grant_ticks
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

WAIT = {unit: CountColumn[f"WAIT_{unit.name}"] for unit in Unit}
CAUSE = {unit: CycleCause[unit.name] for unit in Unit}
BUSY = {unit: CountColumn[f"BUSY_{unit.name}"] for unit in Unit}


class _QueueField:
    """An entry of a unit in a field of the core's record, as a Python integer."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, queue: UnitQueue, _: type[UnitQueue]) -> int:
        return int(queue.core.record[self._name][queue.unit])

    def __set__(self, queue: UnitQueue, value: int) -> None:
        queue.core.record[self._name][queue.unit] = value


class UnitQueue:
    """View of the job queue of one unit of a core."""

    issued = _QueueField("issued")
    """Number of jobs issued so far, which is the number of the next job."""
    served = _QueueField("served")
    """Number of transfers that the DRAM has served, which is the number of the current one."""
    free = _QueueField("unit_free")
    """Cycle at which the unit can begin its next job."""
    request = _QueueField("request")
    """Cycle of the next DRAM request, or NEVER."""
    queueing = _QueueField("queueing")
    """Cycles that requests were queued because the DRAM served others."""
    charged_queueing = _QueueField("queueing_charged")
    """Part of ``queueing`` that is attributed, or that delays nothing later."""

    def __init__(self, core: Core, unit: Unit, costs: Costs) -> None:
        self.core = core
        self.unit = unit
        self.costs = costs

    def _slot(self, job: int) -> tuple[Unit, int]:
        return self.unit, job % self.costs.queues_depth

    def get_transfer(self, job: int) -> Any:
        """Return the record of a DMA job: its cursor and the columns of ``JobColumn``."""
        return self.core.record["jobs"][self._slot(job)]

    def get_next_address(self) -> int:
        """Return the DRAM address that the current transfer needs next."""
        return get_next_address(self.get_transfer(self.served))

    def get_next_row(self) -> int:
        """Return the DRAM row that the current transfer needs next."""
        return self.get_next_address() // self.costs.dram_row_bytes

    def get_channel(self, machine: Machine) -> Any:
        """Return the DRAM channel that the current transfer needs next."""
        return machine.shared["dram"][0, find_channel(self.get_next_row(), self.costs)]

    def compute_decision_cycle(self, machine: Machine) -> int:
        """Compute the first cycle at which the DRAM can serve the queue's request."""
        if is_buffered(self.unit == Unit.STORE, self.costs):
            return self.request
        free = int(self.get_channel(machine)[FREE]) // self.costs.dram_bytes_per_cycle
        return max(self.request, free)

    def compute_first_burst(self, machine: Machine) -> int:
        """Compute the tick of the first burst if the DRAM serves this queue next."""
        transfer, costs, unit = self.get_transfer(self.served), self.costs, int(self.unit)
        known, request = int(transfer[JobColumn.KNOWN]), convert_to_ticks(self.request, costs)
        channel, row = self.get_channel(machine), self.get_next_row()
        shares = count_shares(*find_next_bursts(transfer, costs), costs)
        return compute_first_burst(channel, row, shares, unit, known, request, costs)

    def get_finish_cycle(self, job: int) -> int:
        """Return the cycle at which a job finishes, NEVER if unknown, or 0 if finished long ago."""
        if job < 0 or job < self.issued - self.costs.queues_depth:
            return 0
        return int(self.core.record["finished"][self._slot(job)])

    def set_finish_cycles(self, job: int, free: int, finished: int) -> None:
        """Set the cycles at which the unit is free and the job's result is available."""
        self.free = free
        self.core.record["finished"][self._slot(job)] = finished

    def record_queueing(self, job: int) -> None:
        """Record the queue's total queueing delay at the completion of a transfer."""
        self.core.record["queueing_at"][self._slot(job)] = self.queueing

    def attribute_queueing(self, job: int, most: int) -> int:
        """Attribute and return the queueing delay of a job, at most ``most`` cycles."""
        delay = int(self.core.record["queueing_at"][self._slot(job)]) - self.charged_queueing
        cycles = min(max(delay, 0), most)
        self.charged_queueing += cycles
        return cycles

    def issue_job(self) -> int:
        """Issue a job whose finish cycle is unknown, and return its number."""
        job = self.issued
        self.core.record["finished"][self._slot(job)] = NEVER
        self.issued = job + 1
        return job


def await_job(queue: UnitQueue, job: int) -> int:
    """Stall the core until a job is finished; return the cycles. Raise EndOfTurnError if unknown.

    If its completion is not known yet, the core stops, and repeats the instruction when the DRAM
    has served the job.
    """
    core, end = queue.core, queue.get_finish_cycle(job)
    if end == NEVER:
        core.wait_for(CoreStatus.WAITING_UNIT, queue.unit, job)
        raise EndOfTurnError
    return wait_until(queue, job, end)


def wait_until(queue: UnitQueue, job: int, end: int) -> int:
    """Stall the core until ``end``, when a job is finished; return the cycles waited."""
    core, waited = queue.core, max(end - queue.core.clock, 0)
    record_wait(core, WaitTarget(queue.unit), end, end, job)
    idle = core.spend_cycles(WAIT[queue.unit], CAUSE[queue.unit], waited)
    if queue.unit in (Unit.LOAD, Unit.STORE) and waited > 0:
        contention = queue.attribute_queueing(job, idle)
        core.record["spent"][CAUSE[queue.unit]] -= contention
        core.record["spent"][CycleCause.CONTENTION] += contention
    return waited


def await_slot(queue: UnitQueue) -> int:
    """Stall the core until a queue slot is free; return the cycles waited."""
    return await_job(queue, queue.issued - queue.costs.queues_depth)


def issue_compute_job(queue: UnitQueue, layer: int, cycles: int) -> None:
    """Issue a job of ``cycles`` cycles to the MAC array or the vector unit."""
    job = queue.issue_job()
    begin = max(queue.core.clock, queue.free)
    end = begin + cycles
    queue.set_finish_cycles(job, end, end)
    record_work(queue.core, queue.unit, layer, begin, end, end)
    queue.core.machine.layers[layer]["counts"][BUSY[queue.unit]] += cycles


def begin_transfers(queue: UnitQueue) -> None:
    """Begin the next transfers of a queue until one needs the DRAM or the queue is empty."""
    while queue.served < queue.issued:
        transfer = queue.get_transfer(queue.served)
        transfer[JobColumn.BEGIN] = max(int(transfer[JobColumn.READY]), queue.free)
        start = int(transfer[JobColumn.BEGIN] + transfer[JobColumn.SETUP])
        if int(transfer[JobColumn.READY]) >= queue.free:
            queue.charged_queueing = queue.queueing  # earlier delay affects nothing later
        if not is_served(transfer):
            transfer[JobColumn.KNOWN], transfer[JobColumn.END] = (
                convert_to_ticks(start, queue.costs),
                0,
            )
            queue.request = start
            return
        finish_transfer(queue, start, start)
    queue.request = NEVER


def finish_transfer(queue: UnitQueue, free: int, finished: int) -> None:
    """Finish the queue's transfer, and resume the core if it waits for this transfer."""
    job, core = queue.served, queue.core
    transfer = queue.get_transfer(job)
    layer, begin = transfer[JobColumn.LAYER], transfer[JobColumn.BEGIN]
    nbytes = transfer[RUN] * transfer[COUNT_X] * transfer[COUNT_Y]
    record_work(core, queue.unit, layer, begin, free, finished, nbytes, transfer)
    queue.set_finish_cycles(job, free, finished)
    queue.record_queueing(job)
    queue.served += 1
    if core.is_waiting_for(CoreStatus.WAITING_UNIT, queue.unit) and core.wait_count == job:
        core.status = CoreStatus.RUNNING
        wait_until(queue, job, finished)


def find_equal_grant(machine: Machine, queue: UnitQueue) -> tuple[int, int] | None:
    """Return begin and end ticks of the grant that a queue's request shares, or None if none.

    With multicast, a load shares the last grant of another core if that core's transfer and its
    progress were equal, and the grant does not begin before the request.
    """
    if not queue.costs.dram_multicast or queue.unit != Unit.LOAD or queue.request == NEVER:
        return None
    cursor = queue.get_transfer(queue.served)[:CURSOR_WORDS]
    request = convert_to_ticks(queue.request, queue.costs)
    for number, (*words, begin, end) in enumerate(machine.cores["granted"].tolist()):
        if number != queue.core.number and begin >= request and words == cursor.tolist():
            return begin, end
    return None


def choose_queue_with_lookahead(
    machine: Machine, asking: list[UnitQueue], costs: Costs
) -> tuple[UnitQueue, int]:
    """Choose the queue that a DRAM with look-ahead serves next; return it and the decision's cycle.

    A channel decides when it is free: of the requests within the look-ahead after its oldest one,
    it serves the one whose first burst is earliest; ties by age, then by core number. Requests that
    share a grant come first. The write buffer takes a store at its request.
    """
    sharing = [queue for queue in asking if find_equal_grant(machine, queue) is not None]
    if sharing:
        oldest = min(sharing, key=lambda queue: queue.request)
        return oldest, oldest.request
    waiting = [queue for queue in asking if not is_buffered(queue.unit == Unit.STORE, costs)]
    stores = [queue for queue in asking if queue not in waiting]
    store = min(stores, key=lambda queue: queue.request, default=None)
    earliest = min((queue.compute_decision_cycle(machine) for queue in waiting), default=NEVER)
    if store is not None and store.request <= earliest:
        return store, store.request
    first = min(waiting, key=lambda queue: queue.compute_decision_cycle(machine))
    now, number = first.compute_decision_cycle(machine), find_channel(first.get_next_row(), costs)
    here = [queue for queue in waiting if find_channel(queue.get_next_row(), costs) == number]
    too_late = min(queue.request for queue in here) + costs.dram_lookahead_cycles
    known = [queue for queue in here if queue.request <= now and queue.request < too_late]
    return min(known, key=lambda queue: (queue.compute_first_burst(machine), queue.request)), now


def simulate_descriptor_fetch(
    core: Core, costs: Costs, layer: int, address: int, nbytes: int
) -> int:
    """Simulate the DRAM reads of a descriptor; return the cycle at which all bytes have arrived.

    It is the core's turn, so all earlier requests are served.
    """
    counts = core.machine.layers[layer]["counts"]
    request, there = convert_to_ticks(core.clock, costs), core.clock
    cursor = np.zeros(CURSOR_WORDS, np.int64)
    start_transfer(cursor, address, nbytes, 1, 1, 0, 0)
    while not is_served(cursor):
        at, before = get_next_address(cursor), cursor.copy()
        row = at // costs.dram_row_bytes
        bursts, shares = advance_past_grant(cursor, costs)
        channel = core.machine.shared["dram"][0, find_channel(row, costs)]
        ticks = count_grant_ticks(bursts * costs.dram_burst_bytes, costs)
        begin_tick, end_tick, misses, drained = serve_request(
            channel, row, shares, 0, request, request, ticks, costs
        )
        begin, free = convert_to_cycles(begin_tick, costs), convert_to_cycles(end_tick, costs)
        counts[CountColumn.BUSY_LOAD] += free - begin
        counts[CountColumn.BUSY_STORE] += drained // costs.dram_bytes_per_cycle
        counts[CountColumn.BURSTS] += bursts
        counts[CountColumn.ROW_MISSES] += misses
        nbytes_read = bursts * costs.dram_burst_bytes
        record_work(core, Unit.LOAD, layer, begin, free, free, nbytes_read, cursor=before)
        there = max(there, free + costs.dram_latency_cycles)
    return there


def serve_queue(machine: Machine, queue: UnitQueue) -> None:
    """Serve the next DRAM grant of a queue: consecutive bursts of its transfer in one row."""
    costs, transfer = queue.costs, queue.get_transfer(queue.served)
    row = queue.get_next_row()
    channel = queue.get_channel(machine)
    before = transfer[:CURSOR_WORDS].copy()
    shared = find_equal_grant(machine, queue)
    bursts, shares = advance_past_grant(transfer, costs)
    nbytes = bursts * costs.dram_burst_bytes
    counts = machine.layers[int(transfer[JobColumn.LAYER])]["counts"]
    if shared is not None:
        begin_tick, end_tick = shared
        counts[CountColumn.BURSTS_SHARED] += bursts
    else:
        request = convert_to_ticks(queue.request, costs)
        known, ticks = int(transfer[JobColumn.KNOWN]), count_grant_ticks(nbytes, costs)
        begin_tick, end_tick, misses, drained = serve_request(
            channel, row, shares, int(queue.unit), known, request, ticks, costs
        )
        counts[CountColumn.BURSTS] += bursts
        counts[CountColumn.ROW_MISSES] += misses
        counts[CountColumn.BUSY_STORE] += drained // costs.dram_bytes_per_cycle
    if costs.dram_multicast and queue.unit == Unit.LOAD:
        queue.core.record["granted"] = (*before.tolist(), begin_tick, end_tick)
    start, end = convert_to_cycles(begin_tick, costs), convert_to_cycles(end_tick, costs)
    queue.queueing += begin_tick // costs.dram_bytes_per_cycle - queue.request
    if shared is None:
        counts[BUSY[queue.unit]] += end - start
    if queue.unit == Unit.STORE:
        counts[CountColumn.BURSTS_WRITTEN] += bursts
    layer = transfer[JobColumn.LAYER]
    kind = GrantKind.OWN if shared is None else GrantKind.SHARED
    if is_buffered(queue.unit == Unit.STORE, costs) and end_tick == begin_tick:
        kind = GrantKind.BUFFERED
    record_work(queue.core, queue.unit, layer, start, end, end, nbytes, transfer, before, kind)
    earlier_end = int(transfer[JobColumn.END])
    all_end = max(earlier_end, end_tick)
    if is_served(transfer):
        free = convert_to_cycles(all_end, costs)
        finish_transfer(queue, free, free + get_latency(queue.unit == Unit.STORE, costs))
        begin_transfers(queue)
    else:
        queue.request = compute_next_request(
            row, queue.get_next_row(), begin_tick, end_tick, earlier_end, costs
        )
        transfer[JobColumn.KNOWN], transfer[JobColumn.END] = begin_tick, all_end
