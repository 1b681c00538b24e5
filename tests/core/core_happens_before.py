"""Happens-before order between cores, independent of timing: vector clocks.

Each core knows how many jobs of every unit of every core are done (Mattern, *Virtual Time and
Global States of Distributed Systems*, 1989). It learns this by waiting, at barriers, from words of
the control block, and from posts without which its pend could not succeed.

Which posts these are is known late: a post that comes after the pend in simulated time, and does
not know of it, could have come first. Such posts are *rivals* of the pend. If one of them
invalidates a core's knowledge, the order was too strict, and the run must be analyzed again with
the rivals known from the start (``is_too_strict``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from operator import itemgetter

import attrs
import numpy as np

from nmpsim.core.state import Int64s
from nmpsim.isa.table import Unit

SCALAR = len(Unit)
"""Number of the core itself, after those of its units; each of its accesses is a job."""

RivalPosts = Mapping[tuple[int, int], Int64s]
"""(semaphore, number of the pend) -> amount that each core posted later and that could have
come first, [cores]."""


@attrs.frozen(eq=False)
class _Pend:
    """A pend that succeeded."""

    core: int
    job: int
    taken: int
    """Amount that the core has taken from this semaphore, including this time."""
    posted: Int64s
    """Amount posted by each core until then, [cores]."""

    def count_needed(self, rivals: Int64s) -> Int64s:
        """Return how much each core must have posted for the pend to succeed, [cores]."""
        posted = self.posted + rivals
        return np.asarray(self.taken - posted.sum() + posted)


def _zeros(*shape: int) -> Int64s:
    return np.zeros(shape, np.int64)


class _Semaphore:
    def __init__(self, cores: int) -> None:
        self.value = 0
        self.posted, self.taken = _zeros(2, cores)
        """Amounts posted and taken by each core so far, [cores]."""
        self.posts: list[list[tuple[int, Int64s]]] = [[] for _ in range(cores)]
        """For each core, the amount posted after each post, and what the core knew then."""
        self.open: list[list[int]] = [[] for _ in range(cores)]
        """For each core, numbers of the pends that it did not know at its last post and that would
        have learned less if its post had come first."""
        self.served: list[_Pend] = []


class HappensBefore:
    """Happens-before order of the accesses of all cores, as vector clocks."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.known_rivals: RivalPosts = {}
        """Rivals known from the start."""
        self._seen = defaultdict[tuple[int, int], Int64s](partial(_zeros, cores))
        self.is_too_strict = False
        """Whether a rival was found that was not known."""
        self.clocks = _zeros(cores, cores, SCALAR + 1)
        """[core, other core, unit] number of jobs that the core knows to be done."""
        self._arrived: dict[int, tuple[int, int]] = {}
        """Core -> (barrier, core count) that it waits at."""
        self._pending: dict[int, tuple[int, int]] = {}
        """Core -> (semaphore, count) that it waits for."""
        self._semaphores = defaultdict[int, _Semaphore](partial(_Semaphore, cores))
        self._words = defaultdict[int, Int64s](partial(_zeros, cores, SCALAR + 1))
        """Word of the control block -> knowledge of the cores that wrote it."""

    @property
    def rivals(self) -> RivalPosts:
        """Return, for each pend, counts of later posts that another order could execute first."""
        found = dict(self.known_rivals)
        for key, counts in self._seen.items():
            found[key] = np.maximum(counts, found.get(key, 0))
        return found

    def record_finished_jobs(self, core: int, unit: int, jobs: int) -> None:
        """Record that a core knows that the first ``jobs`` jobs of its unit are done."""
        self.clocks[core, core, unit] = max(self.clocks.item(core, core, unit), jobs)

    def count_scalar_job(self, core: int) -> int:
        """Count an access of the core itself as a finished job, and return the job's number."""
        job = self.clocks.item(core, core, SCALAR)
        self.clocks[core, core, SCALAR] = job + 1
        return job

    def is_done(self, core: int, other: int, unit: int, job: int) -> bool:
        """Return whether a core knows that a job of another core's unit is done."""
        return job < self.clocks.item(core, other, unit)

    def reach_barrier(self, core: int, number: int, count: int) -> bool:
        """Record that a core reaches a barrier; return whether it was the last one."""
        self._arrived[core] = (number, count)
        there = [one for one, at in self._arrived.items() if at == (number, count)]
        if len(there) < count:
            return False
        self._synchronize(there)
        for one in there:
            del self._arrived[one]
        return True

    def end_segment(self) -> None:
        """Record that all cores have halted."""
        self._synchronize(list(range(self.cores)))

    def _synchronize(self, cores: list[int]) -> None:
        self.clocks[cores] = self.clocks[cores].max(axis=0)

    def _learn(self, core: int, knew: Int64s) -> None:
        np.maximum(self.clocks[core], knew, out=self.clocks[core])

    def write_word(self, core: int, address: int) -> None:
        """Record that a core writes a word of the control block."""
        self._words[address] = np.maximum(self._words[address], self.clocks[core])

    def read_word(self, core: int, address: int) -> None:
        """Record that a core reads a word of the control block."""
        self._learn(core, self._words[address])

    def post(self, core: int, semaphore: int, count: int) -> None:
        """Record that a core posts to a semaphore."""
        one = self._semaphores[semaphore]
        pends = ((number, one.served[number]) for number in one.open[core])
        one.open[core] = [
            n for n, pend in pends if not self.is_done(core, pend.core, SCALAR, pend.job)
        ]
        for number in one.open[core]:
            self._record_rival((semaphore, number), one.served[number], core, count)
        one.posted[core] += count
        one.posts[core].append((int(one.posted[core]), self.clocks[core].copy()))
        one.value += count
        self._wake_pending(semaphore)

    def pend(self, core: int, semaphore: int, count: int) -> None:
        """Record that a core pends on a semaphore."""
        self._pending[core] = (semaphore, count)
        self._wake_pending(semaphore)

    def _wake_pending(self, semaphore: int) -> None:
        """Let pending cores continue while the semaphore suffices, lower core numbers first."""
        one = self._semaphores[semaphore]
        for core in range(self.cores):
            at, count = self._pending.get(core, (-1, 0))
            if at != semaphore or one.value < count:
                continue
            del self._pending[core]
            one.value -= count
            self._take_posts(core, semaphore, one, count)

    def _take_posts(self, core: int, semaphore: int, one: _Semaphore, count: int) -> None:
        """Learn from the posts without which the semaphore would not have sufficed."""
        one.taken[core] += count
        number, job = len(one.served), int(self.clocks[core, core, SCALAR])
        pend = _Pend(core, job, int(one.taken[core]), one.posted.copy())
        one.served.append(pend)
        needed = pend.count_needed(self.known_rivals.get((semaphore, number), 0 * one.posted))
        for other, least in enumerate(needed.tolist()):
            enough = bisect_left(one.posts[other], least, key=itemgetter(0))
            if least > 0 and enough < len(one.posts[other]):
                self._learn(core, one.posts[other][enough][1])
            if other != core and (np.delete(needed, other) > 0).any():
                one.open[other].append(number)
        self.count_scalar_job(core)

    def _record_rival(self, key: tuple[int, int], pend: _Pend, core: int, count: int) -> None:
        """Record a post that could have satisfied an earlier pend."""
        seen = self._seen[key]
        seen[core] += count
        known = self.known_rivals.get(key, 0 * seen)
        if seen[core] <= known[core]:
            return
        now = known.copy()
        now[core] = seen[core]
        before, after = pend.count_needed(known), pend.count_needed(now)
        self.is_too_strict |= bool(((before > 0) & (after < before)).any())
