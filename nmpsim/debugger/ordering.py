"""What each core knows to be done, whatever the timing: vector clocks.

Each core counts its own time, and knows up to which time of each other core it knows all about it
(Mattern, *Virtual Time and Global States of Distributed Systems*, 1989). It learns at barriers,
from words of the control block, and from posts without which its pend would not have had enough.

Which posts these are shows late: a post that comes after the pend in simulated time, and that does
not know of it, could have come first. Such posts are *rivals* of the pend. Where one comes that
takes a core's knowledge away, the order before was too strict, and must be gone through once more
with the rivals known from the start (``is_too_strict``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from operator import itemgetter

import attrs

RivalPosts = Mapping[tuple[int, int], Mapping[int, int]]
"""(semaphore, how manieth pend was served there) -> how much each core posted later that could have
come first."""


@attrs.define
class _Pend:
    """A pend that was served."""

    core: int
    time: int
    """Own time of the core then."""
    taken: int
    """By the core from this semaphore, this time included."""
    posted: list[int]
    """By each core until then."""


@attrs.define
class _Semaphore:
    value: int
    posted: list[int]
    """By each core so far."""
    taken: list[int]
    """By each core so far."""
    posts: list[list[tuple[int, list[int]]]]
    """Of each core, how much it has posted with each post, and what it knew then."""
    open: list[list[int]]
    """Of each core, numbers of the pends of which it did not know when it posted last, and which
    learn from another one's post what they would not if this core's had come first."""
    served: list[_Pend] = attrs.field(factory=list)

    @classmethod
    def of(cls, cores: int) -> _Semaphore:
        """Return an unused semaphore."""
        return cls(
            0, [0] * cores, [0] * cores, [[] for _ in range(cores)], [[] for _ in range(cores)]
        )


class HappensBefore:
    """Follows what cores do to meet."""

    def __init__(self, cores: int, rivals: RivalPosts | None = None) -> None:
        """``rivals`` are those that are known from the start."""
        self._known: RivalPosts = rivals or {}
        self._seen: dict[tuple[int, int], dict[int, int]] = {}
        self.is_too_strict = False
        """Did a rival come that was not known?"""
        self._times = [[1 if i == n else 0 for i in range(cores)] for n in range(cores)]
        self._arrived: dict[int, tuple[int, int]] = {}
        """Core -> (barrier, cores) that it stands at."""
        self._pending: dict[int, tuple[int, int]] = {}
        """Core -> (semaphore, count) that it waits for."""
        self._semaphores: dict[int, _Semaphore] = {}
        self._words: dict[int, list[int]] = {}
        """Word of the control block -> what those who wrote it knew."""

    @property
    def cores(self) -> int:
        """How many there are."""
        return len(self._times)

    @property
    def rivals(self) -> RivalPosts:
        """All that have come so far or were known."""
        found = {key: dict(counts) for key, counts in self._known.items()}
        for key, counts in self._seen.items():
            known = found.setdefault(key, {})
            known |= {core: max(count, known.get(core, 0)) for core, count in counts.items()}
        return found

    def now(self, core: int) -> int:
        """A core's own time."""
        return self._times[core][core]

    def knows(self, core: int, other: int, time: int) -> bool:
        """Does a core know all that another one had done at a time of its own?"""
        return time < self._times[core][other]

    def known_to_all(self) -> list[int]:
        """Of each core the time before which all cores know all about it."""
        return [min(times) for times in zip(*self._times, strict=True)]

    def barrier(self, core: int, number: int, count: int) -> bool:
        """A core comes to a barrier; True if it was the last one."""
        self._arrived[core] = (number, count)
        there = [one for one, at in self._arrived.items() if at == (number, count)]
        if len(there) < count:
            return False
        self._meet(there)
        for one in there:
            del self._arrived[one]
        return True

    def end_segment(self) -> None:
        """All cores have halted, and the host starts them again."""
        self._meet(range(self.cores))

    def _meet(self, cores: list[int] | range) -> None:
        told = [self._tell(core) for core in cores]
        merged = [max(times) for times in zip(*told, strict=True)]
        for core in cores:
            self._learn(core, merged)

    def _tell(self, core: int) -> list[int]:
        """What a core knows, for others; what it does from now on is not in it."""
        self._times[core][core] += 1
        return list(self._times[core])

    def _learn(self, core: int, knew: list[int]) -> None:
        self._times[core] = [max(pair) for pair in zip(self._times[core], knew, strict=True)]

    def write_word(self, core: int, address: int) -> None:
        """A core writes a word of the control block: who reads it comes after that."""
        before = self._words.get(address, [0] * self.cores)
        self._words[address] = [max(p) for p in zip(before, self._tell(core), strict=True)]

    def read_word(self, core: int, address: int) -> None:
        """A core reads a word of the control block."""
        self._learn(core, self._words.get(address, [0] * self.cores))

    def post(self, core: int, semaphore: int, count: int) -> None:
        """A core posts."""
        one = self._semaphore(semaphore)
        pends = ((number, one.served[number]) for number in one.open[core])
        one.open[core] = [n for n, pend in pends if not self.knows(core, pend.core, pend.time)]
        for number in one.open[core]:
            self._rival((semaphore, number), one.served[number], core, count)
        one.posted[core] += count
        one.posts[core].append((one.posted[core], self._tell(core)))
        one.value += count
        self._serve(semaphore)

    def _semaphore(self, number: int) -> _Semaphore:
        if number not in self._semaphores:
            self._semaphores[number] = _Semaphore.of(self.cores)
        return self._semaphores[number]

    def pend(self, core: int, semaphore: int, count: int) -> None:
        """A core pends."""
        self._pending[core] = (semaphore, count)
        self._serve(semaphore)

    def _serve(self, semaphore: int) -> None:
        """Who pends there goes on if there is enough, lower numbers first."""
        one = self._semaphore(semaphore)
        for core in range(self.cores):
            at, count = self._pending.get(core, (-1, 0))
            if at != semaphore or one.value < count:
                continue
            del self._pending[core]
            one.value -= count
            self._take(core, semaphore, one, count)

    def _take(self, core: int, semaphore: int, one: _Semaphore, count: int) -> None:
        """Learn from the posts without which there would not have been enough."""
        one.taken[core] += count
        pend = _Pend(core, self.now(core), one.taken[core], one.posted.copy())
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

    def _rival(self, key: tuple[int, int], pend: _Pend, core: int, count: int) -> None:
        """A core posts what could have served an earlier pend."""
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
    """How much a core must have posted for a pend to be served, as all others cannot have."""
    return pend.taken - sum(
        posted + rivals.get(core, 0) for core, posted in enumerate(pend.posted) if core != other
    )
