"""Recordings: the tensor instructions and cycles of a run, recorded once, replayed for each input.

Where no scalar instruction reads what the run has written, neither the cycles nor the order of
tensor instructions depend on data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.compiled.recorder_rows import (
    CORE,
    EPOCH,
    FIRST_WORD,
    LAYER,
    NOW,
    NUMBER,
    SEEN,
    USED,
    WORDS,
    Recorder,
    make_recorder,
)
from nmpsim.core.critical_path import CriticalPath, PathRecorder
from nmpsim.core.engine import ContractBrokenError, ShowInstructions
from nmpsim.core.instruction_tables import WORD_COUNT
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.work import take_waits, take_work, with_waits
from nmpsim.kernels.array_types import Records
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.core.layer_kernels.tasks import Host

ROWS = 4096
"""Tensor instructions that are recorded before they are packed."""
MAX_ITEMS = 1 << 18
"""Tensor instructions of a recording: a program with more of them is not recorded."""
NOTES = 1 << 16
"""Notes of units and waits that fit into one call of the event loop."""
TURNS = 1 << 14
STEPS_PER_TURN = 1 << 10
"""Turns of a call of the event loop while it records, and steps of each turn."""
MAX_STEPS = 1 << 24
MAX_TURNS = 1 << 22
"""Instructions, and turns, after which recording is given up."""

EPOCHS_PER_CALL = 16
"""Epochs that are replayed before Python can handle Ctrl-C."""
MAX_STATES = 4
"""Recordings that are kept of one part of a program: from rest, and from what other runs left."""

RecordEvents = Callable[[Machine, Recorder, int], Outcome | None]
"""Records some more turns; None where data decides what happens."""


class Timing(NamedTuple):
    """All of a machine that does not depend on data."""

    cores: Records
    shared: Records
    barriers: Records
    counts: Int64s
    spent: Int64s
    worked: Int64s


BEGIN, END, PART_CORE = range(3)
PART_WORDS = 3
"""Entries of a part of an epoch: where its instructions are in ``items``, and whose they are."""


@attrs.frozen(eq=False)
class Epochs:
    """Tensor instructions in the order of execution."""

    items: Int64s
    """NUMBER, LAYER and the descriptor of each, one after the other."""
    parts: Int64s
    """[parts, PART_WORDS] instructions that one thread executes, epoch after epoch."""
    firsts: Int64s
    """[epochs + 1] the first part of each epoch, and the end of the last one."""
    reached: Int64s
    """[epochs] after each epoch all layers below this one are done."""
    is_whole: npt.NDArray[np.bool_]
    """[epochs] true if it does a whole layer, in the host's memory."""
    host: Host | None = None
    """The memory of whole layers."""

    @property
    def arrays(self) -> tuple[Int64s, Int64s, Int64s]:
        """What compiled code needs."""
        return self.items, self.parts, self.firsts

    @cached_property
    def runs(self) -> tuple[tuple[int, int, bool], ...]:
        """Begin and end of epochs of one kind that one call replays."""
        return tuple(_runs_of(self.is_whole))


@attrs.define(eq=False)
class Recording:
    """What a run does, and the timing that it ends with."""

    epochs: Epochs
    before: Timing
    after: Timing
    path: CriticalPath
    is_tried: bool = False
    """True once it was replayed to its end."""
    whole: Epochs | None = None
    """The same with whole layers, which leaves scratchpads as they are; made when asked for."""
    is_judged: bool = False
    """True once it was tried to prove that layers are whole."""
    reads_scratchpads: bool = True
    """False if it is proved that it reads of scratchpads only what it has written itself."""


def _runs_of(is_whole: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int, bool]]:
    """Begin and end of epochs of one kind that one call replays."""
    ends = [*(np.flatnonzero(is_whole[1:] != is_whole[:-1]) + 1).tolist(), is_whole.size]
    for begin, end in zip([0, *ends], ends, strict=False):
        for first in range(begin, end, EPOCHS_PER_CALL):
            yield first, min(first + EPOCHS_PER_CALL, end), bool(is_whole[first])


def timing_of(machine: Machine) -> Timing:
    """A copy of a machine's timing."""
    layers = machine.layers
    booked = (layers.counts, layers.spent, layers.worked)
    parts = (machine.cores, machine.shared, machine.barriers, *booked)
    return Timing(*(part.copy() for part in parts))


