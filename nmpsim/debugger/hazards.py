"""Hazards: accesses to the same bytes whose order depends on when transfers land.

The simulator applies each instruction when it is issued, so a program with a missing wait may give
the right result here and a wrong one on the chip. An instruction is ordered after another one

- of the same unit of its core, because queues are in order;
- of another unit of its core, if the core has waited for it (``nmp.wait``, or because the queue was
  full) before it issued this one;
- of another core, if that core had waited for it before something that this core has learned of
  since (:mod:`nmpsim.debugger.ordering`).

Descriptors, and instructions outside the program's own memory, are read by the core itself. The
host comes after everything that cores waited for before they halted. Two unordered accesses to the
same bytes, one of them a write, are a hazard. So is a read of scratchpad bytes that nothing has
written: they are zero in the simulator, and undefined on a chip.
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
from nmpsim.isa.table import OUTSTANDING, SCRATCHPAD_BASE, UNIT, Kind, Unit, list_mnemonics

MAX_OPEN = 1 << 13
"""Maximum number of DRAM accesses that are kept; the oldest half is dropped beyond it."""
SEMAPHORES = ("nmp.post", "nmp.pend")


@attrs.frozen
class Hazard:
    """Memory access whose order or value is not defined."""

    position: int
    """Position just after the access, or after the instruction that reveals the hazard."""
    first: ExecutedInstruction | None
    """Unordered access to the same bytes; None if nothing has written the bytes."""
    then: ExecutedInstruction | None
    """The instruction; None if the host accesses the bytes."""
    what: str
    """Description of the hazard."""

    @property
    def place(self) -> ExecutedInstruction:
        """Instruction to show to the user."""
        found = self.then or self.first
        assert found is not None
        return found


@attrs.define(eq=False)
class _OpenAccess:
    """An access that later accesses may not be ordered after."""

    done: ExecutedInstruction
    access: MemoryAccess
    unit: Unit | None
    """Unit that accesses; None for the core itself."""
    awaited_at: int | None = None
    """Local time at which its core knew that it had finished; None if it does not."""


class _SharedAccesses:
    """The latest ``MAX_OPEN`` accesses to DRAM, in order."""

    def __init__(self) -> None:
        self._accesses: list[_OpenAccess] = []
        self._starts = np.empty(MAX_OPEN + 1)
        self._ends = np.empty(MAX_OPEN + 1)
        """First address, and address after the last. Floats also hold values beyond 64 bits."""
        self._are_writes = np.empty(MAX_OPEN + 1, np.bool_)

    def near(self, access: MemoryAccess) -> list[_OpenAccess]:
        """Return accesses whose address range overlaps that of ``access``, unless both are reads.

        Ranges include the gaps between the runs of an access, so some of them share no byte.
        """
        count = len(self._accesses)
        found = self._starts[:count] < access.region.end
        found &= self._ends[:count] > access.region.start
        if access.kind == "read":
            found &= self._are_writes[:count]
        return [self._accesses[index] for index in found.nonzero()[0].tolist()]

    def add(self, opened: _OpenAccess) -> None:
        """Add the latest access; drop the older half of too many."""
        if opened.unit is None:
            self._drop_same(opened)
        count = len(self._accesses)
        self._starts[count], self._ends[count] = (
            opened.access.region.start,
            opened.access.region.end,
        )
        self._are_writes[count] = opened.access.kind == "write"
        self._accesses.append(opened)
        if len(self._accesses) > MAX_OPEN:
            self._keep(range(MAX_OPEN // 2, len(self._accesses)))

    def _drop_same(self, opened: _OpenAccess) -> None:
        """Drop the previous access of a loop that repeats the same access."""
        count, region = len(self._accesses), opened.access.region
        same = (self._starts[:count] == region.start) & (self._ends[:count] == region.end)
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

    def keep(self, condition: Callable[[_OpenAccess], bool]) -> None:
        """Keep the accesses for which the condition is true."""
        self._keep([i for i, one in enumerate(self._accesses) if condition(one)])

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self._starts, self._ends, self._are_writes

    def _keep(self, indices: Sequence[int]) -> None:
        for column in self._columns():
            column[: len(indices)] = column[indices]
        self._accesses = [self._accesses[index] for index in indices]


class InitializationTracker:
    """Detector of reads of scratchpad bytes that were never written."""

    def __init__(self, cores: int, scratchpad_bytes: int) -> None:
        self._written = [bytearray(scratchpad_bytes) for _ in range(cores)]
        """For each byte, 1 if it was written."""

    def process(
        self, core: int, accesses: Sequence[MemoryAccess]
    ) -> tuple[MemoryAccess, int] | None:
        """Process the accesses of one instruction and return its first uninitialized read, or None.

        Returns the access and the first address that nothing has written, or None. Each byte is
        reported once. A scalar load may read a word that was written in part: records with gaps are
        copied like that.
        """
        found = None
        for kind in ("read", "write"):  # an instruction reads before it writes
            for access in accesses:
                if access.kind == kind and access.region.space == "scratchpad":
                    missing = self._missing(core, access)
                    if kind == "read" and missing is not None and found is None:
                        found = access, missing
        return found

    def _missing(self, core: int, access: MemoryAccess) -> int | None:
        """Return the first address not written so far, and mark all bytes as written."""
        region = access.region
        written, start = self._written[core], region.start - SCRATCHPAD_BASE
        if written.find(0, start, start + region.end - region.start) < 0:
            return None
        bytes_there = np.frombuffer(written, np.bool_)[start : start + region.end - region.start]
        mask = region.get_mask()
        missing = np.flatnonzero(mask & ~bytes_there)
        is_partial = access.what == "word" and 0 < missing.size < region.nbytes
        bytes_there |= mask
        return None if is_partial or missing.size == 0 else region.start + int(missing[0])


_Step = Callable[["_Accesses"], "list[Hazard]"]


class HazardDetector:
    """Detector of hazards in the sequence of instructions and host accesses of a run.

    From the first post or pend on, all steps are kept: a later post may show that a pend was
    ordered after fewer posts than assumed, and everything since then is checked again.
    """

    def __init__(
        self, cores: int, queue_depth: int, read_only_end: int, scratchpad_bytes: int
    ) -> None:
        """``read_only_end`` is the address after the memory that cannot be written."""
        self._accesses = _Accesses(cores, queue_depth, read_only_end, scratchpad_bytes)
        self._before: _Accesses | None = None
        """State before the first post or pend."""
        self._steps: list[_Step] = []
        """Steps since the first post or pend."""
        self._reported: list[Hazard] = []

    def process(self, executed: ExecutedInstruction) -> list[Hazard]:
        """Process one instruction and return its hazards."""
        if self._before is None and executed.instruction.mnemonic in SEMAPHORES:
            self._before = deepcopy(self._accesses)
        return self._do(lambda accesses: accesses.process(executed), executed.position)

    def process_host_access(self, position: int, access: MemoryAccess) -> list[Hazard]:
        """Process an access of the host at ``position`` and return its hazards."""
        return self._do(lambda accesses: accesses.process_host_access(position, access), position)

    def end_segment(self) -> None:
        """Record that all cores have halted."""
        self._do(lambda accesses: accesses.end_segment(), 0)

    def _do(self, step: _Step, position: int) -> list[Hazard]:
        found = step(self._accesses)
        if self._before is not None:
            self._steps.append(step)
            while self._accesses.order.is_too_strict:
                found = self._repeat(self._before, self._accesses.order.rivals)
            found = [one for one in found if one not in self._reported]
        self._reported += found
        return [attrs.evolve(one, position=max(one.position, position)) for one in found]

    def _repeat(self, before: _Accesses, rivals: RivalPosts) -> list[Hazard]:
        """Repeat all steps since the first post or pend with the known rivals."""
        self._accesses = deepcopy(before)
        self._accesses.order = HappensBefore(self._accesses.order.cores, rivals)
        found: list[Hazard] = []
        for step in self._steps:
            found += step(self._accesses)
            if self._accesses.order.is_too_strict:
                break
        return found


class _Accesses:
    """Open accesses and the order between cores."""

    def __init__(
        self, cores: int, queue_depth: int, read_only_end: int, scratchpad_bytes: int
    ) -> None:
        self.order = HappensBefore(cores)
        self._written = InitializationTracker(cores, scratchpad_bytes)
        self._depth, self._read_only_end = queue_depth, read_only_end
        self._unfinished: list[dict[int, deque[_OpenAccess]]] = [
            {unit: deque() for unit in Unit} for _ in range(cores)
        ]
        """For each core and unit, accesses that the core has not waited for."""
        self._shared = _SharedAccesses()
        """Accesses to writable DRAM that some core is not ordered after."""

    def process(self, done: ExecutedInstruction) -> list[Hazard]:
        """Process one instruction: the core's own reads, synchronization, and operands."""
        found = self._access(done, done.fetches, None)
        if done.instruction.kind is Kind.SYNC:
            _SYNC[done.instruction.mnemonic](self, done)
        elif done.unit is not None:
            # The queue had room: so this one was finished.
            self._finish(done.core, done.unit, done.job - self._depth)
        return found + self._access(done, done.accesses, done.unit)

    def process_host_access(self, position: int, access: MemoryAccess) -> list[Hazard]:
        """Process a host access, which is ordered after everything that cores waited for."""
        found = [
            Hazard(position, one.done, None, _host_sentence(one, access))
            for one in self._shared.near(access)
            if one.awaited_at is None and _conflict(access, one.access)
        ]
        return self._report(found[:1])

    def end_segment(self) -> list[Hazard]:
        """Merge the knowledge of all cores after they have halted."""
        self.order.end_segment()
        self._drop_ordered()
        return []

    def _access(
        self, done: ExecutedInstruction, accesses: Sequence[MemoryAccess], unit: Unit | None
    ) -> list[Hazard]:
        checked = []
        for access in accesses:
            if access.region.space == "control":
                order = self.order.write_word if access.kind == "write" else self.order.read_word
                order(done.core, access.region.start)
            elif access.region.space == "scratchpad" or access.region.end > self._read_only_end:
                checked.append(access)
        if not checked:
            return []
        found = [
            Hazard(done.position, other.done, done, _sentence(other, done, access))
            for access in checked
            for other in self._others(done, access)
            if not self._is_ordered(done, unit, other) and _conflict(access, other.access)
        ]
        missing = self._written.process(done.core, checked)
        if missing is not None:
            found.append(Hazard(done.position, None, done, _unwritten(done, *missing)))
        for access in checked:
            self._open(_OpenAccess(done, access, unit))
        return self._report(found[:1])

    def _report(self, found: list[Hazard]) -> list[Hazard]:
        """Report each missing wait once by treating it as present from now on."""
        for hazard in found:
            first, then = hazard.first, hazard.then
            is_own = first is not None and (then is None or first.core == then.core)
            if first is not None and first.unit is not None and is_own:
                self._finish(first.core, first.unit, first.job)
        return found

    def _open(self, opened: _OpenAccess) -> None:
        core, access = opened.done.core, opened.access
        if opened.unit is not None:
            self._unfinished[core][opened.unit].append(opened)
        if access.region.space == "scratchpad":
            return
        if opened.unit is None:
            opened.awaited_at = self.order.get_time(core)
        self._shared.add(opened)

    def _others(self, done: ExecutedInstruction, access: MemoryAccess) -> list[_OpenAccess]:
        if access.region.space != "scratchpad":
            return self._shared.near(access)
        start, end, is_write = access.region.start, access.region.end, access.kind == "write"
        return [
            one
            for queue in self._unfinished[done.core].values()
            for one in queue
            if one.access.region.start < end and start < one.access.region.end
            if is_write or one.access.kind == "write"
        ]

    def _is_ordered(self, done: ExecutedInstruction, unit: Unit | None, other: _OpenAccess) -> bool:
        if other.done.core == done.core:
            return (unit is not None and other.unit == unit) or other.awaited_at is not None
        awaited = other.awaited_at
        return awaited is not None and self.order.is_ordered_after(
            done.core, other.done.core, awaited
        )

    def wait(self, done: ExecutedInstruction) -> None:
        """Process ``nmp.wait``."""
        core, (unit, outstanding) = done.core, _awaited(done.word)
        if queue := self._unfinished[core].get(unit):  # a word may name a unit that does not exist
            self._finish(core, unit, queue[-1].done.job - outstanding)

    def _finish(self, core: int, unit: int, job: int) -> None:
        """Mark a job of a unit and all earlier ones as finished, as the core knows."""
        queue = self._unfinished[core][unit]
        if not queue or queue[0].done.job > job:
            return
        now = self.order.get_time(core)
        while queue and queue[0].done.job <= job:
            queue.popleft().awaited_at = now
        if self.order.cores == 1:
            self._shared.keep(lambda opened: opened.awaited_at is None)

    def barrier(self, done: ExecutedInstruction) -> None:
        """Process ``nmp.barrier``."""
        if self.order.reach_barrier(done.core, done.rs1, done.rs2):
            self._drop_ordered()

    def post(self, done: ExecutedInstruction) -> None:
        """Process ``nmp.post``."""
        self.order.post(done.core, done.rs1, done.rs2)

    def pend(self, done: ExecutedInstruction) -> None:
        """Process ``nmp.pend``."""
        self.order.pend(done.core, done.rs1, done.rs2)

    def halt(self, done: ExecutedInstruction) -> None:
        """Process ``nmp.halt``, which orders nothing by itself; see ``end_segment``."""

    def _drop_ordered(self) -> None:
        """Drop the accesses that every core is ordered after."""
        known = self.order.list_common_times()
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
    list_mnemonics(Kind.SYNC),
)
"""Mnemonic -> function that updates the order."""


