"""A recording with whole layers in the place of tiles, where that is proved."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from nmpsim.core.compiled.recorder_rows import LAYER, NUMBER, WORDS
from nmpsim.core.compiled.recording import PART_WORDS, Epochs, Recording, reached_after
from nmpsim.core.decode import WORD_COUNT
from nmpsim.core.state import Machine
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
    """A plan, packed: each step is an epoch."""
    items: list[int] = []
    parts: list[tuple[int, int, int]] = []
    firsts = [0]
    lowest = np.full(len(plan.steps), machine.layers.size)
    for index, step in enumerate(plan.steps):
        for core, instructions in by_core(step, plan.host.slots).items():
            begin = len(items)
            for one in instructions:
                items += [one.number, one.layer, *one.words]
                lowest[index] = min(lowest[index], one.layer)
            parts.append((begin, len(items), core))
        firsts.append(len(parts))
    is_whole = np.array([step.layer >= 0 for step in plan.steps])
    reached = reached_after(lowest, machine)
    packed = np.array(parts, np.int64).reshape(-1, PART_WORDS)
    arrays = np.array(items, np.int64), packed, np.array(firsts, np.int64)
    return Epochs(*arrays, reached, is_whole, plan.host)


def by_core(step: Step, slots: int) -> Epoch:
    """What each core does in a step; tasks of a whole layer take turns in slots."""
    if step.layer < 0:
        return step.replayed
    found: dict[int, list[Recorded]] = {}
    for turn, task in enumerate(step.tasks):
        part = found.setdefault(turn % slots, [])
        part += [Recorded(number, step.layer, words) for number, words in task]
    return found
