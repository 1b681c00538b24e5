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

from collections.abc import Mapping

import attrs

Rivals = Mapping[tuple[int, int], Mapping[int, int]]
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
    value: int = 0
    posts: list[tuple[int, int, list[int]]] = attrs.field(factory=list)
    """Core, how much it has posted with this one, and what it knew; in order."""
    served: list[_Pend] = attrs.field(factory=list)

    def posted(self, cores: int) -> list[int]:
        """By each core so far."""
        found = [0] * cores
        for core, total, _ in self.posts:
            found[core] = total
        return found

    def taken(self, core: int) -> int:
        """By a core so far."""
        return max((one.taken for one in self.served if one.core == core), default=0)


class Order:
    """Follows what cores do to meet."""

    def __init__(self, cores: int, rivals: Rivals | None = None) -> None:
        """``rivals`` are those that are known from the start."""
        self._known: Rivals = rivals or {}
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
    def rivals(self) -> Rivals:
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
        one = self._semaphores.setdefault(semaphore, _Semaphore())
        for number, pend in enumerate(one.served):
            if pend.core != core and not self.knows(core, pend.core, pend.time):
                self._rival((semaphore, number), pend, core, count)
        one.posts.append((core, one.posted(self.cores)[core] + count, self._tell(core)))
        one.value += count
        self._serve(semaphore)

    def pend(self, core: int, semaphore: int, count: int) -> None:
        """A core pends."""
        self._pending[core] = (semaphore, count)
        self._serve(semaphore)

    def _serve(self, semaphore: int) -> None:
        """Who pends there goes on if there is enough, lower numbers first."""
        one = self._semaphores.setdefault(semaphore, _Semaphore())
        for core in range(self.cores):
            at, count = self._pending.get(core, (-1, 0))
            if at != semaphore or one.value < count:
                continue
            del self._pending[core]
            one.value -= count
            self._take(core, semaphore, one, count)

    def _take(self, core: int, semaphore: int, one: _Semaphore, count: int) -> None:
        """Learn from the posts without which there would not have been enough."""
        pend = _Pend(core, self.now(core), one.taken(core) + count, one.posted(self.cores))
        rivals = self._known.get((semaphore, len(one.served)), {})
        one.served.append(pend)
        for other in range(self.cores):
            needed = _needed(pend, other, rivals)
            enough = (knew for by, total, knew in one.posts if by == other and total >= needed > 0)
            knew = next(enough, None)
            if knew is not None:
                self._learn(core, knew)
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
