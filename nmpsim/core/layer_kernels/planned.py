"""A recording with whole layers in the place of tiles, where that is proved.

Whole layers that follow each other form a pass if no meeting of all threads is needed in between.
Threads meet after a layer, because any task of it may have made what a task of the next one reads.
Where the tasks of both fall into groups that share no memory (rows of a sum, of its rescale, and of
a 1x1 convolution), each group is one part of one epoch, and its rows stay in the host's cache.
What instructions touch tells, whatever the form of a layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter

import attrs
import numpy as np

from nmpsim.core.compiled.recorder_rows import LAYER, NUMBER, WORDS
from nmpsim.core.compiled.recording import PART_WORDS, Epochs, Recording, reached_after
from nmpsim.core.instruction_tables import FOOTPRINT_KIND, OP, WORD_COUNT
from nmpsim.core.layer_kernels.proof import Epoch, Plan, Recorded, Step, prove
from nmpsim.core.state import Machine
from nmpsim.kernels.entries import pause_garbage_collection
from nmpsim.memory.footprint import COUNT, END, MAX_TOUCHES, START, TOUCH_WORDS, WRITES, footprint

MIN_PARTS = 4
"""Parts of a pass at least, for as many threads."""

Spans = list[tuple[int, int]]
"""First byte of some memory and the one behind it, in the order of addresses, all apart."""


@attrs.frozen(eq=False)
class Part:
    """Instructions that one thread executes, and the memory that they read and write."""

    instructions: list[Recorded]
    reads: Spans
    writes: Spans
    place: int = 0
    """Where the last instruction begins to write."""
    reads_dram: bool = False
    """Does it have a load? That reads at an address of the device."""

    def meets(self, other: Part) -> bool:
        """True if one writes what the other one reads or writes."""
        pairs = (
            (self.writes, other.writes),
            (self.writes, other.reads),
            (self.reads, other.writes),
        )
        return any(_meet(one, two) for one, two in pairs)


def _meet(one: Spans, two: Spans) -> bool:
    """True if spans have a byte in common."""
    i = j = 0
    while i < len(one) and j < len(two):
        if one[i][1] <= two[j][0]:
            i += 1
        elif two[j][1] <= one[i][0]:
            j += 1
        else:
            return True
    return False


def part_of(instructions: Sequence[Recorded]) -> Part:
    """A part with these instructions."""
    reads: Spans = []
    writes: Spans = []
    place, touches = 0, np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)
    for one in instructions:
        footprint(int(FOOTPRINT_KIND[one.number]), np.array(one.words, np.int64), touches)
        written = int(touches[0, WRITES])
        spans = touches[1 : touches[0, COUNT] + 1, (START, END)].tolist()
        writes += map(tuple, spans[:written])
        reads += map(tuple, spans[written:])
        place = spans[0][0] if written else place
    reads_dram = any(one.number == OP.nmp_load for one in instructions)
    return Part(list(instructions), _united(reads), _united(writes), place, reads_dram)


def _united(spans: Spans) -> Spans:
    """The same memory in spans that are apart."""
    found: Spans = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _together(parts: Iterable[Part]) -> Part:
    """One part that does what several do, one after the other."""
    known = list(parts)
    return Part(
        [one for part in known for one in part.instructions],
        _united([span for part in known for span in part.reads]),
        _united([span for part in known for span in part.writes]),
    )


def passes(layers: Iterable[Sequence[Part]]) -> Iterator[list[Part]]:
    """Parts that may be done at the same time, of layers that follow each other; each layer's parts
    may be, too."""
    before: list[Part] = []
    for layer in layers:
        join_paths = _joined(before, layer) if before else None
        if join_paths is None and before:
            yield before
        before = list(layer) if join_paths is None else join_paths
    if before:
        yield before


def _joined(before: Sequence[Part], after: Sequence[Part]) -> list[Part] | None:
    """Parts of both in groups that share no memory; None if there are too few, or uneven ones."""
    if any(part.reads_dram for part in (*before, *after)):
        return None
    groups: list[tuple[list[Part], list[Part]]] = [([part], []) for part in before]
    for part in after:
        met = [group for group in groups if any(part.meets(other) for other in group[0])]
        groups = [group for group in groups if group not in met]
        first = [one for group in met for one in group[0]]
        groups.append((first, [*(one for group in met for one in group[1]), part]))
    if len(groups) < MIN_PARTS or len({(len(a), len(b)) for a, b in groups}) > 1:
        return None
    return [_together([*a, *b]) for a, b in groups]


def whole_epochs(machine: Machine, recording: Recording) -> Epochs:
    """The recording with whole layers; as it is if there are none."""
    judge(machine, recording)
    return recording.whole or recording.epochs


def judge(machine: Machine, recording: Recording) -> None:
    """Find out, once, which layers of a recording are whole."""
    if recording.is_judged:
        return
    recording.is_judged = True
    with pause_garbage_collection():
        plan = prove(machine, recorded_epochs(recording.epochs))
    if plan is not None:
        recording.reads_scratchpads = plan.reads_scratchpads
        recording.whole = planned_epochs(machine, plan) if plan.whole else None


def recorded_epochs(epochs: Epochs) -> list[Epoch]:
    """Each epoch's instructions by core."""
    items, counts = epochs.items.tolist(), WORD_COUNT.tolist()

    def part(at: int, end: int) -> Iterable[Recorded]:
        while at < end:
            number = items[at + NUMBER]
            following = at + WORDS + counts[number]
            yield Recorded(number, items[at + LAYER], items[at + WORDS : following])
            at = following

    parts, firsts = epochs.parts.tolist(), epochs.firsts.tolist()
    return [
        {core: list(part(at, end)) for at, end, core in parts[first:last]}
        for first, last in pairwise(firsts)
    ]


def planned_epochs(machine: Machine, plan: Plan) -> Epochs:
    """A plan, packed: each step, or pass over several layers, is an epoch."""
    items: list[int] = []
    parts: list[tuple[int, int, int]] = []
    firsts, lowest, is_whole = [0], [], []
    for whole, epoch in _epochs_of(plan):
        for core, instructions in epoch.items():
            begin = len(items)
            for one in instructions:
                items += [one.number, one.layer, *one.words]
            parts.append((begin, len(items), core))
        firsts.append(len(parts))
        lowest.append(min(one.layer for part in epoch.values() for one in part))
        is_whole.append(whole)
    packed = np.array(parts, np.int64).reshape(-1, PART_WORDS)
    arrays = np.array(items, np.int64), packed, np.array(firsts, np.int64)
    reached = reached_after(np.array(lowest, np.int64), machine)
    return Epochs(*arrays, reached, np.array(is_whole, np.bool_), plan.host)


def _epochs_of(plan: Plan) -> Iterator[tuple[bool, Epoch]]:
    """What is done at the same time, of whole layers or not; a part of a pass has a number."""
    for is_whole, steps in groupby(plan.steps, lambda step: step.layer >= 0):
        if is_whole:
            layers = (_parts_of(step, plan.host.slots) for step in steps)
            for parts in passes(layers):
                yield True, dict(enumerate(part.instructions for part in parts))
        else:
            yield from ((False, step.replayed) for step in steps)


def _parts_of(step: Step, slots: int) -> list[Part]:
    """A whole layer: its tasks take turns in slots. A thread's share of them lies together."""
    found: list[list[Recorded]] = [[] for _ in range(min(slots, len(step.tasks)))]
    for turn, task in enumerate(step.tasks):
        part = found[turn % slots]
        part += [Recorded(number, step.layer, words) for number, words in task]
    return sorted(map(part_of, found), key=attrgetter("place"))
