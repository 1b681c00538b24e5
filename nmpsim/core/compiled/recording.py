"""Recordings: tensor instructions and cycles of a run, recorded once and replayed for each input.

If no scalar instruction reads what the run has written, neither the cycles nor the order of tensor
instructions depend on data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from nmpsim.core.compiled.epochs import Epochs, find_lowest_layers
from nmpsim.core.compiled.kernel_arguments import (
    ACCOUNT,
    CORE,
    CURRENT_EPOCH,
    DESCRIPTOR,
    EPOCH,
    EVENTS_USED,
    FIRST_WORD,
    LAYER,
    NUMBER,
    USED,
    WORDS,
    RecordingBuffers,
    make_recording_buffers,
)
from nmpsim.core.critical_path import CriticalPath, PathRecorder
from nmpsim.core.engine import EventConsumer
from nmpsim.core.instruction_tables import FOOTPRINT_KIND, WORD_COUNT
from nmpsim.core.state import Int64s, Machine, Outcome
from nmpsim.core.work import add_wait_log, drain_wait_log, drain_work_log
from nmpsim.memory.owned_results import BEGIN, NOT_OWNED, find_owned_range, list_parts
from nmpsim.timing import Costs

if TYPE_CHECKING:
    from nmpsim.bundle.metadata import Layer
    from nmpsim.core.layer_kernels.proof import ReplayPlan

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

MAX_STATES = 4
"""Maximum number of recordings of one part of a program: from rest, and after other runs."""

RecordTurns = Callable[[Machine, RecordingBuffers, int], Outcome | None]
"""Records some more turns; returns None if data decide what happens."""


@attrs.define(eq=False)
class Recording:
    """Recording of a device step: its instructions, and the timing state at its begin and end."""

    epochs: Epochs
    before: Sequence[Any]
    """Copies of the arrays of :func:`list_timing_arrays`, as ``after``."""
    after: Sequence[Any]
    path: CriticalPath
    whole: Epochs | None = None
    """The epochs with layer kernels, which leave scratchpads as they are."""
    _plan: ReplayPlan | None = None
    """Plan of the epochs with layer kernels, None before :meth:`plan_layer_kernels`."""
    _by_layer: Epochs | None = None

    def plan_layer_kernels(self, machine: Machine, layers: Sequence[Layer]) -> tuple[bool, bool]:
        """Plan layer kernels at the first call; see ``RecordedStep.plan_layer_kernels``."""
        if self._plan is None:
            # Programs that run once need no plan.
            from nmpsim.core.layer_kernels.planning import pack_plan, plan_layer_kernels

            self._plan = plan_layer_kernels(machine, self.epochs, layers)
            self.whole = pack_plan(machine, self._plan) if self._plan.whole else None
        return self.whole is not None, self._plan.reads_scratchpads

    @property
    def completes_single_layers(self) -> bool:
        """Whether layer kernels compute all layers; see ``RecordedStep``."""
        return self._plan is not None and all(step.layer >= 0 for step in self._plan.steps)

    def get_epochs(self, machine: Machine, layer_kernels: bool, by_layer: bool) -> Epochs:
        """Return the epochs to replay; ``by_layer`` gives each layer kernel its own epoch."""
        if not layer_kernels or self.whole is None:
            return self.epochs
        if not by_layer:
            return self.whole
        if self._by_layer is None:
            from nmpsim.core.layer_kernels.planning import pack_plan

            assert self._plan is not None
            self._by_layer = pack_plan(machine, self._plan, joins_layers=False)
        return self._by_layer

    def set_timing(self, machine: Machine) -> None:
        """Set a machine's timing to its state at the end of the recording."""
        for part, recorded in zip(list_timing_arrays(machine), self.after, strict=True):
            part[...] = recorded


def list_timing_arrays(machine: Machine) -> list[Any]:
    """Return the arrays of a machine's state that do not depend on data, the cores first."""
    counters = [machine.layers[name] for name in ("counts", "spent", "worked")]
    return [machine.cores, machine.shared, machine.barriers, *counters]


def copy_timing_arrays(machine: Machine) -> list[Any]:
    """Return copies of the arrays of :func:`list_timing_arrays`."""
    return [part.copy() for part in list_timing_arrays(machine)]


