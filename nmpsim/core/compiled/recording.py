"""Recordings: tensor instructions and cycles of a run, recorded once and replayed for each input.

If no scalar instruction reads what the run has written, neither the cycles nor the order of tensor
instructions depend on data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.compiled.kernel_arguments import (
    CORE,
    CURRENT_EPOCH,
    EPOCH,
    EVENTS_USED,
    FIRST_WORD,
    LAYER,
    NUMBER,
    USED,
    WORDS,
    Recorder,
    make_recorder,
)
from nmpsim.core.critical_path import CriticalPath, PathRecorder
from nmpsim.core.engine import ContractViolationError, EventConsumer
from nmpsim.core.instruction_tables import WORD_COUNT
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.work import drain_wait_log, drain_work_log, with_wait_log
from nmpsim.kernels.array_types import Records
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.core.layer_kernels.tasks import HostMemory

ROWS = 4096
"""Tensor instructions that are recorded before they are packed."""
MAX_ITEMS = 1 << 18
"""Maximum number of tensor instructions of a recording."""
LOG_ENTRIES = 1 << 16
"""Entries of the work log that fit into one call of the event loop."""
TURNS = 1 << 14
STEPS_PER_TURN = 1 << 10
"""Turns of a call of the event loop while it records, and steps of each turn."""
MAX_STEPS = 1 << 24
MAX_TURNS = 1 << 22
"""Instructions, and turns, after which recording is given up."""

EPOCHS_PER_CALL = 16
"""Epochs that are replayed before Python can handle Ctrl-C."""
MAX_STATES = 4
"""Maximum number of recordings of one part of a program: from rest, and after other runs."""

RecordTurns = Callable[[Machine, Recorder, int], Outcome | None]
"""Records some more turns; returns None if data decide what happens."""


class Timing(NamedTuple):
    """The part of a machine's state that does not depend on data."""

    cores: Records
    shared: Records
    barriers: Records
    counts: Int64s
    spent: Int64s
    worked: Int64s


BEGIN, END, PART_CORE = range(3)
PART_WORDS = 3
"""Entries of a part of an epoch: range of its instructions in ``items``, and their core."""


@attrs.frozen(eq=False)
class Epochs:
    """Tensor instructions in the order of execution."""

    items: Int64s
    """NUMBER, LAYER and the descriptor of each instruction, one after the other."""
    parts: Int64s
    """[parts, PART_WORDS] instructions that one thread executes, epoch after epoch."""
    firsts: Int64s
    """[epochs + 1] first part of each epoch, and the end of the last one."""
    reached: Int64s
    """[epochs] layers below this index are complete after each epoch."""
    is_whole: npt.NDArray[np.bool_]
    """[epochs] whether an epoch consists of layer kernels, which work on host memory."""
    host: HostMemory | None = None
    """Host memory of the layer kernels."""

    @property
    def arrays(self) -> tuple[Int64s, Int64s, Int64s]:
        """Arrays that compiled code needs."""
        return self.items, self.parts, self.firsts

    @cached_property
    def runs(self) -> tuple[tuple[int, int, bool], ...]:
        """Ranges of epochs of one kind that one call replays: begin, end, ``is_whole``."""
        return tuple(_runs_of(self.is_whole))


@attrs.define(eq=False)
class Recording:
    """Instructions of a run, and the timing that it ends with."""

    epochs: Epochs
    before: Timing
    after: Timing
    path: CriticalPath
    is_tried: bool = False
    """Whether it was replayed to its end."""
    whole: Epochs | None = None
    """The epochs with layer kernels, which leave scratchpads as they are."""
    is_proof_tried: bool = False
    """Whether the proof of layer kernels was tried."""
    reads_scratchpads: bool = True
    """False if it is proved that the run reads only scratchpad bytes that it has written."""


def _runs_of(is_whole: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int, bool]]:
    ends = [*(np.flatnonzero(is_whole[1:] != is_whole[:-1]) + 1).tolist(), is_whole.size]
    for begin, end in zip([0, *ends], ends, strict=False):
        for first in range(begin, end, EPOCHS_PER_CALL):
            yield first, min(first + EPOCHS_PER_CALL, end), bool(is_whole[first])


def copy_timing(machine: Machine) -> Timing:
    """Copy a machine's timing."""
    layers = machine.layers
    booked = (layers.counts, layers.spent, layers.worked)
    parts = (machine.cores, machine.shared, machine.barriers, *booked)
    return Timing(*(part.copy() for part in parts))


def set_timing(machine: Machine, timing: Timing) -> None:
    """Set a machine's timing."""
    machine.cores[:] = timing.cores
    machine.shared[:] = timing.shared
    machine.barriers[:] = timing.barriers
    machine.layers.counts[:] = timing.counts
    machine.layers.spent[:] = timing.spent
    machine.layers.worked[:] = timing.worked


