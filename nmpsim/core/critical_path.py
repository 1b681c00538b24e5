"""The critical path of a run: the chain of work and waits that determines its length.

The path is followed from the end of the run back, at each point to what it waited for last.

It is derived from the logs of unit work (``Machine.work``) and waits (``Machine.waits``). A wait
ends with an instruction of a unit, or because another core reached a barrier or posted. An
instruction of a unit began when its core issued it, or when the one before was done; a DRAM grant
when it was requested, or when the grant before it was served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.state import (
    NEVER,
    WAIT,
    GrantKind,
    Int64s,
    JobColumn,
    Machine,
    PathCause,
    WaitTarget,
)
from nmpsim.isa.table import Unit
from nmpsim.memory.dram import (
    ADDRESS,
    BYTES_DONE,
    COUNT_X,
    RUNS_DONE,
    STRIDE_X,
    STRIDE_Y,
)
from nmpsim.records import frozen
from nmpsim.timing import Costs
from nmpsim.timing.compute import convert_to_cycles, count_grant_ticks

CAUSES = len(PathCause)
UNITS = len(Unit)
_FETCH, _SHARED = 2, 3
"""Kinds of logged grants: one that reads a descriptor, and one of another core's equal request
(multicast). The kind of other grants is 1."""
ENOUGH = 1 << 16
"""Number of log entries from which on the path is followed as far as it is certain."""


@frozen(eq=False)
class CriticalPath:
    """Critical path of a section of a run: cycles by cause between barrier releases."""

    until: Int64s
    """[n] ascending: cycles at which barriers released cores, and the end."""
    cycles: Int64s
    """[n, PathCause] cycles since the previous entry of ``until``, or since the beginning."""


def join_paths(paths: Sequence[CriticalPath]) -> CriticalPath:
    """Join the critical paths of consecutive parts of a run into one path."""
    until = [np.zeros(0, np.int64), *(one.until for one in paths)]
    cycles = [np.zeros((0, CAUSES), np.int64), *(one.cycles for one in paths)]
    return CriticalPath(np.concatenate(until), np.concatenate(cycles))


class PathSection(NamedTuple):
    """Section of a critical path between two cycles, or a share of its cycles."""

    path: CriticalPath
    begin: int
    end: int
    share: tuple[int, int] | None = None
    """Begin and end of a layer's share in the section, in cycles; None for all of them."""

    def sum_cycles(self) -> list[int]:
        """Return the cycles of the section, or of the share, for each PathCause."""
        first, last = np.searchsorted(self.path.until, (self.begin, self.end), "right")
        cycles = self.path.cycles[first:last].sum(axis=0)
        if self.share is not None:
            begin, end = self.share
            total = cycles[: PathCause.QUEUEING].sum()  # QUEUEING repeats cycles
            cycles = cycles * end // total - cycles * begin // total
            rounded = end - begin - cycles[: PathCause.QUEUEING].sum()
            cycles[cycles[: PathCause.QUEUEING].argmax()] += rounded
        found: list[int] = cycles.tolist()
        return found