def record_program(
    machine: Machine, costs: Costs, loop: RecordTurns, consume: EventConsumer
) -> Recording | None:
    """Record a program from a machine's state; return the recording, or None if impossible.

    Returns None if data decide what happens, if the run is too long or ``consume`` returned False.
    """
    parts = {name: getattr(machine, name).copy() for name in ("cores", "layers", "barriers")}
    ahead = add_wait_log(machine._replace(**parts, shared=machine.shared.copy()), LOG_ENTRIES)
    path = PathRecorder(ahead, costs)
    recorder = make_recording_buffers(machine.cores.size, ROWS)
    pieces: list[Int64s] = []
    for outcome in _record_turns(ahead, recorder, loop):
        path.add_entries(ahead, drain_work_log(ahead), drain_wait_log(ahead))
        if not consume(
            recorder.events[: recorder.counters[EVENTS_USED]], recorder.items, FIRST_WORD + WORDS
        ):
            return None
        pieces.append(recorder.items[: recorder.counters[USED]].copy())
        if outcome == Outcome.DONE:
            epochs = int(recorder.counters[CURRENT_EPOCH]) + 1
            return _recording(
                np.concatenate(pieces), epochs, machine, ahead, path.complete_path(ahead)
            )
        if sum(map(len, pieces)) > MAX_ITEMS:
            return None
    return None


def run_timing(machine: Machine, loop: RecordTurns) -> bool:
    """Run a program to its end without computing values; return whether the cycles are known."""
    recorder, outcome = make_recording_buffers(machine.cores.size, ROWS), None
    for outcome in _record_turns(machine, recorder, loop):  # noqa: B007 - the last one counts
        pass
    return outcome == Outcome.DONE


def _record_turns(
    machine: Machine, recorder: RecordingBuffers, loop: RecordTurns
) -> Iterator[Outcome | None]:
    """Yield the outcomes of recording some turns, until the program ends or is too long."""
    retired_before = machine.cores.retired.sum()
    for _ in range(0, MAX_TURNS, TURNS):
        outcome = loop(machine, recorder, TURNS)
        yield outcome
        recorder.counters[USED] = recorder.counters[EVENTS_USED] = 0
        steps = machine.cores.retired.sum() - retired_before
        if outcome != Outcome.PAUSED or steps > MAX_STEPS:
            return


def _recording(
    recorded: Int64s, epochs: int, machine: Machine, ahead: Machine, path: CriticalPath
) -> Recording:
    """Pack each epoch's instructions by core."""
    recorded, cores = _divide(recorded, machine), ahead.cores.size
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
    reached, is_whole = find_lowest_layers(lowest, machine), np.zeros(epochs, np.bool_)
    found = Epochs(items, parts[is_used].astype(np.int64), firsts, reached, is_whole)
    return Recording(found, copy_timing_arrays(machine), copy_timing_arrays(ahead), path)


def _divide(recorded: Int64s, machine: Machine) -> Int64s:
    """Divide instructions with results that they do not own; return the rows of all parts."""
    if not machine.owned.size:
        return recorded
    found: list[Int64s] = []
    for row in recorded:
        at = find_owned_range(machine.owned, row[FIRST_WORD + LAYER], row[DESCRIPTOR])
        if at < 0:
            found.append(row)
            continue
        kind, (begin, end) = FOOTPRINT_KIND[row[FIRST_WORD + NUMBER]], machine.owned[at, BEGIN:]
        for words, is_owned in list_parts(kind, row[FIRST_WORD + WORDS :], begin, end):
            part = row.copy()
            part[FIRST_WORD + WORDS :] = words
            if not is_owned:
                part[FIRST_WORD + ACCOUNT] = NOT_OWNED
            found.append(part)
    return np.stack(found)


class Recordings:
    """Recordings of the steps of one program; each step is recorded for each initial state."""

    def __init__(self) -> None:
        self._memory: Any = None
        self._costs: Costs | None = None
        self._known: list[Recording] = []
        self._can_record = True

    def can_record(self, machine: Machine, costs: Costs) -> bool:
        """Return whether recording is possible; discard recordings if memory or costs changed."""
        if machine.ram is not self._memory or costs != self._costs:
            self._memory, self._costs = machine.ram, costs  # bundles may share an image
            self._known, self._can_record = [], True
        return self._can_record

    def find(self, machine: Machine) -> Recording | None:
        """Return the recording that begins with the machine's timing state, or None if unknown."""
        now = [part.tobytes() for part in list_timing_arrays(machine)]
        same = (r for r in self._known if [part.tobytes() for part in r.before] == now)
        return next(same, None)

    def add(self, recording: Recording | None) -> None:
        """Add a recording, or with None, mark the program as dependent on data."""
        if recording is None:
            self._known, self._can_record = [], False
            return
        begin = recording.before[0].pc[0]
        same = [r for r in self._known if r.before[0].pc[0] == begin]
        if len(same) == MAX_STATES:
            self._known.remove(same[1])
        self._known.append(recording)