def put_timing(machine: Machine, timing: Timing) -> None:
    """Give a machine this timing."""
    machine.cores[:] = timing.cores
    machine.shared[:] = timing.shared
    machine.barriers[:] = timing.barriers
    machine.layers.counts[:] = timing.counts
    machine.layers.spent[:] = timing.spent
    machine.layers.worked[:] = timing.worked


def has_timing(machine: Machine, timing: Timing) -> bool:
    """True if a machine has just this timing."""
    pairs = zip(timing_of(machine), timing, strict=True)
    return all(mine.tobytes() == known.tobytes() for mine, known in pairs)


def record(
    machine: Machine, costs: Costs, loop: RecordEvents, show: ShowInstructions | None = None
) -> Recording | None:
    """Record from a machine's state to the end; None if data decides, or the run is too long.

    The machine itself is not changed.

    Raises:
        ContractBrokenError: ``show`` answered False.
    """
    parts = {name: getattr(machine, name).copy() for name in ("cores", "layers", "barriers")}
    ahead = with_waits(machine._replace(**parts, shared=machine.shared.copy()), NOTES)
    path = PathRecorder(ahead, costs)
    recorder = make_recorder(machine.cores.size, ROWS)
    pieces: list[Int64s] = []
    retired_before = machine.cores.retired.sum()
    for _ in range(0, MAX_TURNS, TURNS):
        outcome = loop(ahead, recorder, TURNS)
        path.take(ahead, take_work(ahead), take_waits(ahead))
        if show and not show(
            recorder.events[: recorder.counters[SEEN]], recorder.items, FIRST_WORD + WORDS
        ):
            raise ContractBrokenError
        pieces.append(recorder.items[: recorder.counters[USED]].copy())
        recorder.counters[USED] = recorder.counters[SEEN] = 0
        if outcome == Outcome.DONE:
            epochs = int(recorder.counters[NOW]) + 1
            return _recording(np.concatenate(pieces), epochs, machine, ahead, path.finish(ahead))
        steps = ahead.cores.retired.sum() - retired_before
        if outcome != Outcome.PAUSED or sum(map(len, pieces)) > MAX_ITEMS or steps > MAX_STEPS:
            return None
    return None


def _recording(
    recorded: Int64s, epochs: int, machine: Machine, ahead: Machine, path: CriticalPath
) -> Recording:
    """Each epoch's instructions by core, packed."""
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
    reached, is_whole = reached_after(lowest, machine), np.zeros(epochs, np.bool_)
    found = Epochs(items, parts[is_used].astype(np.int64), firsts, reached, is_whole)
    return Recording(found, timing_of(machine), timing_of(ahead), path)


def reached_after(lowest: Int64s, machine: Machine) -> Int64s:
    """[epochs] the lowest layer after each one; ``lowest`` has the lowest of each."""
    later = np.append(lowest, machine.layers.size)
    return np.minimum.accumulate(later[::-1])[::-1][1:]


class Recordings:
    """The known recordings of one machine's program, each from another state."""

    def __init__(self) -> None:
        self._memory: Any = None
        self._costs: Costs | None = None
        self._known: list[Recording] = []
        self._has_some = True
        self.need_scratchpads = False
        """True if a part of the program reads what an earlier one has left in scratchpads."""

    def may_have(self, machine: Machine, costs: Costs) -> bool:
        """False if a part of the program is known to depend on data."""
        if machine.ram is not self._memory or costs != self._costs:
            self._memory, self._costs = machine.ram, costs  # bundles may share an image
            self._known, self._has_some = [], True
            self.need_scratchpads = False
        return self._has_some

    def find(self, machine: Machine) -> Recording | None:
        """The recording that begins in the machine's state, if there is one."""
        return next((r for r in self._known if has_timing(machine, r.before)), None)

    def keep(self, recording: Recording | None) -> None:
        """Add a recording; None says that the program depends on data."""
        if recording is None:
            self._known, self._has_some = [], False
            return
        begin = recording.before.cores.pc[0]
        same = [r for r in self._known if r.before.cores.pc[0] == begin]
        if len(same) == MAX_STATES:
            self._known.remove(same[1])
        self._known.append(recording)