class PathRecorder:
    """Recorder that computes the critical path of a device step from its logs."""

    def __init__(self, machine: Machine, costs: Costs) -> None:
        """Begin when the cores have started and nothing has been logged since."""
        self._costs = costs
        self._cores = machine.cores.size
        self._begin = int(machine.cores.clock.max())
        self._issued = machine.cores.issued.reshape(-1).copy()
        self._work = [np.zeros((0, 7), np.int64)]
        self._waits = [np.zeros((0, len(WAIT.names or ())), np.int64)]
        self._known: list[CriticalPath] = []

    def add_entries(self, machine: Machine, work: Any, waits: Any) -> None:
        """Add entries of the work log and the wait log."""
        work = work[work.is_grant != GrantKind.BUFFERED]  # which no other grant waits for
        is_grant = work.is_grant != 0
        unit = work.core * UNITS + work.unit
        # A grant that reads a descriptor is no transfer's.
        is_fetch = is_grant & (work.cursor[:, ADDRESS] == work.descriptor)
        kind = np.where(work.is_grant == GrantKind.SHARED, _SHARED, is_grant * (1 + is_fetch))
        nbytes, place = np.unique(np.where(is_grant, work.bytes, 0), return_inverse=True)
        transferring = [
            convert_to_cycles(count_grant_ticks(count, self._costs), self._costs)
            for count in nbytes.tolist()
        ]
        taken = np.array(transferring, np.int64)[place]
        times = (work.begin, work.end, work.done)
        self._work.append(
            np.stack(
                [unit, kind, *times, taken, self._channels(work)],
                axis=1,
            )
        )
        self._waits.append(np.stack([waits[name] for name in waits.dtype.names], axis=1))
        if sum(map(len, self._work)) > ENOUGH:
            self.follow_to_barrier(machine)

    def complete_path(self, machine: Machine, core: int | None = None) -> CriticalPath:
        """Return the complete path to the end of ``core``, by default the core that ends last."""
        clocks = machine.cores.clock
        last = int(clocks.argmax()) if core is None else core
        self._follow(*self._notes(), last, int(clocks[last]))
        return self.certain_path

    @property
    def certain_path(self) -> CriticalPath:
        """Part of the critical path that later events cannot change."""
        return join_paths(self._known)

    def _channels(self, work: Any) -> Int64s:
        """Return the DRAM channel of each grant."""
        cursor = work.cursor
        y, x = np.divmod(cursor[:, RUNS_DONE], np.maximum(cursor[:, COUNT_X], 1))
        moved = y * cursor[:, STRIDE_Y] + x * cursor[:, STRIDE_X] + cursor[:, BYTES_DONE]
        rows = (cursor[:, ADDRESS] + moved) // self._costs.dram_row_bytes
        channels: Int64s = np.where(work.is_grant != 0, rows % self._costs.dram_channels, 0)
        return channels

    def _notes(self) -> tuple[Int64s, Int64s]:
        return np.concatenate(self._work), np.concatenate(self._waits)

    def follow_to_barrier(self, machine: Machine) -> None:
        """Extend the path to the last barrier at which all cores and units were idle."""
        work, waits = self._notes()
        self._work, self._waits = [work], [waits]
        asleep = waits[waits[:, 1] == WaitTarget.BARRIER]
        releases, met = np.unique(asleep[:, 4], return_counts=True)
        pending = _pending_since(machine, self._costs.queues_depth)
        order = np.argsort(work[:, 2], kind="stable")
        begins = work[order, 2]
        done = np.maximum.accumulate(np.append(self._begin, work[order, 4]))
        is_over = done[np.searchsorted(begins, releases)] <= releases
        certain = releases[(met == self._cores) & is_over & (releases <= pending)]
        if not certain.size:
            return
        release = int(certain[-1])
        core = int(waits[waits[:, 4] == release][0, 0])
        is_old, was_left = work[:, 2] < release, waits[:, 4] <= release
        self._follow(work[is_old], waits[was_left], core, release)
        jobs = work[is_old & (work[:, 1] == 0), 0]
        self._issued += np.bincount(jobs, minlength=self._issued.size)
        self._begin = release
        self._work, self._waits = [work[~is_old]], [waits[~was_left]]

    def _follow(self, work: Int64s, waits: Int64s, core: int, end: int) -> None:
        releases = waits[waits[:, 1] == WaitTarget.BARRIER, 4]
        ends = np.append(releases[(releases > self._begin) & (releases < end)], end)
        until, _ = np.unique(ends, return_counts=True)  # without counts NumPy imports numpy.ma
        walk = _Walk(work, waits, self._issued, self._begin, until.tolist())
        walk.back(core, end)
        self._known.append(CriticalPath(until, walk.in_runs + np.array(walk.cycles, np.int64)))


def _pending_since(machine: Machine, depth: int) -> int:
    """Return the cycle of issue of the oldest unserved transfer, or NEVER."""
    cores = machine.cores
    core, unit = np.nonzero(cores.served < cores.issued[:, : cores.served.shape[1]])
    slot = cores.served[core, unit] % depth
    return int(cores.jobs[core, unit, slot, JobColumn.READY].min(initial=NEVER))


