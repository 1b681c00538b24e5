"""Answers that depend on when a transfer lands: accesses that nothing orders.

The simulator lets each instruction take effect when it is issued, so a program with a missing
wait may answer right here and wrong on the chip. An instruction is ordered after another one

- of the same unit of its core, because queues are in order;
- of another unit of its core, if the core has waited for that (``nmp.wait``, or because the
  queue was full) before it issued this one;
- of another core, if that core had waited for it before something that this core has known since
  (:mod:`nmpsim.debugger.ordering`).

Descriptors, and instructions outside the program's own memory, are read by the core itself. The
host comes after all that cores have waited for before they halted. Two accesses to the same bytes,
one of them a write, that nothing orders are a hazard. So is a read of bytes of a scratchpad that
nothing has written: the simulator has zeros there, a chip what was left from before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.debugger.instructions import ExecutedInstruction, MemoryAccess
from nmpsim.debugger.ordering import HappensBefore, RivalPosts
from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.isa.table import OUTSTANDING, SCRATCHPAD_BASE, UNIT, Kind, Unit, of_kind

MAX_OPEN = 1 << 13
"""Accesses to DRAM that are kept in sight: of a program whose cores never meet only the latest."""
SEMAPHORES = ("nmp.post", "nmp.pend")


@attrs.frozen
class Hazard:
    """An access whose outcome is not certain."""

    position: int
    """State just after it, or after what shows that nothing orders it."""
    first: ExecutedInstruction | None
    """The one that accesses the same bytes and that nothing orders before it; None if nothing at
    all has written them."""
    then: ExecutedInstruction | None
    """The instruction; None if the host accesses the bytes."""
    what: str
    """In words."""

    @property
    def place(self) -> ExecutedInstruction:
        """The instruction to look at."""
        found = self.then or self.first
        assert found is not None
        return found


@attrs.define(eq=False)
class _Open:
    """An access that others may not be ordered after."""

    done: ExecutedInstruction
    access: MemoryAccess
    unit: Unit | None
    """Who accesses: a unit, or the core itself."""
    awaited_at: int | None = None
    """Own time of its core when the core knew that it was finished; None if it does not."""


class _SharedAccesses:
    """Accesses to DRAM in the order in which they were made, the latest ``MAX_OPEN`` of them."""

    def __init__(self) -> None:
        self._accesses: list[_Open] = []
        self._starts = np.empty(MAX_OPEN + 1)
        self._ends = np.empty(MAX_OPEN + 1)
        """First address, and the one after the last. Floats hold what is beyond 64 bits as well."""
        self._are_writes = np.empty(MAX_OPEN + 1, np.bool_)

    def near(self, access: MemoryAccess) -> list[_Open]:
        """Return accesses whose address range overlaps that of ``access``, unless both are reads.

        Ranges include the gaps between the runs of an access, so some of them share no byte.
        """
        count = len(self._accesses)
        found = self._starts[:count] < access.box.end
        found &= self._ends[:count] > access.box.start
        if access.kind == "read":
            found &= self._are_writes[:count]
        return [self._accesses[index] for index in found.nonzero()[0].tolist()]

    def add(self, opened: _Open) -> None:
        """Add the latest access; drop the older half of too many."""
        if opened.unit is None:
            self._drop_same(opened)
        count = len(self._accesses)
        self._starts[count], self._ends[count] = opened.access.box.start, opened.access.box.end
        self._are_writes[count] = opened.access.kind == "write"
        self._accesses.append(opened)
        if len(self._accesses) > MAX_OPEN:
            self._keep(range(MAX_OPEN // 2, len(self._accesses)))

    def _drop_same(self, opened: _Open) -> None:
        """A loop that reads or writes a word again and again counts with its last time."""
        count, box = len(self._accesses), opened.access.box
        same = (self._starts[:count] == box.start) & (self._ends[:count] == box.end)
        for index in np.flatnonzero(same).tolist():
            one = self._accesses[index]
            if (
                one.unit is None
                and one.done.core == opened.done.core
                and one.access == opened.access
            ):
                del self._accesses[index]
                for column in self._columns():
                    column[index : count - 1] = column[index + 1 : count]
                return

    def keep(self, condition: Callable[[_Open], bool]) -> None:
        """Forget all for which the condition does not hold."""
        self._keep([i for i, one in enumerate(self._accesses) if condition(one)])

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self._starts, self._ends, self._are_writes

    def _keep(self, indices: Sequence[int]) -> None:
        for column in self._columns():
            column[: len(indices)] = column[indices]
        self._accesses = [self._accesses[index] for index in indices]


class Initialized:
    """Fed with every instruction in order, tells reads of what was never written."""

    def __init__(self, cores: int, scratchpad_bytes: int) -> None:
        self._written = [bytearray(scratchpad_bytes) for _ in range(cores)]
        """Of each byte, 1 if it was written."""

    def feed(self, core: int, accesses: Sequence[MemoryAccess]) -> tuple[MemoryAccess, int] | None:
        """What a core reads that nothing has written, and the first address of it.

        ``accesses`` are those of one instruction. Each byte is told once. A scalar load may read a
        word of which only a part was written: that is how records with gaps are copied.
        """
        found = None
        for kind in ("read", "write"):  # an instruction reads before it writes
            for access in accesses:
                if access.kind == kind and access.box.space == "scratchpad":
                    missing = self._missing(core, access)
                    if kind == "read" and missing is not None and found is None:
                        found = access, missing
        return found

    def _missing(self, core: int, access: MemoryAccess) -> int | None:
        """Address of the first byte that was not written until now; from now on all count as it."""
        box = access.box
        written, start = self._written[core], box.start - SCRATCHPAD_BASE
        if written.find(0, start, start + box.end - box.start) < 0:
            return None
        bytes_there = np.frombuffer(written, np.bool_)[start : start + box.end - box.start]
        mask = box.get_mask()
        missing = np.flatnonzero(mask & ~bytes_there)
        is_partial = access.what == "word" and 0 < missing.size < box.nbytes
        bytes_there |= mask
        return None if is_partial or missing.size == 0 else box.start + int(missing[0])


_Step = Callable[["_Accesses"], "list[Hazard]"]


class HazardDetector:
    """Fed with all that happens in order, tells the hazards.

    From the first post or pend on it keeps what it was fed with: a later post may show that a pend
    was ordered after less than was assumed, and all since then is looked at again.
    """

    def __init__(
        self, cores: int, queue_depth: int, read_only_end: int, scratchpad_bytes: int
    ) -> None:
        """``read_only_end``: address after the memory that nobody can write."""
        self._accesses = _Accesses(cores, queue_depth, read_only_end, scratchpad_bytes)
        self._before: _Accesses | None = None
        """As it was at the first post or pend."""
        self._steps: list[_Step] = []
        """What came since then."""
        self._told: list[Hazard] = []

    def feed(self, done: ExecutedInstruction) -> list[Hazard]:
        """The hazards of one more instruction."""
        if self._before is None and done.instruction.mnemonic in SEMAPHORES:
            self._before = deepcopy(self._accesses)
        return self._do(lambda accesses: accesses.feed(done), done.position)

    def host(self, position: int, access: MemoryAccess) -> list[Hazard]:
        """Those of an access of the host, which is done at ``position``."""
        return self._do(lambda accesses: accesses.host(position, access), position)

    def end_segment(self) -> None:
        """The host goes on when all cores have halted."""
        self._do(lambda accesses: accesses.end_segment(), 0)

    def _do(self, step: _Step, position: int) -> list[Hazard]:
        found = step(self._accesses)
        if self._before is not None:
            self._steps.append(step)
            while self._accesses.order.is_too_strict:
                found = self._again(self._before, self._accesses.order.rivals)
            found = [one for one in found if one not in self._told]
        self._told += found
        return [attrs.evolve(one, position=max(one.position, position)) for one in found]

    def _again(self, before: _Accesses, rivals: RivalPosts) -> list[Hazard]:
        """All since the first post or pend, with other rivals known; as far as these are all."""
        self._accesses = deepcopy(before)
        self._accesses.order = HappensBefore(self._accesses.order.cores, rivals)
        found: list[Hazard] = []
        for step in self._steps:
            found += step(self._accesses)
            if self._accesses.order.is_too_strict:
                break
        return found


class _Accesses:
    """Those that others may not be ordered after, and what is ordered."""

    def __init__(
        self, cores: int, queue_depth: int, read_only_end: int, scratchpad_bytes: int
    ) -> None:
        self.order = HappensBefore(cores)
        self._written = Initialized(cores, scratchpad_bytes)
        self._depth, self._read_only_end = queue_depth, read_only_end
        self._unfinished: list[dict[int, deque[_Open]]] = [
            {unit: deque() for unit in Unit} for _ in range(cores)
        ]
        """Of each core, accesses by instructions for each unit that it has not waited for."""
        self._shared = _SharedAccesses()
        """Accesses to writable DRAM that not every core is ordered after."""

    def feed(self, done: ExecutedInstruction) -> list[Hazard]:
        """The hazards of one more instruction: in what the core itself reads, in its operands."""
        found = self._access(done, done.fetches, None)
        if done.instruction.kind is Kind.SYNC:
            _SYNC[done.instruction.mnemonic](self, done)
        elif done.unit is not None:
            # The queue had room: so this one was finished.
            self._finish(done.core, done.unit, done.job - self._depth)
        return found + self._access(done, done.accesses, done.unit)

    def host(self, position: int, access: MemoryAccess) -> list[Hazard]:
        """The host reads or writes a tensor: after all but what no core has waited for."""
        found = [
            Hazard(position, one.done, None, _host_sentence(one, access))
            for one in self._shared.near(access)
            if one.awaited_at is None and _meet(access, one.access)
        ]
        return self._told(found[:1])

    def end_segment(self) -> list[Hazard]:
        """All cores have halted, and know what each of them has waited for."""
        self.order.end_segment()
        self._forget()
        return []

    def _access(
        self, done: ExecutedInstruction, accesses: Sequence[MemoryAccess], unit: Unit | None
    ) -> list[Hazard]:
        checked = []
        for access in accesses:
            if access.box.space == "control":
                order = self.order.write_word if access.kind == "write" else self.order.read_word
                order(done.core, access.box.start)
            elif access.box.space == "scratchpad" or access.box.end > self._read_only_end:
                checked.append(access)
        if not checked:
            return []
        found = [
            Hazard(done.position, other.done, done, _sentence(other, done, access))
            for access in checked
            for other in self._others(done, access)
            if not self._is_ordered(done, unit, other) and _meet(access, other.access)
        ]
        missing = self._written.feed(done.core, checked)
        if missing is not None:
            found.append(Hazard(done.position, None, done, _unwritten(done, *missing)))
        for access in checked:
            self._open(_Open(done, access, unit))
        return self._told(found[:1])

    def _told(self, found: list[Hazard]) -> list[Hazard]:
        """Each missing wait is told once: from here on it counts as if it had been there."""
        for hazard in found:
            first, then = hazard.first, hazard.then
            is_own = first is not None and (then is None or first.core == then.core)
            if first is not None and first.unit is not None and is_own:
                self._finish(first.core, first.unit, first.job)
        return found

    def _open(self, opened: _Open) -> None:
        core, access = opened.done.core, opened.access
        if opened.unit is not None:
            self._unfinished[core][opened.unit].append(opened)
        if access.box.space == "scratchpad":
            return
        if opened.unit is None:
            opened.awaited_at = self.order.now(core)
        self._shared.add(opened)

    def _others(self, done: ExecutedInstruction, access: MemoryAccess) -> list[_Open]:
        if access.box.space != "scratchpad":
            return self._shared.near(access)
        start, end, is_write = access.box.start, access.box.end, access.kind == "write"
        return [
            one
            for queue in self._unfinished[done.core].values()
            for one in queue
            if one.access.box.start < end and start < one.access.box.end
            if is_write or one.access.kind == "write"
        ]

    def _is_ordered(self, done: ExecutedInstruction, unit: Unit | None, other: _Open) -> bool:
        if other.done.core == done.core:
            return (unit is not None and other.unit == unit) or other.awaited_at is not None
        awaited = other.awaited_at
        return awaited is not None and self.order.knows(done.core, other.done.core, awaited)

    def wait(self, done: ExecutedInstruction) -> None:
        """``nmp.wait``."""
        core, (unit, outstanding) = done.core, _awaited(done.word)
        if queue := self._unfinished[core].get(unit):  # a word may name a unit that does not exist
            self._finish(core, unit, queue[-1].done.job - outstanding)

    def _finish(self, core: int, unit: int, job: int) -> None:
        """A core knows that a unit is done with a job and those before it."""
        queue = self._unfinished[core][unit]
        if not queue or queue[0].done.job > job:
            return
        now = self.order.now(core)
        while queue and queue[0].done.job <= job:
            queue.popleft().awaited_at = now
        if self.order.cores == 1:
            self._shared.keep(lambda opened: opened.awaited_at is None)

    def barrier(self, done: ExecutedInstruction) -> None:
        """``nmp.barrier``."""
        if self.order.barrier(done.core, done.rs1, done.rs2):
            self._forget()

    def post(self, done: ExecutedInstruction) -> None:
        """``nmp.post``."""
        self.order.post(done.core, done.rs1, done.rs2)

    def pend(self, done: ExecutedInstruction) -> None:
        """``nmp.pend``."""
        self.order.pend(done.core, done.rs1, done.rs2)

    def halt(self, done: ExecutedInstruction) -> None:
        """``nmp.halt`` orders nothing: the host does; see ``end_segment``."""

    def _forget(self) -> None:
        """Drop what every core is ordered after."""
        known = self.order.known_to_all()
        self._shared.keep(lambda o: o.awaited_at is None or o.awaited_at >= known[o.done.core])


_SYNC: dict[str, Callable[[_Accesses, ExecutedInstruction], None]] = exhaustive_table(
    f"{__name__}._SYNC",
    {
        "nmp.wait": _Accesses.wait,
        "nmp.barrier": _Accesses.barrier,
        "nmp.post": _Accesses.post,
        "nmp.pend": _Accesses.pend,
        "nmp.halt": _Accesses.halt,
    },
    of_kind(Kind.SYNC),
)
"""Mnemonic -> what it orders."""


@lru_cache(maxsize=1 << 8)
def _awaited(word: int) -> tuple[int, int]:
    """Return the unit that an ``nmp.wait`` waits for and the jobs that may stay outstanding."""
    return UNIT.decode(word), OUTSTANDING.decode(word)


def _meet(one: MemoryAccess, other: MemoryAccess) -> bool:
    """Do two accesses share a byte, and does one of them write?"""
    if one.kind == "read" and other.kind == "read":
        return False
    if one.box.start >= other.box.end or other.box.start >= one.box.end:
        return False
    return one.box.overlaps(other.box)


_VERBS = {"read": "reads", "write": "writes"}


def _sentence(other: _Open, done: ExecutedInstruction, access: MemoryAccess) -> str:
    return (
        f"core {done.core} {done.instruction.mnemonic} at {done.pc:#x} {_accesses(access)} that"
        f" {_earlier(other)}; {_missing(other, done)}"
    )


def _host_sentence(other: _Open, access: MemoryAccess) -> str:
    return (
        f"the host {_accesses(access)} that {_earlier(other)}; no nmp.wait"
        f" {_name(other.unit)} before nmp.halt"
    )


def _accesses(access: MemoryAccess) -> str:
    box = access.box
    where = f"{box.space} {box.start:#x} to {box.end - 1:#x}"
    return f"{_VERBS[access.kind]} {where} ({access.what})"


def _earlier(other: _Open) -> str:
    first, access = other.done, other.access
    return (
        f"core {first.core} {first.instruction.mnemonic} at {first.pc:#x} {_VERBS[access.kind]}"
        f" ({access.what})"
    )


def _unwritten(done: ExecutedInstruction, access: MemoryAccess, address: int) -> str:
    return (
        f"core {done.core} {done.instruction.mnemonic} at {done.pc:#x} reads scratchpad"
        f" {address:#x} ({access.what}), which nothing has written"
    )


def _missing(first: _Open, then: ExecutedInstruction) -> str:
    if first.done.core == then.core and first.unit is not None:
        return f"no nmp.wait {_name(first.unit)} between them"
    if first.unit is not None:
        return "no wait and barrier, or post and pend, between them"
    return "no barrier, or post and pend, between them"


def _name(unit: Unit | None) -> str:
    return "" if unit is None else Unit(unit).name.lower()