@lru_cache(maxsize=1 << 8)
def _awaited(word: int) -> tuple[int, int]:
    """Return the unit that an ``nmp.wait`` waits for and the jobs that may stay outstanding."""
    return UNIT.decode(word), OUTSTANDING.decode(word)


def _conflict(one: MemoryAccess, other: MemoryAccess) -> bool:
    """Return whether two accesses share a byte and one of them is a write."""
    if one.kind == "read" and other.kind == "read":
        return False
    if one.region.start >= other.region.end or other.region.start >= one.region.end:
        return False
    return one.region.overlaps(other.region)


_VERBS = {"read": "reads", "write": "writes"}


def _sentence(other: _OpenAccess, done: ExecutedInstruction, access: MemoryAccess) -> str:
    return f"{done.place} {_accesses(access)} that {_earlier(other)}; {_missing(other, done)}"


def _host_sentence(other: _OpenAccess, access: MemoryAccess) -> str:
    return (
        f"the host {_accesses(access)} that {_earlier(other)}; no nmp.wait"
        f" {_name(other.unit)} before nmp.halt"
    )


def _accesses(access: MemoryAccess) -> str:
    region = access.region
    where = f"{region.space} {region.start:#x} to {region.end - 1:#x}"
    return f"{_VERBS[access.kind]} {where} ({access.what})"


def _earlier(other: _OpenAccess) -> str:
    return f"{other.done.place} {_VERBS[other.access.kind]} ({other.access.what})"


def _unwritten(done: ExecutedInstruction, access: MemoryAccess, address: int) -> str:
    return f"{done.place} reads scratchpad {address:#x} ({access.what}), which nothing has written"


def _missing(first: _OpenAccess, then: ExecutedInstruction) -> str:
    if first.done.core == then.core and first.unit is not None:
        return f"no nmp.wait {_name(first.unit)} between them"
    if first.unit is not None:
        return "no wait and barrier, or post and pend, between them"
    return "no barrier, or post and pend, between them"


def _name(unit: Unit | None) -> str:
    return "" if unit is None else Unit(unit).name.lower()
