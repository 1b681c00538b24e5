"""Oracle of the hazard check in plain Python: accesses whose order depends on transfers.

The simulator applies each instruction when it is issued, so a program with a missing wait may give
the right result here and a wrong one on the chip. An instruction is ordered after another one

- of the same unit of its core, because queues are in order;
- of another unit of its core, if the core has waited for it (``nmp.wait``, or because the queue was
  full) before it issued this one;
- of another core, if that core had waited for it before something that this core has learned of
  since (:mod:`core_happens_before`).

Descriptors, and instructions outside the program's own memory, are read by the core itself. The
host comes after everything that cores waited for before they halted. Two unordered accesses to the
same bytes, one of them a write, are a hazard. So is a read of scratchpad bytes that nothing has
written: they are zero in the simulator, and undefined on a chip.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any

import attrs
import numpy as np
from core_happens_before import SCALAR, HappensBefore, RivalPosts

from nmpsim.bundle import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.debugger.byte_runs import get_tensor_region
from nmpsim.debugger.execution import Pause, PauseReason, ReversibleExecution, RunLog
from nmpsim.debugger.instructions import (
    ExecutedInstruction,
    MemoryAccess,
    find_host_step,
    iterate_instructions,
    list_host_accesses,
)
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import (
    OUTSTANDING,
    SCRATCHPAD_BASE,
    UNIT,
    InstructionKind,
    Unit,
    list_mnemonics,
)

MAX_OPEN = 1 << 13
"""Maximum number of DRAM accesses that are kept; the oldest half is dropped beyond it."""
SEMAPHORES = ("nmp.post", "nmp.pend")


@attrs.frozen
class Hazard:
    """Memory access whose order or value is not defined."""

    position: int
    """Position just after the access, or after the instruction that reveals the hazard."""
    earlier: ExecutedInstruction | None
    """Earlier access to the same bytes; None if nothing has written the bytes."""
    later: ExecutedInstruction | None
    """Later access; None if the host accesses the bytes."""
    description: str

    @property
    def reported_instruction(self) -> ExecutedInstruction:
        """Return the later instruction, or the earlier one if the host accesses the bytes."""
        found = self.later or self.earlier
        assert found is not None
        return found


@attrs.frozen(eq=False)
class _OpenAccess:
    """An access that later accesses may not be ordered after."""

    done: ExecutedInstruction
    access: MemoryAccess
    unit: int
    """Unit that accesses, or SCALAR."""
    job: int
    """Number of the unit's job."""