def has_timing(machine: Machine, timing: Timing) -> bool:
    """Return whether a machine has exactly this timing."""
    pairs = zip(copy_timing(machine), timing, strict=True)
    return all(mine.tobytes() == known.tobytes() for mine, known in pairs)


def record(
    machine: Machine, costs: Costs, loop: RecordTurns, consume: EventConsumer | None = None
) -> Recording | None:
    """Record from a machine's state to the end, without changing the machine.

    Returns None if data decide what happens, or if the run is too long.

    Raises
    ------
    ContractViolationError
        If ``consume`` returned False.
    """
    parts = {name: getattr(machine, name).copy() for name in ("cores", "layers", "barriers")}
    ahead = with_wait_log(machine._replace(**parts, shared=machine.shared.copy()), LOG_ENTRIES)
    path = PathRecorder(ahead, costs)
    recorder = make_recorder(machine.cores.size, ROWS)
    pieces: list[Int64s] = []
    retired_before = machine.cores.retired.sum()
    for _ in range(0, MAX_TURNS, TURNS):
        outcome = loop(ahead, recorder, TURNS)
        path.add(ahead, drain_work_log(ahead), drain_wait_log(ahead))
        if consume and not consume(
            recorder.events[: recorder.counters[EVENTS_USED]], recorder.items, FIRST_WORD + WORDS
        ):
            raise ContractViolationError
        pieces.append(recorder.items[: recorder.counters[USED]].copy())
        recorder.counters[USED] = recorder.counters[EVENTS_USED] = 0
        if outcome == Outcome.DONE:
            epochs = int(recorder.counters[CURRENT_EPOCH]) + 1
            return _recording(np.concatenate(pieces), epochs, machine, ahead, path.finish(ahead))
        steps = ahead.cores.retired.sum() - retired_before
        if outcome != Outcome.PAUSED or sum(map(len, pieces)) > MAX_ITEMS or steps > MAX_STEPS:
            return None
    return None


def _recording(
    recorded: Int64s, epochs: int, machine: Machine, ahead: Machine, path: CriticalPath
) -> Recording:
    """Pack each epoch's instructions by core."""
    cores = ahead.cores.size
    owner = recorded[:, EPOCH] * cores + recorded[:, CORE]
    order = np.argsort(owner, kind="stable")
    rows = recorded[order, FIRST_WORD:]
    lengths = WORDS + WORD_COUNT[rows[:, NUMBER]]
    items = rows[np.arange(rows.shape[1]) < lengths[:, None]]
    ends = np.cumsum(np.bincount(owner[order], lengths, epochs * cores)).astype(np.int64)
    begins = np.concatenate([[0], ends[:-1]])
    parts = np.stack([begins, ends, np.tile(np.arange(cores), epochs)], axis=1)
    is_used = begins < ends
    counts = is_used.reshape(epochs, cores).sum(axis=1)
    firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    lowest = np.full(epochs, machine.layers.size)
    np.minimum.at(lowest, recorded[:, EPOCH], recorded[:, FIRST_WORD + LAYER])
    reached, is_whole = find_reached(lowest, machine), np.zeros(epochs, np.bool_)
    found = Epochs(items, parts[is_used].astype(np.int64), firsts, reached, is_whole)
    return Recording(found, copy_timing(machine), copy_timing(ahead), path)


def find_reached(lowest: Int64s, machine: Machine) -> Int64s:
    """Return the lowest layer after each epoch [epochs]; ``lowest`` has the lowest of each."""
    later = np.append(lowest, machine.layers.size)
    return np.minimum.accumulate(later[::-1])[::-1][1:]


class Recordings:
    """Recordings of the parts of one machine's program, each from another state."""

    def __init__(self) -> None:
        self._memory: Any = None
        self._costs: Costs | None = None
        self._known: list[Recording] = []
        self._can_record = True
        self.need_scratchpads = False
        """Whether a part of the program reads what an earlier one has left in scratchpads."""

    def can_record(self, machine: Machine, costs: Costs) -> bool:
        """Return whether the program can be recorded; reset if memory or costs changed."""
        if machine.ram is not self._memory or costs != self._costs:
            self._memory, self._costs = machine.ram, costs  # bundles may share an image
            self._known, self._can_record = [], True
            self.need_scratchpads = False
        return self._can_record

    def find(self, machine: Machine) -> Recording | None:
        """Return the recording that begins in the machine's timing state, or None."""
        return next((r for r in self._known if has_timing(machine, r.before)), None)

    def keep(self, recording: Recording | None) -> None:
        """Add a recording; None marks the program as dependent on data."""
        if recording is None:
            self._known, self._can_record = [], False
            return
        begin = recording.before.cores.pc[0]
        same = [r for r in self._known if r.before.cores.pc[0] == begin]
        if len(same) == MAX_STATES:
            self._known.remove(same[1])
        self._known.append(recording)
