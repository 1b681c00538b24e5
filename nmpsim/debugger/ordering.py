"""Happens-before order between cores, independent of timing: vector clocks.

Each core counts its own time, and knows up to which time of each other core it is ordered after
that core (Mattern, *Virtual Time and Global States of Distributed Systems*, 1989). It learns this
at barriers, from words of the control block, and from posts without which its pend could not
succeed.

Which posts these are is known late: a post that comes after the pend in simulated time, and does
not know of it, could have come first. Such posts are *rivals* of the pend. If one of them
invalidates a core's knowledge, the order was too strict, and the run must be analyzed again with
the rivals known from the start (``is_too_strict``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from operator import itemgetter

import attrs

RivalPosts = Mapping[tuple[int, int], Mapping[int, int]]
"""(semaphore, number of the pend) -> amount that each core posted later and that could have
come first."""


@attrs.define
class _Pend:
    """A pend that succeeded."""

    core: int
    time: int
    """Local time of the core at that point."""
    taken: int
    """Amount that the core has taken from this semaphore, including this time."""
    posted: list[int]
    """Amount posted by each core until then."""


@attrs.define
class _Semaphore:
    value: int
    posted: list[int]
    """Amount posted by each core so far."""
    taken: list[int]
    """Amount taken by each core so far."""
    posts: list[list[tuple[int, list[int]]]]
    """For each core, the amount posted after each post, and what the core knew then."""
    open: list[list[int]]
    """For each core, numbers of the pends that it did not know at its last post and that would have
    learned less if its post had come first."""
    served: list[_Pend] = attrs.field(factory=list)

    @classmethod
    def of(cls, cores: int) -> _Semaphore:
        """Return an unused semaphore."""
        return cls(
            0, [0] * cores, [0] * cores, [[] for _ in range(cores)], [[] for _ in range(cores)]
        )


class HappensBefore:
    """Happens-before order of the synchronization between cores."""

    def __init__(self, cores: int, rivals: RivalPosts | None = None) -> None:
        """``rivals`` are the rivals known from the start."""
        self._known: RivalPosts = rivals or {}
        self._seen: dict[tuple[int, int], dict[int, int]] = {}
        self.is_too_strict = False
        """Whether a rival was found that was not known."""
        self._times = [[1 if i == n else 0 for i in range(cores)] for n in range(cores)]
        self._arrived: dict[int, tuple[int, int]] = {}
        """Core -> (barrier, core count) that it waits at."""
        self._pending: dict[int, tuple[int, int]] = {}
        """Core -> (semaphore, count) that it waits for."""
        self._semaphores: dict[int, _Semaphore] = {}
        self._words: dict[int, list[int]] = {}
        """Word of the control block -> knowledge of the cores that wrote it."""

    @property
    def cores(self) -> int:
        """Number of cores."""
        return len(self._times)

    @property
    def rivals(self) -> RivalPosts:
        """Posts to semaphores that came after a pend but could have come before it."""
        found = {key: dict(counts) for key, counts in self._known.items()}
        for key, counts in self._seen.items():
            known = found.setdefault(key, {})
            known |= {core: max(count, known.get(core, 0)) for core, count in counts.items()}
        return found

    def get_time(self, core: int) -> int:
        """Return the local time of a core."""
        return self._times[core][core]

    def is_ordered_after(self, core: int, other: int, time: int) -> bool:
        """Return whether a core is ordered after another core's local time."""
        return time < self._times[core][other]

    def list_common_times(self) -> list[int]:
        """Return the local time of each core that all cores are ordered after, [cores]."""
        return [min(times) for times in zip(*self._times, strict=True)]

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
        self._synchronize(range(self.cores))

    def _synchronize(self, cores: list[int] | range) -> None:
        knowledge = [self._publish(core) for core in cores]
        merged = [max(times) for times in zip(*knowledge, strict=True)]
        for core in cores:
            self._learn(core, merged)

    def _publish(self, core: int) -> list[int]:
        """Return the knowledge of a core for others, without anything it does from now on."""
        self._times[core][core] += 1
        return list(self._times[core])

    def _learn(self, core: int, knew: list[int]) -> None:
        self._times[core] = [max(pair) for pair in zip(self._times[core], knew, strict=True)]

    def write_word(self, core: int, address: int) -> None:
        """Record that a core writes a word of the control block."""
        before = self._words.get(address, [0] * self.cores)
        self._words[address] = [max(p) for p in zip(before, self._publish(core), strict=True)]

    def read_word(self, core: int, address: int) -> None:
        """Record that a core reads a word of the control block."""
        self._learn(core, self._words.get(address, [0] * self.cores))

    def post(self, core: int, semaphore: int, count: int) -> None:
        """Record that a core posts to a semaphore."""
        one = self._semaphore(semaphore)
        pends = ((number, one.served[number]) for number in one.open[core])
        one.open[core] = [
            n for n, pend in pends if not self.is_ordered_after(core, pend.core, pend.time)
        ]
        for number in one.open[core]:
            self._record_rival((semaphore, number), one.served[number], core, count)
        one.posted[core] += count
        one.posts[core].append((one.posted[core], self._publish(core)))
        one.value += count
        self._wake_pending(semaphore)

    def _semaphore(self, number: int) -> _Semaphore:
        if number not in self._semaphores:
            self._semaphores[number] = _Semaphore.of(self.cores)
        return self._semaphores[number]

    def pend(self, core: int, semaphore: int, count: int) -> None:
        """Record that a core pends on a semaphore."""
        self._pending[core] = (semaphore, count)
        self._wake_pending(semaphore)

    def _wake_pending(self, semaphore: int) -> None:
        """Let pending cores continue while the semaphore suffices, lower core numbers first."""
        one = self._semaphore(semaphore)
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
        pend = _Pend(core, self.get_time(core), one.taken[core], one.posted.copy())
        number = len(one.served)
        rivals = self._known.get((semaphore, number), {})
        one.served.append(pend)
        needed = [_needed(pend, other, rivals) for other in range(self.cores)]
        for other, least in enumerate(needed):
            enough = bisect_left(one.posts[other], least, key=itemgetter(0))
            if least > 0 and enough < len(one.posts[other]):
                self._learn(core, one.posts[other][enough][1])
            if other != core and any(n > 0 for by, n in enumerate(needed) if by != other):
                one.open[other].append(number)
        self._times[core][core] += 1

    def _record_rival(self, key: tuple[int, int], pend: _Pend, core: int, count: int) -> None:
        """Record a post that could have satisfied an earlier pend."""
        seen = self._seen.setdefault(key, {})
        seen[core] = seen.get(core, 0) + count
        known = self._known.get(key, {})
        if seen[core] <= known.get(core, 0):
            return
        now = {**known, core: seen[core]}
        before = (_needed(pend, other, known) for other in range(self.cores))
        after = (_needed(pend, other, now) for other in range(self.cores))
        self.is_too_strict |= any(b > 0 and a < b for b, a in zip(before, after, strict=True))


def _needed(pend: _Pend, other: int, rivals: Mapping[int, int]) -> int:
    """Return how much a core must have posted for a pend to succeed."""
    return pend.taken - sum(
        posted + rivals.get(core, 0) for core, posted in enumerate(pend.posted) if core != other
    )