class _Walk:
    """A walk back in time that attributes cycles to causes."""

    def __init__(
        self, work: Int64s, waits: Int64s, issued: Int64s, begin: int, until: list[int]
    ) -> None:
        self.cycles = [[0] * CAUSES for _ in until]
        """[until][PathCause]"""
        self.in_runs = np.zeros((len(until), CAUSES), np.int64)
        """[until, PathCause] cycles of grants that were attributed many at a time."""
        self._begin, self._until, self._part = begin, until, len(until) - 1
        self._now = begin
        self._sort_waits(waits)
        self._sort_work(work, issued)

    def _sort_waits(self, waits: Int64s) -> None:
        order = np.argsort(waits[:, 0], kind="stable")
        cores = np.arange(int(waits[:, 0].max(initial=-1)) + 2)
        ends = np.searchsorted(waits[order, 0], cores).tolist()
        self._waits = waits[order].tolist()
        self._first_wait = ends
        self._last_wait = ends[1:]

    def _sort_work(self, work: Int64s, issued: Int64s) -> None:
        """Sort instructions by unit and grants by channel, each grant with its transfer."""
        is_grant = work[:, 1] != 0
        order = np.argsort(work[:, 0], kind="stable")
        is_job = ~is_grant[order]
        before = np.cumsum(is_job) - is_job  # instructions of all units before an entry
        place = np.empty(len(work), np.int64)
        place[order] = before
        jobs, grants = work[order][is_job], work[is_grant]
        owner = place[is_grant]
        units = np.searchsorted(jobs[:, 0], np.arange(issued.size + 1))
        owner = np.where(owner < units[grants[:, 0] + 1], owner, -1)  # -1: it is not served yet
        owner[grants[:, 1] == _FETCH] = -1
        is_shared = grants[:, 1] == _SHARED
        shared, sharing = grants[is_shared], owner[is_shared]
        grants, owner = grants[~is_shared], owner[~is_shared]
        earlier = _earlier_of_the_same(owner)
        by_channel = np.argsort(grants[:, 6], kind="stable")
        place_now = np.empty(len(grants) + 1, np.int64)
        place_now[by_channel], place_now[-1] = np.arange(len(grants)), -1
        grants, owner = grants[by_channel], owner[by_channel]
        self._earlier = place_now[earlier[by_channel]]
        last = np.full(len(jobs) + 1, -1)
        served = np.append(np.arange(len(grants)), _find_shared_grants(grants, shared))
        served_owner = np.append(owner, sharing)
        by_end = np.argsort(grants[served, 3], kind="stable")
        last[served_owner[by_end]] = served[by_end]
        self._first_job, self._issued = units.tolist(), issued.tolist()
        self._jobs, self._last_grant = jobs[:, [0, 2, 3]].tolist(), last.tolist()
        self._grants, self._owner = grants, owner
        self._sort_runs()

    def _sort_runs(self) -> None:
        """Find runs of contiguous grants of a channel that no barrier divides."""
        begin, end, channel = (self._grants[:, column] for column in (2, 3, 6))
        until = np.array(self._until, np.int64)
        self._part_of = np.searchsorted(until, begin, "right")
        is_whole = (self._part_of == np.searchsorted(until, end)) & (begin >= self._begin)
        follows = np.zeros(len(begin), bool)
        follows[1:] = (channel[1:] == channel[:-1]) & (end[:-1] == begin[1:])
        follows[1:] &= is_whole[1:] & is_whole[:-1] & (begin[1:] > self._begin)
        places = np.arange(len(begin))
        self._first_of_run = np.maximum.accumulate(np.where(follows, 0, places))
        self._service = np.minimum(self._grants[:, 5], end - begin)
        self._other = end - begin - self._service

    def _charge(self, cause: PathCause, begin: int, *, queued: bool = False) -> None:
        """Attribute the cycles back to ``begin`` to a cause."""
        end, self._now = self._now, min(begin, self._now)
        begin = max(begin, self._begin)
        while end > begin:
            while self._part > 0 and self._until[self._part - 1] >= end:
                self._part -= 1
            low = max(begin, self._until[self._part - 1]) if self._part else begin
            self.cycles[self._part][cause] += end - low
            self.cycles[self._part][PathCause.QUEUEING] += end - low if queued else 0
            end = low

    def back(self, core: int, end: int) -> None:
        """Walk back from a core at the cycle ``end``."""
        self._now = end
        where: int | None = core
        while where is not None and self._now > self._begin:
            where = self._before(where)

    def _before(self, core: int) -> int | None:
        """Attribute what the control core did before now, and what it waited for before that.

        Returns the core that continues; None at the beginning.
        """
        if core + 1 >= len(self._first_wait):
            self._charge(PathCause.CONTROL, self._begin)
            return None
        at = self._last_wait[core] - 1
        while at >= self._first_wait[core] and self._waits[at][4] > self._now:
            at -= 1
        self._last_wait[core] = max(at, self._first_wait[core])
        if at < self._first_wait[core]:
            self._charge(PathCause.CONTROL, self._begin)
            return None
        _, what, _, happened, woken, awaited = self._waits[at]
        self._charge(PathCause.CONTROL, woken)
        if what in _OTHER_CORES:
            self._charge(_OTHER_CORES[what], happened)
            return int(awaited)
        unit = core * UNITS + what
        return self._instruction(self._first_job[unit] + awaited - self._issued[unit])

    def _instruction(self, job: int) -> int:
        """Attribute an awaited instruction; return the core that issued its chain."""
        unit, begin, end = self._jobs[job]
        if unit % UNITS not in _COMPUTE:
            self._charge(PathCause.LATENCY, end)
            return self._transfer(job)
        self._charge(_COMPUTE[unit % UNITS], begin)
        while self._follows_earlier(job):
            job -= 1
            self._charge(_COMPUTE[unit % UNITS], self._jobs[job][1])
        return int(unit // UNITS)

    def _follows_earlier(self, job: int) -> bool:
        """Return whether a job began when the unit was done with the one before."""
        unit, begin, _ = self._jobs[job]
        return bool(job > self._first_job[unit] and self._jobs[job - 1][2] == begin)

    def _transfer(self, job: int) -> int:
        """Attribute a transfer up to its last grant; return the core that issued the first one."""
        wanted = job
        while True:
            grant = self._last_grant[job]
            if grant >= 0:
                grant = self._served(grant, wanted)
                job = int(self._owner[grant])
            if job < 0:  # it reads a descriptor, or the run ended before its transfer did
                return int(self._grants[grant, 0] // UNITS)
            self._charge(PathCause.DMA_START, self._jobs[job][1])
            if not self._follows_earlier(job):
                return int(self._jobs[job][0] // UNITS)
            job -= 1

    def _served(self, grant: int, wanted: int) -> int:
        """Attribute DRAM service back to a grant that did not have to wait; return that grant."""
        while True:
            first = int(self._first_of_run[grant])
            if first < grant and self._grants[grant, 3] == self._now:
                self._charge_run(first, grant, wanted)
                grant = first
            else:
                self._charge_grant(grant, wanted)
            before = self._waited_for(grant)
            if before < 0 or self._grants[grant, 2] <= self._begin:
                return grant
            grant = before

    def _charge_grant(self, grant: int, wanted: int) -> None:
        _, _, begin, end, _, transferring, _ = self._grants[grant].tolist()
        is_other = bool(self._owner[grant] != wanted)
        self._charge(PathCause.DRAM_SERVICE, max(end - transferring, begin), queued=is_other)
        self._charge(PathCause.ROW_MISS, begin, queued=is_other)

    def _charge_run(self, first: int, last: int, wanted: int) -> None:
        """Attribute a run of grants back to its beginning."""
        run = slice(first, last + 1)
        parts, service, other = self._part_of[run], self._service[run], self._other[run]
        queued = np.where(self._owner[run] != wanted, service + other, 0)
        np.add.at(self.in_runs[:, PathCause.DRAM_SERVICE], parts, service)
        np.add.at(self.in_runs[:, PathCause.ROW_MISS], parts, other)
        np.add.at(self.in_runs[:, PathCause.QUEUEING], parts, queued)
        self._now = int(self._grants[first, 2])

    def _waited_for(self, grant: int) -> int:
        """Return the grant whose end let another one begin; -1 if there is none."""
        while grant >= 0:
            begin, channel, before = self._grants[grant, 2], self._grants[grant, 6], grant - 1
            same_channel = before >= 0 and self._grants[before, 6] == channel
            if same_channel and self._grants[before, 3] == begin:
                return before
            # In another channel a transfer asks when its grant before begins, but only if those
            # before that one are done; both in cycles that are rounded down.
            previous = int(self._earlier[grant])
            before = int(self._earlier[previous]) if previous >= 0 else -1
            for _ in range(2):
                if before >= 0 and begin <= self._grants[before, 3] <= begin + 1:
                    return before
                before = int(self._earlier[before]) if before >= 0 else -1
            if previous < 0 or not begin <= self._grants[previous, 2] <= begin + 1:
                return -1
            grant = previous
        return -1


def _find_shared_grants(grants: Int64s, shared: Int64s) -> Int64s:
    """Return the index in ``grants``, sorted by channel and time, of each shared grant."""
    channels = 1 + int(grants[:, 6].max(initial=0))
    keys, wanted = (part[:, 3] * channels + part[:, 6] for part in (grants, shared))
    order = np.argsort(keys, kind="stable")
    places = np.searchsorted(keys[order], wanted).clip(max=len(order) - 1)
    found: Int64s = order[places]
    return found


def _earlier_of_the_same(owner: Int64s) -> Int64s:
    """Return the index of the previous entry of the same owner, or -1."""
    order = np.argsort(owner, kind="stable")
    is_same = owner[order][1:] == owner[order][:-1]
    earlier = np.full(len(owner), -1)
    earlier[order[1:]] = np.where(is_same, order[:-1], -1)
    earlier[owner < 0] = -1
    return earlier


_COMPUTE = {int(Unit.MAC): PathCause.MAC, int(Unit.VECTOR): PathCause.VECTOR}
_OTHER_CORES = {
    int(WaitTarget.BARRIER): PathCause.BARRIER,
    int(WaitTarget.SEMAPHORE): PathCause.SEMAPHORE,
}
