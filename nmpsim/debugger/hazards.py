"""Answers that depend on when a transfer lands: accesses that nothing orders.

The simulator lets each instruction take effect when it is issued, so a program with a missing
wait may answer right here and wrong on the chip. An instruction is ordered after another one

- of the same unit of its core, because queues are in order;
- of another unit of its core, if the core has waited for that (``nmp.wait``, or because the
  queue was full) before it issued this one;
- of another core, if that core had waited for it before a barrier that this core has passed since,
  or before a post without which this core's pend would not have had enough (vector clocks: Mattern,
  *Virtual Time and Global States of Distributed Systems*, 1989).

Two accesses to the same bytes, one of them a write, that nothing orders are a hazard. So is a read
of bytes of a scratchpad that nothing has written: the simulator has zeros there, a chip what was
left from before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from nmpsim.debugger.initialized import Initialized
from nmpsim.debugger.instructions import Done, Touch
from nmpsim.isa.table import OUTSTANDING, UNIT, Kind, Unit, of_kind
from nmpsim.isa.total import total

MAX_OPEN = 1 << 13
"""Accesses to DRAM that are kept in sight: of a program whose cores never meet only the latest."""


@attrs.frozen
class Hazard:
    """An instruction whose answer is not certain."""

    position: int
    """State just after it."""
    first: Done | None
    """The one that touches the same bytes and that nothing orders before it; None if nothing at
    all has written them."""
    then: Done
    what: str
    """In words."""


@attrs.define
class _Open:
    """An access of an instruction that others may not be ordered after."""

    done: Done
    touch: Touch
    awaited_at: int | None = None
    """Own time of its core when the core knew that it was finished; None if it does not."""


@attrs.define
class _Core:
    times: list[int]
    """Of each core, up to which time of its this one knows all about it."""
    arrived: tuple[int, int] | None = None
    """(barrier, cores) that it stands at."""
    pending: tuple[int, int] | None = None
    """(semaphore, count) that it waits for."""


@attrs.define
class _Semaphore:
    value: int = 0
    posts: list[tuple[int, int, list[int]]] = attrs.field(factory=list)
    """Core, how much it posted, and what it knew, in order."""
    taken: dict[int, int] = attrs.field(factory=dict)
    """By each core."""


class HazardCheck:
    """Fed with every instruction in order, tells the hazards."""

    def __init__(
        self, cores: int, queue_depth: int, read_only_end: int, scratchpad_bytes: int
    ) -> None:
        """``read_only_end``: address after the memory that nobody can write."""
        self._written = Initialized(cores, scratchpad_bytes)
        self._depth, self._read_only_end = queue_depth, read_only_end
        self._cores = [_Core([1 if i == n else 0 for i in range(cores)]) for n in range(cores)]
        self._semaphores: dict[int, _Semaphore] = {}
        self._local: list[list[_Open]] = [[] for _ in range(cores)]
        """Of each core, accesses to its scratchpad by instructions that it has not waited for."""
        self._shared: list[_Open] = []
        """Accesses to writable DRAM that not every core is ordered after."""

    def feed(self, done: Done) -> list[Hazard]:
        """The hazards of one more instruction."""
        if done.instruction.kind is Kind.SYNC:
            _SYNC[done.instruction.mnemonic](self, done)
        elif done.touches:
            return self._access(done)
        return []

    def end_segment(self) -> None:
        """The host goes on when all cores have halted: everything before is ordered."""
        self._shared.clear()
        for opened in self._local:
            opened.clear()

    def _access(self, done: Done) -> list[Hazard]:
        if done.unit is not None:
            # The queue had room: so this one was finished.
            self._finish(done.core, done.unit, done.job - self._depth)
        touches = [t for t in done.touches if not self._is_read_only(t)]
        found = [
            hazard
            for touch in touches
            for other in self._others(done, touch)
            if (hazard := self._conflict(done, touch, other))
        ]
        missing = self._written.feed(done)
        if missing is not None:
            found.append(Hazard(done.position, None, done, _unwritten(done, *missing)))
        for touch in touches:
            self._open(done, touch)
        return self._told(found[:1])

    def _told(self, found: list[Hazard]) -> list[Hazard]:
        """Each missing wait is told once: from here on it counts as if it had been there."""
        for hazard in found:
            first = hazard.first
            if first is not None and first.unit is not None and first.core == hazard.then.core:
                self._finish(first.core, first.unit, first.job)
        return found

    def _is_read_only(self, touch: Touch) -> bool:
        return touch.box.space == "dram" and touch.box.end <= self._read_only_end

    def _open(self, done: Done, touch: Touch) -> None:
        opened = _Open(done, touch)
        if touch.box.space == "scratchpad":
            if done.unit is not None:
                self._local[done.core].append(opened)
            return
        if done.unit is None:
            opened.awaited_at = self._cores[done.core].times[done.core]
            self._forget_same(done, touch)
        self._shared.append(opened)
        if len(self._shared) > MAX_OPEN:
            del self._shared[: MAX_OPEN // 2]

    def _forget_same(self, done: Done, touch: Touch) -> None:
        """A loop that reads or writes a word again and again counts with its last time."""
        self._shared = [
            o
            for o in self._shared
            if o.done.unit is not None or o.done.core != done.core or o.touch != touch
        ]

    def _others(self, done: Done, touch: Touch) -> Sequence[_Open]:
        return self._local[done.core] if touch.box.space == "scratchpad" else self._shared

    def _conflict(self, done: Done, touch: Touch, other: _Open) -> Hazard | None:
        if touch.kind == "read" and other.touch.kind == "read":
            return None
        if touch.box.start >= other.touch.box.end or other.touch.box.start >= touch.box.end:
            return None
        if self._is_ordered(done, other) or not touch.box.meets_box(other.touch.box):
            return None
        return Hazard(done.position, other.done, done, _sentence(other, done, touch))

    def _is_ordered(self, done: Done, other: _Open) -> bool:
        if other.done.core == done.core:
            return other.done.unit == done.unit or other.awaited_at is not None
        known = self._cores[done.core].times[other.done.core]
        return other.awaited_at is not None and other.awaited_at < known

    def wait(self, done: Done) -> None:
        """``nmp.wait``."""
        core, unit, outstanding = done.core, UNIT.decode(done.word), OUTSTANDING.decode(done.word)
        jobs = [o.done.job for o in self._all(core) if o.done.unit == unit]
        if jobs:
            issued = max(jobs) + 1
            self._finish(core, unit, issued - outstanding - 1)

    def _all(self, core: int) -> list[_Open]:
        return [*self._local[core], *(o for o in self._shared if o.done.core == core)]

    def _finish(self, core: int, unit: int, job: int) -> None:
        """A core knows that a unit is done with a job and those before it."""
        now = self._cores[core].times[core]
        for opened in self._all(core):
            is_done = opened.done.unit == unit and opened.done.job <= job
            if is_done and opened.awaited_at is None:
                opened.awaited_at = now
        self._local[core] = [o for o in self._local[core] if o.awaited_at is None]
        if len(self._cores) == 1:
            self._shared = [o for o in self._shared if o.awaited_at is None]

    def barrier(self, done: Done) -> None:
        """``nmp.barrier``."""
        core, number, count = done.core, done.rs1, done.rs2
        self._cores[core].arrived = (number, count)
        there = [n for n, one in enumerate(self._cores) if one.arrived == (number, count)]
        if len(there) < count:
            return
        for n in there:
            self._cores[n].times[n] += 1
            self._cores[n].arrived = None
        merged = [max(t) for t in zip(*(self._cores[n].times for n in there), strict=True)]
        for n in there:
            self._cores[n].times = list(merged)
        self._forget()

    def post(self, done: Done) -> None:
        """``nmp.post``."""
        core, semaphore, count = done.core, done.rs1, done.rs2
        self._cores[core].times[core] += 1
        one = self._semaphores.setdefault(semaphore, _Semaphore())
        one.posts.append((core, count, list(self._cores[core].times)))
        one.value += count
        self._serve(semaphore)

    def _serve(self, semaphore: int) -> None:
        """Who pends there goes on if there is enough, lower numbers first."""
        one = self._semaphores.setdefault(semaphore, _Semaphore())
        for number, core in enumerate(self._cores):
            if core.pending is None or core.pending[0] != semaphore:
                continue
            if one.value >= core.pending[1]:
                one.value -= core.pending[1]
                one.taken[number] = one.taken.get(number, 0) + core.pending[1]
                core.pending = None
                self._learn(number, one)

    def _learn(self, core: int, semaphore: _Semaphore) -> None:
        """Those posts were there for certain without which there would not have been enough."""
        for position, (poster, _, times) in enumerate(semaphore.posts):
            without = sum(
                count
                for at, (other, count, _) in enumerate(semaphore.posts)
                if other != poster or at < position
            )
            if without < semaphore.taken[core]:
                known = self._cores[core].times
                for n, time in enumerate(times):
                    known[n] = max(known[n], time)

    def pend(self, done: Done) -> None:
        """``nmp.pend``."""
        self._cores[done.core].pending = (done.rs1, done.rs2)
        self._serve(done.rs1)

    def halt(self, done: Done) -> None:
        """``nmp.halt`` orders nothing: the host does; see ``end_segment``."""

    def _forget(self) -> None:
        """Drop what every core is ordered after."""
        known = [min(one.times[n] for one in self._cores) for n in range(len(self._cores))]
        self._shared = [
            o for o in self._shared if o.awaited_at is None or o.awaited_at >= known[o.done.core]
        ]


_SYNC: dict[str, Callable[[HazardCheck, Done], None]] = total(
    f"{__name__}._SYNC",
    {
        "nmp.wait": HazardCheck.wait,
        "nmp.barrier": HazardCheck.barrier,
        "nmp.post": HazardCheck.post,
        "nmp.pend": HazardCheck.pend,
        "nmp.halt": HazardCheck.halt,
    },
    of_kind(Kind.SYNC),
)
"""Mnemonic -> what it orders."""


def _sentence(other: _Open, done: Done, touch: Touch) -> str:
    first, then = other.done, done
    verb = {"read": "reads", "write": "writes"}
    box = touch.box
    where = f"{box.space} {box.start:#x} to {box.end - 1:#x}"
    how = _missing(first, then)
    return (
        f"core {then.core} {then.instruction.mnemonic} at {then.pc:#x} {verb[touch.kind]} {where}"
        f" ({touch.what}) that core {first.core} {first.instruction.mnemonic} at {first.pc:#x}"
        f" {verb[other.touch.kind]} ({other.touch.what}); {how}"
    )


def _unwritten(done: Done, touch: Touch, address: int) -> str:
    return (
        f"core {done.core} {done.instruction.mnemonic} at {done.pc:#x} reads scratchpad"
        f" {address:#x} ({touch.what}), which nothing has written"
    )


def _missing(first: Done, then: Done) -> str:
    if first.core == then.core and first.unit is not None:
        return f"no nmp.wait {Unit(first.unit).name.lower()} between them"
    if first.unit is not None:
        return "no wait and barrier, or post and pend, between them"
    return "no barrier, or post and pend, between them"
