"""A recording with whole layers in the place of tiles, where that is proved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from operator import attrgetter

import numpy as np

from nmpsim.core.compiled.recorder_rows import LAYER, NUMBER, WORDS
from nmpsim.core.compiled.recording import PART_WORDS, Epochs, Recording, reached_after
from nmpsim.core.decode import WORD_COUNT
from nmpsim.core.state import Machine
from nmpsim.core.whole.passes import Part, part_of, passes
from nmpsim.core.whole.proof import Epoch, Plan, Recorded, Step, prove
from nmpsim.kernels.entries import uncollected


def whole_epochs(machine: Machine, recording: Recording) -> Epochs:
    """The recording with whole layers; as it is if there are none."""
    judge(machine, recording)
    return recording.whole or recording.epochs


def judge(machine: Machine, recording: Recording) -> None:
    """Find out, once, which layers of a recording are whole."""
    if recording.is_judged:
        return
    recording.is_judged = True
    with uncollected():
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