class _SharedAccesses:
    """Window of the latest ``MAX_OPEN`` accesses to DRAM, in order."""

    def __init__(self) -> None:
        self._accesses: list[_OpenAccess] = []
        self._table = np.empty((3, MAX_OPEN + 1))
        """First address, address after the last, and whether it is a write, of each access. Floats
        also hold values beyond 64 bits."""

    def near(self, access: MemoryAccess) -> list[_OpenAccess]:
        """Return accesses whose address range overlaps that of ``access``, unless both are reads.

        Ranges include the gaps between the runs of an access, so some of them share no byte.
        """
        starts, ends, are_writes = self._table[:, : len(self._accesses)]
        found = starts < access.region.end
        found &= ends > access.region.start
        if access.kind == "read":
            found &= are_writes > 0
        return [self._accesses[index] for index in found.nonzero()[0].tolist()]

    def add(self, opened: _OpenAccess) -> None:
        """Add the latest access; drop the older half of too many."""
        if opened.unit == SCALAR:
            self._drop_same(opened)
        region, is_write = opened.access.region, opened.access.kind == "write"
        self._table[:, len(self._accesses)] = region.start, region.end, is_write
        self._accesses.append(opened)
        if len(self._accesses) > MAX_OPEN:
            self._keep(range(MAX_OPEN // 2, len(self._accesses)))

    def _drop_same(self, opened: _OpenAccess) -> None:
        """Drop the previous access of a loop that repeats the same access."""
        count, region = len(self._accesses), opened.access.region
        starts, ends, _ = self._table[:, :count]
        for index in np.flatnonzero((starts == region.start) & (ends == region.end)).tolist():
            one = self._accesses[index]
            is_same = one.done.core == opened.done.core and one.access == opened.access
            if one.unit == SCALAR and is_same:
                del self._accesses[index]
                self._table[:, index : count - 1] = self._table[:, index + 1 : count]
                return

    def keep(self, condition: Callable[[_OpenAccess], bool]) -> None:
        """Keep the accesses for which the condition is true."""
        self._keep([i for i, one in enumerate(self._accesses) if condition(one)])

    def _keep(self, indices: Sequence[int]) -> None:
        self._table[:, : len(indices)] = self._table[:, indices]
        self._accesses = [self._accesses[index] for index in indices]


class InitializationTracker:
    """Detector of reads of uninitialized scratchpad bytes."""

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
        for access in sorted(accesses, key=attrgetter("kind")):  # reads come before writes
            if access.region.space == "scratchpad":
                missing = self._missing(core, access)
                if access.kind == "read" and missing is not None and found is None:
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
        is_partial = access.operand == "word" and 0 < missing.size < region.nbytes
        bytes_there |= mask
        return None if is_partial or missing.size == 0 else region.start + int(missing[0])


class _Accesses:
    """Open accesses and the order between cores."""

    def __init__(self, execution: ReversibleExecution) -> None:
        config = execution.config
        self.order = HappensBefore(config.cores_count)
        self._written = InitializationTracker(config.cores_count, config.scratchpad_bytes)
        self._depth, self._read_only_end = execution.costs.queues_depth, execution.bundle.rw_base
        self._unfinished = defaultdict[tuple[int, int], deque[_OpenAccess]](deque)
        """Core and unit -> accesses that the core has not waited for."""
        self._shared = _SharedAccesses()
        """Accesses to writable DRAM that some core is not ordered after."""

    def process(self, done: ExecutedInstruction) -> list[Hazard]:
        """Process one instruction: the core's own reads, synchronization, and operands."""
        found = self._access(done, done.fetches, SCALAR)
        if done.instruction.kind is InstructionKind.SYNC:
            _SYNC[done.instruction.mnemonic](self, done)
        elif done.unit is not None:
            # The queue had room: so earlier ones were finished.
            self._finish(done.core, done.unit, done.job + 1 - self._depth)
        return found + self._access(done, done.accesses, _get_unit(done))

    def process_host_access(self, position: int, access: MemoryAccess) -> list[Hazard]:
        """Process a host access, which is ordered after everything that cores waited for."""
        found = [
            Hazard(position, one.done, None, _host_sentence(one, access))
            for one in self._shared.near(access)
            if not self._is_done(one, one.done.core) and _conflict(access, one.access)
        ]
        return self._report(found[:1])

    def end_segment(self) -> list[Hazard]:
        """Merge the knowledge of all cores after they have halted."""
        self.order.end_segment()
        self._drop_ordered()
        return []

    def _access(
        self, done: ExecutedInstruction, accesses: Sequence[MemoryAccess], unit: int
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
            Hazard(done.next_position, other.done, done, _sentence(other, done, access))
            for access in checked
            for other in self._others(done, access)
            if not self._is_ordered(done.core, unit, other) and _conflict(access, other.access)
        ]
        missing = self._written.process(done.core, checked)
        if missing is not None:
            found.append(Hazard(done.next_position, None, done, _unwritten(done, *missing)))
        job = self.order.count_scalar_job(done.core) if unit == SCALAR else done.job
        for access in checked:
            opened = _OpenAccess(done, access, unit, job)
            if unit != SCALAR:
                self._unfinished[done.core, unit].append(opened)
            if access.region.space != "scratchpad":
                self._shared.add(opened)
        return self._report(found[:1])

    def _report(self, found: list[Hazard]) -> list[Hazard]:
        """Report each missing wait once by treating it as present from now on."""
        for hazard in found:
            first, then = hazard.earlier, hazard.later
            is_own = first is not None and (then is None or first.core == then.core)
            if first is not None and first.unit is not None and is_own:
                self._finish(first.core, first.unit, first.job + 1)
        return found

    def _others(self, done: ExecutedInstruction, access: MemoryAccess) -> list[_OpenAccess]:
        if access.region.space != "scratchpad":
            return self._shared.near(access)
        start, end, is_write = access.region.start, access.region.end, access.kind == "write"
        return [
            one
            for unit in Unit
            for one in self._unfinished[done.core, unit]
            if one.access.region.start < end and start < one.access.region.end
            if is_write or one.access.kind == "write"
        ]

    def _is_ordered(self, core: int, unit: int, other: _OpenAccess) -> bool:
        is_queued = (core, unit) == (other.done.core, other.unit)  # the core itself never waits
        return is_queued or self._is_done(other, core)

    def _is_done(self, opened: _OpenAccess, core: int) -> bool:
        """Return whether a core knows that an access is done."""
        return self.order.is_done(core, opened.done.core, opened.unit, opened.job)

    def wait(self, done: ExecutedInstruction) -> None:
        """Process ``nmp.wait``, whose word may name a unit that does not exist."""
        core, (unit, outstanding) = done.core, _decode_wait(done.word)
        if queue := self._unfinished[core, unit]:
            self._finish(core, unit, queue[-1].job + 1 - outstanding)

    def _finish(self, core: int, unit: int, jobs: int) -> None:
        """Record that a core knows that the first ``jobs`` jobs of its unit are done."""
        queue = self._unfinished[core, unit]
        if not queue or queue[0].job >= jobs:
            return
        self.order.record_finished_jobs(core, unit, jobs)
        while queue and queue[0].job < jobs:
            queue.popleft()
        if self.order.cores == 1:
            self._drop_ordered()

    def barrier(self, done: ExecutedInstruction) -> None:
        """Process ``nmp.barrier``."""
        if self.order.reach_barrier(done.core, done.rs1, done.rs2):
            self._drop_ordered()

    def _drop_ordered(self) -> None:
        """Drop the accesses that every core is ordered after."""
        clocks = self.order.clocks
        known = (clocks[0] if len(clocks) == 1 else clocks.min(axis=0)).tolist()
        self._shared.keep(lambda one: one.job >= known[one.done.core][one.unit])


_SYNC: dict[str, Callable[[_Accesses, ExecutedInstruction], object]] = make_exhaustive_table(
    f"{__name__}._SYNC",
    {
        "nmp.wait": _Accesses.wait,
        "nmp.barrier": _Accesses.barrier,
        "nmp.post": lambda accesses, done: accesses.order.post(done.core, done.rs1, done.rs2),
        "nmp.pend": lambda accesses, done: accesses.order.pend(done.core, done.rs1, done.rs2),
        "nmp.halt": lambda *_: None,  # orders nothing by itself; see ``end_segment``
    },
    list_mnemonics(InstructionKind.SYNC),
)
"""Mnemonic -> function that updates the order."""


@lru_cache(maxsize=1 << 8)
def _decode_wait(word: int) -> tuple[int, int]:
    """Return the unit that an ``nmp.wait`` waits for and the jobs that may stay outstanding."""
    return UNIT.decode(word), OUTSTANDING.decode(word)


def _get_unit(done: ExecutedInstruction) -> int:
    return SCALAR if done.unit is None else done.unit


def _conflict(one: MemoryAccess, other: MemoryAccess) -> bool:
    """Return whether two accesses share a byte and one of them is a write."""
    if one.kind == "read" and other.kind == "read":
        return False
    if one.region.start >= other.region.end or other.region.start >= one.region.end:
        return False
    return one.region.overlaps(other.region)


_VERBS = {"read": "reads", "write": "writes"}


def _sentence(other: _OpenAccess, done: ExecutedInstruction, access: MemoryAccess) -> str:
    return f"{done.description} {_accesses(access)} that {_earlier(other)}; {_missing(other, done)}"


def _host_sentence(other: _OpenAccess, access: MemoryAccess) -> str:
    return (
        f"the host {_accesses(access)} that {_earlier(other)}; no nmp.wait"
        f" {_name(other.unit)} before nmp.halt"
    )


def _accesses(access: MemoryAccess) -> str:
    region = access.region
    where = f"{region.space} {region.start:#x} to {region.end - 1:#x}"
    return f"{_VERBS[access.kind]} {where} ({access.operand})"


def _earlier(other: _OpenAccess) -> str:
    return f"{other.done.description} {_VERBS[other.access.kind]} ({other.access.operand})"


def _unwritten(done: ExecutedInstruction, access: MemoryAccess, address: int) -> str:
    read = f"{done.description} reads scratchpad {address:#x} ({access.operand})"
    return f"{read}, which was never written"


def _missing(first: _OpenAccess, then: ExecutedInstruction) -> str:
    if first.unit == SCALAR:
        return "no barrier, or post and pend, between them"
    if first.done.core == then.core:
        return f"no nmp.wait {_name(first.unit)} between them"
    return "no wait and barrier, or post and pend, between them"


def _name(unit: int) -> str:
    return Unit(unit).name.lower()


class HazardLog(RunLog):
    """Log of the hazards of a run.

    From the first post or pend on, all steps are kept: a later post may show that a pend was
    ordered after fewer posts than assumed, and everything since then is checked again.
    """

    def __init__(self, execution: ReversibleExecution) -> None:
        self.found: list[Hazard] = []
        """Hazards, each at the position from which on it is known."""
        self._execution = execution
        self._accesses = _Accesses(execution)
        self._before: _Accesses | None = None
        """State before the first post or pend."""
        self._steps: list[Callable[[_Accesses], list[Hazard]]] = []
        """Steps since the first post or pend."""
        self._reported: list[Hazard] = []

    def process(self, pause: Pause) -> None:
        """Check the instructions and host accesses since the previous pause for hazards."""
        for done in iterate_instructions(pause, self._execution.machine):
            if self._before is None and done.instruction.mnemonic in SEMAPHORES:
                self._before = deepcopy(self._accesses)
            self._check(methodcaller("process", done), done.next_position)
        if pause.is_segment_end:
            self._check(methodcaller("end_segment"), pause.position)
        for access in self._list_host_accesses(pause):
            step = methodcaller("process_host_access", pause.position, access)
            self._check(step, pause.position)

    def _check(self, step: Callable[[_Accesses], list[Hazard]], position: int) -> None:
        """Add the hazards of a step, which are known from a position on."""
        found = step(self._accesses)
        if self._before is not None:
            self._steps.append(step)
            while self._accesses.order.is_too_strict:
                found = self._repeat(self._before, self._accesses.order.rivals)
            found = [one for one in found if one not in self._reported]
        self._reported += found
        self.found += [attrs.evolve(one, position=max(one.position, position)) for one in found]

    def _repeat(self, before: _Accesses, rivals: RivalPosts) -> list[Hazard]:
        """Repeat all steps since the first post or pend with the known rivals."""
        self._accesses = deepcopy(before)
        self._accesses.order.known_rivals = rivals
        found: list[Hazard] = []
        for step in self._steps:
            found += step(self._accesses)
            if self._accesses.order.is_too_strict:
                break
        return found

    def _list_host_accesses(self, pause: Pause) -> Iterator[MemoryAccess]:
        """Yield the host's accesses: of a host operation, and of the outputs at the end."""
        execution = self._execution
        step = find_host_step(execution, pause)
        yield from sorted(() if step is None else list_host_accesses(step), key=lambda a: a.kind)
        is_end = execution.current_step is None and pause.reason != PauseReason.END
        for tensor in execution.bundle.metadata.outputs if is_end else ():
            yield MemoryAccess("read", tensor.name, get_tensor_region(tensor))


def find_hazards(bundle: Bundle, inputs: Mapping[str, Any], config: DeviceConfig) -> list[Hazard]:
    """Run a program instruction by instruction and return all hazards."""
    execution = ReversibleExecution(bundle, inputs, config)
    hazards = HazardLog(execution)
    while not (pause := execution.advance()).is_final:
        hazards.add(pause)
    hazards.add(pause)
    return hazards.found
